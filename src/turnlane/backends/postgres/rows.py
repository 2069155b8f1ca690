"""The rows of one group of calls, on a server that others use at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from turnlane.backends.postgres.believed import ANY_TIME, BelievedOfServer
from turnlane.backends.postgres.bell import Bell
from turnlane.backends.postgres.connection import BlockingConnection
from turnlane.backends.postgres.queries import SQL
from turnlane.backends.postgres.statement import columns, composed, texts
from turnlane.backends.rows import WorkerRow
from turnlane.backends.sql import codec
from turnlane.backends.sql.codec import StoredLane, to_text
from turnlane.backends.sql.database import Connection, Row
from turnlane.backends.sql.rows import SqlRows
from turnlane.model.event import Noted
from turnlane.model.lane import OUT, TURN, Kind, Lane
from turnlane.model.policy import Queue
from turnlane.model.session import Session

MoreFollow = Callable[[], bool]
"""Whether another group is about to be decided."""

LANES_PER_BLOCK = 1000
SENDS = "sends"
LAST_COUNTS = {"settle_delivery": slice(0, 2), "save_served": slice(0, 2), "renew_worker": slice(0, 1)}
"""Where one row may be written twice in a group: the columns that name it."""


TAKEN_TO_HAND = 100
"""If so many lanes are due beyond those that are wanted, it is better to ask for them again."""


class Again(Exception):
    """What was decided rests on something that was learned too late: the same once more, with more care, will do."""


class LaneIds:
    """Numbers for new lanes, taken from the server a block at a time; those of a lost process are never used."""

    def __init__(self) -> None:
        self._next = self._end = 0

    def take(self, connection: Connection, sql: Mapping[str, str]) -> int:
        if self._next == self._end:
            self._next = connection.execute(sql["next_lane_block"]).fetchone()[0] * LANES_PER_BLOCK * 2
            self._end = self._next + LANES_PER_BLOCK * 2
        self._next += 2
        return self._next - 2


class PostgresRows(SqlRows):
    """A lane is locked once it is read. Where a decision rests on more than lanes, whoever decides takes a lock.

    `twins`: sessions may have begun with one handle just now. Otherwise that is left to the server to refuse.
    """

    _believed: BelievedOfServer
    _connection: BlockingConnection

    def __init__(self, *args: Any, ids: LaneIds, bell: Bell, more_follow: MoreFollow, twins: bool = False) -> None:
        super().__init__(*args)
        self._ids = ids
        self._bell = bell
        self._is_heard = bell.is_heard
        self._more_follow = more_follow
        self._looks_for_twins = twins
        self._held: set[str] = set()
        self._knew_of_rates = self._policies.rated
        self._sessions: dict[tuple[int, str], tuple[Session, bool]] = {}
        """What this group saves of them, by lane and agent, and whether each begins with it."""

    def _hold(self, name: str) -> None:
        if name not in self._held:
            self._execute(self._sql["lock"], (name,))
            self._held.add(name)

    # Lanes

    def _lane_from(self, row: Row) -> StoredLane:
        lane = super()._lane_from(row)
        lane.version = row[-1]
        return lane

    def _new_id(self, kind: Kind, key: str) -> int:
        turn = self.lane(TURN, key) if kind is OUT else None
        return self._ids.take(self._connection, self._sql) if turn is None else turn.id + 1

    def _due_queues_in_file(self, kind: Kind, now: int) -> Sequence[Queue]:
        queues = list(self._believed.queues(kind))
        self._believed.learn_due(kind, min((due_at for _, due_at in queues), default=None))
        return [queue for queue, due_at in queues if due_at <= now]

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        """Limits hold for all machines: they count one after the other."""
        self._hold_sends()  # who sends takes it first: in the other order they would wait for each other in a circle
        self._hold("claims")
        return super().running(kind)

    def holds(self) -> Mapping[str, int]:
        self._hold_sends()
        return super().holds()

    def _hold_sends(self) -> None:
        """An account with a rate is everybody's: they send one after the other."""
        self._check_rates()
        if self._policies.rated:
            self._hold(SENDS)

    def _check_rates(self) -> None:
        """A lane may bring the first policy with a rate that this process meets, when it is too late for the lock."""
        if self._policies.rated and not self._knew_of_rates:
            raise Again

    def newest_person(self) -> int:
        """They are stored one after the other, so that nobody is seen later than somebody who was stored since."""
        self._hold("people")
        return super().newest_person()

    # Sessions

    def save_session(self, lane: StoredLane, agent: str, session: Session, *, continues: bool) -> None:
        place = (lane.id, agent)
        _, begins = self._sessions.get(place, (session, False))
        if not continues and self._looks_for_twins:
            self._sessions.pop(place, None)
            super().save_session(lane, agent, session, continues=False)
            return
        self._sessions[place] = (session, begins or not continues)
        if lane.sessions is not None:
            lane.sessions = {**lane.sessions, agent: session}
            lane.shared = lane.shared if continues else lane.shared - {agent}

    def _read_sessions(self, lanes: Iterable[StoredLane]) -> None:
        """As the server has them, but for what this group says of them."""
        missing = {lane.id: lane for lane in lanes if lane.sessions is None}
        super()._read_sessions(missing.values())
        for (id_, agent), (session, begins) in self._sessions.items():
            if id_ in missing:
                lane = missing[id_]
                lane.sessions = {**(lane.sessions or {}), agent: session}
                lane.shared = lane.shared - {agent} if begins else lane.shared

    def drop_sessions(self, lane: StoredLane) -> None:
        for place in [place for place in self._sessions if place[0] == lane.id]:
            del self._sessions[place]
        super().drop_sessions(lane)

    def _twins(self, lane: StoredLane, agent: str, handle: str) -> list[StoredLane]:
        """Two who begin with one handle, or go on with it, must see each other."""
        self._hold(f"session/{agent}/{handle}")
        return super()._twins(lane, agent, handle)

    def _begin_session(self, lane: StoredLane, agent: str, session: Session) -> None:
        """Whoever has begun with its handle just now, and took no lock, is waited for."""
        self._execute(self._sql["know_handle"], (agent, session.handle))
        self._begin_session_now(lane, agent, session)

    def _gather_sessions(self) -> None:
        for (lane, agent), (session, begins) in self._sessions.items():
            if begins:
                self._writes["begin_session"].append(codec.new_session_row(lane, agent, session, shared=False))
                self._writes["name_session"].append((agent, session.handle))
            else:
                self._writes["continue_session"].append(codec.continued_session_row(lane, agent, session))
        self._sessions = {}
        names = self._writes["name_session"]
        if len(set(names)) < len(names):
            raise Again

    # Writing

    def flush(self, noted: Sequence[Noted]) -> None:
        self._write_all(noted)
        self._write("settle_messages", self._settlements)

    def _write_all(self, noted: Sequence[Noted]) -> None:
        self._check_rates()
        self._gather_sessions()
        self._gather_lanes()
        self._gather_spent()
        if noted:
            self._writes["insert_journal"].append((self.now, to_text(noted)))
        ring = self._bell.ring(noted=bool(noted), more_follow=self._more_follow())
        if ring is not None:
            self._writes["notify"].append(ring)
        parts = {name: _last(name, rows) for name, rows in sorted(self._writes.items()) if rows}
        if parts:
            self._give(*composed(parts))

    def _give(self, statement: str, parameters: Sequence[Any]) -> None:
        self._learn(self._execute(statement, [*parameters, None, None]).fetchone())

    def _learn(self, answer: Row) -> None:
        version, fact, newest, alone, *_ = answer
        self._believed.last_version = version
        # Who is told of others' transactions need not look for those that are still open.
        self._believed.wrote(fact, newest, alone=alone or self._is_heard)
        for lane in self.changed:
            lane.version = version

    def _gather_lanes(self) -> None:
        for lane in self._added:
            lane.steady = codec.steady_part(lane)
            self._changed.pop(lane.id, None)
        self._writes["insert_lane"] += [codec.new_lane_row(lane, self._policies) for lane in self._added]
        moves = self._writes["move_lane"]
        for _, lane in sorted(self._changed.items()):
            moving, steady = (*codec.moving_columns(lane), lane.version), codec.steady_part(lane)
            if steady == lane.steady:
                moves.append(moving)
            else:
                lane.steady = steady
                self._writes["set_lane"].append((*moving, *codec.steady_columns(lane, self._policies)))

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        """At once. What has outcomes or is forgotten goes row by row; it is seldom, and rows are few."""
        if name == "settle_messages" or name.startswith("forget_"):
            super()._write(name, rows)
        elif rows:
            self._execute(texts(self._sql[name]), columns(_last(name, rows)))


