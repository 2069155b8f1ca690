"""`turnlane tail`: events as they happen, from any process on the store."""

from __future__ import annotations

from contextlib import suppress

import click

from turnlane.backends import Backend
from turnlane.cli import common
from turnlane.cli.table import local_time, one_line
from turnlane.http.wire import is_time
from turnlane.model.event import Fact
from turnlane.model.view import StoredEvent
from turnlane.settings import Settings

AT_ONCE = 1_000
LOOK_AGAIN_SECONDS = 2.0
NAME_CELLS = 20

COLOURS = {
    "dead_lettered": "red",
    "failed": "red",
    "parked": "red",
    "retried": "yellow",
    "lost": "yellow",
    "fenced": "yellow",
}


@click.command()
@click.option("--conversation", metavar="CONVERSATION", help="Only events of this conversation.")
@click.option("--since", type=click.IntRange(0), metavar="CURSOR", help="Begin after this cursor; 0 is the beginning.")
@click.option("--follow/--no-follow", default=True, help="Wait for more (the default), or stop at the newest event.")
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str | None, since: int | None, follow: bool, as_json: bool) -> None:
    """Follow events from now on, or from a cursor on. With --no-follow: all that are kept, then stop.

    With --json each line has the `cursor` that --since takes.
    """
    key = common.conversation_named(conversation) if conversation else None
    settings = given.load()
    with suppress(KeyboardInterrupt):  # Ctrl-C is how following ends.
        common.run(_tail(settings, key, since, follow=follow, as_json=as_json))


async def _tail(
    settings: Settings, conversation: str | None, since: int | None, *, follow: bool, as_json: bool
) -> None:
    async with common.opened(settings) as backend:
        if since is None and follow:
            since = await _newest(backend)
        cursor = since or 0
        while True:
            events = await backend.events(after=cursor, limit=AT_ONCE)
            for stored in events:
                cursor = stored.cursor
                if conversation in (None, stored.event.conversation):
                    _tell(stored, as_json=as_json)
            if not events and not follow:
                return
            if not events:
                await backend.changed(LOOK_AGAIN_SECONDS)


async def _newest(backend: Backend) -> int:
    newest = await backend.events(after=-1)
    return newest[-1].cursor if newest else 0


def _tell(stored: StoredEvent, *, as_json: bool) -> None:
    if as_json:
        common.echo_json(stored)
        return
    event = stored.event
    moment = local_time(event.at)
    name = click.style(event.name, fg=COLOURS.get(event.name.rpartition(".")[2]))
    facts = "  ".join(f"{key}={_fact(key, value)}" for key, value in event.facts.items() if value is not None)
    blanks = " " * max(NAME_CELLS - len(event.name), 0)
    about = f"{event.conversation}  " if event.conversation else ""
    click.echo(f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03}  {name}{blanks}  {about}{facts}")


def _fact(name: str, value: Fact) -> str:
    if isinstance(value, int) and is_time(name):
        return f"{local_time(value):%Y-%m-%dT%H:%M:%S}"
    return one_line(str(value))
