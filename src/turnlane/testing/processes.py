"""A real `turnlane` command as a process of its own: started, watched by its log, stopped in every way there is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import turnlane
from turnlane.http.listen import SUPERVISOR_FD

COMMAND = (sys.executable, "-m", "turnlane.cli.main")
SECONDS_MAX = 60.0
"""How long to wait for what must happen. Generous: a loaded machine is slow, a bug is never in time."""
LOG_LINES_SHOWN = 30

Line = dict[str, Any]


class Turnlane:
    """`async with Turnlane("run", "--config", …) as it:` — nothing of it is left when the block ends.

    The log is read as JSON; a line that is none, such as an error message, is `{"text": …}`.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        wrapper: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
        keeps: Collection[str] | None = None,
        apart: bool = False,
    ) -> None:
        """`keeps`: of its log only these events, and what is no event; all, unless told. `apart`: in a group of its
        own, so that Ctrl-C on this terminal does not reach it; it leaves by itself if this process is gone."""
        self.lines: list[Line] = []
        self._keeps = keeps
        self._apart = apart
        self._pipe: int | None = None
        self._argv = [*wrapper, *command, *arguments]
        self._folder = folder
        self._environment = surroundings() if environment is None else environment
        self._began = 0
        self._heard = asyncio.Event()
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, or start it again after it ended. What is asked about its log is then asked about this start."""
        self._began = len(self.lines)
        watched = self._watched()
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            cwd=self._folder,
            env={**self._environment, **({} if watched is None else {SUPERVISOR_FD: str(watched)})},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            process_group=0 if self._apart else None,
            pass_fds=() if watched is None else (watched,),
        )
        if watched is not None:
            os.close(watched)
        self._reader = asyncio.create_task(self._read(self._process))

    def _watched(self) -> int | None:
        """Its end of a pipe; ours is closed with this process, however that ends."""
        self._let_go()
        if not self._apart:
            return None
        watched, self._pipe = os.pipe()
        return watched

    def _let_go(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    async def __aenter__(self) -> Turnlane:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self.is_running and "--processes" in self._argv:
            # Killed outright, a supervisor would leave its children to drain by themselves.
            await self._end_with_children()
        if self.is_running:
            self.kill()
        await self.ended()
        self._let_go()

    # What it says

    async def said(self, event: str, *, times: int = 1, within: float = SECONDS_MAX, **facts: object) -> Line:
        """The line of this event (with these facts) that makes it so many of them; waits until it is there."""
        wanted = {"event": event, **facts}
        try:
            async with asyncio.timeout(within):
                while len(found := self._found(wanted)) < times:
                    await self._hear()
        except TimeoutError:
            raise AssertionError(f"never said {wanted} {times}×; the end of its log:\n{self.last_words}") from None
        return found[times - 1]

    async def ready(self) -> str:
        """Its address, as soon as it answers requests."""
        url: str = (await self.said("server.ready"))["url"]
        return url

    @property
    def url(self) -> str | None:
        """The same without waiting; None if it is not ready yet."""
        ready = self._found({"event": "server.ready"})
        return ready[-1]["url"] if ready else None

    @property
    def last_words(self) -> str:
        return "\n".join(line.get("text") or json.dumps(line) for line in self.lines[-LOG_LINES_SHOWN:])

    @property
    def printed(self) -> list[str]:
        """What it has said since it was started that is no event."""
        return [line["text"] for line in self.lines[self._began :] if "text" in line]

    def _found(self, wanted: Line) -> list[Line]:
        return [line for line in self.lines[self._began :] if wanted.items() <= line.items()]

    async def _hear(self) -> None:
        if not self.is_running and self._reader is not None and self._reader.done():
            raise AssertionError(f"it ended with {self._running.returncode}; the end of its log:\n{self.last_words}")
        await self._heard.wait()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for raw in process.stdout:
            line = _parsed(raw.decode(errors="replace").rstrip())
            if self._keeps is None or line.get("event", "") in {"", *self._keeps}:
                self._note(line)
        await process.wait()
        self._note({"text": f"(ended with {process.returncode})"})

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        self._heard.set()
        self._heard = asyncio.Event()

    # What is done to it

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        """Gone between two instructions, as in a power cut. Works on a frozen one, too."""
        self._running.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stopped where it is, knowing nothing of it, until `thaw`."""
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Asked to drain; asked twice, to stop at once."""
        self._running.send_signal(signal.SIGTERM)

    async def ended(self, within: float = SECONDS_MAX) -> int:
        """Its exit code, once it and its log have ended."""
        assert self._reader is not None
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(self._reader)
        except TimeoutError:
            raise AssertionError(f"it still runs after {within:g} s; the end of its log:\n{self.last_words}") from None
        assert self._running.returncode is not None
        return self._running.returncode

    @property
    def _running(self) -> Process:
        assert self._process is not None, "start it first"
        return self._process

    async def _end_with_children(self) -> None:
        self.terminate()
        await asyncio.sleep(0)
        with suppress(ProcessLookupError):
            self.terminate()
        await self.ended()


def surroundings() -> dict[str, str]:
    """This very package, wherever the process starts, and none of the settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNLANE_")}
    here = str(Path(turnlane.__file__).resolve().parent.parent)
    path = kept.get("PYTHONPATH")
    return kept | {"PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


def _parsed(text: str) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        return {"text": text}
    return line if isinstance(line, dict) else {"text": text}
