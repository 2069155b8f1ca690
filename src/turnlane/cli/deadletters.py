"""`turnlane deadletters`: turns that were given up on, and what people had said in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from turnlane.backends import Backend
from turnlane.cli import common
from turnlane.cli.steering import tell
from turnlane.cli.table import Column, echo_table, local_time, one_line, relative
from turnlane.clock import SystemClock
from turnlane.errors import NotFound
from turnlane.flow import failed
from turnlane.flow.steer import Steered
from turnlane.model.explanation import times
from turnlane.model.view import DeadLetter
from turnlane.settings import Settings

T = TypeVar("T")
OnOne = Callable[[Backend, str, int], Awaitable[T]]

COLUMNS = [
    Column("ID"),
    Column("MESSAGES", right=True),
    Column("ATTEMPTS", right=True),
    Column("GIVEN UP", right=True),
    Column("CAUSE"),
]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """Turns that were given up on. Alone it lists them; ID is CONVERSATION#TURN."""


@command.command("list")
@click.option("--conversation", metavar="CONVERSATION", help="Only of this conversation.")
@common.limit
@common.as_json
@common.reads_store
def list_them(given: common.Given, conversation: str | None, limit: int, as_json: bool) -> None:
    """List them, each with its cause."""
    key = common.conversation_named(conversation) if conversation else None
    found = asyncio.run(_dead_letters(given.load(), key, limit))
    if as_json:
        common.echo_json({"dead_letters": found})
        return
    now = SystemClock().now()
    echo_table(COLUMNS, (_row(letter, now) for letter in found), nothing="no dead letters")


@command.command("show")
@click.argument("id")
@common.as_json
@common.reads_store
def show_one(given: common.Given, id: str, as_json: bool) -> None:
    """Show one in full: why it was given up on, and its messages."""
    letter = asyncio.run(_dead_letter(given.load(), id))
    if as_json:
        common.echo_json(letter)
    else:
        _tell(letter)


@command.command("retry")
@click.argument("id")
@common.as_json
@common.reads_store
def retry_one(given: common.Given, id: str, as_json: bool) -> None:
    """Run its messages again, as a new turn, after what already waits in the conversation."""
    _steer(failed.retry_dead_letter, given, id, "its messages wait again", as_json=as_json)


@command.command("drop")
@click.argument("id")
@common.as_json
@common.reads_store
def drop_one(given: common.Given, id: str, as_json: bool) -> None:
    """Keep it no longer: it is not listed any more, and is forgotten in time."""
    _steer(failed.drop_dead_letter, given, id, "dropped", as_json=as_json)


def _steer(verb: OnOne[Steered], given: common.Given, id: str, words: str, *, as_json: bool) -> None:
    settings = given.load()

    async def steered() -> tuple[Steered, int]:
        async with common.opened(settings) as backend:
            conversation, number = _named(id)
            steered = await verb(backend, conversation, number)
            await common.acted(backend, settings, id, conversation)
            return steered, await common.workers_live(backend, SystemClock().now())

    answer, live = asyncio.run(steered())
    if as_json:
        common.echo_json(answer)
    else:
        tell(words, answer.lane, live)


async def _dead_letter(settings: Settings, id: str) -> DeadLetter:
    async with common.opened(settings) as backend:
        return await failed.dead_letter(backend, *_named(id))


def _named(id: str) -> tuple[str, int]:
    conversation, _, number = id.rpartition("#")
    if not (conversation and number.isascii() and number.isdigit() and len(number) < 19):
        raise NotFound(f"{id!a} is no CONVERSATION#TURN; `turnlane deadletters` lists them")
    return common.conversation_named(conversation), int(number)


async def _dead_letters(settings: Settings, conversation: str | None, limit: int) -> list[DeadLetter]:
    async with common.opened(settings) as backend:
        return await backend.dead_letters(conversation=conversation, limit=limit)


def _row(letter: DeadLetter, now: int) -> tuple[object, ...]:
    turn = letter.turn
    given_up = relative(turn.ended_at, now)
    return (_id(letter), len(letter.messages), turn.attempt, given_up, turn.cause or "")


def _id(letter: DeadLetter) -> str:
    return f"{letter.turn.conversation}#{letter.turn.number}"


def _tell(letter: DeadLetter) -> None:
    turn = letter.turn
    click.secho(_id(letter), bold=True)
    click.echo(f"given up {local_time(turn.ended_at):%Y-%m-%d %H:%M:%S} after {times(turn.attempt)} of {turn.agent}")
    click.secho(f"cause: {one_line(turn.cause or 'not told')}", fg="red")
    click.echo()
    for message in letter.messages:
        click.echo(f"{local_time(message.accepted_at):%H:%M:%S}  {one_line(message.sender)}  {one_line(message.text)}")
