"""What an idle conversation costs in the process: nothing. Counted in objects, as bytes depend on the allocator."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

from turnlane import event_loop
from turnlane.model.delivery import Delivery
from turnlane.model.lane import Lane
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.session import Session
from turnlane.testing.bench.burst import say_everything
from turnlane.testing.bench.engine import conversations, engine, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale

OF_A_CONVERSATION = (Lane, Lease, Message, Delivery, Session)
IDLE_AFTER_MS = 200
TERM_MS = 1_000
"""A worker that is idle otherwise still renews its lease three times a term, which is when the store looks around."""
PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.02


def memory(scale: Scale, ground: Ground) -> Iterator[Sample]:
    left = event_loop.run(objects_of_idle_conversations(ground.store("memory"), scale))
    yield Sample("memory", left, {"conversations": scale.conversations})


async def objects_of_idle_conversations(
    url: str, scale: Scale, *, idle_after_ms: int = IDLE_AFTER_MS, patience_seconds: float = PATIENCE_SECONDS
) -> int:
    """Run a burst, let `idle_after` pass, and count what the process still keeps of any conversation."""
    before = count()
    short = engine(url, policy(), idle_after_ms=idle_after_ms)
    async with short as ours, ours.working(scale.slots_many, term_ms=TERM_MS):
        await say_everything(ours, conversations(scale.conversations), messages=scale.messages, callers=scale.callers)
        await ours.settled()
        ours.check()
        until = time.perf_counter() + patience_seconds
        while (left := count() - before) > 0 and time.perf_counter() < until:
            await ours.backend.changed(LOOK_SECONDS)
        return max(left, 0)


def count() -> int:
    gc.collect()
    return sum(isinstance(thing, OF_A_CONVERSATION) for thing in gc.get_objects())
