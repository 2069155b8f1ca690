"""How much each workload does: in full, in short, and just enough to be tested for its results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int = 3
    raw_seconds: float = 0.7
    """How long the raw limit is measured, before and after each measurement."""
    conversations: int = 1_000
    messages: int = 10
    callers: int = 64
    slots_many: int = 100
    slots_few: int = 5
    probes: int = 300
    follow_ups: int = 60
    backlog: int = 100_000
    backlog_small: int = 1_000
    drained: int = 1_000
    slow_conversations: int = 1_000
    slow_slots: int = 500
    slow_seconds: float = 1.0
    bursts: int = 200
    burst_seconds: float = 1.0
    debounce_ms: int = 500
    max_wait_ms: int = 2_000
    processes: tuple[int, ...] = (2, 4)
    workers_lanes: int = 1_000
    workers_slots: int = 50
    workers_seconds: float = 0.2


FULL = Scale()
QUICK = Scale(
    rounds=1,
    raw_seconds=0.3,
    conversations=300,
    probes=100,
    follow_ups=20,
    backlog=20_000,
    slow_conversations=500,
    slow_slots=250,
    processes=(2,),
)
TINY = Scale(
    rounds=1,
    raw_seconds=0.0,
    conversations=6,
    messages=3,
    callers=3,
    slots_many=4,
    slots_few=2,
    probes=3,
    follow_ups=2,
    backlog=20,
    backlog_small=5,
    drained=5,
    slow_conversations=4,
    slow_slots=4,
    slow_seconds=0.01,
    bursts=2,
    burst_seconds=0.02,
    debounce_ms=60,
    max_wait_ms=2_000,
    processes=(2,),
    workers_lanes=6,
    workers_slots=2,
    workers_seconds=0.01,
)
