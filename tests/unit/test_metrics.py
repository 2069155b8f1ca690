"""The numbers: each of them documented, counted from what happens, and with labels that strangers cannot make up."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnlane.backends.base import Arrival, open_backend
from turnlane.backends.calls import Calls
from turnlane.clock import SystemClock
from turnlane.errors import BackendUnavailable
from turnlane.model.event import EVENTS, FACTS, Event, Fact
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import GaveUp, Replied, Reply
from turnlane.model.usage import Usage
from turnlane.model.view import Counts, Lock, WorkerView
from turnlane.observe.gauges import StoreNow
from turnlane.observe.metrics import Metrics
from turnlane.people.cache import Cache
from turnlane.people.profiles import Profiles

ROOT = Path(__file__).resolve().parents[2]
STORE = StoreNow(
    Counts({"idle": 1}, 0, 0, 0, 0, 1, 1, None),
    [Lock("site/alice", Kind.TURN, "w", 1, 0, None)],
    [WorkerView("w", True, 10, 1)],
)


def page(metrics: Metrics, now: int = 0) -> list[str]:
    return metrics.render(STORE, now=now).decode().splitlines()


def names_of(told: list[str]) -> set[str]:
    """As the page names them, a histogram under its own name."""
    return {line.split()[2] for line in told if line.startswith("# TYPE ") and not line.split()[2].endswith("_created")}


def test_every_metric_is_in_the_reference_and_no_other() -> None:
    text = (ROOT / "docs/reference/events.md").read_text("utf-8").partition("## In the metrics")[2]
    first_cells = " ".join(re.findall(r"^\|([^|]*)\|", text, re.MULTILINE))
    assert set(re.findall(r"`(turnlane_\w+)`", first_cells)) == names_of(page(Metrics({"site"})))


def test_nothing_that_happens_breaks_the_counting() -> None:
    """All events, with facts that nobody foresaw: a label is a word of ours, or `other`."""
    metrics = Metrics({"site"}, {"support"})
    strange: dict[str, Fact] = {"channel": "made-up", "agent": "made-up", "worker": "made-up", "lanes": 1, "count": 1}
    for name in EVENTS:
        facts = {fact: strange.get(fact, 1) for fact in FACTS[name]}
        metrics([Event(name, 0, "made-up/alice", facts)])
    told = page(metrics)
    assert not any("made-up" in line for line in told)
    assert 'turnlane_session_checks_total{agent="other",state="1"} 1.0' in told


def test_calls_of_the_store_are_taken_over_once() -> None:
    calls = Calls()
    metrics = Metrics({"site"}, calls=calls)
    calls.made.update(accept=3, _catch_up=2)
    calls.failed.update(accept=1)
    calls.groups, calls.conflicts = 4, 1
    page(metrics)
    calls.made.update(accept=1)
    told = page(metrics)
    for line in [
        'turnlane_store_calls_total{verb="accept"} 4.0',
        'turnlane_store_calls_total{verb="catch_up"} 2.0',
        'turnlane_store_errors_total{verb="accept"} 1.0',
        "turnlane_store_groups_total 4.0",
        "turnlane_store_conflicts_total 1.0",
    ]:
        assert line in told


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Any]:
    backend = open_backend(f"sqlite:///{tmp_path}/counted.db")
    await backend.open()
    yield backend
    await backend.close()


HELLO = Arrival(Message("site", "m-1", "site/alice", "alice", "hello"), Policy())


async def test_every_call_of_a_store_is_counted_where_it_passes(file: Any) -> None:
    await file.accept([HELLO])
    await file.accept([HELLO])
    await file.lanes()
    assert file.counted.made == {"accept": 2, "read": 1}
    assert file.counted.failed == {}
    assert (file.counted.groups, file.counted.conflicts) == (2, 0)


async def test_calls_that_a_store_cannot_answer_are_counted(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(KeyError):
        await file.note("no.such.event")  # whoever asks for what cannot be is no trouble of the store
    assert file.counted.failed == {}
    monkeypatch.setattr(file._store, "transaction", broken)
    with pytest.raises(BackendUnavailable):
        await file.accept([HELLO])
    monkeypatch.undo()
    monkeypatch.setattr(file._reader, "_read", lambda view: raise_(BackendUnavailable("away")))
    with pytest.raises(BackendUnavailable):
        await file.lanes()
    assert file.counted.failed == {"accept": 1, "read": 1}


async def test_transactions_that_others_got_in_the_way_of_are_counted(
    file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Again(Exception):
        pass

    honest, times = file._store.transaction, [1, 2]

    def contested(*given: Any, **named: Any) -> Any:
        return honest(*given, **named) if not times else raise_(Again(times.pop()))

    monkeypatch.setattr(file._store, "transaction", contested)
    monkeypatch.setattr(file._store, "conflict", (Again,))
    await file.accept([HELLO])
    assert (file.counted.groups, file.counted.conflicts) == (3, 2)
    assert file.counted.failed == {}


def raise_(error: Exception) -> Any:
    raise error


async def test_whom_nobody_can_look_up_is_counted() -> None:
    class Away:
        async def person(self, channel: str, user: str) -> None:
            raise BackendUnavailable("away")

    people = Profiles(backend=Away(), clock=SystemClock(), channels={})  # type: ignore[arg-type]  # all it is asked
    await people.of("site", "alice")
    assert (people.cache.hits, people.cache.misses, people.cache.failed) == (0, 1, 1)


def test_look_ups_of_people_are_taken_over() -> None:
    cache: Cache[str, str] = Cache(SystemClock(), most=1, seconds=60)
    metrics = Metrics({"site"}, lookups=cache)
    assert cache.get("alice") is None
    cache.failed += 1
    cache.put("alice", "Alice")
    assert cache.get("alice") == "Alice"
    told = page(metrics)
    assert 'turnlane_profile_lookups_total{answer="hit"} 1.0' in told
    assert 'turnlane_profile_lookups_total{answer="miss"} 1.0' in told
    assert "turnlane_profile_lookup_errors_total 1.0" in told


def test_tokens_are_counted_by_agent() -> None:
    metrics = Metrics({"site"}, {"support"})
    lease = Lease(Kind.TURN, "site/alice", "w", 1, 1, 1, 0, 1, 1, Policy(agent="support"), 0)
    metrics.note_turn(lease, Replied(Reply("hi", usage=Usage(100, 20))), "answered")
    metrics.note_turn(lease, Replied(Reply("hi", usage=Usage(7, 7))), "fenced")
    metrics.note_turn(lease, GaveUp("no"), "dead_letter")
    told = page(metrics)
    assert 'turnlane_tokens_total{agent="support",kind="input"} 100.0' in told
    assert 'turnlane_tokens_total{agent="support",kind="output"} 20.0' in told


def test_a_session_is_known_or_its_agent_is_asked() -> None:
    metrics = Metrics({"site"}, {"support"})
    happened: list[tuple[str, dict[str, Fact]]] = [
        ("session.reused", {"known": True}),
        ("session.checked", {"state": "alive"}),
        ("session.reused", {"known": False}),
        ("session.checked", {"state": "gone"}),
        ("session.unchecked", {"cause": "no answer"}),
    ]
    for name, facts in happened:
        metrics([Event(name, 0, "site/alice", {"agent": "support", **facts})])
    told = page(metrics)
    for line in [
        'turnlane_session_lookups_total{agent="support",answer="known"} 1.0',
        'turnlane_session_lookups_total{agent="support",answer="asked"} 3.0',
        'turnlane_session_checks_total{agent="support",state="alive"} 1.0',
        'turnlane_session_checks_total{agent="support",state="gone"} 1.0',
        'turnlane_session_checks_total{agent="support",state="unknown"} 1.0',
    ]:
        assert line in told


def test_what_may_never_happen_is_nought_from_the_start() -> None:
    """What first appears at one has not grown, as Prometheus sees it."""
    told = page(Metrics({"site"}))
    for line in [
        'turnlane_hook_errors_total{channel="site"} 0.0',
        'turnlane_hook_errors_total{channel="other"} 0.0',
        'turnlane_lanes_parked_total{kind="out"} 0.0',
        'turnlane_budgets_total{budget="day",outcome="stopped"} 0.0',
        "turnlane_stale_at_start 0.0",
        "turnlane_streams_open 0.0",
    ]:
        assert line in told
