"""The agent that is a program: the turn goes to its standard input, its standard output is the reply."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from glob import glob
from typing import cast

from turnlane.agents.wire import Heard, converse
from turnlane.errors import AgentFailed, InvalidSettings
from turnlane.model.turn import Reply, Turn

OUTPUT_BYTES_MAX = 10_000_000
STDERR_TAIL_BYTES = 2_000
TERM_GRACE_SECONDS = 2.0
"""How long a cancelled program may take to tidy up after SIGTERM before SIGKILL ends it."""
GONE_SECONDS_MAX = 1.0
"""How long to wait until the kernel has cleared away what was killed."""
_GONE_POLL_SECONDS = 0.005

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Command:
    """Starts `argv` for each turn, without a shell, in a process group of its own.

    Exit code 0 and valid JSON are an answer; everything else is a failure that is retried, with the end of standard
    error in its text. When `respond` returns, answered or cancelled, the whole group is gone, also children that the
    program left behind. Only a child that left the group by itself (`setsid`) can outlive it.

    `local_sessions`: the program keeps what its sessions stand for in files of this machine.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        local_sessions: bool = False,
        term_grace: float = TERM_GRACE_SECONDS,
    ) -> None:
        if isinstance(argv, str) or not argv or not argv[0] or any("\0" in argument for argument in argv):
            raise InvalidSettings('the command must be a list of a program and its arguments: ["python", "bot.py"]')
        self._argv = tuple(argv)
        self._env = dict(env or {})
        self._cwd = cwd
        self._timeout = timeout
        self._local_sessions = local_sessions
        self._term_grace = term_grace

    async def respond(self, turn: Turn) -> Reply:
        last_words = ""

        async def call(request: bytes, heard: Heard) -> bytes:
            nonlocal last_words
            output, last_words = await self._run(request, heard)
            return output

        try:
            reply = await converse(turn, call)
        except AgentFailed as error:
            raise AgentFailed(f"{error}{last_words}") from None
        return replace(reply, local=True) if self._local_sessions else reply

    async def _run(self, request: bytes, heard: Heard) -> tuple[bytes, str]:
        """What the program wrote, and its last words on standard error."""
        program = await self._start()
        program.listen(heard)
        try:
            async with asyncio.timeout(self._timeout):
                program.write(request)
                await program.exited.wait()
        except TimeoutError:
            raise AgentFailed(f"the command took longer than {self._timeout:g} s and was stopped") from None
        finally:
            await program.end(self._term_grace)
        try:
            return program.output(), program.last_words()
        except AgentFailed as error:
            raise AgentFailed(f"{error}{program.last_words()}") from None

    async def close(self) -> None:
        """Nothing is held between turns."""

    async def _start(self) -> _Program:
        starting = asyncio.ensure_future(self._spawn())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Cancelled between fork and here: the program exists, and nobody else knows it.
            with suppress(AgentFailed):
                await (await starting).end(self._term_grace)
            raise

    async def _spawn(self) -> _Program:
        loop = asyncio.get_running_loop()
        environment = os.environ | self._env
        try:
            _, program = await loop.subprocess_exec(
                _Program, *self._argv, env=environment, cwd=self._cwd, start_new_session=True
            )
        except OSError as error:
            raise AgentFailed(f"cannot start {self._argv[0]!r}: {error}; check the agent's command") from error
        return program


class _Program(asyncio.SubprocessProtocol):
    """One run of the program, and the group of processes that it leads."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self._silent = asyncio.Event()
        """It has exited, and everything that it and its children wrote has been read."""
        self._stdout = bytearray()
        self._heard: Callable[[bytes], None] = lambda data: None
        self._stderr = bytearray()

    def write(self, request: bytes) -> None:
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_STDIN))
        stdin.write(request)
        stdin.close()

    def listen(self, heard: Callable[[bytes], None]) -> None:
        """Tell what it has written to standard output by now, and from now on what it writes, as it comes."""
        heard(bytes(self._stdout))
        self._heard = heard

    def output(self) -> bytes:
        """What it wrote to standard output. Raises AgentFailed if that is no answer."""
        if len(self._stdout) > OUTPUT_BYTES_MAX:
            raise AgentFailed(f"the command wrote more than {OUTPUT_BYTES_MAX} bytes and was stopped")
        code = self._transport.get_returncode()
        if code != 0:
            ended = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
            raise AgentFailed(f"the command {ended}")
        return bytes(self._stdout)

    async def end(self, term_grace: float) -> None:
        """Return once the whole group is gone: asked first if it still runs, then killed."""
        try:
            if not self.exited.is_set():
                self._signal(signal.SIGTERM)
                await _within(term_grace, self.exited)
        finally:
            await self._kill()
        await self._gone()

    async def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        try:
            await _within(GONE_SECONDS_MAX, self._silent)
        finally:
            self._transport.close()

    def last_words(self) -> str:
        """The end of what it wrote to standard error, on one line."""
        words = " ".join(self._stderr.decode(errors="replace").replace("\0", "").split())
        return f"; its last words: {words}" if words else ""

    def _signal(self, number: signal.Signals) -> None:
        # The group keeps its number as long as anybody is left in it; once it is empty there is nobody to tell.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    async def _gone(self) -> None:
        deadline = asyncio.get_running_loop().time() + GONE_SECONDS_MAX
        # No event tells that a group is empty.
        while self._is_left() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_GONE_POLL_SECONDS)

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
            return
        self._stdout += data[: OUTPUT_BYTES_MAX + 1 - len(self._stdout)]
        self._heard(data)
        if len(self._stdout) > OUTPUT_BYTES_MAX:
            self._signal(signal.SIGKILL)

    def process_exited(self) -> None:
        # Children left behind hold the pipes open: without this, the answer would wait for them.
        self.exited.set()
        self._signal(signal.SIGKILL)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.set()


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


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
