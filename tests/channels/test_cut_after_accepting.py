"""A receiver that accepts a reply and then cuts the connection, with real sockets from the worker to the receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.channels.loopback import loopback
from tests.channels.receiver import Receiver
from tests.flow.world import AT_ONCE, World

from turnlane.backends.base import Backend
from turnlane.channels.webhook import Webhook
from turnlane.model.lane import Kind
from turnlane.model.turn import Turn
from turnlane.testing.doubles import VirtualClock

HOLD = replace(AT_ONCE, on_unknown="hold")
LATER_MS = 120_000


async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture
def world(backend: Backend, clock: VirtualClock) -> World:
    return World(backend, clock)


@asynccontextmanager
async def connected(world: World, *, can_tell: bool) -> AsyncIterator[Receiver]:
    """A worker and, over real connections, a receiver that can be asked or not."""
    receiver = Receiver()
    async with loopback(receiver.behave) as server:
        channel = Webhook("desk", reply_url=server.url, lookup_url=server.url if can_tell else None, timeout=10.0)
        try:
            async with world.working(echo, channels=[channel]):
                yield receiver
        finally:
            await channel.close()


async def test_with_a_look_up_the_answer_arrives_once(world: World, clock: VirtualClock) -> None:
    async with connected(world, can_tell=True) as receiver:
        await world.say("alice", "hello")
        await world.facts.seen("delivery.retried")
        clock.advance(LATER_MS)
        sent = await world.facts.seen("delivery.sent")
    assert sent.facts["receipt"] == "shown"
    assert receiver.texts("alice") == ["hello"]
    assert receiver.questions == [receiver.shown[0].headers["idempotency-key"]]


async def test_with_hold_it_is_visible_keeps_its_place_and_leaves_once_when_it_is_released(
    world: World, clock: VirtualClock
) -> None:
    async with connected(world, can_tell=False) as receiver:
        await world.say("alice", "hello", policy=HOLD)
        await world.facts.seen("delivery.retried")
        clock.advance(LATER_MS)
        await world.facts.seen("lane.parked")
        await world.say("alice", "are you there?", policy=HOLD)
        await world.say("bob", "mine leaves meanwhile", policy=HOLD)
        await world.facts.seen("delivery.sent", conversation="desk/bob")
        (lane,) = await world.backend.lanes(kind=Kind.OUT, state="parked")
        assert (lane.conversation, lane.pending) == ("desk/alice", 2)
        assert [each.text for each in await world.backend.outbox()] == ["hello", "are you there?"]
        assert receiver.texts("alice") == ["hello"]

        await world.backend.unpark("desk/alice", Kind.OUT)
        await world.facts.seen("delivery.sent", 2, conversation="desk/alice")
    assert receiver.texts("alice") == ["hello", "hello", "are you there?"]
    assert len({each.headers["idempotency-key"] for each in receiver.shown if each.json["text"] == "hello"}) == 1


async def test_with_resend_it_leaves_again_under_the_same_key_and_says_so(world: World, clock: VirtualClock) -> None:
    async with connected(world, can_tell=False) as receiver:
        await world.say("alice", "hello")
        await world.facts.seen("delivery.retried")
        clock.advance(LATER_MS)
        await world.facts.seen("delivery.sent")
        await world.say("alice", "bye")
        await world.facts.seen("delivery.sent", 2)
    first, again, following = receiver.shown
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
    assert {**first.json, "resent": True} == again.json
    assert ("resent" in first.json, "resent" in following.json) == (False, False)
