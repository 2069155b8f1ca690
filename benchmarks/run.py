"""Run every workload and keep what was found in benchmarks/results: the table to read, the JSON to compare.

python benchmarks/run.py [the options of `turnlane bench`, except --json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BENCH = [sys.executable, "-m", "turnlane.cli.main", "bench", "--json"]


def main(options: Sequence[str]) -> int:
    done = subprocess.run([*BENCH, *options], stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode  # what went wrong is already on standard error
    found = json.loads(done.stdout)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    table = "\n".join(lines(found)) + "\n"
    (RESULTS / "latest.md").write_text(table)
    sys.stdout.write(table)
    return done.returncode


def lines(found: Mapping[str, Any]) -> Sequence[str]:
    where = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    head = [
        f"Medians of {found['rounds']} rounds; {where}.",
        "",
        "| workload | what | median | range | unit | must | aim | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return [*head, *map(line, found["figures"])]


def line(figure: Mapping[str, Any]) -> str:
    cells = [
        figure["workload"],
        figure["what"],
        f"{figure['median']:.2f}",
        f"{figure['low']:.2f}–{figure['high']:.2f}",
        figure["unit"],
        bound(figure["sign"], figure["must"]),
        bound(figure["sign"], figure["aim"]),
        figure["reached"],
    ]
    return f"| {' | '.join(cells)} |"


def bound(sign: str, value: float | None) -> str:
    return "" if value is None else f"{sign} {value:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
