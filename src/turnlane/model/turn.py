"""What an agent is asked, and how a run may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal, Protocol

from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.question import Answer, Question
from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.value import value

TurnOutcome = Literal["answered", "dead_letter", "superseded", "retried", "dropped"]
"""How a turn is recorded once it is over. A message that several turns hold belongs to the last of them.

`retried`: it was a dead letter, and its messages have moved on, to be run again. `dropped`: it was one, kept no longer.
"""


class Stage(Protocol):
    """What whoever runs a turn does for it meanwhile."""

    def show(self, turn: Turn, text: str) -> None: ...

    async def ask(
        self, turn: Turn, text: str, options: Sequence[str], timeout: float | None, number: int | None
    ) -> Answer: ...

    async def more(self, turn: Turn) -> Sequence[Message]: ...

    async def past(self, turn: Turn, turns: int) -> Sequence[Exchange]: ...

    async def was_begun(self, turn: Turn) -> bool: ...


@value
class Exchange:
    """An answered turn: what was said, and what was answered."""

    number: int
    messages: Sequence[Message]
    """With what others said in the agent's place since the exchange before it."""
    answers: Sequence[str]


@value
class Turn:
    """One run of an agent over the messages taken together."""

    conversation: str
    number: int
    attempt: int
    """From 1; greater when an earlier run of this same turn failed or was lost."""
    epoch: int
    channel: str
    messages: Sequence[Message]
    """What is to be answered; and, by their `role`, what others said meanwhile in the agent's place."""
    session: str | None = None
    """The agent's own handle, as saved by the last turn that was answered."""
    moved_from: str | None = None
    """The machine that alone holds what the handle stands for, if it is not this one: fetch it, or begin anew and say
    so. None: the handle is as good here as where it was given."""
    answers: Sequence[Answer] = ()
    """To the questions that earlier runs of this turn asked, in order."""
    person: Person | None = None
    """Whom the turn is for: who spoke last before it began."""
    stage: Stage | None = field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The same on every attempt, so that an agent can recognise a turn it has already worked on."""
        return f"{self.conversation}#{self.number}"

    @property
    def text(self) -> str:
        """All that was said, one message a line; what others said in the agent's place is marked so."""
        return "\n".join(
            message.text if message.role in {"person", "schedule"} else f"[{message.role}] {message.text}"
            for message in self.messages
        )

    def show(self, text: str) -> None:
        """Let the person see what there is of the answer so far, if the channel can show it; the latest text counts.

        Returns at once and never fails, from any thread. What is answered in the end is what counts: it takes the place
        of all that was shown.
        """
        if self.stage is not None:
            self.stage.show(self, text)

    async def ask(
        self,
        text: str,
        options: Sequence[str] = (),
        timeout: float | None = None,
        *,
        number: int | None = None,
    ) -> Answer:
        """Ask the person and go on with the answer, however long it takes and wherever it arrives.

        With `on_ask = "set_aside"` (and after a crash) this run ends here and the turn starts again from the top once
        there is an answer; its n-th question then returns the n-th stored answer at once. So whatever stands before
        a question must bear to be done twice. `timeout` in seconds: past it the answer is one that `timed_out`.
        `number` says which question of the turn this is, for an agent that does not start from the top.
        """
        if self.stage is None:
            raise RuntimeError("nobody can be asked: this turn was not made by a worker")
        return await self.stage.ask(self, text, options, timeout, number)

    async def more(self) -> Sequence[Message]:
        """With `on_busy = "steer"`: take what was said since the turn began, or since this was last asked, into it.

        It is answered with this turn, from its commit on; a run that fails before leaves it waiting, and the next run
        may take it again. Empty with any other policy.
        """
        return () if self.stage is None else await self.stage.more(self)

    async def past(self, turns: int = 20) -> Sequence[Exchange]:
        """The latest exchanges of this same session, oldest first, as far as the history is kept; none without one.

        For an agent whose service remembers nothing: the session's handle then is only a name that it made up.
        """
        return () if self.stage is None or self.session is None else await self.stage.past(self, turns)

    async def was_begun(self) -> bool:
        """Whether an earlier run of this same turn was begun, however it ended.

        More than `attempt` tells: a run that was given back at a graceful stop counts as none, and may have got far.
        """
        if self.attempt > 1:
            return True
        return self.stage is not None and await self.stage.was_begun(self)


@value
class Reply:
    """An agent's answer. `text=None` says nothing; several texts leave as several deliveries, in order."""

    text: str | Sequence[str] | None
    session: str | None = None
    usage: Usage = NO_USAGE
    local: bool = False
    """What the session's handle stands for is on this machine alone. The conversation stays here while it can."""
    began_anew: str | None = None
    """Why the session that the turn named could not be gone on with: what is spent counts from zero again, whether the
    handle is another one or the same."""
    model: str | None = None
    """Which model answered: it has its price."""

    @property
    def parts(self) -> Sequence[str]:
        if self.text is None:
            return ()
        return (self.text,) if isinstance(self.text, str) else tuple(self.text)


# How the holder of a lease ends it. One of these goes into `Backend.commit`.


@value
class Replied:
    """A turn lane: the batch is answered."""

    reply: Reply
    through: int | None = None
    """With steering: the last message that was handed into the run while it ran, and so belongs to this turn."""


@value
class Delivered:
    """An out lane: the delivery is with the platform."""

    receipt: str | None = None


@value
class Fired:
    """A tick lane: what is due is said, and the next time is waited for."""


@value
class RetryLater:
    """It failed; the same batch is tried again at `at`, in its place, unless its attempts are used up."""

    at: int
    cause: str
    counts: bool = True
    """False for a failure that must not use up the attempts: the platform said "later", or was not there."""
    in_doubt: bool = False
    """An out lane: the sending may have arrived after all. Whoever tries next is told (`Lease.in_doubt`)."""
    holds_account: bool = False
    """An out lane: the platform asked for patience, so no worker sends anything of this account before `at`."""
    notice: str | None = None
    """A turn lane: said to the person, once, however often the same messages are put off."""


@value
class GaveUp:
    """Trying again is pointless: a turn becomes a dead letter, a delivery is kept as failed."""

    cause: str
    gone: bool = False
    """An out lane: nothing can be sent to this conversation any more, until somebody writes in it again."""


@value
class Released:
    """Given back without blame (a graceful stop); whoever takes it next starts over."""


@value
class Superseded:
    """A turn lane: the run was cancelled, and its turn ends without an answer."""

    set_aside: bool
    """True: its messages are given up with it. False: they wait again, ahead of what came since, for one new turn."""
    cause: str


@value
class Asks:
    """A turn lane: the run has stopped to wait for the answer to its n-th question; then the turn starts again."""

    number: int
    question: Question


@value
class Parked:
    """Nobody here can run it (no such agent or channel); the lane waits, visible, for an operator."""

    cause: str


Outcome = Replied | Delivered | Fired | RetryLater | GaveUp | Released | Superseded | Asks | Parked
