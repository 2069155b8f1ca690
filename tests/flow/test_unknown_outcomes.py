"""A sending whose end nobody knows is looked up before it is repeated; where nobody can tell, the policy decides."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, Desk, World, crashing

from turnlane.channels.base import AskLater
from turnlane.flow.deliver import SEND_SECONDS_MAX
from turnlane.model.delivery import Delivery, NotSent, SendResult, Sent, Unknown
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply, Turn
from turnlane.testing.doubles import VirtualClock

HOLD = replace(AT_ONCE, on_unknown="hold")
LATER_MS = 120_000
"""Longer than any pause before the next try."""


async def echo(turn: Turn) -> str:
    return turn.text


class Registry(Desk):
    """A desk that writes down what was asked about, and whose platform answers as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Delivery] = []
        self.answers: deque[Sent | NotSent | Exception | None] = deque()
        self.never_answers = False

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        self.asked.append(delivery)
        self._changed.happened()
        if self.never_answers:
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def was_asked(self, count: int) -> None:
        await self._changed.until(lambda: len(self.asked) >= count, f"{count} look-ups")


@pytest.fixture
def registry(world: World) -> Registry:
    world.desk = registry = Registry()
    return registry


async def say_without_an_answer(world: World, clock: VirtualClock, *, policy: Policy = AT_ONCE) -> None:
    """The first sending to alice ends as unknown, and the pause after it is over."""
    world.desk.results.append(Unknown("cut"))
    await world.say("alice", "hello", policy=policy)
    await world.facts.seen("delivery.retried")
    clock.advance(LATER_MS)


# Looked up


