"""Schedules at work: who fires them, when, and what the settings have to do with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, Thinker, World, crashing

from turnlane.backends.base import Backend
from turnlane.errors import NotFound
from turnlane.flow.attend import ATTEND_SECONDS
from turnlane.flow.schedule import keep
from turnlane.model.lane import Kind
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.schedule import Schedule
from turnlane.testing.doubles import VirtualClock

PULSE = Schedule("pulse", "desk/alice", "still there?", every_ms=60_000)
TERM_MS = 30_000


def policy_for(channel: str) -> Policy:
    if channel != "desk":
        raise NotFound(f"no channel {channel}")
    return AT_ONCE


async def test_a_worker_fires_what_is_due_and_the_agent_answers(world: World, clock: VirtualClock) -> None:
    """D5"""
    agent = Thinker(told=True)
    await world.backend.schedule(PULSE, AT_ONCE)
    async with world.working(agent):
        for times in (1, 2):
            clock.advance(60_000)
            await world.facts.seen("delivery.sent", times)
    assert [delivery.text for delivery in world.desk.sent] == ["re: still there?", "re: still there?"]
    (message,) = agent.turns[0].messages
    assert (message.role, message.sender, message.sent_at) == ("schedule", "schedule/pulse", clock.now() - 60_000)


@pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
async def test_what_is_due_while_a_turn_runs_does_not_end_it(
    world: World, clock: VirtualClock, on_busy: OnBusy
) -> None:
    """A person's message must not be given up for a prompt of the clock."""
    agent, policy = Thinker(), replace(AT_ONCE, on_busy=on_busy)
    await world.backend.schedule(PULSE, policy)
    async with world.working(agent):
        await world.say("alice", "tea", policy=policy)
        await agent.asked(1)
        clock.advance(60_000)
        await world.facts.seen("schedule.fired")
        await world.backend.changed(5 * ATTEND_SECONDS)
        agent.go()
        assert await world.desk.has(2) == ["re: tea", "re: still there?"]
    assert agent.cancelled == []


async def test_what_is_due_while_a_turn_runs_is_not_refused_like_what_somebody_says(
    world: World, clock: VirtualClock
) -> None:
    """The person would be told that "this one was not taken", and has said nothing."""
    agent, policy = Thinker(), replace(AT_ONCE, on_busy="reject")
    await world.backend.schedule(PULSE, policy)
    async with world.working(agent):
        await world.say("alice", "tea", policy=policy)
        await agent.asked(1)
        clock.advance(60_000)
        await world.facts.seen("schedule.fired")
        agent.go()
        assert await world.desk.has(2) == ["re: tea", "re: still there?"]
        await world.settled()
    assert len(world.desk.sent) == 2


async def test_a_lost_workers_tick_is_taken_over(world: World, clock: VirtualClock) -> None:
    """D5: when the leader dies, another takes over within the time limit."""
    await world.backend.schedule(PULSE, AT_ONCE)
    clock.advance(60_000)
    await world.backend.join("doomed", TERM_MS)
    await world.backend.claim("doomed", Kind.TICK)
    clock.advance(TERM_MS + 1)
    async with world.working(Thinker(told=True), term_ms=TERM_MS):
        await world.facts.seen("schedule.fired")
        await world.settled("desk/alice")
    assert world.facts.names().count("tick.lost") == 1
    assert len(world.desk.sent) == 1


async def test_a_worker_that_drains_fires_nothing_more(world: World, clock: VirtualClock) -> None:
    await world.backend.schedule(PULSE, AT_ONCE)
    agent = Thinker()
    async with world.working(agent) as worker:
        await world.say("bob", "hello")
        await agent.asked(1)
        worker.stop()
        clock.advance(60_000)
        agent.go()
        await world.settled("desk/bob")
    assert world.facts.of("schedule.fired") == []
    (view,) = await world.backend.schedules()
    assert (view.state, view.owner) == ("due", None)


async def test_the_store_is_brought_to_what_the_settings_say(backend: Backend) -> None:
    by_hand = Schedule("by-hand", "desk/bob", "hm", every_ms=1_000)
    await keep(backend, [replace(PULSE, by="file"), replace(PULSE, name="old", by="file")], policy_for)
    await backend.schedule(by_hand, AT_ONCE)
    await backend.pause("schedule/pulse", Kind.TICK)
    urgent = replace(AT_ONCE, agent="another")
    await keep(backend, [replace(PULSE, prompt="new words", by="file")], lambda channel: urgent)
    views = await backend.schedules()
    assert [(view.name, view.by, view.agent, view.prompt, view.state) for view in views] == [
        ("by-hand", "operator", "another", "hm", "waiting"),
        ("pulse", "file", "another", "new words", "paused"),
    ]


async def test_a_schedule_whose_channel_is_unknown_here_is_left_as_it_is(backend: Backend) -> None:
    elsewhere = Schedule("elsewhere", "shop/carol", "hm", every_ms=1_000)
    await backend.schedule(elsewhere, AT_ONCE)
    await keep(backend, [], policy_for)
    assert [view.name for view in await backend.schedules()] == ["elsewhere"]
    with pytest.raises(NotFound):
        await keep(backend, [replace(elsewhere, by="file")], policy_for)


async def test_a_worker_that_crashes_in_between_loses_no_due_time(world: World, clock: VirtualClock) -> None:
    await world.backend.schedule(replace(PULSE, missed="all"), AT_ONCE)
    async with crashing(world.new_worker(Thinker(told=True), term_ms=TERM_MS)):
        clock.advance(60_000)
        await world.facts.seen("schedule.fired")
    clock.advance(3 * 60_000)
    async with world.working(Thinker(told=True), term_ms=TERM_MS):
        await world.facts.seen("schedule.fired", 4)
        await world.settled("desk/alice")
    dues = [event.facts["due_at"] for event in world.facts.of("schedule.fired")]
    assert len(set(dues)) == 4
    assert world.facts.of("schedule.missed") == []
