"""`turnlane outbox`: what is to be sent, was sent, or could not be."""

from __future__ import annotations

import asyncio
from typing import get_args

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, relative, state_colour
from turnlane.clock import SystemClock
from turnlane.model.delivery import DeliveryState
from turnlane.model.view import DeliveryView
from turnlane.settings import Settings

COLUMNS = [
    Column("CONVERSATION"),
    Column("SEQ", right=True),
    Column("STATE", colour=state_colour),
    Column("ATTEMPT", right=True),
    Column("QUEUED", right=True),
    Column("TEXT"),
]


@click.command()
@click.option(
    "--state", type=click.Choice(get_args(DeliveryState)), default="queued", show_default=True, help="Which to list."
)
@common.limit
@common.as_json
@common.reads_store
def command(given: common.Given, state: DeliveryState, limit: int, as_json: bool) -> None:
    """What is to be sent (queued), was sent, or was given up on (failed)."""
    found = asyncio.run(_outbox(given.load(), state, limit))
    if as_json:
        common.echo_json({"deliveries": found})
        return
    now = SystemClock().now()
    echo_table(COLUMNS, (_row(delivery, now) for delivery in found), nothing=f"nothing {state}")


async def _outbox(settings: Settings, state: DeliveryState, limit: int) -> list[DeliveryView]:
    async with common.opened(settings) as backend:
        return await backend.outbox(state=state, limit=limit)


def _row(delivery: DeliveryView, now: int) -> tuple[object, ...]:
    text = f"[{delivery.cause}] {delivery.text}" if delivery.cause and delivery.state != "sent" else delivery.text
    queued = relative(delivery.queued_at, now)
    return (delivery.conversation, delivery.seq, delivery.state, delivery.attempt, queued, text)
