"""What leaves a conversation leaves once, in order, and only by the right of a lease."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.flow.world import AT_ONCE, Desk, Thinker, World, crashing

from turnlane.flow.deliver import SEND_SECONDS_MAX
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.lane import Kind
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

ANOTHER_ACCOUNT = replace(AT_ONCE, tenant="another account")


async def in_parts(turn: Turn) -> Reply:
    return Reply([f"{turn.text} {part}" for part in (1, 2, 3)])


async def echo(turn: Turn) -> str:
    return turn.text


async def test_a_reply_in_several_parts_leaves_in_order(world: World) -> None:
    async with world.working(in_parts, sends_at_once=3):
        await world.say("alice", "a")
        await world.say("alice", "b", policy=replace(AT_ONCE, on_busy="queue"))
        await world.desk.has(3)
        await world.settled()
    assert world.desk.texts() == [f"{text} {part}" for text in "ab" for part in (1, 2, 3)]
    assert [(each.part, each.parts, each.turn) for each in world.desk.sent[:3]] == [(1, 3, 1), (2, 3, 1), (3, 3, 1)]
    assert world.desk.sent[0].in_reply_to == ("m-1",)
    assert len({each.id for each in world.desk.sent}) == 6


async def test_a_reply_never_overtakes_an_earlier_one_while_backing_off(world: World, clock: VirtualClock) -> None:
    """PEERS, with the platform's own "retry after"."""
    world.desk.results.append(NotSent("429", retry_after=9.0))
    async with world.working(echo, sends_at_once=5):
        await world.say("alice", "first")
        retried = await world.facts.seen("delivery.retried")
        assert retried.facts["retry_at"] == clock.now() + 9_000
        await world.say("alice", "second")
        await world.facts.seen("turn.answered", 2)
        await world.say("bob", "mine leaves meanwhile", policy=ANOTHER_ACCOUNT)
        assert await world.desk.has(1) == ["mine leaves meanwhile"]
        clock.advance(8_999)
        await world.say("bob", "and this", policy=ANOTHER_ACCOUNT)
        assert await world.desk.has(2) == ["mine leaves meanwhile", "and this"]
        clock.advance(1)
        await world.desk.has(4)
    assert world.desk.texts("desk/alice") == ["first", "second"]


async def test_a_platform_that_names_a_time_that_is_over_is_asked_with_growing_pauses(
    world: World, clock: VirtualClock
) -> None:
    waits = []
    world.desk.results.extend([NotSent("429", retry_after=0.0)] * 3)
    async with world.working(echo):
        await world.say("alice", "hello")
        for time in range(1, 4):
            retry_at = (await world.facts.seen("delivery.retried", time)).facts["retry_at"]
            assert isinstance(retry_at, int)
            waits.append(retry_at - clock.now())
            clock.advance(waits[-1])
        assert await world.desk.has(1) == ["hello"]
    assert 1_000 <= waits[0] < waits[1] < waits[2]


async def test_an_unknown_outcome_and_a_channels_own_bug_are_sent_again_under_the_same_key(
    world: World, clock: VirtualClock
) -> None:
    world.desk.results.extend([Unknown("cut"), KeyError("a bug"), NotSent("refused connection")])
    async with world.working(echo):
        await world.say("alice", "hello")
        for failure in (1, 2, 3):
            await world.facts.seen("delivery.retried", failure)
            clock.advance(60_000)
        await world.desk.has(1)
        await world.facts.seen("delivery.sent")
    assert len(world.desk.tried) == 4
    assert len({each.id for each in world.desk.tried}) == 1
    causes = [event.facts["cause"] for event in world.facts.of("delivery.retried")]
    assert causes == ["cut", "KeyError: 'a bug'", "refused connection"]
    (view,) = await world.backend.deliveries("desk/alice")
    assert (view.state, view.attempt, view.receipt) == ("sent", 4, "receipt-1")


async def test_a_channel_that_is_cancelled_inside_is_asked_again(world: World, clock: VirtualClock) -> None:
    class Cancelling(Desk):
        async def send(self, delivery: Delivery) -> SendResult:
            if not self.tried:
                self.tried.append(delivery)
                raise asyncio.CancelledError
            return await super().send(delivery)

    desk = Cancelling()
    async with world.working(echo, channels=[desk], sends_at_once=1):
        await world.say("alice", "hello")
        await world.facts.seen("delivery.retried")
        clock.advance(2_000)
        assert await desk.has(1) == ["hello"]


