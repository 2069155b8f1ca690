"""Where workloads are run: stores that are made for one measurement, and the raw limit of the same disk or server."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from turnlane import event_loop
from turnlane.testing.bench.engine import TEXT

if TYPE_CHECKING:
    from turnlane.backends.nats.link import Link
    from turnlane.backends.postgres.connection import BlockingConnection

T = TypeVar("T")

IN_FLIGHT = 256
"""Publishes to a stream that wait for their answers at the same time."""


class Raw(ABC):
    """One table, and how long each commit of one row took."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    @abstractmethod
    def insert(self, key: str, seq: int) -> None:
        """Durable when it returns."""

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            seq = len(self._seconds)
            before = time.perf_counter()
            self.insert(f"c{seq % 1000}", seq)
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


class Ground(ABC):
    kind: str
    """The scheme of its URLs: which targets hold here."""
    is_file: bool
    """Latencies are told above raw commits, which are most of them. A server's are told as they are."""

    @abstractmethod
    def store(self, name: str) -> str:
        """The URL of a store that is empty the first time, and gone at the end."""

    @abstractmethod
    @contextmanager
    def raw(self) -> Iterator[Raw]: ...

    def against_raw(self, seconds: float, measure: Callable[[], T]) -> tuple[T, float]:
        """What `measure` returns, and the raw commits per second around it."""
        with self.raw() as raw:
            raw.commit_for(seconds)
            measured = measure()
            raw.commit_for(seconds)
            return measured, raw.commits_per_second


class Files(Ground):
    """SQLite files in a folder."""

    kind = "sqlite"
    is_file = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def store(self, name: str) -> str:
        return url_of(self.file(name))

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        with closing(open_file(self.folder / "raw.db")) as connection:
            yield RawFile(connection)


class RawFile(Raw):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        connection.execute("CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, key TEXT, seq INT, text TEXT)")

    def insert(self, key: str, seq: int) -> None:
        self._connection.execute("INSERT INTO row (key, seq, text) VALUES (?, ?, ?)", (key, seq, TEXT))


class Remote(Ground):
    """Stores of their own on a server, each named by an option of its URL; `drop` ends them all."""

    is_file = False
    option: str

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self.prefix = prefix
        self._raws = 0

    def store(self, name: str) -> str:
        named = f"{self.option}={self.prefix}_{name.replace('-', '_')}"
        return f"{self._url}{'&' if '?' in self._url else '?'}{named}"

    @abstractmethod
    def drop(self) -> None:
        """All that it made."""


class Server(Remote):
    """Schemas of a Postgres database."""

    kind = "postgresql"
    option = "schema"

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        from turnlane.backends.postgres.connection import BlockingConnection, Target

        self._raws += 1
        target = Target(self.store(f"raw_{self._raws}"))
        with closing(BlockingConnection(target)) as connection, ThreadPoolExecutor(max_workers=1) as thread:
            connection.open()
            connection.command(f"CREATE SCHEMA {target.schema}")
            yield RawServer(connection, thread)

    def drop(self) -> None:
        event_loop.run(self._drop())

    async def _drop(self) -> None:
        from turnlane.backends.postgres.connection import Target

        connection = await Target(self._url).connect()
        try:
            mine = f"{self.prefix}\\_%"
            for (name,) in await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE $1", mine):
                await connection.execute(f'DROP SCHEMA "{name}" CASCADE')
        finally:
            await connection.close()


class RawServer(Raw):
    """By the same driver, over one connection; in a thread of its own, as whoever measures may run an event loop."""

    def __init__(self, connection: BlockingConnection, thread: ThreadPoolExecutor) -> None:
        super().__init__()
        self._connection = connection
        self._thread = thread
        connection.command("CREATE TABLE said (id bigserial PRIMARY KEY, key text, seq int, text text)")

    def commit(self, times: int = 1) -> None:
        self._thread.submit(super().commit, times).result()

    def insert(self, key: str, seq: int) -> None:
        self._connection.execute("INSERT INTO said (key, seq, text) VALUES ($1, $2, $3)", (key, seq, TEXT))


class Stream(Remote):
    """Streams of NATS servers."""

    kind = "nats"
    option = "stream"

    @contextmanager
    def raw(self) -> Iterator[Raw]:
        from turnlane.backends.nats.link import Link
        from turnlane.backends.nats.target import Target

        self._raws += 1
        target = Target(self.store(f"raw{self._raws}"))
        link = Link(target, lambda _: None, lambda: None)
        link.connect()
        try:
            config = {"name": target.stream, "subjects": [f"{target.stream}.>"], "num_replicas": target.replicas}
            link.api(f"STREAM.CREATE.{target.stream}", config)
            yield RawStream(link, target.stream)
        finally:
            link.close()

    def drop(self) -> None:
        from turnlane.backends.nats.link import Link
        from turnlane.backends.nats.target import Target

        link = Link(Target(self._url), lambda _: None, lambda: None)
        link.connect()
        try:
            for name in link.api("STREAM.NAMES", {}).get("streams") or ():
                if name.startswith(self.prefix):
                    link.api(f"STREAM.DELETE.{name}")
        finally:
            link.close()


class RawStream(Raw):
    """Publishes that are acknowledged, many of them in flight."""

    def __init__(self, link: Link, stream: str) -> None:
        super().__init__()
        self._link = link
        self._stream = stream
        self._published = 0

    def insert(self, key: str, seq: int) -> None:
        self._link.wait_for(self._publish(key))

    def commit_for(self, seconds: float) -> None:
        before = time.perf_counter()
        published = self._link.wait_for(self._publish_for(seconds))
        took = time.perf_counter() - before
        self._seconds += [took / published] * published

    async def _publish_for(self, seconds: float) -> int:
        until = time.perf_counter() + seconds

        async def one() -> int:
            done = 0
            while time.perf_counter() < until:
                await self._publish(f"c{done % 1000}")
                done += 1
            return done

        return sum(await asyncio.gather(*(one() for _ in range(IN_FLIGHT))))

    async def _publish(self, key: str) -> None:
        await self._link.client.request(f"{self._stream}.{key}", TEXT.encode(), timeout=10)


def url_of(file: Path) -> str:
    return f"sqlite:///{quote(str(file))}"


def open_file(file: Path) -> sqlite3.Connection:
    """Opened as the engine opens its own."""
    connection = sqlite3.connect(file, isolation_level=None, cached_statements=256)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "cache_size = -65536"):
        connection.execute(f"PRAGMA {setting}")
    return connection
