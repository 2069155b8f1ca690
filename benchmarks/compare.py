"""This checkout against another one: the same work of both in turn, and how fast this one is over that one.

python benchmarks/compare.py ../before --rounds 9            # the bursts
python benchmarks/compare.py ../before --rounds 5 --others   # the other workloads
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
BURSTS = ("collect,100", "queue,100", "collect,5", "queue,5")
"""Busy policy and slots."""

OTHERS = {
    "idle.start": "p50_ms",
    "idle.commit": "p50_ms",
    "backlog": "turns_per_second_large",
    "slow": "makespan_seconds",
    "follow_up": "p50_ms",
    "processes.2.total": "messages_per_second",
    "processes.4.total": "messages_per_second",
}
"""By the name of the figure: the part of its detail that is compared."""

BURST = """
import sys, tempfile
from pathlib import Path
from turnlane.app import tune_collector
from turnlane.testing.bench.burst import one_burst
from turnlane.testing.bench.scale import FULL
tune_collector()
policy, slots = sys.argv[1].split(",")
with tempfile.TemporaryDirectory() as folder:
    where = Path(folder) / "burst.db"
    try:
        from turnlane.testing.bench.ground import url_of
        where = url_of(where)
    except ImportError:  # a checkout that is older
        pass
    print(one_burst(where, policy, int(slots), FULL).rate)
"""


def messages_a_second(checkout: Path, burst: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(
        [sys.executable, "-c", BURST, burst], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def details(checkout: Path) -> dict[str, float]:
    """Of the other workloads, one round."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    bench = "from turnlane.cli.main import main; main()"
    asked = ["bench", "--only", "W2,W3,W4,W6,W7", "--rounds", "1", "--json"]
    # Its exit code says whether what must be reached was; here only the difference counts.
    done = subprocess.run([sys.executable, "-c", bench, *asked], env=environment, capture_output=True, check=False)
    figures = {each["name"]: each["detail"] for each in json.loads(done.stdout)["figures"]}
    return {name: figures[name][part] for name, part in OTHERS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--others", action="store_true", help="W2, W3, W4, W6 and W7 instead of the bursts")
    given = parser.parse_args()
    if not (given.other / "src" / "turnlane").is_dir():
        parser.error(f"{given.other} is no checkout of turnlane; make one with `git worktree add {given.other} TAG`")
    compare = compare_others if given.others else compare_bursts
    compare(given.other.resolve(), given.rounds)


def compare_bursts(other: Path, rounds: int) -> None:
    for burst in BURSTS:
        there, here = [], []
        for _ in range(rounds):
            there.append(messages_a_second(other, burst))
            here.append(messages_a_second(HERE, burst))
        report(burst, here, there, "messages/s", faster=statistics.median(here) / statistics.median(there))


def compare_others(other: Path, rounds: int) -> None:
    pairs = [(details(HERE), details(other)) for _ in range(rounds)]
    for name, part in OTHERS.items():
        here, there = [pair[0][name] for pair in pairs], [pair[1][name] for pair in pairs]
        ratio = statistics.median(here) / statistics.median(there)
        more_is_better = part.startswith(("turns", "messages"))
        report(name, here, there, part, faster=ratio if more_is_better else 1 / ratio)


def report(name: str, here: list[float], there: list[float], unit: str, *, faster: float) -> None:
    print(f"{name:17} {faster:.3f} ({_range(here)} over {_range(there)} {unit})", flush=True)


def _range(figures: list[float]) -> str:
    return f"{min(figures):.4g} to {max(figures):.4g}"


if __name__ == "__main__":
    main()
