"""Told to stop, a worker finishes what it has begun, lets it leave, and gives the rest back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.flow.world import (
    A_SHORT_TERM_MS,
    AT_ONCE,
    BEATS_FOR_REAL,
    Stubborn,
    Thinker,
    Unreachable,
    Watched,
    World,
    ends,
    terms_pass,
)

from turnlane.backends.base import Backend
from turnlane.errors import AgentRefused
from turnlane.model.delivery import NotSent
from turnlane.model.lane import Kind
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock


async def test_stop_waits_for_running_turns_and_their_deliveries(world: World) -> None:
    """A12"""
    agent = Thinker()
    agent.answer = lambda turn: Reply(["part 1", "part 2"])  # type: ignore[method-assign]
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "hello")
    await agent.asked(1)
    worker.stop()
    await world.say("bob", "too late for this worker")
    world.desk.hold()
    agent.go()
    await world.desk.was_tried(1)
    assert not run.done()
    world.desk.go()
    await ends(run)
    assert world.desk.texts() == ["part 1", "part 2"]
    assert len(agent.turns) == 1
    assert (await world.backend.counts()).locks == 0
    (bob,) = await world.backend.lanes(state="ready")
    assert (bob.conversation, bob.attempt) == ("desk/bob", 0)


@BEATS_FOR_REAL
async def test_draining_keeps_the_lease_alive_and_counts_deliveries_not_only_turns(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """A12 and PEERS: a drain of many terms, watched by a second worker that would take over from the dead."""
    agent, second = Thinker(), Thinker(told=True)
    draining, watching = Watched(backend), Watched(backend)
    worker = world.new_worker(agent, backend=draining, term_ms=A_SHORT_TERM_MS)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "hello")
    await agent.asked(1)
    async with world.working(second, backend=watching, term_ms=A_SHORT_TERM_MS):
        worker.stop()
        await terms_pass(clock, 2, draining, watching)
        world.desk.hold()
        agent.go()
        await world.desk.was_tried(1)
        await terms_pass(clock, 2, draining, watching)
        world.desk.go()
        await ends(run)
    assert world.desk.texts() == ["re: hello"]
    assert len(world.desk.tried) == 1
    assert (second.turns, world.facts.of("worker.lost")) == ([], [])


async def test_past_the_drain_time_agents_are_cancelled_and_their_turns_given_back_without_blame(world: World) -> None:
    """A12"""
    agent = Thinker()
    worker = world.new_worker(agent, drain_seconds=0.03)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "think for ever")
    await agent.asked(1)
    worker.stop()
    await ends(run)
    assert agent.cancelled == agent.turns
    assert agent.running == []
    (lane,) = await world.backend.lanes()
    assert (lane.state, lane.attempt, lane.failures) == ("ready", 0, 0)
    agent.go()
    async with world.working(agent):
        assert await world.desk.has(1) == ["re: think for ever"]
    assert agent.turns[1].attempt == 1


async def test_a_cancelled_agent_that_fails_is_not_blamed_and_one_that_answers_is_heard(world: World) -> None:
    """It was stopped by us; and an answer in the last moment is an answer."""
    agent = Stubborn(AgentRefused("cancelled in the middle"))
    for times, ends_with in enumerate([agent.ends, Reply("just done")], 1):
        agent.ends = ends_with
        worker = world.new_worker(agent, drain_seconds=0.03)
        run = asyncio.create_task(worker.run())
        if times == 1:
            await world.say("alice", "think for ever")
        await agent.asked(times)
        worker.stop()
        await ends(run)
        (lane,) = await world.backend.lanes()
        assert (lane.state, lane.attempt, lane.failures) == ("ready" if times == 1 else "idle", 0, 0)
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [each.text for each in story.deliveries] == ["just done"]


async def test_told_to_stop_now_a_worker_gives_turns_and_sendings_back_at_once(world: World) -> None:
    """A12: a second signal. The sending is not begun anew on the way out."""
    agent = Thinker()
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    world.desk.hold()
    await world.say("alice", "hello")
    await agent.asked(1)
    agent.go()
    await world.desk.was_tried(1)
    agent.hold()
    await world.say("bob", "hello")
    await agent.asked(2)
    worker.stop()
    worker.stop_now()
    await ends(run, within=5.0)
    assert len(world.desk.tried) == 1
    assert [turn.conversation for turn in agent.cancelled] == ["desk/bob"]
    assert {name for name in world.facts.names() if name.endswith(".released")} == {
        "delivery.released",
        "turn.released",
    }
    world.desk.go()
    agent.go()
    async with world.working(agent):
        await world.desk.has(2)
    assert len(world.desk.sent) == 2


async def test_a_worker_may_be_stopped_before_it_starts_and_more_than_once(world: World) -> None:
    worker = world.new_worker(Thinker())
    worker.stop()
    worker.stop()
    await ends(worker.run())
    assert world.facts.names() in (["worker.joined", "worker.left"], [])


async def test_draining_sends_what_was_due_before_it(world: World) -> None:
    """A12: replies that wait in the outbox leave, too, as long as the drain time allows."""

    async def echo(turn: Turn) -> str:
        return turn.text

    worker = world.new_worker(echo, sends_at_once=1)
    run = asyncio.create_task(worker.run())
    world.desk.hold()
    for number in range(10):
        await world.say(f"user-{number}", str(number))
    await world.facts.seen("turn.answered", 10)
    worker.stop()
    world.desk.go()
    await ends(run)
    assert sorted(world.desk.texts(), key=int) == [str(number) for number in range(10)]


async def test_draining_does_not_wait_for_a_delivery_that_backs_off(world: World, clock: VirtualClock) -> None:
    """A12: what is not due now is the next worker's."""
    world.desk.results.append(NotSent("down", retry_after=3_600.0))
    worker = world.new_worker(Thinker(told=True))
    run = asyncio.create_task(worker.run())
    await world.say("alice", "hello")
    await world.facts.seen("delivery.retried")
    worker.stop()
    await ends(run)
    (lane,) = await world.backend.lanes(kind=Kind.OUT)
    assert (lane.state, lane.failures) == ("waiting", 1)


