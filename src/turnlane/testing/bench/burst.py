"""W1: a burst of messages from many callers, every one accepted, run, committed, delivered and settled."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from turnlane import event_loop
from turnlane.model.policy import OnBusy
from turnlane.testing.bench.engine import Engine, conversations, engine, policy
from turnlane.testing.bench.ground import Files, Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.same_rows import seconds_without_an_engine
from turnlane.testing.bench.scale import Scale
from turnlane.testing.evidence import reading

POLICIES: tuple[OnBusy, ...] = ("collect", "queue")


@dataclass(frozen=True, slots=True)
class Burst:
    messages: int
    seconds: float
    cpu_seconds: float
    turns: int
    commits: int = 0

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def burst(scale: Scale, ground: Ground) -> Iterator[Sample]:
    for on_busy in POLICIES:
        yield from _with_many_slots(scale, ground, on_busy)
        yield from _with_few_slots(scale, ground, on_busy)


def _with_many_slots(scale: Scale, ground: Ground, on_busy: OnBusy) -> Iterator[Sample]:
    url = ground.store(f"many-{on_busy}")
    done, raw = ground.against_raw(scale.raw_seconds, lambda: one_burst(url, on_busy, scale.slots_many, scale))
    yield _sample(f"burst.{on_busy}.many", done, raw)
    if not isinstance(ground, Files):
        return
    finished, copy = ground.file(f"many-{on_busy}"), ground.file(f"rows-{on_busy}")
    limit = done.messages / seconds_without_an_engine(finished, copy)
    yield Sample(f"rows.{on_busy}", done.rate / limit, {"messages_per_second_without_an_engine": limit})


def _with_few_slots(scale: Scale, ground: Ground, on_busy: OnBusy) -> Iterator[Sample]:
    url = ground.store(f"few-{on_busy}")
    done, raw = ground.against_raw(scale.raw_seconds, lambda: one_burst(url, on_busy, scale.slots_few, scale))
    yield _sample(f"burst.{on_busy}.few", done, raw)


def _sample(name: str, done: Burst, raw: float) -> Sample:
    detail = {
        "messages_per_second": done.rate,
        "cpu_us_per_message": done.cpu_seconds / done.messages * 1e6,
        "turns": done.turns,
        "commits": done.commits,
        "raw_commits_per_second": raw,
    }
    return Sample(name, done.rate / raw, detail)


def one_burst(url: str, on_busy: OnBusy, slots: int, scale: Scale) -> Burst:
    done = event_loop.run(_one_burst(url, on_busy, slots, scale))
    return replace(done, commits=_commits(url))


async def _one_burst(url: str, on_busy: OnBusy, slots: int, scale: Scale) -> Burst:
    async with engine(url, policy(on_busy), listens=False) as ours, ours.working(slots):
        keys = conversations(scale.conversations)
        gc.collect()
        before, cpu_before = time.perf_counter(), time.process_time()
        await say_everything(ours, keys, messages=scale.messages, callers=scale.callers)
        await ours.settled()
        seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
        await ours.read_journal()
        ours.check()
    return Burst(ours.messages_said, seconds, cpu_seconds, ours.witness.turns_answered)


async def say_everything(ours: Engine, keys: list[str], *, messages: int, callers: int) -> None:
    """Each caller goes over its own conversations, again and again, and waits for every accept."""

    async def caller(mine: list[str]) -> None:
        for number in range(messages):
            for conversation in mine:
                await ours.say(conversation, number)

    await asyncio.gather(*(caller(keys[first::callers]) for first in range(callers)))


def _commits(url: str) -> int:
    """The journal has one row for each transaction in which something happened."""
    if url.startswith("nats:"):
        return 0  # its records are not counted by transaction
    with reading(url) as fetch:
        [[count]] = fetch("SELECT count(*) FROM journal", ())
    return int(count)
