"""This checkout against another one: the same work of both in turn, and how fast this one is over that one.

python benchmarks/compare.py ../before --rounds 9            # the bursts
python benchmarks/compare.py ../before --rounds 9 --others   # the other workloads
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parents[1]
BURSTS = ("collect,100", "queue,100", "collect,5", "queue,5")
"""Busy policy and slots."""

OTHERS = {
    "W2": {"idle.start": "p50_ms", "idle.commit": "p50_ms"},
    "W3": {"backlog": "turns_per_second_large"},
    "W4": {"slow": "makespan_seconds"},
    "W6": {"follow_up": "p50_ms"},
    "W7": {"processes.2.total": "messages_per_second", "processes.4.total": "messages_per_second"},
}
"""By workload, and by the name of its figure: the part of its detail that is compared."""

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


def details(checkout: Path, workload: str) -> dict[str, float]:
    """One round of a workload."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    bench = "from turnlane.cli.main import main; main()"
    asked = ["bench", "--only", workload, "--rounds", "1", "--json"]
    # Its exit code says whether what must be reached was; here only the difference counts.
    done = subprocess.run([sys.executable, "-c", bench, *asked], env=environment, capture_output=True, check=False)
    figures = {each["name"]: each["detail"] for each in json.loads(done.stdout)["figures"]}
    return {name: figures[name][part] for name, part in OTHERS[workload].items()}


def in_turn(measure: Callable[[Path], T], other: Path, rounds: int) -> list[tuple[T, T]]:
    """Of both, right after one another, each of them first every other time: (here, there)."""
    pairs = []
    for number in range(rounds):
        order = (other, HERE) if number % 2 else (HERE, other)
        figures = {checkout: measure(checkout) for checkout in order}
        pairs.append((figures[HERE], figures[other]))
    return pairs


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
        report(burst, in_turn(partial(messages_a_second, burst=burst), other, rounds), "messages/s")


def compare_others(other: Path, rounds: int) -> None:
    for workload, parts in OTHERS.items():
        pairs = in_turn(partial(details, workload=workload), other, rounds)
        for name, part in parts.items():
            report(name, [(here[name], there[name]) for here, there in pairs], part)


def report(name: str, pairs: list[tuple[float, float]], unit: str) -> None:
    """The median of how much faster each was than its neighbour: a slow quarter of an hour is slow for both."""
    more_is_better = unit.startswith(("turns", "messages"))
    faster = statistics.median(here / there if more_is_better else there / here for here, there in pairs)
    here, there = zip(*pairs, strict=True)
    print(f"{name:17} {faster:.3f} ({_range(here)} over {_range(there)} {unit})", flush=True)


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.4g} to {max(figures):.4g}"


if __name__ == "__main__":
    main()
