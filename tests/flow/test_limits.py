"""A11: limits of the whole fleet hold for real workers on one store, and nobody is forgotten who waited for room."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.backends.base import Arrival
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
