"""`turnlane resume`: let a conversation go on that was paused or parked."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.clock import SystemClock
from turnlane.flow import steer
from turnlane.model.lane import Kind
from turnlane.model.view import LaneView
from turnlane.settings import Settings


@click.command()
@click.argument("conversation")
@click.option("--outbox", is_flag=True, help="Let what is sent go on, instead of turns.")
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str, outbox: bool, as_json: bool) -> None:
    """Let CONVERSATION go on, whether it was paused or parked. What failed before starts with its attempts anew."""
    key = common.conversation_named(conversation)
    lane, live = asyncio.run(_resume(given.load(), key, Kind.OUT if outbox else Kind.TURN))
    if as_json:
        common.echo_json({"lane": lane})
        return
    what, left = (f"sending of {key}", "to be sent") if outbox else (key, "to be answered")
    click.echo(f"resumed: {what} is {lane.state}, {lane.pending} {left}")
    if lane.pending and not live:
        click.echo("no worker is running; `turnlane run` goes on with it", err=True)


async def _resume(settings: Settings, key: str, kind: Kind) -> tuple[LaneView, int]:
    async with common.opened(settings) as backend:
        lane = await steer.resume(backend, key, kind)
        return lane, await common.workers_live(backend, SystemClock().now())
