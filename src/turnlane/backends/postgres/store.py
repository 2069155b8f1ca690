"""The database as the writing thread uses it: one connection, a transaction for each group of calls."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import asyncpg

from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.queries import SQL
from turnlane.backends.postgres.rows import Again, LaneIds, PostgresRows
from turnlane.backends.sql.believed import Believed
from turnlane.backends.sql.codec import Policies
from turnlane.backends.sql.rows import SqlRows
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendRefused, BackendUnavailable
from turnlane.model.lane import Kind
from turnlane.model.policy import tenant_of

REFUSED: tuple[type[Exception], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    ssl.SSLCertVerificationError,
)
"""No waiting mends these."""
TROUBLE: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.ObjectInUseError,
    asyncpg.InternalClientError,
    *REFUSED,
)
CONFLICT: tuple[type[Exception], ...] = (
    asyncpg.UniqueViolationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    Again,
)
CLOCK_SECONDS = 30.0
"""How often the server's clock is read."""
LISTENING_POLL_SECONDS = 1.0
POLL_SECONDS = 0.05
"""Without LISTEN."""


def explain(error: Exception, target: Target) -> Exception:
    """The error that callers see: whether to try again, and what an operator does about it."""
    if isinstance(error, asyncpg.DataError):
        return ValueError(f"Postgres cannot hold it: {error}")
    if isinstance(error, TROUBLE):
        advice = "check that the server runs and that the URL, user and password are right"
        kind = BackendRefused if isinstance(error, REFUSED) else BackendUnavailable
        return kind(f"{target.name}: {advice} ({_words(error)})")
    return error


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


class ServerClock:
    """The server's time, read now and then: all machines agree when something is due. A test has its own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0
        self._read_at: float | None = None

    def now(self) -> int:
        return self._clock.now() + self._ahead

    def read(self, connection: BlockingConnection) -> None:
        if not isinstance(self._clock, SystemClock):
            return
        if self._read_at is None or self._clock.monotonic() - self._read_at > CLOCK_SECONDS:
            before = self._clock.now()
            theirs: int = connection.execute(SQL["now"]).fetchone()[0]
            self._ahead = theirs - (before + self._clock.now()) // 2
            self._read_at = self._clock.monotonic()


class PostgresStore:
    trouble = TROUBLE
    conflict = CONFLICT

    def __init__(self, target: Target, clock: Clock, idle_after_ms: int, notifies: tuple[str, str] | None) -> None:
        self._target = target
        self._clock = ServerClock(clock)
        self._notifies = notifies
        self.poll_seconds = POLL_SECONDS if notifies is None else LISTENING_POLL_SECONDS
        self.connection = BlockingConnection(target, by_index=True)
        self._policies = Policies(self.connection, SQL)
        self._ids = LaneIds()
        self.believed = Believed(self.connection, SQL, idle_after_ms)

    def now(self) -> int:
        return self._clock.now()

    @contextmanager
    def transaction(self, before_waiting: Callable[[], None]) -> Iterator[SqlRows]:
        if not self.connection.is_open:
            before_waiting()
        self._open()
        self.connection.command("BEGIN")
        try:
            self.believed.check()
            yield PostgresRows(
                self.connection, SQL, self._policies, self.believed, self.now(), ids=self._ids, notifies=self._notifies
            )
            self.connection.command("COMMIT")
        except BaseException:  # nothing of it may stay, whatever happened; it is raised again
            self._undo()
            raise

    def _open(self) -> None:
        self.connection.open()
        self._clock.read(self.connection)

    def _undo(self) -> None:
        self._policies.forget_numbers()
        self.believed.clear()
        try:
            self.connection.command("ROLLBACK")
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connection.drop()  # with which the server undoes it

    def next_due(self, kinds: Iterable[Kind]) -> int | None:
        self._open()
        held = dict(self.connection.execute(SQL["holds"]).fetchall())
        dues = [
            max(due_at, held.get(tenant_of(queue), 0) if kind is Kind.OUT else 0)
            for kind in kinds
            for queue, due_at in self.connection.execute(SQL["next_queue"], (kind,))
        ]
        return min(dues, default=None)

    def explain(self, error: Exception) -> Exception:
        return explain(error, self._target)

    def close(self) -> None:
        self.connection.close()
