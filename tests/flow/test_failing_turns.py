"""A run that fails is tried again in its place, and in the end kept; nobody hears of it who should not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.flow.world import AT_ONCE, Thinker, World

from turnlane.errors import AgentFailed, AgentRefused, Throttled
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock


class Moody:
    """Fails as told, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.attempts: list[int] = []

    async def __call__(self, turn: Turn) -> Reply:
        self.attempts.append(turn.attempt)
        if self.errors:
            raise self.errors.pop(0)
        return Reply(f"re: {turn.text}", session="session-1")


async def test_a_retry_keeps_its_place_is_visible_and_the_answer_comes_once(world: World, clock: VirtualClock) -> None:
    """PEERS: what was said after a failed turn waits behind it."""
    agent = Moody(AgentFailed("the model is down"))
    async with world.working(agent):
        await world.say("alice", "first")
        await world.facts.seen("turn.retried")
        await world.say("alice", "second")
        (lane,) = await world.backend.lanes()
        assert (lane.state, lane.attempt, lane.failures) == ("waiting", 1, 1)
        assert lane.retry_at is not None
        assert clock.now() + 1_000 <= lane.retry_at <= clock.now() + 1_100
        clock.advance(1_100)
        assert await world.desk.has(2) == ["re: first", "re: second"]
    assert agent.attempts == [1, 2, 1]


async def test_a_message_accepted_while_a_turn_fails_is_still_answered(world: World, clock: VirtualClock) -> None:
    """PEERS"""
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "first", policy=replace(AT_ONCE, attempts=1))
        await agent.asked(1)
        await world.say("alice", "second", policy=replace(AT_ONCE, attempts=1))
        agent.answer = _fail_first(agent)  # type: ignore[method-assign]
        agent.go()
        assert await world.desk.has(1) == ["re: second"]
    assert [each.turn.number for each in await world.backend.dead_letters()] == [1]


def _fail_first(agent: Thinker) -> Any:
    def answer(turn: Turn) -> Reply:
        if turn.number == 1:
            raise AgentFailed("no")
        return Reply(f"re: {turn.text}")

    return answer


class Panic(BaseException):
    """What libraries in Rust raise, on purpose past every `except Exception`."""


async def test_a_panic_fails_its_turn_and_not_the_worker(world: World) -> None:
    async def panics(turn: Turn) -> str:
        if turn.conversation == "desk/alice":
            raise Panic("index out of bounds")
        return "fine"

    async with world.working(panics):
        await world.say("alice", "drink this", policy=replace(AT_ONCE, attempts=1))
        failed = await world.facts.seen("turn.dead_lettered")
        await world.say("bob", "and I?")
        assert await world.desk.has(1) == ["fine"]
    assert "Panic: index out of bounds" in str(failed.facts["cause"])


async def test_a_poison_turn_stops_after_its_attempts_and_is_kept(world: World, clock: VirtualClock) -> None:
    """PEERS: attempts are counted before the run; the conversation goes on afterwards."""
    agent = Moody(*(ValueError(f"poison {n}") for n in range(3)))
    async with world.working(agent):
        await world.say("alice", "drink this")
        for failure in (1, 2):
            await world.facts.seen("turn.retried", failure)
            clock.advance(60_000)
        await world.facts.seen("turn.dead_lettered")
        await world.say("alice", "and now?")
        assert await world.desk.has(1) == ["re: and now?"]
    assert agent.attempts == [1, 2, 3, 1]
    (dead,) = await world.backend.dead_letters()
    assert [message.text for message in dead.messages] == ["drink this"]
    assert (dead.turn.cause, dead.turn.attempt) == ("ValueError: poison 2", 3)


async def test_throttled_does_not_use_up_attempts_and_comes_back_when_told(world: World, clock: VirtualClock) -> None:
    """An agent that says when to come back is asked then, however often it says so."""
    agent = Moody(*(Throttled("busy", retry_after=7.0) for _ in range(10)))
    async with world.working(agent):
        await world.say("alice", "hello")
        for time in range(1, 11):
            retried = await world.facts.seen("turn.retried", time)
            assert retried.facts["retry_at"] == clock.now() + 7_000
            clock.advance(7_000)
        assert await world.desk.has(1) == ["re: hello"]
    assert agent.attempts == [1] * 11


@pytest.mark.parametrize("named", [None, 0.0], ids=["no time", "a time that is over"])
async def test_throttled_without_a_time_waits_longer_the_longer_it_waited(
    world: World, clock: VirtualClock, named: float | None
) -> None:
    waits = []
    agent = Moody(*(Throttled("busy", retry_after=named) for _ in range(12)))
    async with world.working(agent):
        await world.say("alice", "hello")
        for time in range(1, 13):
            retry_at = (await world.facts.seen("turn.retried", time)).facts["retry_at"]
            assert isinstance(retry_at, int)
            waits.append(retry_at - clock.now())
            clock.advance(waits[-1])
        await world.desk.has(1)
    assert waits[0] == 1_000
    assert waits == sorted(waits)
    assert 1_000 < waits[-1] <= 60_000


async def test_an_agent_that_refuses_makes_a_dead_letter_at_once(world: World) -> None:
    async with world.working(Moody(AgentRefused("not this one"))):
        await world.say("alice", "hello")
        await world.facts.seen("turn.dead_lettered")
    (dead,) = await world.backend.dead_letters()
    assert (dead.turn.cause, dead.turn.attempt, dead.turn.outcome) == ("not this one", 1, "dead_letter")


