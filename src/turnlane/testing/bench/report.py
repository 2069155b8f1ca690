"""What a run gives: samples, the figures they make, and both as JSON."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turnlane.testing.bench.targets import TARGETS, Target

Detail = Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: the figure it belongs to, its value in the unit of the target, and what it is made of."""

    name: str
    value: float
    detail: Detail = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """All samples of one target."""

    name: str
    samples: Sequence[Sample]
    target: Target

    @property
    def median(self) -> float:
        return statistics.median(sample.value for sample in self.samples)

    @property
    def low(self) -> float:
        return min(sample.value for sample in self.samples)

    @property
    def high(self) -> float:
        return max(sample.value for sample in self.samples)

    @property
    def reached(self) -> str:
        return self.target.reached(self.median)

    @property
    def missed(self) -> bool:
        """Something that must be reached is not. An aim alone is no promise."""
        return self.reached == "not met" and self.target.must is not None

    @property
    def detail(self) -> Detail:
        """The medians of the numbers, and the last of the texts."""
        gathered: defaultdict[str, list[float | str]] = defaultdict(list)
        for sample in self.samples:
            for key, value in sample.detail.items():
                gathered[key].append(value)
        return {key: _middle(values) for key, values in gathered.items()}

    def as_json(self) -> dict[str, object]:
        target = self.target
        return {
            "workload": target.workload,
            "name": self.name,
            "what": target.what,
            "unit": target.unit,
            "median": round(self.median, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
            "sign": target.sign,
            "must": target.must,
            "aim": target.aim,
            "reached": self.reached,
            "detail": {
                key: round(value, 4) if isinstance(value, float) else value for key, value in self.detail.items()
            },
        }


def figures(samples: Iterable[Sample], targets: Mapping[str, Target] = TARGETS) -> list[Figure]:
    """In the order of the targets."""
    by_name: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_name[sample.name].append(sample)
    return [Figure(name, by_name[name], target) for name, target in targets.items() if name in by_name]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _middle(values: Sequence[float | str]) -> float | str:
    numbers = [value for value in values if not isinstance(value, str)]
    return statistics.median(numbers) if len(numbers) == len(values) else values[-1]
