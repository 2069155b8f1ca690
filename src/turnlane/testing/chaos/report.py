"""What came out of it: which promises are Turnlane's, which are the bot's own, and which of them were broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

FINDINGS_SHOWN = 5
WIDE = 46

Owner = Literal["turnlane", "bot"]

PROMISES: Mapping[str, Owner] = {
    "nothing is lost": "turnlane",
    "nothing is said twice": "turnlane",
    "order is kept": "turnlane",
    "one turn at a time": "turnlane",
    "only what was committed is said": "turnlane",
    "answers in time": "bot",
    "stops when it is told to": "bot",
    "keeps conversations apart": "bot",
    "sends what it is handed, once": "bot",
    "does not end its process": "bot",
}
"""Whose each is. The bot's own are those that no store can keep for it."""


@dataclass(frozen=True)
class Finding:
    """One time that a promise was broken."""

    promise: str
    """One of `PROMISES`."""
    what: str

    @property
    def owner(self) -> Owner:
        return PROMISES[self.promise]


@dataclass(frozen=True)
class Report:
    """What happened, what was broken, and what is worth knowing although nothing was."""

    title: str
    happened: Mapping[str, object]
    broken: Sequence[Finding]
    notes: Sequence[str]
    replay: str

    @property
    def verdict(self) -> dict[str, int]:
        """How often each promise was broken."""
        times = Counter(finding.promise for finding in self.broken)
        return {promise: times[promise] for promise in PROMISES}

    def __str__(self) -> str:
        lines = [self.title, "", *(_row(name, value) for name, value in self.happened.items())]
        lines += ["", "Turnlane's promises", *self._kept("turnlane")]
        lines += ["", "Your bot's own", *self._kept("bot"), *(f"  note: {note}" for note in self.notes)]
        lines += ["", *(line for promise in PROMISES for line in self._told(promise)), self.conclusion]
        return "\n".join(lines)

    def _told(self, promise: str) -> list[str]:
        found = [f"BROKEN: {promise}: {each.what}" for each in self.broken if each.promise == promise]
        left = len(found) - FINDINGS_SHOWN
        return [*found[:FINDINGS_SHOWN], f"… and {left} more of this"] if left > 0 else found

    @property
    def conclusion(self) -> str:
        if not self.broken:
            return "every promise was kept"
        owners = {finding.owner for finding in self.broken}
        whose = {"turnlane": "Turnlane's", "bot": "your bot's"}
        return f"a promise was broken: {' and '.join(whose[each] for each in sorted(owners))}; again: {self.replay}"

    def _kept(self, owner: Owner) -> list[str]:
        return [
            _row(promise, f"broken {times} ×" if times else "kept")
            for promise, times in self.verdict.items()
            if PROMISES[promise] == owner
        ]


class PromiseBroken(AssertionError):
    """Raised by `chaos`, with the whole report as its text."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def _row(name: str, value: object) -> str:
    return f"  {name:<{WIDE}}{value:>12}"
