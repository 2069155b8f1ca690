"""Where something is said in Slack, and the key of the conversation that this is."""

from __future__ import annotations

from urllib.parse import unquote

from turnlane.model.message import conversation_key
from turnlane.model.value import value


@value
class Place:
    team: str
    room: str
    thread: str | None = None
    """The `ts` of the message that opened it. A text, never a number."""

    def key(self, channel: str) -> str:
        return conversation_key(channel, f"{self.team}.{self.room}", *([self.thread] if self.thread else []))


def place_of(conversation: str) -> Place | None:
    """None: no key of ours, such as one that somebody wrote by hand."""
    _, *parts = (unquote(part) for part in conversation.split("/"))
    if not 1 <= len(parts) <= 2:
        return None
    team, _, room = parts[0].partition(".")
    return Place(team, room, *parts[1:]) if team and room else None
