"""W1: a burst of messages from many callers, every one accepted, run, committed, delivered and settled."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from turnlane.model.policy import OnBusy
from turnlane.testing.bench.engine import Engine, conversations, engine, policy
from turnlane.testing.bench.limits import against_raw
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.same_rows import seconds_without_an_engine
from turnlane.testing.bench.scale import Scale

POLICIES: tuple[OnBusy, ...] = ("collect", "queue")


@dataclass(frozen=True, slots=True)
class Burst:
    messages: int
    seconds: float
    cpu_seconds: float
    turns: int
    commits: int

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def burst(scale: Scale, folder: Path) -> Iterator[Sample]:
    for on_busy in POLICIES:
        yield from _with_many_slots(scale, folder, on_busy)
        yield from _with_few_slots(scale, folder, on_busy)


def _with_many_slots(scale: Scale, folder: Path, on_busy: OnBusy) -> Iterator[Sample]:
    file = folder / f"many-{on_busy}.db"
    done, raw = against_raw(folder, scale.raw_seconds, lambda: one_burst(file, on_busy, scale.slots_many, scale))
    yield _sample(f"burst.{on_busy}.many", done, raw)
    limit = done.messages / seconds_without_an_engine(file, folder / f"rows-{on_busy}.db")
    yield Sample(f"rows.{on_busy}", done.rate / limit, {"messages_per_second_without_an_engine": limit})


def _with_few_slots(scale: Scale, folder: Path, on_busy: OnBusy) -> Iterator[Sample]:
    file = folder / f"few-{on_busy}.db"
    done, raw = against_raw(folder, scale.raw_seconds, lambda: one_burst(file, on_busy, scale.slots_few, scale))
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


def one_burst(file: Path, on_busy: OnBusy, slots: int, scale: Scale) -> Burst:
    return asyncio.run(_one_burst(file, on_busy, slots, scale))


async def _one_burst(file: Path, on_busy: OnBusy, slots: int, scale: Scale) -> Burst:
    async with engine(file, policy(on_busy), listens=False) as ours, ours.working(slots):
        keys = conversations(scale.conversations)
        gc.collect()
        before, cpu_before = time.perf_counter(), time.process_time()
        await say_everything(ours, keys, messages=scale.messages, callers=scale.callers)
        await ours.settled()
        seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
        await ours.read_journal()
        ours.check()
    return Burst(ours.messages_said, seconds, cpu_seconds, ours.witness.turns_answered, _commits(file))


async def say_everything(ours: Engine, keys: list[str], *, messages: int, callers: int) -> None:
    """Each caller goes over its own conversations, again and again, and waits for every accept."""

    async def caller(mine: list[str]) -> None:
        for number in range(messages):
            for conversation in mine:
                await ours.say(conversation, number)

    await asyncio.gather(*(caller(keys[first::callers]) for first in range(callers)))


def _commits(file: Path) -> int:
    """The journal has one row for each transaction in which something happened."""
    with closing(sqlite3.connect(file)) as connection:
        count: int = connection.execute("SELECT count(*) FROM journal").fetchone()[0]
    return count
