"""W2 and W6: how long one message waits in an idle system, and how long a follow-up that already waits."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

from turnlane import event_loop
from turnlane.testing.bench.engine import Engine, conversations, engine, policy
from turnlane.testing.bench.ground import Ground, Raw
from turnlane.testing.bench.report import Sample, percentile
from turnlane.testing.bench.scale import Scale

WARM_UP = 20
RAW_EVERY, RAW_TIMES = 10, 20
"""Raw commits are measured between the probes, so that both meet the same machine."""

REST_SECONDS = 0.002
"""Between probes, so that each one finds the system idle."""

HOLD_SECONDS = 0.02
FOLLOW_UP_AFTER_SECONDS = 0.005
"""Into a turn that takes longer than that."""


def idle(scale: Scale, ground: Ground) -> Iterator[Sample]:
    """W2: one message into an idle system."""
    with ground.raw() as raw:
        starts, commits = event_loop.run(_probes(scale, ground.store("idle"), raw))
    yield _sample("idle.start", starts, raw, commits=1 if ground.is_file else 0)
    yield _sample("idle.commit", commits, raw, commits=2 if ground.is_file else 0)


async def _probes(scale: Scale, url: str, raw: Raw) -> tuple[list[float], list[float]]:
    starts, commits = [], []
    keys = conversations(50)
    async with engine(url, policy()) as ours, ours.working(scale.slots_many):
        for number in range(WARM_UP + scale.probes):
            if number % RAW_EVERY == 0:
                raw.commit(RAW_TIMES)
            await asyncio.sleep(REST_SECONDS)
            called = time.perf_counter()
            await ours.say(keys[number % len(keys)], number)
            await ours.settled()
            starts.append(ours.witness.record.runs[-1].began - called)
            commits.append(ours.witness.last_answered - called)
        ours.check()
    return starts[WARM_UP:], commits[WARM_UP:]


def follow_up(scale: Scale, ground: Ground) -> Iterator[Sample]:
    """W6: the next message already waits when a turn ends."""
    with ground.raw() as raw:
        gaps = event_loop.run(_gaps(scale, ground.store("follow-up"), raw))
    yield _sample("follow_up", gaps, raw, commits=1 if ground.is_file else 0)


async def _gaps(scale: Scale, url: str, raw: Raw) -> list[float]:
    gaps = []
    keys = conversations(10)
    async with engine(url, policy(), hold_seconds=HOLD_SECONDS) as ours, ours.working(scale.slots_many):
        for number in range(scale.follow_ups):
            if number % RAW_EVERY == 0:
                raw.commit(RAW_TIMES)
            gaps.append(await _gap(ours, keys[number % len(keys)], 2 * number))
        ours.check()
    return gaps


async def _gap(ours: Engine, conversation: str, number: int) -> float:
    await ours.say(conversation, number)
    await ours.witness.started(number + 1)
    await asyncio.sleep(FOLLOW_UP_AFTER_SECONDS)
    await ours.say(conversation, number + 1)
    await ours.settled()
    first, second = ours.witness.record.runs[-2:]
    return second.began - first.ended


def _sample(name: str, seconds: list[float], raw: Raw, *, commits: int) -> Sample:
    """Above so many raw commits."""
    p50 = statistics.median(seconds) * 1000
    detail = {"p50_ms": p50, "p99_ms": percentile(seconds, 0.99) * 1000, "raw_commit_ms": raw.commit_ms}
    return Sample(name, p50 - commits * raw.commit_ms, detail)