async def test_a_worker_whose_task_is_cancelled_ends_and_leaves_its_lanes_to_others(world: World) -> None:
    agent = Thinker()
    run = asyncio.create_task(world.new_worker(agent).run())
    await world.say("alice", "hello")
    await agent.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends(run)
    assert len(agent.cancelled) == 1
    agent.go()
    async with world.working(agent):
        assert await world.desk.has(1) == ["re: hello"]


async def test_stopping_while_the_store_is_away_ends_and_loses_nothing(world: World, backend: Backend) -> None:
    """A12: nobody hears the goodbye; the term ends by itself, and another worker goes on."""
    agent = Thinker()
    away = Unreachable(backend)
    worker = world.new_worker(agent, backend=away, drain_seconds=0.03, term_ms=60)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "hello")
    await agent.asked(1)
    away.down |= {"commit", "claim", "renew", "leave", "reap", "join"}
    agent.go()
    await away.refuses(1)
    worker.stop()
    await ends(run)
    assert world.desk.tried == []
    assert isinstance(world.clock, VirtualClock)
    world.clock.advance(61)
    async with world.working(agent):
        assert await world.desk.has(1) == ["re: hello"]


@pytest.mark.parametrize("ack", ["commit", "claim"])
async def test_a_turn_stopped_in_the_middle_runs_again_only_if_it_may(world: World, ack: str) -> None:
    """D4 on a graceful stop: `ack = "claim"` never runs a turn twice, so it becomes a dead letter, to be looked at."""
    agent = Thinker()
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "hello", policy=replace(AT_ONCE, ack=ack))  # type: ignore[arg-type] # both are known
    await agent.asked(1)
    worker.stop_now()
    await ends(run)
    agent.go()
    async with world.working(agent):
        await world.say("alice", "next")
        await world.settled()
    dead = await world.backend.dead_letters()
    assert [turn.text for turn in agent.turns] == (["hello", "next"] if ack == "claim" else ["hello", "hello", "next"])
    assert [each.messages[0].text for each in dead] == (["hello"] if ack == "claim" else [])
