"""An answer that is seen before it is whole: it grows, never gets in the way, and is said once."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from tests.flow.world import A_TERM_MS, AT_ONCE, PATIENCE_SECONDS, Desk, Signal, World, crashing

from turnlane.flow.stream import LOOK_SECONDS, SHOWN_CHARACTERS_MAX
from turnlane.model.policy import OnAsk, OnBusy
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

ALICE = "desk/alice"


class Window(Desk):
    """A desk at which one sees what there is so far."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, str | None]] = []
        self.broken: BaseException | None = None
        self._moved = Signal()

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        if self.broken is not None:
            raise self.broken
        self.seen.append((turn, text))
        self._moved.happened()

    async def shows(self, text: str | None, turn: int = 1) -> None:
        await self._moved.until(lambda: self.seen[-1:] == [(turn, text)], f"{text!r}, not {self.seen}")


class Writer:
    """A reply function that yields the next piece when it is told to, and ends when there are no more."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._told: asyncio.Queue[str | None] = asyncio.Queue()
        self.turns: list[Turn] = []
        self.cancelled = 0

    def go_on(self, times: int = 1) -> None:
        for _ in range(times):
            self._told.put_nowait("")

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        self.turns.append(turn)
        try:
            for piece in self._pieces:
                yield piece
                await self._told.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.fixture
def window(world: World) -> Window:
    world.desk = window = Window()
    return window


async def test_an_answer_is_seen_growing_and_said_once(world: World, window: Window) -> None:
    write = Writer("one ", "two ", "three")
    async with world.working(write):
        await world.say("alice", "count")
        for text in ("one ", "one two ", "one two three"):
            await window.shows(text)
            assert window.sent == []
            write.go_on()
        assert await window.has(1) == ["one two three"]
        await world.settled()
    assert window.seen == [(1, "one "), (1, "one two "), (1, "one two three"), (1, None)]


async def test_a_plain_generator_is_seen_growing_too(world: World, window: Window) -> None:
    told = Event()

    def counts(turn: Turn) -> Iterator[str]:
        yield "one "
        assert told.wait(PATIENCE_SECONDS)
        yield "two"

    async with world.working(counts):
        await world.say("alice", "count")
        await window.shows("one ")
        told.set()
        assert await window.has(1) == ["one two"]


async def test_any_agent_may_show_what_it_has(world: World, window: Window) -> None:
    told = asyncio.Event()

    async def searches(turn: Turn) -> Reply:
        turn.show("Searching…")
        await told.wait()
        return Reply("Found it.")

    async with world.working(searches):
        await world.say("alice", "search")
        await window.shows("Searching…")
        told.set()
        assert await window.has(1) == ["Found it."]
    assert window.seen[-1] == (1, None)


async def test_a_channel_that_cannot_show_gets_the_whole_answer(world: World) -> None:
    write = Writer("one ", "two")
    async with world.working(write):
        await world.say("alice", "count")
        write.go_on(2)
        assert await world.desk.has(1) == ["one two"]
    assert (await lane_epochs(world)) == (1, 1)


async def lane_epochs(world: World) -> tuple[int, ...]:
    story = await world.backend.story(ALICE)
    assert story is not None
    return tuple(lane.epoch for lane in story.lanes)


async def test_pieces_that_come_quickly_are_shown_together(world: World, window: Window) -> None:
    write = Writer(*"abcdefghij")
    async with world.working(write):
        await world.say("alice", "spell")
        await window.shows("a")
        write.go_on(9)
        await window.shows("abcdefghij")
        write.go_on()
        await window.has(1)
    assert len(window.seen) < 6


async def test_once_something_was_seen_an_interrupt_collects(world: World, window: Window) -> None:
    interrupt = replace(AT_ONCE, on_busy="interrupt")
    write = Writer("tea ", "is ready")
    async with world.working(write):
        await world.say("alice", "tea", policy=interrupt)
        await window.shows("tea ")
        await world.say("alice", "no, coffee", policy=interrupt)
        write.go_on()
        await window.shows("tea is ready")
        write.go_on(3)
        assert await window.has(2) == ["tea is ready", "tea is ready"]
    assert ([turn.text for turn in write.turns], write.cancelled) == (["tea", "no, coffee"], 0)


async def test_what_was_interrupted_before_it_was_seen_is_never_seen(world: World, window: Window) -> None:
    """Its agent may take a while to end, and what it showed waits for the outbox to be free."""
    begun, ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def drinks(turn: Turn) -> str:
        if turn.number > 1:
            return "one coffee"
        turn.show("tea ")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ending.set()
            await may_end.wait()
            raise
        raise AssertionError("nobody ends that wait")

    interrupt = replace(AT_ONCE, on_busy="interrupt")
    await world.say("alice", "tea", policy=interrupt)
    await world.backend.say(replace(world.message("alice", "a word by hand"), role="operator"), takes_over=False)
    window.hold()
    async with world.working(drinks):
        await begun.wait()
        await world.say("alice", "no, coffee", policy=interrupt)
        await ending.wait()
        window.go()
        await window.has(1)
        await asyncio.sleep(LOOK_SECONDS + 0.1)  # waits: the preview would be shown with the next look
        may_end.set()
        assert await window.has(2) == ["a word by hand", "one coffee"]
    assert window.seen == []


@pytest.mark.parametrize("on_busy", ["rollback", "collect"])
async def test_what_was_seen_of_a_cancelled_turn_disappears(world: World, window: Window, on_busy: OnBusy) -> None:
    policy = replace(AT_ONCE, on_busy=on_busy)
    write = Writer("tea ", "is ready")
    async with world.working(write):
        await world.say("alice", "tea", policy=policy)
        await window.shows("tea ")
        if on_busy == "rollback":
            await world.say("alice", "coffee", policy=policy)
            await window.shows("tea ", turn=2)
            assert window.seen[:2] == [(1, "tea "), (1, None)]
            write.go_on(2)
            assert await window.has(1) == ["tea is ready"]
        else:
            await world.backend.stop(ALICE)
            await window.shows(None)
    assert write.cancelled == 1


async def test_what_was_seen_of_a_failed_turn_disappears_and_comes_again(
    world: World, window: Window, clock: VirtualClock
) -> None:
    told = asyncio.Event()

    async def fails_once(turn: Turn) -> AsyncIterator[str]:
        yield f"attempt {turn.attempt}"
        await told.wait()
        if turn.attempt == 1:
            told.clear()
            raise ConnectionError

    async with world.working(fails_once):
        await world.say("alice", "try")
        await window.shows("attempt 1")
        told.set()
        await window.shows(None)
        await world.facts.seen("turn.retried")
        clock.advance(2_000)
        await window.shows("attempt 2")
        told.set()
        assert await window.has(1) == ["attempt 2"]


@pytest.mark.parametrize("broken", [ConnectionResetError("the window is broken"), asyncio.CancelledError()])
async def test_a_window_that_is_broken_fails_no_turn_and_is_told_once(
    world: World, window: Window, broken: BaseException
) -> None:
    window.broken = broken
    write = Writer("one ", "two")
    async with world.working(write):
        await world.say("alice", "count")
        failed = await world.facts.seen("preview.failed")
        write.go_on(2)
        assert await window.has(1) == ["one two"]
    assert (failed.conversation, failed.facts["turn"]) == (ALICE, 1)
    assert ("the window is broken" if str(broken) else "was cancelled") in str(failed.facts["cause"])
    assert len(world.facts.of("preview.failed")) == 1
    assert world.facts.of("turn.retried") == []


async def test_what_is_to_be_said_never_waits_for_what_is_seen(world: World, window: Window) -> None:
    reject = replace(AT_ONCE, on_busy="reject")
    write = Writer("one ", "two ", "three")
    async with world.working(write):
        await world.say("alice", "count", policy=reject)
        await window.shows("one ")
        await world.say("alice", "quickly", policy=reject)
        assert len(await window.has(1)) == 1
        await world.facts.seen("delivery.sent")
        write.go_on()
        await window.shows("one two ")  # the notice is out, so it may go on
        write.go_on(2)
        assert (await window.has(2))[-1] == "one two three"


async def test_nothing_is_seen_before_the_last_answer_has_left(world: World, window: Window) -> None:
    write = Writer("one ", "two")
    async with world.working(write):
        window.hold()
        await world.say("alice", "count")
        await window.shows("one ")
        write.go_on(2)
        await window.was_tried(1)
        await world.say("alice", "again")
        await world.facts.seen("turn.started", 2)
        assert window.seen[-1] == (1, None)
        window.go()
        await window.has(1)
        await window.shows("one ", turn=2)
        write.go_on(2)
        assert await window.has(2) == ["one two", "one two"]


async def test_who_lost_the_turn_shows_nothing_more_and_the_next_one_answers_once(
    world: World, window: Window, clock: VirtualClock
) -> None:
    write = Writer("one ", "two")
    async with crashing(world.new_worker(write)):
        await world.say("alice", "count")
        await window.shows("one ")
        clock.advance(A_TERM_MS + 1)
        write.go_on()
    assert (1, "one two") not in window.seen
    async with world.working(write):
        await world.backend.reap()
        await world.facts.seen("turn.started", 2)
        write.go_on(2)
        assert await window.has(1) == ["one two"]
        await world.settled()
    assert [turn.id for turn in write.turns] == [f"{ALICE}#1", f"{ALICE}#1"]


async def test_what_cannot_be_shown_as_it_is_does_no_harm(world: World, window: Window) -> None:
    told = asyncio.Event()

    async def rambles(turn: Turn) -> Reply:
        turn.show("nul \0, half \ud800 " + "x" * SHOWN_CHARACTERS_MAX)
        await told.wait()
        return Reply("done")

    async with world.working(rambles):
        await world.say("alice", "go")
        await window.shows("nul \ufffd, half ? " + "x" * (SHOWN_CHARACTERS_MAX - 14))
        told.set()
        assert await window.has(1) == ["done"]


@pytest.mark.parametrize("on_ask", ["set_aside", "hold"])
async def test_a_question_in_the_middle_leaves_at_once_and_the_answer_grows_on(
    world: World, window: Window, on_ask: OnAsk
) -> None:
    policy = replace(AT_ONCE, on_ask=on_ask)
    told = asyncio.Event()

    async def deploys(turn: Turn) -> AsyncIterator[str]:
        yield "Checked. "
        answer = await turn.ask("Deploy now?", ["yes", "no"])
        yield f"You said {answer.text}."
        await told.wait()

    async with world.working(deploys):
        await world.say("alice", "deploy", policy=policy)
        await window.has(1)
        assert window.sent[0].kind == "question"
        await world.facts.seen("delivery.sent")
        await world.say("alice", "yes", policy=policy)
        await window.shows("Checked. You said yes.")
        told.set()
        assert (await window.has(2))[-1] == "Checked. You said yes."
        await world.settled()
    assert window.seen[-1] == (1, None)


async def test_pieces_that_come_faster_than_they_can_be_shown_are_not_all_kept(world: World, window: Window) -> None:
    """An answer that is at hand as a whole, word by word: all its beginnings together are a gigabyte."""

    async def recites(turn: Turn) -> AsyncIterator[str]:
        for _ in range(5_000):
            yield "word "

    tracemalloc.start()
    try:
        async with world.working(recites):
            await world.say("alice", "recite")
            assert await window.has(1) == ["word " * 5_000]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 20_000_000


@pytest.mark.parametrize("shown", [5, b"bytes", {"text": "hi"}])
async def test_what_is_no_text_cannot_be_shown_and_that_is_told(world: World, window: Window, shown: Any) -> None:
    told = asyncio.Event()

    async def confuses(turn: Turn) -> str:
        turn.show(shown)
        await told.wait()
        return "done"

    async with world.working(confuses):
        await world.say("alice", "go")
        failed = await world.facts.seen("preview.failed")
        told.set()
        assert await window.has(1) == ["done"]
    assert "show text" in str(failed.facts["cause"])
