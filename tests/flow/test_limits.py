"""A11: limits of the whole fleet hold for real workers on one store, and nobody is forgotten who waited for room."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.backends.base import Arrival
from turnlane.backends.serving import USER_LOOK_MS, USERS_LANES_AT_ONCE
from turnlane.model.lane import TURN
from turnlane.model.limits import Limits
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

CONVERSATIONS = 12
KINDS = ("all", "channel", "agent", "user")


class Counting(Thinker):
    """Each turn's text says what it counts for; noted is how many of that ran at the same time."""

    def __init__(self) -> None:
        super().__init__(told=True)
        self.most: Counter[str] = Counter()

    async def respond(self, turn: Turn) -> Reply:
        self.running.append(turn)
        for what, count in Counter(word for each in self.running for word in each.text.split()).items():
            self.most[what] = max(self.most[what], count)
        await asyncio.sleep(0.01)
        self.running.remove(turn)
        return Reply("done")


def arrival(world: World, number: int) -> Arrival:
    """Twelve conversations: two channels by three, two agents by two, and three people."""
    channel, agent, user = f"channel-{number // 3 % 2}", f"agent-{number // 2 % 2}", f"user-{number % 3}"
    message = world.message(f"room-{number}", f"all {channel} {agent} {user}-of-{channel}")
    return Arrival(replace(message, sender=user), replace(AT_ONCE, tenant=channel, agent=agent))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_limit_holds_across_workers_and_all_are_answered(world: World, clock: VirtualClock, kind: str) -> None:
    most = 1 if kind == "user" else 2
    limit: dict[str, Any] = {kind if kind == "all" else f"per_{kind}": most}
    world.backend.limits = Limits(**limit)
    agent = Counting()
    both = {"agent-0": agent, "agent-1": agent}
    async with world.working(agents=both), world.working(agents=both):
        await world.backend.accept([arrival(world, number) for number in range(CONVERSATIONS)])
        while len(world.desk.sent) < CONVERSATIONS:
            await asyncio.sleep(0.01)
            clock.advance(100)  # whoever waits for room looks again after a while
    assert max(count for what, count in agent.most.items() if what.startswith(kind)) == most
    assert kind == "all" or agent.most["all"] > most


async def test_a_user_with_a_thousand_conversations_costs_a_claim_no_look_at_all_of_them(
    world: World, clock: VirtualClock
) -> None:
    """At the limit they look again in groups: all of them at once would leave no time for anybody else's."""
    backend, policy = world.backend, replace(AT_ONCE, tenant="desk")
    backend.limits = Limits(per_user=1)
    said = [replace(world.message(f"room-{number}", "hello"), sender="bot") for number in range(1_000)]
    await backend.accept([Arrival(message, policy) for message in said])
    worker = clock.token()
    await backend.join(worker, 3_600_000)
    assert len(await backend.claim(worker, TURN, most=2)) == 1
    for _ in range(5):
        now = clock.now()
        due = Counter(lane.due_at for lane in await backend.lanes(limit=1_000) if lane.due_at is not None)
        assert due.total() == 999
        assert all(at > now for at in due)
        assert sum(count for at, count in due.items() if at <= now + USER_LOOK_MS) <= 5 * USERS_LANES_AT_ONCE
        clock.advance(USER_LOOK_MS)
        assert await backend.claim(worker, TURN, most=2) == []
    await backend.accept([Arrival(world.message("somebody-else", "hello"), policy)])
    assert len(await backend.claim(worker, TURN, most=2)) == 1
