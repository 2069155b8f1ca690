"""The backend on a stream of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from turnlane.backends.base import Acceptance, Arrival
from turnlane.backends.grouped import GroupedBackend
from turnlane.backends.nats.contents import NatsContents
from turnlane.backends.nats.link import FAILURES
from turnlane.backends.nats.shelf import FORGOTTEN
from turnlane.backends.nats.store import NatsStore, explain
from turnlane.backends.nats.tail import Told
from turnlane.backends.nats.target import Target
from turnlane.backends.nats.views import NatsViews
from turnlane.backends.reader import EVENTS_PER_ROW_MAX, Reader
from turnlane.backends.transaction import Transaction
from turnlane.backends.unattended import unattended
from turnlane.backends.writer import Writer
from turnlane.clock import Clock
from turnlane.event_loop import happens
from turnlane.model.view import Changes

T = TypeVar("T")

ACCEPTED_AT_ONCE_MAX = 500
LOOK_SECONDS = 1.0
"""How often whoever waits for a change looks for one that no hint told of."""


class NatsBackend(GroupedBackend):
    """A group of calls is one atomic batch of records, stored only if all that it was decided on is still so."""

    def __init__(self, url: str, clock: Clock, idle_after_ms: int = 60_000) -> None:
        super().__init__(url, clock)
        self.target = Target(url)
        self._idle_after_ms = idle_after_ms

    async def open(self) -> None:
        if self._writer is not None:
            return
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._hear)

        self._store = NatsStore(self.target, self._clock, self._idle_after_ms, heard)
        await unattended(self._store.open, undo=self._store.close)
        views = NatsViews(self._store)

        def read(view: Callable[[Any], Any]) -> Any:
            try:
                return view(views)
            except FAILURES as error:
                raise explain(error, self.target) from error

        self._reader = Reader(read, lambda: None)
        self._writer = Writer(self._store, self._report, lambda: self.limits, self.counted)
        self._writer.start()

    async def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        """A few hundred at a time: each is a record, and the server takes only so many together."""
        accepted: list[Acceptance] = []
        for first in range(0, len(arrivals), ACCEPTED_AT_ONCE_MAX):
            accepted += await super().accept(arrivals[first : first + ACCEPTED_AT_ONCE_MAX])
        return accepted

    def _hear(self) -> None:
        self._tell_of_a_change()
        if self._writer is not None:
            self._writer.poke()

    async def _read(self, view: Callable[[Any], T]) -> T:
        """After all that others had written when it was asked for."""
        await self._call(_catch_up, (self._store,))
        return await super()._read(view)

    async def busy(self, worker: str) -> Any:
        """Asked ten times a second: hints are soon enough."""
        now = self._clock.now()
        return await super()._read(lambda views: views.busy(worker, now))

    async def changes(self, *, after: int, limit: int = 1000) -> Changes:
        """Asked ten times a second: hints are soon enough, and tell all of it. What they did not tell is read."""
        told = await self._call(_told_since, (self._store, after // EVENTS_PER_ROW_MAX))
        if told is None:
            return await super().changes(after=after, limit=limit)
        now = self._clock.now()
        in_view: Callable[[Any], Changes] = lambda views: views.changes_told(told, after, limit, now)  # noqa: E731
        return await super()._read(in_view)

    async def changed(self, within: float) -> bool:
        here, before = self._change, await self._call(_heard_to, (self._store,))
        try:
            async with asyncio.timeout(within):
                while not await happens(here, within=LOOK_SECONDS) and await self._seen() <= before:
                    pass
        except TimeoutError:
            return False
        return True

    async def _seen(self) -> int:
        seen: int = await self._call(_catch_up, (self._store,))
        return seen

    async def forget(self, *, messages_before: int, events_before: int, origins_before: int) -> int:
        await self._call(Transaction.forget, (FORGOTTEN, [(origins_before, events_before)]))
        return await self._read(lambda _: self._store.forget(messages_before, events_before))

    async def schema_version(self) -> int:
        return await asyncio.to_thread(self.version)

    def version(self) -> int:
        return self._once(NatsStore.version)

    def migrate(self) -> None:
        self._once(NatsStore.make_stream)

    def contents(self) -> NatsContents:
        return NatsContents(self.target, self._new_store())

    def _new_store(self) -> NatsStore:
        return NatsStore(self.target, self._clock, self._idle_after_ms, lambda: None)

    def _once(self, work: Callable[[NatsStore], T]) -> T:
        """On a connection of its own."""
        store = self._new_store()
        try:
            store.link.connect()
            return work(store)
        except FAILURES as error:
            raise explain(error, self.target) from error
        finally:
            store.close()

    async def server_settings(self) -> Mapping[str, str]:
        """What `doctor` judges: whether what is acknowledged is also safe."""
        return await self._read(lambda _: self._store.server_settings())


def _catch_up(_: Transaction, store: NatsStore) -> int:
    return store.catch_up_now()


def _heard_to(_: Transaction, store: NatsStore) -> int:
    return store.heard_to()


def _told_since(_: Transaction, store: NatsStore, seq: int) -> list[Told] | None:
    return store.told_since(seq)
