"""`turnlane outbox`: what is to be sent, was sent, or could not be; and to send it again, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

import click

from turnlane.backends import Backend
from turnlane.cli import common
from turnlane.cli.steering import tell_what_it_waits_for
from turnlane.cli.table import Column, echo_table, one_line, relative, state_colour
from turnlane.clock import SystemClock
from turnlane.flow import failed, steer
from turnlane.model.delivery import DeliveryState
from turnlane.model.lane import Kind
from turnlane.model.view import DeliveryView, LaneView
from turnlane.settings import Settings

COLUMNS = [
    Column("ID"),
    Column("CONVERSATION"),
    Column("SEQ", right=True),
    Column("STATE", colour=state_colour),
    Column("ATTEMPT", right=True),
    Column("QUEUED", right=True),
    Column("TEXT"),
]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """What leaves, left, or could not. Alone it lists what waits; ID is a delivery's, as listed."""


@command.command("list")
@click.option(
    "--state", type=click.Choice(get_args(DeliveryState)), default="queued", show_default=True, help="Which to list."
)
@common.limit
@common.as_json
@common.reads_store
def list_them(given: common.Given, state: DeliveryState, limit: int, as_json: bool) -> None:
    """List what is to be sent (queued), was sent, was given up on (failed), or dropped."""
    found = asyncio.run(_outbox(given.load(), state, limit))
    if as_json:
        common.echo_json({"deliveries": found})
        return
    now = SystemClock().now()
    echo_table(COLUMNS, (_row(delivery, now) for delivery in found), nothing=f"nothing {state}")
    if len(found) == limit:
        click.echo(f"the first {limit}; more with --limit", err=True)


@command.command("resend")
@click.argument("id")
@common.as_json
@common.reads_store
def resend_one(given: common.Given, id: str, as_json: bool) -> None:
    """Send one again that failed or was dropped, after what already waits; or let one go that is held."""
    _decide(failed.resend, given, id, "waits to be sent", as_json=as_json)


@command.command("drop")
@click.argument("id")
@common.as_json
@common.reads_store
def drop_one(given: common.Given, id: str, as_json: bool) -> None:
    """Do not send it, and list it no longer; what is behind it goes on. One that just leaves may still arrive."""
    _decide(failed.drop, given, id, "dropped", as_json=as_json)


def _decide(
    verb: Callable[[Backend, str], Awaitable[DeliveryView]], given: common.Given, id: str, words: str, *, as_json: bool
) -> None:
    settings = given.load()

    async def decided() -> tuple[DeliveryView, LaneView, int]:
        async with common.opened(settings) as backend:
            delivery = await verb(backend, id)
            await common.acted(backend, settings, id, delivery.conversation)
            lane = await steer.lane_of(backend, delivery.conversation, Kind.OUT)
            return delivery, lane, await common.workers_live(backend, SystemClock().now())

    delivery, lane, live = asyncio.run(decided())
    if as_json:
        common.echo_json(delivery)
        return
    click.echo(f"{words}: delivery {delivery.seq} of {delivery.conversation}: {one_line(delivery.text)}")
    tell_what_it_waits_for(lane, live)


async def _outbox(settings: Settings, state: DeliveryState, limit: int) -> list[DeliveryView]:
    async with common.opened(settings) as backend:
        return await backend.outbox(state=state, limit=limit)


def _row(delivery: DeliveryView, now: int) -> tuple[object, ...]:
    text = f"[{delivery.cause}] {delivery.text}" if delivery.cause and delivery.state != "sent" else delivery.text
    queued = relative(delivery.queued_at, now)
    # How often one that waits was tried is known to its lane alone.
    attempt = "-" if delivery.state == "queued" else delivery.attempt
    return (delivery.id, delivery.conversation, delivery.seq, delivery.state, attempt, queued, text)
