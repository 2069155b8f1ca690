"""`turnlane workers`: who runs turns and sends replies, and on which machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, relative, state_colour
from turnlane.clock import SystemClock
from turnlane.model.view import WorkerView
from turnlane.settings import Settings

COLUMNS = [
    Column("WORKER"),
    Column("MACHINE"),
    Column("STATE", colour=state_colour),
    Column("LANES", right=True),
    Column("ALIVE UNTIL"),
]


@click.command()
@click.option("--all", "everybody", is_flag=True, help="Those too that have left or were lost.")
@common.as_json
@common.reads_store
def command(given: common.Given, everybody: bool, as_json: bool) -> None:
    """List workers and the machines they run on."""
    now = SystemClock().now()
    found = [worker for worker in asyncio.run(_workers(given.load())) if everybody or worker.live]
    if as_json:
        common.echo_json({"workers": found})
        return
    echo_table(COLUMNS, (_row(worker, now) for worker in found), nothing="no worker is live; `turnlane run` starts one")


async def _workers(settings: Settings) -> Sequence[WorkerView]:
    async with common.opened(settings) as backend:
        return await backend.workers()


def _row(worker: WorkerView, now: int) -> tuple[object, ...]:
    # Once its term is over it is lost, whether or not somebody has noticed.
    state = "gone" if not worker.live else "live" if worker.alive_until >= now else "lost"
    return worker.id, worker.machine, state, worker.lanes, relative(worker.alive_until, now)
