"""What many lanes cost: counted in blocks and requests, as seconds would say more about the machine.

With more of them, by hand: `TURNLANE_TEST_LANES=100000 pytest tests/machines/test_scale.py -s`
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import open_backend
from turnlane.backends.nats import NatsBackend
from turnlane.backends.postgres import PostgresBackend
from turnlane.model.lane import Kind
from turnlane.model.turn import Replied, Reply

FEW = 1_000
MANY = int(os.environ.get("TURNLANE_TEST_LANES", "5000"))
ARRIVALS_PER_CALL = 500
CLAIMED = 10
IDLE_LANE_BYTES_MAX = 1_000
START_SECONDS_MAX = 30.0


async def fill(store: PostgresBackend | NatsBackend, first: int, last: int) -> None:
    for number in range(first, last, ARRIVALS_PER_CALL):
        places = range(number, min(number + ARRIVALS_PER_CALL, last))
        await store.accept([arrival(f"user-{place}", f"m-{place}") for place in places])


async def blocks_of_a_claim(store: PostgresBackend) -> int:
    """All that the server touches for one claim and its commits."""
    count = "SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot(), blks_hit + blks_read FROM pg_stat_database "
    count += "WHERE datname = current_database()"

    async def touched() -> int:
        # The statistics of a connection are told when it has been idle for a moment, or ends.
        connection = await store.target.connect()
        try:
            await connection.fetchrow(count)
            return int((await connection.fetchrow(count))[2])
        finally:
            await connection.close()

    await settle(store)
    before = await touched()
    leases = await store.claim("worker", Kind.TURN, most=CLAIMED)
    assert len(leases) == CLAIMED
    await settle(store)
    return await touched() - before


async def settle(store: PostgresBackend) -> None:
    """Let the writing connection tell what it has counted."""
    await asyncio.sleep(1.1)  # waits: Postgres tells its statistics once a second
    await store.typing("desk/nobody")


async def test_a_claim_on_postgres_touches_no_more_blocks_with_many_lanes_than_with_few(postgres: str) -> None:
    store = open_backend(postgres)
    assert isinstance(store, PostgresBackend)
    await store.open()
    await store.join("worker", 600_000)
    await fill(store, 0, FEW)
    with_few = await blocks_of_a_claim(store)
    await fill(store, FEW, MANY)
    for _ in range(3):  # the server may tidy up meanwhile, and counts that too
        with_many = await blocks_of_a_claim(store)
        print(f"blocks of a claim of {CLAIMED}: {with_few} with {FEW} lanes, {with_many} with {MANY}")
        if with_many <= with_few * 1.5 + 50:
            break
    else:
        pytest.fail("a claim touches more blocks with many lanes")
    await store.close()


async def requests_of_a_claim(store: NatsBackend, monkeypatch: pytest.MonkeyPatch) -> int:
    link, asked = store._store.link, 0
    wait_for: Callable[[Coroutine[Any, Any, Any]], Any] = link.wait_for

    def counted(work: Coroutine[Any, Any, Any]) -> Any:
        nonlocal asked
        asked += 1
        return wait_for(work)

    monkeypatch.setattr(link, "wait_for", counted)
    leases = await store.claim("worker", Kind.TURN, most=CLAIMED)
    monkeypatch.undo()
    assert len(leases) == CLAIMED
    return asked


async def test_a_claim_on_nats_asks_no_more_with_many_lanes_than_with_few(
    nats: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_backend(nats)
    assert isinstance(store, NatsBackend)
    await store.open()
    await store.join("worker", 600_000)
    await fill(store, 0, FEW)
    with_few = await requests_of_a_claim(store, monkeypatch)
    await fill(store, FEW, MANY)
    with_many = await requests_of_a_claim(store, monkeypatch)
    print(f"requests of a claim of {CLAIMED}: {with_few} with {FEW} lanes, {with_many} with {MANY}")
    # One to read the conversations that are not at hand any more, all at once, and one to write.
    assert with_many <= max(with_few, 2)
    await store.close()


@pytest.mark.parametrize("kind", ["postgres", "nats"])
async def test_idle_lanes_cost_little_on_the_server_and_a_start_goes_on_where_they_were(
    request: pytest.FixtureRequest, kind: str
) -> None:
    store = open_backend(request.getfixturevalue(kind))
    assert isinstance(store, (PostgresBackend, NatsBackend))
    await store.open()
    await store.join("worker", 600_000)
    await fill(store, 0, MANY)
    done = 0
    while leases := await store.claim("worker", Kind.TURN, most=500):
        await asyncio.gather(*(store.commit(lease, Replied(Reply(None, lease.key))) for lease in leases))
        done += len(leases)
    assert done == MANY
    far = 1 << 50
    await store.forget(messages_before=far, events_before=far, origins_before=far)
    each = await bytes_stored(store) / MANY
    await store.close()
    began = time.perf_counter()
    again = open_backend(request.getfixturevalue(kind) if kind == "nats" else store.url)
    await again.open()
    [said] = await again.accept([arrival("user-7", "next")])
    took = time.perf_counter() - began
    await again.close()
    print(f"{kind}: {each:.0f} bytes for each of {MANY} idle lanes; started and answered after {took:.2f} s")
    assert said.seq == 2
    assert each < IDLE_LANE_BYTES_MAX
    assert took < START_SECONDS_MAX


async def bytes_stored(store: PostgresBackend | NatsBackend) -> int:
    if isinstance(store, NatsBackend):
        info = await asyncio.to_thread(store._store.stream_info)
        assert info is not None
        return int(info["state"]["bytes"])
    connection = await store.target.connect()
    try:
        await connection.execute("VACUUM FULL")
        size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c JOIN pg_namespace AS n "
        size += "ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
        return int(await connection.fetchval(size))
    finally:
        await connection.close()
