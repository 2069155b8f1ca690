"""Every alert as one row of a table: what is measured, from where on it is too much, and what to do then.

The same rows are judged in this process (observe/alerts.py) and written as rules for Prometheus
(observe/prometheus_rules.py), so both say the same of the same numbers.
"""

from __future__ import annotations

from typing import Literal

from turnlane.model.alert import AlertName, Severity, Thresholds
from turnlane.model.value import value

WINDOW_MS = 5 * 60_000
"""What shares are made of."""
RECENT_MS = 15 * 60_000
"""So long it is told that something has happened which should not."""
CALM_MS = 60_000
"""An alert is over when it was not true for so long: what comes and goes is told once."""


@value
class Series:
    """Numbers of one metric, added up: all of them, or those with one of these words in a label."""

    metric: str
    label: str | None = None
    words: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """A counter, of which each process has its own. All else is read from the store, and the same everywhere."""
        return self.metric.endswith("_total")


@value
class Share:
    """How much of the whole the part is, of what was counted in the window."""

    part: Series
    whole: Series


@value
class Growth:
    """By how much it is more than the least it was in that time."""

    series: Series
    within_ms: int


@value
class Level:
    """What it is now."""

    series: Series


Measure = Share | Growth | Level


@value
class Rule:
    alert: AlertName
    severity: Severity
    measure: Measure
    threshold: str | float
    """The name of a setting in `Thresholds`, or what nobody would set otherwise."""
    text: str
    """`{value}` and `{threshold}` are written in the unit."""
    next_step: str
    unit: Literal["share", "seconds", "number"] = "share"
    below: bool = False
    """Too little is the trouble, not too much."""
    lasts_ms: int = 0
    """For so long it must be true first."""
    only_without: Series | None = None
    """It counts only while this is nought."""

    def limit(self, thresholds: Thresholds) -> float:
        name = self.threshold
        return float(getattr(thresholds, name)) if isinstance(name, str) else float(name)

    def is_too_much(self, measured: float, limit: float) -> bool:
        return measured < limit if self.below else measured > limit

    def told(self, measured: float, limit: float) -> str:
        return self.text.format(value=self.written(measured), threshold=self.written(limit))

    def written(self, number: float) -> str:
        if self.unit == "share":
            return f"{number * 100:.3g} %"
        return f"{number:.0f} s" if self.unit == "seconds" else f"{number:g}"


_CHECKS, _LOOKUPS = "turnlane_session_checks_total", "turnlane_session_lookups_total"
_TURNS, _SENDS = "turnlane_turns_total", "turnlane_deliveries_total"

