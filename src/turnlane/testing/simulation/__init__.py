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
from turnlane.testing.simulation.side_by_side import side_by_side

__all__ = [
    "BROKEN_MAX",
    "STEPS",
    "Broken",
    "History",
    "OpenStore",
    "Violation",
    "side_by_side",
    "simulate",
    "simulate_many",
    "throwaway",
]
