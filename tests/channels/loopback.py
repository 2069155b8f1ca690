"""A real server on loopback that does with each request what the test says."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Loopback:
    url: str
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0


@asynccontextmanager
async def loopback(behave: Behaviour) -> AsyncIterator[Loopback]:
    seen = Loopback("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while request := await _request(reader):
                seen.requests.append(request)
                seen.arrived.set()
                await behave(request, writer)
                if writer.is_closing():
                    return
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
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
