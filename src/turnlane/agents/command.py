"""The agent that is a program: the turn goes to its standard input, its standard output is the reply."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from turnlane.agents.program import TERM_GRACE_SECONDS, Program, start
from turnlane.agents.wire import Heard, converse
from turnlane.errors import AgentFailed, InvalidSettings
from turnlane.model.turn import Reply, Turn
from turnlane.outgoing import trace_headers

OUTPUT_BYTES_MAX = 10_000_000


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
            output, last_words = await self.run(request, heard)
            return output

        try:
            reply = await converse(turn, call)
        except AgentFailed as error:
            raise AgentFailed(f"{error}{last_words}") from None
        return replace(reply, local=True) if self._local_sessions else reply

    async def run(self, request: bytes, heard: Heard) -> tuple[bytes, str]:
        """What the program wrote, and its last words on standard error."""
        program = await start(
            _Answering,
            self._argv,
            env=os.environ | _trace_variables() | self._env,
            cwd=self._cwd,
            term_grace=self._term_grace,
        )
        program.listen(heard)
        try:
            async with asyncio.timeout(self._timeout):
                program.write(request)
                program.close_input()
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


class _Answering(Program):
    """One run of the program. What it has written when it exits is its answer."""

    def __init__(self) -> None:
        super().__init__()
        self._stdout = bytearray()
        self._heard: Callable[[bytes], None] = lambda data: None

    def listen(self, heard: Callable[[bytes], None]) -> None:
        """Tell what it has written to standard output by now, and from now on what it writes, as it comes."""
        heard(bytes(self._stdout))
        self._heard = heard

    def hear(self, data: bytes) -> None:
        self._stdout += data[: OUTPUT_BYTES_MAX + 1 - len(self._stdout)]
        self._heard(data)
        if len(self._stdout) > OUTPUT_BYTES_MAX:
            self.kill()

    def output(self) -> bytes:
        """What it wrote to standard output. Raises AgentFailed if that is no answer."""
        if len(self._stdout) > OUTPUT_BYTES_MAX:
            raise AgentFailed(f"the command wrote more than {OUTPUT_BYTES_MAX} bytes and was stopped")
        code = self.returncode
        if code != 0:
            ended = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
            raise AgentFailed(f"the command {ended}")
        return bytes(self._stdout)


def _trace_variables() -> dict[str, str]:
    """As variables, the way OpenTelemetry hands a trace to a program: TRACEPARENT."""
    return {name.upper(): value for name, value in trace_headers.get().items()}
