"""What a process believes of the file: all that it knows, until somebody else is found to have changed it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

import msgspec

from turnlane.backends.sql.believed import Believed, Place
from turnlane.backends.sql.codec import StoredLane, to_text
from turnlane.backends.sqlite.log import Log
from turnlane.backends.sqlite.queries import SQL

UNREAD = -1
"""As the file's version, the last row of its journal, or the number of silent changes."""

TRANSACTIONS_READ_MAX = 100
"""Of others, at a time. Whoever slept through more forgets everything, which is quicker."""

_ids = msgspec.json.Decoder(list[int]).decode


class BelievedOfFile(Believed):
    """Whether somebody else has written to the file is asked under the lock of each transaction.

    Each transaction tells which lanes it changed. So the others go on believing what they know of the rest.
    """

    def __init__(self, connection: sqlite3.Connection, log: Log, idle_after_ms: int) -> None:
        super().__init__(connection, SQL, idle_after_ms)
        self._log = log
        self._version = UNREAD
        self._read_to = UNREAD
        """The last transaction of the journal whose changes this process knows."""
        self._silent = UNREAD
        self.places: dict[int, Place] = {}
        """Of the lanes by their ids. A lane keeps its place, so that one too many does no harm."""

    def check(self) -> None:
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        self.is_alone = self._version in (version, UNREAD)
        if not self.is_alone:
            self._log.others_wrote()
        if version != self._version:
            self._forget_what_others_changed()
            self._version = version

    def clear(self) -> None:
        super().clear()
        self._read_to = self._silent = UNREAD

    def keep(self, lanes: Collection[StoredLane], now: int) -> None:
        super().keep(lanes, now)
        places = self.places
        for lane in lanes:
            if lane.id not in places:
                places[lane.id] = (lane.kind, lane.key)

    def sweep(self, now: int) -> None:
        super().sweep(now)
        self.places = {lane.id: place for place, lane in self.lanes.items()}

    # What each transaction tells the others

    def changed_for_others(self, lanes: Iterable[StoredLane]) -> str | None:
        return to_text([lane.id for lane in lanes]) if self._log.has_company else None

    def wrote(self, row: int | None) -> None:
        """This very transaction is that row of the journal, and whatever came before it is known."""
        self._read_to = UNREAD if row is None else row

    def wrote_silently(self, changes: int) -> None:
        self._silent = changes

    def _forget_what_others_changed(self) -> None:
        changed = self._changed_by_others()
        if changed is None:
            self.forget_what_changes()
            self.places.clear()
            return
        self.forget_all_but_lanes()
        for lane in changed:
            place = self.places.pop(lane, None)
            if place is not None:
                self.lanes.pop(place, None)

    def _changed_by_others(self) -> list[int] | None:
        """None: nobody can tell."""
        execute, read_to, silent = self._connection.execute, self._read_to, self._silent
        self._silent = execute(SQL["silent_changes"]).fetchone()[0]
        if UNREAD in (read_to, silent) or silent != self._silent:
            self._read_to = execute(SQL["last_journal"]).fetchone()[0]
            return None
        rows = execute(SQL["changed_lanes"], (read_to, TRANSACTIONS_READ_MAX)).fetchall()
        if len(rows) == TRANSACTIONS_READ_MAX or any(lanes is None for _, lanes in rows):
            self._read_to = execute(SQL["last_journal"]).fetchone()[0]
            return None
        if rows:
            self._read_to = rows[-1][0]
        return [lane for _, lanes in rows for lane in _ids(lanes)]
