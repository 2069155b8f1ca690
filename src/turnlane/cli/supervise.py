"""Several processes on one port: started, kept running, and stopped together.

The supervisor binds the port once and never accepts a connection itself. Each child inherits the socket and one end of
a pipe. Nothing is ever written to the pipe: when it ends, the supervisor is gone, however it went, and so the children
go too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from turnlane.clock import Clock, SystemClock
from turnlane.event_loop import happens
from turnlane.http.listen import LISTEN_FD, PROCESS, SUPERVISOR_FD, bind, inherited_socket
from turnlane.model.policy import Backoff
from turnlane.observe.metrics import forget_process

__all__ = ["follow_supervisor", "inherited_socket", "supervise"]

RESTART = Backoff(first_ms=200, factor=2, most_ms=30_000)
HEALTHY_SECONDS = 30.0
"""Whoever lived this long and then died did not die of its start: the delays begin anew."""
ORPHAN_SECONDS_MAX = 120.0
"""How long a child without a supervisor may drain before it is ended for good."""

HOPELESS = frozenset({2, 4})
"""Exit codes that no restart mends: wrong settings, and a store of another version."""

RUN = (sys.executable, "-m", "turnlane.cli.main", "run")


def supervise(
    arguments: Sequence[str],
    *,
    processes: int,
    listen: str,
    command: Sequence[str] = RUN,
    clock: Clock | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Run `command` with these arguments in that many processes until a signal comes; returns the exit code.

    0: everybody drained and left cleanly. A second signal kills at once and answers 128 and its number.
    """
    with (
        bind(listen) as listening,
        tempfile.TemporaryDirectory(prefix="turnlane-") as counts,
    ):
        supervisor = _Supervisor([*command, *arguments], listening, counts, clock or SystemClock(), say or _say)
        return asyncio.run(supervisor.run(processes))


def follow_supervisor(environ: MutableMapping[str, str], *, orphan_seconds_max: float = ORPHAN_SECONDS_MAX) -> None:
    """In a child: leave like after a SIGTERM once the supervisor is gone. Without a supervisor, nothing happens.

    A thread waits, not the loop, so that a child whose loop is stuck goes too. Programs that this process starts do not
    have the pipe, and are not told of it.
    """
    number = environ.pop(SUPERVISOR_FD, None)
    if number is None:
        return
    pipe = int(number)
    os.set_inheritable(pipe, False)
    threading.Thread(
        target=_leave_after, args=(pipe, orphan_seconds_max), name="follow-supervisor", daemon=True
    ).start()


def _leave_after(pipe: int, orphan_seconds_max: float) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(orphan_seconds_max)
    os.kill(os.getpid(), signal.SIGKILL)


class _Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        counts: str,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._command = command
        self._listening = listening
        self._counts = counts
        self._clock = clock
        self._say = say
        self._children: set[Process] = set()
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self, processes: int) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        watched, held = os.pipe()
        try:
            await asyncio.gather(*(self._keep_running(place, watched) for place in range(1, processes + 1)))
        finally:
            os.close(watched)
            os.close(held)
        return self._exit_code

    async def _keep_running(self, place: int, pipe: int) -> None:
        """Start the child, and start it again whenever it ends before it was asked to."""
        early_ends = 0
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            ended, who = await self._run_child(place, pipe)
            if self._stopping.is_set():
                self._note_end(ended, who)
            elif ended in HOPELESS:
                self._give_up(ended, who)
            else:
                early_ends = 1 if self._clock.monotonic() - started >= HEALTHY_SECONDS else early_ends + 1
                delay = RESTART.delay_ms(early_ends) / 1000
                self._say(f"{who} {how(ended)}; starting another in {delay:g} s")
                await happens(self._stopping, within=delay)

    async def _run_child(self, place: int, pipe: int) -> tuple[int, str]:
        listening = self._listening.fileno()
        child = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=DEVNULL,
            pass_fds=[listening, pipe],
            env={
                **os.environ,
                LISTEN_FD: str(listening),
                SUPERVISOR_FD: str(pipe),
                PROCESS: str(place),
                "PROMETHEUS_MULTIPROC_DIR": self._counts,
            },
            # A group of its own: Ctrl-C reaches the supervisor alone, which passes it on once.
            process_group=0,
        )
        self._children.add(child)
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        ended = await child.wait()
        self._children.discard(child)
        forget_process(child.pid, Path(self._counts))
        return ended, f"process {place} (pid {child.pid})"

    def _note_end(self, ended: int, who: str) -> None:
        if ended != 0 and self._exit_code == 0:
            self._exit_code = 1
            self._say(f"{who} {how(ended)} instead of draining")

    def _give_up(self, ended: int, who: str) -> None:
        self._say(f"{who} {how(ended)}; another start would end the same way, so all stop")
        self._exit_code = ended
        self._stopping.set()
        self._send(signal.SIGTERM)

    def _on_signal(self, number: int) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._send(number)
            return
        self._exit_code = 128 + number
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for child in self._children:
            # It may have ended a moment ago, unseen.
            with suppress(ProcessLookupError):
                child.send_signal(number)


def how(ended: int) -> str:
    """What a return code of a process means, in words."""
    if ended >= 0:
        return f"ended with {ended}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-ended, f'signal {-ended}')}"


def _say(text: str) -> None:
    print(f"turnlane: {text}", file=sys.stderr, flush=True)
