"""Histories that could happen to a store, replayed from a seed: virtual time, faults, an oracle and checkers."""

from turnlane.testing.simulation.oracle import Violation
from turnlane.testing.simulation.runs import Broken, History, simulate, simulate_many, throwaway

__all__ = ["Broken", "History", "Violation", "simulate", "simulate_many", "throwaway"]
