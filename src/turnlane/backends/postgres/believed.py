"""What a process remembers of a server that others use, too, and how it finds out that it was wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from turnlane.backends.postgres.queries import SQL
from turnlane.backends.sql.believed import Believed
from turnlane.backends.sql.codec import StoredLane
from turnlane.backends.sql.database import Connection
from turnlane.clock import SystemClock
from turnlane.model.lane import TICK, Kind
from turnlane.model.policy import Queue

ANY_TIME = -1


class Agenda:
    """Lanes of one queue by the time at which they are due. Of each lane the last word counts."""

    def __init__(self) -> None:
        self.lanes: dict[int, StoredLane] = {}
        self._due_at: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def put(self, lane: StoredLane, due_at: int) -> None:
        self.lanes[lane.id] = lane
        if self._due_at.get(lane.id) != due_at:
            self._due_at[lane.id] = due_at
            heappush(self._heap, (due_at, lane.id))

    def drop(self, lane: StoredLane) -> None:
        if self.lanes.pop(lane.id, None) is not None:
            del self._due_at[lane.id]

    def next_due(self) -> int | None:
        heap = self._heap
        while heap and self._due_at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def first(self, most: int, now: int) -> Sequence[StoredLane]:
        """Those that have been due longest. They stay until another word is said of them."""
        found: dict[int, int] = {}
        while len(found) < most and (due_at := self.next_due()) is not None and due_at <= now:
            found[heappop(self._heap)[1]] = due_at
        for id_, due_at in found.items():
            heappush(self._heap, (due_at, id_))
        return [self.lanes[id_] for id_ in found]


class BelievedOfServer(Believed):
    """Believed while nobody else was heard of. Who writes finds out in time if that was wrong, as hints may be late.

    Lanes that this process left due are at hand. So the server is asked what is due only if somebody else may have had
    a hand in it.
    """

    is_alone = False
    """The server works while nobody here does: more and smaller groups would only give it more to do."""
    is_disturbed = False
    """Somebody else has written since the last group."""

    def __init__(self, connection: Connection, idle_after_ms: int, look_seconds: float) -> None:
        super().__init__(connection, SQL, idle_after_ms)
        self._look_seconds = look_seconds
        self._clock = SystemClock()
        self._looked_at = 0.0
        self._heard = False
        self._served: set[Kind] = set()
        self._agendas: defaultdict[tuple[Kind, Queue], Agenda] = defaultdict(Agenda)
        self._agenda_of: dict[int, Agenda] = {}
        self.last_fact: int | None = None
        """The newest of the journal when it was read what is due, or since then by this process."""
        self.last_version: int | None = None
        """Of what the last group wrote."""

    def hear(self) -> None:
        """Called by any thread: somebody else has written."""
        self._heard = True

    def check(self) -> None:
        """Looked for now and then, too, as a hint may be lost."""
        heard, self._heard = self._heard, False
        if not heard and self.last_fact is not None:
            now = self._clock.monotonic()
            if now - self._looked_at > self._look_seconds:
                self._looked_at = now
                heard = self._newest_fact() != self.last_fact
        self.is_disturbed = heard
        if heard:
            self.forget_what_changes()

    def forget_what_changes(self) -> None:
        super().forget_what_changes()
        self._agendas.clear()
        self._agenda_of.clear()
        self.last_fact = None

    def wrote(self, fact: int | None, newest: int, *, alone: bool) -> None:
        """`newest`: of the journal before. Unless alone, somebody else's lower number may come to light later."""
        if newest != self.last_fact or not alone:
            self.last_fact = None
            self._nothing_due_before.clear()
        elif fact is not None:
            self.last_fact = fact

    def _newest_fact(self) -> int:
        newest: int = self._connection.execute(self._sql["view_version"]).fetchone()[0]
        return newest

    # What is due

    def queues(self, kind: Kind, after: int = ANY_TIME) -> Iterable[tuple[Queue, int]]:
        """Of the server: those in which lanes are due after this time, and when first."""
        if self.last_fact is None:
            self.last_fact = self._newest_fact()
            self._looked_at = self._clock.monotonic()
        self._served.add(kind)
        return self._connection.execute(self._sql["next_queue"], (kind, after))

    def take_to_hand(self, kind: Kind, lanes: Iterable[StoredLane], now: int) -> None:
        """They are all of this kind that are due by now."""
        for lane in lanes:
            lane.used_at = now
            self.lanes[lane.kind, lane.key] = lane
            self.keep_due(lane)
        self.learn_due(kind, min((due_at for _, due_at in self.queues(kind, now)), default=None))

    def is_contested(self, now: int) -> bool:
        """Somebody else is at work, and something may be due. (Ticks are few, and looked for seldom.)"""
        return self.is_disturbed and any(
            self.nothing_due_before(kind) <= now for kind in self._served if kind is not TICK
        )

    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        """Those at hand."""
        return [
            queue
            for (of, queue), agenda in self._agendas.items()
            if of is kind and (due_at := agenda.next_due()) is not None and due_at <= now
        ]

    def due_lanes(self, kind: Kind, queue: Queue, now: int, most: int) -> Sequence[StoredLane]:
        return self._agendas[kind, queue].first(most, now)

    def next_due_at_hand(self, kind: Kind) -> int | None:
        dues = (agenda.next_due() for (of, _), agenda in self._agendas.items() if of is kind)
        return min((due_at for due_at in dues if due_at is not None), default=None)

    def keep_due(self, lane: StoredLane) -> None:
        old, new = self._agenda_of.get(lane.id), None
        if lane.due_at is not None:
            new = self._agenda_of[lane.id] = self._agendas[lane.kind, lane.policy.queue]
            new.put(lane, lane.due_at)
        if old is not None and old is not new:
            old.drop(lane)
            if new is None:
                del self._agenda_of[lane.id]

    def sweep(self, now: int) -> None:
        super().sweep(now)
        for agenda in self._agendas.values():
            for lane in [lane for lane in agenda.lanes.values() if (lane.kind, lane.key) not in self.lanes]:
                agenda.drop(lane)
                del self._agenda_of[lane.id]
                super().keep_due(lane)
