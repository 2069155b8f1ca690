"""All workloads in rounds: in each round every one meets the same machine, so that medians compare."""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from turnlane.app import tune_collector
from turnlane.clock import SystemClock
from turnlane.errors import BackendUnavailable, InvalidSettings
from turnlane.testing.bench.backlog import backlog
from turnlane.testing.bench.burst import burst
from turnlane.testing.bench.gathering import gathering
from turnlane.testing.bench.ground import Files, Ground, Remote, Server, Stream
from turnlane.testing.bench.latency import follow_up, idle
from turnlane.testing.bench.memory import memory
from turnlane.testing.bench.over_http import over_http
from turnlane.testing.bench.processes import processes
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale
from turnlane.testing.bench.slow import slow
from turnlane.testing.bench.workers import workers

Workload = Callable[[Scale, Ground], Iterator[Sample]]

WORKLOADS: Mapping[str, Workload] = {
    "W1": burst,
    "W1-HTTP": over_http,
    "W2": idle,
    "W3": backlog,
    "W4": slow,
    "W5": gathering,
    "W6": follow_up,
    "W7": processes,
    "workers": workers,
    "memory": memory,
}
ONLY_FILES = ("W7",)
"""Processes that share a file take turns; machines that share a server do not."""
ONLY_SERVERS = ("workers",)


def chosen(names: Iterable[str]) -> list[str]:
    """The workloads of these names in their order; all, if none is named."""
    wanted = {name.strip().lower() for name in names} - {""}
    known = {name.lower(): name for name in WORKLOADS}
    if unknown := sorted(wanted - known.keys()):
        raise InvalidSettings(f"no workload is named {', '.join(unknown)}; choose from {', '.join(WORKLOADS)}")
    return [name for lower, name in known.items() if not wanted or lower in wanted]


def run(
    names: Iterable[str], scale: Scale, *, folder: Path | None = None, server: str | None = None
) -> Iterator[tuple[str, list[Sample]]]:
    """Each round of each workload as it ends, each on stores of its own. Raises WrongResult at the first.

    In fresh folders inside `folder`, or on the Postgres or NATS `server` of that URL.
    """
    names = [name for name in names if name not in (ONLY_SERVERS if server is None else ONLY_FILES)]
    with _as_turnlane_runs():
        for _ in range(scale.rounds):
            for name in names:
                yield name, _one_round(WORKLOADS[name], scale, folder, server)


@contextmanager
def _as_turnlane_runs() -> Iterator[None]:
    """With the garbage collector as `turnlane run` sets it."""
    before = gc.get_threshold()
    tune_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def _one_round(workload: Workload, scale: Scale, folder: Path | None, server: str | None) -> list[Sample]:
    if server is not None:
        kind: type[Remote] = Stream if server.startswith("nats:") else Server
        ground = kind(server, f"bench_{SystemClock().token()}")
        try:
            return list(workload(scale, ground))
        finally:
            ground.drop()
    try:
        with tempfile.TemporaryDirectory(prefix="turnlane-bench-", dir=folder) as fresh:
            return list(workload(scale, Files(Path(fresh))))
    except (OSError, sqlite3.Error) as error:
        where = folder or tempfile.gettempdir()
        raise BackendUnavailable(f"nothing can be measured in {where}; choose another --folder ({error})") from error


def machine() -> dict[str, object]:
    """What the figures depend on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": round(os.getloadavg()[0], 1),
    }
