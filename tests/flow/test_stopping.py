"""Whoever was told to stop and goes on is told again, the operator hears of it, and who tidies up is left in peace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, PATIENCE_SECONDS, GoesOn, Thinker, World, ends

from turnlane.flow.slot import STOP_AGAIN_SECONDS
from turnlane.flow.worker import Worker
from turnlane.model.policy import Policy
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

STOP_AGAIN_MS = int(STOP_AGAIN_SECONDS * 1_000)
PATIENT = replace(AT_ONCE, turn_deadline_ms=3_600_000)
IMPATIENT = replace(AT_ONCE, turn_deadline_ms=1_000)
INTERRUPT = replace(PATIENT, on_busy="interrupt")
ROLLBACK = replace(PATIENT, on_busy="rollback")


class Tidy(Thinker):
    """An agent that takes its time to tidy up."""

    def __init__(self) -> None:
        super().__init__()
        self.is_tidy = asyncio.Event()
        self.was_left_in_peace = False

    async def respond(self, turn: Turn) -> Reply:
        try:
            return await super().respond(turn)
        except asyncio.CancelledError:
            await self.is_tidy.wait()
            self.was_left_in_peace = True
            raise


def look(worker: Worker, clock: VirtualClock) -> None:
    """As it does ten times a second."""
    for slot in worker._turn_slots:
        slot.stop_if_late(clock.monotonic())


async def _say_more(world: World, policy: Policy) -> None:
    await world.say("alice", "more", policy=policy)


async def _stop(world: World, policy: Policy) -> None:
    assert await world.backend.stop("desk/alice")


async def _skip(world: World, policy: Policy) -> None:
    assert await world.backend.skip("desk/alice")


async def _leave(world: World, policy: Policy) -> None:
    (worker,) = [each for each in await world.backend.workers() if each.live]
    await world.backend.leave(worker.id)


@pytest.mark.parametrize(
    ("policy", "stop", "cause", "answers"),
    [
        (INTERRUPT, _say_more, "interrupted by a new message", ["re: go on\nmore", "re: next"]),
        (ROLLBACK, _say_more, "rolled back by a new message", ["re: more", "re: next"]),
        (PATIENT, _stop, "ended by somebody else", ["re: next"]),
        (PATIENT, _skip, "ended by somebody else", ["re: next"]),
        (PATIENT, _leave, "its lease was lost", ["re: go on", "re: next"]),
    ],
    ids=["interrupt", "rollback", "stop", "skip", "lost"],
)
async def test_a_run_that_swallows_its_cancellation_is_told_again_and_lets_go_of_its_lane(
    world: World,
    clock: VirtualClock,
    policy: Policy,
    stop: Callable[[World, Policy], Awaitable[None]],
    cause: str,
    answers: list[str],
) -> None:
    agent = GoesOn(swallows=1)
    async with world.working(agent, turns_at_once=1):
        await world.say("alice", "go on", policy=policy)
        await agent.asked(1)
        await stop(world, policy)
        await agent.was_stopped(1)
        clock.advance(STOP_AGAIN_MS)
        await agent.was_stopped(2)
        agent.go()
        assert await world.desk.has(len(answers) - 1) == answers[:-1]
        await world.say("alice", "next", policy=policy)
        assert await world.desk.has(len(answers)) == answers
    (told,) = world.facts.of("stopping.failed")
    assert told.facts == {"kind": "turn", "number": 1, "seconds": STOP_AGAIN_SECONDS, "cause": cause}


async def test_a_deadline_holds_also_for_who_swallows_the_cancellation(world: World, clock: VirtualClock) -> None:
    agent = GoesOn(swallows=1)
    async with world.working(agent):
        await world.say("alice", "go on", policy=IMPATIENT)
        await agent.asked(1)
        clock.advance(1_000)
        await agent.was_stopped(1)
        clock.advance(STOP_AGAIN_MS)
        retried = await world.facts.seen("turn.retried")
        assert retried.facts["cause"] == "it took longer than 1 s (turn_deadline) and was stopped"
        agent.go()
        clock.advance(5_000)
        assert await world.desk.has(1) == ["re: go on"]


async def test_who_never_stops_is_told_again_and_again_and_the_operator_once_and_the_lane_stays_locked(
    world: World, clock: VirtualClock
) -> None:
    agent = GoesOn()
    async with world.working(agent):
        await world.say("alice", "go on")
        await agent.asked(1)
        await world.backend.stop("desk/alice")
        for times in range(1, 5):
            await agent.was_stopped(times)
            clock.advance(STOP_AGAIN_MS)
        (lock,) = await world.backend.locks()
        assert lock.conversation == "desk/alice"
        await world.say("alice", "next")
        await agent.was_stopped(5)
        assert len(agent.turns) == 1
        agent.go()
        assert await world.desk.has(1) == ["re: next"]
    assert len(world.facts.of("stopping.failed")) == 1


async def test_who_went_on_once_and_stops_the_next_time_is_told_of_once(world: World, clock: VirtualClock) -> None:
    """What is known of one run says nothing of the next in the same slot, nor do the times it was cancelled."""
    agent = GoesOn(swallows=1)
    async with world.working(agent, turns_at_once=1):
        for number in (1, 2):
            await world.say("alice", "go on")
            await agent.asked(number)
            await world.backend.stop("desk/alice")
            await agent.was_stopped(number)
            if number == 1:
                clock.advance(STOP_AGAIN_MS)
                await world.facts.seen("lane.freed")
        await world.facts.seen("lane.freed", 2)
        agent.go()
        await world.say("alice", "next")
        assert await world.desk.has(1) == ["re: next"]
    assert len(world.facts.of("stopping.failed")) == 1


async def test_who_tidies_up_is_not_told_again_before_its_time(world: World, clock: VirtualClock) -> None:
    agent = Tidy()
    async with world.working(agent) as worker:
        await world.say("alice", "tea", policy=INTERRUPT)
        await agent.asked(1)
        await world.say("alice", "no, coffee", policy=INTERRUPT)
        await agent.was_cancelled()
        clock.advance(STOP_AGAIN_MS - 1)
        look(worker, clock)
        agent.is_tidy.set()
        await agent.asked(2)
        agent.go()
        assert await world.desk.has(1) == ["re: tea\nno, coffee"]
    assert agent.was_left_in_peace
    assert world.facts.of("stopping.failed") == []


@pytest.mark.parametrize("how", ["the worker stops", "the lease is lost", "the deadline passes"])
async def test_another_reason_to_stop_does_not_cut_short_who_tidies_up(
    world: World, clock: VirtualClock, how: str
) -> None:
    agent = Tidy()
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "tea", policy=replace(INTERRUPT, turn_deadline_ms=1_000))
    await agent.asked(1)
    await world.say("alice", "no, coffee", policy=replace(INTERRUPT, turn_deadline_ms=1_000))
    await agent.was_cancelled()
    if how == "the lease is lost":
        worker._stop_runs()
    clock.advance(1_000 if how == "the deadline passes" else 0)
    look(worker, clock)
    worker.stop_now()
    if how == "the worker stops":
        for slot in worker._turn_slots:
            slot.give_back()
    agent.is_tidy.set()
    await ends(run)
    assert agent.was_left_in_peace
    assert len(agent.cancelled) == 1


async def test_a_worker_that_stops_tells_who_goes_on_again_and_gives_the_turn_back(
    world: World, clock: VirtualClock
) -> None:
    agent = GoesOn(swallows=1)
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "go on")
    await agent.asked(1)
    worker.stop_now()
    await agent.was_stopped(1)
    clock.advance(STOP_AGAIN_MS)
    await ends(run)
    (told,) = world.facts.of("stopping.failed")
    assert told.facts["cause"] == "its worker stops"
    (lane,) = await world.backend.lanes()
    assert (lane.state, lane.attempt, lane.failures) == ("ready", 0, 0)


async def test_a_thread_cannot_be_stopped_and_runs_on_beside_the_next_turn(world: World) -> None:
    """Its run ends for us, so the lane is free; what it returns is dropped."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    may_end = threading.Event()

    def answer(turn: Turn) -> str:
        if turn.text == "go on":
            loop.call_soon_threadsafe(begun.set)
            assert may_end.wait(PATIENCE_SECONDS)
        return f"re: {turn.text}"

    async with world.working(answer):
        await world.say("alice", "go on")
        await begun.wait()
        await world.backend.stop("desk/alice")
        await world.facts.seen("lane.freed")
        await world.say("alice", "next")
        assert await world.desk.has(1) == ["re: next"]
        may_end.set()
    assert world.desk.texts() == ["re: next"]
