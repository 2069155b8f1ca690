"""Judging the numbers: which alerts are raised now. Decides only; whoever looks says what the time is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from turnlane.model.alert import Alert, PastAlert, Thresholds
from turnlane.model.value import value
from turnlane.observe.rules import CALM_MS, RECENT_MS, RULES, WINDOW_MS, Growth, Level, Measure, Rule, Series, Share

RECENT_MAX = 100

Sample = tuple[str, Mapping[str, str], float]
"""The name of a number, its labels, and the number."""


@value
class Look:
    """What the rules ask for, as it was at one moment. What could not be known then is not there."""

    at: int
    values: Mapping[Series, float]


@value
class Change:
    how: Literal["raised", "cleared"]
    alert: Alert
    at: int


@dataclass(slots=True)
class _Trouble:
    """A rule that was true when last looked, or not long ago."""

    since: int
    seen_at: int
    measured: float


class Watch:
    """What was seen for a while, and what is raised for it. `begin` with how things were, then `look` now and then."""

    def __init__(self, thresholds: Thresholds | None = None, rules: Sequence[Rule] = RULES) -> None:
        self.thresholds = thresholds or Thresholds()
        self.recent: deque[PastAlert] = deque(maxlen=RECENT_MAX)
        """Those that are over, the latest first."""
        self._rules = rules
        self._wanted = _series_in(rules)
        self._looks: deque[Look] = deque()
        self._troubles: dict[str, _Trouble] = {}
        self._raised: dict[str, Alert] = {}

    @property
    def raised(self) -> list[Alert]:
        """The worst first, and of these the oldest."""
        order = ("critical", "warning", "info")
        return sorted(self._raised.values(), key=lambda each: (order.index(each.severity), each.since, each.alert))

    def begin(self, now: int, samples: Iterable[Sample]) -> None:
        self._looks.append(Look(now, self._picked(samples)))

    def look(self, now: int, samples: Iterable[Sample]) -> list[Change]:
        """Judge how things are. Returns what has changed by it."""
        if self._looks and now < self._looks[-1].at:
            self._begin_anew(now)
        self.begin(now, samples)
        # The last one before the window begins belongs to it: from there on things are counted.
        while len(self._looks) > 1 and self._looks[1].at <= now - RECENT_MS:
            self._looks.popleft()
        judged = (self._judged(rule, now) for rule in self._rules)
        return [change for change in judged if change is not None]

    def _begin_anew(self, now: int) -> None:
        """The clock was set back: what was seen in times to come says nothing of the last five minutes."""
        self._looks.clear()
        for trouble in self._troubles.values():
            trouble.since, trouble.seen_at = min(trouble.since, now), min(trouble.seen_at, now)

    def _picked(self, samples: Iterable[Sample]) -> Mapping[Series, float]:
        values: dict[Series, float] = {}
        for metric, labels, number in samples:
            for series in self._wanted.get(metric, ()):
                if series.label is None or labels.get(series.label) in series.words:
                    values[series] = values.get(series, 0.0) + number
        return values

    def _judged(self, rule: Rule, now: int) -> Change | None:
        limit = rule.limit(self.thresholds)
        if rule.alert in self.thresholds.off:
            self._troubles.pop(rule.alert, None)
            return self._clear(rule, now)
        measured = measure(rule.measure, self._looks, samples_min=self.thresholds.samples_min)
        if measured is None and not isinstance(rule.measure, Share):
            return None  # nobody knows: what was raised stays
        if measured is not None and rule.is_too_much(measured, limit) and self._counts(rule):
            return self._note_trouble(rule, measured, limit, now)
        return self._note_calm(rule, now)

    def _counts(self, rule: Rule) -> bool:
        return rule.only_without is None or self._looks[-1].values.get(rule.only_without, 0.0) == 0

    def _note_trouble(self, rule: Rule, measured: float, limit: float, now: int) -> Change | None:
        trouble = self._troubles.setdefault(rule.alert, _Trouble(now, now, measured))
        trouble.seen_at, trouble.measured = now, measured
        told, raised = rule.told(measured, limit), self._raised.get(rule.alert)
        if raised is not None:
            self._raised[rule.alert] = replace(raised, value=measured, threshold=limit, text=told)
            return None
        if now - trouble.since < rule.lasts_ms:
            return None
        alert = Alert(rule.alert, rule.severity, trouble.since, measured, limit, told, rule.next_step)
        self._raised[rule.alert] = alert
        return Change("raised", alert, now)

    def _note_calm(self, rule: Rule, now: int) -> Change | None:
        trouble = self._troubles.get(rule.alert)
        if trouble is None:
            return None
        if rule.alert in self._raised and now - trouble.seen_at < CALM_MS:
            return None
        del self._troubles[rule.alert]
        return self._clear(rule, now)

    def _clear(self, rule: Rule, now: int) -> Change | None:
        alert = self._raised.pop(rule.alert, None)
        if alert is None:
            return None
        self.recent.appendleft(
            PastAlert(alert.alert, alert.severity, alert.since, now, alert.value, alert.threshold, alert.text)
        )
        return Change("cleared", alert, now)


def measure(what: Measure, looks: Sequence[Look], *, samples_min: int) -> float | None:
    """The number that a rule is about. None: it cannot be told, or of too few."""
    latest = looks[-1]
    match what:
        case Level(series):
            return latest.values.get(series)
        case Growth(series, within_ms):
            return _growth(series, looks, latest.at - within_ms)
        case Share(part, whole):
            first = _first_of(looks, latest.at - WINDOW_MS)
            counted = _counted(whole, first, latest)
            return None if counted < max(samples_min, 1) else _counted(part, first, latest) / counted


def _growth(series: Series, looks: Sequence[Look], since: int) -> float | None:
    now = looks[-1].values.get(series)
    if now is None:
        return None
    first = _first_of(looks, since)
    return now - min(look.values[series] for look in looks if look.at >= first.at and series in look.values)


def _first_of(looks: Sequence[Look], since: int) -> Look:
    """The last look before that time, from which on things are counted; the first of all, if there is none."""
    return next((look for look in reversed(looks) if look.at <= since), looks[0])


def _counted(series: Series, first: Look, latest: Look) -> float:
    """A counter that nobody has counted on yet is at nought; one that began anew has counted what it has."""
    before, now = first.values.get(series, 0.0), latest.values.get(series, 0.0)
    return now - before if now >= before else now


def _series_in(rules: Iterable[Rule]) -> dict[str, list[Series]]:
    found: dict[str, list[Series]] = {}
    for rule in rules:
        for series in _of(rule.measure, rule.only_without):
            named = found.setdefault(series.metric, [])
            if series not in named:
                named.append(series)
    return found


def _of(what: Measure, beside: Series | None) -> Iterable[Series]:
    yield from (what.part, what.whole) if isinstance(what, Share) else (what.series,)
    if beside is not None:
        yield beside
