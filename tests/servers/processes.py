"""What the tests of servers ask about the processes of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from turnlane.testing import servers


def living() -> set[int]:
    return {pid for pid, _ in servers._living()}


def family(pid: int) -> set[int]:
    """A process and those that it started."""
    return {pid, *(child for child, parent in servers._living() if parent == pid)}


def leaves_nothing_when_killed(start: str) -> bool:
    """Whether everything goes when a process is killed that began so; the code prints each server's pid and folder."""
    code = f"from turnlane.testing.servers import *\n{start}\nprint(flush=True)\ninput()"
    tests = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    started = [line.split() for line in iter(tests.stdout.readline, "\n")]
    processes = set.union(*(family(int(pid)) for pid, _ in started))
    assert processes <= living()
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    gone = [Path(folder).parent for _, folder in started]
    return servers._comes_true(lambda: not processes & living() and not any(path.exists() for path in gone))
