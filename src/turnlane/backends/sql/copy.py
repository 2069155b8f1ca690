"""A store moved to another database: every row of every table, and proof that both then hold the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Protocol, runtime_checkable

from turnlane.backends.sql.database import Row
from turnlane.errors import BackendError, BackendUnavailable, InvalidInput, NotFound, SchemaMismatch, TurnlaneError

TABLES = (
    "policy",
    "lane",
    "message",
    "origin",
    "turn",
    "attempt",
    "delivery",
    "question",
    "session",
    "worker",
    "tenant",
    "hold",
    "setting",
    "journal",
)
PAGE_ROWS = 200
"""A row may hold a long text, and a page is held in memory."""
CHECKSUM_BYTES = 16

_LAST_FACT = "SELECT coalesce(max(id), 0) FROM journal"

Step = Literal["copying", "verifying"]


class Tables(Protocol):
    """The tables of one store, on one connection, which `close` ends along with whatever was not committed."""

    name: str
    """For people."""

    def begin(self, *, writes: bool) -> None:
        """One view of everything until `commit`. Only one writes at a time; another one is refused."""

    def commit(self) -> None: ...

    def columns(self, table: str) -> Sequence[str]:
        """Their names, in the order of the alphabet."""

    def read(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]:
        """All rows in pages and in any order, alike on every database: numbers, texts and nulls; true is 1."""

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Add rows as `read` gives them."""

    def number(self, statement: str) -> int:
        """The one number that the statement asks for."""

    def mark(self, *, unfinished: bool) -> None:
        """Let nobody open the store until it is marked again: its version is then negative."""

    def go_on_counting(self) -> None:
        """Let all numbers that are given out from now on be greater than those that were written."""

    def close(self) -> None: ...


@runtime_checkable
class Copyable(Protocol):
    """A backend whose store consists of tables."""

    def version(self) -> int:
        """Of the store as it is; 0 if there is none yet."""

    def migrate(self) -> None:
        """Make the store or bring it to the current version."""

    def tables(self) -> Tables: ...


class Watcher(Protocol):
    """Whoever wants to know how far it is."""

    def expect(self, rows: int) -> None:
        """So many will be copied, and then verified."""

    def passed(self, step: Step, table: str, rows: int) -> None:
        """So many more of this table; once with 0 at its end."""


class Unwatched:
    def expect(self, rows: int) -> None:
        pass

    def passed(self, step: Step, table: str, rows: int) -> None:
        pass


@dataclass(slots=True)
class Sum:
    """How many rows, and a checksum over them that does not depend on their order."""

    rows: int = 0
    _total: int = field(default=0, repr=False)

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows += 1
            self._total += int.from_bytes(blake2b(json.dumps(row).encode(), digest_size=CHECKSUM_BYTES).digest())

    @property
    def checksum(self) -> str:
        return f"{self._total % 256**CHECKSUM_BYTES:0{2 * CHECKSUM_BYTES}x}"


@dataclass(frozen=True, slots=True)
class Compared:
    table: str
    source: Sum
    target: Sum

    @property
    def equal(self) -> bool:
        return self.source == self.target


def refuse_unfinished(version: int) -> None:
    """Of a store that somebody wants to use."""
    if version < 0:
        raise SchemaMismatch(
            "a copy into this store was not finished; run the same `turnlane backend copy` again, which starts over"
        )


def copy(source: Copyable, target: Copyable, *, now: int, watcher: Watcher | None = None) -> list[Compared]:
    """Copy everything into an empty store, and compare. Unless all is equal, nothing stays but the mark on the target.

    All is written in one transaction: whenever it ends before its time, the target is empty, and nobody can open it.
    """
    if source.version() == 0:
        raise NotFound("there is no store to copy from; check the first URL")
    source.migrate()
    with closing(source.tables()) as here:
        here.begin(writes=False)
        _refuse_workers(here, now)
        if target.version() >= 0:
            target.migrate()
        with closing(target.tables()) as there:
            _mark_unfinished(there, now)
            with _how_to_start_over(there):
                return _copy_all(here, there, now, watcher or Unwatched())


def summed(store: Copyable) -> dict[str, Sum]:
    """The sum of each table."""
    with closing(store.tables()) as tables:
        tables.begin(writes=False)
        return {table: _sum(tables, table, Unwatched()) for table in TABLES}


def _refuse_workers(tables: Tables, now: int) -> None:
    # One that was killed is noticed only when its time is over, and until then it cannot be told from one that works.
    longest = tables.number(f"SELECT coalesce(max(alive_until), 0) FROM worker WHERE live AND alive_until >= {now}")
    if longest:
        seconds = (longest - now) // 1000 + 1
        raise InvalidInput(
            f"{tables.name}: a worker is at work; stop every `turnlane run`, `serve` and `worker` that uses it. "
            f"One that was killed counts for another {seconds}s"
        )


def _mark_unfinished(there: Tables, now: int) -> None:
    there.begin(writes=True)
    _refuse_contents(there, now)
    there.mark(unfinished=True)
    there.commit()


def _refuse_contents(there: Tables, now: int) -> None:
    _refuse_workers(there, now)
    for table in TABLES:
        if there.number(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1) AS found"):
            raise InvalidInput(f"{there.name}: the store is not empty (table {table}); name a new one to copy into")


@contextmanager
def _how_to_start_over(there: Tables) -> Iterator[None]:
    try:
        yield
    except TurnlaneError as error:
        advice = f"{there.name} is unfinished and cannot be used; run the same command again, which starts over"
        raise type(error)(f"{error}. {advice}") from error


def _copy_all(here: Tables, there: Tables, now: int, watcher: Watcher) -> list[Compared]:
    watcher.expect(sum(here.number(f"SELECT count(*) FROM {table}") for table in TABLES))
    last_fact = here.number(_LAST_FACT)
    there.begin(writes=True)
    _refuse_contents(there, now)
    read = {table: _copy_table(here, there, table, watcher) for table in TABLES}
    compared = [Compared(table, read[table], _sum(there, table, watcher)) for table in TABLES]
    if all(table.equal for table in compared):
        _refuse_changes(here, last_fact)
        there.go_on_counting()
        there.mark(unfinished=False)
        there.commit()
    return compared


def _copy_table(here: Tables, there: Tables, table: str, watcher: Watcher) -> Sum:
    columns = here.columns(table)
    if columns != there.columns(table):
        raise BackendError(f"{there.name}: table {table} is of another version; delete the store")
    total = Sum()
    for rows in here.read(table, columns):
        there.write(table, columns, rows)
        total.add(rows)
        watcher.passed("copying", table, len(rows))
    watcher.passed("copying", table, 0)
    return total


def _sum(tables: Tables, table: str, watcher: Watcher) -> Sum:
    total = Sum()
    for rows in tables.read(table, tables.columns(table)):
        total.add(rows)
        watcher.passed("verifying", table, len(rows))
    watcher.passed("verifying", table, 0)
    return total


def _refuse_changes(here: Tables, last_fact: int) -> None:
    """What came in since the copy began would be left behind."""
    here.commit()
    here.begin(writes=False)
    if here.number(_LAST_FACT) != last_fact:
        raise BackendUnavailable(
            f"{here.name}: somebody wrote to it meanwhile; stop every `turnlane run`, `serve` and `worker` that uses it"
        )
