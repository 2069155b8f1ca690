"""The agent that is a Python function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from typing import Any

from turnlane.agents.answer import checked, kind_of
from turnlane.errors import AgentRefused
from turnlane.model.turn import Reply, Turn

THREADS_MAX = 64

ReplyFunction = Callable[[Turn], Any]
"""Returns text, a Reply or None, or yields pieces of text. Async or not."""


class Function:
    """Calls the function for each turn.

    An async function is cancelled where it waits. A plain one runs in a thread, and a thread cannot be stopped: after a
    lost lease or a deadline it runs on to its end, and what it returns is dropped.
    """

    def __init__(self, function: ReplyFunction) -> None:
        self._function = function
        self._is_async = _is_async(function)
        self._threads: ThreadPoolExecutor | None = None

    async def respond(self, turn: Turn) -> Reply:
        said = self._function(turn) if self._is_async else await self._in_thread(turn)
        if isinstance(said, Awaitable):
            said = await said
        if isinstance(said, AsyncGenerator):
            said = await _joined(said, turn)
        return checked(_reply(said))

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, turn: Turn) -> object:
        # Threads of our own: slow functions must not use up those that the event loop shares with everybody.
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="turnlane-reply")
        call = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, self._call, turn)

    def _call(self, turn: Turn) -> object:
        try:
            said = self._function(turn)
            return _joined_now(said, turn) if isinstance(said, Generator) else said
        except StopIteration as error:
            # No future can carry this one; the turn would wait for it until its deadline.
            raise RuntimeError("the reply function raised StopIteration") from error


def _is_async(function: ReplyFunction) -> bool:
    # An object may be called through an async method.
    called = (function, type(function).__call__)
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)


# Pieces are shown as they come, and said only when they are whole: a turn that fails says nothing. A function that
# yields nothing says nothing.


async def _joined(pieces: AsyncGenerator[object], turn: Turn) -> str | None:
    said: str | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            said = (said or "") + _piece(piece)
            turn.show(said)
    return said


def _joined_now(pieces: Generator[object], turn: Turn) -> str | None:
    said: str | None = None
    for piece in pieces:
        said = (said or "") + _piece(piece)
        turn.show(said)
    return said


def _piece(piece: object) -> str:
    if not isinstance(piece, str):
        raise AgentRefused(f"the reply function yielded {kind_of(piece)}; yield pieces of text")
    return piece


def _reply(said: object) -> Reply:
    if isinstance(said, Reply):
        return said
    if said is None or isinstance(said, str):
        return Reply(said)
    raise AgentRefused(f"the reply function returned {kind_of(said)}; return text, a Reply or None")
