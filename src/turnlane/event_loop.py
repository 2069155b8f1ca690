"""The loop that everything runs on: uvloop's where there is one, which takes a tenth less time, else Python's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:  # on Windows and on other Pythons there is none
    from asyncio import new_event_loop


async def happens(event: asyncio.Event, *, within: float) -> bool:
    """Whether it is set by then. Whoever is cancelled while waiting ends, even in the moment in which it is woken.

    `asyncio.wait_for` of Python 3.11 goes on as if nothing had been said then, and a loop around it never ends.
    """
    try:
        async with asyncio.timeout(within):
            return await event.wait()
    except TimeoutError:
        return event.is_set()  # both may come in one round of the loop


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
