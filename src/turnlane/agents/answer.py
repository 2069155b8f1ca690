"""What an agent says is checked here before a commit depends on it."""

from __future__ import annotations

from turnlane.errors import AgentFailed, AgentRefused
from turnlane.model.turn import Reply


def checked(reply: Reply) -> Reply:
    """The reply itself, if every text in it is text that can be stored and sent."""
    for part in reply.parts:
        if not isinstance(part, str):
            raise AgentRefused(f"the reply contains {kind_of(part)}; its text must be text or a list of texts")
        if not _is_storable(part):
            raise AgentFailed("the reply contains a NUL or half a surrogate pair; answer in plain Unicode text")
    return reply


def kind_of(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