async def test_a_refused_delivery_is_kept_as_failed_and_the_conversation_goes_on(world: World) -> None:
    world.desk.results.append(Refused("400 the text is too long"))
    async with world.working(echo):
        await world.say("alice", "too long")
        await world.facts.seen("delivery.failed")
        await world.say("alice", "short")
        assert await world.desk.has(1) == ["short"]
    (failed,) = await world.backend.outbox(state="failed")
    assert (failed.text, failed.cause, failed.seq) == ("too long", "400 the text is too long", 1)


async def test_a_delivery_is_given_up_once_deliver_for_is_over(world: World, clock: VirtualClock) -> None:
    world.desk.results.extend([NotSent("down", retry_after=4.0)] * 3)
    async with world.working(echo):
        await world.say("alice", "hello", policy=replace(AT_ONCE, deliver_for_ms=10_000))
        for failure in (1, 2):
            await world.facts.seen("delivery.retried", failure)
            clock.advance(4_000)
        failed = await world.facts.seen("delivery.failed")
    assert failed.facts["cause"] == "down"
    assert [view.text for view in await world.backend.outbox(state="failed")] == ["hello"]
    assert world.desk.sent == []


async def test_an_unknown_channel_parks_the_out_lane_and_nothing_is_lost(world: World) -> None:
    async with world.working(echo, channels=[Desk("another")]):
        await world.say("alice", "hello")
        parked = await world.facts.seen("lane.parked")
        assert parked.facts["kind"] == "out"
    async with world.working(echo):
        assert await world.backend.unpark("desk/alice", Kind.OUT)
        assert await world.desk.has(1) == ["hello"]


async def test_a_slow_send_is_not_doubled_by_a_second_worker(world: World) -> None:
    """PEERS"""
    world.desk.hold()
    async with world.working(echo):
        await world.say("alice", "hello")
        await world.desk.was_tried(1)
        async with world.working(echo):
            await world.say("bob", "who else is there?")
            await world.desk.was_tried(2)
            world.desk.go()
            await world.desk.has(2)
    assert [each.conversation for each in world.desk.tried] == ["desk/alice", "desk/bob"]


async def test_the_answer_is_committed_with_the_message_that_asked_for_it(world: World, clock: VirtualClock) -> None:
    """PEERS: a worker that dies between the commit and the sending leaves the answer, not the question."""
    world.desk.hold()
    async with crashing(world.new_worker(echo, term_ms=30_000)):
        await world.say("alice", "hello")
        await world.desk.was_tried(1)
    world.desk.go()
    clock.advance(31_000)
    agent = Thinker()
    async with world.working(agent, term_ms=30_000):
        assert await world.desk.has(1) == ["hello"]
        await world.settled()
    assert agent.turns == []


async def test_a_worker_that_was_stopped_past_its_lease_does_not_speak_for_it(
    world: World, clock: VirtualClock
) -> None:
    """C4: the lease is checked right before each sending, by the worker's own clock."""
    world.desk.hold()
    agent = Thinker()
    async with world.working(agent, term_ms=30_000, sends_at_once=1) as stalled:
        await world.say("alice", "hello")
        await agent.asked(1)
        agent.go()
        await world.desk.was_tried(1)
        # The rest of its answers wait behind this one; then the process is stopped for a while.
        await world.say("bob", "hello")
        await world.facts.seen("turn.answered", 2)
        clock.advance(31_000)
        world.desk.go()
        async with world.working(agent, term_ms=30_000):
            await world.facts.seen("delivery.sent", conversation="desk/bob")
        assert stalled is not None
    bobs = [each for each in world.desk.tried if each.conversation == "desk/bob"]
    assert len(bobs) == 1


async def test_a_sending_that_hangs_is_stopped_and_its_outcome_is_unknown(world: World, clock: VirtualClock) -> None:
    world.desk.hold()
    async with world.working(echo):
        await world.say("alice", "hello")
        await world.desk.was_tried(1)
        clock.advance(int(SEND_SECONDS_MAX * 1000))
        retried = await world.facts.seen("delivery.retried")
        assert retried.facts["cause"] == "sending took longer than 60 s and was stopped"
        world.desk.go()
        clock.advance(2_000)
        assert await world.desk.has(1) == ["hello"]


async def test_what_is_sent_carries_the_platforms_receipt(world: World) -> None:
    world.desk.results.append(Sent("1234.5678"))
    async with world.working(echo):
        await world.say("alice", "hello")
        sent = await world.facts.seen("delivery.sent")
    assert sent.facts["receipt"] == "1234.5678"
