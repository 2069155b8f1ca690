"""Thousands of histories that could happen, and not one in which a promise is broken.

The parameters only spread the seeds over processes. The same from the command line, with any number of seeds:
`turnlane simulate --seeds 20000 --jobs 2`.
"""

from __future__ import annotations

import pytest

from turnlane.errors import InvalidInput
from turnlane.testing.simulation import simulate, simulate_many, throwaway

MEMORY_SEEDS, MEMORY_PARTS = 2_000, 40
SQLITE_SEEDS, SQLITE_PARTS = 200, 20
POSTGRES_SEEDS, POSTGRES_PARTS = 20, 10
NATS_SEEDS, NATS_PARTS = 12, 6


def parts(seeds: int, count: int) -> list[range]:
    size = seeds // count
    return [range(start, start + size) for start in range(0, seeds, size)]


@pytest.mark.parametrize("seeds", parts(MEMORY_SEEDS, MEMORY_PARTS), ids=str)
async def test_no_history_on_memory_breaks_a_promise(seeds: range) -> None:
    await every_history_holds("memory://", seeds)


@pytest.mark.parametrize("seeds", parts(SQLITE_SEEDS, SQLITE_PARTS), ids=str)
async def test_no_history_on_sqlite_breaks_a_promise(seeds: range) -> None:
    await every_history_holds("sqlite://", seeds)


@pytest.mark.parametrize("seeds", parts(POSTGRES_SEEDS, POSTGRES_PARTS), ids=str)
async def test_no_history_on_postgres_breaks_a_promise(seeds: range, postgres: str) -> None:
    await every_history_holds(postgres, seeds)


@pytest.mark.parametrize("seeds", parts(NATS_SEEDS, NATS_PARTS), ids=str)
async def test_no_history_on_nats_breaks_a_promise(seeds: range, nats: str) -> None:
    await every_history_holds(nats, seeds)


async def every_history_holds(backend: str, seeds: range) -> None:
    history = await simulate_many(throwaway(backend), seeds, name=backend)
    assert not history.broken, "\n\n".join(map(str, history.broken))


async def test_everything_that_can_happen_does_happen() -> None:
    """A simulation that never crashes anybody proves nothing."""
    history = await simulate_many(throwaway("memory://"), range(100))
    rare = {
        "accepted": 3_000,
        "duplicate": 1_000,
        "answered": 1_500,
        "sent": 2_000,
        "retried": 200,
        "dead_letter": 100,
        "failed": 50,
        "released": 100,
        "parked": 20,
        "fenced": 40,
        "reaped": 200,
        "crashed": 100,
        "frozen": 200,
        "left": 100,
        "clock jumped": 100,
        "answer lost": 100,
        "commit repeated": 30,
        "superseded": 100,
        "rejected": 200,
        "refused late": 10,
        "stop": 10,
        "served while waiting": 10,
        "waiting called off": 50,
        "pause": 50,
        "unpark": 50,
        "answered by hand": 50,
        "waited for typing": 10,
    }
    assert {what: history.tally[what] for what, least in rare.items() if history.tally[what] < least} == {}


@pytest.mark.parametrize("backend", ["memory://", "sqlite://"])
async def test_a_seed_replays_its_history(backend: str) -> None:
    first, again = [await simulate(throwaway(backend), 7, steps=150) for _ in range(2)]
    assert first == again
    assert first.tally.total() > 100


def test_nobodys_data_is_simulated_upon() -> None:
    with pytest.raises(InvalidInput, match="throwaway"):
        throwaway("sqlite:///turnlane.db")
