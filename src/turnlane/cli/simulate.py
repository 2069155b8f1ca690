"""`turnlane simulate`: histories that could happen to a store, in virtual time; or to your bot, or live."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import click
from click.core import ParameterSource

from turnlane.cli import common
from turnlane.cli.storm import ONLY as LIVE_ONLY
from turnlane.cli.storm import Asked, misplaced, storms
from turnlane.cli.storm import storm as run_storm
from turnlane.cli.table import Column, echo_table, took
from turnlane.clock import SystemClock
from turnlane.settings import Duration
from turnlane.testing.simulation import BROKEN_MAX, STEPS, Broken, History, side_by_side, simulate_many, throwaway

SEEDS_AT_ONCE = 25
ENGINE_ONLY = {
    "seeds": "--seeds",
    "first_seed": "--first-seed",
    "steps": "--steps",
    "backend": "--backend",
    "beside": "--beside",
    "jobs": "--jobs",
}
BOT_ONLY = {"lasts": "--for", "processes": "--processes", "say": "--say"}


class Lasting(click.ParamType[Duration]):
    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        try:
            return Duration.parse(value)
        except ValueError:
            self.fail(f'{value!r} is no duration; write one with its unit, like "90s" or "5m"', param, ctx)


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
    help="memory://, sqlite:// (a throwaway file for each history), or a postgresql:// or nats:// server.",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="URL",
    help="Live through each history on this store, too, and compare after every step. May be given several times.",
)
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes to share the work.")
@click.option("--bot", metavar="MODULE:BOT", help="Try this bot instead: shop.bot:bot, or a settings file.")
@click.option(
    "--for", "lasts", type=Lasting(), default="20s", show_default=True, metavar="TIME", help="With --bot: how long."
)
@click.option(
    "--processes",
    type=click.IntRange(0, 64),
    default=3,
    show_default=True,
    help="With --bot: how many there are to be killed, frozen and stopped. 0: only workers inside are cut off.",
)
@click.option("--say", multiple=True, metavar="TEXT", help="With --bot: what people say. May be given several times.")
@storms
@common.as_json
@click.pass_context
def command(
    ctx: click.Context,
    seeds: int,
    first_seed: int,
    seed: int | None,
    steps: int,
    backend: str,
    beside: tuple[str, ...],
    jobs: int,
    bot: str | None,
    lasts: Duration,
    processes: int,
    say: tuple[str, ...],
    storm: Asked,
    as_json: bool,
) -> None:
    """Try to break the engine: crashes, freezes past the lease, lost and doubled calls, clock jumps.

    Every history is decided by its seed and checked after every step. Exits with 1 if one broke a promise.

    With --bot it is a bot of your own that is tried: processes of it share a throwaway file, and are killed, frozen
    and stopped while people write. Its own store is not opened and a witness stands in for its channels; its agents run
    for real.

    With --live customers storm a real instance, so that there is something to see: one of its own on a throwaway file,
    which is judged in the end, or with --url one that runs.
    """
    _refuse_misplaced(ctx, bot, storm)
    if storm.live:
        ctx.exit(run_storm(ctx, storm, seed=seed, as_json=as_json))
    if bot is not None:
        from turnlane.cli.break_bot import break_bot
        from turnlane.testing.chaos import Plan

        plan = Plan(seed=1 if seed is None else seed, seconds=lasts.seconds, processes=processes, texts=say)
        ctx.exit(break_bot(bot, plan, as_json=as_json))
    if beside and backend != "memory://":
        raise click.UsageError(
            "--beside compares with memory://; name both stores with --beside, and no --backend", ctx
        )
    stores = (backend, *beside)
    for store in stores:
        throwaway(store)  # refuses, before any work is shared out, what may hold somebody's data
    clock = SystemClock()
    started = clock.monotonic()
    chosen = range(seed, seed + 1) if seed is not None else range(first_seed, first_seed + seeds)
    history = _simulate(_parts(chosen), steps, stores, jobs)
    seconds = clock.monotonic() - started
    if as_json:
        common.echo_json(_shown(history, _named(stores), seconds))
    else:
        _tell(history, _named(stores), seconds)
    ctx.exit(1 if history.broken else 0)


def _refuse_misplaced(ctx: click.Context, bot: str | None, storm: Asked) -> None:
    """What would be ignored is refused instead."""
    if bot is not None and storm.live:
        raise click.UsageError("--bot and --live are two things to do; leave one of them out", ctx)
    chosen = "--bot" if bot is not None else "--live" if storm.live else None
    for of, options in ((None, ENGINE_ONLY), ("--bot", BOT_ONLY), ("--live", LIVE_ONLY)):
        for name, option in options.items() if of != chosen else ():
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                only = f"is only for {of}" + ("; name one" if of == "--bot" else "")
                reason = f"is not for {chosen}; leave one of them out" if chosen else only
                raise click.UsageError(f"{option} {reason}", ctx)
    for name in misplaced(storm) if storm.live else ():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            where = (
                "an instance of its own; leave out --url" if storm.url else "an instance that runs; name it with --url"
            )
            raise click.UsageError(f"{LIVE_ONLY[name]} is only for {where}", ctx)


def _parts(seeds: range) -> list[range]:
    return [seeds[start : start + SEEDS_AT_ONCE] for start in range(0, len(seeds), SEEDS_AT_ONCE)]


def _simulate(parts: Sequence[range], steps: int, stores: Sequence[str], jobs: int) -> History:
    total = History()
    with click.progressbar(length=len(parts), file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for history in _histories(parts, steps, stores, jobs):
            total.add(history)
            bar.update(1)
            if len(total.broken) >= BROKEN_MAX:
                break
    return total


def _histories(parts: Sequence[range], steps: int, stores: Sequence[str], jobs: int) -> Iterator[History]:
    if jobs == 1:
        yield from (_live_through(part, steps, stores) for part in parts)
        return
    # A fresh interpreter for each process, so that every history starts from the same state as a replay does.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(_live_through, part, steps, stores) for part in parts]
        try:
            yield from (future.result() for future in as_completed(running))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _live_through(seeds: Iterable[int], steps: int, stores: Sequence[str]) -> History:
    opened = [throwaway(store) for store in stores]
    store = opened[0] if len(opened) == 1 else side_by_side(opened)
    return asyncio.run(simulate_many(store, seeds, steps=steps, name=_named(stores)))


def _named(stores: Sequence[str]) -> str:
    """As they are given after --backend, for a replay."""
    return " --beside ".join(stores)


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
