"""Lanes as they were after the last transaction, so that a busy conversation is not read again for each step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from turnlane.backends.sqlite.codec import StoredLane
from turnlane.model.lane import Kind

LANES_MAX = 10_000

Place = tuple[Kind, str]


class LaneCache:
    """Believed only while nobody else has written to the file, which is asked under the lock of each transaction."""

    def __init__(self, connection: sqlite3.Connection, idle_after_ms: int) -> None:
        self._connection = connection
        self._idle_after_ms = idle_after_ms
        self._version = -1
        self._lanes: dict[Place, StoredLane] = {}
        self._used: dict[Place, int] = {}
        self._sweep_at = 0

    def believed(self) -> dict[Place, StoredLane]:
        """Called inside the transaction. What another process may have changed is forgotten."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version
        return self._lanes

    def keep(self, lanes: Iterable[StoredLane], now: int) -> None:
        """Called after the commit, with the lanes that it touched."""
        for lane in lanes:
            place = (lane.kind, lane.key)
            self._lanes[place] = lane
            self._used[place] = now
        if now >= self._sweep_at or len(self._lanes) > LANES_MAX:
            self.sweep(now)

    def sweep(self, now: int) -> None:
        """An idle conversation costs nothing: what was not used for a while goes."""
        if len(self._lanes) > LANES_MAX:
            self.clear()
        old = [place for place, used in self._used.items() if used <= now - self._idle_after_ms]
        for place in old:
            del self._lanes[place], self._used[place]
        self._sweep_at = now + self._idle_after_ms // 4

    @property
    def is_empty(self) -> bool:
        return not self._lanes

    def clear(self) -> None:
        self._lanes.clear()
        self._used.clear()
