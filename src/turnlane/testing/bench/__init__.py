"""How fast the engine is, held against the limit of its own store in the same run, and checked for its results."""

from turnlane.testing.bench.report import Figure, Sample, figures
from turnlane.testing.bench.runs import WORKLOADS, chosen, machine, run
from turnlane.testing.bench.scale import FULL, QUICK, TINY, Scale
from turnlane.testing.bench.witness import WrongResult

__all__ = [
    "FULL",
    "QUICK",
    "TINY",
    "WORKLOADS",
    "Figure",
    "Sample",
    "Scale",
    "WrongResult",
    "chosen",
    "figures",
    "machine",
    "run",
]
