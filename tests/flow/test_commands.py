"""Chat commands: they reach the lane at once, and no agent sees them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.flow.receive import receive
from turnlane.model import notice
from turnlane.model.command import command_in
from turnlane.model.policy import Backoff, OnAsk
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage
from turnlane.settings import ChatCommands
from turnlane.testing.doubles import VirtualClock

WORDS = ChatCommands().by_word


class Rememberer(Thinker):
    """Keeps a session, and says which one it was given."""

    def answer(self, turn: Turn) -> Reply:
        return Reply(turn.session or "who are you?", session=f"since {turn.number}", usage=Usage(10, 5))


async def write(world: World, who: str, text: str) -> None:
    await receive([world.message(who, text)], backend=world.backend, policy_for=lambda _: AT_ONCE, commands=WORDS)


async def test_stop_ends_the_running_turn_at_once_and_sets_aside_all_that_was_said(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await write(world, "alice", "think for long")
        await agent.asked(1)
        await write(world, "alice", "and then about this")
        await write(world, "alice", "/stop")
        await agent.was_cancelled()
        assert await world.desk.has(1) == [notice.STOPPED]
        await world.settled()
        agent.go()
        await write(world, "alice", "hello again")
        assert await world.desk.has(2) == [notice.STOPPED, "re: hello again"]
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [(turn.number, turn.outcome) for turn in story.turns] == [(1, "superseded"), (2, "answered")]
    assert dict(story.outcomes) == {2: "superseded", 3: "command"}


async def test_stop_with_nothing_to_stop_says_so(world: World) -> None:
    async with world.working(Thinker()):
        await write(world, "alice", " /STOP ")
        assert await world.desk.has(1) == [notice.NOTHING_TO_STOP]


async def test_new_starts_the_next_turn_in_a_new_session(world: World) -> None:
    async with world.working(Rememberer(told=True)):
        await write(world, "alice", "one")
        await world.desk.has(1)
        await write(world, "alice", "two")
        await world.desk.has(2)
        await write(world, "alice", "/new")
        await world.desk.has(3)
        await write(world, "alice", "three")
        assert await world.desk.has(4) == ["who are you?", "since 1", notice.NEW, "who are you?"]


async def test_new_while_a_turn_runs_does_not_keep_the_session_that_it_leaves(world: World) -> None:
    agent = Rememberer()
    async with world.working(agent):
        await write(world, "alice", "one")
        await agent.asked(1)
        await write(world, "alice", "/new")
        agent.go()
        await world.desk.has(2)
        await write(world, "alice", "two")
        assert (await world.desk.has(3))[2] == "who are you?"


async def test_status_and_usage_are_answered_from_the_store_while_a_turn_runs(
    world: World, clock: VirtualClock
) -> None:
    agent = Rememberer()
    agent.go()
    async with world.working(agent):
        await write(world, "alice", "one")
        await world.desk.has(1)
        agent.hold()
        await write(world, "alice", "two")
        await agent.asked(2)
        clock.advance(7_000)
        await write(world, "alice", "three")
        await write(world, "alice", "/status")
        await write(world, "alice", "/usage")
        said = await world.desk.has(3)
    assert said[1] == "Working on an answer for 7 s. 1 message is waiting."
    assert said[2] == "This session: 1 turn, 10 tokens in, 5 out."


async def test_status_tells_of_a_turn_that_waits_for_its_next_attempt(world: World, clock: VirtualClock) -> None:
    class Broken(Thinker):
        def answer(self, turn: Turn) -> Reply:
            raise ValueError("out of order")

    patient = replace(AT_ONCE, backoff=Backoff(first_ms=600_000, most_ms=900_000), attempts=2)
    async with world.working(Broken(told=True)):
        await world.say("alice", "one", policy=patient)
        await world.facts.seen("turn.retried")
        await world.say("alice", "two", policy=patient)
        clock.advance(300_000)
        await write(world, "alice", "/status")
        (said,) = await world.desk.has(1)
    assert said in {f"There is no answer yet; trying again in {n} min. 2 messages are waiting." for n in range(5, 8)}


@pytest.mark.parametrize("on_ask", ["set_aside", "hold"])
async def test_status_tells_of_a_question_that_waits_for_its_answer(world: World, on_ask: OnAsk) -> None:
    async def deploy(turn: Turn) -> str:
        return f"that was {(await turn.ask('Deploy now?')).text}"

    async with world.working(deploy):
        await world.say("alice", "deploy", policy=replace(AT_ONCE, on_ask=on_ask))
        await world.desk.has(1)
        await world.facts.seen("question.asked")
        await write(world, "alice", "/status")
        assert (await world.desk.has(2))[1] == "Waiting for your answer to my question. No message is waiting."
        await write(world, "alice", "yes")
        assert (await world.desk.has(3))[2] == "that was yes"


async def test_status_tells_of_a_turn_that_is_being_ended(world: World) -> None:
    agent, may_end = Thinker(), asyncio.Event()

    async def slow_to_end(turn: Turn) -> Reply:
        try:
            return await agent.respond(turn)
        except asyncio.CancelledError:
            await may_end.wait()
            raise

    async with world.working(slow_to_end):
        await write(world, "alice", "one")
        await agent.asked(1)
        await write(world, "alice", "/stop")
        await write(world, "alice", "/status")
        said = await world.desk.has(2)
        may_end.set()
        await world.settled()
    assert said[1] == "Ending what ran. No message is waiting."


async def test_a_paused_conversation_keeps_what_is_said_until_it_is_resumed(world: World) -> None:
    agent = Thinker(told=True)
    async with world.working(agent):
        await write(world, "alice", "/pause")
        await world.desk.has(1)
        await write(world, "alice", "one")
        await write(world, "alice", "two")
        await write(world, "alice", "/status")
        assert (await world.desk.has(2))[1] == "Paused. 2 messages are waiting."
        await write(world, "alice", "/resume")
        assert await world.desk.has(4) == [
            notice.PAUSED,
            "Paused. 2 messages are waiting.",
            notice.RESUMED,
            "re: one\ntwo",
        ]
    assert [turn.text for turn in agent.turns] == ["one\ntwo"]


async def test_a_command_that_comes_twice_is_obeyed_once(world: World) -> None:
    command = world.message("alice", "/stop")
    for _ in range(2):
        await receive([command], backend=world.backend, policy_for=lambda _: AT_ONCE, commands=WORDS)
    assert len(world.facts.of("command.obeyed")) == 1


@pytest.mark.parametrize("text", ["/stop it", "please /stop", "stop", "//stop", "/stopp"])
def test_only_a_command_alone_is_one(text: str) -> None:
    assert command_in(text, WORDS) is None


def test_commands_can_be_named_otherwise_and_switched_off() -> None:
    assert ChatCommands(stop="!halt", new="").by_word == {
        "!halt": "stop",
        "/status": "status",
        "/usage": "usage",
        "/pause": "pause",
        "/resume": "resume",
    }
    assert ChatCommands(enabled=False).by_word == {}
