"""W1 over HTTP: the web hook channel and its `reply_url` on loopback, the server in a process of its own."""

from __future__ import annotations

import asyncio
import cProfile
import json
import multiprocessing
import pstats
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection

from turnlane import event_loop
from turnlane.app import Bot, tune_collector
from turnlane.backends.base import open_backend
from turnlane.channels.webhook import Webhook
from turnlane.http.listen import bind
from turnlane.settings import Duration, Lanes, Settings
from turnlane.testing.bench.burst import one_burst
from turnlane.testing.bench.engine import AGENT, CHANNEL, TEXT
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale
from turnlane.testing.bench.witness import Record, Witness, WrongResult, check_sends

LOOPBACK = "127.0.0.1"
SECONDS_MAX = 180.0
NOW = Duration.parse("0s")

CATEGORIES = {
    "uvicorn": ("uvicorn",),
    "starlette": ("starlette",),
    "h11": ("h11",),
    "httpx": ("httpx2", "httpcore2", "anyio"),
    "turnlane": ("turnlane",),
    "asyncio": ("asyncio", "_asyncio", "select.epoll", "_contextvars", "_socket", "selectors"),
}
"""Where the event loop's thread spends its time, by parts of the path or of the name of a built-in."""
IDLE = ("select.epoll",)


