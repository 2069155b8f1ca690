"""The limit that the engine is held against: single-row durable inserts, by the same driver in the same folder."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from turnlane.testing.bench.engine import TEXT

T = TypeVar("T")


class Raw:
    """A file with one table, and how long each commit of one row took."""

    def __init__(self, folder: Path) -> None:
        self._connection = open_file(folder / "raw.db")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, key TEXT, seq INT, text TEXT)"
        )
        self._seconds: list[float] = []

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            seq = len(self._seconds)
            before = time.perf_counter()
            self._connection.execute("INSERT INTO row (key, seq, text) VALUES (?, ?, ?)", (f"c{seq % 1000}", seq, TEXT))
            self._seconds.append(time.perf_counter() - before)

    def commit_for(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        self.commit()
        while time.perf_counter() < until:
            self.commit()

    @property
    def commits_per_second(self) -> float:
        return len(self._seconds) / sum(self._seconds)

    @property
    def commit_ms(self) -> float:
        """The median of one."""
        return statistics.median(self._seconds) * 1000


def open_file(file: Path) -> sqlite3.Connection:
    """Opened as the engine opens its own."""
    connection = sqlite3.connect(file, isolation_level=None, cached_statements=256)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "cache_size = -65536"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def against_raw(folder: Path, seconds: float, measure: Callable[[], T]) -> tuple[T, float]:
    """What `measure` returns, and the raw commits per second around it."""
    with Raw(folder) as raw:
        raw.commit_for(seconds)
        measured = measure()
        raw.commit_for(seconds)
        return measured, raw.commits_per_second
