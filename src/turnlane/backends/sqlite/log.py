"""When the file's log is made durable. While several processes write, it is synced after the lock is let go.

With `synchronous = FULL` SQLite syncs within each commit, so every process waits for the disk of all others. If there
are others, a commit is only written, the lock is let go, and who waits for the commit is told once the log was synced.
What another process builds on it comes later in the same log, so nothing can be durable before what it depends on.

A process that is alone leaves it to SQLite: one call, in which the event loop goes on. It also makes the log longer
before SQLite needs it, as a commit into bytes that a file has already is stored in two thirds of the time.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import suppress

from turnlane.backends.sqlite.file import WAL_PAGES_BEFORE_CHECKPOINT, Location
from turnlane.errors import BackendUnavailable

if sys.platform == "darwin":
    _sync = os.fsync
else:
    _sync = os.fdatasync

ALONE_TRANSACTIONS = 100
"""After so many without anybody else's in between, a process is alone."""

AHEAD_BYTES = 1 << 20
"""By which the log is made longer."""
FRAME_BYTES = 4096 + 24
LONG_ENOUGH_BYTES = WAL_PAGES_BEFORE_CHECKPOINT * FRAME_BYTES
"""About here SQLite begins the log anew, from the front."""


class Log:
    """Of the one connection that writes."""

    def __init__(self, connection: sqlite3.Connection, location: Location) -> None:
        self._connection = connection
        self._path = location.path
        [_, _, real_path] = connection.execute("PRAGMA database_list").fetchone()
        self._log_path = f"{real_path}-wal"
        self._is_wanted = location.synchronous == "full"
        self._by_hand = False
        self._is_behind = self._is_wanted
        """Something was written that may not be durable yet: no answer that may rest on it is told."""
        self._alone_for = ALONE_TRANSACTIONS
        self._file: int | None = None
        self._bytes = 0
        self._failure: OSError | None = None

    @property
    def has_company(self) -> bool:
        """Others wrote to the file not long ago."""
        return self._alone_for < ALONE_TRANSACTIONS

    def others_wrote(self) -> None:
        self._is_behind = self._is_wanted
        self._alone_for = 0

    def committed(self) -> None:
        """This process wrote something. With it, SQLite has synced all before it, unless that is done by hand."""
        self._is_behind = self._by_hand

    def sync(self) -> None:
        """Outside of the lock. After it, all that any process had committed survives a power failure."""
        if self._is_behind:
            self._sync_now()
            self._is_behind = False
        self._alone_for += 1
        self._sync_by_hand(self._is_wanted and self._alone_for <= ALONE_TRANSACTIONS)
        if self._is_wanted and not self._by_hand and self._bytes < LONG_ENOUGH_BYTES:
            with suppress(OSError):  # a full disk: SQLite will say so if it matters
                self._stay_ahead(self._opened())

    def _sync_now(self) -> None:
        try:
            file = self._opened()
        except OSError as error:
            advice = "look at how many files the process may open"
            raise BackendUnavailable(f"{self._path}: its log cannot be opened; {advice} ({error})") from error
        try:
            _sync(file)
        except OSError as error:
            self._failure = error
            self.check()

    def _opened(self) -> int:
        if self._file is None:
            # As long as the connection has the log open, nobody replaces it.
            self._file = os.open(self._log_path, os.O_RDWR | os.O_APPEND)
        return self._file

    def _stay_ahead(self, file: int) -> None:
        """Zeros are no frame, and are appended: whatever another process writes meanwhile is before or over them."""
        now = os.fstat(file).st_size
        if now > self._bytes:
            now += os.write(file, bytes(AHEAD_BYTES))
        self._bytes = now

    def _sync_by_hand(self, by_hand: bool) -> None:
        if by_hand is not self._by_hand:
            self._by_hand = by_hand
            # NORMAL still syncs what keeps the file whole. A script is compiled anew, which is when pragmas may work.
            self._connection.executescript(f"PRAGMA synchronous = {'NORMAL' if by_hand else 'FULL'}")

    def check(self) -> None:
        """A system that failed to sync forgets what it failed with: a later success would say nothing."""
        if self._failure is not None:
            advice = "check the disk, then start again; nothing is acknowledged before"
            raise BackendUnavailable(f"{self._path}: the disk failed to store its log; {advice} ({self._failure})")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
