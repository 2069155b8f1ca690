"""A small world around real workers: agents and a channel that wait to be told, and facts that can be awaited."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from turnlane.agents.base import Agent
from turnlane.agents.function import Function
from turnlane.backends.base import Backend
from turnlane.channels.base import Channel, Received
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable
from turnlane.flow.receive import receive
from turnlane.flow.remember import Memory
from turnlane.flow.spending import Spending
from turnlane.flow.trace import Tracer
from turnlane.flow.worker import Worker
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.event import Event
from turnlane.model.message import Message
from turnlane.model.policy import Backoff, Policy
from turnlane.model.turn import Reply, Turn
from turnlane.people.profiles import Profiles
from turnlane.testing.doubles import VirtualClock

PATIENCE_SECONDS = 20.0
"""How long a test waits for a signal before it says which one did not come."""

A_TERM_MS = 3_600_000
"""So long that no worker renews during a test, unless the test is about that."""

AT_ONCE = Policy(agent="agent", debounce_ms=0, max_wait_ms=0, backoff=Backoff(first_ms=1_000, most_ms=60_000))


class Signal:
    """Something that happens again and again, and can be awaited."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()

    def happened(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    async def until(self, true: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not true():
                    await self._happened.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}") from None


class Facts:
    """Every fact that the store told this process."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self._more = Signal()

    def __call__(self, events: Sequence[Event]) -> None:
        self.all += events
        self._more.happened()

    def of(self, name: str, conversation: str | None = None) -> list[Event]:
        return [each for each in self.all if each.name == name and conversation in (None, each.conversation)]

    def names(self) -> list[str]:
        return [event.name for event in self.all]

    async def seen(self, name: str, times: int = 1, conversation: str | None = None) -> Event:
        """Wait until it was told so often; the last of them."""
        await self._more.until(lambda: len(self.of(name, conversation)) >= times, f"{times} × {name}")
        return self.of(name, conversation)[-1]


class Thinker:
    """An agent that starts to think when it is asked, and answers when it is told to."""

    def __init__(self, *, told: bool = False) -> None:
        self.turns: list[Turn] = []
        self.cancelled: list[Turn] = []
        self.running: list[Turn] = []
        self.most_at_once = 0
        self._asked = Signal()
        self._told = asyncio.Event()
        if told:
            self._told.set()

    def go(self) -> None:
        """Answer what is being thought about, and from now on at once."""
        self._told.set()

    def hold(self) -> None:
        self._told = asyncio.Event()

    async def asked(self, times: int = 1) -> Turn:
        await self._asked.until(lambda: len(self.turns) >= times, f"the agent to be asked {times} ×")
        return self.turns[-1]

    async def was_cancelled(self) -> None:
        await self._asked.until(lambda: bool(self.cancelled), "the agent to be cancelled")

    async def respond(self, turn: Turn) -> Reply:
        self.turns.append(turn)
        self.running.append(turn)
        self.most_at_once = max(self.most_at_once, len(self.running))
        self._asked.happened()
        try:
            await self._think()
            return self.answer(turn)
        except asyncio.CancelledError:
            self.cancelled.append(turn)
            raise
        finally:
            self.running.remove(turn)
            self._asked.happened()

    async def _think(self) -> None:
        await self._told.wait()

    def answer(self, turn: Turn) -> Reply:
        return Reply(f"re: {turn.text}")

    async def close(self) -> None:
        """Nothing is held."""


class Stubborn(Thinker):
    """An agent that catches the cancellation, and ends in its own way."""

    def __init__(self, ends: Reply | Exception) -> None:
        super().__init__()
        self.ends = ends

    async def respond(self, turn: Turn) -> Reply:
        try:
            return await super().respond(turn)
        except asyncio.CancelledError:
            if isinstance(self.ends, Exception):
                raise self.ends from None
            return self.ends


class GoesOn(Thinker):
    """An agent that swallows so many cancellations, and thinks on."""

    def __init__(self, swallows: float = math.inf) -> None:
        super().__init__()
        self.stops = 0
        self._swallows = swallows

    async def was_stopped(self, times: int) -> None:
        await self._asked.until(lambda: self.stops >= times, f"the agent to be cancelled {times} ×")

    async def _think(self) -> None:
        while not self._told.is_set():
            try:
                await self._told.wait()
            except asyncio.CancelledError:
                self.stops += 1
                self._asked.happened()
                if self.stops > self._swallows:
                    raise


class Desk:
    """A channel inside the process: what is sent lies on it, and a test decides how each sending ends."""

    def __init__(self, name: str = "desk") -> None:
        self.name = name
        self.tried: list[Delivery] = []
        self.sent: list[Delivery] = []
        self.results: deque[SendResult | Exception] = deque()
        """How the next sendings end; when there are none left, well."""
        self._changed = Signal()
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def go(self) -> None:
        self._open.set()

    async def send(self, delivery: Delivery) -> SendResult:
        self.tried.append(delivery)
        self._changed.happened()
        await self._open.wait()
        result = self.results.popleft() if self.results else Sent(f"receipt-{len(self.sent) + 1}")
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Sent):
            self.sent.append(delivery)
            self._changed.happened()
        return result

    async def close(self) -> None:
        """Nothing is held."""

    async def has(self, count: int) -> list[str]:
        """Wait until so many lie here; their texts."""
        await self._changed.until(lambda: len(self.sent) >= count, f"{count} deliveries, not {self.texts()}")
        return self.texts()

    async def was_tried(self, count: int) -> None:
        await self._changed.until(lambda: len(self.tried) >= count, f"{count} sendings")

    def texts(self, conversation: str | None = None) -> list[str]:
        return [each.text for each in self.sent if conversation in (None, each.conversation)]


class Unreachable:
    """A backend that cannot be reached while `down`, or for some verbs only; else it is the one behind it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.down: set[str] = set()
        self.refused: list[str] = []
        self._refused = Signal()

    async def refuses(self, times: int) -> None:
        await self._refused.until(lambda: len(self.refused) >= times, f"{times} refused calls")

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._backend, name)
        if name in {"subscribe", "url"}:
            return verb

        async def called(*args: object, **options: object) -> object:
            if name in self.down:
                self.refused.append(name)
                self._refused.happened()
                raise BackendUnavailable("the store is away for a moment")
            return await verb(*args, **options)

        return called


