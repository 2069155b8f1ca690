"""Histories that could happen to a store, replayed from a seed: virtual time, faults, an oracle and checkers."""

from turnlane.testing.simulation.oracle import Violation
from turnlane.testing.simulation.runs import (
    BROKEN_MAX,
    STEPS,
    Broken,
    History,
    OpenStore,
    simulate,
    simulate_many,
    throwaway,
)

__all__ = [
    "BROKEN_MAX",
    "STEPS",
    "Broken",
    "History",
    "OpenStore",
    "Violation",
    "simulate",
    "simulate_many",
    "throwaway",
]
