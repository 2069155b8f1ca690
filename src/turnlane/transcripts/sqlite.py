"""Transcripts in one SQLite file, with its full-text index."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from turnlane.errors import BackendError, BackendRefused, BackendUnavailable, SchemaMismatch
from turnlane.transcripts.tables import ENTRY_COLUMNS, Match, Row, text_of
from turnlane.transcripts.words import Term

APPLICATION_ID = 0x54757254  # "TurT": tells our files from other SQLite files
VERSION = 1
BUSY_TIMEOUT_SECONDS = 30.0
"""Another process may write a whole piece meanwhile, and the disk be slow."""
CACHE_KIBIBYTES = 16_384
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""Of the journal's file, after an import has made it grow."""
FINAL = {"SQLITE_NOTADB", "SQLITE_CORRUPT"}

_INSERT = f"INSERT INTO transcript_entry ({ENTRY_COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - our own names


class SqliteTables:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection

    def open(self) -> None:
        if self._connection is not None:
            return
        with self._alone():
            connection = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection)
            except BaseException:  # whatever it was, the connection must not stay open; it is raised again
                connection.close()
                raise
        self._connection = connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Several processes may open a new file at once; making it a WAL file is not something to do together."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # what was said is nobody else's business
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            advice = "check that its folder exists and may be written"
            raise BackendRefused(f"{self.path}: the file cannot be opened; {advice} ({error})") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rows(self, statement: str, parameters: Row = ()) -> Sequence[Row]:
        return self._opened.execute(statement, tuple(parameters)).fetchall()

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        self._opened.executemany(statement, rows)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._opened.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._opened.execute("COMMIT")
        except BaseException:  # half of it must not stay, whatever happened; it is raised again
            if self._opened.in_transaction:
                self._opened.execute("ROLLBACK")
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            kind = BackendError if getattr(error, "sqlite_errorname", "") in FINAL else BackendUnavailable
            advice = "check the file, its disk's free space, and who else uses it"
            raise kind(f"{self.path}: {advice} ({error})") from error

    def translated(self, statement: str) -> str:
        return _translated(statement)

    def insert_entries(self, rows: Sequence[Row]) -> None:
        last = self.rows("SELECT coalesce(max(id), 0) FROM transcript_entry")[0][0]
        self.many(_INSERT, rows)
        self.rows(
            "INSERT INTO transcript_text (rowid, text) SELECT id, text FROM transcript_entry WHERE id > ?", (last,)
        )

    def match(self, terms: Sequence[Term]) -> Match:
        wanted = " AND ".join(_phrase(term) for term in terms if not term.is_unwanted)
        unwanted = " OR ".join(_phrase(term) for term in terms if term.is_unwanted)
        if wanted:
            expression = f"({wanted}) NOT ({unwanted})" if unwanted else wanted
            source = "transcript_text JOIN transcript_entry AS e ON e.id = transcript_text.rowid"
            return Match(source, "transcript_text MATCH $10", "transcript_text.rank, e.at DESC", expression)
        apart = "e.id NOT IN (SELECT rowid FROM transcript_text WHERE transcript_text MATCH $10)"
        condition = apart if unwanted else "$10 IS NULL"
        return Match("transcript_entry AS e", condition, "e.at DESC, e.id DESC", unwanted or None)


@cache
def _translated(statement: str) -> str:
    listed = re.sub(r"\b(?:texts|numbers)\((\$\d+)\)", r"SELECT value FROM json_each(\1)", statement)
    return re.sub(r"\$(\d+)", r"?\1", listed)


def _phrase(term: Term) -> str:
    """Quoted, so that no word of it is a word of the query language."""
    return f'"{" ".join(term.words)}"{"*" if term.is_beginning else ""}'


def _prepare(connection: sqlite3.Connection) -> None:
    found, application = (
        connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("user_version", "application_id")
    )
    if application != APPLICATION_ID and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise BackendError("the file is an SQLite database of another program; name another file for transcripts")
    if found > VERSION:
        raise SchemaMismatch(f"the transcripts' schema is {found}, this code knows {VERSION}; install a newer turnlane")
    connection.execute("PRAGMA journal_mode = WAL")
    # A piece must not be forgotten once its usage was put into the ledger, not even when the power goes.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    if found < VERSION:
        connection.executescript(
            f"BEGIN IMMEDIATE; {text_of('schema_sqlite.sql')} "
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT"
        )
