"""What an agent says is checked here before a commit depends on it."""

from __future__ import annotations

from collections.abc import Sequence

from turnlane.errors import AgentFailed, AgentRefused
from turnlane.model.turn import Reply
from turnlane.model.usage import Usage

TOKENS_MAX = 10**12


def checked(reply: Reply) -> Reply:
    """The reply itself, if everything in it can be stored and sent."""
    if not isinstance(reply, Reply):
        raise AgentRefused(f"the agent answered with {kind_of(reply)}; answer with a Reply")
    if reply.text is not None and not _is_text_or_list(reply.text):
        raise AgentRefused(f"the reply's text is {kind_of(reply.text)}; give text, a list of texts, or None")
    for part in reply.parts:
        if not isinstance(part, str):
            raise AgentRefused(f"the reply contains {kind_of(part)}; its text must be text or a list of texts")
        if not is_storable(part):
            raise AgentFailed("the reply contains a NUL or half a surrogate pair; answer in plain Unicode text")
    if reply.session is not None and not is_storable(reply.session):
        raise AgentRefused("the reply's session is no plain text; give the handle as text, or None")
    if not isinstance(reply.usage, Usage):
        raise AgentRefused(f"the reply's usage is {kind_of(reply.usage)}; give a Usage, or leave it out")
    for tokens in _tokens(reply.usage):
        if not isinstance(tokens, int) or not 0 <= tokens <= TOKENS_MAX:
            raise AgentRefused(f"the reply's usage is no count of tokens; give whole numbers from 0 to {TOKENS_MAX}")
    return reply


def _is_text_or_list(text: object) -> bool:
    """Not all that can be gone through: a generator is empty the second time, and a dictionary would say its keys."""
    return isinstance(text, Sequence) and not isinstance(text, bytes)


def _tokens(usage: Usage) -> tuple[object, ...]:
    return (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)


def kind_of(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def is_storable(text: object) -> bool:
    if not isinstance(text, str) or "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
