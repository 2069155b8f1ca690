"""Transcripts in the Postgres database of the conversations, in tables of their own."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from turnlane.errors import BackendRefused, BackendUnavailable, InvalidSettings, SchemaMismatch
from turnlane.event_loop import new_event_loop
from turnlane.transcripts.tables import ENTRY_COLUMNS, Match, Row, text_of
from turnlane.transcripts.words import Term, folded, words_in

T = TypeVar("T")

VERSION = 1
CONNECT_SECONDS_MAX = 10.0
STATEMENT_SECONDS_MAX = 60.0
CLOSE_SECONDS_MAX = 1.0
LOCK = 0x547572_54
"""Whoever writes transcripts holds it: each message's usage is counted by one of them."""
TEXT_COLUMN = ENTRY_COLUMNS.split(", ").index("text")

_INSERT = (
    f"INSERT INTO transcript_entry ({ENTRY_COLUMNS}, words) VALUES "  # noqa: S608 - our own names
    f"({', '.join(f'${number}' for number in range(1, 18))}, to_tsvector('simple', $18))"
)


class PostgresTables:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._schema = options.pop("schema", None)
        self._prepares = options.pop("prepare", "true") != "false"
        options.pop("notify", None)  # of the backend alone
        self._dsn = urlunsplit(parts._replace(query=urlencode(options)))
        self._name = f"{parts.hostname or options.get('host', 'localhost')}{parts.path}"
        self._loop = new_event_loop()
        self._connection: asyncpg.Connection | None = None

    def open(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            return
        self._connection = self._run(self._connected())
        with self.writing():
            self._migrate()

    async def _connected(self) -> asyncpg.Connection:
        settings = {"application_name": "turnlane-transcripts"}
        if self._schema is not None:
            settings["search_path"] = _quoted(self._schema)
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_SECONDS_MAX,
                command_timeout=STATEMENT_SECONDS_MAX,
                statement_cache_size=100 if self._prepares else 0,
                server_settings=settings,
            )
        except ValueError as error:  # of the driver, which reads the rest of the URL
            raise InvalidSettings(f"{self._name}: the URL cannot be used; change it ({error})") from error

    def _migrate(self) -> None:
        if self._schema is not None:
            self._command(f"CREATE SCHEMA IF NOT EXISTS {_quoted(self._schema)}")
        known = "SELECT 1 FROM pg_tables WHERE tablename = 'transcript_meta' AND schemaname = current_schema()"
        if not self.rows(known):
            self._command(text_of("schema_postgres.sql"))
            self.rows("INSERT INTO transcript_meta (version) VALUES ($1)", (VERSION,))
        found = self.rows("SELECT version FROM transcript_meta")[0][0]
        if found > VERSION:
            raise SchemaMismatch(
                f"the transcripts' schema is {found}, this code knows {VERSION}; install a newer turnlane"
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None and not connection.is_closed():
                self._run(connection.close(timeout=CLOSE_SECONDS_MAX))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # it is gone already, which is what was wanted
        finally:
            self._loop.close()

    def rows(self, statement: str, parameters: Row = ()) -> Sequence[Row]:
        found: Sequence[Row] = self._run(self._opened().fetch(statement, *parameters))
        return found

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        self._run(self._opened().executemany(statement, rows))

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._command("BEGIN")
        try:
            self.rows("SELECT pg_advisory_xact_lock($1)", (LOCK,))
            yield
            self._command("COMMIT")
        except BaseException:  # whatever happened, the server undoes what was under way; it is raised again
            self._drop()
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            refused = (
                asyncpg.InvalidAuthorizationSpecificationError,
                asyncpg.InvalidCatalogNameError,
                asyncpg.InsufficientPrivilegeError,
                ssl.SSLCertVerificationError,
            )
            kind = BackendRefused if isinstance(error, refused) else BackendUnavailable
            advice = "check that the server runs and that the URL, user and password are right"
            raise kind(f"{self._name}: {advice} ({str(error) or type(error).__name__})") from error

    def translated(self, statement: str) -> str:
        return _translated(statement)

    def insert_entries(self, rows: Sequence[Row]) -> None:
        # The parser of Postgres takes paths, hosts and numbers with a sign for words of a kind; ours are plain words.
        self.many(_INSERT, ((*row, folded(" ".join(words_in(row[TEXT_COLUMN])))) for row in rows))

    def match(self, terms: Sequence[Term]) -> Match:
        if not terms:
            return Match("transcript_entry AS e", "CAST($10 AS text) IS NULL", "e.at DESC, e.id DESC", None)
        query = "to_tsquery('simple', $10)"
        best = f"ts_rank_cd(e.words, {query}) DESC, e.at DESC"
        return Match("transcript_entry AS e", f"e.words @@ {query}", best, " & ".join(map(_operand, terms)))

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
            self._run(asyncio.sleep(0))  # in which its socket is closed

    def _opened(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            raise ConnectionError("the connection was lost")
        return self._connection

    def _command(self, statement: str) -> None:
        self._run(self._opened().execute(statement))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)


@cache
def _translated(statement: str) -> str:
    texts = re.sub(r"\btexts\((\$\d+)\)", r"SELECT jsonb_array_elements_text(CAST(\1 AS jsonb))", statement)
    return re.sub(
        r"\bnumbers\((\$\d+)\)", r"SELECT CAST(jsonb_array_elements_text(CAST(\1 AS jsonb)) AS bigint)", texts
    )


def _operand(term: Term) -> str:
    """Its words hold letters and digits alone, so nothing in them is an operator."""
    phrase = " <-> ".join(map(folded, term.words)) + (":*" if term.is_beginning else "")
    return f"{'!' if term.is_unwanted else ''}({phrase})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
