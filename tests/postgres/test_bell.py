"""Other processes are told of what was written: each time, or, by one that is alone and busy, now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.postgres.conftest import Opens
from tests.sqlite.arrivals import arrival

from turnlane.backends.postgres import bell
from turnlane.backends.postgres.bell import COMPANY_SECONDS, HEARD_SECONDS, RING_SECONDS, SETTLED_SECONDS, Bell

ROW = ("channel", "me")


class Watch:
    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(bell, "SystemClock", lambda: watch)
    return watch


def test_it_rings_with_each_group_that_none_follows(watch: Watch) -> None:
    ours = Bell(ROW)
    assert [ours.ring(noted=True, more_follow=False) for _ in range(3)] == [ROW] * 3
    assert ours.ring(noted=False, more_follow=False) is None, "there is nothing to tell"


def test_while_one_group_follows_the_other_it_rings_now_and_then_and_pays_at_last(watch: Watch) -> None:
    ours = Bell(ROW)
    assert [ours.ring(noted=True, more_follow=True) for _ in range(3)] == [ROW, None, None]
    watch.seconds += RING_SECONDS * 2
    assert [ours.ring(noted=False, more_follow=True) for _ in range(2)] == [ROW, None]
    assert ours.ring(noted=True, more_follow=True) is None
    assert [ours.ring(noted=False, more_follow=False) for _ in range(2)] == [ROW, None]


def test_with_company_it_rings_each_time(watch: Watch) -> None:
    ours = Bell(ROW)
    ours.hear()
    assert [ours.ring(noted=True, more_follow=True) for _ in range(3)] == [ROW] * 3
    watch.seconds += COMPANY_SECONDS + 1
    assert [ours.ring(noted=True, more_follow=True) for _ in range(3)] == [ROW, None, None]


def test_what_may_not_have_been_heard_is_rung_again(watch: Watch) -> None:
    ours = Bell(ROW)
    ours.ring(noted=True, more_follow=False)
    ours.undone()
    assert ours.ring(noted=False, more_follow=False) == ROW


def test_silence_means_something_only_to_whoever_has_rung_for_a_while_and_lately(watch: Watch) -> None:
    """Until then others may take themselves for alone, and write more than they tell."""
    ours = Bell(ROW)
    heard: Callable[[], bool] = lambda: ours.is_heard  # noqa: E731
    assert not heard()
    ours.ring(noted=True, more_follow=False)
    assert not heard()
    watch.seconds += SETTLED_SECONDS + 0.1
    assert heard()
    ours.undone()
    assert not heard()
    watch.seconds += SETTLED_SECONDS + 0.1
    assert heard()
    watch.seconds += HEARD_SECONDS
    assert not heard()
    ours.ring(noted=True, more_follow=False)
    assert not heard()
    assert HEARD_SECONDS + SETTLED_SECONDS < COMPANY_SECONDS


def test_without_listeners_it_never_rings(watch: Watch) -> None:
    ours = Bell(None)
    assert ours.ring(noted=True, more_follow=False) is None
    watch.seconds += SETTLED_SECONDS + 0.1
    assert not ours.is_heard


async def test_what_was_put_off_is_told_when_nobody_calls(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "RING_SECONDS", 3600)
    here, there = await opens(), await opens()
    here._store.more_follow = lambda: True  # though nothing does
    await here.accept([arrival("alice", "m-1")])
    for number in (2, 3):
        told = there._change
        await here.accept([arrival("alice", f"m-{number}")])
        await asyncio.wait_for(told.wait(), 0.5)  # sooner than it would look by itself
