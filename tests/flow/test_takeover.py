"""A person of the business answers: the agent falls silent at once, and returns knowing what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.backends.base import Acceptance
from turnlane.flow.receive import receive
from turnlane.model import notice
from turnlane.model.message import Message
from turnlane.model.turn import Turn
from turnlane.settings import ChatCommands
from turnlane.testing.doubles import VirtualClock

SILENCE_MS = 60_000
POLICY = replace(AT_ONCE, takeover_ms=SILENCE_MS)


async def write(world: World, *messages: Message) -> None:
    words = ChatCommands().by_word
    await receive(messages, backend=world.backend, policy_for=lambda _: POLICY, commands=words)


def staff(world: World, text: str) -> Message:
    return replace(world.message("alice", text), sender="Anna", role="business")


def said(turn: Turn) -> Sequence[tuple[str, str]]:
    return [(message.role, message.text) for message in turn.messages]


async def test_a_colleague_stops_the_agent_and_the_agent_returns_knowing_all(world: World, clock: VirtualClock) -> None:
    agent = Thinker()
    async with world.working(agent):
        await write(world, world.message("alice", "where is my order?"))
        await agent.asked(1)
        await write(world, staff(world, "I am looking"))
        await agent.was_cancelled()
        await write(world, world.message("alice", "thank you"))
        agent.go()
        clock.advance(SILENCE_MS)
        turn = await agent.asked(2)
        assert await world.desk.has(1) == ["re: where is my order?\n[business] I am looking\nthank you"]
    assert said(turn) == [("person", "where is my order?"), ("business", "I am looking"), ("person", "thank you")]
    assert world.facts.of("lane.paused")[0].facts["by"] == "business"
    assert world.facts.of("lane.resumed")[0].facts["by"] == "time"


async def test_whoever_writes_resume_ends_the_silence(world: World) -> None:
    agent = Thinker(told=True)
    async with world.working(agent):
        await write(world, staff(world, "hello"), world.message("alice", "hi"))
        await write(world, staff(world, "/resume"))
        assert sorted(await world.desk.has(2)) == sorted([notice.RESUMED, "re: [business] hello\nhi"])
    assert [event.facts["by"] for event in world.facts.of("lane.resumed")] == ["command"]


async def test_an_answer_by_hand_leaves_while_the_agent_is_silent(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await write(world, world.message("alice", "help"))
        await agent.asked(1)
        by_hand = Message("desk", "h-1", "desk/alice", "operator", "I am Anna", role="operator")
        assert await world.backend.say(by_hand) == Acceptance("accepted", 2)
        await agent.was_cancelled()
        assert await world.desk.has(1) == ["I am Anna"]
        assert [(each.kind, each.turn, each.in_reply_to) for each in world.desk.sent] == [("operator", None, ())]


async def test_without_takeover_the_agent_goes_on_and_is_told(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "one", policy=replace(POLICY, takeover_ms=0))
        await agent.asked(1)
        word = staff(world, "by the way")
        await receive([word], backend=world.backend, policy_for=lambda _: replace(POLICY, takeover_ms=0))
        await world.say("alice", "two", policy=replace(POLICY, takeover_ms=0))
        agent.go()
        assert await world.desk.has(2) == ["re: one", "re: [business] by the way\ntwo"]
