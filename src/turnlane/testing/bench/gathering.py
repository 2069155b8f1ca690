"""W5: people who write in pieces get one answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from turnlane import event_loop
from turnlane.testing.bench.engine import Engine, conversations, engine, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale


def gathering(scale: Scale, ground: Ground) -> Iterator[Sample]:
    turns = event_loop.run(_turns(scale, ground.store("gathering")))
    yield Sample("gathering", max(turns.values()), {"conversations": len(turns), "turns": turns.total()})


async def _turns(scale: Scale, url: str) -> Counter[str]:
    gather = policy(debounce_ms=scale.debounce_ms, max_wait_ms=scale.max_wait_ms)
    async with engine(url, gather) as ours, ours.working(scale.slots_many):
        await asyncio.gather(*(_write(ours, key, scale) for key in conversations(scale.bursts)))
        await ours.settled()
        ours.check()
        return Counter(run.conversation for run in ours.witness.record.runs)


async def _write(ours: Engine, conversation: str, scale: Scale) -> None:
    for number in range(scale.messages):
        await ours.say(conversation, number)
        await asyncio.sleep(scale.burst_seconds / scale.messages)
