"""The rows of one open transaction on a file, which tells other processes what it changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from turnlane.backends.sql.codec import Policies, to_text
from turnlane.backends.sql.rows import SqlRows
from turnlane.backends.sqlite.believed import BelievedOfFile
from turnlane.backends.sqlite.queries import SQL
from turnlane.model.event import Noted


class SqliteRows(SqlRows):
    def __init__(self, connection: sqlite3.Connection, policies: Policies, believed: BelievedOfFile, now: int) -> None:
        super().__init__(connection, SQL, policies, believed, now)
        self._file = connection
        self._believed_of_file = believed

    def _write_journal(self, noted: Sequence[Noted]) -> None:
        believed, changed = self._believed_of_file, self.changed
        if noted:
            told = (self.now, to_text(noted), believed.changed_for_others(changed))
            believed.wrote(self._file.execute(SQL["insert_journal"], told).lastrowid)
        elif changed:
            believed.wrote_silently(self._file.execute(SQL["change_silently"]).fetchone()[0])
