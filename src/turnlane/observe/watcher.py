"""Looking at the numbers now and then, beside the work, and telling what has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from turnlane.backends.base import Backend
from turnlane.clock import Clock
from turnlane.errors import BackendError
from turnlane.model.event import Event, Fact
from turnlane.observe.alerts import Change, Watch
from turnlane.observe.gauges import StoreNow, store_now
from turnlane.observe.metrics import Metrics

log = logging.getLogger("turnlane.alerts")

LOOK_SECONDS = 5.0
REST = 100
"""After a look the store is left alone for so many times as long as it took: a million lanes take long to count."""
ANSWER_SECONDS_MAX = 5.0
OF_THE_STORE = frozenset({"store_errors", "store_down"})


class Hears(Protocol):
    def tell(self, change: Change) -> None:
        """Tell it to whoever is to know; takes no time."""


class Watcher:
    """`follow` runs for ever. What it sees begins when it is made, so make it before anybody works."""

    def __init__(
        self,
        watch: Watch,
        *,
        backend: Backend,
        metrics: Metrics,
        clock: Clock,
        emit: Callable[[Event], None] = lambda event: None,
        hears: Hears | None = None,
    ) -> None:
        self._watch = watch
        self._backend = backend
        self._metrics = metrics
        self._clock = clock
        self._emit = emit
        self._hears = hears
        now = clock.now()
        # Without the store, which nobody has asked yet: what it has got before is not new.
        counted = (sample for sample in metrics.samples(None, now=now) if sample[0] != "turnlane_backend_up")
        watch.begin(now, counted)

    async def follow(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self.look()
            except Exception:  # who watches must not end what is watched
                log.exception("the alerts could not be judged; they are looked at again")
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(LOOK_SECONDS, took * REST))

    async def look(self) -> None:
        store = await self._store_now()
        now = self._clock.now()
        for change in self._watch.look(now, self._metrics.samples(store, now=now)):
            await self._tell(change, is_up=store is not None)

    async def _store_now(self) -> StoreNow | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await store_now(self._backend)
        except (BackendError, TimeoutError):
            return None

    async def _tell(self, change: Change, *, is_up: bool) -> None:
        # A store in trouble is not asked to write that down: the call would only wait with the others.
        can_write = is_up and not (change.how == "raised" and change.alert.alert in OF_THE_STORE)
        if not (can_write and await self._is_noted(change)):
            self._emit(Event(f"alert.{change.how}", change.at, None, _facts(change)))
        if self._hears is not None:
            self._hears.tell(change)

    async def _is_noted(self, change: Change) -> bool:
        """In the store, where all processes see it. Whoever listens here hears of it by that."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._backend.note(f"alert.{change.how}", None, **_facts(change))
        except (BackendError, TimeoutError):
            return False
        return True


def _facts(change: Change) -> dict[str, Fact]:
    alert = change.alert
    return {
        "alert": alert.alert,
        "severity": alert.severity,
        "value": round(alert.value, 4),
        "threshold": alert.threshold,
        "text": alert.text,
    }
