"""One history, lived through in several stores at the same time: whoever looks sees the same in all of them.

From the command line, with any number of seeds: `turnlane simulate --seeds 1000 --beside sqlite://`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from turnlane.backends.sql import codec
from turnlane.model.message import Message
from turnlane.testing.simulation import side_by_side, simulate, simulate_many, throwaway

STEPS = 150


@pytest.mark.parametrize("seeds", [range(first, first + 4) for first in range(0, 40, 4)], ids=str)
async def test_a_history_gives_the_same_result_on_memory_and_sqlite(seeds: range) -> None:
    await every_store_shows_the_same(["memory://", "sqlite://"], seeds)


@pytest.mark.parametrize("seeds", [range(first, first + 2) for first in range(100, 108, 2)], ids=str)
async def test_a_history_gives_the_same_result_on_memory_sqlite_and_postgres(seeds: range, postgres: str) -> None:
    await every_store_shows_the_same(["memory://", "sqlite://", postgres], seeds)


@pytest.mark.parametrize("seeds", [range(first, first + 2) for first in range(200, 208, 2)], ids=str)
async def test_a_history_gives_the_same_result_on_memory_and_nats(seeds: range, nats: str) -> None:
    await every_store_shows_the_same(["memory://", nats], seeds)


async def every_store_shows_the_same(stores: list[str], seeds: range) -> None:
    opened = side_by_side([throwaway(store) for store in stores])
    history = await simulate_many(opened, seeds, steps=STEPS, name=" --beside ".join(stores))
    assert not history.broken, "\n\n".join(map(str, history.broken))


async def test_a_store_that_shows_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two stores that both keep every promise: only the comparison can know that one of them is wrong."""
    whole = codec.message_from

    def without_attachments(row: Sequence[Any], conversation: str) -> Message:
        return replace(whole(row, conversation), attachments=())

    monkeypatch.setattr(codec, "message_from", without_attachments)
    opened = side_by_side([throwaway("memory://"), throwaway("sqlite://")])
    history = await simulate(opened, 1, steps=STEPS, name="memory:// --beside sqlite://")
    [broken] = history.broken
    assert "memory:// and sqlite differ: story" in broken.why
    assert ".attachments is [" in broken.why
    assert broken.replay == f"turnlane simulate --seed 1 --steps {STEPS} --backend memory:// --beside sqlite://"


@pytest.mark.parametrize("seed", [0, 1])
async def test_a_seed_replays_its_history_in_all_stores(seed: int) -> None:
    opened = side_by_side([throwaway("memory://"), throwaway("sqlite://")])
    first, again = [await simulate(opened, seed, steps=60) for _ in range(2)]
    assert first == again
    assert not first.broken
