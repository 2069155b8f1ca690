"""The backend on one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from turnlane.backends.reader import Reader
from turnlane.backends.sql.backend import SqlBackend
from turnlane.backends.sql.contents import SqlContents
from turnlane.backends.sql.views import SqlViews
from turnlane.backends.sqlite import file, schema
from turnlane.backends.sqlite.queries import SQL
from turnlane.backends.sqlite.store import SqliteStore
from turnlane.backends.sqlite.tables import SqliteTables
from turnlane.backends.unattended import unattended
from turnlane.backends.writer import Writer
from turnlane.clock import Clock
from turnlane.errors import BackendRefused, BackendUnavailable


class SqliteBackend(SqlBackend):
    """WAL, synced before anybody is told; one writing thread with group commit; any number of processes on the file."""

    def __init__(self, url: str, clock: Clock, idle_after_ms: int = 60_000) -> None:
        super().__init__(url, clock)
        self.location = file.Location(url)
        self._idle_after_ms = idle_after_ms

    async def open(self) -> None:
        if self._writer is not None:
            return
        await unattended(self.migrate)
        self._reader = self._open_reader()
        self._store = SqliteStore(self.location, self._clock, self._idle_after_ms)
        self._writer = Writer(self._store, self._report, lambda: self.limits, self.counted)
        self._writer.start()

    def _open_reader(self) -> Reader:
        connection = file.connect(self.location, reader=True)

        def read(view: Callable[[Any], Any]) -> Any:
            try:
                return view(SqlViews(connection, SQL))
            except sqlite3.Error as error:
                raise file.explain(error, self.location.path) from error

        return Reader(read, connection.close)

    def migrate(self) -> None:
        try:
            file.refuse_foreign(self.location.path)
            file.create_private(self.location.path)
            # Several processes may open a new file at once; making it a WAL file is not something to do together.
            lock = file.FileLock(self.location.path)
            try:
                with lock.taken(), closing(file.connect(self.location)) as connection:
                    schema.migrate(connection)
            finally:
                lock.close()
        except sqlite3.Error as error:
            raise file.explain(error, self.location.path) from error
        except OSError as error:
            advice = "check that its folder exists and may be written"
            kind = BackendUnavailable if error.errno in file.PASSING else BackendRefused
            raise kind(f"{self.location.path}: the file cannot be opened; {advice} ({error})") from error

    async def schema_version(self) -> int:
        """The version of the file as it is; 0 if there is no file yet."""
        return await asyncio.to_thread(self.version)

    def version(self) -> int:
        if not self.location.path.exists():
            return 0
        try:
            connection = sqlite3.connect(f"{self.location.path.resolve().as_uri()}?mode=ro", uri=True)
            try:
                return schema.version(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise file.explain(error, self.location.path) from error

    def contents(self) -> SqlContents:
        return SqlContents(SqliteTables(self.location))
