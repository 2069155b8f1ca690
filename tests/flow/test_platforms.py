"""What a platform can hold and show: long answers in parts, a rest between them, and that somebody is at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.flow.world import A_TERM_MS, AT_ONCE, Desk, Signal, Thinker, World, crashing

from turnlane.flow.flood import SENDERS_MAX, Flood
from turnlane.flow.receive import receive
from turnlane.model.delivery import question_id
from turnlane.model.message import Message
from turnlane.model.notice import STOPPED, TOO_FAST
from turnlane.model.pace import Pace
from turnlane.model.turn import Reply, Turn
from turnlane.settings import ChatCommands
from turnlane.testing.doubles import VirtualClock

ALICE = "desk/alice"


class Narrow(Desk):
    """Takes three words in one message."""

    def parts(self, text: str) -> Sequence[str]:
        words = text.split()
        return [" ".join(words[n : n + 3]) for n in range(0, len(words), 3)] or [text]


class Blinking(Desk):
    """Shows that somebody is at work."""

    indicated_seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.indicated: list[tuple[str, str]] = []
        self.broken = False
        self._moved = Signal()

    async def indicate(self, conversation: str, latest: str) -> None:
        self.indicated.append((conversation, latest))
        self._moved.happened()
        if self.broken:
            raise OSError("no such method")

    async def blinks(self, times: int) -> None:
        await self._moved.until(lambda: len(self.indicated) >= times, f"{times} indications")


async def test_a_long_answer_leaves_in_parts_that_fit_and_in_order(world: World, clock: VirtualClock) -> None:
    """B10: with a rest between them."""
    world.desk = desk = Narrow()
    policy = replace(AT_ONCE, send_pause_ms=300)

    def count(turn: Turn) -> Reply:
        return Reply(["one two three four five six seven", "eight"])

    async with world.working(count):
        await world.say("alice", "count", policy=policy)
        for sent in range(1, 5):
            await desk.has(sent)
            await world.facts.seen("delivery.sent", sent)
            assert len(desk.tried) == sent, "the next one rests"
            clock.advance(300)
        await world.settled(ALICE)
    assert desk.texts() == ["one two three", "four five six", "seven", "eight"]
    assert [(each.part, each.parts) for each in desk.sent] == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_a_question_must_be_one_message(world: World) -> None:
    world.desk = Narrow()
    causes = []

    async def ask(turn: Turn) -> str:
        try:
            await turn.ask("may I do this and that?")
        except ValueError as error:
            causes.append(str(error))
        return "no"

    async with world.working(ask):
        await world.say("alice", "do it")
        await world.settled(ALICE)
    assert causes == ["a question is one message, and this is longer than the platform takes; shorten it"]


async def test_people_see_that_somebody_is_at_work_for_as_long_as_it_takes(world: World) -> None:
    world.desk = desk = Blinking()
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "one", "two")
        await desk.blinks(2)
        agent.go()
        await world.settled(ALICE)
    assert set(desk.indicated) == {(ALICE, "m-2")}


async def test_a_platform_that_cannot_show_it_is_told_of_once_and_harms_nothing(world: World) -> None:
    world.desk = desk = Blinking()
    desk.broken = True
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "hello")
        await desk.blinks(3)
        agent.go()
        assert await desk.has(1) == ["re: hello"]
    assert len(world.facts.of("indication.failed")) == 1


class Board(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str | None] = []
        self.moved = Signal()

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        self.shown.append(text)
        self.moved.happened()


async def test_what_a_crashed_run_left_is_taken_away_before_the_turn_runs_again(
    world: World, clock: VirtualClock
) -> None:
    """Also where the next run shows nothing."""
    world.desk = board = Board()
    agent = Thinker()
    async with crashing(world.new_worker(agent)):
        await world.say("alice", "hello")
        (await agent.asked()).show("some of it")
        await board.moved.until(lambda: board.shown == ["some of it"], "a preview")
    clock.advance(A_TERM_MS + 1)
    async with world.working(agent):
        await agent.asked(2)
        assert board.shown == ["some of it", None]
        agent.go()
        await world.settled(ALICE)
    assert board.shown == ["some of it", None]


# Too fast


async def test_who_says_more_than_they_may_is_told_so_once(world: World, clock: VirtualClock) -> None:
    flood, pace = Flood(clock), Pace(every_ms=60_000, burst=2)

    async def say(text: str, who: str = "alice") -> str:
        message = world.message(who, text)
        received = await receive(
            [message],
            backend=world.backend,
            policy_for=lambda _: AT_ONCE,
            too_fast=lambda each: flood.is_over(each, pace),
        )
        return "rejected" if received.rejected else "accepted"

    async with world.working(Thinker(told=True)):
        said = [await say(text) for text in ("one", "two", "three", "four")]
        assert said == ["accepted", "accepted", "rejected", "rejected"]
        assert await say("hello", "bob") == "accepted"
        clock.advance(60_000)
        assert await say("five") == "accepted"
        await world.settled(ALICE)
    notices = [each for each in world.desk.sent if each.kind == "notice"]
    assert [(each.conversation, "faster" in each.text) for each in notices] == [(ALICE, True)]
    assert [event.facts["cause"] for event in world.facts.of("message.refused")] == ["flood", "flood"]
    story = await world.backend.story(ALICE)
    assert story is not None
    assert [message.text for message in story.messages] == ["one", "two", "three", "four", "five"]


async def test_too_many_commands_are_refused_but_whoever_set_something_going_may_stop_it(world: World) -> None:
    """Each command is answered: whoever writes them as fast as they can must not make the account say as much."""

    async def write(text: str, too_fast: bool = True) -> str:
        received = await receive(
            [world.message("alice", text)],
            backend=world.backend,
            policy_for=lambda _: AT_ONCE,
            commands=ChatCommands().by_word,
            too_fast=lambda each: too_fast,
        )
        return "rejected" if received.rejected else "accepted"

    agent = Thinker()
    async with world.working(agent):
        await write("think for long", too_fast=False)
        await agent.asked(1)
        assert [await write(word) for word in ("/status", "/usage", "/pause", "/new")] == ["rejected"] * 4
        assert await write("/stop") == "accepted"
        await agent.was_cancelled()
        assert [await write("/stop") for _ in range(3)] == ["rejected"] * 3
        await world.settled(ALICE)
    assert [each.text for each in world.desk.sent] == [TOO_FAST, STOPPED, TOO_FAST]


async def test_only_what_a_person_says_is_counted_and_buttons_apart() -> None:
    flood, pace = Flood(VirtualClock()), Pace(60_000, 1)
    message = Message("desk", "m-1", ALICE, "alice", "hi")
    assert not any(flood.is_over(replace(message, role="business"), pace) for _ in range(10))
    pressed = replace(message, answers="question-1")
    assert [flood.is_over(each, pace) for each in (message, pressed, message, pressed)] == [False, False, True, True]


async def test_whoever_makes_up_buttons_is_told_only_once_but_a_question_is_answered_however_fast(
    world: World,
) -> None:
    """Each such press is answered: whoever makes them up must not make the account say as much."""

    async def press(question: str) -> str:
        received = await receive(
            [replace(world.message("alice", "yes"), answers=question)],
            backend=world.backend,
            policy_for=lambda _: AT_ONCE,
            too_fast=lambda each: True,
        )
        return "rejected" if received.rejected else "accepted"

    async def deploy(turn: Turn) -> str | None:
        return (await turn.ask("Deploy now?", options=["yes", "no"])).text

    async with world.working(deploy):
        await world.say("alice", "deploy")
        await world.desk.has(1)
        assert [await press(f"made-up-{number}") for number in range(3)] == ["rejected"] * 3
        assert await press(question_id(ALICE, 1, 1)) == "accepted"
        await world.settled(ALICE)
    assert [each.text for each in world.desk.sent if each.kind != "question"] == [TOO_FAST, "yes"]


async def test_only_so_many_senders_are_remembered() -> None:
    flood, pace = Flood(VirtualClock()), Pace(60_000, 1)
    for number in range(SENDERS_MAX + 1):
        assert not flood.is_over(Message("desk", "m-1", ALICE, str(number), "hi"), pace)
    assert not flood.is_over(Message("desk", "m-1", ALICE, "0", "hi"), pace), "forgotten"
    assert flood.is_over(Message("desk", "m-1", ALICE, str(SENDERS_MAX), "hi"), pace)
