"""`turnlane top` in a terminal: keys do what they say, and whatever happens, the terminal comes back as it was."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
import pytest
from tests.unit.test_cli import AT_ONCE, SOURCES, URL, call
from tests.unit.test_cli_explain import folder, lived  # noqa: F401 - a fixture of every test here
from tests.unit.test_cli_top import two_people

from turnlane.backends.base import Arrival
from turnlane.backends.memory import MemoryBackend
from turnlane.cli.screen import GIVE_BACK, TAKE, Screen
from turnlane.cli.top import Top
from turnlane.cli.top_desk import Desk
from turnlane.model.message import Message
from turnlane.testing.doubles import VirtualClock

SECONDS_MAX = 30.0


class Fake(Screen):
    """A screen that is never there: what is drawn is kept, and keys come through a pipe."""

    def __init__(self) -> None:
        read, self._keys = os.pipe()
        super().__init__(input=read, output=read)
        self.frames: list[str] = [""]
        self._drawn = asyncio.Event()
        self._size = (100, 20)

    def take(self) -> None:
        self.frames.append("taken")

    def give_back(self) -> None:
        self.frames.append("given back")

    @property
    def size(self) -> tuple[int, int]:
        return self._size

    def draw(self, lines: Sequence[str]) -> None:
        self.frames.append("\n".join(map(click.unstyle, lines)))
        self._drawn.set()
        self._drawn = asyncio.Event()

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._size = (columns, lines)
        os.kill(os.getpid(), signal.SIGWINCH)

    async def shows(self, text: str) -> str:
        async with asyncio.timeout(SECONDS_MAX):
            while text not in self.frames[-1]:
                await self._drawn.wait()
        return self.frames[-1]

    async def shows_lines(self, many: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while self.frames[-1].count("\n") != many - 1:
                await self._drawn.wait()


async def test_keys_do_to_the_store_what_they_say() -> None:
    backend = MemoryBackend("memory://", VirtualClock())
    await backend.accept([Arrival(Message("site", "m-1", "site/alice", "alice", "where is it?"), AT_ONCE)])
    await backend.accept([Arrival(Message("site", "m-2", "site/bob", "bob", "hello"), AT_ONCE)])
    screen = Fake()
    top = Top(backend, screen, Desk(sort="name"), every=0.05, store="memory://", machine="m1", clock=VirtualClock())
    running = asyncio.create_task(top.run())
    await screen.shows("> site/alice")
    screen.press("p")
    await screen.shows("pause site/alice? y does it")
    assert {lane.state for lane in await backend.lanes()} == {"ready"}, "nothing is done before it is confirmed"
    screen.press("y")
    await screen.shows("no more turns start: site/alice is paused, 1 to be answered")
    assert [lane.conversation for lane in await backend.lanes(state="paused")] == ["site/alice"]
    screen.press("py")
    await screen.shows("resumed: site/alice is ready")
    screen.press("ry")
    await screen.shows("there is nothing to retry: site/alice")
    screen.press("\x1b[Bxy")
    await screen.shows("stopped: site/bob is idle, 0 to be answered")
    screen.press("k\r")
    await screen.shows("alice  where is it?")
    screen.resize(30, 8)
    await screen.shows_lines(8)
    assert "where is it?" in screen.frames[-1]
    screen.resize(100, 20)
    await screen.shows_lines(20)
    screen.press("\x1b")
    await screen.shows("> site/alice")
    screen.press("q")
    await asyncio.wait_for(running, SECONDS_MAX)
    assert screen.frames[-1] == "given back"
    acts = [each.event.facts for each in await backend.events() if each.event.name == "operator.acted"]
    verbs = ["pause site/alice", "resume site/alice", "retry site/alice", "stop site/bob"]
    assert [act["action"] for act in acts] == [f"turnlane top {verb}" for verb in verbs]
    assert {(act["by"], act["from"]) for act in acts} == {("cli", "m1")}


async def test_a_mistake_of_ours_gives_the_terminal_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, screen = MemoryBackend("memory://", VirtualClock()), Fake()

    async def broken(**asked: object) -> list[object]:
        raise ZeroDivisionError

    monkeypatch.setattr(backend, "events", broken)
    with pytest.raises(ZeroDivisionError):
        await Top(backend, screen, Desk(), every=1, store="", machine="m1", clock=VirtualClock()).run()
    assert screen.frames[-1] == "given back"


class Window:
    """A real terminal with a program in it."""

    def __init__(self, *command: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(100, 20)
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
            # So that keys such as Ctrl-C, and another size, reach the program as signals.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - nothing else is done there
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def shows(self, pattern: str) -> str:
        """Wait for it in what comes from now on; returns all up to there."""
        end = time.monotonic() + SECONDS_MAX
        while (found := re.search(pattern, self.seen, re.DOTALL)) is None:
            ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"never showed {pattern!r} but {self.seen[-2_000:]!r}"
            self.seen += os.read(self.master, 65_536).decode(errors="replace")
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def shows_frame(self, *, lines: int) -> str:
        """Wait for a whole screen of so many lines."""
        while True:
            frame = self.shows(r"\x1b\[H.*?\x1b\[J").rpartition("\x1b[H")[2]
            if frame.count("\r\n") == lines - 1:
                return frame

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def ended(self) -> int:
        return self.process.wait(SECONDS_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


TOP = (sys.executable, "-m", "turnlane.cli.main", "top", "--backend", URL, "--every", "0.2")


@contextmanager
def window(*command: str) -> Iterator[Window]:
    opened = Window(*command)
    try:
        yield opened
    finally:
        opened.close()


def shown(text: str) -> str:
    return re.escape(text)


def test_in_a_real_terminal_it_shows_steers_resizes_and_gives_it_back() -> None:
    lived(two_people)
    with window(*TOP) as it:
        it.shows(shown(TAKE))
        it.shows("site/bob")
        assert it.is_raw
        it.press("/bob\r\r")
        it.shows("where is my parcel")
        it.press("q")
        it.shows("CONVERSATION")
        it.press("p")
        it.shows("pause site/bob")
        it.press("y")
        it.shows("no more turns start")
        paused = json.loads(call("lanes", "--state", "paused", "--json").stdout)["lanes"]
        assert [lane["conversation"] for lane in paused] == ["site/bob"]
        it.resize(50, 9)
        small = it.shows(
            rf"{shown(chr(27))}\[H(?:(?!\n|{shown(chr(27))}\[J).)*(?:\n(?:(?!\n|{shown(chr(27))}\[J).)*){{8}}\x1b\[J"
        )
        assert "site/bob" in small
        it.press("q")
        it.shows(shown(GIVE_BACK))
        assert it.ended() == 0
        assert termios.tcgetattr(it.slave) == it.before


@pytest.mark.parametrize("how", ["ctrl-c", "terminated", "hung up"])
def test_however_it_ends_the_terminal_is_as_it_was(how: str) -> None:
    lived(two_people)
    with window(*TOP) as it:
        it.shows("site/bob")
        match how:
            case "ctrl-c":
                it.press("\x03")
            case "terminated":
                it.process.terminate()
            case _:
                it.process.send_signal(signal.SIGHUP)
        it.shows(shown(GIVE_BACK))
        assert it.ended() == 0
        assert termios.tcgetattr(it.slave) == it.before


def test_ctrl_z_gives_the_shell_its_terminal_until_it_is_wanted_again() -> None:
    lived(two_people)
    with window("bash", "-m", "-c", f"{' '.join(TOP)}; echo the shell has it: $?; fg >/dev/null; exit 7") as it:
        it.shows("site/bob")
        it.press("\x1a")
        given_back = it.shows("the shell has it: 148")
        assert GIVE_BACK in given_back
        it.shows(shown(TAKE))
        it.shows("site/bob")
        assert it.is_raw
        it.press("q")
        it.shows(shown(GIVE_BACK))
        assert it.ended() == 7
