"""The rows of one open transaction on a server that others use at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnlane.backends.sql.codec import NOTHING, StoredLane
from turnlane.backends.sql.database import Connection, Row
from turnlane.backends.sql.rows import SqlRows
from turnlane.model.event import Noted
from turnlane.model.lane import OUT, TURN, Kind
from turnlane.model.policy import Queue

LANES_PER_BLOCK = 1000
SENDS = "sends"
UPDATES = {"settle_delivery": slice(0, 2), "continue_session": slice(6, 8)}
"""Where one row may be changed twice in a transaction, of which the last counts: the columns that name it."""


class Again(Exception):
    """What was decided rests on something that was learned too late: the same transaction once more will do."""


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


def _repeats(rows: Sequence[Row], key: slice) -> bool:
    return len({tuple(row[key]) for row in rows}) < len(rows)


class PostgresRows(SqlRows):
    """A lane is locked once it is read. Where a decision rests on more than lanes, whoever decides takes a lock."""

    def __init__(self, *args: Any, ids: LaneIds, notifies: tuple[str, str] | None) -> None:
        super().__init__(*args)
        self._ids = ids
        self._notifies = notifies
        """The channel, and who we are."""
        self._held: set[str] = set()
        self._knew_of_rates = self._policies.rated

    def _hold(self, name: str) -> None:
        if name not in self._held:
            self._execute(self._sql["lock"], (name,))
            self._held.add(name)

    def _new_id(self, kind: Kind, key: str) -> int:
        turn = self.lane(TURN, key) if kind is OUT else None
        return self._ids.take(self._connection, self._sql) if turn is None else turn.id + 1

    def _due_queues_in_file(self, kind: Kind, now: int) -> Sequence[Queue]:
        return [queue for queue, due_at in self._execute(self._sql["next_queue"], (kind,)) if due_at <= now]

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        """Limits hold for all machines: they count one after the other."""
        self._hold("claims")
        return super().running(kind)

    def holds(self) -> Mapping[str, int]:
        """An account with a rate is everybody's: they send one after the other."""
        if self._policies.rated:
            self._hold(SENDS)
        return super().holds()

    def _check_rates(self) -> None:
        """A lane may bring the first policy with a rate that this process meets, when it is too late for the lock."""
        if self._policies.rated and not self._knew_of_rates:
            raise Again

    def _twins(self, lane: StoredLane, agent: str, handle: str) -> list[StoredLane]:
        """Two who begin with one handle, or go on with it, must see each other."""
        self._hold(f"session/{agent}/{handle}")
        return super()._twins(lane, agent, handle)

    def flush(self, noted: Sequence[Noted]) -> None:
        self._check_rates()
        super().flush(noted)

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        """In one statement, where there is one for many. None of these may write one row twice."""
        many = self._sql.get(f"{name}_many")
        if many is None or len(rows) < 2 or (name in UPDATES and _repeats(rows, UPDATES[name])):
            super()._write(name, rows)
        else:
            self._execute(
                many, [[None if value is NOTHING else value for value in each] for each in zip(*rows, strict=True)]
            )

    def _write_journal(self, facts: str) -> None:
        if self._notifies is None:
            super()._write_journal(facts)
        else:
            self._execute(self._sql["insert_journal_and_notify"], (self.now, facts, *self._notifies))
