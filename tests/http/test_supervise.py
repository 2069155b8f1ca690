"""Several processes on one port: kept running, stopped together, and never left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlane.cli.supervise import RESTART, how

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 20.0

SUPERVISE = """
import sys
from turnlane.cli.supervise import supervise
sys.exit(supervise(sys.argv[2:], processes=2, listen="127.0.0.1:0", command=[sys.executable, "-c", sys.argv[1]]))
"""

SUPERVISE_IN_FAST_TIME = (
    """
import itertools
from turnlane.clock import SystemClock
minutes = itertools.count(step=60)
SystemClock.monotonic = lambda self: next(minutes)
"""
    + SUPERVISE
)

CHILD = """
import os, signal, sys, time
from turnlane.cli.supervise import follow_supervisor, inherited_socket
follow_supervisor(os.environ, orphan_seconds_max=0.2)
port = inherited_socket(os.environ).getsockname()[1]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def leave(number, frame):
    say("told", os.getpid(), signal.Signals(number).name)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
say("born", os.getpid(), port, *sys.argv[1:])
while True:
    time.sleep(60)
"""
DIES = "import os, sys; os.write(1, b'ran\\n'); sys.exit(7)"
STUBBORN = CHILD.replace("    sys.exit(0)\n", "")


class Supervised:
    """A supervisor with two tiny children, each of which says when it was born and what it was told."""

    def __init__(self, supervisor: str, child: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", supervisor, child, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C of whoever runs the tests is not ours to pass on.
            process_group=0,
        )
        self.pids: set[int] = set()

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if words[:1] == ["born"]:
            self.pids.add(int(words[1]))
        return words

    def born(self, number: int) -> list[list[str]]:
        return [self.line() for _ in range(number)]

    def ends(self) -> tuple[int, str, str]:
        out, errors = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, out, errors

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        self.process.wait()


@pytest.fixture
def started() -> Iterator[list[Supervised]]:
    all_started: list[Supervised] = []
    yield all_started
    for supervised in all_started:
        supervised.clean_up()


def start(started: list[Supervised], child: str = CHILD, *arguments: str, supervisor: str = SUPERVISE) -> Supervised:
    supervised = Supervised(supervisor, child, *arguments)
    started.append(supervised)
    return supervised


def gone(pid: int) -> bool:
    """Whether the process ended. One that nobody has reaped yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pids: set[int]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < until, f"still there: {[pid for pid in pids if not gone(pid)]}"
        time.sleep(0.01)


def test_the_children_share_one_port_and_get_the_arguments(started: list[Supervised]) -> None:
    one, two = start(started, CHILD, "--config", "bot.toml").born(2)
    assert one[1] != two[1]
    assert one[2:] == two[2:]
    assert one[3:] == ["--config", "bot.toml"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_drain_waited_for(started: list[Supervised], number: signal.Signals) -> None:
    supervised = start(started)
    supervised.born(2)
    supervised.process.send_signal(number)
    code, out, errors = supervised.ends()
    assert (code, errors) == (0, "")
    assert sorted(out.splitlines()) == sorted(f"told {pid} {number.name}" for pid in supervised.pids)
    wait_until_gone(supervised.pids)


def test_a_second_signal_kills_at_once(started: list[Supervised]) -> None:
    supervised = start(started, STUBBORN)
    supervised.born(2)
    supervised.process.send_signal(signal.SIGTERM)
    assert [supervised.line()[0] for _ in range(2)] == ["told", "told"]
    supervised.process.send_signal(signal.SIGTERM)
    code, _, _ = supervised.ends()
    assert code == 128 + signal.SIGTERM
    wait_until_gone(supervised.pids)


def test_a_child_that_dies_is_replaced_and_named(started: list[Supervised]) -> None:
    supervised = start(started)
    (_, victim, port), _ = supervised.born(2)
    os.kill(int(victim), signal.SIGKILL)
    (replacement,) = supervised.born(1)
    assert replacement[1] != victim
    assert replacement[2] == port
    supervised.process.send_signal(signal.SIGTERM)
    code, _, errors = supervised.ends()
    assert code == 0
    assert f"(pid {victim}) was killed by SIGKILL; starting another in 0.2 s" in errors


def test_a_child_that_keeps_dying_is_given_more_and_more_time(started: list[Supervised]) -> None:
    assert delays_of(start(started, DIES)) >= {"0.2", "0.4"}


def test_a_child_that_lived_a_while_is_replaced_as_soon_as_the_first(started: list[Supervised]) -> None:
    assert delays_of(start(started, DIES, supervisor=SUPERVISE_IN_FAST_TIME)) == {"0.2"}


def delays_of(supervised: Supervised) -> set[str]:
    """What the supervisor said about delays while its two children died three times each."""
    for _ in range(6):
        assert supervised.line() == ["ran"]
    supervised.process.send_signal(signal.SIGTERM)
    _, _, errors = supervised.ends()
    return set(re.findall(r"ended with 7; starting another in (\S+) s", errors))


def test_delays_are_bounded() -> None:
    assert [RESTART.delay_ms(ends) for ends in (1, 2, 3, 1_000)] == [200, 400, 800, 30_000]


def test_what_no_restart_mends_stops_everybody(started: list[Supervised]) -> None:
    code, _, errors = start(started, "import sys; sys.exit(2)").ends()
    assert code == 2
    assert "another start would end the same way" in errors


def test_a_child_that_fails_to_drain_is_told_by_the_exit_code(started: list[Supervised]) -> None:
    supervised = start(started, CHILD.replace("sys.exit(0)", "sys.exit(9)"))
    supervised.born(2)
    supervised.process.send_signal(signal.SIGTERM)
    code, _, errors = supervised.ends()
    assert code == 1
    assert "ended with 9 instead of draining" in errors


@pytest.mark.parametrize("child", [CHILD, STUBBORN], ids=["drains", "stubborn"])
def test_children_do_not_outlive_a_supervisor_that_was_killed(started: list[Supervised], child: str) -> None:
    supervised = start(started, child)
    supervised.born(2)
    supervised.process.kill()
    wait_until_gone(supervised.pids)


def test_how_a_child_ended_is_said_in_words() -> None:
    assert [how(ended) for ended in (0, 3, -9, -40)] == [
        "ended with 0",
        "ended with 3",
        "was killed by SIGKILL",
        "was killed by signal 40",
    ]
