"""`turnlane deadletters`: turns that were given up on, and what people had said in them."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table, local_time, one_line, relative
from turnlane.clock import SystemClock
from turnlane.errors import NotFound
from turnlane.model.view import DeadLetter
from turnlane.settings import Settings

COLUMNS = [
    Column("ID"),
    Column("MESSAGES", right=True),
    Column("ATTEMPTS", right=True),
    Column("GIVEN UP", right=True),
    Column("CAUSE"),
]


class ListUnlessTold(click.Group):
    """Without a word of its own the verb means `list`, options and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListUnlessTold)
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
    conversation, _, number = id.rpartition("#")
    key = common.conversation_named(conversation)
    found = asyncio.run(_dead_letters(given.load(), key, limit=1_000_000))
    letter = next((each for each in found if str(each.turn.number) == number), None)
    if letter is None:
        raise NotFound(f"no dead letter {id!r}; `turnlane deadletters` lists them")
    if as_json:
        common.echo_json(letter)
    else:
        _tell(letter)


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
    click.echo(f"given up {local_time(turn.ended_at):%Y-%m-%d %H:%M:%S} after {turn.attempt} attempts of {turn.agent}")
    click.secho(f"cause: {one_line(turn.cause or 'not told')}", fg="red")
    click.echo()
    for message in letter.messages:
        click.echo(f"{local_time(message.accepted_at):%H:%M:%S}  {one_line(message.sender)}  {one_line(message.text)}")
