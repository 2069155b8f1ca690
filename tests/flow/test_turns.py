"""One lane per conversation, one turn at a time: gathered, in order, in parallel across lanes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.flow.receive import receive
from turnlane.model.message import Attachment, Message
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

GATHERED = replace(AT_ONCE, debounce_ms=3_000, max_wait_ms=15_000)
HOOKS = replace(AT_ONCE, debounce_ms=2_000, max_wait_ms=2_000)


async def test_a_lane_runs_one_turn_at_a_time_in_arrival_order(world: World) -> None:
    """A3"""
    agent = Thinker(told=True)
    async with world.working(agent, turns_at_once=4), world.working(agent, turns_at_once=4):
        for number in range(40):
            await world.say("alice", str(number))
        await world.facts.seen("turn.answered", times=1)
        await world.settled()
    said = [message.text for turn in agent.turns for message in turn.messages]
    assert said == [str(number) for number in range(40)]
    assert agent.most_at_once == 1


async def test_lanes_run_in_parallel(world: World) -> None:
    """A3"""
    agent = Thinker()
    async with world.working(agent, turns_at_once=3):
        for who in ("alice", "bob", "carol"):
            await world.say(who, "hello")
        await agent.asked(3)
        assert {turn.conversation for turn in agent.running} == {"desk/alice", "desk/bob", "desk/carol"}
        agent.go()
        await world.desk.has(3)


async def test_one_busy_key_never_blocks_the_others(world: World) -> None:
    """A3 and PEERS: a lane with a long turn and a hundred messages behind it leaves every other slot to the others."""
    agent = Thinker()
    async with world.working(agent, turns_at_once=2):
        await world.say("busy", "think for long")
        await agent.asked(1)
        await world.say("busy", *(f"and {number}" for number in range(100)))
        agent.answer = lambda turn: Reply(turn.conversation)  # type: ignore[method-assign]
        await world.say("alice", "quick question")
        assert (await agent.asked(2)).conversation == "desk/alice"
        assert [turn.conversation for turn in agent.running] == ["desk/busy", "desk/alice"]


async def test_another_conversations_message_is_never_lost_because_this_one_is_busy(world: World) -> None:
    """PEERS: with every slot taken, what others say is stored, waits, and is answered."""
    agent = Thinker()
    async with world.working(agent, turns_at_once=1):
        await world.say("busy", "think for long")
        await agent.asked(1)
        for who in ("alice", "bob", "carol"):
            await world.say(who, f"I am {who}")
        assert len(agent.turns) == 1
        agent.go()
        await world.desk.has(4)
    assert sorted(world.desk.texts()) == ["re: I am alice", "re: I am bob", "re: I am carol", "re: think for long"]


async def test_a_burst_of_three_gives_one_turn_not_three(world: World, clock: VirtualClock) -> None:
    """A4 and PEERS"""
    agent = Thinker(told=True)
    async with world.working(agent):
        for text in ("one", "two", "three"):
            await world.say("alice", text, policy=GATHERED)
            clock.advance(1_000)
        assert agent.turns == []
        clock.advance(2_000)
        assert await world.desk.has(1) == ["re: one\ntwo\nthree"]
    assert len(agent.turns) == 1


async def test_a_quiet_window_really_is_a_quiet_window_and_max_wait_bounds_it(
    world: World, clock: VirtualClock
) -> None:
    """A4 and PEERS"""
    agent = Thinker(told=True)
    async with world.working(agent):
        await world.say("alice", "0", policy=GATHERED)
        for second in range(2, 15, 2):
            clock.advance(2_000)
            await world.say("alice", str(second), policy=GATHERED)
        await world.say("witness", "is the worker awake?")
        await world.desk.has(1)
        assert [turn.conversation for turn in agent.turns] == ["desk/witness"]
        clock.advance(1_000)
        assert (await agent.asked(2)).text.split() == [str(second) for second in range(0, 15, 2)]


async def test_a_gathered_burst_keeps_every_message_attachment_and_mention(world: World, clock: VirtualClock) -> None:
    """A4, A15 and PEERS"""
    agent = Thinker(told=True)
    picture = Attachment("http://127.0.0.1/a.png", "a.png", "image/png", 7)
    voice = Attachment("http://127.0.0.1/b.ogg", None, "audio/ogg")
    said = [
        Message("desk", "1", "desk/room", "alice", "@bot look", (picture,), sent_at=5),
        Message("desk", "2", "desk/room", "bob", "@alice and listen", (voice, picture)),
        Message("desk", "3", "desk/room", "alice", ""),
    ]
    async with world.working(agent):
        for message in said:
            await _accept(world, message)
        clock.advance(3_000)
        turn = await agent.asked(1)
    assert [(m.sender, m.text, m.attachments, m.sent_at) for m in turn.messages] == [
        (m.sender, m.text, m.attachments, m.sent_at) for m in said
    ]
    assert [message.seq for message in turn.messages] == [1, 2, 3]


async def test_messages_during_a_turn_become_the_next_turn_and_resume_the_same_session(world: World) -> None:
    """A5"""
    agent = Thinker()
    agent.answer = lambda turn: Reply("ok", session=turn.session or "session-1")  # type: ignore[method-assign]
    async with world.working(agent):
        await world.say("alice", "first")
        await agent.asked(1)
        await world.say("alice", "second")
        await world.say("alice", "third")
        agent.go()
        turn = await agent.asked(2)
        await world.desk.has(2)
    assert (turn.number, turn.text, turn.session) == (2, "second\nthird", "session-1")
    assert agent.turns[0].session is None


async def test_with_queue_each_message_that_waits_becomes_a_turn_of_its_own(world: World) -> None:
    """A5, the other busy policy."""
    agent = Thinker()
    async with world.working(agent):
        for text in ("one", "two", "three"):
            await world.say("alice", text, policy=replace(AT_ONCE, on_busy="queue"))
        await agent.asked(1)
        agent.go()
        assert await world.desk.has(3) == ["re: one", "re: two", "re: three"]


async def test_a_thousand_messages_into_a_busy_lane_never_block_and_none_is_dropped(world: World) -> None:
    """A9"""
    agent = Thinker()
    policy = replace(AT_ONCE, max_batch=64, max_pending=100)
    async with world.working(agent):
        await world.say("alice", "think for long", policy=policy)
        await agent.asked(1)
        answers = await asyncio.gather(*(world.say("alice", f"text {n}", policy=policy) for n in range(1_000)))
        assert sum(answer.accepted for answer in answers) == 1_000
        assert len(agent.turns) == 1
        assert [event.facts["pending"] for event in world.facts.of("lane.full")] == [101]
        agent.go()
        await world.settled()
    sizes = [len(turn.messages) for turn in agent.turns[1:]]
    assert sum(sizes) == 1_000
    assert max(sizes) <= 64
    seqs = [message.seq for turn in agent.turns for message in turn.messages]
    assert seqs == list(range(1, 1_002))


async def test_a_crash_in_one_lanes_agent_touches_no_other_lane_nor_the_receiver(world: World) -> None:
    """A10"""

    async def answer(turn: Turn) -> str:
        if turn.conversation == "desk/bad":
            raise ZeroDivisionError("a bug in the agent")
        return f"re: {turn.text}"

    async with world.working(answer, turns_at_once=1):
        await world.say("bad", "crash")
        await world.facts.seen("turn.retried")
        await world.say("good", "still there?")
        await world.say("bad", "and again")
        assert await world.desk.has(1) == ["re: still there?"]
    retried = world.facts.of("turn.retried")[0]
    assert retried.conversation == "desk/bad"
    assert retried.facts["cause"] == "ZeroDivisionError: a bug in the agent"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=["exits", "cancels itself"])
async def test_an_agent_that_tries_to_end_the_process_only_fails_its_turn(world: World, error: BaseException) -> None:
    """A10: `sys.exit()` in an agent, or an inner task of it that somebody cancelled, is a failed run like any other."""

    async def answer(turn: Turn) -> str:
        if turn.conversation == "desk/bad":
            raise error
        return f"re: {turn.text}"

    async with world.working(answer, turns_at_once=1):
        await world.say("bad", "crash")
        await world.facts.seen("turn.retried")
        await world.say("good", "still there?")
        assert await world.desk.has(1) == ["re: still there?"]


async def test_no_more_turns_run_at_once_than_the_limit(world: World) -> None:
    """A11"""
    agent = Thinker()
    async with world.working(agent, turns_at_once=2):
        for number in range(10):
            await world.say(f"user-{number}", "hello")
        await agent.asked(2)
        agent.go()
        await world.desk.has(10)
    assert agent.most_at_once == 2


async def test_the_longest_waiting_lane_is_next(world: World, clock: VirtualClock) -> None:
    """A11: with one slot, lanes are served in the order they became due."""
    agent = Thinker()
    async with world.working(agent, turns_at_once=1):
        await world.say("busy", "think for long")
        await agent.asked(1)
        for number in range(5):
            clock.advance(10)
            await world.say(f"user-{number}", "hello")
        agent.go()
        await world.desk.has(6)
    assert [turn.conversation for turn in agent.turns[1:]] == [f"desk/user-{number}" for number in range(5)]


async def test_two_workers_share_the_work_and_never_run_one_lane_at_once(world: World) -> None:
    """A3 and C3"""
    running: Counter[str] = Counter()
    overlaps: list[str] = []

    async def answer(turn: Turn) -> str:
        running[turn.conversation] += 1
        if running[turn.conversation] > 1:
            overlaps.append(turn.conversation)
        await asyncio.sleep(0)
        running[turn.conversation] -= 1
        return turn.text

    async with world.working(answer), world.working(answer):
        for number in range(200):
            await world.say(f"user-{number % 10}", str(number))
        await world.settled()
    assert overlaps == []
    for user in range(10):
        said = "\n".join(world.desk.texts(f"desk/user-{user}")).split()
        assert said == [str(number) for number in range(user, 200, 10)]


async def test_hook_events_are_processed_once_it_is_quiet_or_two_seconds_after_the_first(
    world: World, clock: VirtualClock
) -> None:
    """E2"""
    agent = Thinker(told=True)
    async with world.working(agent):
        for number in range(5):
            await world.say("session", f"event {number}", policy=HOOKS)
            clock.advance(500)
        turn = await agent.asked(1)
        # The fifth event came 2 s after the first, and the window did not move with it.
        assert len(turn.messages) in {4, 5}
        clock.advance(2_000)
        await world.settled()
    assert sum(len(turn.messages) for turn in agent.turns) == 5


async def test_one_processor_per_session_at_a_time_and_a_waiter_leaves_if_the_work_is_done(
    world: World, clock: VirtualClock
) -> None:
    """E3: two workers wait for the same session; one gets it, the other finds nothing left to do."""
    agent = Thinker()
    async with world.working(agent), world.working(agent):
        await world.say("session", "event", policy=HOOKS)
        clock.advance(2_000)
        await agent.asked(1)
        agent.go()
        await world.desk.has(1)
        await world.say("witness", "both workers go on")
        await world.desk.has(2)
    assert [turn.conversation for turn in agent.turns] == ["desk/session", "desk/witness"]


async def test_an_event_that_arrives_during_processing_leads_to_another_pass(world: World, clock: VirtualClock) -> None:
    """E4"""
    agent = Thinker()
    async with world.working(agent):
        await world.say("session", "early", policy=HOOKS)
        clock.advance(2_000)
        await agent.asked(1)
        await world.say("session", "late", policy=HOOKS)
        agent.go()
        await world.desk.has(1)
        clock.advance(2_000)
        assert await world.desk.has(2) == ["re: early", "re: late"]


async def test_one_users_state_never_reaches_anothers_turn(world: World) -> None:
    """PEERS: each turn sees its own conversation's session and messages, however many run at once."""

    async def answer(turn: Turn) -> Reply:
        await asyncio.sleep(0)
        return Reply(f"{turn.conversation} {turn.text}", session=f"of {turn.conversation}")

    seen: list[tuple[str, str | None, set[str]]] = []

    async def watched(turn: Turn) -> Reply:
        seen.append((turn.conversation, turn.session, {message.sender for message in turn.messages}))
        return await answer(turn)

    async with world.working(watched), world.working(watched):
        for number in range(60):
            await world.say(f"user-{number % 6}", str(number))
        await world.settled()
    for conversation, session, senders in seen:
        assert session in {None, f"of {conversation}"}
        assert senders == {conversation.removeprefix("desk/")}
    assert all(each.text.startswith(each.conversation) for each in world.desk.sent)


async def _accept(world: World, message: Message) -> None:
    await receive([message], backend=world.backend, policy_for=lambda _: GATHERED)
