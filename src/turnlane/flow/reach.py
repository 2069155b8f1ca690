"""Reach the store at the start: one that does not answer yet is waited for, and the log says why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable
from turnlane.model.event import Event
from turnlane.model.policy import Backoff

PAUSES = Backoff(first_ms=100, factor=2, most_ms=2_000)
SAY_AGAIN_SECONDS = 5.0


async def reach(
    attempt: Callable[[], Awaitable[None]], *, within: float, clock: Clock, emit: Callable[[Event], None]
) -> None:
    """Until an attempt succeeds. Raises what waiting does not mend at once, and anything after these seconds."""
    began, failures, say_at = clock.monotonic(), 0, 0.0
    while True:
        try:
            await attempt()
            break
        except BackendUnavailable as error:
            now = clock.monotonic()
            left = began + within - now
            if not error.retry or left <= 0:
                raise
            if not failures or now >= say_at:
                say_at = now + SAY_AGAIN_SECONDS
                emit(Event("store.waiting", clock.now(), None, {"cause": str(error), "seconds": round(left, 1)}))
        failures += 1
        await asyncio.sleep(min(PAUSES.delay_ms(failures) / 1000, left))
    if failures:
        waited = round(clock.monotonic() - began, 1)
        emit(Event("store.available", clock.now(), None, {"seconds": waited}))
