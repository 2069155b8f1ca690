"""`turnlane backend copy FROM TO`: moves everything to another store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from turnlane.backends import open_backend
from turnlane.backends.copying import Compared, Copyable, Step, Unwatched, Watcher, copy
from turnlane.cli import common
from turnlane.cli.table import Column, echo_table
from turnlane.clock import SystemClock
from turnlane.errors import BackendError, InvalidSettings, NotFound
from turnlane.settings import without_password

COLUMNS = [
    Column("TABLE"),
    Column("ROWS", right=True),
    Column("COPIED", right=True),
    Column("CHECKSUM"),
    Column("CHECKSUM OF COPY"),
]
DIGITS_SHOWN = 16
ROWS_A_LINE = 100_000


@dataclass(frozen=True, slots=True)
class TableCopied:
    table: str
    rows: int
    copied: int
    checksum: str
    checksum_of_copy: str


@dataclass(frozen=True, slots=True)
class Copied:
    source: str
    target: str
    equal: bool
    tables: Sequence[TableCopied]


@click.group()
def command() -> None:
    """Stores as a whole. FROM and TO are URLs as in the setting `backend`."""


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@common.as_json
def copy_one(source: str, target: str, as_json: bool) -> None:
    """Copy everything from the store FROM to the new or empty store TO, and verify it.

    Stop all that uses FROM before; afterwards set `backend` to TO and start again. FROM stays as it is.
    """
    if source == target:
        raise InvalidSettings("FROM and TO are the same store; name another one to copy into")
    stores = _store(source), _store(target)
    if (file := common.file_of(source)) is not None and not file.exists():
        raise NotFound(f"there is no {file} to copy from; check the first URL")
    try:
        with _watched(as_json=as_json) as watcher:
            compared = copy(*stores, now=SystemClock().now(), watcher=watcher)
    except KeyboardInterrupt:
        click.echo("interrupted; run the same command again, which starts over", err=True)
        raise
    _tell(compared, source, target, as_json=as_json)


def _store(url: str) -> Copyable:
    backend = open_backend(url)
    if not isinstance(backend, Copyable):
        raise InvalidSettings(
            f"{without_password(url)} cannot be copied; use sqlite:///file.db, postgresql://… or nats://…"
        )
    return backend


def _tell(compared: Sequence[Compared], source: str, target: str, *, as_json: bool) -> None:
    equal = all(table.equal for table in compared)
    tables = [
        TableCopied(it.table, it.source.rows, it.target.rows, it.source.checksum, it.target.checksum) for it in compared
    ]
    name = without_password(target)
    if as_json:
        common.echo_json(Copied(without_password(source), name, equal, tables))
    else:
        rows = [
            (it.table, it.rows, it.copied, it.checksum[:DIGITS_SHOWN], it.checksum_of_copy[:DIGITS_SHOWN])
            for it in tables
        ]
        echo_table(COLUMNS, rows, nothing="nothing")
    if not equal:
        different = ", ".join(table.table for table in compared if not table.equal)
        advice = f"{name} is unfinished and cannot be used; run the same command again, which starts over"
        raise BackendError(f"the copy differs in {different}. {advice}")
    if not as_json:
        click.echo(f"{name} holds the same; set `backend` to it and start again")


# How far it is


@contextmanager
def _watched(*, as_json: bool) -> Iterator[Watcher]:
    """A bar on a terminal; lines elsewhere; nothing with --json. Never on standard output."""
    if as_json:
        yield Unwatched()
    elif _is_terminal():
        bar = Bar()
        try:
            yield bar
        finally:
            bar.end()
    else:
        yield Lines()


def _is_terminal() -> bool:
    return sys.stderr.isatty()


class Bar:
    def __init__(self) -> None:
        # Every row is copied and then verified.
        self._bar = click.progressbar(length=0, file=sys.stderr, item_show_func=lambda what: what)

    def expect(self, rows: int) -> None:
        self._bar.length = max(2 * rows, 1)
        self._bar.render_progress()

    def passed(self, step: Step, what: str, rows: int) -> None:
        self._bar.update(rows, step)

    def end(self) -> None:
        if self._bar.length:
            self._bar.render_finish()


class Lines:
    """One for each step, and more for a large store."""

    def __init__(self) -> None:
        self._done = 0

    def expect(self, rows: int) -> None:
        click.echo(f"about {rows:,} rows", err=True)

    def passed(self, step: Step, what: str, rows: int) -> None:
        before, self._done = self._done, self._done + rows
        if rows == 0 or before // ROWS_A_LINE != self._done // ROWS_A_LINE:
            click.echo(f"{step}: {self._done:,} rows", err=True)
        if rows == 0:
            self._done = 0
