"""The rows of one open transaction on a file, which tells other processes what it changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from turnlane.backends.sql.codec import Policies, StoredLane, to_text
from turnlane.backends.sql.rows import SqlRows
from turnlane.backends.sqlite.believed import BelievedOfFile
from turnlane.backends.sqlite.queries import SQL
from turnlane.model.event import Noted
from turnlane.model.lane import Kind
from turnlane.model.policy import Queue


class SqliteRows(SqlRows):
    def __init__(self, connection: sqlite3.Connection, policies: Policies, believed: BelievedOfFile, now: int) -> None:
        super().__init__(connection, SQL, policies, believed, now)
        self._file = connection
        self._believed_of_file = believed

    def _due_page(
        self, kind: Kind, queue: Queue, now: int, after: tuple[int, int], limit: int
    ) -> tuple[Sequence[StoredLane], tuple[int, int] | None]:
        """The index says which. Nearly always they are all known; else they are read."""
        rows = self._execute(SQL["due_lanes"], (int(kind), queue, now, *after, limit)).fetchall()
        ids = [id_ for id_, _ in rows]
        lanes = self._known(ids)
        if len(lanes) < len(ids):
            lanes = self._resolve(self._execute(SQL["lanes_by_id"], (to_text(ids),)))
        return lanes, (rows[-1][1], rows[-1][0]) if len(rows) == limit else None

    def _known(self, ids: Sequence[int]) -> Sequence[StoredLane]:
        """Those that this transaction or this process knows."""
        places, here, believed = self._believed_of_file.places, self._lanes, self._believed.lanes
        lanes = []
        for id_ in ids:
            place = places.get(id_)
            if place is not None and (lane := here.get(place) or believed.get(place)) is not None:
                here[place] = lane
                lanes.append(lane)
        return lanes

    def _write_journal(self, noted: Sequence[Noted]) -> None:
        believed, changed = self._believed_of_file, self.changed
        if noted:
            told = (self.now, to_text(noted), believed.changed_for_others(changed))
            believed.wrote(self._file.execute(SQL["insert_journal"], told).lastrowid)
        elif changed:
            believed.wrote_silently(self._file.execute(SQL["change_silently"]).fetchone()[0])
