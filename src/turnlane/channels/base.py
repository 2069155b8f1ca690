"""What a channel is: it turns what arrives into messages and carries deliveries out.

A channel decides nothing about order, retries or storage. `send` answers with a value for everything that ordinary life
brings (model/delivery.py); what it raises is a bug and is judged like an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

from turnlane.model.delivery import Delivery, NotSent, Reported, SendResult, Sent
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.value import value


@value
class Received:
    """What became of the messages handed in, once they are stored."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0


@value
class Hook:
    """One request of a platform, as it came."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    query: Mapping[str, str] = field(default_factory=dict)


@value
class Status:
    """What a platform tells of a delivery after it took it. Known by our id, where it repeats that, else by its own."""

    conversation: str
    state: Reported
    delivery: str | None = None
    receipt: str | None = None
    cause: str | None = None


@value
class Reaction:
    """Somebody put a sign to something of ours, which the platform names by its own id. It may be an answer."""

    conversation: str
    receipt: str
    sign: str
    """The emoji itself."""
    sender: str
    origin_id: str


@value
class Aside:
    """Something a platform said that nobody here can read. Kept for an operator to look at."""

    why: str
    body: str


@value
class Heard:
    """What a platform told us at one time, read and verified, and not yet stored."""

    messages: Sequence[Message] = ()
    overheard: Sequence[Message] = ()
    """Said in a room, but not to us: a message only where a conversation is under way already."""
    typing: Sequence[str] = ()
    """Conversations in which somebody is typing."""
    statuses: Sequence[Status] = ()
    reactions: Sequence[Reaction] = ()
    ignored: Sequence[str] = ()
    """Why something is not a message to us, once for each; a few fixed texts, so that they can be counted."""
    asides: Sequence[Aside] = ()
    answer: str | None = None
    """What the platform wants to hear word for word, as a proof that we are here. None: only that it was stored."""
    when_stored: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    """Called once the messages are durable, if any of them is new: nobody is told so before."""


Receive = Callable[[Heard], Awaitable[Received]]
"""Store what was heard. Returns only once it is durable; raises BackendUnavailable, and then it may be told again."""


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

    async def hear(self, hook: Hook) -> Heard:
        """Verify and read one request. Stores nothing, and takes no longer than a look at the platform may take.

        Raises Unauthorized for a wrong or missing secret, UnsupportedMediaType, InvalidBody for what cannot be read at
        all, and InvalidMessage for the wrong shape, where the other side can do something about it. What a platform
        sends that nobody here knows is an `Aside`: refused, it would only be sent again.
        """


@runtime_checkable
class HandshakingChannel(HookChannel, Protocol):
    """A hook channel whose platform asks by GET, before it posts anything, whether we are who it looks for."""

    def handshake(self, query: Mapping[str, str]) -> str:
        """What to answer, word for word. Raises Unauthorized."""


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
        was shown; a turn that is run again is shown from the beginning, after a None for what an earlier run may have
        left. What this raises is told once, and that is all. A channel with an attribute `show_seconds` is not shown
        more often than that.
        """


class AskLater(ConnectionError):
    """The platform was asked what became of a delivery, and says when to come back, in seconds."""

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


@runtime_checkable
class LookingChannel(Channel, Protocol):
    """A channel that can ask its platform what became of a delivery."""

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        """Whether an earlier sending of it arrived. None: the platform cannot tell, and the lane's policy decides.

        Asked before a delivery is sent again whose last sending nobody knows the end of; on NotSent it is sent at once.
        Raise if the platform cannot be asked just now: it is asked again later, and nothing is sent until then. Raise
        `AskLater` if it said when: it is not asked before.
        """


@runtime_checkable
class SplittingChannel(Channel, Protocol):
    """A channel whose platform takes only so much in one message."""

    def parts(self, text: str) -> Sequence[str]:
        """The text, in as many pieces as it takes; each is a delivery of its own. Never empty, and never fails."""


@runtime_checkable
class IndicatingChannel(Channel, Protocol):
    """A channel that can show that somebody is at work on an answer."""

    @property
    def indicated_seconds(self) -> float:
        """How long an indication lasts by itself; while the turn runs it is shown again as often."""

    async def indicate(self, conversation: str, latest: str) -> None:
        """Somebody works on what was said last, known by its origin id. Not waited for; what it raises is told once."""


@value
class FileAt:
    """Where a file of a platform can be fetched, and what must be said for it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@runtime_checkable
class FileChannel(Channel, Protocol):
    """A channel whose platform gives its files only to us."""

    async def file(self, url: str) -> FileAt | None:
        """How to fetch what an attachment of this channel names. None: it is not a file of this platform.

        Raises ConnectionError if the platform cannot tell.
        """
