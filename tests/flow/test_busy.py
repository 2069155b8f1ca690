"""What a message does that arrives while a turn runs: the busy policies, decided by whoever runs the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, Stubborn, Thinker, World

from turnlane.errors import AgentRefused
from turnlane.flow.attend import ATTEND_SECONDS
from turnlane.model.limits import Limits, Pauses
from turnlane.model.message import Message
from turnlane.model.notice import BUSY, DROPPED, FULL
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

INTERRUPT = replace(AT_ONCE, on_busy="interrupt")
ROLLBACK = replace(AT_ONCE, on_busy="rollback")
REJECT = replace(AT_ONCE, on_busy="reject")
STEER = replace(AT_ONCE, on_busy="steer")


class Listener(Thinker):
    """An agent that can be told more while it thinks."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self.listens = True
        self.told_more = asyncio.Event()

    async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
        self.told_more.set()
        if self.listens:
            self.heard += [message.text for message in messages]
        return self.listens

    def answer(self, turn: Turn) -> Reply:
        return Reply("re: " + " ".join([turn.text, *self.heard]))


async def test_an_interrupted_turn_is_cancelled_and_both_are_answered_as_one(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=INTERRUPT)
        await agent.asked(1)
        await world.say("alice", "no, coffee", policy=INTERRUPT)
        await agent.was_cancelled()
        second = await agent.asked(2)
        agent.go()
        assert await world.desk.has(1) == ["re: tea\nno, coffee"]
    assert (second.number, second.attempt) == (2, 1)
    assert world.desk.sent[0].in_reply_to == ("m-1", "m-2")


async def test_an_interrupted_turn_starts_again_only_after_a_quiet_window(world: World, clock: VirtualClock) -> None:
    patient = replace(INTERRUPT, debounce_ms=3_000, max_wait_ms=60_000)
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=patient)
        clock.advance(3_000)
        await agent.asked(1)
        await world.say("alice", "no, coffee", policy=patient)
        await world.facts.seen("turn.superseded")
        clock.advance(2_000)
        await world.say("alice", "with milk", policy=patient)
        clock.advance(3_000)
        assert (await agent.asked(2)).text == "tea\nno, coffee\nwith milk"
        agent.go()
        await world.desk.has(1)


@pytest.mark.parametrize("policy", [INTERRUPT, ROLLBACK, STEER], ids=["interrupt", "rollback", "steer"])
async def test_what_is_said_in_a_paused_conversation_lets_the_turn_run_and_waits(world: World, policy: Policy) -> None:
    """Nothing could start in its place, and what is said during a pause is kept."""
    agent = Listener()
    async with world.working(agent):
        await world.say("alice", "tea", policy=policy)
        await agent.asked(1)
        await world.backend.pause("desk/alice")
        await world.say("alice", "coffee", policy=policy)
        await world.backend.changed(5 * ATTEND_SECONDS)
        agent.go()
        assert await world.desk.has(1) == ["re: tea"]
        await world.backend.resume("desk/alice")
        assert await world.desk.has(2) == ["re: tea", "re: coffee"]
    assert (agent.cancelled, agent.heard) == ([], [])


async def test_what_was_said_during_a_pause_interrupts_once_that_is_over(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=INTERRUPT)
        await agent.asked(1)
        await world.backend.pause("desk/alice")
        await world.say("alice", "no, coffee", policy=INTERRUPT)
        await world.backend.resume("desk/alice")
        await agent.was_cancelled()
        await agent.asked(2)
        agent.go()
        assert await world.desk.has(1) == ["re: tea\nno, coffee"]


async def test_what_is_said_while_a_setting_pauses_everything_interrupts_nobody(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=INTERRUPT)
        await agent.asked(1)
        world.backend.limits = Limits(pauses=Pauses(agents=frozenset({INTERRUPT.agent})))
        await world.say("alice", "no, coffee", policy=INTERRUPT)
        await world.backend.changed(5 * ATTEND_SECONDS)
        agent.go()
        assert await world.desk.has(1) == ["re: tea"]
    assert agent.cancelled == []


