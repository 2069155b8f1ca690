"""`turnlane sessions`: what agents remember of conversations, and to let them begin anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, relative
from turnlane.clock import SystemClock
from turnlane.flow import steer
from turnlane.flow.steer import Steered
from turnlane.model.lane import Kind
from turnlane.model.usage import written_cost
from turnlane.model.view import SessionView
from turnlane.settings import Settings

COLUMNS = [
    Column("CONVERSATION"),
    Column("AGENT"),
    Column("TURNS", right=True),
    Column("TOKENS", right=True),
    Column("COST", right=True),
    Column("USED", right=True),
    Column("MACHINE"),
    Column("SESSION"),
]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """What agents remember of conversations. Alone it lists them, those used last at first."""


@command.command("list")
@click.option("--agent", help="Of this agent alone.")
@common.limit
@common.as_json
@common.reads_store
def list_them(given: common.Given, agent: str | None, limit: int, as_json: bool) -> None:
    """List sessions: how many turns they had, what was spent in them, and where they are if on one machine alone."""
    _show(asyncio.run(_sessions(given.load(), agent, limit)), "no agent remembers anything yet", as_json=as_json)


@command.command("show")
@click.argument("conversation")
@common.as_json
@common.reads_store
def show_one(given: common.Given, conversation: str, as_json: bool) -> None:
    """Show the sessions of one conversation."""
    key = common.conversation_named(conversation)
    _show(asyncio.run(_sessions_of(given.load(), key)), f"no agent remembers {key}", as_json=as_json)


@command.command("forget")
@click.argument("conversation")
@common.as_json
@common.reads_store
def forget_one(given: common.Given, conversation: str, as_json: bool) -> None:
    """Let the next turn of a conversation begin a session of its own, as /new does."""
    key = common.conversation_named(conversation)
    steered = asyncio.run(_renewed(given.load(), key))
    if as_json:
        common.echo_json(steered)
    else:
        click.echo(f"the next turn of {key} begins a new session" if steered.done else f"no agent remembers {key}")


def _show(found: Sequence[SessionView], nothing: str, *, as_json: bool) -> None:
    if as_json:
        common.echo_json({"sessions": found})
        return
    now = SystemClock().now()
    echo_table(COLUMNS, (_row(session, now) for session in found), nothing=nothing)


async def _sessions(settings: Settings, agent: str | None, limit: int) -> Sequence[SessionView]:
    async with common.opened(settings) as backend:
        return await backend.sessions(agent=agent, limit=limit)


async def _sessions_of(settings: Settings, key: str) -> Sequence[SessionView]:
    async with common.opened(settings) as backend:
        await steer.lane_of(backend, key, Kind.TURN)
        story = await backend.story(key, limit=1)
    sessions = {} if story is None else story.sessions
    return [SessionView.of(key, agent, session) for agent, session in sorted(sessions.items())]


async def _renewed(settings: Settings, key: str) -> Steered:
    async with common.opened(settings) as backend:
        steered = await steer.renew(backend, key)
        await common.acted(backend, settings, key, key)
        return steered


def _row(session: SessionView, now: int) -> list[object]:
    spent = session.usage
    return [
        session.conversation,
        session.agent,
        session.turns,
        f"{spent.tokens:,}",
        written_cost(spent.cost),
        relative(session.updated_at, now),
        session.machine or "any",
        session.handle,
    ]
