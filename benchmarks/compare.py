"""This checkout against another one: the same bursts of both in turn, and how fast this one is over that one.

python benchmarks/compare.py ../before --rounds 9
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
BURSTS = ("collect,100", "queue,100", "collect,5", "queue,5")
"""Busy policy and slots."""

BURST = """
import sys, tempfile
from pathlib import Path
from turnlane.app import tune_collector
from turnlane.testing.bench.burst import one_burst
from turnlane.testing.bench.scale import FULL
tune_collector()
policy, slots = sys.argv[1].split(",")
with tempfile.TemporaryDirectory() as folder:
    print(one_burst(Path(folder) / "burst.db", policy, int(slots), FULL).rate)
"""


def messages_a_second(checkout: Path, burst: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(
        [sys.executable, "-c", BURST, burst], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if not (given.other / "src" / "turnlane").is_dir():
        parser.error(f"{given.other} is no checkout of turnlane; make one with `git worktree add {given.other} TAG`")
    for burst in BURSTS:
        there, here = [], []
        for _ in range(given.rounds):
            there.append(messages_a_second(given.other.resolve(), burst))
            here.append(messages_a_second(HERE, burst))
        ratio = statistics.median(here) / statistics.median(there)
        print(f"{burst:12} {ratio:.3f} ({_range(here)} over {_range(there)} messages/s)")


def _range(rates: list[float]) -> str:
    return f"{min(rates):.0f}–{max(rates):.0f}"


if __name__ == "__main__":
    main()
