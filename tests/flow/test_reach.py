"""A process that starts: the store is tried again while waiting may mend it, and the log is told now and then."""

from __future__ import annotations

import pytest

from turnlane.errors import BackendRefused, BackendUnavailable, SchemaMismatch
from turnlane.flow import reach as module
from turnlane.flow.reach import reach
from turnlane.model.event import FACTS, Event
from turnlane.model.policy import Backoff
from turnlane.testing.doubles import VirtualClock


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", Backoff(first_ms=0, most_ms=0))


class Store:
    """Fails so often, each time after a second."""

    def __init__(self, clock: VirtualClock, failures: int, error: Exception | None = None) -> None:
        self.clock = clock
        self.failures = failures
        self.error = error or BackendUnavailable("not up yet")
        self.attempts = 0
        self.events: list[Event] = []

    async def open(self) -> None:
        self.attempts += 1
        self.clock.advance(1_000)
        if self.attempts <= self.failures:
            raise self.error

    async def reached(self, within: float) -> None:
        await reach(self.open, within=within, clock=self.clock, emit=self.events.append)

    @property
    def said(self) -> list[tuple[str, object]]:
        return [(event.name, event.facts["seconds"]) for event in self.events]


async def test_a_store_that_answers_at_once_is_not_spoken_of(clock: VirtualClock) -> None:
    store = Store(clock, failures=0)
    await store.reached(within=30)
    assert store.said == []


async def test_it_is_said_at_first_and_then_only_now_and_then(clock: VirtualClock) -> None:
    store = Store(clock, failures=12)
    await store.reached(within=30)
    assert store.said == [
        ("store.waiting", 29.0),
        ("store.waiting", 24.0),
        ("store.waiting", 19.0),
        ("store.available", 13.0),
    ]
    assert store.events[0].facts["cause"] == "not up yet"
    assert [tuple(event.facts) for event in store.events] == [FACTS[event.name] for event in store.events]


async def test_the_time_is_over_in_the_end(clock: VirtualClock) -> None:
    store = Store(clock, failures=1000)
    with pytest.raises(BackendUnavailable, match="not up yet"):
        await store.reached(within=10)
    assert store.attempts == 10


@pytest.mark.parametrize("error", [BackendRefused("wrong password"), SchemaMismatch("too new")])
async def test_what_waiting_does_not_mend_is_not_waited_for(clock: VirtualClock, error: Exception) -> None:
    store = Store(clock, failures=1, error=error)
    with pytest.raises(type(error)):
        await store.reached(within=30)
    assert (store.attempts, store.said) == (1, [])
