"""Versions of the file: how an empty or older one becomes current, and how a foreign or newer one is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from turnlane.backends.copying import refuse_unfinished
from turnlane.backends.sqlite.queries import SCHEMA
from turnlane.errors import BackendError, SchemaMismatch

APPLICATION_ID = 0x5475726E  # "Turn": tells our files from other SQLite files

Migration = Callable[[sqlite3.Connection], None]


def _create(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _let_lanes_do_more(connection: sqlite3.Connection) -> None:
    """Lanes wait queue by queue, so that one tenant's do not stand in front of another's; and they know more."""
    connection.execute("ALTER TABLE lane ADD COLUMN queue TEXT NOT NULL DEFAULT ''")
    connection.execute(
        "UPDATE lane SET queue = (SELECT '1' || char(10) || (text ->> 'tenant') || char(10) || (text ->> 'agent') "
        "FROM policy WHERE id = lane.policy)"
    )
    # What seldom changes, in one column: every column more makes each update of the row dearer.
    connection.execute('ALTER TABLE lane ADD COLUMN more TEXT NOT NULL DEFAULT \'[[],null,false,"",null,""]\'')
    connection.execute("DROP INDEX lane_due")
    connection.execute("CREATE INDEX lane_due ON lane (kind, queue, due_at) WHERE due_at IS NOT NULL")
    connection.execute(
        "CREATE TABLE tenant (kind INTEGER NOT NULL, tenant TEXT NOT NULL, served INTEGER NOT NULL, "
        "PRIMARY KEY (kind, tenant)) WITHOUT ROWID"
    )
    connection.execute("CREATE TABLE hold (account TEXT NOT NULL PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID")


def _let_turns_ask(connection: sqlite3.Connection) -> None:
    """A turn may ask the person, people of the business may speak too; settings may change at run time, and a session
    may be on one machine alone."""
    connection.execute("ALTER TABLE worker ADD COLUMN machine TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE session ADD COLUMN machine TEXT")
    connection.execute("UPDATE lane SET more = json_insert(more, '$[#]', NULL)")
    connection.execute("ALTER TABLE message ADD COLUMN role TEXT")
    connection.execute("ALTER TABLE delivery ADD COLUMN options TEXT")
    connection.execute(
        "CREATE TABLE question (lane INTEGER NOT NULL, turn INTEGER NOT NULL, number INTEGER NOT NULL, "
        "text TEXT NOT NULL, options TEXT NOT NULL, asked_at INTEGER NOT NULL, expires_at INTEGER, "
        "answer TEXT, answered_by TEXT, answered_at INTEGER, PRIMARY KEY (lane, turn, number)) WITHOUT ROWID"
    )
    connection.execute("CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")


def _count_the_cost(connection: sqlite3.Connection) -> None:
    """What turns used is added up by day, channel, user, agent and model; and it costs money, counted in millionths."""
    connection.execute("ALTER TABLE turn ADD COLUMN cost INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE session ADD COLUMN cost INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "CREATE TABLE spent (day INTEGER NOT NULL, channel TEXT NOT NULL, for_user TEXT NOT NULL, "
        "agent TEXT NOT NULL, model TEXT NOT NULL, turns INTEGER NOT NULL, input_tokens INTEGER NOT NULL, "
        "output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, "
        "cost INTEGER NOT NULL, PRIMARY KEY (day, channel, for_user, agent, model)) WITHOUT ROWID"
    )


def _know_people(connection: sqlite3.Connection) -> None:
    """What is known of who writes, beyond their words."""
    connection.execute(
        "CREATE TABLE person (channel TEXT NOT NULL, for_user TEXT NOT NULL, name TEXT, user_name TEXT, "
        "labels TEXT NOT NULL, chat_id TEXT, enriched_at INTEGER, version INTEGER NOT NULL, "
        "changed_at INTEGER NOT NULL, PRIMARY KEY (channel, for_user)) WITHOUT ROWID"
    )
    connection.execute("CREATE INDEX person_changed ON person (changed_at)")


def _keep_long_rows_as_they_come(connection: sqlite3.Connection) -> None:
    """What is said, answered and sent is stored behind what came before it, whichever conversation it belongs to.

    Kept in the order of conversations, the rows of one group lay on as many pages, each of which its commit wrote; and
    of a long text a page held only the beginning.
    """
    for table in ("message", "turn", "delivery"):
        of_table = "SELECT sql FROM sqlite_master WHERE type = ? AND tbl_name = ? AND sql IS NOT NULL"
        [[definition]] = connection.execute(of_table, ("table", table)).fetchall()
        indexes = connection.execute(of_table, ("index", table)).fetchall()
        columns = definition[definition.index("(") :].removesuffix("WITHOUT ROWID")
        connection.execute(f"CREATE TABLE {table}_again {columns}")
        connection.execute(f"INSERT INTO {table}_again SELECT * FROM {table}")  # noqa: S608 - our own names
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE {table}_again RENAME TO {table}")
        for [index] in indexes:
            connection.execute(index)


def _tell_which_lanes_changed(connection: sqlite3.Connection) -> None:
    """Each transaction says which lanes it changed, so that other processes go on believing what they know of the rest.

    It stands beside the facts that it noted (null: whoever wrote it was alone); a transaction that noted none is only
    counted.
    """
    connection.execute("ALTER TABLE journal ADD COLUMN lanes TEXT")
    connection.execute("CREATE TABLE silent (id INTEGER PRIMARY KEY, changes INTEGER NOT NULL)")
    connection.execute("INSERT INTO silent VALUES (1, 0)")


MIGRATIONS: Sequence[Migration] = (
    _create,
    _let_lanes_do_more,
    _let_turns_ask,
    _count_the_cost,
    _know_people,
    _keep_long_rows_as_they_come,
    _tell_which_lanes_changed,
)
"""The n-th one leads from version n to n + 1."""

VERSION = len(MIGRATIONS)


def version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def check(connection: sqlite3.Connection, *, unfinished: bool = False) -> int:
    """The version of the file; 0 for an empty one. Raises for a file that this code must not touch.

    Only whoever copies a store may touch an `unfinished` one.
    """
    found = version(connection)
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (tables or found or application):
        raise BackendError("the file is an SQLite database of another program; name a file of its own for Turnlane")
    if not unfinished:
        refuse_unfinished(found)
    if found > VERSION:
        raise SchemaMismatch(f"the file's schema is {found}, this code knows {VERSION}; install a newer turnlane")
    return found


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the current version in one transaction. Several processes may try at once; one does it."""
    if check(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[check(connection) :]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:  # half a schema must not stay, whatever happened; it is raised again
        connection.execute("ROLLBACK")
        raise
