"""B9, C7: the rules for Prometheus are those of the table, and fire on the condition and not beside it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_metrics import names_of, page

from turnlane.model.alert import Thresholds
from turnlane.observe.metrics import Metrics
from turnlane.observe.prometheus_rules import expression, name_of, prometheus_rules
from turnlane.observe.rules import RULES, Growth, Level, Rule, Series, Share

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "src/turnlane/observe/shipped"
PROMTOOL = shutil.which("promtool")
with_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on the PATH; it comes with Prometheus")

MINUTE = 4
"""In samples, as one is taken every 15 seconds."""
WHOLE = 40
"""Counted between two samples."""


def test_the_shipped_rules_are_those_of_the_table() -> None:
    assert (SHIPPED / "turnlane-rules.yml").read_text("utf-8") == prometheus_rules(Thresholds())


def test_rules_follow_the_settings() -> None:
    text = prometheus_rules(Thresholds(store_errors=0.25, lock_held=1_800, samples_min=7, off=("hook_errors",)))
    assert "/ sum by (job) (increase(turnlane_store_calls_total[5m])) > 0.25 and" in text
    assert "max by (job) (turnlane_oldest_lock_seconds) > 1800" in text
    assert ">= 7" in text
    assert "TurnlaneHookErrors" not in text


def test_every_metric_of_the_dashboard_is_there() -> None:
    dashboard = json.loads((SHIPPED / "turnlane-dashboard.json").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    named = {re.sub("_bucket$", "", name) for name in re.findall(r"turnlane_\w+", " ".join(asked))}
    there = names_of(page(Metrics({"site"})))
    assert named <= there
    assert there - named == {
        "turnlane_hooks_ignored_total",
        "turnlane_hooks_aside_total",
        "turnlane_deliveries_waiting",
    }


def test_no_panel_of_the_dashboard_covers_another() -> None:
    panels = json.loads((SHIPPED / "turnlane-dashboard.json").read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(covered)) == len(covered)
    assert max(x for x, _ in covered) < 24


# Judged by Prometheus itself


@with_promtool
def test_prometheus_takes_the_rules() -> None:
    done = _promtool("check", "rules", str(SHIPPED / "turnlane-rules.yml"))
    assert f"{len(RULES)} rules found" in done


@with_promtool
def test_prometheus_fires_past_the_threshold_and_not_at_it(tmp_path: Path) -> None:
    """Each rule four times: past its threshold, at it, of too few, and long after it was past it."""
    tests = [test for rule in RULES for test in _tests_of(rule)]
    file = tmp_path / "tests.yml"
    rules = str(SHIPPED / "turnlane-rules.yml")
    file.write_text(json.dumps({"rule_files": [rules], "evaluation_interval": "15s", "tests": tests}), "utf-8")
    assert "SUCCESS" in _promtool("test", "rules", str(file))
    assert len(tests) >= 3 * len(RULES)


def _promtool(*words: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _tests_of(rule: Rule) -> list[dict[str, Any]]:
    limit = rule.limit(Thresholds())
    step = 0.01 if isinstance(rule.measure, Share) else 1
    past = limit - step if rule.below else limit + step
    found = [
        _test(rule, past, fires=True),
        _test(rule, limit, fires=False),
        _test(rule, past, fires=False, well_from=20 * MINUTE, at=40 * MINUTE),
    ]
    if isinstance(rule.measure, Share):
        found.append(_test(rule, past, fires=False, whole=0.8))
    return found


def _test(
    rule: Rule,
    measured: float,
    *,
    fires: bool,
    whole: float = WHOLE,
    well_from: int = 60 * MINUTE,
    at: int = 6 * MINUTE,
) -> dict[str, Any]:
    expected = []
    if fires:
        labels = f'{{alertname="{name_of(rule)}", severity="{rule.severity}", job="turnlane"}}'
        expected = [{"labels": labels, "value": 1}]
    series = [
        {"series": name, "values": values} for name, values in _series(rule, measured, whole, well_from, at).items()
    ]
    # Whether it fires, and nothing of how it is put.
    asked = {
        "expr": f'count by (alertname, severity, job) (ALERTS{{alertname="{name_of(rule)}", alertstate="firing"}})'
    }
    samples = {"eval_time": f"{at * 15}s", "exp_samples": expected}
    return {"interval": "15s", "input_series": series, "promql_expr_test": [{**asked, **samples}]}


def _series(rule: Rule, measured: float, whole: float, well_from: int, at: int) -> dict[str, str]:
    length = at + 1
    match rule.measure:
        case Share(part, all_):
            return _shares(part, all_, measured, whole, well_from, length, well=1.0 if rule.below else 0.0)
        case Growth(series):
            # What grew, grew a minute before the look.
            grown = [0.0 if number < 5 * MINUTE else measured for number in range(length)]
            return {_named(series): _written(grown)}
        case Level(series):
            well = 1.0 if rule.below else 0.0
            found = {_named(series): _written([measured if n < well_from else well for n in range(length)])}
            if rule.only_without is not None:
                found[_named(rule.only_without)] = _written([0.0] * length)
            return found


def _shares(
    part: Series, whole: Series, share: float, counted: float, well_from: int, length: int, *, well: float
) -> dict[str, str]:
    parts = _sums([counted * (share if number < well_from else well) for number in range(length)])
    all_ = _sums([counted] * length)
    if part.metric != whole.metric:
        return {_named(part): _written(parts), _named(whole): _written(all_)}
    rest = [one - other for one, other in zip(all_, parts, strict=True)]
    other = next((word for word in whole.words if word not in part.words), "asked")
    return {_named(part): _written(parts), _named(Series(whole.metric, part.label, (other,))): _written(rest)}


def _named(series: Series) -> str:
    labels = "" if series.label is None else f', {series.label}="{series.words[0]}"'
    return f'{series.metric}{{job="turnlane"{labels}}}'


def _sums(steps: Sequence[float]) -> list[float]:
    return [sum(steps[:number]) for number in range(len(steps))]


def _written(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6f}" for value in values)


def test_every_rule_asks_for_each_job() -> None:
    for rule in RULES:
        asked = expression(rule, Thresholds())
        assert re.findall(r"(?:sum|max|min) by \((\w+)\)", asked), asked
        assert not re.search(r"(?:sum|max|min) \(", asked), asked
