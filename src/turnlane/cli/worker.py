"""`turnlane worker`: runs turns and sends replies, and opens no port."""

from __future__ import annotations

import os

import click

from turnlane.cli.common import Given, milliseconds, runs


@click.command()
@click.option(
    "--until-idle", callback=milliseconds, metavar="DURATION", help="End by itself once nothing was to do for so long."
)
@runs
def command(given: Given, until_idle: int | None) -> None:
    """A worker alone: runs turns and sends replies for whatever was stored. Start as many as you like."""
    settings = given.load()
    from turnlane.app import Bot
    from turnlane.cli.supervise import follow_supervisor

    bot = Bot.from_settings(settings)
    follow_supervisor(os.environ)
    bot.run(serve=False, until_idle=None if until_idle is None else until_idle / 1000)
