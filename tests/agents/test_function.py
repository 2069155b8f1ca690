"""The agents that live in this process: a Python function, and the echo."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.agents.turns import Audience, a_turn

from turnlane.agents.echo import Echo
from turnlane.agents.function import Function
from turnlane.errors import AgentFailed, AgentRefused, Throttled
from turnlane.model.turn import Reply, Turn


async def ask(function: Callable[[Turn], Any]) -> Reply:
    agent = Function(function)
    try:
        return await agent.respond(a_turn("hi", "there"))
    finally:
        await agent.close()
        await agent.close()  # may be called twice


async def says(turn: Turn) -> str:
    return f"async {turn.text}"


async def yields(turn: Turn) -> AsyncIterator[str]:
    yield "one "
    await asyncio.sleep(0)
    yield "two"


async def yields_nothing(turn: Turn) -> AsyncIterator[str]:
    if not turn.messages:
        yield "never"


def yields_now(turn: Turn) -> Iterator[str]:
    yield "three "
    yield "four"


def promises(turn: Turn) -> Awaitable[str]:
    return says(turn)


def hands_over(turn: Turn) -> AsyncIterator[str]:
    return yields(turn)


@pytest.mark.parametrize(
    ("function", "seen"), [(yields, ["one ", "one two"]), (yields_now, ["three ", "three four"]), (says, [])]
)
async def test_what_is_yielded_is_shown_growing(function: Callable[[Turn], Any], seen: list[str]) -> None:
    audience = Audience()
    agent = Function(function)
    await agent.respond(a_turn(stage=audience))
    await agent.close()
    assert audience.seen == seen


class Caller:
    async def __call__(self, turn: Turn) -> str:
        return "called"

    async def method(self, turn: Turn) -> str:
        return "method"


def adds(word: str, turn: Turn) -> str:
    return word + turn.text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (says, "async hi\nthere"),
        (lambda turn: f"plain {turn.text}", "plain hi\nthere"),
        (lambda turn: None, None),
        (lambda turn: "", ""),
        (promises, "async hi\nthere"),
        (yields, "one two"),
        (yields_nothing, None),
        (yields_now, "three four"),
        (hands_over, "one two"),
        (Caller(), "called"),
        (Caller().method, "method"),
        (partial(adds, "+"), "+hi\nthere"),
    ],
)
async def test_a_function_may_return_text_or_yield_it_async_or_not(function: Any, text: str | None) -> None:
    assert await ask(function) == Reply(text)


@pytest.mark.parametrize("reply", [Reply("a", "s-1"), Reply(None), Reply(["a", "b"])])
async def test_a_reply_is_kept_as_it_is(reply: Reply) -> None:
    assert await ask(lambda turn: reply) is reply


def yields_a_number(turn: Turn) -> Iterator[object]:
    yield 5


async def yields_bytes(turn: Turn) -> AsyncIterator[object]:
    yield b"x"


@pytest.mark.parametrize(
    "function",
    [
        lambda turn: 5,
        lambda turn: b"text",
        lambda turn: ["text"],
        lambda turn: Reply([5]),  # type: ignore[list-item]
        lambda turn: Reply(5),  # type: ignore[arg-type]
        lambda turn: Reply(b"text"),  # type: ignore[arg-type]
        lambda turn: Reply({"text": "hi"}),  # type: ignore[arg-type]
        lambda turn: Reply(word for word in ("hi", "there")),  # type: ignore[arg-type]
        lambda turn: Reply("hi", usage={"input_tokens": 3}),  # type: ignore[arg-type]
        yields_a_number,
        yields_bytes,
    ],
)
async def test_anything_else_is_refused_with_what_to_do(function: Callable[[Turn], Any]) -> None:
    with pytest.raises(AgentRefused, match=r"a value of type (int|bytes|list|dict|generator)"):
        await ask(function)


@pytest.mark.parametrize("text", ["a\0b", "half a pair \ud800"])
async def test_text_that_cannot_be_stored_is_a_failure_here_and_not_in_the_commit(text: str) -> None:
    with pytest.raises(AgentFailed, match="plain Unicode"):
        await ask(lambda turn: text)


async def test_what_the_function_raises_comes_through() -> None:
    def fails(turn: Turn) -> str:
        raise Throttled("later", retry_after=5)

    with pytest.raises(Throttled):
        await ask(fails)


async def test_a_stray_stop_iteration_does_not_hang_the_turn() -> None:
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await ask(lambda turn: next(iter(())))


async def test_a_plain_function_does_not_block_the_loop() -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def waits(turn: Turn) -> str:
        loop.call_soon_threadsafe(started.set)
        return "waited" if go_on.wait(timeout=10) else "blocked"

    asked = asyncio.create_task(ask(waits))
    await started.wait()
    go_on.set()
    assert await asked == Reply("waited")


async def test_a_cancelled_generator_is_closed() -> None:
    waiting, closed = asyncio.Event(), asyncio.Event()

    async def waits(turn: Turn) -> AsyncIterator[str]:
        try:
            yield "one"
            waiting.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    asked = asyncio.create_task(ask(waits))
    await waiting.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert closed.is_set()


async def test_a_generator_that_yields_something_else_is_closed() -> None:
    closed = False

    async def goes_wrong(turn: Turn) -> AsyncIterator[object]:
        nonlocal closed
        try:
            yield 5
        finally:
            closed = True

    with pytest.raises(AgentRefused):
        await ask(goes_wrong)
    assert closed


async def test_the_echo_says_what_was_said() -> None:
    echo = Echo()
    assert await echo.respond(a_turn("hi", "there")) == Reply("You said: hi\nthere")
    await echo.close()
