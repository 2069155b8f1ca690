"""The world around Turnlane, played on loopback with nothing of Turnlane's: the agent, the receiver, and who posts.

The HTTP here is the few lines that plain JSON needs, so that what is measured never shares a bug with what it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from turnlane.testing.processes import SECONDS_MAX

ASK_SECONDS_MAX = 30.0

NO_ANSWER = (OSError, TimeoutError, asyncio.IncompleteReadError)
"""What `ask` raises if nobody answered, or not to the end."""


# Asking


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    url: str,
    value: object = None,
    *,
    method: str | None = None,
    secret: str | None = None,
    within: float = ASK_SECONDS_MAX,
    **headers: str,
) -> Answer:
    """GET, or POST if there is a value (bytes are sent as they are), unless told. Raises one of NO_ANSWER."""
    body = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
    sent = {
        "host": urlsplit(url).netloc,
        "connection": "close",
        "content-length": str(len(body)),
        "content-type": "application/json",
        **({"authorization": f"Bearer {secret}"} if secret else {}),
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    async with asyncio.timeout(within):
        return await _exchange(url, method or ("GET" if value is None else "POST"), sent, body)


async def _exchange(url: str, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    reader, writer = await _connected_to(url)
    try:
        return await _asked(reader, writer, url, method, headers, body)
    finally:
        writer.close()


async def _connected_to(url: str) -> tuple[StreamReader, StreamWriter]:
    address = urlsplit(url)
    encrypted = address.scheme == "https"
    port = address.port or (443 if encrypted else 80)
    return await asyncio.open_connection(address.hostname, port, ssl=encrypted or None)


async def _asked(
    reader: StreamReader, writer: StreamWriter, url: str, method: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    address = urlsplit(url)
    path = (address.path or "/") + (f"?{address.query}" if address.query else "")
    writer.write(_head(f"{method} {path} HTTP/1.1", headers) + body)
    await writer.drain()
    line, answered = await _read_head(reader)
    return Answer(int(line.split()[1]), answered, await _read_body(reader, answered))


class Caller:
    """Posts to one URL, one request after the other, over one connection that is made anew if it was lost."""

    def __init__(self, url: str, *, secret: str | None = None) -> None:
        self._url = url
        self._headers = {"host": urlsplit(url).netloc, "content-type": "application/json"}
        if secret is not None:
            self._headers["authorization"] = f"Bearer {secret}"
        self._talk: tuple[StreamReader, StreamWriter] | None = None

    async def post(self, value: object, *, within: float = ASK_SECONDS_MAX) -> Answer:
        """Raises one of NO_ANSWER; nobody knows then what became of it."""
        body = json.dumps(value).encode()
        headers = {**self._headers, "content-length": str(len(body))}
        try:
            async with asyncio.timeout(within):
                if self._talk is None or self._talk[0].at_eof():
                    self.close()
                    self._talk = await _connected_to(self._url)
                answer = await _asked(*self._talk, self._url, "POST", headers, body)
        except NO_ANSWER:
            self.close()
            raise
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def close(self) -> None:
        if self._talk is not None:
            self._talk[1].close()
            self._talk = None


# Being asked


@dataclass(eq=False)
class Call:
    """One call of the agent."""

    turn: Mapping[str, Any]
    began: float
    ended: float | None = None
    """When the answer was ready, whether or not anybody still waited for it."""

    @property
    def conversation(self) -> str:
        return str(self.turn["conversation"])

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.turn["messages"]]

    def overlaps(self, other: Call) -> bool:
        return self.began < (other.ended or time.monotonic()) and other.began < (self.ended or time.monotonic())


@dataclass(frozen=True)
class Reply:
    """One request to the receiver. Two with the same key are one reply to a receiver that looks at it."""

    key: str
    conversation: str
    turn: int
    part: int
    text: str
    in_reply_to: tuple[str, ...]


class Fails(Exception):
    """Raised by an agent that answers with this status, and with nothing to say."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


Respond = Callable[[Call], Awaitable[str]]
Receive = Callable[[Reply], Awaitable[int]]


async def echo(call: Call) -> str:
    return " + ".join(call.texts)


async def take(reply: Reply) -> int:
    return 204


@dataclass
class Outside:
    """`POST /turns` is the agent, `POST /replies` the receiver. Both remember everything, in the order it began."""

    respond: Respond = echo
    receive: Receive = take
    calls: list[Call] = field(default_factory=list)
    requests: list[Reply] = field(default_factory=list)
    """Every request to the receiver, repeats included."""
    replies: list[Reply] = field(default_factory=list)
    """The first of each key that was taken."""
    traceparents: list[str] = field(default_factory=list)
    """What requests said of the trace that they belong to, in the order they came."""
    url: str = ""

    async def __aenter__(self) -> Outside:
        self._happened = asyncio.Event()
        self._taken: set[str] = set()
        self._talks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], within: float = SECONDS_MAX) -> None:
        """Return once it holds. It is looked at whenever a request begins or ends."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    await self._happened.wait()
        except TimeoutError:
            seen = f"{len(self.calls)} calls, {len(self.requests)} requests, replies {[r.text for r in self.replies]}"
            raise AssertionError(f"it did not come to this within {within:g} s; seen: {seen}") from None

    def _note(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while True:
                line, headers = await _read_head(reader)
                value = json.loads(await _read_body(reader, headers))
                status, answer = await self._answer(line.split()[1], headers, value)
                body = b"" if answer is None else json.dumps(answer).encode()
                writer.write(_head(f"HTTP/1.1 {status} OK", {"content-length": str(len(body))}) + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            # Whoever asked is gone: killed, or done with this connection.
            return
        finally:
            writer.close()

    async def _answer(self, path: str, headers: Mapping[str, str], value: Any) -> tuple[int, object]:
        if traceparent := headers.get("traceparent"):
            self.traceparents.append(traceparent)
        if path == "/turns":
            try:
                return 200, await self._respond(value["turn"])
            except Fails as failure:
                return failure.status, None
        return await self._receive(headers, value), None

    async def _respond(self, turn: Mapping[str, Any]) -> object:
        call = Call(turn, time.monotonic())
        self.calls.append(call)
        self._note()
        try:
            return {"text": await self.respond(call)}
        finally:
            call.ended = time.monotonic()
            self._note()

    async def _receive(self, headers: Mapping[str, str], value: Mapping[str, Any]) -> int:
        said = {name: value[name] for name in ("conversation", "turn", "part", "text")}
        reply = Reply(headers["idempotency-key"], **said, in_reply_to=tuple(value["in_reply_to"]))
        self.requests.append(reply)
        self._note()
        status = await self.receive(reply)
        if status < 300 and reply.key not in self._taken:
            self._taken.add(reply.key)
            self.replies.append(reply)
        self._note()
        return status


# HTTP


def _head(line: str, headers: Mapping[str, str]) -> bytes:
    return "\r\n".join([line, *(f"{name}: {text}" for name, text in headers.items()), "", ""]).encode("latin-1")


async def _read_head(reader: StreamReader) -> tuple[str, dict[str, str]]:
    line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
    return line, {name.lower(): text.strip() for name, _, text in (each.partition(":") for each in rest)}


async def _read_body(reader: StreamReader, headers: Mapping[str, str]) -> bytes:
    length = headers.get("content-length")
    return await (reader.read() if length is None else reader.readexactly(int(length)))
