"""`turnlane answer`: answer the question that a turn asks, in the person's place."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.errors import NotFound
from turnlane.flow import steer
from turnlane.flow.steer import Steered
from turnlane.settings import Settings


@click.command()
@click.argument("conversation")
@click.argument("text")
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str, text: str, as_json: bool) -> None:
    """Answer the open question of CONVERSATION with TEXT: one of its options, its number, or anything else."""
    key = common.conversation_named(conversation)
    steered = asyncio.run(_answered(given.load(), key, text))
    if not steered.done:
        raise NotFound(f"no turn of {key} waits for an answer; `turnlane show {key}` tells what happened")
    if as_json:
        common.echo_json(steered)
    else:
        click.echo(f"answered: {key} goes on, turn {steered.lane.number}")


async def _answered(settings: Settings, key: str, text: str) -> Steered:
    async with common.opened(settings) as backend:
        steered = await steer.answer(backend, key, text)
        if steered.done:
            await common.acted(backend, settings, key, key)
        return steered
