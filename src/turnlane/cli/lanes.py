"""`turnlane lanes`: the conversations, and what each is doing now."""

from __future__ import annotations

import asyncio
from typing import get_args

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, relative, state_colour, took
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind, LaneState
from turnlane.model.view import LaneView
from turnlane.settings import Settings

COLUMNS = [
    Column("CONVERSATION"),
    Column("STATE", colour=state_colour),
    Column("PENDING", right=True),
    Column("TURN", right=True),
    Column("ATTEMPT", right=True),
    Column("AGENT"),
    Column("WHEN"),
]


@click.command()
@click.option("--state", type=click.Choice(get_args(LaneState)), help="Only lanes in this state.")
@click.option("--channel", metavar="NAME", help="Only lanes of this channel.")
@click.option("--kind", type=click.Choice(["turn", "out"]), default="turn", help="Lanes of turns, or of what is sent.")
@common.limit
@common.as_json
@common.reads_store
def command(
    given: common.Given, state: LaneState | None, channel: str | None, kind: str, limit: int, as_json: bool
) -> None:
    """List conversations and what each is doing."""
    found = asyncio.run(_lanes(given.load(), state, channel, Kind[kind.upper()], limit))
    if as_json:
        common.echo_json({"lanes": found})
        return
    now = SystemClock().now()
    echo_table(COLUMNS, (_row(lane, now) for lane in found), nothing=_nothing(state, channel))
    if len(found) == limit:
        click.echo(f"the first {limit}; more with --limit", err=True)


async def _lanes(
    settings: Settings, state: LaneState | None, channel: str | None, kind: Kind, limit: int
) -> list[LaneView]:
    async with common.opened(settings) as backend:
        return await backend.lanes(kind=kind, state=state, channel=channel, limit=limit)


def _row(lane: LaneView, now: int) -> tuple[object, ...]:
    return (lane.conversation, lane.state, lane.pending, lane.number, lane.attempt, lane.agent, _when(lane, now))


def _when(lane: LaneView, now: int) -> str:
    match lane.state:
        case "running" if lane.claimed_at is not None:
            return f"for {took(now - lane.claimed_at)}, by {lane.owner}"
        case "gathering":
            return f"ready {relative(lane.ready_at, now)}"
        case "waiting" if lane.asks:
            return "asks" if lane.retry_at is None else f"asks, no longer than {took(lane.retry_at - now)}"
        case "waiting":
            return f"retried {relative(lane.retry_at, now)}"
        case "paused" if lane.paused_until is not None:
            return f"resumes {relative(lane.paused_until, now)}"
        case "ready" if lane.awaits is not None:
            return f"left to {lane.awaits}, anybody's {relative(lane.awaits_until, now)}"
        case "ready":
            return f"due {relative(lane.due_at, now)}"
    return ""


def _nothing(state: str | None, channel: str | None) -> str:
    if state or channel:
        return "no such lanes"
    return "no conversations yet; `turnlane send web/alice hello` starts one"