@pytest.mark.parametrize("policy", [INTERRUPT, ROLLBACK], ids=["interrupt", "rollback"])
async def test_what_a_full_batch_left_out_interrupts_nobody(world: World, policy: Policy) -> None:
    """It would be left out again, and the turn interrupted for ever; or set aside for what was said before it began."""
    agent = Thinker()
    await world.say("alice", "one", "two", "three", policy=replace(policy, max_batch=2))
    async with world.working(agent):
        await agent.asked(1)
        await world.backend.changed(5 * ATTEND_SECONDS)
        agent.go()
        assert await world.desk.has(2) == ["re: one\ntwo", "re: three"]
    assert agent.cancelled == []


@pytest.mark.parametrize("policy", [INTERRUPT, ROLLBACK], ids=["interrupt", "rollback"])
async def test_a_dead_letter_that_is_tried_again_waits_for_the_turn_that_runs(world: World, policy: Policy) -> None:
    """Nobody said it just now: what the person has said since must not be given up for it."""

    class Picky(Thinker):
        def answer(self, turn: Turn) -> Reply:
            if len(self.turns) == 1:
                raise AgentRefused("not in the mood")
            return super().answer(turn)

    agent = Picky(told=True)
    async with world.working(agent):
        await world.say("alice", "tea", policy=policy)
        await world.facts.seen("turn.dead_lettered")
        agent.hold()
        await world.say("alice", "cake", policy=policy)
        await agent.asked(2)
        assert await world.backend.retry_dead_letter("desk/alice", 1) == 1
        await world.backend.changed(5 * ATTEND_SECONDS)
        agent.go()
        assert await world.desk.has(2) == ["re: cake", "re: tea"]
        agent.hold()
        await world.say("alice", "one", policy=policy)
        await agent.asked(4)
        await world.say("alice", "two", policy=policy)
        await agent.was_cancelled()
        agent.go()
        await world.settled()


async def test_a_rolled_back_message_is_set_aside_once_and_the_new_one_runs_alone(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=ROLLBACK)
        await agent.asked(1)
        await world.say("alice", "coffee", policy=ROLLBACK)
        await agent.was_cancelled()
        await agent.asked(2)
        agent.go()
        assert await world.desk.has(1) == ["re: coffee"]
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [(turn.outcome, turn.first, turn.last) for turn in story.turns] == [("superseded", 1, 1), ("answered", 2, 2)]


@pytest.mark.parametrize("ends", [Reply("never mind"), AgentRefused("no more")], ids=["answers", "fails"])
@pytest.mark.parametrize("policy", [INTERRUPT, ROLLBACK], ids=["interrupt", "rollback"])
async def test_however_a_cancelled_run_ends_its_turn_is_superseded(
    world: World, policy: Policy, ends: Reply | Exception
) -> None:
    agent = Stubborn(ends)
    async with world.working(agent):
        await world.say("alice", "tea", policy=policy)
        await agent.asked(1)
        await world.say("alice", "coffee", policy=policy)
        await agent.was_cancelled()
        await agent.asked(2)
        agent.go()
        await world.settled()
    assert world.desk.texts() == ["re: tea\ncoffee" if policy is INTERRUPT else "re: coffee"]
    assert [event.facts["turn"] for event in world.facts.of("turn.superseded")] == [1]


async def test_a_message_to_a_busy_lane_is_refused_with_a_notice_and_kept(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=REJECT)
        await agent.asked(1)
        await world.say("alice", "and", "cake", policy=REJECT)
        assert await world.desk.has(1) == [BUSY]
        agent.go()
        assert await world.desk.has(2) == [BUSY, "re: tea"]
        await world.say("alice", "now?", policy=REJECT)
        assert await world.desk.has(3) == [BUSY, "re: tea", "re: now?"]
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [message.text for message in story.messages] == ["tea", "and", "cake", "now?"]
    assert dict(story.outcomes) == {2: "refused", 3: "refused"}
    notice = world.desk.sent[0]
    assert (notice.kind, notice.turn, notice.in_reply_to) == ("notice", None, ())


async def test_a_steered_message_is_handed_into_the_run_and_answered_with_it(world: World) -> None:
    agent = Listener()
    async with world.working(agent):
        await world.say("alice", "tea", policy=STEER)
        await agent.asked(1)
        await world.say("alice", "with milk", policy=STEER)
        await asyncio.wait_for(agent.told_more.wait(), 20)
        agent.go()
        assert await world.desk.has(1) == ["re: tea with milk"]
        await world.settled()
    assert len(agent.turns) == 1
    assert world.desk.sent[0].in_reply_to == ("m-1", "m-2")


