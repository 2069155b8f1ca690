"""What a channel is: it turns what arrives into messages and carries deliveries out.

A channel decides nothing about order, retries or storage. `send` answers with a value for everything that ordinary life
brings (model/delivery.py); what it raises is a bug and is judged like an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from turnlane.model.delivery import Delivery, NotSent, SendResult, Sent
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.value import value


@value
class Received:
    """What became of the messages handed in, once they are stored."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0


Receive = Callable[[Sequence[Message]], Awaitable[Received]]
"""Store the messages. Returns only after they are durable; raises BackendUnavailable with nothing half stored."""


class Channel(Protocol):
    """One configured connection to a platform account."""

    name: str

    async def send(self, delivery: Delivery) -> SendResult:
        """Carry one delivery out, at most once per call, without retries of its own.

        `delivery.resent`: an earlier sending may have arrived. Say so where the platform has a place for it. If nobody
        is there any more, answer `Refused(cause, gone=True)`: nothing else is sent there until somebody writes again.
        """

    async def close(self) -> None:
        """Let connections go. May be called twice."""


@runtime_checkable
class ProfileChannel(Channel, Protocol):
    """A channel whose platform can be asked about a person."""

    async def profile(self, user: str) -> Person | None:
        """What the platform knows of them. None: nothing. Never called on the path of a message."""


@runtime_checkable
class HookChannel(Channel, Protocol):
    """A channel whose platform calls us over HTTP at `/channels/{name}`."""

    @property
    def secured(self) -> bool:
        """False: anybody may post, so it is served on loopback only."""

    def parse(self, headers: Mapping[str, str], body: bytes) -> Sequence[Message]:
        """Verify and read one request (header names in lower case). Stores nothing.

        Raises Unauthorized for a wrong or missing secret, UnsupportedMediaType, InvalidBody for what is not JSON, and
        InvalidMessage for JSON of the wrong shape.
        """


@runtime_checkable
class TypingChannel(HookChannel, Protocol):
    """A hook channel whose platform tells when a person is typing."""

    def typing(self, body: bytes) -> Sequence[str]:
        """The conversations in which somebody is typing, by a request that `parse` has verified and found in order."""


@runtime_checkable
class ListeningChannel(Channel, Protocol):
    """A channel that fetches by itself: a terminal, a socket."""

    async def listen(self, receive: Receive) -> None:
        """Hand messages in until there are no more, or until cancelled."""


@runtime_checkable
class StreamingChannel(Channel, Protocol):
    """A channel that can show an answer while it is still being made."""

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        """What there is of the turn's answer by now; it takes the place of what was shown of that turn before.

        None: nothing of it is shown any more. The answer itself comes through `send`, whole, and never depends on what
        was shown; a turn that is run again is shown from the beginning. What this raises is told once, and that is all.
        """


@runtime_checkable
class LookingChannel(Channel, Protocol):
    """A channel that can ask its platform what became of a delivery."""

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        """Whether an earlier sending of it arrived. None: the platform cannot tell, and the lane's policy decides.

        Asked before a delivery is sent again whose last sending nobody knows the end of; on NotSent it is sent at once.
        Raise if the platform cannot be asked just now: it is asked again later, and nothing is sent until then.
        """
