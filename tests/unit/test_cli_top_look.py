"""How `turnlane top` reads every kind of store: where the last minute begins, and what became of the lanes in it."""

from __future__ import annotations

from turnlane.backends import Backend
from turnlane.backends.base import Arrival
from turnlane.cli.top_look import CLOSE_ENOUGH_MS, Lookout, cursor_at
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply
from turnlane.testing.doubles import VirtualClock

AT_ONCE = Policy(debounce_ms=0, max_wait_ms=0)


async def say(backend: Backend, name: str, number: int) -> None:
    await backend.accept([Arrival(Message("site", f"m-{number}", f"site/{name}", name, "hi"), AT_ONCE)])


async def test_the_last_minute_is_found_however_much_was_before(backend: Backend, clock: VirtualClock) -> None:
    assert await cursor_at(backend, clock.now()) == 0
    for number in range(90):
        await say(backend, "alice", number)
        clock.advance(2_000)
    since = clock.now() - 60_000
    cursor = await cursor_at(backend, since)
    every = [each for each in await backend.events(limit=1_000) if each.event.name == "message.accepted"]
    passed_over = [each for each in every if each.cursor <= cursor]
    assert passed_over
    assert all(each.event.at < since for each in passed_over)
    assert every[len(passed_over)].event.at >= since - CLOSE_ENOUGH_MS
    assert await cursor_at(backend, clock.now() - 1_000_000) <= every[0].cursor


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
