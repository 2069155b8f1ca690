"""An agent is told whom its turn is for."""

from __future__ import annotations

import json

from tests.flow.world import Thinker, World

from turnlane.agents.wire import encode_turn
from turnlane.backends.base import Backend
from turnlane.model.person import Person
from turnlane.people.profiles import Profiles
from turnlane.testing.doubles import VirtualClock


async def test_a_turn_says_whom_it_is_for(world: World, backend: Backend, clock: VirtualClock) -> None:
    await backend.save_person(Person("desk", "alice", "Alice", labels=("vip",)))
    agent = Thinker(told=True)
    people = Profiles(backend=backend, clock=clock, channels={"desk": world.desk})
    async with world.working(agent, people=people):
        await world.say("alice", "hello")
        known = (await agent.asked()).person
        await world.facts.seen("turn.answered")
        await world.say("bob", "hello")
        unknown = (await agent.asked(2)).person
    assert known is not None
    assert (known.user, known.name, known.labels) == ("alice", "Alice", ("vip",))
    assert unknown == Person("desk", "bob")
    outside = [json.loads(encode_turn(turn))["turn"].get("person") for turn in agent.turns]
    assert outside == [
        {"id": "alice", "name": "Alice", "user_name": None, "labels": ["vip"], "chat_id": None},
        None,
    ]
