"""What needs an operator: an alert that is raised now, one that is over, and from where on there is one."""

from __future__ import annotations

from typing import Literal, get_args

from turnlane.model.value import value

Severity = Literal["critical", "warning", "info"]
"""`critical`: somebody should get up for it. `warning`: by tomorrow. `info`: good to know."""


AlertName = Literal[
    "store_errors",
    "cache_errors",
    "sessions_invalid",
    "session_hits",
    "hook_errors",
    "lock_held",
    "stale_at_start",
    "contention",
    "store_down",
    "no_worker",
    "overdue",
    "turns_failing",
    "sends_failing",
    "dead_letters",
    "deliveries_failed",
    "lanes_parked",
    "budget_stopped",
]
"""Names stay. observe/rules.py says what each is about."""
ALERTS: tuple[AlertName, ...] = get_args(AlertName)


@value
class Alert:
    """Something needs an operator now."""

    alert: AlertName
    severity: Severity
    since: int
    value: float
    """As it was last seen: a share from 0 to 1, seconds, or a number of things."""
    threshold: float
    text: str
    next_step: str


@value
class PastAlert:
    """What needed an operator, and is over."""

    alert: AlertName
    severity: Severity
    since: int
    cleared_at: int
    value: float
    """As it was when it was last too much."""
    threshold: float
    text: str


@value
class Thresholds:
    """From where on it is an alert, under the names of the alerts themselves."""

    store_errors: float = 0.10
    cache_errors: float = 0.20
    sessions_invalid: float = 0.50
    session_hits: float = 0.60
    hook_errors: float = 0
    lock_held: float = 300
    """Seconds, as the other times here."""
    stale_at_start: float = 10
    contention: float = 0.50
    turns_failing: float = 0.50
    sends_failing: float = 0.50
    overdue: float = 60
    samples_min: int = 20
    """Of fewer no share is made: one of one is no alarm."""
    off: tuple[str, ...] = ()
    """Alerts that nobody wants to hear of."""
