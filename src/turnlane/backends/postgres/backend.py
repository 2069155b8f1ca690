"""The backend on a Postgres database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import asyncpg

from turnlane.backends.postgres import schema
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.queries import SQL
from turnlane.backends.postgres.store import PostgresStore, explain
from turnlane.backends.postgres.tables import PostgresTables
from turnlane.backends.reader import Reader
from turnlane.backends.sql.backend import SqlBackend
from turnlane.backends.sql.contents import SqlContents
from turnlane.backends.sql.views import SqlViews
from turnlane.backends.unattended import unattended
from turnlane.backends.writer import Writer
from turnlane.clock import Clock

T = TypeVar("T")

LISTEN_AGAIN_SECONDS = 1.0


class PostgresBackend(SqlBackend):
    """One transaction for each group of calls, lanes locked while it lasts, and a hint to the others at its end."""

    def __init__(self, url: str, clock: Clock, idle_after_ms: int = 60_000) -> None:
        super().__init__(url, clock)
        self.target = Target(url)
        self._idle_after_ms = idle_after_ms
        self._me = clock.token()
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._writer is not None:
            return
        await unattended(self.migrate)
        notifies = (self._channel, self._me) if self.target.notify else None
        self._reader = self._open_reader()
        self._store = PostgresStore(self.target, self._clock, self._idle_after_ms, notifies)
        self._writer = Writer(self._store, self._report, lambda: self.limits, self.counted)
        self._store.more_follow = self._writer.more_follow
        self._writer.start()
        if notifies is not None:
            listens = asyncio.Event()
            self._listening = asyncio.create_task(self._listen(listens))
            await listens.wait()

    async def close(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        await super().close()

    def _once(self, work: Callable[[BlockingConnection], T]) -> T:
        """On a connection of its own."""
        # Nobody may wait for it to end: then it must not hold what only its thread can clean up, as uvloop does.
        connection = BlockingConnection(self.target, loop=asyncio.new_event_loop)
        try:
            connection.open()
            return work(connection)
        except (*PostgresStore.trouble, asyncpg.PostgresError) as error:
            raise explain(error, self.target) from error
        finally:
            connection.close()

    async def schema_version(self) -> int:
        """The version of the tables as they are; 0 if there are none yet."""
        return await asyncio.to_thread(self.version)

    def version(self) -> int:
        return self._once(schema.version)

    def migrate(self) -> None:
        self._once(lambda connection: schema.migrate(connection, self.target.schema))

    def contents(self) -> SqlContents:
        return SqlContents(PostgresTables(self.target))

    def _open_reader(self) -> Reader:
        connection = BlockingConnection(self.target)

        def read(view: Callable[[Any], Any]) -> Any:
            try:
                connection.open()
                return view(SqlViews(connection, SQL))
            except (*PostgresStore.trouble, asyncpg.PostgresError) as error:
                raise explain(error, self.target) from error

        return Reader(read, connection.close)

    async def server_settings(self) -> Mapping[str, str]:
        """What `doctor` judges: whether what is acknowledged is also safe."""

        def read(connection: BlockingConnection) -> Mapping[str, str]:
            names = ("server_version", "fsync", "full_page_writes", "synchronous_commit")
            return {"server": "Postgres", **{name: connection.execute(f"SHOW {name}").fetchone()[0] for name in names}}

        return await asyncio.to_thread(self._once, read)

    # Hints

    @property
    def _channel(self) -> str:
        return f"turnlane_{self.target.schema}" if self.target.schema else "turnlane"

    async def _listen(self, listens: asyncio.Event) -> None:
        """A hint that is lost costs only latency: the timer looks, too."""
        while True:
            try:
                await self._hear_all(listens)
            except (*PostgresStore.trouble, asyncpg.PostgresError, asyncpg.InterfaceError):
                listens.set()  # whoever opens the store need not wait for this
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    async def _hear_all(self, listens: asyncio.Event) -> None:
        """Until the connection ends."""
        connection = await self.target.connect()
        ended = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(self._channel, self._hear)
            listens.set()
            await ended.wait()
        finally:
            connection.terminate()

    def _hear(self, _: object, __: int, ___: str, who: object) -> None:
        if who != self._me:
            self._tell_of_a_change()
            if self._writer is not None:
                self._store.hear()
                self._writer.poke()
