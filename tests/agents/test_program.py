"""A program that is spoken to, on the loop that is used in earnest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from turnlane import event_loop
from turnlane.agents.program import Program, start


class Heard(Program):
    def __init__(self) -> None:
        super().__init__()
        self.is_over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_over.set()


@pytest.mark.parametrize("run", [event_loop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_what_is_said_to_a_program_that_is_gone_is_lost_and_breaks_nothing(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def speak() -> None:
        program = await start(Heard, ["true"], env=dict(os.environ), cwd=None, term_grace=0)
        await program.is_over.wait()
        program.write(b"hello\n")
        program.close_input()
        await program.end(0)

    run(speak())
