"""`turnlane simulate`: histories that could happen to a store, in virtual time, each replayed from its seed."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, took
from turnlane.clock import SystemClock
from turnlane.testing.simulation import BROKEN_MAX, STEPS, Broken, History, simulate_many, throwaway

SEEDS_AT_ONCE = 25


@click.command()
@click.option("--seeds", type=click.IntRange(1, 10_000_000), default=100, show_default=True, help="How many histories.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="Where to start counting.")
@click.option("--seed", type=click.IntRange(0), help="Only this one: replays what broke.")
@click.option("--steps", type=click.IntRange(1, 1_000_000), default=STEPS, show_default=True, help="Length of each.")
@click.option(
    "--backend",
    default="memory://",
    show_default=True,
    metavar="URL",
    help="memory:// or sqlite:// (a throwaway file for each history).",
)
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes to share the work.")
@common.as_json
@click.pass_context
def command(
    ctx: click.Context,
    seeds: int,
    first_seed: int,
    seed: int | None,
    steps: int,
    backend: str,
    jobs: int,
    as_json: bool,
) -> None:
    """Try to break the engine: crashes, freezes past the lease, lost and doubled calls, clock jumps.

    Every history is decided by its seed and checked after every step. Exits with 1 if one broke a promise.
    """
    throwaway(backend)  # refuses, before any work is shared out, what may hold somebody's data
    clock = SystemClock()
    started = clock.monotonic()
    chosen = range(seed, seed + 1) if seed is not None else range(first_seed, first_seed + seeds)
    history = _simulate(_parts(chosen), steps, backend, jobs)
    seconds = clock.monotonic() - started
    if as_json:
        common.echo_json(_shown(history, backend, seconds))
    else:
        _tell(history, backend, seconds)
    ctx.exit(1 if history.broken else 0)


def _parts(seeds: range) -> list[range]:
    return [seeds[start : start + SEEDS_AT_ONCE] for start in range(0, len(seeds), SEEDS_AT_ONCE)]


def _simulate(parts: Sequence[range], steps: int, backend: str, jobs: int) -> History:
    total = History()
    with click.progressbar(length=len(parts), file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for history in _histories(parts, steps, backend, jobs):
            total.add(history)
            bar.update(1)
            if len(total.broken) >= BROKEN_MAX:
                break
    return total


def _histories(parts: Sequence[range], steps: int, backend: str, jobs: int) -> Iterator[History]:
    if jobs == 1:
        yield from (_live_through(part, steps, backend) for part in parts)
        return
    # A fresh interpreter for each process, so that every history starts from the same state as a replay does.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(_live_through, part, steps, backend) for part in parts]
        try:
            yield from (future.result() for future in as_completed(running))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _live_through(seeds: Iterable[int], steps: int, backend: str) -> History:
    return asyncio.run(simulate_many(throwaway(backend), seeds, steps=steps, name=backend))


def _shown(history: History, backend: str, seconds: float) -> dict[str, object]:
    return {
        "backend": backend,
        "seeds": history.seeds,
        "steps": history.steps,
        "took_ms": round(seconds * 1_000),
        "happened": dict(sorted(history.tally.items())),
        "broken": [_broken(each) for each in history.broken],
    }


def _broken(broken: Broken) -> dict[str, object]:
    return {"seed": broken.seed, "why": broken.why, "trace": list(broken.trace), "replay": broken.replay}


def _tell(history: History, backend: str, seconds: float) -> None:
    rows = [(what, f"{count:,}", f"{count / history.seeds:.1f}") for what, count in history.tally.most_common()]
    columns = [Column("HAPPENED"), Column("TIMES", right=True), Column("PER SEED", right=True)]
    echo_table(columns, rows, nothing="nothing happened")
    click.echo()
    for broken in history.broken:
        click.secho(f"seed {broken.seed} broke a promise: {broken.why}", fg="red")
        for line in broken.trace:
            click.echo(f"  {line}")
        click.secho(f"replay it: {broken.replay}\n", bold=True)
    verdict = f"{len(history.broken)} broken" if history.broken else "no promise broken"
    summary = f"{history.seeds:,} histories, {history.steps:,} steps on {backend} in {took(seconds * 1_000)}: {verdict}"
    click.secho(summary, fg="red" if history.broken else "green")
