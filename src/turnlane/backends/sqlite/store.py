"""The file as the writing thread uses it: one connection, one lock between processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from turnlane.backends.sql.codec import Policies
from turnlane.backends.sql.rows import queues_in_file
from turnlane.backends.sqlite import file
from turnlane.backends.sqlite.believed import BelievedOfFile
from turnlane.backends.sqlite.log import Log
from turnlane.backends.sqlite.queries import SQL
from turnlane.backends.sqlite.rows import SqliteRows
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable
from turnlane.model.lane import Kind
from turnlane.model.policy import Queue


class SqliteStore:
    overlaps = False
    poll_seconds = 0.02
    trouble: tuple[type[Exception], ...] = (sqlite3.OperationalError,)
    conflict: tuple[type[Exception], ...] = ()

    def __init__(self, location: file.Location, clock: Clock, idle_after_ms: int) -> None:
        self._location = location
        self._clock = clock
        self._lock = file.FileLock(location.path)
        self.connection = file.connect(location)
        self._policies = Policies(self.connection, SQL)
        self._log = Log(self.connection, location)
        self.believed = BelievedOfFile(self.connection, self._log, idle_after_ms)

    def now(self) -> int:
        return self._clock.now()

    @contextmanager
    def transaction(self, before_waiting: Callable[[], None]) -> Iterator[SqliteRows]:
        self._log.check()
        self._lock.take(before_waiting)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self.believed.check()
            written = self.connection.total_changes
            yield SqliteRows(self.connection, self._policies, self.believed, self.now())
            self.connection.execute("COMMIT")
        except BaseException:  # nothing of it may stay, whatever happened; it is raised again
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._policies.forget_numbers()
            self.believed.clear()
            raise
        finally:
            self._lock.let_go()
        if self.connection.total_changes != written:
            self._log.committed()
        try:
            self._log.sync()
        except BackendUnavailable:  # it stays, though nobody is told: what was believed before is not so any more
            self.believed.clear()
            raise

    def confirm(self) -> None:
        """It is durable at the end."""

    def rest(self) -> None:
        """Nothing is put off."""

    def next_due(self, kinds: Iterable[Kind]) -> int | None:
        """The file is asked only for what is not known."""

        def queues(kind: Kind) -> Iterable[tuple[Queue, int]]:
            return queues_in_file(self.connection, SQL, kind, self.believed.only_queue(kind, self._policies))

        return self.believed.next_due(kinds, self.now(), queues)

    def explain(self, error: Exception) -> Exception:
        return file.explain(error, self._location.path) if isinstance(error, sqlite3.Error) else error

    def close(self) -> None:
        self.connection.close()
        self._log.close()
        self._lock.close()
