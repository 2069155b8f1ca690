"""What an agent is told of earlier turns: those of its session, and whether this one was begun before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.flow.world import AT_ONCE, Thinker, Unreachable, World

from turnlane.errors import AgentRefused
from turnlane.model.message import Message
from turnlane.model.turn import Exchange, Reply, Turn
from turnlane.testing.doubles import VirtualClock


class Rememberer(Thinker):
    """Asks for the past before each answer, and writes down what it was told."""

    def __init__(self, turns: int = 20) -> None:
        super().__init__(told=True)
        self.session: str | None = "s-1"
        self.past: list[Sequence[Exchange]] = []
        self.begun: list[bool] = []
        self._turns = turns

    async def respond(self, turn: Turn) -> Reply:
        self.past.append(await turn.past(self._turns))
        self.begun.append(await turn.was_begun())
        if "refuse this" in turn.text:
            raise AgentRefused("as the test says")
        return replace(await super().respond(turn), session=self.session)

    def answer(self, turn: Turn) -> Reply:
        return Reply([f"re: {turn.text}", "anything else?"])

    @property
    def told(self) -> list[tuple[list[str], list[str]]]:
        """Of the past, at the last turn."""
        return [([message.text for message in each.messages], list(each.answers)) for each in self.past[-1]]


def answered(*texts: str) -> tuple[list[str], list[str]]:
    said = "\n".join(texts)
    return list(texts), [f"re: {said}", "anything else?"]


async def test_a_turn_is_told_the_earlier_exchanges_of_its_session(world: World) -> None:
    agent = Rememberer()
    async with world.working(agent):
        for texts in (("one", "and a half"), ("two",), ("three",)):
            await world.say("alice", *texts)
            await world.settled("desk/alice")
    assert agent.told == [answered("one", "and a half"), answered("two")]
    assert [each.number for each in agent.past[-1]] == [1, 2]
    assert agent.past[0] == ()
    assert agent.begun == [False, False, False]


async def test_no_more_turns_than_asked_for_and_always_the_latest(world: World) -> None:
    agent = Rememberer(turns=2)
    async with world.working(agent):
        for text in ("one", "two", "three", "four"):
            await world.say("alice", text)
            await world.settled("desk/alice")
    assert agent.told == [answered("two"), answered("three")]


async def test_another_session_has_another_past(world: World) -> None:
    agent = Rememberer()
    async with world.working(agent):
        await world.say("alice", "one")
        await world.settled("desk/alice")
        agent.session = "s-2"
        await world.say("alice", "two")
        await world.settled("desk/alice")
        await world.say("alice", "three")
        await world.settled("desk/alice")
        await world.say("bob", "other")
        await world.settled("desk/bob")
    assert [[each.number for each in past] for past in agent.past] == [[], [1], [2], []]


async def test_what_was_given_up_is_no_part_of_the_past_and_what_others_said_is(world: World) -> None:
    agent = Rememberer()
    async with world.working(agent):
        await world.say("alice", "one")
        await world.settled("desk/alice")
        await world.say("alice", "refuse this")
        await world.settled("desk/alice")
        by_hand = Message("desk", "op-1", "desk/alice", "Olga", "I am on it", role="operator")
        await world.backend.say(by_hand, takes_over=False)
        await world.say("alice", "two")
        await world.settled("desk/alice")
        await world.say("alice", "three")
        await world.settled("desk/alice")
    texts = [[message.text for message in each.messages] for each in agent.past[-1]]
    assert texts == [["one"], ["I am on it", "two"]]


async def test_a_turn_knows_that_it_was_begun_before_also_by_a_run_that_was_given_back(world: World) -> None:
    thinker, agent = Thinker(), Rememberer()
    async with world.working(thinker):
        await world.say("alice", "one")
        await thinker.asked()
    async with world.working(agent):
        await world.settled("desk/alice")
        await world.say("alice", "two")
        await world.settled("desk/alice")
    assert agent.begun == [True, False]
    assert agent.turns[0].attempt == 1


async def test_a_past_that_cannot_be_read_just_now_puts_the_turn_off_and_costs_no_attempt(
    world: World, clock: VirtualClock
) -> None:
    store, agent = Unreachable(world.backend), Rememberer()
    async with world.working(agent, backend=store):
        await world.say("alice", "one")
        await world.settled("desk/alice")
        store.down = {"story"}
        await world.say("alice", "two")
        await world.facts.seen("turn.retried")
        store.down = set()
        clock.advance(AT_ONCE.backoff.most_ms)
        await world.settled("desk/alice")
    assert agent.turns[-1].attempt == 1
    assert agent.begun == [False, True]


async def test_a_turn_that_no_worker_made_has_no_past() -> None:
    turn = Turn("desk/alice", number=1, attempt=1, epoch=1, channel="desk", messages=[], session="s-1")
    assert await turn.past() == ()
    assert not await turn.was_begun()
    assert await replace(turn, attempt=2).was_begun()
