"""A real HTTP server on loopback, as the other side of a channel or an agent: it does what a test says."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Trouble = Literal["refuses", "throttles", "breaks", "cuts", "hangs", "is away"]
"""What a platform may do instead of taking a message: refuse it for good (a 400); ask us to come back after
`RETRY_AFTER_SECONDS` (a 429); fail (a 500); take it and cut the connection before it answers; take it and never answer;
or not be there at all."""
RETRY_AFTER_SECONDS = 7


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __str__(self) -> str:
        """All of it, to look for something in it."""
        return f"{self.line}\n{self.headers}\n{self.body.decode(errors='replace')}"


Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Loopback:
    url: str
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def leave(self) -> None:
        """From now on nobody listens, and who was connected is so no more."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def loopback(behave: Behaviour) -> AsyncIterator[Loopback]:
    seen = Loopback("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        seen._writers.add(writer)
        try:
            while request := await _request(reader):
                seen.requests.append(request)
                seen.arrived.set()
                await behave(request, writer)
                if writer.is_closing():
                    return
        finally:
            seen._writers.discard(writer)
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    seen._server = server = await asyncio.start_server(connected, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/here"
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    line, *rest = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    return Request(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def answers(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return behave


async def accepts_then_cuts(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def never_answers(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def promises_more_than_it_sends(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"text"')
    await writer.drain()
    writer.close()


def nobody_listens() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/here"


_TROUBLES: dict[Trouble, Behaviour] = {
    "refuses": answers(400),
    "throttles": answers(429, retry_after=str(RETRY_AFTER_SECONDS)),
    "breaks": answers(500),
    "cuts": accepts_then_cuts,
    "hangs": never_answers,
}


class HttpPlatform:
    """A platform that is posted to, and takes every message until it meets trouble."""

    def __init__(self, taken: Behaviour, troubles: dict[Trouble, Behaviour]) -> None:
        self._taken = taken
        self._troubles = {**_TROUBLES, **troubles}
        self._behave = taken
        self.loopback = Loopback("")

    @property
    def url(self) -> str:
        return self.loopback.url

    @property
    def sendings(self) -> list[str]:
        """Every message that reached it, as the whole request."""
        return [str(request) for request in self.loopback.requests if not request.line.startswith("GET ")]

    async def meet(self, trouble: Trouble | None) -> None:
        """What becomes of messages from now on. None: they are taken again."""
        if trouble == "is away":
            self.loopback.leave()
        else:
            self._behave = self._taken if trouble is None else self._troubles[trouble]

    async def behave(self, request: Request, writer: asyncio.StreamWriter) -> None:
        await self._behave(request, writer)


@asynccontextmanager
async def http_platform(
    taken: Behaviour | None = None, troubles: dict[Trouble, Behaviour] | None = None
) -> AsyncIterator[HttpPlatform]:
    """`taken`: its answer when it takes a message, else an empty object; `troubles`: its own ways of having them."""
    platform = HttpPlatform(taken or answers(200, b"{}", content_type="application/json"), troubles or {})
    async with loopback(platform.behave) as platform.loopback:
        yield platform
