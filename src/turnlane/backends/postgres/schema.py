"""Versions of the tables: how an empty or older database becomes current, and how a newer one is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from turnlane.backends.copying import refuse_unfinished
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.queries import SCHEMA, SQL
from turnlane.clock import SystemClock
from turnlane.errors import SchemaMismatch

FIRST_VERSION = 3
"""The same tables as SQLite's of this version."""

Migration = Callable[[BlockingConnection], None]


def _count_the_cost(connection: BlockingConnection) -> None:
    """What turns used is added up by day, channel, user, agent and model; and it costs money, counted in millionths."""
    connection.command("ALTER TABLE turn ADD COLUMN cost bigint NOT NULL DEFAULT 0")
    connection.command("ALTER TABLE session ADD COLUMN cost bigint NOT NULL DEFAULT 0")
    connection.command(
        'CREATE TABLE spent (day bigint NOT NULL, channel text COLLATE "C" NOT NULL, '
        'for_user text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL, model text COLLATE "C" NOT NULL, '
        "turns bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL, "
        "cached_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL, cost bigint NOT NULL, "
        "PRIMARY KEY (day, channel, for_user, agent, model)) WITH (fillfactor = 70)"
    )


def _know_people(connection: BlockingConnection) -> None:
    """What is known of who writes, beyond their words."""
    connection.command(
        'CREATE TABLE person (channel text COLLATE "C" NOT NULL, for_user text COLLATE "C" NOT NULL, name text, '
        "user_name text, labels text NOT NULL, chat_id text, enriched_at bigint, version bigint NOT NULL, "
        "changed_at bigint NOT NULL, PRIMARY KEY (channel, for_user))"
    )
    connection.command("CREATE INDEX person_changed ON person (changed_at)")


MIGRATIONS: Sequence[Migration] = (_count_the_cost, _know_people)
"""The n-th one leads from FIRST_VERSION + n to the next."""

VERSION = FIRST_VERSION + len(MIGRATIONS)


def version(connection: BlockingConnection) -> int:
    """0 for an empty database."""
    # Not by to_regclass, which may answer from a cache that does not know of a table made meanwhile.
    known = (
        "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE c.relname = 'meta' AND n.nspname = current_schema()"
    )
    if connection.execute(known).fetchone() is None:
        return 0
    found: int = connection.execute("SELECT version FROM meta").fetchone()[0]
    return found


def check(found: int) -> int:
    refuse_unfinished(found)
    if found > VERSION:
        raise SchemaMismatch(f"the database's schema is {found}, this code knows {VERSION}; install a newer turnlane")
    return found


def migrate(connection: BlockingConnection, schema: str | None) -> None:
    """Bring the tables to the current version in one transaction. Several processes may try at once; one does it."""
    if check(version(connection)) < VERSION:
        connection.command("BEGIN")
        try:
            connection.execute(SQL["lock"], ("schema",))
            if schema is not None:
                _create_schema(connection, schema)
            _bring_up(connection, check(version(connection)))
            connection.command("COMMIT")
        except BaseException:  # half a schema must not stay, whatever happened; it is raised again
            connection.drop()
            raise
    let_the_journal_grow(connection)


def _create_schema(connection: BlockingConnection, schema: str) -> None:
    quoted = schema.replace('"', '""')
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", (schema,)).fetchone() is None:
        connection.command(f'CREATE SCHEMA IF NOT EXISTS "{quoted}"')


def _bring_up(connection: BlockingConnection, found: int) -> None:
    if found == 0:
        connection.command(SCHEMA)
        connection.execute("INSERT INTO meta (version) VALUES ($1)", (FIRST_VERSION,))
        found = FIRST_VERSION
    for migration in MIGRATIONS[found - FIRST_VERSION :]:
        migration(connection)
    connection.execute("UPDATE meta SET version = $1", (VERSION,))


def let_the_journal_grow(connection: BlockingConnection) -> None:
    """A restored database counts its transactions from the beginning; cursors into the journal must not come again."""
    connection.execute(
        "UPDATE meta SET journal_offset = (SELECT max(id) FROM journal) "
        "WHERE journal_offset + pg_current_xact_id()::text::bigint <= (SELECT coalesce(max(id), 0) FROM journal)"
    )


@asynccontextmanager
async def throwaway_schema(url: str) -> AsyncIterator[str]:
    """A URL of the same server whose tables are nobody else's, and gone afterwards."""
    name = f"turnlane_throwaway_{SystemClock().token()}"
    yield f"{url}{'&' if '?' in url else '?'}schema={name}"
    connection = await Target(url).connect()
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    finally:
        await connection.close()
