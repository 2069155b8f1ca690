"""The file itself: how it is opened, locked between processes, and what its errors mean."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from turnlane.backends.sqlite import schema
from turnlane.errors import BackendError, BackendRefused, BackendUnavailable, InvalidSettings

BUSY_TIMEOUT_SECONDS = 5.0
LOCK_LOOK_SECONDS = 0.0001
"""How often the process that is next looks whether the other one has let go of the file."""
GATE_LOOK_SECONDS = 0.001
"""How often the others look: whoever comes next has as long as a whole transaction to notice."""
WAL_PAGES_BEFORE_CHECKPOINT = 4000
SQLITE_VERSION_MIN = (3, 38, 0)

_SYNCHRONOUS = ("full", "normal", "off")

_ADVICE = {
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_READONLY": "the file is read-only; make it and its folder writable",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists and may be written",
    "SQLITE_BUSY": "another program holds the file locked; close it",
    "SQLITE_LOCKED": "another program holds the file locked; close it",
    "SQLITE_IOERR": "the disk reported an error; check it and its free space",
    "SQLITE_PERM": "the file may not be accessed; check its permissions",
    "SQLITE_NOTADB": "the file is not an SQLite database; name another one",
    "SQLITE_CORRUPT": "the file is damaged; restore a backup",
}
_FINAL = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_REFUSED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}
"""What making a file may meet that goes by without anybody changing the settings."""


class Location:
    """What a `sqlite:///file.db` URL says."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.netloc or not parts.path.strip("/"):
            raise InvalidSettings(f"{url!r} names no file; write sqlite:///file.db, or sqlite:////folder/file.db")
        self.path = Path(unquote(parts.path[1:]))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.synchronous = options.pop("synchronous", "full").lower()
        if options or self.synchronous not in _SYNCHRONOUS:
            raise InvalidSettings(f"{url!r}: the only option is synchronous = {' | '.join(_SYNCHRONOUS)}")


def explain(error: sqlite3.Error, path: Path) -> BackendError:
    """The error that callers see: whether to try again, and what an operator does about it."""
    name = (getattr(error, "sqlite_errorname", None) or "").replace("SQLITE_IOERR_", "SQLITE_IOERR ").split(" ")[0]
    for known, advice in _ADVICE.items():
        if name.startswith(known):
            kind = BackendRefused if known in _REFUSED else BackendUnavailable
            return (BackendError if known in _FINAL else kind)(f"{path}: {advice} ({error})")
    return BackendUnavailable(f"{path}: {error}")


def connect(location: Location, *, reader: bool = False, unfinished: bool = False) -> sqlite3.Connection:
    """A connection for one thread at a time; transactions are begun and ended by hand."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        needed = ".".join(map(str, SQLITE_VERSION_MIN))
        raise BackendError(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with SQLite {needed} or newer")
    connection = sqlite3.connect(
        location.path,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        # Before anything is set: another program's file is left exactly as it is.
        schema.check(connection, unfinished=unfinished)
        _tune(connection, location, reader=reader)
    except BaseException:  # whatever it was, the connection must not stay open; it is raised again
        connection.close()
        raise
    return connection


def _tune(connection: sqlite3.Connection, location: Location, *, reader: bool) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {location.synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_BEFORE_CHECKPOINT}")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA temp_store = MEMORY")
    if reader:
        connection.execute("PRAGMA query_only = ON")


def refuse_foreign(path: Path) -> None:
    """Look without touching: nothing is put beside another program's file. Raises as `schema.check` does."""
    if not path.exists():
        return
    # Not opened read-only: such a connection leaves its helper files behind.
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN")
            schema.check(connection)
        except sqlite3.OperationalError:
            # Another process makes or holds it just now: it is looked at again under the lock.
            return


def create_private(path: Path) -> None:
    """Conversations are nobody else's business: a new file is readable by its owner alone."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


class FileLock:
    """Who may begin a transaction, in turn. SQLite's own busy waiting lets a busy process starve the others.

    Two locks: whoever wants the file waits at its gate, alone, and so is the next one when the file is let go; the one
    that let it go has to get behind. Nobody waits for ever: a process may be frozen while it holds the file.
    """

    def __init__(self, path: Path, seconds_max: float = BUSY_TIMEOUT_SECONDS) -> None:
        self._path = path
        self._seconds_max = seconds_max
        self._file = _lock_file(f"{path}-lock")
        self._gate = _lock_file(f"{path}-gate")

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.let_go()

    def take(self, before_waiting: Callable[[], None] = lambda: None) -> None:
        """`before_waiting` is called if another process has it."""
        self._take(self._gate, GATE_LOOK_SECONDS, before_waiting)
        try:
            self._take(self._file, LOCK_LOOK_SECONDS, before_waiting)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def let_go(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def _take(self, fd: int, look_seconds: float, before_waiting: Callable[[], None]) -> None:
        if _is_taken(fd):
            return
        for _ in range(int(self._seconds_max / look_seconds)):
            before_waiting()
            time.sleep(look_seconds)
            if _is_taken(fd):
                return
        raise BackendUnavailable(f"{self._path}: another process holds the file and does not move; resume it or end it")

    def close(self) -> None:
        os.close(self._file)
        os.close(self._gate)


def _is_taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_file(path: str) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
