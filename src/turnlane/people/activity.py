"""What people did, told to the outside: late, and put together. The ledger in the store is exact meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from turnlane.backends.base import Verdict
from turnlane.clock import Clock
from turnlane.model.event import Event
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.turn import Outcome, Replied
from turnlane.model.usage import Usage
from turnlane.model.value import value

QUIET_MS = 120_000
AT_ONCE_TOKENS = 1_000
LOOK_SECONDS = 1.0
GATHERED_MAX = 10_000
"""So many people's; past that the first is told at once."""
FLUSH_SECONDS_MAX = 10.0


@value
class Report:
    """What one person's turns came to since the last report."""

    channel: str
    user: str
    conversation: str
    """Where they were last answered."""
    turns: int
    usage: Usage
    last_active_at: int

    def and_then(self, later: Report) -> Report:
        return replace(later, turns=self.turns + later.turns, usage=self.usage + later.usage)


Place = tuple[str, str]


class Hook(Protocol):
    async def send(self, report: Report) -> str | None:
        """Tell it. Returns why it could not be told, None if it was."""

    async def close(self) -> None: ...


class Activity:
    """Each answer starts the quiet time anew; one that used more than so many tokens is told at once with the rest.

    What cannot be told waits for the next quiet time. A crash loses what was gathered, and nothing else.
    """

    def __init__(self, hook: Hook, *, clock: Clock, emit: Callable[[Event], None] = lambda event: None) -> None:
        self.quiet_ms = QUIET_MS
        self.at_once_tokens = AT_ONCE_TOKENS
        self._hook = hook
        self._clock = clock
        self._emit = emit
        self._gathered: dict[Place, tuple[Report, int]] = {}
        """And when each is due."""
        self._due = asyncio.Event()

    def note(self, lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        """A turn has ended."""
        if verdict == "answered" and isinstance(outcome, Replied) and lease.user:
            usage = outcome.reply.usage
            now = self._clock.now()
            report = Report(channel_of(lease.key), lease.user, lease.key, 1, usage, now)
            self._gather(report, now if usage.tokens > self.at_once_tokens else now + self.quiet_ms)

    def _gather(self, report: Report, due_at: int) -> None:
        place = (report.channel, report.user)
        before = self._gathered.pop(place, None)
        self._gathered[place] = (report if before is None else before[0].and_then(report), due_at)
        if len(self._gathered) > GATHERED_MAX:
            first = next(iter(self._gathered))
            self._gathered[first] = (self._gathered[first][0], 0)
        if due_at <= self._clock.now() or len(self._gathered) > GATHERED_MAX:
            self._due.set()

    async def run(self) -> None:
        """Tell what is due, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._due.wait()
            self._due.clear()
            await self.tell_due()

    async def tell_due(self) -> None:
        now = self._clock.now()
        for place in [place for place, (_, due_at) in self._gathered.items() if due_at <= now]:
            await self._tell(place)

    async def close(self) -> None:
        """Tell all that was gathered, for no longer than `FLUSH_SECONDS_MAX`, before the process ends."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                for place in list(self._gathered):
                    await self._tell(place)
        except TimeoutError:
            self._say_failed(f"the process ends, and {len(self._gathered)} were not told in time")
        await self._hook.close()

    async def _tell(self, place: Place) -> None:
        report, _ = self._gathered.pop(place)
        try:
            failed = await self._hook.send(report)
        except asyncio.CancelledError:
            self._put_back(place, report)
            raise
        if failed is not None:
            self._put_back(place, report)
            self._say_failed(failed)

    def _put_back(self, place: Place, report: Report) -> None:
        later = self._gathered.pop(place, None)
        whole = report if later is None else report.and_then(later[0])
        self._gathered[place] = (whole, self._clock.now() + self.quiet_ms)

    def _say_failed(self, cause: str) -> None:
        self._emit(Event("activity.untold", self._clock.now(), None, {"cause": cause}))
