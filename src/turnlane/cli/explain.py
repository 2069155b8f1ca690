"""`turnlane explain`: what became of one message, step by step, and what it waits for."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.cli.table import local_time, one_line, relative, took
from turnlane.clock import SystemClock
from turnlane.flow import explain
from turnlane.live_settings import LiveSettings
from turnlane.model.explanation import Explanation, Step, Wait
from turnlane.settings import Settings, limits_of

COLOURS = {"attempt": "yellow", "given_up": "red", "superseded": "yellow", "answered": "green", "receipt": "green"}


@click.command()
@click.argument("message", required=False)
@click.option("--conversation", metavar="CONVERSATION", help="Name the message by its place instead: here, and --seq.")
@click.option("--seq", type=click.IntRange(1, 2**63 - 1), metavar="N", help="Its place in the conversation, from 1.")
@common.as_json
@common.reads_store
def command(given: common.Given, message: str | None, conversation: str | None, seq: int | None, as_json: bool) -> None:
    """Tell what became of MESSAGE (CHANNEL:ID, such as web:m-1): each step with its time, and what it waits for."""
    if message is not None and conversation is None and seq is None:
        explained = asyncio.run(_by_id(given.load(), *_id(message)))
    elif message is None and conversation is not None and seq is not None:
        explained = asyncio.run(_by_place(given.load(), common.conversation_named(conversation), seq))
    else:
        raise click.UsageError("name one message: MESSAGE, or both --conversation and --seq")
    if as_json:
        common.echo_json(explained)
    else:
        _tell(explained, SystemClock().now())


def _id(message: str) -> tuple[str, str]:
    channel, colon, origin_id = message.partition(":")
    if not common.is_utf8(message) or not (channel and colon and origin_id):
        raise click.BadParameter(f"{message!a} is no message; write CHANNEL:ID, such as web:m-1")
    return channel, origin_id


async def _by_id(settings: Settings, channel: str, origin_id: str) -> Explanation:
    async with common.opened(settings) as backend:
        backend.limits = limits_of(await LiveSettings(backend, settings).look())
        return await explain.explain(backend, channel, origin_id, now=SystemClock().now())


async def _by_place(settings: Settings, conversation: str, seq: int) -> Explanation:
    async with common.opened(settings) as backend:
        backend.limits = limits_of(await LiveSettings(backend, settings).look())
        return await explain.explain_at(backend, conversation, seq, now=SystemClock().now())


def _tell(explained: Explanation, now: int) -> None:
    message = explained.message
    click.echo(f"{click.style(one_line(message.id), bold=True)}  {one_line(message.sender)}: {one_line(message.text)}")
    day = ""
    for step in explained.steps:
        if day != (day := f"{local_time(step.at):%A, %Y-%m-%d}"):
            click.secho(f"\n{day}", dim=True)
        click.echo(_line(step))
    click.echo()
    if explained.waits is not None:
        _tell_wait(explained.waits, now)
    else:
        whole = took(explained.steps[-1].at - message.accepted_at)
        click.echo(f"{explained.outcome or 'settled'}: all of it took {whole} since it was stored".replace("_", " "))


def _line(step: Step) -> str:
    moment = local_time(step.at)
    later = "" if step.took_ms is None else f"+{took(step.took_ms)}"
    name = click.style(f"{step.name.replace('_', ' '):10}", fg=COLOURS.get(step.name))
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03}  {later:>7}  {name}  {one_line(step.text)}"


def _tell_wait(wait: Wait, now: int) -> None:
    click.secho(f"it waits: {one_line(wait.text)}", fg="yellow")
    for word, at in (("since", wait.since), ("until", wait.until_at)):
        if at is not None:
            click.echo(f"  {word} {local_time(at):%Y-%m-%d %H:%M:%S} ({relative(at, now)})")
    if wait.next is not None:
        click.echo(f"  to go on{' sooner' if wait.until_at is not None else ''}: {wait.next}")