async def test_an_agent_that_cannot_take_more_gets_it_in_the_next_turn(world: World) -> None:
    agent = Listener()
    agent.listens = False
    async with world.working(agent):
        await world.say("alice", "tea", policy=STEER)
        await agent.asked(1)
        await world.say("alice", "with milk", policy=STEER)
        await asyncio.wait_for(agent.told_more.wait(), 20)
        agent.go()
        assert await world.desk.has(2) == ["re: tea", "re: with milk"]


async def test_an_agent_that_fails_to_take_more_gets_it_in_the_next_turn_and_harms_nobody(world: World) -> None:
    class Broken(Listener):
        async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
            self.told_more.set()
            raise KeyError("a bug")

    agent = Broken()
    async with world.working(agent):
        await world.say("alice", "tea", policy=STEER)
        await agent.asked(1)
        await world.say("alice", "with milk", policy=STEER)
        told = await world.facts.seen("steering.failed")
        assert told.facts == {"turn": 1, "cause": "KeyError: 'a bug'"}
        agent.go()
        assert await world.desk.has(2) == ["re: tea", "re: with milk"]


async def test_an_agent_that_takes_more_too_late_takes_nothing_of_the_next_turn(
    world: World, clock: VirtualClock
) -> None:
    """Its run is over by then, and its slot runs another conversation."""

    class Slow(Listener):
        async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
            self.told_more.set()
            await may_take.wait()
            return turn.conversation == "desk/alice"

    agent, may_take = Slow(), asyncio.Event()
    async with world.working(agent, turns_at_once=1):
        await world.say("alice", "tea", policy=STEER)
        await agent.asked(1)
        await world.say("bob", "coffee", policy=STEER)
        clock.advance(10)
        await world.say("alice", "with milk", policy=STEER)
        await asyncio.wait_for(agent.told_more.wait(), 20)
        agent.go()
        agent.hold()
        assert (await agent.asked(2)).text == "coffee"
        await world.say("bob", "black", policy=STEER)
        may_take.set()
        await asyncio.sleep(0.05)  # waits: for whoever asked the agent to hear its answer
        agent.go()
        await world.settled()
    assert sorted(world.desk.texts()) == ["re: black", "re: coffee", "re: tea", "re: with milk"]


async def test_an_agent_that_takes_its_time_to_take_more_keeps_no_other_from_being_interrupted(world: World) -> None:
    class Slow(Listener):
        gave_up = False

        async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
            self.told_more.set()
            try:
                return await asyncio.Event().wait()
            finally:
                self.gave_up = True

    agent = Slow()
    async with world.working(agent):
        await world.say("alice", "tea", policy=STEER)
        await world.say("bob", "coffee", policy=INTERRUPT)
        await agent.asked(2)
        await world.say("alice", "with milk", policy=STEER)
        await asyncio.wait_for(agent.told_more.wait(), 20)
        await world.say("bob", "no, tea", policy=INTERRUPT)
        await agent.was_cancelled()
        assert not agent.gave_up
        agent.go()
        await world.settled()
    assert sorted(world.desk.texts()) == ["re: coffee\nno, tea", "re: tea", "re: with milk"]


async def test_a_reply_function_takes_what_was_said_meanwhile_when_it_asks_for_more(world: World) -> None:
    begun, may_look = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        begun.set()
        await may_look.wait()
        more = [message.text for message in await turn.more()]
        return f"{turn.text} + {more} + {list(await turn.more())}"

    async with world.working(answer):
        await world.say("alice", "one", policy=STEER)
        await begun.wait()
        await world.say("alice", "two", "three", policy=STEER)
        may_look.set()
        assert await world.desk.has(1) == ["one + ['two', 'three'] + []"]
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [(turn.first, turn.last, turn.outcome) for turn in story.turns] == [(1, 3, "answered")]
    assert story.deliveries[0].in_reply_to == ("m-1", "m-2", "m-3")


