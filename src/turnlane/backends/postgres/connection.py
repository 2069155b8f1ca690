"""A connection of asyncpg for a thread that waits for each statement, and what a URL says."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from turnlane.backends.sql.codec import NOTHING
from turnlane.backends.sql.database import Row
from turnlane.errors import InvalidSettings
from turnlane.event_loop import new_event_loop

T = TypeVar("T")

CONNECT_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 1.0
STATEMENT_SECONDS_MAX = 60.0
"""A server that takes longer is as good as gone."""
STATEMENTS_KEPT = 256
SWITCH_SECONDS = 0.0001
"""A fiftieth of what Python lets a thread have the interpreter while others want it."""
LOST = "the connection was lost"
FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
"""Options of a URL that name one."""


class Target:
    """What a `postgresql://…` URL says: the driver's own options, and three of ours.

    `schema`: where the tables are, else as the database says. `notify=false`: for a pool that forbids LISTEN.
    `prepare=false`: for a pool that forbids prepared statements.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.schema = options.pop("schema", None)
        self.notify = _is_true(url, "notify", options.pop("notify", "true"))
        self.prepare = _is_true(url, "prepare", options.pop("prepare", "true"))
        self._files = {name: Path(options[name]) for name in FILES if name in options}
        self.dsn = urlunsplit(parts._replace(query=urlencode(options)))
        self.name = f"{parts.hostname or options.get('host', 'localhost')}{parts.path}"
        """For people: without the password."""

    @property
    def missing_file(self) -> str | None:
        """One that the URL names and is not there."""
        return next((f"{name}={path}" for name, path in self._files.items() if not path.exists()), None)

    async def connect(self, *, by_index: bool = False) -> asyncpg.Connection:
        """`by_index`: whatever the planner believes of tables nobody has analysed, rows are found by their keys."""
        settings = {"application_name": "turnlane"}
        if by_index and self.prepare:
            settings |= dict.fromkeys(("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "jit"), "off")
            settings["plan_cache_mode"] = "force_generic_plan"
        if self.schema is not None:
            settings["search_path"] = _quoted(self.schema)
        try:
            connection: asyncpg.Connection = await asyncpg.connect(
                self.dsn,
                timeout=CONNECT_SECONDS_MAX,
                command_timeout=STATEMENT_SECONDS_MAX,
                statement_cache_size=STATEMENTS_KEPT if self.prepare else 0,
                max_cached_statement_lifetime=0,
                server_settings=settings,
            )
        except ssl.SSLError:  # a ValueError, too, if the server's certificate is not trusted
            raise
        except ValueError as error:  # of the driver, too, which reads the rest of the URL
            raise InvalidSettings(f"{self.name}: the URL cannot be used; change it ({error})") from error
        return connection


def _is_true(url: str, name: str, value: str) -> bool:
    if value not in {"true", "false"}:
        raise InvalidSettings(f"{url.partition('?')[0]}: {name} is {value!r}; write {name}=true or {name}=false")
    return value == "true"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Fetched:
    """All rows of a statement's answer."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return list(self._rows)


USUAL_SWITCH_SECONDS = sys.getswitchinterval()
"""Read once: another thread of the kind below may have changed it for a moment."""


@contextmanager
def at_once() -> Iterator[None]:
    """Whoever waits here has the interpreter soon after, or the server would wait while another thread has it."""
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(USUAL_SWITCH_SECONDS)


class BlockingConnection:
    """One connection with an event loop of its own, that runs only while a statement does.

    One statement can be sent and waited for later; `before_the_next`, which waits for it, is called before any other.
    """

    def __init__(
        self,
        target: Target,
        *,
        by_index: bool = False,
        loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        self._target = target
        self._by_index = by_index
        self._loop = loop()
        self._connection: asyncpg.Connection | None = None
        self._sent: asyncio.Task[Sequence[Row]] | None = None
        self.before_the_next: Callable[[], None] = lambda: None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    def open(self) -> bool:
        """Connect if it is not. True: it is another connection than before."""
        if self.is_open:
            return False
        self._end_what_was_sent()
        self.drop()  # what the server has ended is still to be closed here
        self._connection = self.run(self._target.connect(by_index=self._by_index))
        return True

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Fetched:
        return Fetched(self.run(self._opened().fetch(statement, *parameters)))

    def send(self, statement: str, parameters: Sequence[Any]) -> None:
        """To be waited for with `receive`."""
        self._sent = self._loop.create_task(self._opened().fetch(statement, *parameters))
        with at_once():
            self._loop.run_until_complete(asyncio.sleep(0))  # in which it is written

    def receive(self) -> Fetched:
        assert self._sent is not None
        sent, self._sent = self._sent, None
        with at_once():
            return Fetched(self.run(sent))

    def _end_what_was_sent(self) -> None:
        if self._sent is not None:
            self.before_the_next()

    def executemany(self, statement: str, rows: Iterable[Row], /) -> None:
        written = [[None if value is NOTHING else value for value in row] for row in rows]
        self.run(self._opened().executemany(statement, written))

    def copy_in(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Many new rows at once, numbers that the database would give included."""
        self.run(self._opened().copy_records_to_table(table, records=rows, columns=columns))

    def command(self, statement: str) -> None:
        """Without parameters nor rows, or several of them."""
        self.run(self._opened().execute(statement))

    def run(self, answer: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """That it was closed may be learned only now, from what had arrived before this began."""
        try:
            return self._loop.run_until_complete(answer)
        except (OSError, asyncpg.InternalClientError):
            # Nobody may ever answer on it again, if its machine is gone; the next one may lead to another machine.
            self.drop()
            raise
        except asyncpg.InterfaceError as error:
            if self._connection is not None and self._connection.is_closed():
                raise ConnectionError(LOST) from error
            raise

    def drop(self) -> None:
        """Whatever was under way is undone by the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
            self.run(asyncio.sleep(0))  # in which its socket is closed

    def close(self) -> None:
        try:
            if self.is_open:
                self.run(self._opened().close(timeout=CLOSE_SECONDS_MAX))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # it is gone already, which is what was wanted
        finally:
            self.drop()
            self._loop.close()

    def _opened(self) -> asyncpg.Connection:
        """Never another one in the middle: what belongs together would be torn apart."""
        self._end_what_was_sent()
        if self._connection is None or self._connection.is_closed():
            raise ConnectionError(LOST)
        return self._connection
