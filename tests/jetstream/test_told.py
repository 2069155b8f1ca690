"""What hints tell whoever watches: the same as what is stored, once and in order, whatever becomes of the hints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from random import Random

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import open_backend
from turnlane.backends.nats import NatsBackend, tail
from turnlane.backends.nats import store as nats_store
from turnlane.backends.nats.store import TOLD
from turnlane.backends.nats.tail import Tail, Told
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.model.view import LaneView, StoredEvent

TERM_MS = 60_000
FAR = 1 << 50


@pytest.fixture
async def two(nats: str) -> AsyncIterator[tuple[NatsBackend, NatsBackend]]:
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(2):
            store = open_backend(nats)
            assert isinstance(store, NatsBackend)
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores[0], stores[1]


class Watcher:
    """Keeps the last lane that it was told of each conversation, as the console does."""

    def __init__(self, store: NatsBackend, limit: int = 1000) -> None:
        self._store = store
        self._limit = limit
        self._cursor = 0
        self.events: list[StoredEvent] = []
        self.lanes: dict[str, LaneView] = {}

    async def look(self) -> None:
        changes = await self._store.changes(after=self._cursor, limit=self._limit)
        self.events += changes.events
        self.lanes |= {lane.conversation: lane for lane in changes.lanes}
        self._cursor = self.events[-1].cursor if self.events else 0

    async def see_all(self) -> None:
        async with asyncio.timeout(10):
            [last] = await self._store.events(after=-1)
            while self._cursor < last.cursor:
                await self.look()
                await self._store.changed(0.01)


async def said_and_answered(store: NatsBackend, worker: str, number: int) -> None:
    await store.accept([arrival(f"customer-{number % 5}", f"{worker}-{number}")])
    for lease in await store.claim(worker, Kind.TURN, most=2):
        await store.commit(lease, Replied(Reply("yes", lease.key)))
    for lease in await store.claim(worker, Kind.OUT, most=2):
        await store.commit(lease, Delivered("receipt"))


async def test_whoever_watches_reads_nothing_that_a_hint_has_told(
    two: tuple[NatsBackend, NatsBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, watching = two
    await worker.join("worker", TERM_MS)
    watcher = Watcher(watching)
    await watcher.look()
    await said_and_answered(worker, "worker", 0)
    await watcher.see_all()
    monkeypatch.setattr(nats_store, "POLL_SECONDS", 3600.0)  # a look might come before a hint
    reads = []
    monkeypatch.setattr(watching._store.link, "_following", lambda *which: reads.append(which))
    monkeypatch.setattr(watching._store.link, "_get", lambda *which: reads.append(which))

    for number in range(1, 20):
        await said_and_answered(worker, "worker", number)
        [last] = await worker.events(after=-1)
        while watcher.events[-1].cursor < last.cursor:
            await watching.changed(0.05)
            await watcher.look()

    assert not reads
    assert watcher.events == await worker.events(after=0)


@pytest.mark.parametrize(
    ("fates", "kept_max"),
    [("lost", 20_000), ("late", 20_000), ("bare", 20_000), ("", 40), ("lost late bare", 40)],
    ids=["lost", "late and in another order", "without the facts", "little is kept", "all of it"],
)
async def test_what_is_told_is_what_is_stored_whatever_becomes_of_hints(
    two: tuple[NatsBackend, NatsBackend], fates: str, kept_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(fates)
    monkeypatch.setattr(tail, "KEPT_MAX", kept_max)
    watchers = [Watcher(store, limit=chance.randint(20, 40)) for store in two]
    for place, store in enumerate(two):
        _meddle(store, Random(f"{fates}/{place}"), fates.split(), monkeypatch)
        await store.join(f"worker-{place}", TERM_MS)
    for number in range(60):
        place = chance.randrange(2)
        await said_and_answered(two[place], f"worker-{place}", number)
        if number % 7 == 0:
            await two[place].pause(f"desk/customer-{number % 5}", until=FAR)
        if number % 7 == 3:
            await two[place].say(
                Message("desk", f"s-{number}", "desk/customer-1", "colleague", "I am on it", role="operator")
            )
        for watcher in watchers:
            if chance.random() < 0.5:
                await watcher.look()
    for watcher in watchers:
        await watcher.see_all()

        assert watcher.events == await two[0].events(after=0)
        assert watcher.lanes == {lane.conversation: lane for lane in await two[0].board(100)}


def _meddle(store: NatsBackend, chance: Random, fates: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], bytes]] = []
    hint = store._store.link.hint

    def perhaps(payload: Callable[[], bytes]) -> None:
        fate = chance.choice([*fates, "told", "told", "told", "told", "told"])
        if fate == "late":
            late.append(payload)
        elif fate != "lost":
            hint((lambda: payload().partition(TOLD)[0]) if fate == "bare" else payload)
            while late:
                hint(late.pop())

    monkeypatch.setattr(store._store.link, "hint", perhaps)


def test_nothing_is_kept_once_nobody_has_asked_for_a_while() -> None:
    kept = Tail()
    kept.watched(now=0.0, heard_to=3)
    kept.add(Told(4, 0, [], {}))
    assert kept.following(4, until=9) == [Told(4, 0, [], {})]
    assert kept.following(3, until=9) is None  # the facts of this record may have been told in part

    assert not kept.is_kept(now=tail.WATCHED_SECONDS)

    assert kept.following(4, until=9) is None


def test_what_is_kept_is_bounded_by_facts_and_lanes_however_many_a_group_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "KEPT_MAX", 10)
    kept = Tail()
    kept.watched(now=0.0, heard_to=0)
    for seq in range(1, 6):
        kept.add(Told(seq, 0, ["fact"] * 2, {}))
    assert kept.following(1, until=9) is not None

    kept.add(Told(6, 0, ["fact"], {"a": [], "b": []}))

    assert kept.following(4, until=9) is None
    assert kept.following(5, until=9) == [Told(5, 0, ["fact"] * 2, {}), Told(6, 0, ["fact"], {"a": [], "b": []})]
    kept.add(Told(7, 0, ["fact"] * 11, {}))
    assert kept.following(7, until=9) == [Told(7, 0, ["fact"] * 11, {})]
    kept.add(Told(8, 0, ["fact"] * 11, {}))
    assert kept.following(8, until=9) is None, "too much by itself"
