"""What a person said, and the name of the conversation it was said in."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote, unquote

from turnlane.errors import InvalidMessage
from turnlane.model.value import value

MessageOutcome = Literal["superseded", "refused", "dropped", "answer", "command", "heard"]
"""Of a message that is in no turn. The others have the outcome of their turn."""

Role = Literal["person", "business", "operator", "schedule"]
"""Who speaks: the person whom the agent answers, somebody who answers in its place, or the clock."""

CONVERSATION_BYTES_MAX = 512
ORIGIN_ID_BYTES_MAX = 512
SENDER_BYTES_MAX = 512


@value
class Attachment:
    """A file that came with a message: where it is and what it claims to be."""

    url: str
    name: str | None = None
    media_type: str | None = None
    size: int | None = None


@value
class Message:
    """One thing a person (or a hook, or a schedule) said. Known by its channel and origin id."""

    channel: str
    origin_id: str
    conversation: str
    sender: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    sent_at: int | None = None
    seq: int = 0
    """Its place in the conversation, from 1; 0 until it is stored."""
    accepted_at: int = 0
    role: Role = "person"
    answers: str | None = None
    """The delivery of the question that this is the answer to, where the platform tells (a button). Not stored."""

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.origin_id}"

    def stored(self, seq: int, accepted_at: int) -> Message:
        """The same, now with its place. Written out, as `dataclasses.replace` is slow on the path of every message."""
        return Message(
            self.channel,
            self.origin_id,
            self.conversation,
            self.sender,
            self.text,
            self.attachments,
            self.sent_at,
            seq,
            accepted_at,
            self.role,
        )


def conversation_key(channel: str, *parts: str) -> str:
    """`channel/room[/thread]`, each part percent-encoded so that the key splits back exactly."""
    key = "/".join((channel, *(quote(part, safe="") for part in parts)))
    if len(key) > CONVERSATION_BYTES_MAX:
        raise InvalidMessage(
            f"the conversation's name is {len(key)} bytes long once encoded; use at most {CONVERSATION_BYTES_MAX}"
        )
    return key


def key_written(text: str) -> str:
    """A key as the store has it, from what a person wrote: `site/alice smith` is `site/alice%20smith`."""
    channel, *parts = text.split("/")
    return "/".join([channel, *(quote(unquote(part), safe="") for part in parts)])


def channel_of(conversation: str) -> str:
    return conversation.partition("/")[0]


def local_part(conversation: str) -> str:
    """What the channel itself calls the conversation: `alice` for `site/alice`."""
    return unquote(conversation.partition("/")[2])