@pytest.mark.parametrize("later", ["steer", "collect"])
async def test_what_was_handed_into_a_turn_is_not_dropped_for_what_is_said_later(world: World, later: OnBusy) -> None:
    """A message has one outcome: it is answered or dropped, whatever the policy is by then."""
    dropping = replace(STEER, max_pending=2, on_full="drop_oldest")
    begun, has_more, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        begun.set()
        while not (more := await turn.more()):  # noqa: ASYNC110 - an agent can only ask again
            await asyncio.sleep(0)
        has_more.set()
        await may_end.wait()
        return f"{turn.text} + {[message.text for message in more]}"

    async with world.working(answer):
        await world.say("alice", "one", policy=dropping)
        await begun.wait()
        await world.say("alice", "two", policy=dropping)
        await has_more.wait()
        await world.say("alice", "three", policy=replace(dropping, on_busy=later))
        assert await world.desk.has(1) == [FULL]
        may_end.set()
        assert await world.desk.has(2) == [FULL, "one + ['two']"]
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert dict(story.outcomes) == {3: "dropped"}
    assert story.deliveries[1].in_reply_to == ("m-1", "m-2")


async def test_there_is_no_more_for_a_turn_that_is_not_steered(world: World) -> None:
    begun, may_look = asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        begun.set()
        await may_look.wait()
        return f"{turn.text} + {list(await turn.more())}"

    async with world.working(answer):
        await world.say("alice", "one")
        await begun.wait()
        await world.say("alice", "two")
        may_look.set()
        assert await world.desk.has(2) == ["one + []", "two + []"]


async def test_a_reply_function_takes_more_as_the_conversation_says_now(world: World) -> None:
    """`turnlane policy` holds also for a turn that runs, and so does what came with the last message."""
    begun = asyncio.Event()

    async def answer(turn: Turn) -> str:
        begun.set()
        while not (more := await turn.more()):  # noqa: ASYNC110 - an agent can only ask again
            await asyncio.sleep(0)
        return f"{turn.text} + {[message.text for message in more]}"

    async with world.working(answer):
        await world.say("alice", "one")
        await begun.wait()
        await world.backend.behave("desk/alice", "steer")
        await world.say("alice", "two")
        assert await world.desk.has(1) == ["one + ['two']"]


async def test_an_agent_that_knows_nothing_of_steering_collects(world: World) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "tea", policy=STEER)
        await agent.asked(1)
        await world.say("alice", "with milk", policy=STEER)
        agent.go()
        assert await world.desk.has(2) == ["re: tea", "re: with milk"]


async def test_a_full_mailbox_refuses_and_says_so_once_and_only_after_it_is_stored(world: World) -> None:
    """A9, and PEERS: the mailbox bound never drops unless told to."""
    full = replace(AT_ONCE, max_pending=2, on_full="reject")
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "one", policy=full)
        await agent.asked(1)
        received = await world.say("alice", "two", "three", "four", policy=full)
        assert (received.accepted, received.rejected) == (1, 2)
        assert await world.desk.has(1) == [FULL]
        agent.go()
        assert await world.desk.has(3) == [FULL, "re: one", "re: two"]
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert dict(story.outcomes) == {3: "refused", 4: "refused"}


async def test_drop_oldest_drops_what_waited_longest_keeps_it_visible_and_says_so_once(world: World) -> None:
    dropping = replace(AT_ONCE, max_pending=3, on_full="drop_oldest")
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "one", policy=dropping)
        await agent.asked(1)
        await world.say("alice", "two", "three", "four", "five", policy=dropping)
        assert await world.desk.has(1) == [DROPPED]
        agent.go()
        assert await world.desk.has(3) == [DROPPED, "re: one", "re: four\nfive"]
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert dict(story.outcomes) == {2: "dropped", 3: "dropped"}


async def test_what_is_dropped_as_it_comes_is_not_passed_over_in_silence(world: World) -> None:
    """Nothing else waits: the turn that runs has all the room there is."""
    dropping = replace(AT_ONCE, max_pending=1, on_full="drop_oldest")
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "one", policy=dropping)
        await agent.asked(1)
        await world.say("alice", "this is important", policy=dropping)
        assert await world.desk.has(1) == [FULL]
        agent.go()
        assert await world.desk.has(2) == [FULL, "re: one"]