async def test_an_error_text_of_the_model_api_is_never_sent_to_a_customer(world: World, clock: VirtualClock) -> None:
    """PEERS"""
    secret = "401 invalid x-api-key"
    async with world.working(Moody(AgentFailed(secret), RuntimeError(secret), AgentRefused(secret))):
        await world.say("alice", "hello")
        for failure in (1, 2):
            await world.facts.seen("turn.retried", failure)
            clock.advance(60_000)
        await world.facts.seen("turn.dead_lettered")
        await world.settled()
    assert world.desk.tried == []
    assert await world.backend.deliveries("desk/alice") == []


async def test_a_session_id_is_saved_only_after_a_successful_turn(world: World, clock: VirtualClock) -> None:
    """PEERS: a run that fails, however far it got, leaves the session of the last answered turn."""
    seen: list[str | None] = []

    async def answer(turn: Turn) -> Reply:
        seen.append(turn.session)
        if (turn.number, turn.attempt) in {(1, 1), (2, 1)}:
            raise AgentFailed("after it had opened a new session")
        return Reply("ok", session=f"session-{turn.number}")

    async with world.working(answer):
        for number in (1, 2, 3):
            await world.say("alice", "hello")
            if number < 3:
                await world.facts.seen("turn.retried", number)
                clock.advance(2_000)
            await world.desk.has(number)
    assert seen == [None, None, "session-1", "session-1", "session-2"]


async def test_a_turn_deadline_cancels_the_agent(world: World, clock: VirtualClock) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "think for ever", policy=replace(AT_ONCE, turn_deadline_ms=20))
        await agent.asked()
        clock.advance(21)
        retried = await world.facts.seen("turn.retried")
        assert len(agent.cancelled) == 1
        assert retried.facts["cause"] == "it took longer than 0.02 s (turn_deadline) and was stopped"
        agent.go()
        clock.advance(2_000)
        assert await world.desk.has(1) == ["re: think for ever"]


async def test_an_unknown_agent_parks_the_lane_visibly_and_unpark_lets_it_run(world: World) -> None:
    policy = replace(AT_ONCE, agent="somebody-else")
    agent = Thinker(told=True)
    async with world.working(agent):
        await world.say("alice", "hello", policy=policy)
        parked = await world.facts.seen("lane.parked")
        cause = "no agent is named 'somebody-else' here; add it to the settings, then `turnlane resume desk/alice`"
        assert parked.facts == {"kind": "turn", "cause": cause}
        await world.say("alice", "anybody?", policy=policy)
        (lane,) = await world.backend.lanes(state="parked")
        assert (lane.conversation, lane.pending) == ("desk/alice", 2)
        assert agent.turns == []
    async with world.working(agents={"somebody-else": agent}):
        assert await world.backend.unpark("desk/alice")
        assert await world.desk.has(2) == ["re: hello", "re: anybody?"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply("ok", session="\ud800"),
        Reply("ok", session=7),  # type: ignore[arg-type] # what an untyped agent may hand over
        Reply("ok", usage=Usage(input_tokens=2**70)),
        Reply("ok", usage=Usage(output_tokens=-1)),
        Reply("a NUL: \0"),
        Reply(["fine", "half a pair: \udc00"]),
        Reply(b"bytes"),  # type: ignore[arg-type] # the same
        "no Reply at all",
    ],
    ids=repr,
)
async def test_an_answer_that_cannot_be_stored_is_a_failed_run_and_the_lane_goes_on(world: World, reply: Any) -> None:
    """A10: the answer of one agent never takes its slot, its lane or its neighbours with it."""

    class Raw:
        async def respond(self, turn: Turn) -> Reply:
            answer: Reply = reply if turn.text == "break it" else Reply("fine")
            return answer

        async def close(self) -> None:
            """Nothing is held."""

    async with world.working(Raw(), turns_at_once=1):
        await world.say("alice", "break it", policy=replace(AT_ONCE, attempts=1))
        await world.facts.seen("turn.dead_lettered")
        await world.say("alice", "go on")
        await world.say("bob", "me too")
        assert await world.desk.has(2) == ["fine", "fine"]


async def test_plain_functions_answer_too(world: World) -> None:
    def answer(turn: Turn) -> str:
        return f"re: {turn.text}"

    async with world.working(answer):
        await world.say("alice", "hello")
        assert await world.desk.has(1) == ["re: hello"]


async def test_functions_that_yield_answer_with_all_they_yielded(world: World) -> None:
    def pieces(turn: Turn) -> Iterator[str]:
        yield "one, "
        yield "two"

    async def later_pieces(turn: Turn) -> AsyncIterator[str]:
        yield "three, "
        await asyncio.sleep(0)
        yield "four"

    for function, who in ((pieces, "alice"), (later_pieces, "bob")):
        async with world.working(function):
            await world.say(who, "count")
            await world.facts.seen("delivery.sent", conversation=f"desk/{who}")
    assert world.desk.texts() == ["one, two", "three, four"]


async def test_saying_nothing_is_an_answer_that_sends_nothing(world: World) -> None:
    async with world.working(lambda turn: None):
        await world.say("alice", "no answer needed")
        answered = await world.facts.seen("turn.answered")
        await world.settled()
    assert answered.facts["deliveries"] == 0
    assert world.desk.tried == []
