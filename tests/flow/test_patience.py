"""A platform that asks for patience, or has a rate, is spared by every worker of that account, and only of that one."""

from __future__ import annotations

from dataclasses import replace

from tests.flow.world import AT_ONCE, Desk, Thinker, World

from turnlane.backends.base import Arrival, Backend
from turnlane.model.delivery import NotSent, Refused
from turnlane.model.message import Message
from turnlane.testing.doubles import VirtualClock

SLOW_DOWN = NotSent("429", retry_after=5.0)


async def test_a_retry_after_on_one_delivery_holds_every_worker_of_the_account_and_no_other(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """A14"""
    other = Desk("other")
    channels = [world.desk, other]
    agent = Thinker(told=True)
    at_desk, elsewhere = replace(AT_ONCE, tenant="desk"), replace(AT_ONCE, tenant="other")
    async with world.working(agent, channels=channels), world.working(agent, channels=channels):
        world.desk.results.append(SLOW_DOWN)
        await world.say("alice", "one", policy=at_desk)
        held = await world.facts.seen("account.held")
        assert (held.facts["account"], held.facts["until"]) == ("desk", clock.now() + 5_000)
        for who, text in (("alice", "two"), ("bob", "hello"), ("carol", "hello")):
            await world.say(who, text, policy=at_desk)
        await backend.accept([Arrival(Message("other", "o-1", "other/dora", "dora", "hello"), elsewhere)])
        assert await other.has(1) == ["re: hello"]
        await world.facts.seen("turn.answered", times=5)
        clock.advance(4_900)
        await backend.accept([Arrival(Message("other", "o-2", "other/dora", "dora", "still there?"), elsewhere)])
        await other.has(2)
        assert len(world.desk.tried) == 1
        clock.advance(100)
        await world.desk.has(4)
    assert world.desk.texts("desk/alice") == ["re: one", "re: two"]


async def test_patience_outlives_the_process_that_was_asked_for_it(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    at_desk = replace(AT_ONCE, tenant="desk")
    async with world.working(Thinker(told=True)):
        world.desk.results.append(SLOW_DOWN)
        await world.say("alice", "one", policy=at_desk)
        await world.facts.seen("account.held")
    async with world.working(Thinker(told=True)):
        await world.say("bob", "hello", policy=at_desk)
        await world.facts.seen("turn.answered", times=2)
        assert len(world.desk.tried) == 1
        clock.advance(5_000)
        assert sorted(await world.desk.has(2)) == ["re: hello", "re: one"]


async def test_two_workers_share_the_rate_of_an_account_and_spare_no_other(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    other = Desk("other")
    channels = [world.desk, other]
    agent = Thinker(told=True)
    paced = replace(AT_ONCE, tenant="desk", send_every_ms=1_000)
    async with world.working(agent, channels=channels), world.working(agent, channels=channels):
        for who in ("alice", "bob", "carol"):
            await world.say(who, "hello", policy=paced)
        await world.facts.seen("turn.answered", times=3)
        await world.desk.has(1)
        for sent in (1, 2):
            clock.advance(999)
            unpaced = Message("other", f"o-{sent}", "other/dora", "dora", "hello")
            await backend.accept([Arrival(unpaced, replace(AT_ONCE, tenant="other"))])
            await other.has(sent)
            assert len(world.desk.tried) == sent
            clock.advance(1)
            await world.desk.has(sent + 1)


async def test_nobody_is_asked_again_who_is_gone_until_they_write(world: World, backend: Backend) -> None:
    world.desk.results.append(Refused("410", gone=True))
    async with world.working(Thinker(told=True)):
        await world.say("alice", "one")
        await world.facts.seen("conversation.gone")
        (failed,) = await backend.outbox(state="failed")
        assert failed.cause == "410"
        await world.say("alice", "I am back")
        assert await world.desk.has(1) == ["re: I am back"]
