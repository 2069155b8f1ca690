"""D1–D8: two machines, each with a folder, a home and settings of its own, that share nothing but the store."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.e2e.site import ANY_PORT, Site, eventually

from turnlane.testing.outside import Call, Outside, ask
from turnlane.testing.processes import COMMAND, Turnlane, surroundings

LEASE_SECONDS = 3
CONVERSATIONS = 6
WITHIN_SECONDS = 2.0
"""A second, and one for a machine that is busy with other things."""
MESSAGES = 5

SCHEDULE = """
[[schedules]]
name = "pulse"
conversation = "site/clock"
prompt = "beat"
every = "1s"
"""


@pytest.fixture(params=["postgres", "nats"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


class Machine:
    """A folder that is also its home; the store's URL is in its environment alone (D6)."""

    def __init__(self, folder: Path, store: str, outside: Outside, stack: AsyncExitStack) -> None:
        folder.mkdir()
        self.site = Site(folder, outside, stack)
        self.environment = surroundings() | {"HOME": str(folder), "TURNLANE_BACKEND": store}
        self._stack = stack

    async def start(self) -> Turnlane:
        arguments = ("run", *ANY_PORT, "--log-format", "json")
        process = Turnlane(*arguments, folder=self.site.folder, environment=self.environment)
        await self._stack.enter_async_context(process)
        await process.ready()
        return process

    async def command(self, *arguments: str) -> str:
        run = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, cwd=self.site.folder, env=self.environment, stdout=-1, stderr=-1
        )
        said, error = await run.communicate()
        assert run.returncode == os.EX_OK, error.decode()
        return said.decode()


Machines = Callable[..., Awaitable[list[Machine]]]


@pytest.fixture
async def machines(tmp_path: Path, store: str, outside: Outside) -> AsyncIterator[Machines]:
    async with AsyncExitStack() as stack:

        async def made(more: str = "") -> list[Machine]:
            both = [Machine(tmp_path / name, store, outside, stack) for name in ("one", "other")]
            for machine in both:
                machine.site.configure(lease=LEASE_SECONDS)
                file = machine.site.folder / "turnlane.toml"
                file.write_text(file.read_text() + more)
            return both

        yield made


async def test_both_take_in_and_both_work_and_every_message_is_answered_once_and_in_order(
    machines: Machines, outside: Outside
) -> None:
    """D1, D2, D3, D6"""
    running = [await machine.start() for machine in await machines()]
    site = Site(Path(), outside, AsyncExitStack())

    async def talk(user: int) -> None:
        for number in range(MESSAGES):
            await site.post(running[(user + number) % 2], f"{user}-{number}", conversation=f"user-{user}")

    await asyncio.gather(*(talk(user) for user in range(CONVERSATIONS)))
    await outside.until(lambda: sum(len(reply.in_reply_to) for reply in outside.replies) == CONVERSATIONS * MESSAGES)
    assert len(outside.requests) == len(outside.replies)
    for user in range(CONVERSATIONS):
        mine = [reply for reply in outside.replies if reply.conversation == f"user-{user}"]
        answered = [each for reply in mine for each in reply.in_reply_to]
        assert answered == [f"{user}-{number}" for number in range(MESSAGES)]
        runs = sorted((call for call in outside.calls if call.conversation == f"site/user-{user}"), key=_began)
        assert not any(before.overlaps(after) for before, after in itertools.pairwise(runs))


def _began(call: Call) -> float:
    return call.began


async def test_when_a_machine_dies_in_the_middle_the_other_answers_in_its_place(
    machines: Machines, outside: Outside
) -> None:
    """D1, D4, D7"""
    first_asked = asyncio.Event()

    async def think(call: Call) -> str:
        if call.turn["epoch"] == 1:
            first_asked.set()
            await asyncio.Event().wait()
        return f"epoch {call.turn['epoch']}"

    outside.respond = think
    one, other = await machines()
    dying = await one.start()
    await one.site.post(dying, "m1")
    await asyncio.wait_for(first_asked.wait(), 30)
    living = await other.start()
    dying.kill()
    await other.site.post(living, "m2")
    await outside.until(lambda: len(outside.replies) == 2)
    assert [reply.in_reply_to for reply in outside.replies] == [("m1",), ("m2",)]


async def test_a_schedule_is_said_once_whoever_dies(machines: Machines, outside: Outside) -> None:
    """D5: each of them knows of it, one at a time says it."""
    one, other = await machines(SCHEDULE)
    first, second = await one.start(), await other.start()
    await outside.until(lambda: len(outside.replies) >= 2)
    first.kill()
    before = len(outside.replies)
    await outside.until(lambda: len(outside.replies) >= before + 3)
    said = [each for reply in outside.replies for each in reply.in_reply_to]
    assert len(said) == len(set(said))
    assert second.is_running


async def test_a_setting_that_one_changes_holds_on_the_other_within_a_second(
    machines: Machines, outside: Outside
) -> None:
    """D8"""
    one, other = await machines()
    await one.start()
    there = await other.start()
    await one.command("settings", "set", "lanes.debounce", "7s")

    async def value() -> str:
        answer = await ask(f"{await there.ready()}api/settings")
        [found] = [each for each in answer.json["settings"] if each["name"] == "lanes.debounce"]
        return str(found["value"])

    async def holds() -> bool:
        return await value() == "7s"

    await eventually(holds, WITHIN_SECONDS)
    assert "7s" in await one.command("settings")
