"""What came of a storm: figures, and which promises were broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from turnlane.testing.evidence import Promise, Violation

VIOLATIONS_SHOWN = 20


@dataclass(frozen=True)
class Report:
    title: str
    figures: Mapping[str, int | float]
    violations: Sequence[Violation] = ()
    judged: bool = True
    """False: the instance is somebody else's, and only what it answered is known."""

    @property
    def promises(self) -> dict[str, int]:
        """How often each was broken."""
        broken = Counter(promise for promise, _ in self.violations)
        return {promise: broken[promise] for promise in get_args(Promise)} if self.judged else {}

    @property
    def verdict(self) -> str:
        if not self.judged:
            return "what became of the messages is the instance's own to tell: look at its console"
        return "a promise was BROKEN" if self.violations else "every promise was kept"

    @property
    def shown(self) -> dict[str, object]:
        """As JSON."""
        broken = [{"promise": promise, "what": what} for promise, what in self.violations]
        return {"title": self.title, "figures": self.figures, "promises": self.promises, "broken": broken}

    def __str__(self) -> str:
        rows = [f"  {name:<44}{_number(value):>10}" for name, value in {**self.figures, **self.promises}.items()]
        broken = [f"  {promise}: {what}" for promise, what in self.violations[:VIOLATIONS_SHOWN]]
        return "\n".join([self.title, *rows, *broken, self.verdict])


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many are not above; 0 of none."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
