"""W7: several processes on one file, each of which accepts its share of the burst and works."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from turnlane import event_loop
from turnlane.app import tune_collector
from turnlane.testing.bench.burst import say_everything
from turnlane.testing.bench.engine import Engine, conversations, engine, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale
from turnlane.testing.bench.witness import Record, WrongResult, check

START_SECONDS_MAX = 60.0
RUN_SECONDS_MAX = 180.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Share:
    """What one process did."""

    said: dict[str, list[str]]
    began: float
    accepted: float
    settled: float
    record: Record

    @property
    def accepts_per_second(self) -> float:
        return sum(map(len, self.said.values())) / (self.accepted - self.began)


def processes(scale: Scale, ground: Ground) -> Iterator[Sample]:
    alone = _rate(_together(1, scale, ground.store("alone")))
    for count in scale.processes:
        shares = _together(count, scale, ground.store(f"together-{count}"))
        speeds = sorted(share.accepts_per_second for share in shares)
        detail = {"messages_per_second": _rate(shares), "messages_per_second_alone": alone}
        runs = sorted(len(share.record.runs) for share in shares)
        yield Sample(f"processes.{count}.fair", speeds[0] / speeds[-1], {"least_turns_over_most": runs[0] / runs[-1]})
        yield Sample(f"processes.{count}.total", _rate(shares) / alone, detail)


def _rate(shares: Sequence[Share]) -> float:
    messages = sum(len(origins) for share in shares for origins in share.said.values())
    return messages / (max(share.settled for share in shares) - min(share.began for share in shares))


def _together(count: int, scale: Scale, url: str) -> list[Share]:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(count)
    pipes = [spawn.Pipe(duplex=False) for _ in range(count)]
    started = [
        spawn.Process(target=_process, args=(number, count, scale, url, barrier, answer), daemon=True)
        for number, (_, answer) in enumerate(pipes)
    ]
    try:
        for process in started:
            process.start()
        shares = [_answer_of(question) for question, _ in pipes]
    finally:
        for process, (question, answer) in zip(started, pipes, strict=True):
            process.kill()
            process.join()
            question.close()
            answer.close()
    check([share.record for share in shares], {key: said for share in shares for key, said in share.said.items()})
    return shares


def _answer_of(question: Connection) -> Share:
    if not question.poll(START_SECONDS_MAX + RUN_SECONDS_MAX):
        raise WrongResult("a process did not finish its share; run with --only W1 to see whether one alone does")
    share = question.recv()
    if not isinstance(share, Share):
        raise WrongResult(f"a process failed: {share}")
    return share


def _process(number: int, count: int, scale: Scale, url: str, barrier: Barrier, answer: Connection) -> None:
    tune_collector()
    try:
        answer.send(event_loop.run(_share(number, count, scale, url, barrier)))
    except Exception as error:  # noqa: BLE001 - the process that waits is told, and raises it
        barrier.abort()
        answer.send(f"{type(error).__name__}: {error}")


async def _share(number: int, count: int, scale: Scale, url: str, barrier: Barrier) -> Share:
    async with engine(url, policy()) as ours, ours.working(scale.slots_many):
        keys = conversations(scale.conversations)[number::count]
        await asyncio.to_thread(barrier.wait, START_SECONDS_MAX)
        began = time.perf_counter()
        await say_everything(ours, keys, messages=scale.messages, callers=max(1, scale.callers // count))
        accepted = time.perf_counter()
        await asyncio.to_thread(barrier.wait, RUN_SECONDS_MAX)
        await _nothing_waits(ours)
        return Share(ours.said, began, accepted, ours.witness.last_settled, ours.witness.record)


async def _nothing_waits(ours: Engine) -> None:
    async with asyncio.timeout(RUN_SECONDS_MAX):
        while (counts := await ours.backend.counts()).messages_waiting or counts.deliveries_waiting:
            await ours.backend.changed(LOOK_SECONDS)
