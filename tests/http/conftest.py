"""A bot that is small enough to see through, served in the process or by a real server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from turnlane.backends.base import Arrival
from turnlane.backends.memory import MemoryBackend
from turnlane.channels.base import Channel, Heard, Received
from turnlane.channels.web import Web
from turnlane.channels.webhook import Webhook
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendUnavailable, NotFound
from turnlane.flow.hear import hear
from turnlane.flow.trace import Tracer
from turnlane.http.listen import bind
from turnlane.http.server import create_app, serve
from turnlane.live_settings import LiveSettings
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Outcome, Replied, Reply
from turnlane.observe.alerts import Watch
from turnlane.observe.metrics import Metrics
from turnlane.people.profiles import Profiles
from turnlane.settings import load

TOKEN = "visitor-token-0123456789"
WORKER = "worker-1"


class SmallBot:
    """What http needs of the application, over the memory backend."""

    def __init__(self, *, operator_token: str | None = None, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.backend = MemoryBackend("memory://", self.clock)
        self.channels: dict[str, Channel] = {
            "site": Webhook("site", secret="site-secret"),
            "open": Webhook("open"),
            "web": Web("web"),
        }
        self.operator_token = operator_token
        self.viewer_token: str | None = None
        self.proxies = 0
        self.paths = {"/hooks/site": "site"}
        self.update_user_secret: str | None = None
        self.people = Profiles(backend=self.backend, clock=self.clock, channels=self.channels)
        self.live = LiveSettings(self.backend, load(None, {}))
        self.alerts = Watch()
        self.metrics = Metrics(self.channels)
        self.tracer: Tracer | None = None
        self.events: list[Event] = []
        self.down = False
        self.backend.subscribe(self.metrics)

    def policy_for(self, channel: str) -> Policy:
        if channel not in self.channels:
            raise NotFound(f"no channel is named {channel!r}")
        return Policy(debounce_ms=0)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.metrics([event])

    async def receive(self, messages: Sequence[Message]) -> Received:
        if self.down:
            raise BackendUnavailable("the disk of /secret/place is full")
        policy = Policy(debounce_ms=0)
        answers = await self.backend.accept([Arrival(message, policy) for message in messages])
        accepted = sum(answer.verdict == "accepted" for answer in answers)
        return Received(accepted=accepted, duplicates=len(answers) - accepted)

    async def hear(self, channel: str, heard: Heard) -> Received:
        return await hear(channel, heard, backend=self.backend, receive=self.receive, emit=self.emit, clock=self.clock)

    async def say(self, conversation: str, text: str, origin_id: str = "m-1") -> None:
        channel = conversation.partition("/")[0]
        await self.receive([Message(channel, origin_id, conversation, "somebody", text)])

    async def answer_one(self, text: str) -> None:
        """Run one turn and leave its reply in the outbox."""
        await self.end_one(Replied(Reply(text)))

    async def end_one(self, outcome: Outcome) -> None:
        (lease,) = await self.backend.claim(WORKER, Kind.TURN)
        await self.backend.commit(lease, outcome)

    async def send_one(self) -> None:
        (lease,) = await self.backend.claim(WORKER, Kind.OUT)
        await self.backend.commit(lease, Delivered())

    async def is_empty(self) -> bool:
        return await self.backend.lanes() == []


@asynccontextmanager
async def small_bot() -> AsyncIterator[SmallBot]:
    small = SmallBot()
    await small.backend.open()
    await small.backend.join(WORKER, 600_000)
    yield small
    for channel in small.channels.values():
        await channel.close()
    await small.backend.close()


@pytest.fixture
async def bot() -> AsyncIterator[SmallBot]:
    async with small_bot() as small:
        yield small


@asynccontextmanager
async def in_process(bot: SmallBot, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(bot, **{"listen_host": "127.0.0.1", "metrics": bot.metrics, **options})
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8484") as client:
        yield client


@pytest.fixture
async def client(bot: SmallBot) -> AsyncIterator[httpx2.AsyncClient]:
    async with in_process(bot) as client:
        yield client


class Running:
    """A real server on a free port of loopback."""

    def __init__(self, port: int, stop: asyncio.Event, served: asyncio.Task[None]) -> None:
        self.port = port
        self.stop = stop
        self.served = served

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=20)

    async def raw(self, request: bytes) -> bytes:
        """Everything that comes back for these bytes until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            await writer.drain()
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def served(bot: SmallBot, port: int = 0) -> AsyncIterator[Running]:
    listening = bind(f"127.0.0.1:{port}")
    stop, ready = asyncio.Event(), asyncio.Event()
    app = create_app(bot, listen_host="127.0.0.1", metrics=bot.metrics)
    serving = asyncio.create_task(serve(app, [listening], stop=stop, ready=ready.set))
    await ready.wait()
    try:
        yield Running(listening.getsockname()[1], stop, serving)
    finally:
        stop.set()
        await serving


@pytest.fixture
async def running(bot: SmallBot) -> AsyncIterator[Running]:
    async with served(bot) as server:
        yield server


async def eventually(true: Callable[[], Awaitable[bool] | bool], seconds: float = 5.0) -> None:
    """Wait until it is true, looking again often."""
    async with asyncio.timeout(seconds):
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.005)
