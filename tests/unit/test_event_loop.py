"""Waiting for an event with an end: whoever is cancelled ends, whatever else happens in that moment."""

from __future__ import annotations

import asyncio

import pytest

from turnlane.event_loop import happens, new_event_loop, run

A_LONG_TIME = 1000.0


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
def test_a_listener_that_is_cancelled_as_it_is_woken_ends(loop_factory: type, steps: int) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_cancelled_as_it_is_woken(steps))


async def _cancelled_as_it_is_woken(steps: int) -> None:
    event = asyncio.Event()

    async def listen() -> None:
        while True:
            event.clear()
            await happens(event, within=A_LONG_TIME)

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    listener.cancel()
    ended, _ = await asyncio.wait([listener], timeout=5)
    if not ended:
        listener.cancel()  # so that a failure is a failed test, not one that hangs
    assert ended == {listener}


def test_what_happened_before_is_known_at_once() -> None:
    async def main() -> bool:
        event = asyncio.Event()
        event.set()
        return await happens(event, within=A_LONG_TIME)

    assert run(main())


def test_what_does_not_happen_is_given_up_on() -> None:
    async def main() -> bool:
        return await happens(asyncio.Event(), within=0)

    assert not run(main())
