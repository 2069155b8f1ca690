"""`turnlane run`: everything in one process, or in several that share one port."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import click

from turnlane.cli.common import Given, runs
from turnlane.settings import Settings


@click.command()
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="How many processes share the work and the port; one that dies is started again.",
)
@click.pass_context
@runs
def command(ctx: click.Context, given: Given, processes: int) -> None:
    """Server, worker and chat page in one process: the main job.

    Stops gracefully on SIGTERM and Ctrl-C; a second one stops at once. Nothing is lost either way.
    """
    settings = given.load()
    from turnlane.cli.supervise import follow_supervisor, inherited_socket, supervise

    if processes > 1:
        say = _logging(settings)
        ctx.exit(supervise(given.arguments(), processes=processes, listen=settings.listen, say=say))
    from turnlane.app import Bot

    bot = Bot.from_settings(settings)
    # One of several processes: the port is already bound, and whoever bound it is to be outlived by nobody.
    follow_supervisor(os.environ)
    listening = inherited_socket(os.environ)
    bot.run(sockets=None if listening is None else [listening])


def _logging(settings: Settings) -> Callable[[str], None]:
    """What the supervisor has to say stands in the same log as what its children say, in the same form."""
    from turnlane.observe.log import configure

    configure(settings.log_format, settings.logs.level)
    return logging.getLogger("turnlane.processes").warning
