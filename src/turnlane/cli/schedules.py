"""`turnlane schedules`: what is said by the clock, in which conversation, and when next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

import click

from turnlane.backends import Backend
from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, local_time, one_line, relative, state_colour
from turnlane.clock import SystemClock
from turnlane.errors import InvalidSchedule
from turnlane.flow import schedule as flow
from turnlane.live_settings import LiveSettings
from turnlane.model.message import channel_of
from turnlane.model.schedule import MISSED_MAX, Missed, Schedule
from turnlane.model.view import ScheduleView
from turnlane.settings import Duration, Settings, policy_for

OnOne = Callable[[Backend, str], Awaitable[ScheduleView]]

COLUMNS = [
    Column("NAME"),
    Column("WHEN"),
    Column("CONVERSATION"),
    Column("STATE", colour=state_colour),
    Column("NEXT", right=True),
    Column("LAST", right=True),
    Column("BY"),
    Column("PROMPT"),
]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """Wake an agent by the clock. Alone it lists the schedules; NAME is one of them."""


@command.command("list")
@common.as_json
@common.reads_store
def list_them(given: common.Given, as_json: bool) -> None:
    """List them: when each is due next, and when it was last said."""
    found = asyncio.run(_all(given.load()))
    if as_json:
        common.echo_json({"schedules": found})
        return
    now = SystemClock().now()
    nothing = "no schedules; `turnlane schedules add NAME CONVERSATION PROMPT --every 15m` adds one"
    echo_table(COLUMNS, (_row(view, now) for view in found), nothing=nothing)


@command.command("add")
@click.argument("name")
@click.argument("conversation")
@click.argument("prompt")
@click.option("--cron", metavar="FIELDS", help='Five fields, like "0 9 * * mon-fri", or a word like @daily.')
@click.option("--zone", default="UTC", show_default=True, metavar="ZONE", help="Time zone of --cron.")
@click.option("--every", "every_ms", callback=common.milliseconds, metavar="DURATION", help="Instead: like 15m or 1h.")
@click.option(
    "--missed",
    type=click.Choice(get_args(Missed)),
    default="once",
    show_default=True,
    help="Which of the times at which nobody ran are said late.",
)
@click.option("--missed-max", default=MISSED_MAX, show_default=True, metavar="N", help='How many, with "all".')
@common.as_json
@common.reads_store
def add_one(given: common.Given, name: str, conversation: str, prompt: str, as_json: bool, **when: object) -> None:
    """Say PROMPT in CONVERSATION by the clock. A NAME that is there already is changed."""
    schedule = Schedule(name, common.conversation_named(conversation), prompt, **when)  # type: ignore[arg-type]  # by click
    if not all(map(common.is_utf8, (name, prompt))):
        raise InvalidSchedule("the prompt is not valid UTF-8; set the terminal to UTF-8 and type it again")
    schedule.check()
    settings = given.load()
    channel = channel_of(schedule.conversation)
    policy_for(settings, channel)  # no store is made for a channel that is not there

    async def add(backend: Backend, name: str) -> ScheduleView:
        in_force = await LiveSettings(backend, settings).look()
        return await flow.add(backend, schedule, policy_for(in_force, channel))

    _decide(add, settings, name, "set", as_json=as_json, create=True)


@command.command("remove")
@click.argument("name")
@common.as_json
@common.reads_store
def remove_one(given: common.Given, name: str, as_json: bool) -> None:
    """Say it no more, and forget it."""
    _decide(flow.remove, given.load(), name, "removed", as_json=as_json)


@command.command("fire")
@click.argument("name")
@common.as_json
@common.reads_store
def fire_one(given: common.Given, name: str, as_json: bool) -> None:
    """Say it now, once; its times go on as they are."""

    async def fire(backend: Backend, name: str) -> ScheduleView:
        return await flow.fire(backend, name, SystemClock().now())

    _decide(fire, given.load(), name, "said now", as_json=as_json)


@command.command("pause")
@click.argument("name")
@common.as_json
@common.reads_store
def pause_one(given: common.Given, name: str, as_json: bool) -> None:
    """Say it no more until it is resumed, also after a restart."""
    _decide(flow.pause, given.load(), name, "paused", as_json=as_json)


@command.command("resume")
@click.argument("name")
@common.as_json
@common.reads_store
def resume_one(given: common.Given, name: str, as_json: bool) -> None:
    """Let it go on, from its next time; what passed meanwhile is not said."""
    _decide(flow.resume, given.load(), name, "goes on", as_json=as_json)


def _decide(verb: OnOne, settings: Settings, name: str, words: str, *, as_json: bool, create: bool = False) -> None:
    async def decided() -> tuple[ScheduleView, int]:
        async with common.opened(settings, create=create) as backend:
            view = await verb(backend, name)
            await common.acted(backend, settings, name, view.conversation)
            return view, await common.workers_live(backend, SystemClock().now())

    view, live = asyncio.run(decided())
    if as_json:
        common.echo_json(view)
        return
    click.echo(f"{words}: {view.name} ({_when(view)}) in {view.conversation}: {one_line(view.prompt)}")
    if words == "removed":
        return
    if view.state in {"paused", "parked"}:
        click.echo(f"`turnlane schedules resume {view.name}` lets it go on", err=True)
    elif view.next_at is not None:
        ahead = relative(view.next_at, SystemClock().now())
        click.echo(f"next at {local_time(view.next_at):%Y-%m-%d %H:%M:%S}, {ahead}")
        if not live:
            click.echo("no worker is running; `turnlane run` goes on with it", err=True)


async def _all(settings: Settings) -> list[ScheduleView]:
    async with common.opened(settings) as backend:
        return await backend.schedules()


def _when(view: ScheduleView) -> str:
    if view.every_ms is not None:
        return f"every {Duration(view.every_ms)}"
    return f"{view.cron} {view.zone}"


def _row(view: ScheduleView, now: int) -> tuple[object, ...]:
    times = (relative(view.next_at, now), relative(view.fired_at, now))
    return (view.name, _when(view), view.conversation, view.state, *times, view.by, view.prompt)
