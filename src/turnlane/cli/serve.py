"""`turnlane serve`: takes messages in and leaves the turns to workers."""

from __future__ import annotations

import os

import click

from turnlane.cli.common import Given, runs


@click.command()
@runs
def command(given: Given) -> None:
    """The server alone: web hooks, chat page and API. Turns are run by `turnlane worker` on the same store."""
    settings = given.load()
    from turnlane.app import Bot
    from turnlane.cli.supervise import follow_supervisor

    bot = Bot.from_settings(settings)
    follow_supervisor(os.environ)
    bot.run(work=False)