def over_http(scale: Scale, ground: Ground) -> Iterator[Sample]:
    engine = one_burst(ground.store("engine"), "collect", scale.slots_many, scale).rate
    served = event_loop.run(_burst(scale, ground.store("http"), profiled=False))
    few = replace(scale, conversations=max(1, scale.conversations // 5))
    profile = event_loop.run(_burst(few, ground.store("profile"), profiled=True)).profile
    detail = {"messages_per_second": served.rate, "messages_per_second_engine": engine}
    detail |= {f"loop_share_{name}": share for name, share in profile.items()}
    detail |= {"server_cpu_us_per_message": served.cpu_us, "of_it_in_the_writer": served.writer_share}
    yield Sample("http", served.rate / engine, detail)


@dataclass(frozen=True, slots=True)
class Served:
    """What the server says of itself in the end."""

    cpu_seconds: float
    loop_cpu_seconds: float
    waiting: int
    profile: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HttpBurst:
    messages: int
    seconds: float
    served: Served

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def profile(self) -> Mapping[str, float]:
        return self.served.profile

    @property
    def cpu_us(self) -> float:
        return self.served.cpu_seconds / self.messages * 1e6

    @property
    def writer_share(self) -> float:
        return 1 - self.served.loop_cpu_seconds / self.served.cpu_seconds


# The driver


async def _burst(scale: Scale, url: str, *, profiled: bool) -> HttpBurst:
    replies = Replies(scale.conversations * scale.messages)
    async with replies.listening() as reply_port, _server(url, reply_port, scale.slots_many, profiled) as server:
        keys = [f"c{number:06d}" for number in range(scale.conversations)]
        before = time.perf_counter()
        async with asyncio.timeout(SECONDS_MAX):
            callers = (_caller(server.port, keys[first :: scale.callers], scale) for first in range(scale.callers))
            await asyncio.gather(*callers)
            await replies.complete.wait()
        seconds = replies.last_at - before
        served = await server.stop()
    said = {key: [f"{key}-{number}" for number in range(scale.messages)] for key in keys}
    check_sends([Record(sends=replies.sends)], said)
    if served.waiting:
        raise WrongResult(f"{served.waiting} messages or deliveries still wait after the last reply arrived")
    return HttpBurst(scale.conversations * scale.messages, seconds, served)


async def _caller(port: int, keys: list[str], scale: Scale) -> None:
    """One connection, one message a request, each sent when the one before is answered."""
    if not keys:
        return
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        for number in range(scale.messages):
            for key in keys:
                said = {"id": f"{key}-{number}", "conversation": key, "sender": "somebody", "text": TEXT}
                writer.write(_request(f"/channels/{CHANNEL}", json.dumps(said).encode()))
                head, body = await _read(reader)
                if not head.startswith(b"HTTP/1.1 202 "):
                    raise WrongResult(f"the server answered {head[:40]!r} {body[:200]!r}")
    finally:
        writer.close()
        await writer.wait_closed()


def _request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: {LOOPBACK}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One request or answer: its head and its body. As little of HTTP as the two ends here need."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, _, rest = head.lower().partition(b"content-length:")
    return head, await reader.readexactly(int(rest.partition(b"\r\n")[0] or b"0"))


@dataclass
class Replies:
    """Takes the replies in and answers 200 to each."""

    expected: int
    sends: list[tuple[str, int, str]] = field(default_factory=list)
    last_at: float = 0.0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, body = await _read(reader)
                self._take(json.loads(body))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except asyncio.IncompleteReadError:
            writer.close()

    def _take(self, reply: Mapping[str, object]) -> None:
        text = str(reply["text"])
        self.sends.append((str(reply["conversation"]), int(str(reply["turn"])), text))
        self.expected -= text.count("+") + 1
        self.last_at = time.perf_counter()
        if self.expected <= 0:
            self.complete.set()


# The server, in its own process


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    pipe: Connection

    async def stop(self) -> Served:
        self.pipe.send("stop")
        served = await asyncio.to_thread(_receive, self.pipe)
        assert isinstance(served, Served)
        return served


def _receive(pipe: Connection) -> object:
    if not pipe.poll(SECONDS_MAX):
        raise WrongResult("the server does not answer any more")
    return pipe.recv()


@asynccontextmanager
async def _server(url: str, reply_port: int, slots: int, profiled: bool) -> AsyncIterator[Server]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_process, args=(url, reply_port, slots, profiled, theirs), daemon=True)
    process.start()
    try:
        port = await asyncio.to_thread(_receive, ours)
        assert isinstance(port, int)
        yield Server(port, ours)
    finally:
        process.kill()
        process.join()
        ours.close()
        theirs.close()


def _process(url: str, reply_port: int, slots: int, profiled: bool, pipe: Connection) -> None:
    tune_collector()
    profile = cProfile.Profile()
    if profiled:
        profile.enable()
    cpu, loop_cpu, waiting = event_loop.run(_serve(url, reply_port, slots, pipe))
    profile.disable()
    pipe.send(Served(cpu, loop_cpu, waiting, _shares(profile) if profiled else {}))


async def _serve(url: str, reply_port: int, slots: int, pipe: Connection) -> tuple[float, float, int]:
    settings = Settings(
        backend=url,
        turns_at_once=slots,
        sends_at_once=slots,
        lanes=Lanes(debounce=NOW, max_wait=NOW),
    )
    channel = Webhook(CHANNEL, reply_url=f"http://{LOOPBACK}:{reply_port}/replies")
    bot = Bot(channel, agents={AGENT: Witness()}, settings=settings)
    listening = bind(f"{LOOPBACK}:0")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    async with bot.running(sockets=[listening]):
        cpu, loop_cpu = time.process_time(), time.thread_time()
        pipe.send(listening.getsockname()[1])
        await stop.wait()
        cpu, loop_cpu = time.process_time() - cpu, time.thread_time() - loop_cpu
    asyncio.get_running_loop().remove_reader(pipe.fileno())
    return cpu, loop_cpu, await _waiting(settings.backend)


async def _waiting(url: str) -> int:
    """Asked after the drain: the last reply is here before it is settled there."""
    backend = open_backend(url)
    await backend.open()
    try:
        counts = await backend.counts()
    finally:
        await backend.close()
    return counts.messages_waiting + counts.deliveries_waiting


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    """Of the time that the loop's thread was busy."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for (path, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if not any(idle in name for idle in IDLE):
            seconds[_category(path, name)] += own
    total = sum(seconds.values())
    return {name: own / total for name, own in sorted(seconds.items(), key=lambda item: -item[1])}


def _category(path: str, name: str) -> str:
    for category, marks in CATEGORIES.items():
        if any(f"/{mark}/" in path or (path == "~" and mark in name) for mark in marks):
            return category
    return "other"
