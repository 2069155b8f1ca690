"""A tenant that floods its lanes delays another's first one by one turn at most, and makes no claim dearer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Arrival
from turnlane.backends.sqlite import SqliteBackend
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply

BIG = Policy(tenant="big", debounce_ms=0)
SMALL = Policy(tenant="small", debounce_ms=0)
AT_ONCE = 5_000
FEW, MANY = 15_000, 100_000
"""Both more than a process keeps at hand."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    backend = SqliteBackend(f"sqlite:///{tmp_path / 'fair.db'}?synchronous=off", SystemClock())
    await backend.open()
    await backend.join("worker", 3_600_000)
    yield backend
    await backend.close()


def said(who: str, policy: Policy) -> Arrival:
    return Arrival(arrival(who, f"m-{who}").message, policy)


async def flood(store: SqliteBackend, first: int, last: int) -> None:
    for start in range(first, last, AT_ONCE):
        await store.accept([said(f"big-{number}", BIG) for number in range(start, min(start + AT_ONCE, last))])


async def opcodes_of_the_next_claim(store: SqliteBackend) -> int:
    """What SQLite did for one commit that goes on with the next lane, in steps of its virtual machine."""
    [lease] = await store.claim("worker", Kind.TURN)
    assert store._writer is not None
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    store._store.connection.set_progress_handler(step, 1)
    committed = await store.commit(lease, Replied(Reply(None)), take_next=True)
    store._store.connection.set_progress_handler(None, 0)
    assert committed.next is not None
    await store.commit(committed.next, Replied(Reply(None)))
    return steps[0]


async def test_a_tenant_with_100_000_waiting_lanes_does_not_starve_the_next_tenant(store: SqliteBackend) -> None:
    """PEERS, and the cost of a claim stays flat."""
    await flood(store, 0, FEW)
    with_few = await opcodes_of_the_next_claim(store)
    await flood(store, FEW, MANY)
    with_many = await opcodes_of_the_next_claim(store)
    assert with_many <= with_few * 1.05, (with_few, with_many)

    [lease] = await store.claim("worker", Kind.TURN)
    await store.accept([said(f"small-{number}", SMALL) for number in range(5)])
    tenants = []
    for _ in range(4):
        following = (await store.commit(lease, Replied(Reply(None)), take_next=True)).next
        assert following is not None
        lease = following
        tenants.append(lease.policy.tenant)
    assert tenants in (["big", "small"] * 2, ["small", "big"] * 2)
    leases = await store.claim("worker", Kind.TURN, most=4)
    held = [lease.policy.tenant for lease in [lease, *leases]]
    assert sorted(held) in (["big", "big", "big", "small", "small"], ["big", "big", "small", "small", "small"])