RULES: tuple[Rule, ...] = (
    # B9
    Rule(
        "store_errors",
        "critical",
        Share(Series("turnlane_store_errors_total"), Series("turnlane_store_calls_total")),
        "store_errors",
        "{value} of the calls of the store failed in the last 5 minutes (more than {threshold})",
        "run `turnlane doctor`; the log says why under store.unavailable. Nothing that was taken in is lost.",
    ),
    Rule(
        "cache_errors",
        "warning",
        Share(Series("turnlane_profile_lookup_errors_total"), Series("turnlane_profile_lookups_total")),
        "cache_errors",
        "{value} of the look-ups of who writes failed in the last 5 minutes (more than {threshold})",
        "turns go on without names; look at the store with `turnlane doctor`, the log has profile.fallback",
    ),
    Rule(
        "sessions_invalid",
        "warning",
        Share(Series(_CHECKS, "state", ("gone",)), Series(_CHECKS, "state", ("alive", "empty", "gone"))),
        "sessions_invalid",
        "{value} of the sessions that agents were asked about are gone (more than {threshold})",
        "look whether the agent's service has lost or deleted conversations, or its account was changed",
    ),
    Rule(
        "session_hits",
        "warning",
        Share(Series(_LOOKUPS, "answer", ("known",)), Series(_LOOKUPS)),
        "session_hits",
        "only {value} of the look-ups of sessions were answered from memory (less than {threshold})",
        "each other one asks the agent's service before a turn; raise sessions.valid_for if people write seldom",
        below=True,
    ),
    Rule(
        "hook_errors",
        "info",
        Growth(Series("turnlane_hook_errors_total"), WINDOW_MS),
        "hook_errors",
        "{value} web hooks were refused or could not be read in the last 5 minutes",
        "the log has hook.refused and hook.aside with their causes; compare secrets and shapes",
        unit="number",
    ),
    # C7
    Rule(
        "lock_held",
        "warning",
        Level(Series("turnlane_oldest_lock_seconds")),
        "lock_held",
        "a lease is held for {value} (longer than {threshold})",
        "`turnlane lanes --state running` names the conversation; `turnlane stop` ends its turn, and if the log says "
        "stopping.failed of it, only the end of its process does",
        unit="seconds",
    ),
    Rule(
        "stale_at_start",
        "warning",
        Level(Series("turnlane_stale_at_start")),
        "stale_at_start",
        "a new worker found {value} leases of workers that are gone (more than {threshold})",
        "they were taken over; find out why a process ended without draining (memory, kill -9, a lost machine)",
        unit="number",
    ),
    Rule(
        "contention",
        "warning",
        Share(Series("turnlane_store_conflicts_total"), Series("turnlane_store_groups_total")),
        "contention",
        "{value} of the transactions were undone as another process wrote there first (more than {threshold})",
        "run fewer processes with more turns_at_once each, or split busy conversations",
    ),
    # And what one would not want to miss at night
    Rule(
        "store_down",
        "critical",
        Level(Series("turnlane_backend_up")),
        1,
        "the store does not answer",
        "start it or its network again, then `turnlane doctor`; web hooks are answered with 503 meanwhile",
        unit="number",
        below=True,
        lasts_ms=10_000,
    ),
    Rule(
        "no_worker",
        "critical",
        Level(Series("turnlane_oldest_due_seconds")),
        15,
        "no worker is live, and something is due for {value}",
        "start one: `turnlane run` or `turnlane worker`",
        unit="seconds",
        only_without=Series("turnlane_workers_live"),
    ),
    Rule(
        "overdue",
        "warning",
        Level(Series("turnlane_oldest_due_seconds")),
        "overdue",
        "something is due for {value} and nobody has taken it (longer than {threshold})",
        "add workers or raise turns_at_once and sends_at_once; look for pauses and limits in `turnlane settings`",
        unit="seconds",
    ),
    Rule(
        "turns_failing",
        "warning",
        Share(
            Series(_TURNS, "outcome", ("retried", "dead_lettered")),
            Series(_TURNS, "outcome", ("answered", "retried", "dead_lettered")),
        ),
        "turns_failing",
        "{value} of the runs of agents failed in the last 5 minutes (more than {threshold})",
        "`turnlane tail` shows turn.retried with its cause; look whether the agent or its service is up",
    ),
    Rule(
        "sends_failing",
        "warning",
        Share(
            Series(_SENDS, "outcome", ("retried", "failed")),
            Series(_SENDS, "outcome", ("sent", "retried", "failed")),
        ),
        "sends_failing",
        "{value} of the sendings failed in the last 5 minutes (more than {threshold})",
        "`turnlane tail` shows delivery.retried with its cause; look whether the platform is up and the token good",
    ),
    Rule(
        "dead_letters",
        "warning",
        Growth(Series("turnlane_dead_letters"), RECENT_MS),
        0,
        "{value} turns were given up on in the last 15 minutes",
        "`turnlane deadletters` lists them with their causes; mend that, then `turnlane deadletters retry`",
        unit="number",
    ),
    Rule(
        "deliveries_failed",
        "warning",
        Growth(Series("turnlane_deliveries_failed"), RECENT_MS),
        0,
        "{value} replies could not be sent in the last 15 minutes",
        "`turnlane outbox list --state failed` lists them with their causes; `turnlane outbox resend` sends one again",
        unit="number",
    ),
    Rule(
        "lanes_parked",
        "warning",
        Growth(Series("turnlane_lanes_parked_total"), RECENT_MS),
        0,
        "{value} lanes were parked in the last 15 minutes: nobody could run them, or a reply is held",
        "`turnlane lanes --state parked` lists them, with `--kind out` those whose reply is held; mend the cause, then "
        "`turnlane resume`, for a reply with `--outbox`",
        unit="number",
    ),
    Rule(
        "budget_stopped",
        "warning",
        Growth(Series("turnlane_budgets_total", "outcome", ("stopped",)), RECENT_MS),
        0,
        "{value} turns did not start in the last 15 minutes, as a budget is used up",
        "`turnlane usage` shows who used it; raise it in [budgets], or let them wait for tomorrow",
        unit="number",
    ),
)