async def test_an_unknown_send_outcome_is_looked_up_before_it_is_repeated(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    """PEERS"""
    registry.answers.append(Sent("found"))
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        sent = await world.facts.seen("delivery.sent")
    assert (sent.facts["receipt"], sent.facts["attempt"]) == ("found", 2)
    assert len(registry.tried) == 1
    assert registry.asked == registry.tried


async def test_what_the_look_up_proves_not_sent_is_sent_and_is_no_repetition(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    registry.answers.append(NotSent("it never came"))
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        assert await registry.has(1) == ["hello"]
        await world.settled()
    assert [each.resent for each in registry.tried] == [False, False]
    assert len({each.id for each in registry.tried}) == 1


async def test_a_first_sending_and_one_after_a_proven_failure_ask_nobody(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    registry.results.append(NotSent("refused connection"))
    async with world.working(echo):
        await world.say("alice", "hello", policy=HOLD)
        await world.facts.seen("delivery.retried")
        clock.advance(LATER_MS)
        assert await registry.has(1) == ["hello"]
        await world.settled()
    assert registry.asked == []
    assert [each.resent for each in registry.tried] == [False, False]


async def test_a_lost_workers_half_sent_delivery_is_looked_up_before_it_is_sent_again(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    registry.hold()
    registry.answers.append(Sent("found"))
    async with crashing(world.new_worker(echo, term_ms=30_000)):
        await world.say("alice", "hello")
        await registry.was_tried(1)
    registry.go()
    clock.advance(31_000)
    async with world.working(echo, term_ms=30_000):
        sent = await world.facts.seen("delivery.sent")
    assert sent.facts["receipt"] == "found"
    assert len(registry.tried) == 1


async def test_a_sending_that_a_stop_cut_off_is_looked_up_before_it_is_sent_again(
    world: World, registry: Registry
) -> None:
    registry.hold()
    registry.answers.append(Sent("found"))
    async with world.working(echo):
        await world.say("alice", "hello")
        await registry.was_tried(1)
    registry.go()
    assert world.facts.of("delivery.released")
    async with world.working(echo):
        sent = await world.facts.seen("delivery.sent")
    assert sent.facts["receipt"] == "found"
    assert len(registry.tried) == 1


async def test_whatever_a_worker_leaves_behind_in_the_middle_of_a_sending_is_in_doubt(
    world: World, clock: VirtualClock
) -> None:
    """It said goodbye without an outcome, or woke up late, let the run go and was renewed without it."""
    backend = world.backend
    await world.say("alice", "hello")
    await backend.join("first", 1_000)
    (turn,) = await backend.claim("first", Kind.TURN)
    await backend.commit(turn, Replied(Reply("hello")))
    (sending,) = await backend.claim("first", Kind.OUT)
    assert not sending.in_doubt
    await backend.leave("first")
    await backend.join("second", 1_000)
    (sending,) = await backend.claim("second", Kind.OUT)
    assert sending.in_doubt

    await backend.commit(sending, Delivered())
    await world.say("bob", "hello")
    (turn,) = await backend.claim("second", Kind.TURN)
    await backend.commit(turn, Replied(Reply("hello")))
    await backend.claim("second", Kind.OUT)
    clock.advance(999)
    assert await backend.renew("second", 1_000, [])
    clock.advance(999)
    assert await backend.renew("second", 1_000, [])
    (sending,) = await backend.claim("second", Kind.OUT)
    assert sending.in_doubt


async def test_a_claim_cancelled_in_the_moment_it_is_served_leaves_no_doubt(world: World) -> None:
    """Nobody heard of the lease, so nobody sent anything."""
    backend = world.backend
    await backend.join("worker", 60_000)
    waiting = asyncio.create_task(backend.claim("worker", Kind.OUT, wait=True))
    await asyncio.sleep(0)

    def cancel_when_served(events: Sequence[Event]) -> None:
        if any(event.name == "delivery.started" for event in events):
            waiting.cancel()

    backend.subscribe(cancel_when_served)
    await world.say("alice", "hello")
    (turn,) = await backend.claim("worker", Kind.TURN)
    await backend.commit(turn, Replied(Reply("hello")))
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (sending,) = await backend.claim("worker", Kind.OUT, wait=True)
    assert not sending.in_doubt


async def test_a_look_up_that_fails_is_repeated_and_nothing_is_sent_until_it_succeeds(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    """Under `resend`, too: "cannot tell" is an answer, "cannot be asked just now" is none."""
    registry.answers += [ConnectionError("down"), TimeoutError(), Sent("found")]
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        for failure in (2, 3):
            retried = await world.facts.seen("delivery.retried", failure)
            assert "looking it up failed" in str(retried.facts["cause"])
            clock.advance(LATER_MS)
        await world.facts.seen("delivery.sent")
    assert (len(registry.asked), len(registry.tried)) == (3, 1)


async def test_a_platform_that_says_when_to_ask_again_is_not_asked_before(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    """Asked sooner, it might never answer: each question counts against its limit."""
    registry.answers += [AskLater("429", retry_after=600.0), AskLater("429", retry_after=0.0), Sent("found")]
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        retried = await world.facts.seen("delivery.retried", 2)
        assert retried.facts["retry_at"] == clock.now() + 600_000
        clock.advance(600_000)
        retried = await world.facts.seen("delivery.retried", 3)
        assert clock.now() < int(str(retried.facts["retry_at"])) < clock.now() + LATER_MS  # 0 is no time
        clock.advance(LATER_MS)
        await world.facts.seen("delivery.sent")
    assert (len(registry.asked), len(registry.tried)) == (3, 1)


async def test_a_look_up_that_hangs_is_stopped_and_repeated(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    registry.never_answers = True
    registry.answers.append(Sent("found"))
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        await registry.was_asked(1)
        registry.never_answers = False
        clock.advance(int(SEND_SECONDS_MAX * 1000))
        late = await world.facts.seen("delivery.retried", 2)
        assert late.facts["cause"] == "looking it up and sending it took longer than 60 s and was stopped"
        clock.advance(LATER_MS)
        await world.facts.seen("delivery.sent")
    assert len(registry.tried) == 1


async def test_doubt_outlives_failures_that_are_proven(world: World, registry: Registry, clock: VirtualClock) -> None:
    """The first sending may have arrived, whatever is known of the second."""
    registry.answers += [None, Sent("found")]
    async with world.working(echo):
        registry.results.append(Unknown("cut"))
        registry.results.append(NotSent("refused connection"))
        await world.say("alice", "hello")
        for failure in (1, 2):
            await world.facts.seen("delivery.retried", failure)
            clock.advance(LATER_MS)
        await world.facts.seen("delivery.sent")
    assert [each.resent for each in registry.tried] == [False, True]


async def test_the_next_delivery_is_not_in_doubt_because_of_the_one_before(
    world: World, registry: Registry, clock: VirtualClock
) -> None:
    registry.answers.append(Sent("found"))
    async with world.working(echo, sends_at_once=1):
        await say_without_an_answer(world, clock)
        await world.facts.seen("delivery.sent")
        await world.say("alice", "and you?")
        assert await registry.has(1) == ["and you?"]
    assert len(registry.asked) == 1


async def test_unknown_outcomes_do_not_use_up_the_takeovers(world: World, clock: VirtualClock) -> None:
    policy = replace(AT_ONCE, takeovers=2)
    world.desk.results += [Unknown("cut")] * 6
    async with crashing(world.new_worker(echo, term_ms=30_000_000)):
        await world.say("alice", "hello", policy=policy)
        for failure in range(1, 7):
            if failure == 6:
                world.desk.hold()
            await world.desk.was_tried(failure)
            if failure < 6:
                await world.facts.seen("delivery.retried", failure)
                clock.advance(LATER_MS)
    clock.advance(31_000_000)
    world.desk.results.clear()
    world.desk.go()
    async with world.working(echo, term_ms=30_000_000):
        assert await world.desk.has(1) == ["hello"]


# Where nobody can tell


@pytest.mark.parametrize("can_look", [True, False])
async def test_resend_sends_again_under_the_same_key_and_says_so(
    world: World, clock: VirtualClock, can_look: bool
) -> None:
    if can_look:
        world.desk = registry = Registry()
        registry.answers.append(None)
    async with world.working(echo):
        await say_without_an_answer(world, clock)
        assert await world.desk.has(1) == ["hello"]
        await world.settled()
    first, second = world.desk.tried
    assert (first.id, first.resent, second.resent) == (second.id, False, True)


@pytest.mark.parametrize("can_look", [True, False])
async def test_hold_keeps_it_and_what_comes_after_it_until_an_operator_lets_it_go(
    world: World, clock: VirtualClock, can_look: bool
) -> None:
    if can_look:
        world.desk = registry = Registry()
        registry.answers.append(None)
    async with world.working(echo):
        await say_without_an_answer(world, clock, policy=HOLD)
        parked = await world.facts.seen("lane.parked")
        assert parked.facts["kind"] == "out"
        assert "`turnlane resume desk/alice --outbox` sends it" in str(parked.facts["cause"])
        await world.say("alice", "are you there?", policy=HOLD)
        await world.facts.seen("turn.answered", 2)
        await world.say("bob", "mine leaves meanwhile", policy=HOLD)
        await world.facts.seen("delivery.sent", conversation="desk/bob")
        await held(world, "hello", "are you there?")

        assert await world.backend.unpark("desk/alice", Kind.OUT)
        await world.desk.has(3)
        await world.settled()
    assert world.desk.texts("desk/alice") == ["hello", "are you there?"]
    first, second = [each for each in world.desk.tried if each.text == "hello"]
    assert first.id == second.id


async def held(world: World, *texts: str) -> None:
    """The outbox shows what waits, and its lane that an operator is waited for."""
    (lane,) = await world.backend.lanes(kind=Kind.OUT, state="parked")
    assert (lane.conversation, lane.pending) == ("desk/alice", len(texts))
    assert [each.text for each in await world.backend.outbox()] == list(texts)


async def test_what_an_operator_let_go_is_not_held_again_for_the_old_reason(world: World, clock: VirtualClock) -> None:
    """Neither after a proven failure nor on the way to it; a new unknown outcome is a new reason."""
    async with world.working(echo):
        await say_without_an_answer(world, clock, policy=HOLD)
        await world.facts.seen("lane.parked")
        world.desk.results.append(NotSent("refused connection"))
        world.desk.results.append(Unknown("cut once more"))
        await world.backend.unpark("desk/alice", Kind.OUT)
        for failure in (2, 3):
            await world.facts.seen("delivery.retried", failure)
            assert len(world.facts.of("lane.parked")) == 1
            clock.advance(LATER_MS)
        await world.facts.seen("lane.parked", 2)
        assert len(world.desk.tried) == 3
        await world.backend.unpark("desk/alice", Kind.OUT)
        assert await world.desk.has(1) == ["hello"]


async def test_hold_outlives_every_worker(world: World, clock: VirtualClock) -> None:
    async with world.working(echo):
        await say_without_an_answer(world, clock, policy=HOLD)
        await world.facts.seen("lane.parked")
    clock.advance(LATER_MS)
    async with world.working(echo):
        await world.say("bob", "hello", policy=HOLD)
        await world.facts.seen("delivery.sent")
        await held(world, "hello")
        await world.backend.unpark("desk/alice", Kind.OUT)
        await world.desk.has(2)


async def test_a_lost_workers_half_sent_delivery_is_held_where_nobody_can_tell(
    world: World, clock: VirtualClock
) -> None:
    world.desk.hold()
    async with crashing(world.new_worker(echo, term_ms=30_000)):
        await world.say("alice", "hello", policy=HOLD)
        await world.desk.was_tried(1)
    world.desk.go()
    clock.advance(31_000)
    async with world.working(echo, term_ms=30_000):
        await world.facts.seen("lane.parked")
        assert len(world.desk.tried) == 1


async def test_a_channels_own_bug_in_sending_is_an_unknown_outcome_too(world: World, clock: VirtualClock) -> None:
    class Broken(Desk):
        async def send(self, delivery: Delivery) -> SendResult:
            self.tried.append(delivery)
            raise KeyError("a bug")

    world.desk = Broken()
    async with world.working(echo):
        await world.say("alice", "hello", policy=HOLD)
        await world.facts.seen("delivery.retried")
        clock.advance(LATER_MS)
        await world.facts.seen("lane.parked")
    assert len(world.desk.tried) == 1
