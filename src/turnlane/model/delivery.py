"""What leaves a conversation, and how each sending of it may end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from hashlib import sha1
from typing import Literal

from turnlane.model.value import value

DeliveryKind = Literal["reply", "notice", "question", "reaction", "media", "typing", "operator"]
DeliveryState = Literal["queued", "sent", "failed", "dropped"]
"""`dropped`: an operator decided that it is not sent (any more)."""

Reported = Literal["sent", "delivered", "read", "failed"]
"""What a platform may tell of a delivery later, in any order."""

Settled = tuple[DeliveryState, int | None, int, int, str | None, str | None]
"""How a delivery stands: state, when, attempt, epoch, receipt, cause."""
UNSETTLED: Settled = ("queued", None, 0, 0, None, None)

_NAMESPACE = uuid.UUID("6d1f1c5e-6f0b-5c58-9b5b-2f6c0a6b7e10").bytes
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


@value
class Delivery:
    """One item of a conversation's outbox."""

    id: str
    """Also the idempotency key: the same on every retry."""
    conversation: str
    text: str
    kind: DeliveryKind = "reply"
    turn: int | None = None
    part: int = 1
    parts: int = 1
    in_reply_to: tuple[str, ...] = ()
    """Origin ids of the turn's messages, in order."""
    seq: int = 0
    """Its place in the outbox of the conversation, from 1; 0 until it is stored."""
    queued_at: int = 0
    resent: bool = False
    """Set for one sending, never stored: an earlier one may have arrived, and the policy is to send all the same."""
    options: tuple[str, ...] = ()
    """Of a question: the answers to choose from. Empty: any text is an answer."""


def in_words(delivery: Delivery) -> str:
    """Its text, with the options to choose from, for whoever has no buttons."""
    return with_options(delivery.text, delivery.options)


def with_options(text: str, options: Iterable[str]) -> str:
    """Numbered, as an answer may give the number."""
    return "\n".join([text, *(f"{number}. {option}" for number, option in enumerate(options, 1))])


def delivery_id(conversation: str, turn: int, part: int) -> str:
    """The same turn and part always give the same id, so a repeated commit or send can be recognised."""
    return _uuid(f"{conversation}#{turn}/{part}")


def _uuid(name: str) -> str:
    """A version 5 UUID, written out: the library's takes as long as the rest of a commit's decisions."""
    digest = sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{_VARIANT[digest[16]]}{digest[17:20]}-{digest[20:32]}"


def notice_id(conversation: str, message: int) -> str:
    """Of what is said about one message outside any turn."""
    return _uuid(f"{conversation}#notice/{message}")


def dropped_id(conversation: str, message: int) -> str:
    """Of what is said about one that was dropped: it may have been put off before, which was said, too."""
    return _uuid(f"{conversation}#dropped/{message}")


def question_id(conversation: str, turn: int, number: int) -> str:
    return _uuid(f"{conversation}#{turn}/question/{number}")


def operator_id(conversation: str, origin_id: str) -> str:
    """Of what an operator says by hand, known by the id that was given for it."""
    return _uuid(f"{conversation}#operator/{origin_id}")


# How one sending ended. The channel answers with one of these; it never raises for ordinary life.


@value
class Sent:
    """The platform has it."""

    receipt: str | None = None


@value
class NotSent:
    """Proven not sent (refused connection, 429, 503): try again."""

    cause: str
    retry_after: float | None = None
    """Seconds, if the platform named them."""
    whole_account: bool = True
    """What it named is meant for all that we send, not for this conversation alone."""


@value
class Unknown:
    """A cut or a time-out: it may or may not have arrived. Looked up before anything is sent again."""

    cause: str
    retry_after: float | None = None
    """Seconds, if the platform named them: it is not asked before."""


@value
class Refused:
    """The platform will never take it (a 4xx): kept as failed, the conversation goes on."""

    cause: str
    gone: bool = False
    """Nor anything else that is said in this conversation, until somebody writes in it again."""


SendResult = Sent | NotSent | Unknown | Refused