class Watched(Unreachable):
    """Keeps a list of what it was asked, and knows which renewals are through."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.calls: list[str] = []
        self._renewed = 0
        self._called = Signal()

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        self._called.happened()
        return super().__getattr__(name)

    async def renew(self, *args: Any) -> bool:
        self.calls.append("renew")
        self._called.happened()
        number = self.calls.count("renew")
        renewed = await self._backend.renew(*args)
        self._renewed = number
        self._called.happened()
        return renewed

    async def was_called(self, name: str, times: int) -> None:
        await self._called.until(lambda: self.calls.count(name) >= times, f"{times} × {name}")

    async def renews(self) -> None:
        """Wait for a renewal that begins after this call, and for its end."""
        begun = self.calls.count("renew")
        await self._called.until(lambda: self._renewed > begun, "a renewal")


A_SHORT_TERM_MS = 90
"""For workers that renew during a test. Their beats are real, their clock is not: a slow machine kills nobody."""


BEATS_FOR_REAL = pytest.mark.parametrize("backend_url", ["memory", "sqlite"], indirect=True)
"""Not where a renewal on a busy machine takes longer than such a term: a worker would rightly start over."""


async def terms_pass(clock: VirtualClock, terms: int, *live: Watched) -> None:
    """Let time pass in steps of a beat; in between, all who live renew."""
    for _ in range(3 * terms):
        for each in live:
            await each.renews()
        clock.advance(A_SHORT_TERM_MS // 3)


class World:
    """One store, one channel named `desk`, and as many workers as a test starts."""

    def __init__(self, backend: Backend, clock: Clock, *, said: int = 0) -> None:
        self.backend = backend
        self.clock = clock
        self.desk = Desk()
        self.facts = Facts()
        self.tracer: Tracer | None = None
        self._said = said
        backend.subscribe(self.facts)

    async def say(self, who: str, *texts: str, policy: Policy = AT_ONCE) -> Received:
        return await receive(
            [self.message(who, text) for text in texts],
            backend=self.backend,
            policy_for=lambda _: policy,
            tracer=self.tracer,
        )

    def message(self, who: str, text: str, origin_id: str | None = None) -> Message:
        self._said += 1
        return Message("desk", origin_id or f"m-{self._said}", f"desk/{who}", who, text)

    async def settled(self, conversation: str | None = None) -> None:
        """Wait until nothing waits any more, neither to be answered nor to be sent."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._pending(conversation):
                await self.backend.changed(0.1)

    async def _pending(self, conversation: str | None) -> int:
        if conversation is None:
            counts = await self.backend.counts()
            return counts.messages_waiting + counts.deliveries_waiting
        story = await self.backend.story(conversation)
        return sum(lane.pending for lane in story.lanes) if story else 0

    def tell(self, event: Event) -> None:
        self.facts([event])

    def new_worker(
        self,
        agent: Agent | Callable[[Turn], Any] | None = None,
        *,
        backend: Backend | None = None,
        agents: Mapping[str, Agent] | None = None,
        channels: Sequence[Channel] | None = None,
        clock: Clock | None = None,
        term_ms: int = A_TERM_MS,
        turns_at_once: int = 5,
        sends_at_once: int = 5,
        drain_seconds: float = 30.0,
        spending: Spending | None = None,
        memory: Memory | None = None,
        people: Profiles | None = None,
    ) -> Worker:
        if agents is None:
            agents = {} if agent is None else {"agent": _agent(agent)}
        return Worker(
            backend=backend or self.backend,
            agents=agents,
            channels={channel.name: channel for channel in channels or [self.desk]},
            clock=clock or self.clock,
            emit=self.tell,
            turns_at_once=turns_at_once,
            sends_at_once=sends_at_once,
            term_ms=term_ms,
            drain_seconds=drain_seconds,
            spending=spending,
            memory=memory,
            people=people,
            tracer=self.tracer,
        )

    @asynccontextmanager
    async def working(self, *args: Any, **options: Any) -> AsyncIterator[Worker]:
        """A worker at work; on leaving, it gives everything back and ends."""
        worker = self.new_worker(*args, **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop_now()
            await ends(task)


def _agent(agent: Agent | Callable[[Turn], Any]) -> Agent:
    return Function(agent) if callable(agent) else agent


async def ends(task: Awaitable[None], within: float = PATIENCE_SECONDS) -> None:
    try:
        await asyncio.wait_for(task, within)
    except TimeoutError:
        raise AssertionError(f"it did not end within {within} s") from None


@asynccontextmanager
async def crashing(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that, on leaving, is gone without a word: as when its process is killed."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker._leave = _no_word  # type: ignore[method-assign] # a killed process says no goodbye
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _no_word() -> None:
    """Nothing is said."""
