"""`turnlane worker`: runs turns and sends replies, and opens no port."""

from __future__ import annotations

import click

from turnlane.cli.common import Given, runs


@click.command()
@runs
def command(given: Given) -> None:
    """A worker alone: runs turns and sends replies for whatever was stored. Start as many as you like."""
    settings = given.load()
    from turnlane.app import Bot

    Bot.from_settings(settings).run(serve=False)
