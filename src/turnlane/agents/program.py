"""A program and everything that it starts: told by its standard input, heard as it writes, and gone in the end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TypeVar, cast

from turnlane.errors import AgentFailed

STDERR_TAIL_BYTES = 2_000
TERM_GRACE_SECONDS = 2.0
"""How long a cancelled program may take to tidy up after it was asked to, before SIGKILL ends it."""
GONE_SECONDS_MAX = 1.0
"""How long to wait until the kernel has cleared away what was killed."""
_GONE_POLL_SECONDS = 0.005

_STDIN, _STDERR = 0, 2


class Program(asyncio.SubprocessProtocol):
    """One run of a program, and the group of processes that it leads. What it writes comes to `hear`."""

    ends_with = signal.SIGTERM
    """How it is asked to end."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self._silent = asyncio.Event()
        """It has exited, and everything that it and its children wrote has been read."""
        self._stderr = bytearray()

    def hear(self, data: bytes) -> None:
        """Called with what it writes to standard output, as it comes."""

    def write(self, data: bytes) -> None:
        """Lost if it is gone: how it ended tells more than that."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def close_input(self) -> None:
        self._stdin.close()

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_STDIN))

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def end(self, term_grace: float) -> None:
        """Return once the whole group is gone: asked first if it still runs, then killed."""
        try:
            if not self.exited.is_set():
                self._signal(self.ends_with)
                await _within(term_grace, self.exited)
        finally:
            await self._end_group()
        await _until(lambda: not self._is_left())

    async def _end_group(self) -> None:
        self.kill()
        try:
            await _within(GONE_SECONDS_MAX, self._silent)
        finally:
            self._transport.close()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def last_words(self) -> str:
        """The end of what it wrote to standard error, on one line."""
        words = " ".join(self._stderr.decode(errors="replace").replace("\0", "").split())
        return f"; its last words: {words}" if words else ""

    def _signal(self, number: signal.Signals) -> None:
        # The group keeps its number as long as anybody is left in it; once it is empty there is nobody to tell.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def _is_left(self) -> bool:
        try:
            os.killpg(self._group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return _any_runs(self._group)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._group = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._stderr += data
            del self._stderr[:-STDERR_TAIL_BYTES]
        else:
            self.hear(data)

    def process_exited(self) -> None:
        # Children left behind hold the pipes open: without this, the answer would wait for them.
        self.exited.set()
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.set()


P = TypeVar("P", bound=Program)


async def start(
    make: Callable[[], P], argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, term_grace: float
) -> P:
    """Start it without a shell, in a process group of its own. Raises AgentFailed if that cannot be done."""
    starting = asyncio.ensure_future(_spawn(make, argv, env, cwd))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled between fork and here: the program exists, and nobody else knows it.
        with suppress(AgentFailed):
            await (await starting).end(term_grace)
        raise


async def _spawn(make: Callable[[], P], argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> P:
    loop = asyncio.get_running_loop()
    try:
        _, program = await loop.subprocess_exec(make, *argv, env=env, cwd=cwd, start_new_session=True)
    except OSError as error:
        raise AgentFailed(f"cannot start {argv[0]!r}: {error}; check the agent's command") from error
    return program


# A child that leaves the group (`setsid`) still carries the environment it was born with.


async def end_marked(variable: str, value: str, *, term_grace: float) -> None:
    """Return once no process of ours is left that was started with this variable: asked first, then killed.

    Works where there is /proc. Elsewhere nobody can tell who carries it.
    """
    mark = f"{variable}={value}".encode()
    for number, seconds in ((signal.SIGTERM, term_grace), (signal.SIGKILL, GONE_SECONDS_MAX)):
        if not (marked := set(_marked(mark))):
            return
        if seconds:
            for pid in marked:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            await _until(lambda: not any(_marked(mark)), seconds)


def _marked(mark: bytes) -> Iterator[int]:
    for path in glob("/proc/[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            if mark in Path(path).read_bytes().split(b"\0"):
                yield int(path.split("/")[2])


def _any_runs(group: int) -> bool:
    """Whether anybody of the group is more than a zombie: those stay for ever where nobody reaps them."""
    processes = [_state_and_group(path) for path in glob("/proc/[0-9]*/stat")]
    # Without /proc nobody can tell; then the caller waits for as long as it is willing to.
    return not processes or any(state not in "ZX" and its_group == group for state, its_group in processes)


def _state_and_group(path: str) -> tuple[str, int]:
    try:
        with open(path, errors="replace") as stat:
            state, _, group = stat.read().rpartition(")")[2].split()[:3]
    except OSError:  # it ended meanwhile
        return "X", 0
    return state, int(group)


async def _until(is_so: Callable[[], bool], seconds: float = GONE_SECONDS_MAX) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    # No event tells that a process of somebody else, or a group, is gone.
    while not is_so() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_GONE_POLL_SECONDS)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
