"""Approvals (D9): a turn asks the person, and goes on with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.flow.world import A_TERM_MS, AT_ONCE, PATIENCE_SECONDS, World, crashing, ends

from turnlane.agents.function import Function
from turnlane.flow.receive import receive
from turnlane.model.delivery import NotSent, Refused, question_id
from turnlane.model.policy import Policy
from turnlane.model.question import QUESTIONS_MAX, Answer
from turnlane.model.turn import Turn
from turnlane.testing.doubles import VirtualClock

HOLD = replace(AT_ONCE, on_ask="hold")
POLICIES = pytest.mark.parametrize("policy", [AT_ONCE, HOLD], ids=["set aside", "hold"])


class Deployer(Function):
    """Asks before it acts, and counts how often it was run and how often it acted."""

    def __init__(self, *, seconds: float | None = None) -> None:
        super().__init__(self._answer)
        self._seconds = seconds
        self.runs = 0
        self.heard: list[Answer] = []

    async def _answer(self, turn: Turn) -> str:
        self.runs += 1
        sure = await turn.ask("Deploy now?", options=["yes", "no"], timeout=self._seconds)
        self.heard.append(sure)
        if sure.text != "yes":
            return "Nothing was deployed."
        where = await turn.ask("Where to?")
        return f"Deployed to {where.text}."


async def test_a_button_is_known_to_have_been_pressed_too_late(world: World) -> None:
    async def ask(turn: Turn) -> str:
        return (await turn.ask("Deploy now?", options=["yes", "no"])).text or ""

    async with world.working(Function(ask)):
        await world.say("alice", "deploy")
        await world.desk.has(1)
        await world.say("alice", "yes")
        assert await world.desk.has(2) == ["Deploy now?", "yes"]
        late = replace(world.message("alice", "no"), answers=question_id("desk/alice", 1, 1))
        await receive([late], backend=world.backend, policy_for=lambda _: AT_ONCE)
        await world.settled()
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [story.answered_late(message) for message in story.messages] == [False, False, True]


@POLICIES
async def test_a_turn_asks_and_goes_on_with_each_answer(world: World, policy: Policy) -> None:
    agent = Deployer()
    async with world.working(agent):
        await world.say("alice", "deploy", policy=policy)
        assert await world.desk.has(1) == ["Deploy now?"]
        await world.say("alice", "1", policy=policy)
        assert await world.desk.has(2) == ["Deploy now?", "Where to?"]
        await world.say("alice", "the moon", policy=policy)
        assert await world.desk.has(3) == ["Deploy now?", "Where to?", "Deployed to the moon."]
        await world.settled()
    assert agent.runs == (1 if policy is HOLD else 3)
    assert set(agent.heard) == {Answer("yes", "alice")}
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [(turn.number, turn.attempt, turn.outcome) for turn in story.turns] == [(1, 1, "answered")]
    assert dict(story.outcomes) == {2: "answer", 3: "answer"}
    assert [(view.kind, view.options) for view in story.deliveries] == [
        ("question", ("yes", "no")),
        ("question", ()),
        ("reply", ()),
    ]


@POLICIES
async def test_who_has_not_been_asked_yet_does_not_answer(world: World, clock: VirtualClock, policy: Policy) -> None:
    """What sounds like an approval is about something else."""
    agent = Deployer()
    world.desk.results.append(NotSent("slow down", retry_after=3.0))
    async with world.working(agent):
        await world.say("alice", "deploy", policy=policy)
        await world.facts.seen("delivery.retried")
        await world.say("alice", "yes", policy=policy)
        clock.advance(3_001)
        assert await world.desk.has(1) == ["Deploy now?"]
        assert agent.heard == []
        await world.say("alice", "no", policy=policy)
        assert await world.desk.has(3) == ["Deploy now?", "Nothing was deployed.", "Deploy now?"]
    assert set(agent.heard) == {Answer("no", "alice")}
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert dict(story.outcomes) == {3: "answer"}
    assert [(turn.first, turn.last) for turn in story.turns] == [(1, 1)]


@POLICIES
async def test_a_question_that_times_out_tells_the_agent(world: World, clock: VirtualClock, policy: Policy) -> None:
    agent = Deployer(seconds=60)
    async with world.working(agent):
        await world.say("alice", "deploy", policy=policy)
        await world.desk.has(1)
        clock.advance(60_001)
        assert await world.desk.has(2) == ["Deploy now?", "Nothing was deployed."]
    assert [answer.timed_out for answer in agent.heard] == [True]


@POLICIES
async def test_the_answer_may_arrive_at_another_worker_after_a_crash(
    world: World, clock: VirtualClock, policy: Policy
) -> None:
    """Asked, killed, restarted, answered: the turn goes on once."""
    first, second = Deployer(), Deployer()
    async with crashing(world.new_worker(first)):
        await world.say("alice", "deploy", policy=policy)
        await world.desk.has(1)
    await world.say("alice", "no", policy=policy)
    clock.advance(A_TERM_MS + 1)
    async with world.working(second):
        assert await world.desk.has(2) == ["Deploy now?", "Nothing was deployed."]
        await world.settled()
    assert second.runs == 1


async def test_a_slot_is_free_for_others_while_a_turn_is_set_aside(world: World) -> None:
    async with world.working(Deployer(), turns_at_once=1):
        await world.say("alice", "deploy")
        await world.say("bob", "deploy")
        assert await world.desk.has(2) == ["Deploy now?", "Deploy now?"]


async def test_a_held_turn_is_given_back_when_its_worker_drains(world: World) -> None:
    """A person may take a day to answer; a restart does not wait for that."""
    worker = world.new_worker(Deployer(), drain_seconds=3600.0)
    run = asyncio.create_task(worker.run())
    await world.say("alice", "deploy", policy=HOLD)
    await world.desk.has(1)
    worker.stop()
    await ends(run)
    async with world.working(Deployer()):
        await world.say("alice", "no", policy=HOLD)
        assert await world.desk.has(2) == ["Deploy now?", "Nothing was deployed."]


async def test_waiting_for_an_answer_does_not_count_to_the_deadline(world: World, clock: VirtualClock) -> None:
    policy = replace(HOLD, turn_deadline_ms=1_000)
    agent = Deployer()
    async with world.working(agent):
        await world.say("alice", "deploy", policy=policy)
        await world.desk.has(1)
        clock.advance(5_000)
        await asyncio.sleep(0.3)  # waits: for nothing to happen, longer than it takes to look at deadlines
        await world.say("alice", "no", policy=policy)
        assert await world.desk.has(2) == ["Deploy now?", "Nothing was deployed."]
    assert agent.runs == 1


async def test_what_was_asked_is_not_interrupted(world: World) -> None:
    """Something of the turn is visible outside: a message that is no answer waits."""
    policy = replace(HOLD, on_busy="interrupt")
    asked = asyncio.Event()

    async def answer(turn: Turn) -> str:
        sure = await turn.ask("Sure?")
        asked.set()
        await asyncio.sleep(0.5)  # waits: so that the next message comes while it thinks
        return f"{turn.text}: {sure.text}"

    async with world.working(answer):
        await world.say("alice", "deploy", policy=policy)
        await world.desk.has(1)
        await world.say("alice", "yes", policy=policy)
        await asked.wait()
        await world.say("alice", "and another thing", policy=policy)
        assert (await world.desk.has(2))[:2] == ["Sure?", "deploy: yes"]


async def test_a_turn_that_may_never_run_twice_keeps_its_slot(world: World) -> None:
    agent = Deployer()
    async with world.working(agent):
        await world.say("alice", "deploy", policy=replace(AT_ONCE, ack="claim"))
        await world.desk.has(1)
        await world.say("alice", "no")
        assert await world.desk.has(2) == ["Deploy now?", "Nothing was deployed."]
    assert agent.runs == 1


@pytest.mark.parametrize(
    ("ask", "wrong"),
    [
        (lambda turn: turn.ask(" "), "says something"),
        (lambda turn: turn.ask("Sure?", options="yes"), "a list of texts"),
        (lambda turn: turn.ask("Sure?", options=["yes", ""]), "a list of texts"),
        (lambda turn: turn.ask("Sure?", options=None), "a list of texts"),
        (lambda turn: turn.ask("Sure?", options=(str(n) for n in range(2))), "a list of texts"),
        (lambda turn: turn.ask("Sure?", options=[str(n) for n in range(21)]), "at most 20"),
        (lambda turn: turn.ask("Sure?", timeout=0), "greater than 0"),
        (lambda turn: turn.ask("Sure?", timeout=float("nan")), "greater than 0"),
        (lambda turn: turn.ask("Sure?", timeout=timedelta(hours=1)), "a number of seconds"),
        (lambda turn: turn.ask("Sure?", timeout=1e300), "ten years at most"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_a_failure_that_says_why(
    world: World, ask: Callable[[Turn], object], wrong: str
) -> None:
    async def answer(turn: Turn) -> object:
        return await ask(turn)  # type: ignore[misc]

    async with world.working(answer):
        await world.say("alice", "deploy", policy=replace(AT_ONCE, attempts=1))
        await world.facts.seen("turn.dead_lettered")
    [letter] = await world.backend.dead_letters()
    assert wrong in (letter.turn.cause or "")


@POLICIES
async def test_a_plain_function_is_told_at_once_that_it_cannot_ask(world: World, policy: Policy) -> None:
    """In a loop of its own the question would hang, and with it a thread that nobody can stop."""

    def answer(turn: Turn) -> object:
        return asyncio.run(turn.ask("Sure?"))

    async with world.working(answer):
        await world.say("alice", "deploy", policy=replace(policy, attempts=1))
        await world.facts.seen("turn.dead_lettered")
    [letter] = await world.backend.dead_letters()
    assert "only an async function can await its turn" in (letter.turn.cause or "")
    assert world.desk.sent == []


async def test_a_question_that_its_turn_did_not_wait_for_ends_with_it(world: World) -> None:
    """Else it would look for an answer for ever, and in the end stop the clock of whatever runs in its place."""
    asked: list[asyncio.Task[Answer]] = []

    async def answer(turn: Turn) -> str:
        asked.extend(asyncio.create_task(turn.ask(text)) for text in ("Sure?", "Really?"))
        await world.facts.seen("question.asked")
        return "Never mind."

    async with world.working(answer):
        await world.say("alice", "deploy", policy=HOLD)
        await world.facts.seen("turn.answered")
        async with asyncio.timeout(PATIENCE_SECONDS):
            for question in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(question, RuntimeError)
                assert "this run of the turn is over" in str(question)
    assert len(world.facts.of("question.asked")) == 1


async def test_a_turn_of_no_worker_has_nobody_to_ask() -> None:
    turn = Turn("desk/alice", 1, 1, 1, "desk", ())
    with pytest.raises(RuntimeError, match="nobody can be asked"):
        await turn.ask("Sure?")


async def refused(world: World) -> None:
    world.desk.results.append(Refused("never"))


async def gone(world: World) -> None:
    world.desk.results.append(Refused("no such person", gone=True))


async def dropped(world: World) -> None:
    world.desk.results.append(NotSent("busy", retry_after=3_600.0))
    await world.facts.seen("delivery.retried")
    assert await world.backend.drop("desk/alice", 1)


async def reported_as_failed(world: World) -> None:
    await world.desk.has(1)
    await world.facts.seen("delivery.sent")
    assert await world.backend.report("desk/alice", 1, "failed", cause="more than a day ago")


@POLICIES
@pytest.mark.parametrize("unsaid", [refused, gone, dropped, reported_as_failed])
async def test_a_question_that_reached_nobody_is_answered_by_nobody(
    world: World, policy: Policy, unsaid: Callable[[World], Coroutine[Any, Any, None]]
) -> None:
    """What the person says next is no approval of something that they were never asked."""
    agent = Deployer()
    async with world.working(agent), asyncio.TaskGroup() as tasks:
        tasks.create_task(unsaid(world))
        await world.say("alice", "deploy", policy=policy)
        await world.facts.seen("turn.answered")
        assert [answer.timed_out for answer in agent.heard] == [True]
        await world.say("alice", "yes, please", policy=policy)
        await world.facts.seen("turn.started", times=2 if policy is HOLD else 3)
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert dict(story.outcomes) == {}


async def test_who_is_gone_is_not_waited_for_when_asked_once_more(world: World) -> None:
    async def answer(turn: Turn) -> str:
        answers = [await turn.ask("Sure?"), await turn.ask("Really?")]
        return f"{[answer.timed_out for answer in answers]}"

    world.desk.results.append(Refused("no such person", gone=True))
    async with world.working(answer):
        await world.say("alice", "deploy")
        await world.facts.seen("turn.answered")
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [(view.text, view.state) for view in story.deliveries] == [
        ("Sure?", "failed"),
        ("Really?", "failed"),
        ("[True, True]", "failed"),
    ]


@POLICIES
async def test_an_agent_that_asks_whatever_was_answered_is_given_up_on(world: World, policy: Policy) -> None:
    """Nobody is asked the same thing for ever."""

    async def ask_again(turn: Turn) -> str:
        while (await turn.ask("Sure?")).text != "maybe":
            pass
        return "never"

    world.desk.results.append(Refused("so that each is answered by nobody, at once", gone=True))
    async with world.working(ask_again):
        await world.say("alice", "deploy", policy=policy)
        await world.facts.seen("turn.dead_lettered")
    (dead,) = await world.backend.dead_letters()
    assert f"{QUESTIONS_MAX} questions" in (dead.turn.cause or "")
    assert len(world.facts.of("question.asked")) == QUESTIONS_MAX
