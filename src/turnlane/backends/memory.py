"""The store in plain dictionaries: the reference to read, and what tests and simulations run on. Nothing is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TypeVar
from weakref import WeakValueDictionary

from turnlane.backends.base import Acceptance, Arrival, Committed
from turnlane.backends.calls import Calls
from turnlane.backends.rows import Batch, WorkerRow
from turnlane.backends.serving import Taker
from turnlane.backends.transaction import Transaction
from turnlane.clock import Clock
from turnlane.errors import WorkerLost
from turnlane.event_loop import happens
from turnlane.model.delivery import UNSETTLED, Delivery, DeliveryState, Reported, Settled
from turnlane.model.event import Event, Fact, event_of
from turnlane.model.lane import Kind, Lane, LaneState
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS
from turnlane.model.message import Message, MessageOutcome, channel_of
from turnlane.model.person import Person
from turnlane.model.policy import OnBusy, Policy, Queue
from turnlane.model.question import Answer, Question, QuestionView
from turnlane.model.schedule import Schedule
from turnlane.model.session import Session
from turnlane.model.turn import Outcome
from turnlane.model.usage import Account, Period, Spent, Usage
from turnlane.model.view import (
    AttemptView,
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
    TurnView,
    WorkerView,
    activity_first,
    conversations_in,
    held_until,
    latest,
)

T = TypeVar("T")

POLL_SECONDS = 0.025
"""How often waiting claims look at the clock, which a test may turn by hand."""


class MemoryRows:
    """Rows that are changed in place. A verb that raises must do so before its first change."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[Kind, str], Lane] = {}
        self.places: dict[str, int] = {}
        """In what order conversations were first heard of, which decides where lanes are due at the same moment."""
        self.origins: dict[tuple[str, str], tuple[int, int]] = {}
        self.spent: dict[Account, Spent] = {}
        self.people: dict[tuple[str, str], Person] = {}
        self.messages: dict[str, dict[int, Message]] = {}
        self.outgoing: dict[str, dict[int, Delivery]] = {}
        self.settled: dict[tuple[str, int], Settled] = {}
        self.turns: dict[tuple[str, int], TurnView] = {}
        self.attempts: list[AttemptView] = []
        self.outcomes: dict[tuple[str, int], MessageOutcome] = {}
        self.sessions: dict[tuple[str, str], Session] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.turns_taken: dict[Kind, dict[str, int]] = {}
        self.accounts_held: dict[str, int] = {}
        self.questions: dict[tuple[str, int, int], QuestionView] = {}
        self.settings: dict[str, str] = {}
        self.now = 0

    def lane(self, kind: Kind, key: str) -> Lane | None:
        return self.lanes.get((kind, key))

    def add_lane(self, kind: Kind, key: str, policy: Policy) -> Lane:
        self.places.setdefault(key, len(self.places))
        lane = self.lanes[kind, key] = Lane(kind, key, policy)
        return lane

    def save_lane(self, lane: Lane) -> None:
        """Lanes are shared with the caller, so there is nothing left to save."""

    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        return list(dict.fromkeys(lane.policy.queue for lane in self._due(kind, now)))

    def due_lanes(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[Lane]:
        return iter([lane for lane in self._due(kind, now) if lane.policy.queue == queue])

    def _due(self, kind: Kind, now: int) -> Sequence[Lane]:
        due = [lane for lane in self.lanes.values() if lane.kind is kind and (lane.due_at or now + 1) <= now]
        return sorted(due, key=lambda lane: (lane.due_at or 0, self.places[lane.key]))

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        held = [lane for lane in self.lanes.values() if lane.kind is kind and lane.owner is not None]
        return [lane.runs_as for lane in held]

    def served(self, kind: Kind) -> Mapping[str, int]:
        return self.turns_taken.get(kind, {})

    def save_served(self, kind: Kind, tenant: str, number: int) -> None:
        self.turns_taken.setdefault(kind, {})[tenant] = number

    def holds(self) -> Mapping[str, int]:
        return self.accounts_held

    def save_hold(self, account: str, until: int) -> None:
        self.accounts_held[account] = until

    def lanes_of(self, worker: str) -> Sequence[Lane]:
        return [lane for lane in self.lanes.values() if lane.owner == worker]

    def lanes_of_the_dead(self) -> Sequence[Lane]:
        return [lane for lane in self.lanes.values() if lane.owner is not None and not self._is_live(lane.owner)]

    def _is_live(self, worker: str) -> bool:
        return worker in self.workers and self.workers[worker].live

    def origin(self, channel: str, origin_id: str) -> int | None:
        seen = self.origins.get((channel, origin_id))
        return None if seen is None else seen[0]

    def add_message(self, lane: Lane, message: Message) -> None:
        self.messages.setdefault(lane.key, {})[message.seq] = message
        self.origins[message.channel, message.origin_id] = (message.seq, message.accepted_at)

    def move_message(self, lane: Lane, message: Message, to: int) -> None:
        stored = self.messages[lane.key]
        del stored[message.seq]
        stored[to] = message.stored(to, message.accepted_at)
        self.origins[message.channel, message.origin_id] = (to, message.accepted_at)

    def messages_at(self, lane: Lane, places: Sequence[int]) -> Sequence[Message]:
        stored = self.messages[lane.key]
        return [stored[seq] for seq in places if seq in stored]

    def settle_messages(self, lane: Lane, first: int, last: int, outcome: MessageOutcome) -> None:
        for seq in range(first, last + 1):
            self.outcomes.setdefault((lane.key, seq), outcome)

    def message_outcome(self, lane: Lane, seq: int) -> MessageOutcome | None:
        return self.outcomes.get((lane.key, seq))

    def add_question(self, lane: Lane, question: QuestionView) -> None:
        self.questions[lane.key, question.turn, question.number] = question

    def question(self, lane: Lane, number: int) -> QuestionView:
        return self.questions[lane.key, lane.number, number]

    def answer_question(self, lane: Lane, number: int, answer: Answer, at: int) -> None:
        place = (lane.key, lane.number, number)
        self.questions[place] = replace(self.questions[place], answer=answer, answered_at=at)

    def add_delivery(self, lane: Lane, delivery: Delivery) -> None:
        self.outgoing.setdefault(lane.key, {})[delivery.seq] = delivery

    def settle_delivery(
        self, lane: Lane, state: DeliveryState, *, receipt: str | None = None, cause: str | None = None
    ) -> None:
        self.settled[lane.key, lane.claim_seq] = (state, self.now, lane.attempt, lane.held_epoch, receipt, cause)

    def settled_delivery(self, lane: Lane, seq: int) -> tuple[DeliveryState, int] | None:
        settled = self.settled.get((lane.key, seq))
        return None if settled is None else (settled[0], settled[3])

    def view(self, delivery: Delivery) -> DeliveryView:
        return DeliveryView.of(delivery, self.settled.get((delivery.conversation, delivery.seq), UNSETTLED))

    def delivery(self, lane: Lane, seq: int) -> DeliveryView | None:
        found = self.outgoing.get(lane.key, {}).get(seq)
        return None if found is None else self.view(found)

    def move_delivery(self, lane: Lane, seq: int, to: int) -> None:
        outgoing = self.outgoing[lane.key]
        outgoing[to] = replace(outgoing.pop(seq), seq=to, queued_at=self.now)
        del self.settled[lane.key, seq]

    def close_delivery(self, lane: Lane, seq: int, state: DeliveryState, cause: str | None) -> None:
        _, _, attempt, epoch, receipt, _ = self.settled.get((lane.key, seq), UNSETTLED)
        self.settled[lane.key, seq] = (state, self.now, attempt, epoch, receipt, cause)

    def add_turn(self, lane: Lane, turn: TurnView) -> None:
        assert (lane.key, turn.number) not in self.turns
        self.turns[lane.key, turn.number] = turn

    def person(self, channel: str, user: str) -> Person | None:
        return self.people.get((channel, user))

    def newest_person(self) -> int:
        return max((each.changed_at for each in self.people.values()), default=0)

    def save_person(self, person: Person) -> None:
        self.people[person.place] = person

    def spend(self, account: Account, usage: Usage) -> None:
        self.spent[account] = self.spent.get(account, Spent(account)).and_also(usage)

    def turn(self, lane: Lane, number: int) -> TurnView | None:
        return self.turns.get((lane.key, number))

    def amend_turn(self, lane: Lane, turn: TurnView) -> None:
        self.turns[lane.key, turn.number] = turn

    def add_attempt(self, lane: Lane, attempt: AttemptView) -> None:
        self.attempts.append(attempt)

    def attempt(self, lane: Lane, epoch: int) -> AttemptView | None:
        for attempt in reversed(self.attempts):
            if (attempt.kind, attempt.conversation, attempt.epoch) == (lane.kind, lane.key, epoch):
                return attempt
        return None

    def save_session(self, lane: Lane, agent: str, session: Session, *, continues: bool) -> None:
        self.sessions[lane.key, agent] = session

    def session(self, lane: Lane, agent: str) -> Session | None:
        return self.sessions.get((lane.key, agent))

    def drop_sessions(self, lane: Lane) -> None:
        for place in [place for place in self.sessions if place[0] == lane.key]:
            del self.sessions[place]

    def session_is_busy(self, lane: Lane) -> bool:
        agent = lane.policy.agent
        mine = self.sessions.get((lane.key, agent))
        return mine is not None and any(
            session.handle == mine.handle and self._runs(key, agent)
            for (key, of), session in self.sessions.items()
            if of == agent and key != lane.key
        )

    def _runs(self, key: str, agent: str) -> bool:
        lane = self.lanes[Kind.TURN, key]
        return lane.owner is not None and lane.policy.agent == agent

    def batches(self, lanes: Sequence[Lane]) -> Sequence[Batch]:
        return [self._batch(lane) for lane in lanes]

    def _batch(self, lane: Lane) -> Batch:
        if lane.kind is Kind.TICK:
            return (), None, None
        if lane.kind is not Kind.TURN:
            return (), self.outgoing[lane.key][lane.claim_seq], None
        stored = self.messages[lane.key]
        places = [*lane.batch_places, *islice(lane.waiting_places, 1)]
        messages = [stored[seq] for seq in places]
        return messages, None, self.sessions.get((lane.key, lane.policy.agent))

    def worker(self, worker: str) -> WorkerRow | None:
        return self.workers.get(worker)

    def save_worker(self, worker: WorkerRow) -> None:
        self.workers[worker.id] = worker

    def lapsed_workers(self, now: int) -> Sequence[WorkerRow]:
        return [row for row in self.workers.values() if row.live and row.alive_until < now]

    def setting(self, name: str) -> str | None:
        return self.settings.get(name)

    def save_setting(self, name: str, value: str | None) -> None:
        if value is None:
            del self.settings[name]
        else:
            self.settings[name] = value

    def machine_is_live(self, machine: str, now: int) -> bool:
        return any(row.machine == machine and row.live and row.alive_until > now for row in self.workers.values())

    def forget(self, what: str, keys: Sequence[Sequence[object]]) -> None:
        """A process that keeps nothing has nothing to forget."""


class MemoryStore:
    """What several handles share that are opened under one name."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self.events: list[StoredEvent] = []
        self.waiting: list[tuple[Taker, asyncio.Future[list[Lease]]]] = []
        self.change = asyncio.Event()


_NAMED: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
"""Gone with their last handle."""


class MemoryBackend:
    """One process, one event loop: every verb is a transaction because nothing else runs meanwhile.

    `memory://` is a store of its own; handles on `memory://name` share one, as processes share a file.
    """

    def __init__(self, url: str, clock: Clock, idle_after_ms: int = 60_000) -> None:
        self.url = url
        self.counted = Calls()
        self._clock = clock
        name = url.partition("://")[2]
        self._store = _NAMED.setdefault(name, MemoryStore()) if name else MemoryStore()
        self._rows = self._store.rows
        self._events = self._store.events
        self._mine: list[asyncio.Future[list[Lease]]] = []
        self.limits = NO_LIMITS
        self._listeners: list[Callable[[Sequence[Event]], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        for future in self._mine:
            future.cancel()
        self._mine.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> None:
        self._listeners.append(listener)

    # Every verb is one transaction, which ends by serving those who wait for a lease.

    def _run(self, verb: Callable[[Transaction], T]) -> T:
        self._rows.now = now = self._clock.now()
        transaction = Transaction(self._rows, now, self.limits)
        answer = verb(transaction)
        self._store.waiting = [waiting for waiting in self._store.waiting if not waiting[1].done()]
        for taker, _ in self._store.waiting:
            transaction.take(taker)
        transaction.serve()
        self._answer_waiting()
        self._publish([event_of(noted, now) for noted in transaction.noted])
        return answer

    def _answer_waiting(self) -> None:
        for taker, future in self._store.waiting:
            if taker.leases:
                future.set_result(taker.leases)
            elif taker.lost:
                future.set_exception(WorkerLost(f"worker {taker.worker} is not live; join under a new id"))

    def _publish(self, events: Sequence[Event]) -> None:
        if not events:
            return
        first = len(self._events) + 1
        self._events += [StoredEvent(cursor, event) for cursor, event in enumerate(events, first)]
        for listener in self._listeners:
            listener(events)
        self._store.change.set()
        self._store.change = asyncio.Event()

    async def join(self, worker: str, term_ms: int, machine: str = "") -> None:
        self._run(lambda t: t.join(worker, term_ms, machine))

    async def renew(self, worker: str, term_ms: int, held: Sequence[Lease]) -> bool:
        return self._run(lambda t: t.renew(worker, term_ms, held))

    async def leave(self, worker: str) -> None:
        self._run(lambda t: t.leave(worker))

    async def reap(self) -> int:
        return self._run(lambda t: t.reap())

    async def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        return self._run(lambda t: t.accept(arrivals))

    async def claim(self, worker: str, kind: Kind, *, most: int = 1, wait: bool = False) -> list[Lease]:
        taker = Taker(worker, kind, most)
        self._run(lambda t: t.take(taker))
        if taker.lost:
            raise WorkerLost(f"worker {worker} is not live; join under a new id")
        if taker.leases or not wait:
            return taker.leases
        return await self._wait_for(taker)

    async def _wait_for(self, taker: Taker) -> list[Lease]:
        future: asyncio.Future[list[Lease]] = asyncio.get_running_loop().create_future()
        self._store.waiting.append((taker, future))
        self._mine = [*(each for each in self._mine if not each.done()), future]
        self._look_again()
        try:
            return await future
        except asyncio.CancelledError:
            for lease in taker.leases:
                self._run(partial(Transaction.give_back, lease=lease))
            raise

    def _look_again(self) -> None:
        """Waiting claims are served by time passing, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(not future.done() for _, future in self._store.waiting):
            self._run(lambda t: None)
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look_again)

    async def commit(self, lease: Lease, outcome: Outcome, *, take_next: bool = False) -> Committed:
        verdict, taker = self._run(lambda t: t.commit(lease, outcome, take_next))
        return Committed(verdict, taker.leases[0] if taker and taker.leases else None)

    async def ask(self, lease: Lease, number: int, question: Question) -> Answer | None:
        return self._run(lambda t: t.ask(lease, number, question))

    async def refuse_late(self, lease: Lease) -> int:
        return self._run(lambda t: t.refuse_late(lease))

    async def hold_outbox(self, lease: Lease) -> bool:
        return self._run(lambda t: t.hold_outbox(lease))

    async def answer(self, conversation: str, text: str, *, by: str = "operator") -> bool:
        return self._run(lambda t: t.answer(conversation, text, by))

    async def stop(self, conversation: str) -> bool:
        return self._run(lambda t: t.stop(conversation))

    async def retry(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        return self._run(lambda t: t.retry(conversation, kind))

    async def renew_session(self, conversation: str) -> bool:
        return self._run(lambda t: t.renew_session(conversation))

    async def skip(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        return self._run(lambda t: t.skip(conversation, kind))

    async def say(self, message: Message, *, takes_over: bool = True) -> Acceptance | None:
        return self._run(lambda t: t.say(message, takes_over))

    async def report(
        self, conversation: str, place: int, state: Reported, *, receipt: str | None = None, cause: str | None = None
    ) -> bool:
        return self._run(lambda t: t.report(conversation, place, state, receipt, cause))

    async def note(self, name: str, conversation: str | None = None, **facts: Fact) -> None:
        self._run(lambda t: t.note(name, conversation, facts))

    async def typing(self, conversation: str) -> bool:
        return self._run(lambda t: t.typing(conversation))

    async def pause(self, conversation: str, kind: Kind = Kind.TURN, *, until: int | None = None) -> bool:
        return self._run(lambda t: t.pause(conversation, kind, until))

    async def resume(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        return self._run(lambda t: t.resume(conversation, kind))

    async def behave(self, conversation: str, on_busy: OnBusy | None) -> bool:
        return self._run(lambda t: t.behave(conversation, on_busy))

    async def retry_dead_letter(self, conversation: str, number: int) -> int:
        return self._run(lambda t: t.retry_dead_letter(conversation, number))

    async def drop_dead_letter(self, conversation: str, number: int) -> bool:
        return self._run(lambda t: t.drop_dead_letter(conversation, number))

    async def resend(self, conversation: str, place: int) -> bool:
        return self._run(lambda t: t.resend(conversation, place))

    async def drop(self, conversation: str, place: int) -> bool:
        return self._run(lambda t: t.drop(conversation, place))

    async def unpark(self, conversation: str, kind: Kind = Kind.TURN) -> bool:
        return self._run(lambda t: t.unpark(conversation, kind))

    async def schedule(self, schedule: Schedule, policy: Policy) -> bool:
        return self._run(lambda t: t.schedule(schedule, policy))

    async def unschedule(self, name: str) -> bool:
        return self._run(lambda t: t.unschedule(name))

    async def fire(self, name: str, at: int) -> Acceptance | None:
        return self._run(lambda t: t.fire(name, at))

    async def configure(self, name: str, value: str | None, *, by: str = "operator") -> bool:
        return self._run(lambda t: t.configure(name, value, by))

    async def configuration(self) -> Mapping[str, str]:
        return dict(self._rows.settings)

    async def save_person(self, person: Person) -> Person:
        return self._run(lambda t: t.save_person(person))

    async def person(self, channel: str, user: str) -> Person | None:
        return self._rows.person(channel, user)

    async def changed_people(self, after: int) -> tuple[list[Person], int]:
        people = [] if after < 0 else [each for each in self._rows.people.values() if each.changed_at > after]
        return people, self._rows.newest_person()

    async def forget(self, *, messages_before: int, events_before: int, origins_before: int) -> int:
        """A process that keeps nothing has nothing to forget."""
        return 0

    # What is seen

    async def lanes(
        self, *, kind: Kind = Kind.TURN, state: LaneState | None = None, channel: str | None = None, limit: int = 100
    ) -> list[LaneView]:
        now = self._clock.now()
        views = [
            LaneView.of(lane, now)
            for lane in self._rows.lanes.values()
            if lane.kind is kind and channel in (None, channel_of(lane.key))
        ]
        return [view for view in views if state is None or view.state == state][:limit]

    async def board(self, limit: int) -> list[LaneView]:
        return activity_first(await self.lanes(limit=len(self._rows.lanes)), limit)

    async def story(self, conversation: str, *, limit: int = 1000) -> Story | None:
        rows, now = self._rows, self._clock.now()
        lanes = [lane for (_, key), lane in rows.lanes.items() if key == conversation]
        if not lanes:
            return None
        messages = rows.messages.get(conversation, {})
        attempts = [attempt for attempt in rows.attempts if attempt.conversation == conversation]
        return Story(
            conversation=conversation,
            lanes=tuple(LaneView.of(lane, now) for lane in lanes),
            messages=tuple(messages.values())[-limit:],
            turns=tuple(turn for (key, _), turn in rows.turns.items() if key == conversation)[-limit:],
            attempts=tuple(sorted(attempts, key=attrgetter("order"))[-limit:]),
            deliveries=tuple(self._deliveries_of(conversation))[-limit:],
            sessions={agent: session for (key, agent), session in rows.sessions.items() if key == conversation},
            outcomes={seq: outcome for (key, seq), outcome in rows.outcomes.items() if key == conversation},
            questions=tuple(await self.questions(conversation, limit=limit)),
            held_until=held_until(lanes, rows.holds(), now),
        )

    async def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None:
        stored = (message for messages in self._rows.messages.values() for message in messages.values())
        named = (message for message in stored if (message.channel, message.origin_id) == (channel, origin_id))
        return next(((message.conversation, message.seq) for message in named), None)

    def _deliveries_of(self, conversation: str) -> list[DeliveryView]:
        return [self._rows.view(delivery) for delivery in self._rows.outgoing.get(conversation, {}).values()]

    async def deliveries(self, conversation: str, *, after: int = 0, limit: int = 100) -> list[DeliveryView]:
        return [view for view in self._deliveries_of(conversation) if view.seq > after][:limit]

    async def delivery(self, id: str) -> DeliveryView | None:
        return next((view for view in self._all_deliveries() if view.id == id), None)

    def _all_deliveries(self) -> list[DeliveryView]:
        return [view for conversation in self._rows.outgoing for view in self._deliveries_of(conversation)]

    async def questions(self, conversation: str, *, limit: int = 100) -> list[QuestionView]:
        return [asked for asked in self._rows.questions.values() if asked.conversation == conversation][-limit:]

    async def outbox(self, *, state: DeliveryState = "queued", limit: int = 100) -> list[DeliveryView]:
        views = self._all_deliveries()
        return [view for view in views if view.state == state][:limit]

    async def dead_letters(self, *, conversation: str | None = None, limit: int = 100) -> list[DeadLetter]:
        dead = [
            turn
            for turn in self._rows.turns.values()
            if turn.outcome == "dead_letter" and conversation in (None, turn.conversation)
        ]
        return [DeadLetter(turn, self._messages_of(turn)) for turn in dead[-limit:]]

    def _messages_of(self, turn: TurnView) -> tuple[Message, ...]:
        stored = self._rows.messages[turn.conversation]
        places = range(turn.first, turn.last + 1)
        return tuple(stored[seq] for seq in places if (turn.conversation, seq) not in self._rows.outcomes)

    async def locks(self) -> list[Lock]:
        rows = self._rows
        held = [lane for lane in rows.lanes.values() if lane.owner is not None]
        return [
            Lock(lane.key, lane.kind, lane.owner or "", lane.epoch, lane.claimed_at or 0, self._alive_until(lane))
            for lane in held
        ]

    async def busy(self, worker: str) -> list[Busy]:
        now = self._clock.now()
        return [Busy.of(lane, now) for lane in self._rows.lanes_of(worker) if lane.kind is Kind.TURN]

    async def waiting(self, conversation: str) -> list[Message]:
        lane = self._rows.lane(Kind.TURN, conversation)
        return [] if lane is None else list(self._rows.messages_at(lane, list(lane.waiting_places)))

    def _alive_until(self, lane: Lane) -> int | None:
        row = self._rows.workers.get(lane.owner or "")
        return row.alive_until if row is not None else None

    async def workers(self) -> list[WorkerView]:
        return [
            WorkerView(row.id, row.live, row.alive_until, len(self._rows.lanes_of(row.id)), row.machine)
            for row in self._rows.workers.values()
        ]

    async def schedules(self) -> list[ScheduleView]:
        scheduled = [lane for _, lane in sorted(self._rows.lanes.items()) if lane.rare.schedule is not None]
        return [ScheduleView.of(lane, self._clock.now()) for lane in scheduled]

    async def sessions(self, *, agent: str | None = None, limit: int = 100) -> list[SessionView]:
        stored = self._rows.sessions.items()
        return latest([SessionView.of(*place, each) for place, each in stored if agent in (None, place[1])], limit)

    async def spent(
        self, *, since: int = 0, until: int | None = None, channel: str | None = None, user: str | None = None
    ) -> list[Spent]:
        wanted = Period(since, until, channel, user)
        return [spent for account, spent in sorted(self._rows.spent.items()) if account in wanted]

    async def counts(self) -> Counts:
        rows, now = self._rows, self._clock.now()
        states: dict[str, int] = {}
        for lane in rows.lanes.values():
            if lane.kind is Kind.TURN:
                states[lane.state(now)] = states.get(lane.state(now), 0) + 1
        due = [lane.due_at for lane in rows.lanes.values() if lane.due_at is not None]
        return Counts(
            lanes=states,
            messages_waiting=sum(lane.pending for lane in rows.lanes.values() if lane.kind is Kind.TURN),
            deliveries_waiting=sum(lane.pending for lane in rows.lanes.values() if lane.kind is Kind.OUT),
            deliveries_failed=sum(1 for settled in rows.settled.values() if settled[0] == "failed"),
            dead_letters=sum(1 for turn in rows.turns.values() if turn.outcome == "dead_letter"),
            locks=sum(1 for lane in rows.lanes.values() if lane.owner is not None),
            workers_live=sum(1 for row in rows.workers.values() if row.live),
            oldest_due_at=min(due, default=None),
        )

    async def events(self, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        if after < 0:
            return self._events[-1:]
        return self._events[after : after + limit]

    async def changes(self, *, after: int, limit: int = 1000) -> Changes:
        events, now = await self.events(after=after, limit=limit), self._clock.now()
        lanes = [self._rows.lanes.get((Kind.TURN, key)) for key in conversations_in(events)]
        return Changes(events, [LaneView.of(lane, now) for lane in lanes if lane is not None])

    async def changed(self, within: float) -> bool:
        return await happens(self._store.change, within=within)
