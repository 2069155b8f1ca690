"""The database as the writing thread uses it: one connection, a transaction for each group of calls."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import asyncpg

from turnlane.backends.postgres.believed import BelievedOfServer
from turnlane.backends.postgres.bell import Bell
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.queries import SQL
from turnlane.backends.postgres.rows import Again, LaneIds, MoreFollow, PostgresRows, QuickRows
from turnlane.backends.postgres.statement import columns, texts
from turnlane.backends.sql.codec import Policies
from turnlane.backends.sql.rows import SqlRows
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendRefused, BackendUnavailable
from turnlane.model.lane import Kind

POOLED = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
"""The statements of this connection are not where they were prepared, or others' are."""
REFUSED: tuple[type[Exception], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    ssl.SSLCertVerificationError,
    *POOLED,
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
    asyncpg.DivisionByZeroError,
    Again,
)
"""Somebody else wrote what a group rests on (the division says so), or it needs more care than was taken."""
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
        mended_by = _mended_by(error, target)
        advice = mended_by or "check that the server runs and that the URL, user and password are right"
        kind = BackendRefused if mended_by or isinstance(error, REFUSED) else BackendUnavailable
        return kind(f"{target.name}: {advice} ({_words(error)})")
    return error


def _mended_by(error: Exception, target: Target) -> str | None:
    """What an operator does about what no waiting mends, if the error alone tells."""
    if isinstance(error, POOLED):
        return "a pool lends this connection to others; add prepare=false&notify=false to the URL"
    if isinstance(error, asyncpg.ProtocolViolationError) and "search_path" in str(error):
        return "a pool refuses the option schema; leave it out and say on the server: ALTER ROLE … SET search_path = …"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the server's certificate is not trusted; name who signed it with sslrootcert, and its host as it does"
    if isinstance(error, FileNotFoundError) and target.missing_file is not None:
        return f"{target.missing_file} is not there; put it there or change the URL"
    return None


def _words(error: Exception) -> str:
    """The first line: the driver may add a page of advice on itself."""
    return str(error).partition("\n")[0] or type(error).__name__


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
        """`notifies`: the channel on which others listen, and who we are."""
        self._target = target
        self._clock = ServerClock(clock)
        self._bell = Bell(notifies)
        self.more_follow: MoreFollow = lambda: False
        """Set by whoever knows."""
        self.poll_seconds = POLL_SECONDS if notifies is None else LISTENING_POLL_SECONDS
        self.connection = BlockingConnection(target, by_index=True)
        self.connection.before_the_next = self.confirm
        self._policies = Policies(self.connection, SQL)
        self._ids = LaneIds()
        self.believed = BelievedOfServer(self.connection, idle_after_ms, self.poll_seconds)
        self._care = 0
        """How often what a group rests on was not so: each time it is tried with more care."""
        self._under_way: QuickRows | None = None
        self._undone_by: Exception | None = None
        """What undid the last one that was under way."""

    @property
    def overlaps(self) -> bool:
        """With others at work it would be decided over what is not so any more."""
        return not self.believed.is_disturbed

    def now(self) -> int:
        return self._clock.now()

    @contextmanager
    def transaction(self, before_waiting: Callable[[], None]) -> Iterator[SqlRows]:
        self._undone_by = None
        if not self.connection.is_open:
            before_waiting()
        self._open()
        self.believed.check()
        careful = self._care or self._policies.rated or self.believed.is_contested(self.now())
        try:
            with self._locked() if careful else self._unlocked() as rows:
                yield rows
        except CONFLICT as error:
            self._care += error is not self._undone_by
            raise
        if careful:
            self._care = 0

    def confirm(self) -> None:
        rows, self._under_way = self._under_way, None
        if rows is not None:
            try:
                rows.confirm()
                self._care = 0
            except Exception as error:  # noqa: BLE001 - raised below, whenever it is asked for
                self._undone_by = error
                self._care += isinstance(error, CONFLICT)
                self._bell.undone()
                self.believed.clear()
        if self._undone_by is not None:
            raise self._undone_by

    @contextmanager
    def _unlocked(self) -> Iterator[SqlRows]:
        try:
            rows = QuickRows(*self._basis(), ids=self._ids, bell=self._bell, more_follow=self.more_follow)
            yield rows
            rows.compose()
            self.confirm()
            rows.send()
            self._under_way = rows
        except BaseException:  # what was remembered may be changed, whatever happened; it is raised again
            self._bell.undone()
            self.believed.clear()
            raise

    @contextmanager
    def _locked(self) -> Iterator[SqlRows]:
        self.connection.command("BEGIN")
        try:
            self.believed.forget_what_changes()
            twins = self._care > 1
            yield PostgresRows(
                *self._basis(), ids=self._ids, bell=self._bell, more_follow=self.more_follow, twins=twins
            )
            self.connection.command("COMMIT")
        except BaseException:  # nothing of it may stay, whatever happened; it is raised again
            self._undo()
            raise

    def _basis(self) -> tuple[object, ...]:
        return (self.connection, SQL, self._policies, self.believed, self.now())

    def _open(self) -> None:
        if self.connection.open():
            # Another server may answer now, which has not all that the last one had.
            self.believed.clear()
            self._ids = LaneIds()
        self._clock.read(self.connection)

    def _undo(self) -> None:
        self._bell.undone()
        self._policies.forget_numbers()
        self.believed.clear()
        try:
            self.connection.command("ROLLBACK")
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connection.drop()  # with which the server undoes it

    def hear(self) -> None:
        """Called by any thread: somebody else has written."""
        self._bell.hear()
        self.believed.hear()

    def rest(self) -> None:
        ring = self._bell.ring(noted=False, more_follow=False)
        if ring is None:
            return
        try:
            self._open()
            self.connection.execute(texts(SQL["notify"]), columns([ring]))
        except BaseException:  # they are still not told, whatever happened; it is raised again
            self._bell.undone()
            raise

    def next_due(self, kinds: Iterable[Kind]) -> int | None:
        """The server is asked only for what is not known."""
        self._open()
        kinds = list(kinds)
        dues = [
            self.believed.next_due(kinds, self.now(), self.believed.queues),
            *map(self.believed.next_due_at_hand, kinds),
        ]
        return min((due_at for due_at in dues if due_at is not None), default=None)

    def explain(self, error: Exception) -> Exception:
        return explain(error, self._target)

    def close(self) -> None:
        self.connection.close()
