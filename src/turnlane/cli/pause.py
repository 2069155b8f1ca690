"""`turnlane pause`: start nothing more in a conversation, and keep what is said meanwhile."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.flow import steer
from turnlane.model.lane import Kind
from turnlane.model.view import LaneView
from turnlane.settings import Settings


@click.command()
@click.argument("conversation")
@click.option("--outbox", is_flag=True, help="Hold what is sent instead: turns go on, replies wait.")
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str, outbox: bool, as_json: bool) -> None:
    """Start no more turns in CONVERSATION until it is resumed. What is said meanwhile is kept."""
    key = common.conversation_named(conversation)
    lane = asyncio.run(_pause(given.load(), key, Kind.OUT if outbox else Kind.TURN))
    if as_json:
        common.echo_json({"lane": lane})
        return
    click.echo(f"paused: {_what(lane)}; `turnlane resume {key}{' --outbox' if outbox else ''}` goes on")
    if lane.owner is not None:
        click.echo(f"what worker {lane.owner} has begun goes on to its end", err=True)


async def _pause(settings: Settings, key: str, kind: Kind) -> LaneView:
    async with common.opened(settings) as backend:
        return await steer.pause(backend, key, kind)


def _what(lane: LaneView) -> str:
    what = "sending" if lane.kind is Kind.OUT else "turns"
    return f"{what} of {lane.conversation}, {lane.pending} waiting"
