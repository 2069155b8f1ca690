"""`turnlane policy`: what one conversation does with messages that come while a turn runs, whatever its route says."""

from __future__ import annotations

import asyncio
from typing import get_args

import click

from turnlane.cli import common
from turnlane.flow import steer
from turnlane.flow.steer import Steered
from turnlane.model.lane import Kind
from turnlane.model.policy import OnBusy
from turnlane.settings import Settings

DEFAULT = "default"


@click.command()
@click.argument("conversation")
@click.option(
    "--on-busy",
    type=click.Choice([*get_args(OnBusy), DEFAULT]),
    help="What becomes of a message that comes while a turn runs. `default`: as the route says.",
)
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str, on_busy: OnBusy | str | None, as_json: bool) -> None:
    """Set how CONVERSATION alone behaves, until it is changed back; without an option, say how it does.

    It holds from now on, also for a turn that runs.
    """
    steered = asyncio.run(_steered(given.load(), common.conversation_named(conversation), on_busy))
    if as_json:
        common.echo_json(steered)
    else:
        lane = steered.lane
        click.echo(f"{lane.conversation}: on_busy = {lane.on_busy or 'as its route says'}")


async def _steered(settings: Settings, key: str, on_busy: str | None) -> Steered:
    async with common.opened(settings) as backend:
        if on_busy is None:
            return Steered(await steer.lane_of(backend, key, Kind.TURN), done=False)
        chosen = next((each for each in get_args(OnBusy) if each == on_busy), None)
        steered = await steer.behave(backend, key, chosen)
        await common.acted(backend, settings, f"{key} --on-busy {on_busy}", key)
        return steered
