"""A cable between a client and its server on loopback, which can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

BYTES_AT_ONCE = 64 * 1024


@dataclass
class Cable:
    """Carries bytes both ways between whoever connects to it and the server."""

    server_port: int
    _ends: set[asyncio.StreamWriter] = field(default_factory=set)
    _whole: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: what is said is held back, in both directions, and nobody hears of it."""
    _carrying: set[asyncio.Task[None]] = field(default_factory=set)

    def cut(self) -> None:
        """Every connection ends at once, and what was on its way is lost. New ones may be made."""
        for end in self._ends:
            end.transport.abort()

    async def lose(self, seconds: float) -> None:
        """For a while nothing arrives, though no connection is closed; then all are cut."""
        self._whole.clear()
        await asyncio.sleep(seconds)  # waits: that is the fault
        self.cut()
        self._whole.set()

    def __post_init__(self) -> None:
        self._whole.set()

    async def close(self) -> None:
        """For good: returns when nothing is left of any connection."""
        self._whole.set()
        self.cut()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side or a cut ends it."""
        self._ends.add(writer)
        try:
            with suppress(OSError):
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
                self._ends.add(server_writer)
                try:
                    await _until_one_ends(self._pass(reader, server_writer), self._pass(server_reader, writer))
                finally:
                    self._end(server_writer)
        finally:
            self._end(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while said := await reader.read(BYTES_AT_ONCE):
                await self._whole.wait()
                writer.write(said)
                await writer.drain()

    def _end(self, end: asyncio.StreamWriter) -> None:
        self._ends.discard(end)
        end.close()


async def _until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def cable_to(url: str) -> AsyncIterator[tuple[Cable, str]]:
    """A cable to the server of this URL, and the URL of its other end."""
    parts = urlsplit(url)
    assert parts.port is not None
    cable = Cable(parts.port)
    listener = await asyncio.start_server(cable.take, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield cable, urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
    finally:
        listener.close()
        await cable.close()
