"""`turnlane bench`: how fast the engine is here, held against the limit of its store measured in the same run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table
from turnlane.testing.bench import FULL, QUICK, WORKLOADS, Figure, Sample, chosen, figures, machine, run
from turnlane.testing.bench.targets import Target, targets_of

COLOURS = {"aim": "green", "must": "green", "not met": "red"}
VERDICTS = {"aim": "aim met", "must": "met"}
EXIT_NOT_MET = 1


@click.command()
@click.option("--quick", is_flag=True, help="Smaller and once: half a minute, for a first look.")
@click.option("--only", default="", metavar="NAMES", help=f"Some of {', '.join(WORKLOADS)}, with commas between.")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often each is repeated. Default: 3; quick: 1.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Where the throwaway files go: put it on the disk you mean. Default: the system's temporary folder.",
)
@click.option(
    "--backend",
    "server",
    metavar="URL",
    help="A postgresql:// or nats:// server to measure, on throwaway stores. Default: SQLite files in the folder.",
)
@common.as_json
@click.pass_context
def command(
    ctx: click.Context,
    quick: bool,
    only: str,
    rounds: int | None,
    folder: Path | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Measure the engine: every figure is a ratio to a limit measured in the same run, next to its target.

    A result that is lost, doubled, out of order or overlapping ends the run. Exits with 1 if a target is not met.
    """
    if server is not None and not server.startswith(("postgresql://", "postgres://", "nats://")):
        raise click.BadParameter("give the postgresql:// or nats:// URL of a server", param_hint="--backend")
    scale = QUICK if quick else FULL
    scale = replace(scale, rounds=rounds or scale.rounds)
    names = chosen(only.split(","))
    found: list[Sample] = []
    with click.progressbar(length=scale.rounds * len(names), file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for _, samples in run(names, scale, folder=folder, server=server):
            found += samples
            bar.update(1)
    results = figures(found, targets_of(server))
    if as_json:
        common.echo_json({"machine": machine(), "rounds": scale.rounds, "quick": quick, "figures": _json(results)})
    else:
        _tell(results)
    ctx.exit(EXIT_NOT_MET if any(figure.missed for figure in results) else 0)


def _json(results: Sequence[Figure]) -> list[dict[str, object]]:
    return [figure.as_json() for figure in results]


def _tell(results: Sequence[Figure]) -> None:
    columns = [
        Column("WORKLOAD"),
        Column("WHAT"),
        Column("MEDIAN", right=True),
        Column("RANGE", right=True),
        Column("UNIT"),
        Column("MUST", right=True),
        Column("AIM", right=True),
        Column("", colour=lambda text: COLOURS.get(text, "green" if "met" in text else None)),
    ]
    echo_table(columns, [_row(figure) for figure in results], nothing="nothing was measured")
    click.echo()
    for figure in results:
        shown = ", ".join(f"{key} {_number(value)}" for key, value in figure.detail.items())
        click.echo(f"{figure.name}: {shown}")
    here = machine()
    click.echo("\n" + ", ".join(f"{key} {value}" for key, value in here.items()))


def _row(figure: Figure) -> Sequence[object]:
    target = figure.target
    return (
        target.workload,
        target.what,
        f"{figure.median:.2f}",
        f"{figure.low:.2f}..{figure.high:.2f}",
        target.unit,
        _bound(target, target.must),
        _bound(target, target.aim),
        VERDICTS.get(figure.reached, figure.reached),
    )


def _bound(target: Target, value: float | None) -> str:
    return "-" if value is None else f"{target.sign} {value:.2f}"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
