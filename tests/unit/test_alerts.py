"""B9, C7: every alert is raised on its condition and not beside it, once, and is over afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from turnlane.backends.calls import Calls
from turnlane.model.alert import ALERTS, Thresholds
from turnlane.model.event import Event, Fact
from turnlane.model.lane import Kind
from turnlane.model.view import Counts, Lock, WorkerView
from turnlane.observe.alerts import Change, Watch
from turnlane.observe.gauges import StoreNow
from turnlane.observe.metrics import STALE_TOLD_MS, Metrics
from turnlane.observe.rules import CALM_MS, RECENT_MS, RULES, WINDOW_MS, Share
from turnlane.people.cache import Cache
from turnlane.testing.doubles import VirtualClock

LOOK_MS = 5_000
LIVE = WorkerView("w1", True, 1 << 60, 0)
NOTHING = Counts(
    lanes={},
    messages_waiting=0,
    deliveries_waiting=0,
    deliveries_failed=0,
    dead_letters=0,
    locks=0,
    workers_live=1,
    oldest_due_at=None,
)


class World:
    """All that is counted in a process, and a store whose numbers are set by hand; time passes when told to."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.clock = VirtualClock()
        self.calls = Calls()
        self.cache: Cache[str, str] = Cache(self.clock, most=1, seconds=1)
        self.metrics = Metrics({"site"}, {"support"}, calls=self.calls, lookups=self.cache)
        self.store: StoreNow | None = StoreNow(NOTHING, (), [LIVE])
        self.watch = Watch(thresholds)
        self.watch.begin(self.clock.now(), self.metrics.samples(None, now=self.clock.now()))
        self.look()

    def say(self, name: str, times: int = 1, conversation: str | None = "site/alice", **facts: Fact) -> None:
        self.metrics([Event(name, self.clock.now(), conversation, facts)] * times)

    def set(self, **counts: int | None) -> None:
        assert self.store is not None
        self.store = replace(self.store, counts=replace(self.store.counts, **counts))  # type: ignore[arg-type]

    def look(self, after_ms: int = LOOK_MS) -> list[Change]:
        self.clock.advance(after_ms)
        now = self.clock.now()
        return self.watch.look(now, self.metrics.samples(self.store, now=now))

    def pass_time(self, ms: int) -> list[Change]:
        """Look as often as a process does."""
        return [change for _ in range(ms // LOOK_MS) for change in self.look()]

    @property
    def raised(self) -> list[str]:
        return [alert.alert for alert in self.watch.raised]


# What makes each alert, so much of it, out of a hundred


def store_errors(world: World, failed: int, of: int = 100) -> None:
    world.calls.made.update(accept=of)
    world.calls.failed.update(accept=failed)


def cache_errors(world: World, failed: int, of: int = 100) -> None:
    world.cache.hits += of - failed
    world.cache.misses += failed
    world.cache.failed += failed


def sessions_invalid(world: World, gone: int, of: int = 100) -> None:
    world.say("session.checked", gone, agent="support", state="gone")
    world.say("session.checked", (of - gone) // 2, agent="support", state="alive")
    world.say("session.checked", of - gone - (of - gone) // 2, agent="support", state="empty")
    # They count as no check: nobody said what has become of the session. Known ones keep the other alert away.
    world.say("session.unchecked", 50, agent="support", cause="no answer")
    world.say("session.reused", 1_000, agent="support", known=True)


def session_hits(world: World, known: int, of: int = 100) -> None:
    world.say("session.reused", known, agent="support", known=True)
    world.say("session.checked", of - known, agent="support", state="alive")
    world.say("session.reused", of - known, agent="support", known=False)


def hook_errors(world: World, refused: int) -> None:
    world.say("hook.refused", refused, None, channel="site", status=401, cause="a wrong secret")
    world.say("hook.received", 100, None, channel="site", status=202, accepted=1, duplicates=0)


def unreadable_hooks(world: World, aside: int) -> None:
    world.say("hook.aside", aside, None, channel="site", why="an unknown type", body="{}")


def lock_held(world: World, seconds: int) -> None:
    held = [Lock("site/alice", Kind.TURN, "w1", 1, world.clock.now() + LOOK_MS - seconds * 1_000, None)]
    world.store = StoreNow(NOTHING, [*held, replace(held[0], since=world.clock.now())], [LIVE])


def stale_at_start(world: World, lanes: int) -> None:
    world.say("lanes.recovered", 1, None, worker="w2", lanes=lanes, at_start=True)
    world.say("lanes.recovered", 1, None, worker="w2", lanes=100, at_start=False)


def contention(world: World, conflicts: int, of: int = 100) -> None:
    world.calls.groups += of
    world.calls.conflicts += conflicts


def store_down(world: World, is_down: int) -> None:
    if is_down:
        world.store = None
    world.look()
    world.look()


def no_worker(world: World, seconds: int) -> None:
    world.set(oldest_due_at=world.clock.now() + LOOK_MS - seconds * 1_000)
    assert world.store is not None
    dead = replace(LIVE, alive_until=world.clock.now() - 1)
    world.store = replace(world.store, workers=[dead, replace(LIVE, live=False)])


def overdue(world: World, seconds: int) -> None:
    world.set(oldest_due_at=world.clock.now() + LOOK_MS - seconds * 1_000)


def turns_failing(world: World, failed: int, of: int = 100) -> None:
    world.say("turn.retried", failed - failed // 10)
    world.say("turn.dead_lettered", failed // 10)
    world.say("turn.answered", of - failed)
    world.say("turn.released", 1_000)


def sends_failing(world: World, failed: int, of: int = 100) -> None:
    world.say("delivery.retried", failed - failed // 10)
    world.say("delivery.failed", failed // 10)
    world.say("delivery.sent", of - failed)


def dead_letters(world: World, new: int) -> None:
    world.set(dead_letters=new)


def deliveries_failed(world: World, new: int) -> None:
    world.set(deliveries_failed=new)


def lanes_parked(world: World, new: int) -> None:
    world.say("lane.parked", new, kind="out", cause="held")


def budget_stopped(world: World, times: int) -> None:
    world.say("budget.stopped", times, budget="day")
    world.say("budget.warned", 100, budget="day")


Make = Callable[[World, int], None]


@dataclass(frozen=True)
class Case:
    alert: str
    make: Make
    past: int
    at: int
    severity: str


CASES = [
    Case("store_errors", store_errors, past=11, at=10, severity="critical"),
    Case("cache_errors", cache_errors, past=21, at=20, severity="warning"),
    Case("sessions_invalid", sessions_invalid, past=51, at=50, severity="warning"),
    Case("session_hits", session_hits, past=59, at=60, severity="warning"),
    Case("hook_errors", hook_errors, past=1, at=0, severity="info"),
    Case("hook_errors", unreadable_hooks, past=1, at=0, severity="info"),
    Case("lock_held", lock_held, past=301, at=300, severity="warning"),
    Case("stale_at_start", stale_at_start, past=11, at=10, severity="warning"),
    Case("contention", contention, past=51, at=50, severity="warning"),
    Case("store_down", store_down, past=1, at=0, severity="critical"),
    Case("no_worker", no_worker, past=16, at=15, severity="critical"),
    Case("overdue", overdue, past=61, at=60, severity="warning"),
    Case("turns_failing", turns_failing, past=51, at=50, severity="warning"),
    Case("sends_failing", sends_failing, past=51, at=50, severity="warning"),
    Case("dead_letters", dead_letters, past=1, at=0, severity="warning"),
    Case("deliveries_failed", deliveries_failed, past=1, at=0, severity="warning"),
    Case("lanes_parked", lanes_parked, past=1, at=0, severity="warning"),
    Case("budget_stopped", budget_stopped, past=1, at=0, severity="warning"),
]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)


def test_every_alert_is_shown_here() -> None:
    assert [rule.alert for rule in RULES] == list(ALERTS) == list(dict.fromkeys(case.alert for case in CASES))


@pytest.mark.parametrize(
    ("alert", "where"),
    [
        ("lanes_parked", "with `--kind out` those whose reply is held"),
        ("hook_errors", "the log has hook.refused"),  # facts of one process, which `turnlane tail` cannot show
        ("sends_failing", "`turnlane tail` shows delivery.retried"),  # why one failed that waits, no list tells
    ],
)
def test_the_next_step_leads_to_where_it_is_told(alert: str, where: str) -> None:
    (rule,) = (rule for rule in RULES if rule.alert == alert)
    assert where in rule.next_step


@EACH
def test_past_the_threshold_it_is_raised_once_and_alone(case: Case) -> None:
    """B9, C7"""
    world = World()
    case.make(world, case.past)
    changes = world.look()
    assert [(change.how, change.alert.alert, change.alert.severity) for change in changes] == [
        ("raised", case.alert, case.severity)
    ]
    (alert,) = world.watch.raised
    assert alert == changes[0].alert
    assert alert.next_step
    assert "{" not in alert.text
    assert world.look(1) == []
    assert world.raised == [case.alert]


@EACH
def test_at_the_threshold_it_is_not_raised(case: Case) -> None:
    """B9, C7"""
    world = World()
    case.make(world, case.at)
    assert world.look() == []
    assert world.raised == []


SHARES = [case for case in CASES if isinstance(next(r for r in RULES if r.alert == case.alert).measure, Share)]


@pytest.mark.parametrize("case", SHARES, ids=lambda case: case.make.__name__)
def test_of_too_few_no_share_is_made(case: Case) -> None:
    """One of one is no alarm; nineteen of nineteen neither; twenty of twenty is one."""
    make: Callable[[World, int, int], None] = case.make  # type: ignore[assignment]  # a share takes the whole, too
    enough = Thresholds().samples_min
    world = World()
    make(world, 0 if case.alert == "session_hits" else enough - 1, enough - 1)
    assert world.look() == []
    make(world, 0 if case.alert == "session_hits" else 1, 1)
    world.look()
    assert case.alert in world.raised


@EACH
def test_it_is_over_once_things_are_well_again_for_a_while(case: Case) -> None:
    world = World()
    case.make(world, case.past)
    world.look()
    raised = world.watch.raised[0]
    world.store = StoreNow(world.store.counts if case.alert in GROWN and world.store else NOTHING, (), [LIVE])
    changes = world.pass_time(max(WINDOW_MS, RECENT_MS, STALE_TOLD_MS) + CALM_MS + 3 * LOOK_MS)
    assert [(change.how, change.alert.alert) for change in changes] == [("cleared", case.alert)]
    assert world.raised == []
    (past,) = world.watch.recent
    assert (past.alert, past.since, past.cleared_at) == (case.alert, raised.since, changes[0].at)


GROWN = {"dead_letters", "deliveries_failed"}
"""They stay in the store; that they came is over."""


def test_what_comes_and_goes_is_told_once() -> None:
    world = World()
    for _ in range(20):
        overdue(world, 90)
        world.look()
        world.set(oldest_due_at=None)
        world.look()
    assert world.raised == ["overdue"]
    assert list(world.watch.recent) == []


def test_a_store_that_misses_one_look_is_not_down() -> None:
    world = World()
    there, world.store = world.store, None
    assert world.look() == []
    world.store = there
    assert world.look() == []
    assert world.raised == []


def test_what_nobody_can_tell_stays_as_it_was() -> None:
    """A store that is away says nothing of how long a lease is held."""
    world = World()
    lock_held(world, 400)
    world.look()
    world.store = None
    world.pass_time(10 * 60_000)
    assert set(world.raised) == {"lock_held", "store_down"}


def test_a_share_is_of_the_last_five_minutes() -> None:
    world = World()
    store_errors(world, 100)
    world.look()
    assert world.raised == ["store_errors"]
    for _ in range(WINDOW_MS // LOOK_MS - 1):
        store_errors(world, 0, of=1)
        world.look()
    assert world.watch.raised[0].value == pytest.approx(100 / 159)
    store_errors(world, 0, of=1)
    assert world.look() == []
    changes = world.pass_time(CALM_MS)
    assert [change.how for change in changes] == ["cleared"]
    assert changes[0].alert.value == pytest.approx(100 / 159)


def test_what_was_kept_before_the_start_is_not_new() -> None:
    world = World()
    world.watch = Watch()
    world.watch.begin(world.clock.now(), ())
    world.set(dead_letters=7, deliveries_failed=9)
    assert world.pass_time(RECENT_MS) == []
    world.set(dead_letters=8)
    assert [change.alert.value for change in world.look()] == [1]


def test_with_a_worker_alive_nobody_is_missing() -> None:
    world = World()
    no_worker(world, 40)
    assert world.store is not None
    world.store = replace(world.store, workers=[LIVE])
    assert world.look() == []


def test_thresholds_are_settings() -> None:
    world = World(Thresholds(store_errors=0.5, samples_min=5, off=("hook_errors",)))
    store_errors(world, 3, of=6)
    hook_errors(world, 10)
    assert world.look() == []
    store_errors(world, 1, of=1)
    assert [change.alert.threshold for change in world.look()] == [0.5]


def test_one_that_is_switched_off_meanwhile_is_over_at_once() -> None:
    world = World()
    hook_errors(world, 1)
    world.look()
    world.watch.thresholds = Thresholds(off=("hook_errors",))
    assert [change.how for change in world.look()] == ["cleared"]


def test_an_alert_shows_how_bad_it_is_now() -> None:
    world = World()
    store_errors(world, 20)
    world.look()
    assert world.watch.raised[0].text.startswith("20 % of the calls")
    store_errors(world, 100)
    world.look()
    assert (world.watch.raised[0].value, world.watch.raised[0].text[:4]) == (0.6, "60 %")


def test_the_worst_are_first() -> None:
    world = World()
    hook_errors(world, 1)
    dead_letters(world, 1)
    world.look()
    store_errors(world, 50)
    world.look()
    assert world.raised == ["store_errors", "dead_letters", "hook_errors"]


def test_a_clock_that_is_set_back_neither_raises_nor_keeps_anything() -> None:
    world = World()
    store_errors(world, 50)
    hook_errors(world, 1)
    world.look()
    world.clock.jump(-3_600_000)
    assert world.look() == []
    changes = world.pass_time(CALM_MS + LOOK_MS)
    assert [(change.how, change.alert.alert) for change in changes] == [
        ("cleared", "store_errors"),
        ("cleared", "hook_errors"),
    ]
    assert len(world.watch._looks) <= CALM_MS // LOOK_MS + 2
    store_errors(world, 50)
    assert [change.alert.alert for change in world.look()] == ["store_errors"]


def test_what_is_remembered_is_bounded() -> None:
    world = World()
    for _ in range(3 * RECENT_MS // LOOK_MS):
        world.look()
    assert len(world.watch._looks) <= RECENT_MS // LOOK_MS + 2
    for _ in range(200):
        world.watch.thresholds = Thresholds()
        hook_errors(world, 1)
        world.look()
        world.watch.thresholds = Thresholds(off=("hook_errors",))
        world.look()
    assert len(world.watch.recent) == 100


def test_what_the_rules_name_is_counted() -> None:
    """A metric that was renamed would make a rule silent."""
    world = World()
    for case in CASES:
        case.make(world, case.past)
        world.store = StoreNow(NOTHING, (), [LIVE])
    world.store = StoreNow(replace(NOTHING, lanes={"idle": 1}), (), [LIVE])
    names: Mapping[str, object] = {name: labels for name, labels, _ in world.metrics.samples(world.store, now=0)}
    assert set(world.watch._wanted) <= set(names)