def _last(name: str, rows: Sequence[Row]) -> Sequence[Row]:
    key = LAST_COUNTS.get(name)
    return rows if key is None else list({tuple(row[key]): row for row in rows}.values())


class ReadStatements(dict[str, str]):
    """Those that need no lock. Whoever asks for another one has to begin again, with more care."""

    def __missing__(self, name: str) -> str:
        raise Again(name)


PEEKS = ReadStatements(
    {
        name: SQL[name]
        for name in (
            "messages_of_batches",
            "deliveries_of_batches",
            "sessions_of_lanes",
            "settled_delivery",
            "message_outcome",
            "turn",
            "attempt",
            "question",
            "worker",
            "machine_is_live",
            "setting",
            "next_lane_block",
        )
    },
    lanes_by_key=SQL["peek_lanes"],
    due_lanes=SQL["peek_due_lanes"],
    lanes_of=SQL["peek_lanes_of"],
    lapsed_workers=SQL["peek_lapsed_workers"],
    lanes_of_the_dead=SQL["peek_lanes_of_the_dead"],
)


class QuickRows(PostgresRows):
    """Decides over what is remembered or read without a lock, then writes it in one statement if all of it is still so.

    This is how nearly every group goes. The few that need a lock, or write something at once, begin again.
    """

    def __init__(self, *args: Any, ids: LaneIds, bell: Bell, more_follow: MoreFollow) -> None:
        super().__init__(*args, ids=ids, bell=bell, more_follow=more_follow)
        self._sql = PEEKS
        self._alive: set[str] = set()
        self._passed: set[int] = set()
        """Lanes that were looked at in passing: nothing rests on those that stay as they are."""
        self._queues_in_file: Sequence[Queue] = ()
        self._rests_on_what_is_due = False
        self._composed: tuple[str, Sequence[Any]] | None = None
        self._noted: Sequence[Noted] = ()

    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        """Those of the server if it has to be asked, else of the lanes at hand; nobody else has made one due since."""
        queues = super().due_queues(kind, now)
        self._rests_on_what_is_due = True
        at_hand = self._believed.due_queues(kind, now) if self._is_all_at_hand(kind, now) else ()
        return list(dict.fromkeys([*at_hand, *queues]))

    def _is_all_at_hand(self, kind: Kind, now: int) -> bool:
        return self._believed.nothing_due_before(kind) > now

    def _due_queues_in_file(self, kind: Kind, now: int) -> Sequence[Queue]:
        queues = self._queues_in_file = super()._due_queues_in_file(kind, now)
        if queues and self._believed.is_disturbed:
            raise Again  # or whoever else is after them would get in the way, and we in his
        return queues

    def _due_in_file(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[StoredLane]:
        """If they are few, all of them are taken to hand."""
        if len(self._queues_in_file) == 1:
            rows = self._execute(
                self._sql["due_lanes"], (kind, queue, now, ANY_TIME, 0, limit + TAKEN_TO_HAND)
            ).fetchall()
            if len(rows) < limit + TAKEN_TO_HAND:
                self._believed.take_to_hand(kind, self._resolve(rows), now)
                return self._due_at_hand(kind, queue, now, limit)
        return super()._due_in_file(kind, queue, now, limit)

    def _due_before(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterable[StoredLane]:
        if self._is_all_at_hand(kind, now):
            return self._due_at_hand(kind, queue, now, limit)
        return super()._due_before(kind, queue, now, limit)

    def _due_at_hand(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[StoredLane]:
        """A page at a time."""
        seen: set[int] = set()
        page = limit + len(self._changed)
        while True:
            found = self._believed.due_lanes(kind, queue, now, len(seen) + page)
            lanes = [lane for lane in found if lane.id not in seen]
            seen.update(lane.id for lane in lanes)
            self._lanes.update(((lane.kind, lane.key), lane) for lane in lanes)
            yield from self._with_sessions([lane for lane in lanes if self._is_due(lane, queue, now)])
            if len(lanes) < page:
                return

    def expect_origins(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Nearly every message is new: the server refuses one that is not."""
        self._origins.update(dict.fromkeys(wanted))

    def worker(self, worker: str) -> WorkerRow | None:
        """What is remembered is checked at last only of one that is alive."""
        known = self._believed.workers.get(worker)
        if known is None or not known.live or known.alive_until <= self.now:
            self._believed.workers.pop(worker, None)
        row = super().worker(worker)
        if row is not None and row.live:
            self._alive.add(worker)
        return row

    def save_worker(self, worker: WorkerRow) -> None:
        """One that is renewed. Others come and go seldom."""
        if not worker.live or worker.id not in self._alive:
            raise Again
        self._believed.workers[worker.id] = worker
        self._writes["renew_worker"].append((worker.id, worker.alive_until))

    def lapsed_workers(self, now: int) -> Sequence[WorkerRow]:
        if super().lapsed_workers(now):
            raise Again
        return ()

    def lanes_of(self, worker: str) -> Sequence[Lane]:
        before = set(self._lanes)
        lanes = super().lanes_of(worker)
        self._passed |= {lane.id for place, lane in self._lanes.items() if lane is not None and place not in before}
        return lanes

    def lanes_of_the_dead(self) -> Sequence[Lane]:
        if self._execute(self._sql["lanes_of_the_dead"]).fetchone() is not None:
            raise Again
        return ()

    def holds(self) -> Mapping[str, int]:
        holds = super().holds()
        self._writes["check_holds"] = [(sum(holds.values()),)]
        return holds

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            raise Again(name)

    def flush(self, noted: Sequence[Noted]) -> None:
        """Left to `commit`: others can work while the server does."""
        self._write("settle_messages", self._settlements)
        self._noted = noted

    def compose(self) -> None:
        if self._rests_on_what_is_due:
            self._writes["check_journal"] = [()]
        self._writes["check_worker"] = [(worker,) for worker in self._alive]
        others = self._passed.union(self._changed, (lane.id for lane in self._added))
        seen = [lane for lane in self._lanes.values() if lane is not None and lane.id not in others]
        self._writes["check_lane"] = [(lane.id, lane.version) for lane in seen]
        self._write_all(self._noted)

    def _give(self, statement: str, parameters: Sequence[Any]) -> None:
        self._composed = (statement, parameters)

    def send(self) -> None:
        if self._rests_on_what_is_due and self._believed.last_fact is None:
            raise Again  # somebody else has written meanwhile
        if self._composed is not None:
            statement, parameters = self._composed
            self._connection.send(statement, [*parameters, self._believed.last_version, self._believed.last_fact])
            for lane in self.changed:
                lane.version = None  # that of this group, once it is known

    def confirm(self) -> None:
        if self._composed is not None:
            self._learn(self._connection.receive().fetchone())
