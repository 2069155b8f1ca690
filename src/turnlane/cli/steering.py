"""What the verbs that steer one conversation share: what they are given, and how they tell what came of it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

import click

from turnlane.cli import common
from turnlane.cli.table import local_time
from turnlane.clock import SystemClock
from turnlane.flow.steer import Steered
from turnlane.model.explanation import steering_command
from turnlane.model.lane import Kind
from turnlane.model.view import LaneView
from turnlane.settings import Settings

Steer = Callable[..., Awaitable[Steered]]
"""Called with the backend, the conversation and the kind of lane, and `until` if it lasts."""


def steers(
    steer: Steer, *, outbox: str | None = None, lasts: str | None = None
) -> Callable[[Callable[[Steered], str]], click.Command]:
    """Make a verb of a function that puts what was done in a few words. `outbox`, `lasts`: help for --outbox and --for,
    if it has them."""

    def made(words: Callable[[Steered], str]) -> click.Command:
        @functools.wraps(words)
        def verb(
            given: common.Given, conversation: str, as_json: bool, outbox: bool = False, ms: int | None = None
        ) -> None:
            key = common.conversation_named(conversation)
            verb = steer if ms is None else functools.partial(steer, until=SystemClock().now() + ms)
            steered, live = asyncio.run(_steered(verb, given.load(), key, Kind.OUT if outbox else Kind.TURN))
            if as_json:
                common.echo_json(steered)
            else:
                tell(words(steered), steered.lane, live)

        options = [click.argument("conversation"), common.as_json, common.reads_store]
        if outbox is not None:
            options.insert(1, click.option("--outbox", is_flag=True, help=outbox))
        if lasts is not None:
            options.insert(1, click.option("--for", "ms", callback=common.milliseconds, metavar="DURATION", help=lasts))
        for option in reversed(options):
            verb = option(verb)
        return click.command()(verb)

    return made


async def _steered(steer: Steer, settings: Settings, key: str, kind: Kind) -> tuple[Steered, int]:
    async with common.opened(settings) as backend:
        steered = await steer(backend, key, kind)
        await common.acted(backend, settings, key, key)
        return steered, await common.workers_live(backend, SystemClock().now())


def tell(words: str, lane: LaneView, live: int) -> None:
    what, left = ("", "answered") if lane.kind is Kind.TURN else ("sending of ", "sent")
    until = "" if lane.paused_until is None else f" until {local_time(lane.paused_until):%Y-%m-%d %H:%M:%S}"
    click.echo(f"{words}: {what}{lane.conversation} is {lane.state}{until}, {lane.pending} to be {left}")
    tell_what_it_waits_for(lane, live)


def tell_what_it_waits_for(lane: LaneView, live: int) -> None:
    if lane.state in ("paused", "parked"):
        click.echo(
            f"`{steering_command('resume', lane)}` lets it go on{' sooner' if lane.paused_until else ''}", err=True
        )
    elif lane.asks:
        click.echo(f"`turnlane answer {lane.conversation} TEXT` answers what it asks", err=True)
    elif (lane.pending or lane.owner is not None) and not live:
        click.echo("no worker is running; `turnlane run` goes on with it", err=True)
    elif lane.is_ending:
        click.echo(f"worker {lane.owner} is stopping what it has begun; nothing else starts before", err=True)
    elif lane.owner is not None:
        click.echo(f"what worker {lane.owner} has begun goes on to its end", err=True)
