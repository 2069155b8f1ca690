"""The file's log, made durable after the lock is let go: the next process writes while this one waits for the disk.

With `synchronous = FULL` SQLite syncs within each commit, so every process waits for the disk of all others. Here a
commit is only written, the lock is let go, and whoever waits for the commit is told once the log was synced. What
another process builds on it comes later in the same log, so nothing can be durable before what it depends on.
"""

from __future__ import annotations

import os
import sqlite3
import sys

from turnlane.backends.sqlite.file import Location
from turnlane.errors import BackendUnavailable

if sys.platform == "darwin":
    _sync = os.fsync
else:
    _sync = os.fdatasync


class Log:
    """Of the one connection that writes, which from now on syncs by itself only what keeps the file whole (NORMAL)."""

    def __init__(self, connection: sqlite3.Connection, location: Location) -> None:
        self._path = location.path
        self._by_hand = location.synchronous == "full"
        self._is_behind = True
        self._file: int | None = None
        self._failure: OSError | None = None
        if self._by_hand:
            connection.execute("PRAGMA synchronous = NORMAL")

    def note_written(self) -> None:
        """By this process or another one: an answer that rests on it may not be told before it is durable."""
        self._is_behind = True

    def sync(self) -> None:
        """After this, all that any process has committed so far survives a power failure."""
        if not (self._is_behind and self._by_hand):
            return
        try:
            if self._file is None:
                # As long as the connection has the log open, nobody replaces it.
                self._file = os.open(f"{self._path}-wal", os.O_RDONLY)
            _sync(self._file)
        except OSError as error:
            self._failure = error
            self.check()
        self._is_behind = False

    def check(self) -> None:
        """A system that failed to sync forgets what it failed with: a later success would say nothing."""
        if self._failure is not None:
            advice = "check the disk, then start again; nothing is acknowledged before"
            raise BackendUnavailable(f"{self._path}: the disk failed to store its log; {advice} ({self._failure})")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
