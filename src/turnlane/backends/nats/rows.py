"""The rows of one open transaction: conversations that are changed on a copy, and the records that will say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import chain, islice
from operator import add
from typing import Any, Protocol

from turnlane.backends.nats.codec import (
    ATTEMPT,
    DELIVERY,
    MESSAGE,
    NOTHING_SPENT,
    PERSON,
    QUESTION,
    TURN_OVER,
    encode,
    message_id,
    spent_to,
)
from turnlane.backends.nats.conversation import Conversation
from turnlane.backends.nats.link import Write
from turnlane.backends.nats.shelf import Place, Shelf
from turnlane.backends.rows import Batch, WorkerRow
from turnlane.model.delivery import UNSETTLED, Delivery, DeliveryState
from turnlane.model.event import Noted
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.person import Person
from turnlane.model.policy import Policy, Queue
from turnlane.model.question import Answer, QuestionView
from turnlane.model.session import Session
from turnlane.model.usage import Account, Tally, Usage
from turnlane.model.view import AttemptView, DeliveryView, TurnView

DEAD_AT_ONCE_MAX = 200
"""Lanes of the dead that one transaction takes back; the next one goes on."""


NO_MESSAGE: tuple[str | None, list[Any]] = (None, [])


class Loader(Protocol):
    def load(self, keys: Sequence[str]) -> None:
        """Put these conversations on the shelf."""

    def load_whole(self, key: str) -> Conversation: ...

    def load_value(self, subject: str) -> tuple[Any, int]: ...


@dataclass(slots=True)
class Change:
    """What a transaction does to one conversation."""

    rows: dict[str, list[Any]] = field(default_factory=dict)
    added: list[tuple[str, int]] = field(default_factory=list)
    messages: list[tuple[str | None, list[Any]]] = field(default_factory=list)
    """Each under the id by which the server knows it."""

    def add(self, table: str, row: Any) -> None:
        self.rows.setdefault(table, []).append(row)


@dataclass(slots=True)
class Unit:
    """Records that belong together, and what they make true."""

    writes: list[Write]
    conversation: Conversation | None = None
    change: Change | None = None
    state: dict[str, Any] | None = None
    """How the conversation stands afterwards."""
    value: Any = None
    noted: Sequence[Noted] = ()
    """What the last of the records says that happened."""


class NatsRows:
    changed: Sequence[Any] = ()
    """Nobody else has to remember them: the shelf does."""

    def __init__(self, shelf: Shelf, loader: Loader, now: int, batch: str) -> None:
        self.now = now
        self._shelf = shelf
        self._loader = loader
        self._batch = batch
        self._conversations: dict[str, Conversation] = {}
        self._changes: dict[str, Change] = {}
        self._values: dict[str, Any] = {}
        self._holds: dict[str, int] | None = None
        self._spent = Tally()
        self.origins: dict[tuple[str, str], int] = {}
        self.moved: dict[tuple[str, str], tuple[str, int]] = {}
        self.units: list[Unit] = []

    # Conversations

    def expect_lanes(self, places: Iterable[Place]) -> None:
        self._expect({key for _, key in places})

    def expect_origins(self, wanted: Iterable[tuple[str, str]]) -> None:
        """The server knows which came before, and will say so."""

    def _expect(self, keys: Iterable[str]) -> None:
        shelf = self._shelf.conversations
        missing = [key for key in keys if key not in self._conversations and key not in shelf]
        if missing:
            self._loader.load(missing)

    def _conversation(self, key: str) -> Conversation:
        here = self._conversations.get(key)
        if here is None:
            known = self._shelf.conversations.get(key)
            if known is None:
                self._loader.load([key])
                known = self._shelf.conversations[key]
            here = self._conversations[key] = known.fork()
        return here

    def _change(self, key: str) -> Change:
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = Change()
        return change

    def _history(self, lane: Lane) -> Conversation:
        """With all that it ever had, in what this transaction sees of it."""
        here = self._conversation(lane.key)
        if not here.whole:
            whole = self._loader.load_whole(lane.key)
            for name in ("messages", "outgoing", "settled", "turns", "attempts", "outcomes", "questions", "stored"):
                setattr(here, name, {**getattr(whole, name), **getattr(here, name)})
            for gone in self._change(lane.key).rows.get("-m", ()):
                here.messages.pop(gone, None)
            for gone in self._change(lane.key).rows.get("-d", ()):
                here.outgoing.pop(gone, None)
                here.settled.pop(gone, None)
            here.whole = True
        return here

    # Lanes

    def lane(self, kind: Kind, key: str) -> Lane | None:
        return self._conversation(key).lanes.get(kind)

    def add_lane(self, kind: Kind, key: str, policy: Policy) -> Lane:
        lane = self._conversation(key).lanes[kind] = Lane(kind, key, policy)
        self._change(key)
        return lane

    def save_lane(self, lane: Lane) -> None:
        self._change(lane.key)

    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        queues = dict.fromkeys(queue for queue, line in self._shelf.due[kind].items() if line[0][0] <= now)
        for lane in self._changed_lanes(kind):
            if _is_due(lane, now):
                queues[lane.policy.queue] = None
        return list(queues)

    def _changed_lanes(self, kind: Kind) -> Iterator[Lane]:
        for key in list(self._changes):
            lane = self._conversation(key).lanes.get(kind)
            if lane is not None:
                yield lane

    def due_lanes(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[Lane]:
        seen: set[str] = set()
        line = self._shelf.due_before(kind, queue, now)
        while keys := list(islice(line, max(limit, 1))):
            self._expect(keys)
            for key in keys:
                lane = self.lane(kind, key)
                if lane is not None and _is_due(lane, now) and lane.policy.queue == queue:
                    seen.add(key)
                    yield lane
        for lane in list(self._changed_lanes(kind)):
            if lane.key not in seen and _is_due(lane, now) and lane.policy.queue == queue:
                yield lane

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        """Who claims within limits, or in turn with others, does so one after the other in the whole fleet."""
        guard = self._shelf.subjects.other("claims", kind.name)
        self._values[guard] = self._value(guard, 0) + 1
        held = {
            place: self._shelf.active[place].runs_as
            for places in self._shelf.held.values()
            for place in places
            if place[0] is kind and place[1] not in self._changes
        }
        for lane in self._changed_lanes(kind):
            if lane.owner is not None:
                held[lane.kind, lane.key] = lane.runs_as
        return held.values()

    def lanes_of(self, worker: str) -> Sequence[Lane]:
        return self._held(self._shelf.held.get(worker, ()), lambda lane: lane.owner == worker)

    def lanes_of_the_dead(self) -> Sequence[Lane]:
        dead = [places for worker, places in self._shelf.held.items() if not self._is_live(worker)]
        return self._held(islice(chain(*dead), DEAD_AT_ONCE_MAX), self._is_orphan)

    def _held(self, places: Iterable[Place], wanted: Any) -> Sequence[Lane]:
        places = sorted(places)
        self._expect(key for _, key in places)
        for _, key in places:
            self._conversation(key)
        lanes = [lane for here in self._conversations.values() for lane in here.lanes.values()]
        return [lane for lane in lanes if wanted(lane)]

    def _is_orphan(self, lane: Lane) -> bool:
        return lane.owner is not None and not self._is_live(lane.owner)

    def _is_live(self, worker: str) -> bool:
        row = self.worker(worker)
        return row is not None and row.live

    # Values of the whole fleet

    def _value(self, subject: str, nothing: Any) -> Any:
        if subject in self._values:
            return self._values[subject]
        known = self._shelf.values.get(subject)
        return nothing if known is None else known[0]

    def _known_value(self, subject: str) -> Any:
        """Of one that is apart: it is read if nobody here knows it."""
        if subject not in self._values and subject not in self._shelf.values:
            self._shelf.learn_value(subject, *self._loader.load_value(subject), wanted=True)
        return self._value(subject, None)

    def served(self, kind: Kind) -> Mapping[str, int]:
        served: Mapping[str, int] = self._value(self._shelf.subjects.other("served", kind.name), {})
        return served

    def save_served(self, kind: Kind, tenant: str, number: int) -> None:
        subject = self._shelf.subjects.other("served", kind.name)
        self._values[subject] = {**self._value(subject, {}), tenant: number}

    def holds(self) -> Mapping[str, int]:
        if self._holds is None:
            self._holds = dict(self._value(self._shelf.subjects.other("holds"), {}))
        return self._holds

    def save_hold(self, account: str, until: int) -> None:
        self.holds()
        assert self._holds is not None
        self._holds[account] = until
        self._values[self._shelf.subjects.other("holds")] = self._holds

    def worker(self, worker: str) -> WorkerRow | None:
        value = self._values.get(self._shelf.subjects.other("worker", worker))
        return self._shelf.workers.get(worker) if value is None else WorkerRow(worker, *value)

    def save_worker(self, worker: WorkerRow) -> None:
        self._values[self._shelf.subjects.other("worker", worker.id)] = astuple(worker)[1:]

    def lapsed_workers(self, now: int) -> Sequence[WorkerRow]:
        return [row for row in self._workers() if row.live and row.alive_until < now]

    def machine_is_live(self, machine: str, now: int) -> bool:
        return any(row.machine == machine and row.live and row.alive_until > now for row in self._workers())

    def _workers(self) -> Iterator[WorkerRow]:
        return (row for id_ in self._shelf.workers if (row := self.worker(id_)) is not None)

    def setting(self, name: str) -> str | None:
        value: str | None = self._value(self._shelf.subjects.other("setting", name), [None])[0]
        return value

    def save_setting(self, name: str, value: str | None) -> None:
        self._values[self._shelf.subjects.other("setting", name)] = [value]

    # Messages

    def origin(self, channel: str, origin_id: str) -> int | None:
        origin = (channel, origin_id)
        if origin in self.origins:
            return self.origins[origin]
        known = self._shelf.origins.get(origin)
        return None if known is None else known[1]

    def add_message(self, lane: Lane, message: Message) -> None:
        self._conversation(lane.key).messages[message.seq] = message
        origin = (message.channel, message.origin_id)
        self.origins[origin] = message.seq
        self.moved[origin] = (lane.key, message.seq)
        change = self._change(lane.key)
        change.messages.append((message_id(*origin, self._shelf.times_forgotten.get(origin, 0)), MESSAGE.pack(message)))
        change.added.append(("m", message.seq))

    def move_message(self, lane: Lane, message: Message, to: int) -> None:
        moved = message.stored(to, message.accepted_at)
        messages, change = self._conversation(lane.key).messages, self._change(lane.key)
        messages.pop(message.seq, None)
        messages[to] = moved
        change.add("-m", message.seq)
        change.add("m", MESSAGE.pack(moved))
        change.added.append(("m", to))
        origin = (message.channel, message.origin_id)
        self.origins[origin] = to
        self.moved[origin] = (lane.key, to)

    def messages_at(self, lane: Lane, places: Sequence[int]) -> Sequence[Message]:
        stored = self._conversation(lane.key).messages
        if not all(place in stored for place in places):
            stored = self._history(lane).messages
        return [stored[place] for place in places if place in stored]

    def settle_messages(self, lane: Lane, first: int, last: int, outcome: MessageOutcome) -> None:
        outcomes = self._conversation(lane.key).outcomes
        for place in range(first, last + 1):
            outcomes.setdefault(place, outcome)
        self._change(lane.key).add("o", (first, last, outcome))

    def message_outcome(self, lane: Lane, seq: int) -> MessageOutcome | None:
        if seq < 1:
            return None
        known = self._conversation(lane.key).outcomes.get(seq)
        return known if known is not None else self._history(lane).outcomes.get(seq)

    # Questions

    def add_question(self, lane: Lane, question: QuestionView) -> None:
        self._conversation(lane.key).questions[question.turn, question.number] = question
        change = self._change(lane.key)
        change.add("q", QUESTION.pack(question))
        change.added.append(("q", question.turn))

    def question(self, lane: Lane, number: int) -> QuestionView:
        place = (lane.number, number)
        here = self._conversation(lane.key)
        return here.questions[place] if place in here.questions else self._history(lane).questions[place]

    def answer_question(self, lane: Lane, number: int, answer: Answer, at: int) -> None:
        self.question(lane, number)
        asked = self._conversation(lane.key).answered((lane.number, number), answer, at)
        self._change(lane.key).add("q", QUESTION.pack(asked))

    # Deliveries

    def add_delivery(self, lane: Lane, delivery: Delivery) -> None:
        self._conversation(lane.key).outgoing[delivery.seq] = delivery
        change = self._change(lane.key)
        change.add("d", DELIVERY.pack(delivery))
        change.added.append(("d", delivery.seq))

    def settle_delivery(
        self, lane: Lane, state: DeliveryState, *, receipt: str | None = None, cause: str | None = None
    ) -> None:
        self._settle(lane, lane.claim_seq, (state, self.now, lane.attempt, lane.held_epoch, receipt, cause))

    def _settle(self, lane: Lane, seq: int, settled: Any) -> None:
        here = self._conversation(lane.key)
        here.settled[seq] = settled
        if settled[0] == "failed":
            here.failed[seq] = here.stored.get(("d", seq), 0)
        else:
            here.failed.pop(seq, None)
        self._change(lane.key).add("z", (seq, *settled))

    def settled_delivery(self, lane: Lane, seq: int) -> tuple[DeliveryState, int] | None:
        settled = self._conversation(lane.key).settled.get(seq) or self._history(lane).settled.get(seq)
        return None if settled is None else (settled[0], settled[3])

    def delivery(self, lane: Lane, seq: int) -> DeliveryView | None:
        here = self._history(lane)
        found = here.outgoing.get(seq)
        return None if found is None else here.delivery_view(found)

    def move_delivery(self, lane: Lane, seq: int, to: int) -> None:
        here = self._history(lane)
        moved = here.outgoing[to] = replace(here.outgoing.pop(seq), seq=to, queued_at=self.now)
        here.settled.pop(seq, None)
        here.failed.pop(seq, None)
        change = self._change(lane.key)
        change.add("-d", seq)
        change.add("d", DELIVERY.pack(moved))
        change.added.append(("d", to))

    def close_delivery(self, lane: Lane, seq: int, state: DeliveryState, cause: str | None) -> None:
        known = self._conversation(lane.key)
        if seq not in known.settled and seq not in known.outgoing:
            known = self._history(lane)
        _, _, attempt, epoch, receipt, _ = known.settled.get(seq, UNSETTLED)
        self._settle(lane, seq, (state, self.now, attempt, epoch, receipt, cause))

    # What follows from a commit

    def add_turn(self, lane: Lane, turn: TurnView) -> None:
        here = self._conversation(lane.key)
        here.turns[turn.number] = turn
        if turn.outcome == "dead_letter":
            here.dead[turn.number] = here.stored.get(("m", turn.first), 0)
        self._change(lane.key).add("t", TURN_OVER.pack(turn))

    def turn(self, lane: Lane, number: int) -> TurnView | None:
        return self._conversation(lane.key).turns.get(number) or self._history(lane).turns.get(number)

    def amend_turn(self, lane: Lane, turn: TurnView) -> None:
        here = self._conversation(lane.key)
        here.turns[turn.number] = turn
        here.dead.pop(turn.number, None)
        self._change(lane.key).add("t", TURN_OVER.pack(turn))

    def person(self, channel: str, user: str) -> Person | None:
        known = self._known_value(self._shelf.subjects.person(channel, user))
        return None if known is None else PERSON.unpack(known)

    def newest_person(self) -> int:
        """The stream itself counts."""
        return 0

    def save_person(self, person: Person) -> None:
        self._values[self._shelf.subjects.person(*person.place)] = PERSON.pack(person)

    def spend(self, account: Account, usage: Usage) -> None:
        self._spent.add(account, usage)

    def _gather_spent(self) -> None:
        for spent in self._spent.spent():
            account = spent.account
            subject = self._shelf.subjects.spent(account.day, account.channel, account.user)
            known = self._known_value(subject) or {}
            name = f"{account.agent}\n{account.model}"
            before = known.get(name, NOTHING_SPENT)
            self._values[subject] = {**known, name: tuple(map(add, before, spent_to(spent)))}

    def add_attempt(self, lane: Lane, attempt: AttemptView) -> None:
        self._conversation(lane.key).attempts[attempt.kind, attempt.epoch] = attempt
        self._change(lane.key).add("a", ATTEMPT.pack(attempt))

    def attempt(self, lane: Lane, epoch: int) -> AttemptView | None:
        place = (lane.kind, epoch)
        return self._conversation(lane.key).attempts.get(place) or self._history(lane).attempts.get(place)

    # Sessions

    def save_session(self, lane: Lane, agent: str, session: Session, *, continues: bool) -> None:
        here = self._conversation(lane.key)
        here.sessions[agent] = session
        self._change(lane.key)
        if not continues:
            self._begin_session(here, agent, session)

    def _begin_session(self, here: Conversation, agent: str, session: Session) -> None:
        """Whoever else has this handle must know of it, and be known."""
        subject = self._handle(agent, session.handle)
        keys: list[str] = self._value(subject, [])
        self._values[subject] = [*dict.fromkeys([*keys, here.key])]
        twins = [twin for twin in self._conversations_of(keys, agent, session.handle) if twin.key != here.key]
        here.shared = here.shared | {agent} if twins else here.shared - {agent}
        for twin in twins:
            if agent not in twin.shared:
                twin.shared |= {agent}
                self._change(twin.key)

    def _handle(self, agent: str, handle: str) -> str:
        return self._shelf.subjects.handle(message_id(agent, handle))

    def _conversations_of(self, keys: Sequence[str], agent: str, handle: str) -> Iterator[Conversation]:
        for key in keys:
            other = self._conversation(key)
            session = other.sessions.get(agent)
            if session is not None and session.handle == handle:
                yield other

    def session(self, lane: Lane, agent: str) -> Session | None:
        return self._conversation(lane.key).sessions.get(agent)

    def drop_sessions(self, lane: Lane) -> None:
        here = self._conversation(lane.key)
        here.sessions, here.shared = {}, frozenset()
        self._change(lane.key)

    def session_is_busy(self, lane: Lane) -> bool:
        here, agent = self._conversation(lane.key), lane.policy.agent
        if agent not in here.shared or agent not in here.sessions:
            return False
        handle = here.sessions[agent].handle
        subject = self._handle(agent, handle)
        keys: list[str] = self._known_value(subject) or []
        self._values[subject] = list(keys)  # written, though it is the same: of two who claim at once one has to see it
        twins = [twin for twin in self._conversations_of(keys, agent, handle) if twin.key != here.key]
        held = [twin.lanes[TURN] for twin in twins if TURN in twin.lanes]
        return any(twin.owner is not None and twin.policy.agent == agent for twin in held)

    # What a lease holds

    def batches(self, lanes: Sequence[Lane]) -> Sequence[Batch]:
        return [self._batch_of(lane) for lane in lanes]

    def _batch_of(self, lane: Lane) -> Batch:
        if lane.kind is TICK:
            return (), None, None
        here = self._conversation(lane.key)
        if lane.kind is OUT:
            if lane.claim_seq not in here.outgoing:
                here = self._history(lane)
            return (), here.outgoing[lane.claim_seq], None
        places = [*lane.batch_places, *islice(lane.waiting_places, 1)]
        return self.messages_at(lane, places), None, here.sessions.get(lane.policy.agent)

    def forget(self, what: str, keys: Sequence[Sequence[object]]) -> None:
        """Ids and events before these times. (The log of a conversation is cut by the server.)"""
        self._values[self._shelf.subjects.other(what)] = list(keys[0])

    # Writing

    def flush(self, noted: Sequence[Noted]) -> None:
        """Say in records what was changed."""
        shelf = self._shelf
        self._gather_spent()
        for subject, value in self._values.items():
            seq = shelf.values[subject][1] if subject in shelf.values else 0
            self.units.append(Unit([Write(subject, encode(value), seq, replaces=True)], value=value))
        *others, last = self._changes or [None]
        self.units += [self._unit_of(key, self._changes[key], ()) for key in others if key is not None]
        # In the order in which they happened, so all in one record.
        if last is not None:
            self.units.append(self._unit_of(last, self._changes[last], noted))
        elif noted:
            write = Write(shelf.subjects.events, encode({"at": self.now, "e": noted}))
            self.units.append(Unit([write], noted=noted))

    def _unit_of(self, key: str, change: Change, noted: Sequence[Noted]) -> Unit:
        here = self._conversation(key)
        subject = self._shelf.subjects.conversation(key)
        *earlier, last = change.messages or [NO_MESSAGE]
        writes = [Write(subject, encode({"at": self.now, "r": {"m": [packed]}}), id=id_) for id_, packed in earlier]
        if last is not NO_MESSAGE:
            change.add("m", last[1])
        state = here.state(self._shelf.policies)
        record: dict[str, Any] = {"at": self.now, "b": self._batch, **state}
        if change.rows:
            record["r"] = change.rows
        if noted:
            record["e"] = noted
        here.batch = self._batch
        writes.append(Write(subject, encode(record), id=last[0]))
        writes[0].after = here.seq
        return Unit(writes, here, change, state, noted=noted)


def _is_due(lane: Lane, now: int) -> bool:
    return lane.due_at is not None and lane.due_at <= now
