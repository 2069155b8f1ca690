"""The contract of a backend: its verbs, each with its promise.

What every backend keeps, whatever it is made of:

1. Durable on return. A verb that returned has happened, and survives the loss of every process.
2. One holder. At most one lease of a lane is valid; a write under any other lease changes nothing.
3. Nothing is stranded. Whatever was accepted is claimable once it is ready, until a commit gives it its outcome.
4. All or nothing, lane by lane. Each message of an accept, each claim and each commit is a unit of its own. A verb that
   touches several lanes may be cut between two of them; the next call of it finishes what was left.
5. Repeatable. After an unknown outcome (a time-out, a cut) the same call may be made again: accept answers `duplicate`,
   commit answers what it answered the first time, for as long as the history of the turn is kept.
6. Clocks decide when something happens, never what may be written.

Verbs are called one by one and grouped inside: calls that wait at the same time travel together, in one transaction or
one batch of the server. So callers stay simple, and the cost of a durable write is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

from turnlane.backends.calls import Calls
from turnlane.errors import InvalidSettings
from turnlane.model.command import Command
from turnlane.model.delivery import DeliveryState, Reported
from turnlane.model.event import Event, Fact
from turnlane.model.lane import Kind, LaneState
from turnlane.model.lease import Lease
from turnlane.model.limits import Limits
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.question import Answer, Question, QuestionView
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Outcome
from turnlane.model.usage import Spent
from turnlane.model.value import value
from turnlane.model.view import (
    Busy,
    Changes,
    Counts,
    DeadLetter,
    DeliveryView,
    LaneView,
    Lock,
    ScheduleView,
    SessionView,
    StoredEvent,
    Story,
    WorkerView,
)

if TYPE_CHECKING:
    from turnlane.clock import Clock


@value
class Arrival:
    """A message to be accepted, with the policy that its lane shall follow from now on."""

    message: Message
    policy: Policy
    command: Command | None = None
    """The message is a chat command: it is obeyed with the accept itself, and no agent sees it."""
    too_fast: bool = False
    """Its sender says more than they may: it is stored as refused, and they are told so, once for all in a row. All
    the same an open question is answered, and `stop` is obeyed if there is something to stop."""


@value
class Acceptance:
    verdict: Literal["accepted", "duplicate", "rejected"]
    """`rejected`: stored as refused, as the mailbox is full and `on_full` says so, or its sender is too fast."""
    seq: int
    """The message's place in its conversation; of a duplicate, the place of the first one."""


Verdict = Literal[
    "answered",
    "sent",
    "fired",
    "retried",
    "dead_letter",
    "failed",
    "released",
    "superseded",
    "asked",
    "parked",
    "fenced",
]


@value
class Committed:
    verdict: Verdict
    """What became of the batch. `fenced`: the lease was no longer valid, and nothing was changed."""
    next: Lease | None = None
    """With `take_next`: the lease that the same worker goes on with. None says nothing about what is due."""


