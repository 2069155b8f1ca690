"""The rows of one open transaction: read in few statements, written in few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import islice

from turnlane.backends.rows import Batch, WorkerRow
from turnlane.backends.sql import codec
from turnlane.backends.sql.believed import MESSAGE_CHARACTERS_MAX, Believed
from turnlane.backends.sql.codec import Policies, StoredLane, to_text
from turnlane.backends.sql.database import Connection, Row
from turnlane.model.delivery import Delivery, DeliveryState
from turnlane.model.event import Noted
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.person import Person
from turnlane.model.policy import Policy, Queue
from turnlane.model.question import Answer, QuestionView
from turnlane.model.session import Session
from turnlane.model.usage import Account, Tally, Usage
from turnlane.model.view import AttemptView, DeliveryView, TurnView


class SqlRows:
    """Changes are gathered and written by `flush`; what was read or changed is kept as long as the transaction."""

    def __init__(
        self,
        connection: Connection,
        sql: Mapping[str, str],
        policies: Policies,
        believed: Believed,
        now: int,
    ) -> None:
        self.now = now
        self._connection = connection
        self._sql = sql
        self._execute = connection.execute
        self._policies = policies
        self._believed = believed
        self._lanes: dict[tuple[Kind, str], StoredLane | None] = {}
        self._changed: dict[int, StoredLane] = {}
        self._added: list[StoredLane] = []
        self._last_id: int | None = None
        self._origins: dict[tuple[str, str], int | None] = {}
        self._messages: dict[tuple[int, int], Message] = {}
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        self._settled: dict[tuple[int, int], tuple[DeliveryState, int]] = {}
        self._turns: dict[tuple[int, int], TurnView] = {}
        self._attempts: dict[tuple[int, int], AttemptView] = {}
        self._queues: dict[int, Queue] = {}
        self._due_here: defaultdict[Queue, list[StoredLane]] = defaultdict(list)
        """Lanes that became due in this very transaction."""
        self._beginning: list[tuple[StoredLane, str, Session]] = []
        """Sessions under a handle that is new to their lane."""
        self._spent = Tally()
        self._settlements: list[tuple[MessageOutcome, int, int, int]] = []
        self._writes: defaultdict[str, list[Row]] = defaultdict(list)

    # Reading ahead: what a whole group of calls needs, in a few statements.

    def expect_lanes(self, places: Iterable[tuple[Kind, str]]) -> None:
        missing: defaultdict[Kind, list[str]] = defaultdict(list)
        known, believed = self._lanes, self._believed.lanes
        for place in places:
            if place not in known:
                lane = known[place] = believed.get(place)
                if lane is None:
                    missing[place[0]].append(place[1])
        # Where reading locks them, all take turns before sendings, or they would wait for each other in a circle.
        for kind, keys in sorted(missing.items()):
            self._resolve(self._execute(self._sql["lanes_by_key"], (kind, to_text(keys))))

    def expect_origins(self, wanted: Iterable[tuple[str, str]]) -> None:
        by_channel: defaultdict[str, list[str]] = defaultdict(list)
        for channel, origin_id in wanted:
            if (channel, origin_id) not in self._origins:
                self._origins[channel, origin_id] = None
                by_channel[channel].append(origin_id)
        for channel, origin_ids in by_channel.items():
            for origin_id, seq in self._execute(self._sql["origins"], (channel, to_text(origin_ids))):
                self._origins[channel, origin_id] = seq

    def _resolve(self, rows: Iterable[Row]) -> list[StoredLane]:
        """Lanes for rows just read; a lane that this transaction knows already is newer than its row."""
        lanes = []
        for row in rows:
            place = (codec.KINDS[row[1]], row[2])
            lane = self._lanes.get(place)
            if lane is None:
                lane = self._believed.lanes.get(place) or self._lane_from(row)
                self._lanes[place] = lane
            lanes.append(lane)
        return lanes

    def _lane_from(self, row: Row) -> StoredLane:
        return codec.lane_from(row, self._policies)

    # Lanes

    def lane(self, kind: Kind, key: str) -> StoredLane | None:
        place = (kind, key)
        if place not in self._lanes:
            self.expect_lanes([place])
        return self._lanes[place]

    def add_lane(self, kind: Kind, key: str, policy: Policy) -> Lane:
        lane = StoredLane(kind, key, policy, id=self._new_id(kind, key), sessions={})
        self._lanes[kind, key] = lane
        self._added.append(lane)
        return lane

    def _new_id(self, kind: Kind, key: str) -> int:
        """A conversation's lanes lie side by side, as they change together: fewer pages in every commit."""
        turn = self.lane(TURN, key) if kind is OUT else None
        if turn is not None:
            return turn.id + 1
        if self._last_id is None:
            self._last_id = self._execute(self._sql["last_lane_id"]).fetchone()[0]
        self._last_id += 2 - self._last_id % 2
        return self._last_id

    def save_lane(self, lane: StoredLane) -> None:
        self._changed[lane.id] = lane

    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        here: defaultdict[Queue, list[StoredLane]] = defaultdict(list)
        self._due_here = here
        policy, add = None, None
        for lane in self._changed.values():
            if lane.kind is kind and lane.due_at is not None and lane.due_at <= now:
                if add is None or lane.policy is not policy:
                    policy, add = lane.policy, here[self._queue(lane)].append
                add(lane)
        if self._believed.nothing_due_before(kind) <= now:
            for queue in self._due_queues_in_file(kind, now):
                here[queue] += ()
        return list(here)

    def _due_queues_in_file(self, kind: Kind, now: int) -> Sequence[Queue]:
        only = self._believed.only_queue(kind, self._policies)
        if only is not None:
            return [only]
        queues = dict(queues_in_file(self._connection, self._sql, kind))
        self._believed.learn_queues(kind, queues)
        self._believed.learn_due(kind, min(queues.values(), default=None))
        return [queue for queue, due_at in queues.items() if due_at <= now]

    def due_lanes(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[StoredLane]:
        """Those of the file first: what became due in this very transaction is younger."""
        seen: set[int] = set()
        for lane in self._due_before(kind, queue, now, limit):
            seen.add(lane.id)
            yield lane
        ours = self._due_here[queue]
        yield from self._with_sessions([lane for lane in ours if lane.id not in seen] if seen else ours)

    def _due_before(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterable[StoredLane]:
        """Lanes that were due before this transaction, longest due first, and still are."""
        return self._due_in_file(kind, queue, now, limit) if self._believed.nothing_due_before(kind) <= now else ()

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        """As the file has it, corrected by what this transaction did."""
        rows = self._execute(self._sql["running"], (kind,))
        held = {id_: codec.runs_as(policy, more, self._policies) for id_, policy, more in rows}
        for lane in self._changed.values():
            held.pop(lane.id, None)
            if lane.kind is kind and lane.owner is not None:
                held[lane.id] = lane.runs_as
        return held.values()

    def served(self, kind: Kind) -> Mapping[str, int]:
        return dict(self._execute(self._sql["served"], (kind,)).fetchall())

    def save_served(self, kind: Kind, tenant: str, number: int) -> None:
        self._writes["save_served"].append((kind, tenant, number))

    def holds(self) -> Mapping[str, int]:
        return self._believed.holds()

    def save_hold(self, account: str, until: int) -> None:
        self._believed.holds()[account] = until
        self._execute(self._sql["save_hold"], (account, until))

    def _queue(self, lane: StoredLane) -> Queue:
        """Policies are few, and a transaction asks the same ones again and again."""
        policy = lane.policy
        queue = self._queues.get(id(policy))
        if queue is None:
            queue = self._queues[id(policy)] = policy.queue
        return queue

    def _due_in_file(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[StoredLane]:
        after: tuple[int, int] | None = (-1, 0)
        while after is not None:
            lanes, after = self._due_page(kind, queue, now, after, limit)
            yield from self._with_sessions([lane for lane in lanes if self._is_due(lane, queue, now)])

    def _due_page(
        self, kind: Kind, queue: Queue, now: int, after: tuple[int, int], limit: int
    ) -> tuple[Sequence[StoredLane], tuple[int, int] | None]:
        """Lanes that are due in the file, and where the next page begins."""
        rows = self._execute(self._sql["due_lanes"], (kind, queue, now, *after, limit)).fetchall()
        return self._resolve(rows), (rows[-1][10], rows[-1][0]) if len(rows) == limit else None

    def _is_due(self, lane: StoredLane, queue: Queue, now: int) -> bool:
        return lane.due_at is not None and lane.due_at <= now and self._queue(lane) == queue

    def _with_sessions(self, lanes: Sequence[StoredLane]) -> Sequence[StoredLane]:
        """Read at once what will be asked of each."""
        self._read_sessions([lane for lane in lanes if lane.sessions is None and lane.kind is TURN])
        return lanes

    def lanes_of(self, worker: str) -> Sequence[Lane]:
        self._resolve(self._execute(self._sql["lanes_of"], (worker,)).fetchall())
        return [lane for lane in self._lanes.values() if lane is not None and lane.owner == worker]

    def lanes_of_the_dead(self) -> Sequence[Lane]:
        self._resolve(self._execute(self._sql["lanes_of_the_dead"]).fetchall())
        return [lane for lane in self._lanes.values() if lane is not None and self._is_orphan(lane)]

    def _is_orphan(self, lane: StoredLane) -> bool:
        if lane.owner is None:
            return False
        worker = self.worker(lane.owner)
        return worker is None or not worker.live

    # Messages

    def origin(self, channel: str, origin_id: str) -> int | None:
        place = (channel, origin_id)
        if place not in self._origins:
            self.expect_origins([place])
        return self._origins[place]

    def add_message(self, lane: StoredLane, message: Message) -> None:
        self._origins[message.channel, message.origin_id] = message.seq
        keep = self._believed.messages if len(message.text) <= MESSAGE_CHARACTERS_MAX else self._messages
        keep[lane.id, message.seq] = message
        row = codec.message_row(lane.id, message)
        origin = (lane.id, message.seq, message.accepted_at, message.channel, message.origin_id)
        self._writes["insert_origin"].append(origin)
        if message.role == "person":
            self._writes["insert_message"].append(row)
        else:
            self._writes["insert_message_by"].append((*row, message.role))

    def move_message(self, lane: StoredLane, message: Message, to: int) -> None:
        """Written at once, as it may be read again in this transaction."""
        self._execute(self._sql["move_message"], (lane.id, message.seq, to))
        self._execute(self._sql["move_origin"], (message.channel, message.origin_id, lane.id, message.seq, to))
        self._believed.messages.pop((lane.id, message.seq), None)
        self._messages[lane.id, to] = message.stored(to, message.accepted_at)
        self._origins.pop((message.channel, message.origin_id), None)

    def settle_messages(self, lane: StoredLane, first: int, last: int, outcome: MessageOutcome) -> None:
        if outcome != "heard":
            for seq in range(first, last + 1):
                self._believed.messages.pop((lane.id, seq), None)
        self._settlements.append((outcome, lane.id, first, last))

    def message_outcome(self, lane: StoredLane, seq: int) -> MessageOutcome | None:
        for outcome, id_, first, last in self._settlements:
            if id_ == lane.id and first <= seq <= last:
                return outcome
        row = self._execute(self._sql["message_outcome"], (lane.id, seq)).fetchone()
        return row[0] if row else None

    def batches(self, lanes: Sequence[StoredLane]) -> Sequence[Batch]:
        self._read_messages([(lane, _places_read(lane)) for lane in lanes if lane.kind is TURN])
        self._read_deliveries([lane for lane in lanes if lane.kind is OUT])
        return [self._batch(lane) for lane in lanes]

    def _batch(self, lane: StoredLane) -> Batch:
        if lane.kind is OUT:
            place = (lane.id, lane.claim_seq)
            return (), self._believed.deliveries.pop(place, None) or self._deliveries[place], None
        if lane.kind is TICK:
            return (), None, None
        id_, at_hand, read = lane.id, self._believed.messages, self._messages
        messages = [at_hand.get((id_, seq)) or read[id_, seq] for seq in _places_read(lane)]
        # Who holds the lease has them now; who runs the batch again reads them.
        for seq in range(lane.done_seq + 1, lane.claim_seq + 1):
            at_hand.pop((id_, seq), None)
        return messages, None, lane.sessions.get(lane.policy.agent) if lane.sessions else None

    def messages_at(self, lane: StoredLane, places: Sequence[int]) -> Sequence[Message]:
        self._read_messages([(lane, places)])
        return [message for seq in places if (message := self._kept(lane.id, seq)) is not None]

    def _kept(self, lane: int, seq: int) -> Message | None:
        return self._believed.messages.get((lane, seq)) or self._messages.get((lane, seq))

    def _read_messages(self, wanted: Sequence[tuple[StoredLane, Sequence[int]]]) -> None:
        ranges, keys = [], {}
        at_hand, read = self._believed.messages, self._messages
        for lane, places in wanted:
            id_ = lane.id
            for seq in places:
                if (id_, seq) not in at_hand and (id_, seq) not in read:
                    ranges.append((id_, places[0], places[-1]))
                    keys[id_] = lane.key
                    break
        if not ranges:
            return
        for row in self._execute(self._sql["messages_of_batches"], (to_text(ranges),)):
            self._messages.setdefault((row[0], row[1]), codec.message_from(row, keys[row[0]]))

    def _read_deliveries(self, lanes: Sequence[StoredLane]) -> None:
        at_hand, read = self._believed.deliveries, self._deliveries
        missing = {
            lane.id: lane
            for lane in lanes
            if (lane.id, lane.claim_seq) not in at_hand and (lane.id, lane.claim_seq) not in read
        }
        if not missing:
            return
        places = [(lane.id, lane.claim_seq) for lane in missing.values()]
        for row in self._execute(self._sql["deliveries_of_batches"], (to_text(places),)):
            self._deliveries[row[0], row[1]] = codec.delivery_from(row, missing[row[0]].key)

    # Questions are few: written at once.

    def add_question(self, lane: StoredLane, question: QuestionView) -> None:
        self._execute(self._sql["insert_question"], codec.question_row(lane.id, question))

    def question(self, lane: StoredLane, number: int) -> QuestionView:
        row = self._execute(self._sql["question"], (lane.id, lane.number, number)).fetchone()
        return codec.question_from(row, lane.key)

    def answer_question(self, lane: StoredLane, number: int, answer: Answer, at: int) -> None:
        self._execute(self._sql["answer_question"], (answer.text, answer.by, at, lane.id, lane.number, number))

    # What follows from a commit

    def add_delivery(self, lane: StoredLane, delivery: Delivery) -> None:
        keep = self._believed.deliveries if len(delivery.text) <= MESSAGE_CHARACTERS_MAX else self._deliveries
        keep[lane.id, delivery.seq] = delivery
        row = codec.delivery_row(lane.id, delivery)
        if not delivery.options:
            self._writes["insert_delivery"].append(row)
        else:
            self._writes["insert_delivery_with_options"].append((*row, to_text(delivery.options)))

    def settle_delivery(
        self, lane: StoredLane, state: DeliveryState, *, receipt: str | None = None, cause: str | None = None
    ) -> None:
        self._settled[lane.id, lane.claim_seq] = (state, lane.held_epoch)
        self._writes["settle_delivery"].append(codec.settled_row(lane, state, self.now, receipt, cause))

    def settled_delivery(self, lane: StoredLane, seq: int) -> tuple[DeliveryState, int] | None:
        known = self._settled.get((lane.id, seq))
        if known is not None:
            return known
        row: tuple[DeliveryState, int] | None = self._execute(self._sql["settled_delivery"], (lane.id, seq)).fetchone()
        return row

    def delivery(self, lane: StoredLane, seq: int) -> DeliveryView | None:
        self._write_deliveries()
        row = self._execute(self._sql["delivery"], (lane.id, seq)).fetchone()
        return None if row is None else codec.delivery_view_from((*row, lane.key))

    def move_delivery(self, lane: StoredLane, seq: int, to: int) -> None:
        self._write_deliveries()
        self._execute(self._sql["move_delivery"], (lane.id, seq, to, self.now))
        for known in (self._deliveries, self._believed.deliveries, self._settled):
            known.pop((lane.id, seq), None)

    def close_delivery(self, lane: StoredLane, seq: int, state: DeliveryState, cause: str | None) -> None:
        self._write_deliveries()
        self._execute(self._sql["close_delivery"], (lane.id, seq, state, self.now, cause))
        self._settled.pop((lane.id, seq), None)

    def _write_deliveries(self) -> None:
        """What this transaction has gathered of them, before one of them is read or changed by its place."""
        for name in ("insert_delivery", "insert_delivery_with_options", "settle_delivery"):
            self._write(name, self._writes.pop(name, []))

    def add_turn(self, lane: StoredLane, turn: TurnView) -> None:
        self._turns[lane.id, turn.number] = turn
        self._writes["insert_turn"].append(codec.turn_row(lane.id, turn))

    def turn(self, lane: StoredLane, number: int) -> TurnView | None:
        known = self._turns.get((lane.id, number))
        if known is not None:
            return known
        row = self._execute(self._sql["turn"], (lane.id, number)).fetchone()
        return None if row is None else codec.turn_from(row, lane.key)

    def amend_turn(self, lane: StoredLane, turn: TurnView) -> None:
        """Written at once, after what this transaction recorded before."""
        self._write("insert_turn", self._writes.pop("insert_turn", []))
        self._turns[lane.id, turn.number] = turn
        self._execute(self._sql["amend_turn"], (lane.id, turn.number, turn.outcome))

    def spend(self, account: Account, usage: Usage) -> None:
        self._spent.add(account, usage)

    def _gather_spent(self) -> None:
        if rows := [codec.spent_row(spent) for spent in self._spent.spent()]:
            self._writes["spend"] = rows

    def person(self, channel: str, user: str) -> Person | None:
        row = self._execute(self._sql["person"], (channel, user)).fetchone()
        return None if row is None else codec.person_from(row)

    def newest_person(self) -> int:
        newest: int = self._execute(self._sql["newest_person"]).fetchone()[0]
        return newest

    def save_person(self, person: Person) -> None:
        self._execute(self._sql["save_person"], codec.person_row(person))

    def add_attempt(self, lane: StoredLane, attempt: AttemptView) -> None:
        self._attempts[lane.id, attempt.epoch] = attempt
        self._writes["insert_attempt"].append(codec.attempt_row(lane.id, attempt))

    def attempt(self, lane: StoredLane, epoch: int) -> AttemptView | None:
        known = self._attempts.get((lane.id, epoch))
        if known is not None:
            return known
        row = self._execute(self._sql["attempt"], (lane.id, epoch)).fetchone()
        return None if row is None else codec.attempt_from(row, lane.kind, lane.key)

    # Sessions

    def _read_sessions(self, lanes: Iterable[StoredLane]) -> None:
        missing = {}
        for lane in lanes:
            if lane.sessions is None:
                lane.sessions, lane.shared = {}, frozenset()
                if lane.number:  # before its first turn it has none
                    missing[lane.id] = lane
        if not missing:
            return
        self._write_sessions()
        for row in self._execute(self._sql["sessions_of_lanes"], (to_text(list(missing)),)):
            lane = missing[row[0]]
            lane.sessions = {**(lane.sessions or {}), row[1]: codec.session_from(row)}
            lane.shared |= {row[1]} if row[9] else frozenset()

    def save_session(self, lane: StoredLane, agent: str, session: Session, *, continues: bool) -> None:
        if continues:
            self._writes["continue_session"].append(codec.continued_session_row(lane.id, agent, session))
        else:
            self._begin_session(lane, agent, session)
        if lane.sessions is not None:
            lane.sessions[agent] = session

    def session(self, lane: StoredLane, agent: str) -> Session | None:
        if lane.sessions is None:
            self._read_sessions([lane])
        return (lane.sessions or {}).get(agent)

    def drop_sessions(self, lane: StoredLane) -> None:
        """Written at once, after what this transaction saved of them before."""
        self._write_sessions()
        self._execute(self._sql["drop_sessions"], (lane.id,))
        lane.sessions, lane.shared = {}, frozenset()

    def _begin_session(self, lane: StoredLane, agent: str, session: Session) -> None:
        self._beginning.append((lane, agent, session))

    def _write_sessions(self) -> None:
        """What this transaction has gathered of them, before they are read or dropped, or a lane waits for its twin."""
        if self._beginning:
            self._begin_sessions()
        self._write("continue_session", self._writes.pop("continue_session", []))

    def _begin_sessions(self) -> None:
        """Nearly all are the only ones under their handle, and bound to no machine: these are written together."""
        beginning, self._beginning = self._beginning, []
        had = self._handles_had(beginning) if len(beginning) > 1 else None
        alone: list[Row] = []
        for lane, agent, session in beginning:
            handle = (agent, session.handle)
            if had is None or handle in had or session.machine is not None:
                self._write("begin_session", alone)
                alone = []
                self._begin_session_now(lane, agent, session)
            else:
                had.add(handle)
                lane.shared -= {agent}
                alone.append(codec.lone_session_row(lane.id, agent, session))
        self._write("begin_session", alone)

    def _handles_had(self, beginning: Iterable[tuple[StoredLane, str, Session]]) -> set[tuple[str, str]]:
        """Those of them that somebody has begun with before, and their agents."""
        by_agent: defaultdict[str, list[str]] = defaultdict(list)
        for _, agent, session in beginning:
            by_agent[agent].append(session.handle)
        return {
            (agent, handle)
            for agent, handles in by_agent.items()
            for [handle] in self._execute(self._sql["handles_had"], (agent, to_text(handles)))
        }

    def _begin_session_now(self, lane: StoredLane, agent: str, session: Session) -> None:
        twins = self._twins(lane, agent, session.handle)
        if lane.sessions is not None:
            lane.shared = lane.shared | {agent} if twins else lane.shared - {agent}
        row = codec.new_session_row(lane.id, agent, session, shared=bool(twins))
        self._execute(self._sql["new_session"], row)
        if twins:
            self._execute(self._sql["mark_shared"], (agent, session.handle))
        for twin in twins:
            self.save_lane(twin)  # though its row stays as it is: whoever remembers it must read it again
            if twin.sessions is not None:
                twin.shared |= {agent}

    def _twins(self, lane: StoredLane, agent: str, handle: str) -> list[StoredLane]:
        return self._resolve(self._execute(self._sql["twins"], (agent, handle, lane.id)).fetchall())

    def session_is_busy(self, lane: StoredLane) -> bool:
        if self._beginning:
            self._write_sessions()
        if lane.sessions is None:
            self._read_sessions([lane])
        agent = lane.policy.agent
        if agent not in lane.shared:
            return False
        handle = (lane.sessions or {})[agent].handle
        return any(twin.owner is not None and twin.policy.agent == agent for twin in self._twins(lane, agent, handle))

    # Workers are few and change seldom: written at once.

    def worker(self, worker: str) -> WorkerRow | None:
        workers = self._believed.workers
        if worker not in workers:
            row = self._execute(self._sql["worker"], (worker,)).fetchone()
            workers[worker] = None if row is None else WorkerRow(row[0], bool(row[1]), row[2], row[3])
        return workers[worker]

    def save_worker(self, worker: WorkerRow) -> None:
        self._believed.workers[worker.id] = worker
        self._execute(self._sql["save_worker"], astuple(worker))

    def lapsed_workers(self, now: int) -> Sequence[WorkerRow]:
        rows = self._execute(self._sql["lapsed_workers"], (now,)).fetchall()
        return [WorkerRow(row[0], bool(row[1]), row[2], row[3]) for row in rows]

    def machine_is_live(self, machine: str, now: int) -> bool:
        return self._execute(self._sql["machine_is_live"], (machine, now)).fetchone() is not None

    # So are settings.

    def setting(self, name: str) -> str | None:
        row = self._execute(self._sql["setting"], (name,)).fetchone()
        return None if row is None else row[0]

    def save_setting(self, name: str, value: str | None) -> None:
        if value is None:
            self._execute(self._sql["drop_setting"], (name,))
        else:
            self._execute(self._sql["save_setting"], (name, value))

    @property
    def changed(self) -> Collection[StoredLane]:
        return [*self._added, *self._changed.values()]

    # Writing

    def flush(self, noted: Sequence[Noted]) -> None:
        """Write everything: one statement, prepared once, for each kind of change."""
        self._write_sessions()
        self._write_lanes()
        self._gather_spent()
        for name, rows in self._writes.items():
            self._write(name, rows)
        self._write("settle_messages", self._settlements)
        self._write_journal(noted)

    def _write_journal(self, noted: Sequence[Noted]) -> None:
        raise NotImplementedError

    def _write_lanes(self) -> None:
        for lane in self._added:
            lane.steady = codec.steady_part(lane)
            self._changed.pop(lane.id, None)
            if not codec.is_ordinary(lane):
                self._writes["set_lane"].append((*codec.steady_columns(lane, self._policies), lane.id))
        self._write("insert_lane", [codec.ordinary_lane_row(lane, self._policies) for lane in self._added])
        moved = []
        for lane in self._changed.values():
            steady = codec.steady_part(lane)
            if steady != lane.steady:
                lane.steady = steady
                self._writes["set_lane"].append((*codec.steady_columns(lane, self._policies), lane.id))
            moved.append(codec.moving_columns(lane))
        self._write("move_lane", moved)

    def forget(self, what: str, keys: Sequence[Row]) -> None:
        self._write(f"forget_{what}", keys)

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            self._connection.executemany(self._sql[name], rows)


def queues_in_file(
    connection: Connection, sql: Mapping[str, str], kind: Kind, only: Queue | None = None
) -> Iterator[tuple[Queue, int]]:
    """Each queue of the file in which lanes are due at some time, and when first. `only`: there is no other."""
    queue = ""
    while queue != only and (row := connection.execute(sql["next_queue"], (kind, queue)).fetchone()):
        queue, due_at = row
        yield queue, due_at


def _places_read(lane: Lane) -> Sequence[int]:
    """The batch of a turn lane, and the one message after it if there is one."""
    if lane.aside:
        return [*lane.batch_places, *islice(lane.waiting_places, 1)]
    end = lane.claim_seq + 1
    return range(lane.done_seq + 1, (end if end < lane.next_seq else lane.next_seq) + 1)
