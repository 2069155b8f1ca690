"""The verbs of the contract where one thread writes: they travel to it in groups, and their answers come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from turnlane.backends.base import Acceptance, Arrival, Committed, Verdict
from turnlane.backends.calls import READ, Calls
from turnlane.backends.reader import Reader, Views
from turnlane.backends.serving import Taker
from turnlane.backends.transaction import Transaction
from turnlane.backends.writer import Call, Group, Verb, Writer
from turnlane.clock import Clock
from turnlane.errors import BackendError, BackendUnavailable, WorkerLost
from turnlane.model.delivery import DeliveryState, Reported
from turnlane.model.event import Event, Fact, event_of
from turnlane.model.lane import OUT, TURN, Kind, LaneState
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.question import Answer, Question, QuestionView
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Outcome
from turnlane.model.usage import Period, Spent
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

T = TypeVar("T")


class GroupedBackend:
    """One writing thread with group commit, one reading thread; any number of processes on the store."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.counted = Calls()
        self._limits = NO_LIMITS
        self._clock = clock
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._listeners: list[Callable[[Sequence[Event]], None]] = []
        self._change = asyncio.Event()

    async def close(self) -> None:
        writer, reader, self._writer, self._reader = self._writer, self._reader, None, None
        if writer is not None:
            await asyncio.to_thread(writer.stop)
        if reader is not None:
            await asyncio.to_thread(reader.close)
        # The last group's answers are already queued on the loop; let them be told.
        await asyncio.sleep(0)

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        if self._writer is not None:
            self._writer.poke()

    @property
    def undone(self) -> Exception | None:
        """What last undid a group of calls, if anything did. Who simulates asks, as each call is then tried alone."""
        return self._writer.undone if self._writer is not None else None

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> None:
        self._listeners.append(listener)

    # How a verb reaches the writer and its answer comes back

    def _call(
        self,
        verb: Verb,
        arguments: tuple[Any, ...] = (),
        lanes: Sequence[tuple[Kind, str]] = (),
        origins: Sequence[tuple[str, str]] = (),
        finish: Callable[[Any], Any] | None = None,
        waits: Taker | None = None,
        sends: bool = False,
    ) -> asyncio.Future[Any]:
        if self._writer is None:
            raise BackendUnavailable("the backend is not open; call open() first")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.counted.made[verb.__name__] += 1
        self._writer.submit(Call(verb, arguments, future, lanes, origins, finish, waits, sends))
        return future

    def _report(self, group: Group) -> None:
        for future, answer in chain(group.answers, group.to_senders):
            if not future.done():
                future.set_result(answer)
            else:
                self._give_back(answer)
        for future, error in group.failures:
            if not future.done():
                future.set_exception(error)
        if group.noted:
            if self._listeners:
                self._tell_listeners([event_of(noted, group.at) for noted in group.noted])
            self._tell_of_a_change()

    def _tell_of_a_change(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    def _tell_listeners(self, events: Sequence[Event]) -> None:
        for listener in self._listeners:
            listener(events)

    def _call_off(self, future: asyncio.Future[Any]) -> None:
        """A caller that is cancelled in the very moment the answer comes never hears of its leases."""
        if future.done() and not future.cancelled() and future.exception() is None:
            self._give_back(future.result())

    def _give_back(self, answer: Any) -> None:
        """Whoever asked is gone. What was leased to it must not stay leased."""
        leases = answer if isinstance(answer, list) else [answer.next] if isinstance(answer, Committed) else []
        for lease in leases:
            if isinstance(lease, Lease) and self._writer is not None:
                self._call(Transaction.give_back, (lease,), [(lease.kind, lease.key)])

    # Workers

    async def join(self, worker: str, term_ms: int, machine: str = "") -> None:
        await self._call(Transaction.join, (worker, term_ms, machine))

    async def renew(self, worker: str, term_ms: int, held: Sequence[Lease]) -> bool:
        renewed: bool = await self._call(Transaction.renew, (worker, term_ms, held))
        return renewed

    async def leave(self, worker: str) -> None:
        await self._call(Transaction.leave, (worker,))

    async def reap(self) -> int:
        lanes: int = await self._call(Transaction.reap)
        return lanes

    # The path of a message

    async def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        places = [(TURN, arrival.message.conversation) for arrival in arrivals]
        origins = [(arrival.message.channel, arrival.message.origin_id) for arrival in arrivals]
        accepted: list[Acceptance] = await self._call(Transaction.accept, (arrivals,), places, origins)
        return accepted

    async def claim(self, worker: str, kind: Kind, *, most: int = 1, wait: bool = False) -> list[Lease]:
        taker = Taker(worker, kind, most, is_patient=wait)

        def claim(transaction: Transaction) -> Taker:
            taker.lanes, taker.leases = [], []  # a group that failed is performed again
            return transaction.take(taker)

        future = self._call(claim, finish=lambda t: t.leases, waits=taker if wait else None, sends=kind is OUT)
        try:
            leases: list[Lease] = await future
        except asyncio.CancelledError:
            self._call_off(future)
            raise
        if taker.lost and not leases:
            raise WorkerLost(f"worker {worker} is not live; join under a new id")
        return leases

    async def commit(self, lease: Lease, outcome: Outcome, *, take_next: bool = False) -> Committed:
        places = ((TURN, lease.key), (OUT, lease.key)) if lease.kind is TURN else ((lease.kind, lease.key),)
        future = self._call(
            Transaction.commit, (lease, outcome, take_next), places, finish=_committed, sends=lease.kind is OUT
        )
        try:
            committed: Committed = await future
        except asyncio.CancelledError:
            self._call_off(future)
            raise
        return committed

    async def ask(self, lease: Lease, number: int, question: Question) -> Answer | None:
        places = [(TURN, lease.key), (OUT, lease.key)]
        answer: Answer | None = await self._call(Transaction.ask, (lease, number, question), places)
        return answer

    async def refuse_late(self, lease: Lease) -> int:
        refused: int = await self._call(Transaction.refuse_late, (lease,), [(TURN, lease.key), (OUT, lease.key)])
        return refused

    async def hold_outbox(self, lease: Lease) -> bool:
        held: bool = await self._call(Transaction.hold_outbox, (lease,), [(TURN, lease.key), (OUT, lease.key)])
        return held

    async def say(self, message: Message, *, takes_over: bool = True) -> Acceptance | None:
        said: Acceptance | None = await self._call(Transaction.say, (message, takes_over))
        return said

    async def report(
        self, conversation: str, place: int, state: Reported, *, receipt: str | None = None, cause: str | None = None
    ) -> bool:
        is_new: bool = await self._call(Transaction.report, (conversation, place, state, receipt, cause))
        return is_new

    async def note(self, name: str, conversation: str | None = None, **facts: Fact) -> None:
        await self._call(Transaction.note, (name, conversation, facts))

    async def typing(self, conversation: str) -> bool:
        waits: bool = await self._call(Transaction.typing, (conversation,))
        return waits

    # Steering

    async def answer(self, conversation: str, text: str, *, by: str = "operator") -> bool:
        done: bool = await self._call(Transaction.answer, (conversation, text, by), [(TURN, conversation)])
        return done

    async def stop(self, conversation: str) -> bool:
        done: bool = await self._call(Transaction.stop, (conversation,))
        return done

    async def retry(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        done: bool = await self._call(Transaction.retry, (conversation, kind))
        return done

    async def renew_session(self, conversation: str) -> bool:
        done: bool = await self._call(Transaction.renew_session, (conversation,))
        return done

    async def skip(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        done: bool = await self._call(Transaction.skip, (conversation, kind))
        return done

    async def pause(self, conversation: str, kind: Kind = Kind.TURN, *, until: int | None = None) -> bool:
        done: bool = await self._call(Transaction.pause, (conversation, kind, until))
        return done

    async def resume(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        done: bool = await self._call(Transaction.resume, (conversation, kind))
        return done

    async def behave(self, conversation: str, on_busy: OnBusy | None) -> bool:
        done: bool = await self._call(Transaction.behave, (conversation, on_busy))
        return done

    async def retry_dead_letter(self, conversation: str, number: int) -> int:
        moved: int = await self._call(Transaction.retry_dead_letter, (conversation, number))
        return moved

    async def drop_dead_letter(self, conversation: str, number: int) -> bool:
        done: bool = await self._call(Transaction.drop_dead_letter, (conversation, number))
        return done

    async def resend(self, conversation: str, place: int) -> bool:
        done: bool = await self._call(Transaction.resend, (conversation, place))
        return done

    async def drop(self, conversation: str, place: int) -> bool:
        done: bool = await self._call(Transaction.drop, (conversation, place))
        return done

    async def unpark(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        done: bool = await self._call(Transaction.unpark, (conversation, kind))
        return done

    # Schedules

    async def schedule(self, schedule: Schedule, policy: Policy) -> bool:
        changed: bool = await self._call(Transaction.schedule, (schedule, policy))
        return changed

    async def unschedule(self, name: str) -> bool:
        done: bool = await self._call(Transaction.unschedule, (name,))
        return done

    async def fire(self, name: str, at: int) -> Acceptance | None:
        fired: Acceptance | None = await self._call(Transaction.fire, (name, at))
        return fired

    # Settings

    async def configure(self, name: str, value: str | None, *, by: str = "operator") -> bool:
        changed: bool = await self._call(Transaction.configure, (name, value, by))
        return changed

    async def configuration(self) -> Mapping[str, str]:
        return await self._read(lambda v: v.configuration())

    # People

    async def save_person(self, person: Person) -> Person:
        saved: Person = await self._call(Transaction.save_person, (person,))
        return saved

    async def person(self, channel: str, user: str) -> Person | None:
        return await self._read(lambda v: v.person(channel, user))

    async def changed_people(self, after: int) -> tuple[list[Person], int]:
        return await self._read(lambda v: v.changed_people(after))

    # What is seen

    async def _read(self, view: Callable[[Views], T]) -> T:
        if self._reader is None:
            raise BackendUnavailable("the backend is not open; call open() first")
        self.counted.made[READ] += 1
        try:
            return await self._reader.read(view)
        except BackendError:
            self.counted.failed[READ] += 1
            raise

    async def lanes(
        self, *, kind: Kind = Kind.TURN, state: LaneState | None = None, channel: str | None = None, limit: int = 100
    ) -> list[LaneView]:
        now = self._clock.now()
        return await self._read(lambda v: v.lanes(kind=kind, state=state, channel=channel, limit=limit, now=now))

    async def board(self, limit: int) -> list[LaneView]:
        now = self._clock.now()
        return await self._read(lambda v: v.board(limit, now))

    async def story(self, conversation: str, *, limit: int = 1000) -> Story | None:
        now = self._clock.now()
        return await self._read(lambda v: v.story(conversation, limit, now))

    async def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None:
        return await self._read(lambda v: v.place_of(channel, origin_id))

    async def deliveries(self, conversation: str, *, after: int = 0, limit: int = 100) -> list[DeliveryView]:
        return await self._read(lambda v: v.deliveries(conversation, after, limit))

    async def delivery(self, id: str) -> DeliveryView | None:
        return await self._read(lambda v: v.delivery(id))

    async def questions(self, conversation: str, *, limit: int = 100) -> list[QuestionView]:
        return await self._read(lambda v: v.questions(conversation, limit))

    async def outbox(self, *, state: DeliveryState = "queued", limit: int = 100) -> list[DeliveryView]:
        return await self._read(lambda v: v.outbox(state, limit))

    async def dead_letters(self, *, conversation: str | None = None, limit: int = 100) -> list[DeadLetter]:
        return await self._read(lambda v: v.dead_letters(conversation, limit))

    async def locks(self) -> list[Lock]:
        return await self._read(lambda v: v.locks())

    async def busy(self, worker: str) -> list[Busy]:
        now = self._clock.now()
        return await self._read(lambda v: v.busy(worker, now))

    async def waiting(self, conversation: str) -> list[Message]:
        return await self._read(lambda v: v.waiting(conversation))

    async def workers(self) -> list[WorkerView]:
        return await self._read(lambda v: v.workers())

    async def schedules(self) -> list[ScheduleView]:
        now = self._clock.now()
        return await self._read(lambda v: v.schedules(now))

    async def sessions(self, *, agent: str | None = None, limit: int = 100) -> list[SessionView]:
        return await self._read(lambda v: v.sessions(agent, limit))

    async def spent(
        self, *, since: int = 0, until: int | None = None, channel: str | None = None, user: str | None = None
    ) -> list[Spent]:
        return await self._read(lambda v: v.spent(Period(since, until, channel, user)))

    async def counts(self) -> Counts:
        now = self._clock.now()
        return await self._read(lambda v: v.counts(now))

    async def events(self, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        return await self._read(lambda v: v.events(after, limit))

    async def changes(self, *, after: int, limit: int = 1000) -> Changes:
        now = self._clock.now()
        return await self._read(lambda v: v.changes(after, limit, now))


def _committed(answer: tuple[Verdict, Taker | None]) -> Committed:
    verdict, taker = answer
    return Committed(verdict, taker.leases[0] if taker is not None and taker.leases else None)
