"""The engine as the workloads use it: one store, one worker, and `say` for one message per accept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from turnlane.backends.base import Backend, open_backend
from turnlane.clock import SystemClock
from turnlane.flow.receive import receive
from turnlane.flow.worker import Worker
from turnlane.model.message import Message
from turnlane.model.policy import OnBusy, Policy
from turnlane.testing.bench.witness import PATIENCE_SECONDS, Witness, check

CHANNEL = "bench"
AGENT = "null"
TEXT = "x" * 120
IDLE_AFTER_MS = 60_000
LOOK_SECONDS = 0.002
JOURNAL_PAGE = 10_000
SENDS_AT_ONCE_MIN = 20
"""The default of the settings; with more slots for turns there are as many for sends."""


def policy(on_busy: OnBusy = "collect", *, debounce_ms: int = 0, max_wait_ms: int = 0) -> Policy:
    return Policy(agent=AGENT, tenant=CHANNEL, on_busy=on_busy, debounce_ms=debounce_ms, max_wait_ms=max_wait_ms)


def conversations(count: int, *, prefix: str = "c") -> list[str]:
    return [f"{CHANNEL}/{prefix}{number:06d}" for number in range(count)]


def message(conversation: str, number: int) -> Message:
    return Message(CHANNEL, f"{conversation}-{number}", conversation, sender="somebody", text=TEXT)


@dataclass
class Engine:
    """An open backend, what watches it, and what was said to it."""

    backend: Backend
    policy: Policy
    witness: Witness
    said: dict[str, list[str]] = field(default_factory=dict)
    messages_said: int = 0

    async def say(self, conversation: str, number: int) -> None:
        """One message, one accept: returns when it is durable."""
        await self.say_all([message(conversation, number)])

    async def say_all(self, messages: Sequence[Message]) -> None:
        for each in messages:
            self.said.setdefault(each.conversation, []).append(each.origin_id)
        self.messages_said += len(messages)
        await receive(messages, backend=self.backend, policy_for=lambda _: self.policy)

    async def settled(self) -> None:
        if self.witness.listens:
            await self.witness.settled(self.messages_said)
        else:
            await self._looked_settled()

    async def _looked_settled(self) -> None:
        """Without a listener: looks now and then, and asks the store only when the last reply was sent."""
        record = self.witness.record
        async with asyncio.timeout(PATIENCE_SECONDS):
            # An event would have to be set by what is measured.
            while self.witness.messages_run < self.messages_said or len(record.sends) < len(record.runs):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
            while (await self.backend.counts()).deliveries_waiting:  # noqa: ASYNC110 - as above
                await asyncio.sleep(LOOK_SECONDS)

    async def read_journal(self) -> None:
        """For a witness that does not listen: what it needs to judge."""
        cursor = 0
        while page := await self.backend.events(after=cursor, limit=JOURNAL_PAGE):
            self.witness.read([stored.event for stored in page])
            cursor = page[-1].cursor

    def check(self) -> None:
        check([self.witness.record], self.said)

    @asynccontextmanager
    async def working(self, slots: int, *, term_ms: int = 30_000) -> AsyncIterator[None]:
        """A worker that has joined, with that many slots for turns; on leaving it is drained."""
        worker = Worker(
            backend=self.backend,
            agents={AGENT: self.witness},
            channels={CHANNEL: self.witness},
            clock=SystemClock(),
            turns_at_once=slots,
            sends_at_once=max(slots, SENDS_AT_ONCE_MIN),
            term_ms=term_ms,
        )
        task = asyncio.create_task(worker.run())
        try:
            await self._joined()
            yield
        finally:
            worker.stop()
            await task

    async def _joined(self) -> None:
        if self.witness.listens:
            await self.witness.joined(self.witness.workers_joined + 1)
            return
        while not any(worker.live for worker in await self.backend.workers()):  # noqa: ASYNC110 - nobody listens
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def engine(
    url: str,
    policy: Policy,
    *,
    hold_seconds: float = 0.0,
    idle_after_ms: int = IDLE_AFTER_MS,
    listens: bool = True,
) -> AsyncIterator[Engine]:
    backend = open_backend(url, idle_after_ms=idle_after_ms)
    await backend.open()
    witness = Witness(hold_seconds=hold_seconds, listens=listens)
    if listens:
        backend.subscribe(witness.listen)
    try:
        yield Engine(backend, policy, witness)
    finally:
        await backend.close()
