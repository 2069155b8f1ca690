"""What is promised: every figure with what it must reach and what is aimed for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Sign = Literal["≥", "≤", "="]

_HOLDS: Mapping[Sign, Callable[[float, float], bool]] = {"≥": operator.ge, "≤": operator.le, "=": operator.eq}


@dataclass(frozen=True, slots=True)
class Target:
    workload: str
    what: str
    unit: str
    sign: Sign
    must: float | None = None
    aim: float | None = None

    def reached(self, value: float) -> Literal["aim", "must", "not met", "reported"]:
        if self.aim is not None and _HOLDS[self.sign](value, self.aim):
            return "aim"
        if self.must is None:
            return "reported" if self.aim is None else "not met"
        return "must" if _HOLDS[self.sign](value, self.must) else "not met"


_RAW = "× raw commits/s"
_ROWS = "× the same rows without an engine"

TARGETS: Mapping[str, Target] = {
    "burst.collect.many": Target("W1", "burst, collect, 100 slots", _RAW, "≥", 1.5, 3.0),
    "burst.queue.many": Target("W1", "burst, queue, 100 slots", _RAW, "≥", 1.5, 3.0),
    "burst.collect.few": Target("W1", "burst, collect, 5 slots", _RAW, "≥", 2.5, 5.0),
    "burst.queue.few": Target("W1", "burst, queue, 5 slots", _RAW, "≥", 0.8, 1.5),
    "rows.collect": Target("W1", "burst, collect, 100 slots", _ROWS, "≥", 0.25, 0.45),
    "rows.queue": Target("W1", "burst, queue, 100 slots", _ROWS, "≥", 0.25, 0.45),
    "http": Target("W1-HTTP", "burst over HTTP, collect, 100 slots", "× the engine's W1", "≥", None, 0.3),
    "idle.start": Target("W2", "idle: accept call → agent starts, p50", "ms above 1 raw commit", "≤", 0.5, 0.25),
    "idle.commit": Target("W2", "idle: accept call → turn committed, p50", "ms above 2 raw commits", "≤", 1.0, 0.4),
    "backlog": Target("W3", "drain rate with a very long queue of lanes", "× that with 1,000", "≥", 0.67, 0.9),
    "slow": Target("W4", "slow agent: makespan", "× the ideal", "≤", 1.03, 1.01),
    "gathering": Target("W5", "gathering: most turns of a conversation", "turns", "=", 1.0, None),
    "follow_up": Target(
        "W6", "follow-up: end of a turn → start of the next, p50", "ms above 1 raw commit", "≤", 0.8, 0.4
    ),
    "processes.2.fair": Target("W7", "2 processes: slowest", "× the fastest", "≥", 1 / 3, None),
    "processes.2.total": Target("W7", "2 processes: total", "× one process", "≥", 0.6, None),
    "processes.4.fair": Target("W7", "4 processes: slowest", "× the fastest", "≥", 1 / 3, None),
    "processes.4.total": Target("W7", "4 processes: total", "× one process", "≥", 0.6, None),
    "memory": Target("memory", "objects kept for idle conversations", "objects", "=", 0.0, None),
}
"""Of SQLite, by the name under which a workload reports it. The sizes in the texts are those of a full run."""

_MS = "ms"

POSTGRES_TARGETS: Mapping[str, Target] = {
    **{name: replace(TARGETS[name], must=2.0, aim=None) for name in ("burst.collect.many", "burst.queue.many")},
    **{name: replace(TARGETS[name], must=None, aim=None) for name in ("burst.collect.few", "burst.queue.few")},
    "http": TARGETS["http"],
    "idle.start": Target("W2", "idle: accept call → agent starts, p50", _MS, "≤", 1.5, None),
    "idle.commit": Target("W2", "idle: accept call → turn committed, p50", _MS, "≤", 2.5, None),
    "backlog": TARGETS["backlog"],
    "slow": replace(TARGETS["slow"], must=1.05, aim=None),
    "gathering": TARGETS["gathering"],
    "follow_up": Target("W6", "follow-up: end of a turn → start of the next, p50", _MS, "≤", 2.0, None),
    "workers.2": Target("workers", "2 workers, agent of 200 ms, 50 at once each", "× one worker", "≥", 1.8, None),
    "memory": TARGETS["memory"],
}

_PUBLISHES = "× raw publishes/s"
_BURST_ON_NATS = Target("W1", "burst, collect, 100 slots", _PUBLISHES, "≥", 0.4, 0.7)

NATS_TARGETS: Mapping[str, Target] = {
    **POSTGRES_TARGETS,
    "burst.collect.many": _BURST_ON_NATS,
    "burst.queue.many": replace(_BURST_ON_NATS, what="burst, queue, 100 slots"),
    "burst.collect.few": replace(_BURST_ON_NATS, what="burst, collect, 5 slots", must=None, aim=None),
    "burst.queue.few": replace(_BURST_ON_NATS, what="burst, queue, 5 slots", must=None, aim=None),
    "idle.start": replace(POSTGRES_TARGETS["idle.start"], must=3.0),
    "idle.commit": replace(POSTGRES_TARGETS["idle.commit"], must=10.0),
    "follow_up": replace(POSTGRES_TARGETS["follow_up"], must=8.0),
}
"""Of one server that syncs whatever it acknowledges."""

CLUSTER_TARGETS: Mapping[str, Target] = {
    **NATS_TARGETS,
    **{name: replace(NATS_TARGETS[name], must=None, aim=None) for name in ("burst.collect.many", "burst.queue.many")},
    "idle.commit": replace(POSTGRES_TARGETS["idle.commit"], must=8.0),
    "follow_up": replace(POSTGRES_TARGETS["follow_up"], must=6.0),
}
"""Of three replicas. A burst must reach 2,000 messages a second, which its details say."""


def targets_of(server: str | None) -> Mapping[str, Target]:
    if server is None:
        return TARGETS
    if not server.startswith("nats:"):
        return POSTGRES_TARGETS
    return CLUSTER_TARGETS if "replicas=" in server else NATS_TARGETS
