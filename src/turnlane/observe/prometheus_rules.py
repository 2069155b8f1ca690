"""The table of alerts, written as rules for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator

from turnlane.model.alert import Thresholds
from turnlane.observe.rules import CALM_MS, RULES, WINDOW_MS, Growth, Level, Rule, Series, Share

HEAD = """\
# Made by `turnlane alerts rules` from the table that every process judges by. Name this file in rule_files.
groups:
  - name: turnlane
    rules:
"""

_TEMPLATES = {
    "share": "{{ $value | humanizePercentage }}",
    "seconds": "{{ $value | humanizeDuration }}",
    "number": "{{ $value | humanize }}",
}
"""How Prometheus writes a number of that unit."""


def prometheus_rules(thresholds: Thresholds) -> str:
    wanted = (rule for rule in RULES if rule.alert not in thresholds.off)
    return HEAD + "".join(line + "\n" for rule in wanted for line in _lines(rule, thresholds))


def name_of(rule: Rule) -> str:
    return "Turnlane" + "".join(word.capitalize() for word in rule.alert.split("_"))


def expression(rule: Rule, thresholds: Thresholds) -> str:
    """For each job, so that one Prometheus may watch several installations."""
    asked = _asked(rule, f"{'<' if rule.below else '>'} {rule.limit(thresholds):g}", thresholds.samples_min)
    if rule.only_without is None:
        return asked
    return f"{asked} and max by (job) ({_selector(rule.only_without)}) == 0"


def _asked(rule: Rule, too_much: str, samples_min: int) -> str:
    match rule.measure:
        case Share(part, whole):
            parts, all_ = _increase(part), _increase(whole)
            # A counter that nobody has counted on yet is not there, and means nought.
            return f"({parts} or {all_} * 0) / {all_} {too_much} and {all_} >= {samples_min}"
        case Growth(series, within_ms):
            grown = f"{_selector(series)} - min_over_time({_selector(series)}[{_duration(within_ms)}])"
            return f"{'sum' if series.grows else 'max'} by (job) ({grown}) {too_much}"
        case Level(series):
            return f"{'min' if rule.below else 'max'} by (job) ({_selector(series)}) {too_much}"


def _lines(rule: Rule, thresholds: Thresholds) -> Iterator[str]:
    """JSON texts are YAML texts, too."""
    limit = rule.written(rule.limit(thresholds))
    yield f"      - alert: {name_of(rule)}"
    yield f"        expr: {json.dumps(expression(rule, thresholds))}"
    if rule.lasts_ms:
        yield f"        for: {_duration(rule.lasts_ms)}"
    yield f"        keep_firing_for: {_duration(CALM_MS)}"
    yield f"        labels: {{severity: {rule.severity}}}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(rule.text.format(value=_TEMPLATES[rule.unit], threshold=limit))}"
    yield f"          description: {json.dumps(rule.next_step)}"


def _increase(series: Series) -> str:
    return f"sum by (job) (increase({_selector(series)}[{_duration(WINDOW_MS)}]))"


def _selector(series: Series) -> str:
    if series.label is None:
        return series.metric
    return f'{series.metric}{{{series.label}=~"{"|".join(series.words)}"}}'


def _duration(ms: int) -> str:
    seconds = ms // 1000
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
