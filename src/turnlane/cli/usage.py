"""`turnlane usage`: what turns have used, and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, datetime
from typing import get_args

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table
from turnlane.model.usage import By, Sum, day_of_date, summed, written_cost
from turnlane.settings import Settings

NAMES: tuple[By, ...] = get_args(By)
NUMBERS = [
    Column("TURNS", right=True),
    Column("INPUT", right=True),
    Column("CACHED", right=True),
    Column("OUTPUT", right=True),
    Column("REASONING", right=True),
    Column("COST", right=True),
]
DATE = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option("--by", "names", multiple=True, type=click.Choice(NAMES), help="Add up by this (day); may come again.")
@click.option("--since", type=DATE, metavar="DATE", help="From this day on, such as 2026-11-01.")
@click.option("--until", type=DATE, metavar="DATE", help="To this day, which counts.")
@click.option("--channel", help="Of this channel alone.")
@click.option("--user", help="Of this user alone.")
@common.as_json
@common.reads_store
def command(
    given: common.Given,
    names: tuple[By, ...],
    since: datetime | None,
    until: datetime | None,
    channel: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    """What answered turns have used: tokens, and money by the price table. Days are those of universal time."""
    by = names or ("day",)
    found = asyncio.run(_spent(given.load(), by, _day(since), _day(until), channel, user))
    if as_json:
        common.echo_json({"usage": found})
        return
    shown = [name for name in NAMES if name in by]
    columns = [*(Column(name.upper()) for name in shown), *NUMBERS]
    echo_table(columns, [_row(each, shown) for each in found], nothing="nothing was used")


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()


async def _spent(
    settings: Settings, by: Sequence[By], since: date | None, until: date | None, channel: str | None, user: str | None
) -> list[Sum]:
    async with common.opened(settings) as backend:
        spent = await backend.spent(
            since=0 if since is None else day_of_date(since),
            until=None if until is None else day_of_date(until),
            channel=channel,
            user=user,
        )
    return summed(spent, by)


def _row(each: Sum, shown: Sequence[By]) -> list[object]:
    names = [getattr(each, name) or "-" for name in shown]
    counts = (each.turns, each.input_tokens, each.cached_tokens, each.output_tokens, each.reasoning_tokens)
    return [*names, *(f"{count:,}" for count in counts), written_cost(round(each.cost * 1_000_000))]