class Backend(Protocol):
    """Storage, wake-ups and events in one object."""

    url: str
    limits: Limits
    """How many turns a claim of this process lets run in the whole fleet, and what is paused. The same everywhere, or
    the strictest holds only where it is known. A new value is in force with the next claim, also of those who wait."""
    counted: Calls
    """How often it was asked through this object, as far as that can fail."""

    async def open(self) -> None:
        """Connect, and create or migrate the schema if the store is empty or older.

        Raises SchemaMismatch if the store is newer than this code, BackendUnavailable if it cannot be reached.
        """

    async def close(self) -> None:
        """Finish what was submitted, then disconnect. May be called twice, or before open."""

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> None:
        """Hand every fact that this process's calls cause to `listener`, on the event loop, after it is durable."""

    # Workers

    async def join(self, worker: str, term_ms: int, machine: str = "") -> None:
        """Make the worker live for one term. An id that the store remembers is refused with WorkerLost.

        Workers on one machine share its files, and so the sessions that are there alone (`Reply.local`).
        """

    async def renew(self, worker: str, term_ms: int, held: Sequence[Lease]) -> bool:
        """Make the worker live for one more term. False: the store says that it was declared dead, which is final.

        Leases of this worker that `held` does not name, and that it claimed more than a term ago, are given back
        without blame: the answer to their claim got lost.
        """

    async def leave(self, worker: str) -> None:
        """Declare the own worker dead, so that it claims nothing more, then give its leases back without blame."""

    async def reap(self) -> int:
        """Declare workers dead whose term is over, then take their lanes back. Returns how many lanes this call took.

        The attempt of each stays counted. A batch whose takeovers are used up becomes a dead letter here.
        """

    # The path of a message

    async def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        """Store the messages and make their lanes due by their policies. Answers in the order given.

        While a turn of the conversation asks, the person's next message is the answer, and in no turn of its own; but
        not before the question may have left, unless it names that (`answers`).
        What somebody of the business says is kept as heard. It is no message to be answered: the agent is told with its
        next turn (`Lease.heard`). With a `takeover_ms` in its policy, the turn that is open is superseded, and the lane
        paused for so long from now; of what waits only the last is still to be answered, the rest is heard, too.

        A message whose channel and origin id were seen within `dedupe_for` changes nothing, whatever its body; of
        two in one call, the first is accepted.
        """

    async def claim(self, worker: str, kind: Kind, *, most: int = 1, wait: bool = False) -> list[Lease]:
        """Lease up to `most` lanes that are ready, longest due first as far as this process can see.

        The worker must be live in the same transaction, else WorkerLost. The epoch grows; the attempt is counted. With
        `wait` the call returns once there is at least one; what a cancelled call was leased meanwhile is given back.

        A lane whose session is on one machine alone goes to a worker of that machine. Others leave it to them while one
        of them is live, for `session_wait` from when they could have taken it; then they take it, and the lease says
        where it has `moved_from`.
        """

    async def commit(self, lease: Lease, outcome: Outcome, *, take_next: bool = False) -> Committed:
        """End the lease: the batch gets its outcome, and all that follows from it is written with it, or nothing is.

        `Replied`: messages answered, turn and usage recorded, session saved (bound to the worker's machine, if it is
        `local`), deliveries appended to the out lane.
        With `through`, messages that were handed into the run meanwhile are answered with it. `Superseded`: the turn
        ends without an answer, and its messages with it or, in their order, again with what came since. `Asks`: like
        `ask`, and the batch waits, without blame, until there is an answer or its time is over.
        `Delivered`: the delivery is sent. `RetryLater`: the same batch again, in its place, or a dead letter if its
        attempts are used up. `GaveUp`: a dead letter (turn) or kept as failed (delivery); if its conversation is `gone`
        with all that waits in the outbox, and all that is said there until a message comes. `Released`: given back
        without blame. `Parked`: the lane waits for an operator. What arrived meanwhile makes the lane due by itself.

        After a `RetryLater` in doubt, a release or a lost worker, the next leases of that delivery are `in_doubt`
        until it is settled, or let go by `unpark`. Of these only lost workers use up the takeovers, the
        others at most one.
        """

    async def ask(self, lease: Lease, number: int, question: Question) -> Answer | None:
        """Ask the person the n-th question of the lease's turn; the lease stays. Returns the answer, None without one.

        Asked once, whoever runs the turn and however often: a number that the turn has asked before only returns what
        was answered. Past the question's time that is `TIMED_OUT`, for good. ValueError: an earlier one is still open.
        Under a lease that is not valid any more nothing is asked, and None returned.
        """

    async def refuse_late(self, lease: Lease) -> int:
        """With `on_busy = "reject"`: refuse what came while the lease's turn runs, and say so to the person, once.

        Returns how many. 0 if there are none, or the lease is not valid any more. A commit does the same for the rest.
        """

    async def hold_outbox(self, lease: Lease) -> bool:
        """Whether the holder of this turn may show its answer now, before it is whole. Asked before each showing.

        True: the lease is valid, nothing waits in the conversation's outbox, and its holder holds that, too, until the
        turn ends or something is to be sent, which never waits for this. Where the account has a rate, each showing is
        counted. False: not now; nothing was changed.
        """

    async def say(self, message: Message, *, takes_over: bool = True) -> Acceptance | None:
        """Answer by hand: the text goes to the end of the outbox, and is kept like what the business says.

        Said again under the same channel and origin id, it changes nothing. None: there is no such conversation.
        """

    async def typing(self, conversation: str) -> bool:
        """The person is typing: what gathers waits for quiet anew, within max wait. False: nothing gathers, and nothing
        was written."""

    async def report(
        self, conversation: str, place: int, state: Reported, *, receipt: str | None = None, cause: str | None = None
    ) -> bool:
        """What the platform says of a delivery after it took it, and never the other way round.

        One that was sent and comes to nothing after all is kept as failed. One that waits to be sent again, as nobody
        knew whether it arrived, has arrived. False: there is no such delivery, or it says nothing new.
        """

    async def note(self, name: str, conversation: str | None = None, **facts: Fact) -> None:
        """Write down a fact that comes with no change of the store: all that `EVENTS` says of its name."""

    # Steering

    async def answer(self, conversation: str, text: str, *, by: str = "operator") -> bool:
        """Answer the open question of a turn in the person's place. False: none is open, and nothing was changed."""

    async def stop(self, conversation: str) -> bool:
        """Set aside all that was said and not answered; who runs a turn is fenced. False: there was nothing."""

    async def retry(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        """Let the batch (or delivery) start now that waits for its next attempt.

        False: none waits for that. A turn that waits for the answer to what it asked would only ask again.
        """

    async def skip(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        """Give the open batch up: a dead letter (turn) or kept as failed (delivery). Who runs it is fenced.

        False: no batch is open.
        """

    async def pause(self, conversation: str, kind: Kind = Kind.TURN, *, until: int | None = None) -> bool:
        """Claim nothing of this lane until it is resumed, or until then; a running turn goes on.

        Replaces whatever pause there was. Whoever claims the lane after that time resumes it. False: no such lane.
        """

    async def resume(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        """Undo pause. False: there is no such lane. Of a schedule, what passed meanwhile was not missed."""

    async def behave(self, conversation: str, on_busy: OnBusy | None) -> bool:
        """What becomes of messages that come while a turn of this conversation runs, whatever its route says.

        It holds for the turn that runs, too. None: as the route says. False: there is no such conversation.
        """

    async def renew_session(self, conversation: str) -> bool:
        """Let the next turn begin a session of its own, as the chat command does. False: it does so anyway.

        The turn that runs goes on with the old one, which is then not saved; nor is one that it begins itself.
        """

    async def retry_dead_letter(self, conversation: str, number: int) -> int:
        """Run the messages of a dead letter again: they move, with their ids, behind all that waits in their lane.

        Returns how many. 0: this turn is no dead letter, or not any more. Its record stays, as `retried`.
        """

    async def drop_dead_letter(self, conversation: str, number: int) -> bool:
        """Keep a dead letter no longer: its record says `dropped`, and goes in time. False: as above."""

    async def resend(self, conversation: str, place: int) -> bool:
        """Send a delivery again that failed or was dropped: it moves to the end of its outbox, under the same id.

        One that is held, as it may have arrived, is let go. False: there is no such delivery, it was sent, or waits.
        """

    async def drop(self, conversation: str, place: int) -> bool:
        """Do not send a delivery, and keep it on no list; what is behind it goes on. Who sends it just now is fenced.

        False: there is no such delivery, or it was sent or dropped.
        """

    async def unpark(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        """Let a parked lane go on, its attempts counted anew. False: it was not parked."""

    # Schedules

    async def schedule(self, schedule: Schedule, policy: Policy) -> bool:
        """Add the schedule, or change the one of this name; the policy is stamped on its conversation with each prompt.

        A tick lane, `schedule/NAME`, is due at its next time. Whoever claims and commits it (`Fired`) says the prompt
        in the conversation, as a message under the id `schedule/NAME/TIME`, and arms the next time, all in one. Of the
        times that have passed by then, `missed` says which are said. If only words change, the next time stays.
        False: all was so already, and nothing was changed. InvalidSchedule: its times cannot be read, or never come.
        """

    async def unschedule(self, name: str) -> bool:
        """Remove it; what it has said stays. Who holds it is fenced. False: there is no such schedule."""

    async def fire(self, name: str, at: int) -> Acceptance | None:
        """Say its prompt now, as if `at` were one of its times, which go on as they are; also while it is paused.

        Said once for each `at`, however often it is asked for. None: there is no such schedule.
        """

    # Settings

    async def configure(self, name: str, value: str | None, *, by: str = "operator") -> bool:
        """Store a setting for all processes, whatever it means to them; None: it is stored no longer.

        False: it was so already, and nothing was changed.
        """

    async def configuration(self) -> Mapping[str, str]:
        """All settings that are stored. Cheap: every process asks once or twice a second."""

    # People

    async def save_person(self, person: Person) -> Person:
        """Store what is known of somebody, whatever was stored before; its version grows. Returns it as stored."""

    async def person(self, channel: str, user: str) -> Person | None:
        """What is stored of somebody. None: nothing is."""

    async def changed_people(self, after: int) -> tuple[list[Person], int]:
        """Who was stored since, by any process, and the cursor to ask with next. `after=-1`: nobody, only the cursor.

        Whatever clocks do, nobody is missed. Cheap: every process asks once a second.
        """

    async def forget(self, *, messages_before: int, events_before: int, origins_before: int) -> int:
        """Delete history settled before these times, never dead letters. Returns how many rows this call deleted."""

    # What is seen: read without a lock and not as one snapshot. `lanes`, `schedules` and `counts` may cost a pass over
    # all lanes.

    async def lanes(
        self, *, kind: Kind = Kind.TURN, state: LaneState | None = None, channel: str | None = None, limit: int = 100
    ) -> list[LaneView]: ...

    async def board(self, limit: int) -> list[LaneView]:
        """Turn lanes, those that are not idle before all others; of each, the newest conversations first."""

    async def story(self, conversation: str, *, limit: int = 1000) -> Story | None:
        """The latest messages, turns, attempts and deliveries of a conversation, oldest first. None: never heard of."""

    async def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None:
        """The conversation and the place in it of a message, as long as its id is remembered. None: never heard of."""

    async def deliveries(self, conversation: str, *, after: int = 0, limit: int = 100) -> list[DeliveryView]:
        """What left or will leave the conversation, in order, after that place in its outbox."""

    async def delivery(self, id: str) -> DeliveryView | None:
        """The delivery under this id. May cost a pass over all that was ever sent."""

    async def questions(self, conversation: str, *, limit: int = 100) -> list[QuestionView]:
        """What turns of the conversation asked, the latest last."""

    async def outbox(self, *, state: DeliveryState = "queued", limit: int = 100) -> list[DeliveryView]: ...

    async def dead_letters(self, *, conversation: str | None = None, limit: int = 100) -> list[DeadLetter]: ...

    async def locks(self) -> list[Lock]: ...

    async def busy(self, worker: str) -> list[Busy]:
        """The turns that this worker runs by the store's account, whatever it believes itself."""

    async def waiting(self, conversation: str) -> list[Message]:
        """Messages of the conversation that are in no batch and have no outcome, in order."""

    async def workers(self) -> list[WorkerView]: ...

    async def schedules(self) -> list[ScheduleView]:
        """All of them, by name."""

    async def sessions(self, *, agent: str | None = None, limit: int = 100) -> list[SessionView]:
        """Those that were used last, first. May cost a pass over all conversations."""

    async def spent(
        self, *, since: int = 0, until: int | None = None, channel: str | None = None, user: str | None = None
    ) -> list[Spent]:
        """What answered turns used, added up by account in their commits, in the order of the accounts.

        From one day to another, both included; of one channel or user alone. Never forgotten.
        """

    async def counts(self) -> Counts: ...

    async def events(self, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        """Facts in the order they were committed, after that cursor; `after=-1`: only the last one, for its cursor.

        Cursors grow but are not dense. Facts of calls that changed nothing (duplicate, fenced) are kept if it is cheap.
        """

    async def changes(self, *, after: int, limit: int = 1000) -> Changes:
        """The same facts, and how the turn lanes of their conversations stand: read with or after the facts, so that
        whoever keeps the last lane it was told has them as they are once it was told the last fact."""

    async def changed(self, within: float) -> bool:
        """Wait until something may have been committed, here or by another process. False: the seconds are over.

        A hint: may come early, late or without reason; whoever waits looks again.
        """


_MODULES = {
    "memory": "turnlane.backends.memory:MemoryBackend",
    "sqlite": "turnlane.backends.sqlite:SqliteBackend",
    "postgresql": "turnlane.backends.postgres:PostgresBackend",
    "postgres": "turnlane.backends.postgres:PostgresBackend",
    "nats": "turnlane.backends.nats:NatsBackend",
    "tls": "turnlane.backends.nats:NatsBackend",
}


def open_backend(url: str, clock: Clock | None = None, *, idle_after_ms: int = 60_000) -> Backend:
    """The backend that the URL names, not yet connected: `memory://`, `sqlite:///file.db`, `postgresql://host/database`.

    What it remembers of a conversation in this process goes once the conversation was idle for `idle_after_ms`.
    """
    from turnlane.clock import SystemClock

    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise InvalidSettings(f"the URL of the backend cannot be read; correct it ({error})") from error
    if scheme not in _MODULES:
        known = ", ".join(f"{name}://" for name in _MODULES)
        raise InvalidSettings(f"no backend for {url.partition(':')[0]!r}; use one of {known}")
    module, _, name = _MODULES[scheme].partition(":")
    try:
        kind = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        extra = module.rpartition(".")[2]
        missing = f"{scheme}:// needs the package {error.name}; pip install 'turnlane[{extra}]'"
        raise InvalidSettings(missing) from error
    backend: Backend = kind(url, clock or SystemClock(), idle_after_ms)
    return backend
