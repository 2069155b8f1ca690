"""What an event of Claude Code costs the person at the keyboard, over a bare start of Python, in one run.

    python benchmarks/hook.py [--rounds 101]

Prints the medians and their ratio. The event is kept durably, on the disk that TMPDIR names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from turnlane.cli import hook

EVENT = {
    "session_id": "78dbc5cb-4d13-4d14-b86e-318d457267a7",
    "transcript_path": "/home/user/.claude/projects/-home-user-project/78dbc5cb-4d13-4d14-b86e-318d457267a7.jsonl",
    "cwd": "/home/user/project",
    "hook_event_name": "Stop",
    "stop_hook_active": False,
    "last_assistant_message": "Done. " * 100,
}


def seconds(command: list[str], payload: bytes) -> float:
    began = time.perf_counter()
    subprocess.run(command, input=payload, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=101)
    rounds: int = parser.parse_args().rounds
    payload = json.dumps(EVENT).encode()
    with tempfile.TemporaryDirectory() as folder:
        spool = str(Path(folder) / "spool")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "the hook, as installed": [sys.executable, "-I", "-S", hook.__file__, "--spool", spool],
            "turnlane hook": [str(Path(sys.executable).with_name("turnlane")), "hook", "--spool", spool],
        }
        commands = {name: command for name, command in commands.items() if Path(command[0]).exists()}
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                took[name].append(seconds(command, payload))
    bare = statistics.median(took["python -c pass"])
    for name, measured in took.items():
        median = statistics.median(measured)
        print(f"{name:<24} {median * 1000:6.1f} ms   {median / bare:4.2f}")


if __name__ == "__main__":
    main()
