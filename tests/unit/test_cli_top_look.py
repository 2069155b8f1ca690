"""How `turnlane top` reads every kind of store: where the last minute begins, and what became of the lanes in it."""

from __future__ import annotations

import pytest

from turnlane.backends import Backend
from turnlane.backends.base import Arrival
from turnlane.cli.top_look import Lookout
from turnlane.flow import lately
from turnlane.flow.lately import recent
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Released, Replied, Reply
from turnlane.testing.doubles import VirtualClock

AT_ONCE = Policy(debounce_ms=0, max_wait_ms=0)


async def say(backend: Backend, name: str, number: int) -> None:
    await backend.accept([Arrival(Message("site", f"m-{number}", f"site/{name}", name, "hi"), AT_ONCE)])


async def test_the_last_minute_is_found_however_much_was_before(backend: Backend, clock: VirtualClock) -> None:
    for number in range(90):
        await say(backend, "alice", number)
        clock.advance(2_000)
    since = clock.now() - 60_000
    [newest] = await backend.events(after=-1)

    told = await recent(backend, newest.cursor, since)

    every = await backend.events(limit=1_000)
    assert told.events == [each for each in every if each.event.at >= since]
    assert told.since == since


async def test_of_too_much_only_the_last_is_told_and_since_when_that_is(
    backend: Backend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "EVENTS_MAX", 20)
    monkeypatch.setattr(lately, "REACH", 4)
    for number in range(60):
        await say(backend, "alice", number)
        clock.advance(100)
    [newest] = await backend.events(after=-1)

    told = await recent(backend, newest.cursor, 0)

    every = await backend.events(limit=1_000)
    assert 0 < len(told.events) <= 20
    assert told.events == every[-len(told.events) :]
    assert told.since == told.events[0].event.at


async def test_a_lane_is_as_the_store_says_though_all_lanes_were_read_long_ago(
    backend: Backend, clock: VirtualClock
) -> None:
    """What happened is told with the lane that it happened to."""
    lookout = Lookout(backend, clock)
    await lookout.look()
    lookout._read._next_at = float("inf")
    await backend.join("w", 600_000)
    for number in range(3):
        await say(backend, "alice", number)
    [lease] = await backend.claim("w", Kind.TURN)
    await lookout.look()
    running = lookout.board.rows["site/alice"]
    assert (running.state, running.view.owner, running.view.pending) == ("running", "w", 3)

    await backend.commit(lease, Released())
    await backend.pause("site/alice")
    await lookout.look()

    assert (running.state, running.view.owner, running.view.agent) == ("paused", None, "echo")


async def test_what_a_lane_did_is_known_from_its_events_and_as_it_is_from_the_store(
    backend: Backend, clock: VirtualClock
) -> None:
    await backend.join("w", 600_000)
    await say(backend, "alice", 1)
    clock.advance(2_000)
    [lease] = await backend.claim("w", Kind.TURN)
    clock.advance(3_000)
    await backend.commit(lease, Replied(Reply("hello")))
    await say(backend, "bob", 2)
    await backend.pause("site/bob")
    lookout = Lookout(backend, clock)
    await lookout.look()
    rows = lookout.board.rows
    assert {name: row.state for name, row in rows.items()} == {"site/alice": "idle", "site/bob": "paused"}
    assert [state for _, state in rows["site/alice"].past] == ["gathering", "running", "idle"]
    assert [mark for _, mark in rows["site/alice"].marks] == ["answered"]
    assert lookout.board.counts is not None
    assert lookout.board.counts.lanes == {"idle": 1, "paused": 1}
    await backend.resume("site/bob")
    clock.advance(5_000)
    await lookout.look()
    assert rows["site/bob"].state == "ready"
