"""Whether two worker processes do twice the work of one, with an agent that takes its time."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from turnlane import event_loop
from turnlane.testing.bench.engine import conversations, engine, message, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale
from turnlane.testing.bench.witness import WrongResult

START_SECONDS_MAX = 60.0
ARRIVALS_PER_CALL = 500


def workers(scale: Scale, ground: Ground) -> Iterator[Sample]:
    one = _turns_per_second(1, scale, ground.store("one-worker"))
    two = _turns_per_second(2, scale, ground.store("two-workers"))
    yield Sample("workers.2", two / one, {"turns_per_second_one": one, "turns_per_second_two": two})


def _turns_per_second(count: int, scale: Scale, url: str) -> float:
    """Of processes that start together on lanes that all wait."""
    event_loop.run(_fill(url, scale.workers_lanes))
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(count)
    pipes = [spawn.Pipe(duplex=False) for _ in range(count)]
    started = [spawn.Process(target=_process, args=(url, scale, barrier, answer), daemon=True) for _, answer in pipes]
    try:
        for process in started:
            process.start()
        runs = [run for question, _ in pipes for run in _answer_of(question)]
    finally:
        for process, (question, answer) in zip(started, pipes, strict=True):
            process.kill()
            process.join()
            question.close()
            answer.close()
    if len(runs) != scale.workers_lanes:
        raise WrongResult(f"{scale.workers_lanes} messages were said and {len(runs)} run")
    return len(runs) / (max(ended for _, ended in runs) - min(began for began, _ in runs))


def _answer_of(question: Connection) -> list[tuple[float, float]]:
    if not question.poll(START_SECONDS_MAX * 2):
        raise WrongResult("a worker did not finish")
    answer = question.recv()
    if isinstance(answer, Exception):
        raise answer
    runs: list[tuple[float, float]] = answer
    return runs


async def _fill(url: str, lanes: int) -> None:
    async with engine(url, policy()) as filling:
        arrivals = [message(conversation, 1) for conversation in conversations(lanes)]
        for first in range(0, lanes, ARRIVALS_PER_CALL):
            await filling.say_all(arrivals[first : first + ARRIVALS_PER_CALL])


def _process(url: str, scale: Scale, barrier: multiprocessing.synchronize.Barrier, answer: Connection) -> None:
    try:
        answer.send(event_loop.run(_work(url, scale, barrier)))
    except Exception as error:  # noqa: BLE001 - told to the one that started us
        answer.send(error)


async def _work(url: str, scale: Scale, barrier: multiprocessing.synchronize.Barrier) -> list[tuple[float, float]]:
    async with engine(url, policy(), hold_seconds=scale.workers_seconds, listens=False) as ours:
        barrier.wait(START_SECONDS_MAX)
        async with ours.working(scale.workers_slots):
            until = time.perf_counter() + START_SECONDS_MAX
            while (await ours.backend.counts()).messages_waiting and time.perf_counter() < until:  # noqa: ASYNC110 - the other process may run the last one
                await asyncio.sleep(0.05)
        return [(run.began, run.ended) for run in ours.witness.record.runs]
