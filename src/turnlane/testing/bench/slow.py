"""W4: many slow turns at once. Whatever is lost between two turns of a slot shows in the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import ceil

from turnlane import event_loop
from turnlane.testing.bench.burst import say_everything
from turnlane.testing.bench.engine import conversations, engine, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale

MESSAGES = 2


def slow(scale: Scale, ground: Ground) -> Iterator[Sample]:
    makespan = event_loop.run(_makespan(scale, ground.store("slow")))
    ideal = ceil(scale.slow_conversations * MESSAGES / scale.slow_slots) * scale.slow_seconds
    yield Sample("slow", makespan / ideal, {"makespan_seconds": makespan, "ideal_seconds": ideal})


async def _makespan(scale: Scale, url: str) -> float:
    """From the first accept call until the last reply is settled; `queue`, so that every message is a turn."""
    async with (
        engine(url, policy("queue"), hold_seconds=scale.slow_seconds, listens=False) as ours,
        ours.working(scale.slow_slots),
    ):
        before = time.perf_counter()
        keys = conversations(scale.slow_conversations)
        await say_everything(ours, keys, messages=MESSAGES, callers=scale.callers)
        await ours.settled()
        seconds = time.perf_counter() - before
        await ours.read_journal()
        ours.check()
        return seconds
