"""One Turnlane site as the tests see it: a folder, its settings, the processes on it, and the world around."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from turnlane.testing.outside import Answer, Outside, ask
from turnlane.testing.processes import SECONDS_MAX, Turnlane

SECRET = "a-shared-secret"
ANY_PORT = ("--listen", "127.0.0.1:0")

SETTINGS = """
{top}

[lanes]
debounce = "{debounce}"
lease = "{lease}s"
{lanes}

[channels.site]
kind = "webhook"
secret = "{secret}"
reply_url = "{outside}/replies"
{channel}

[agents.only]
{agent}
"""


@dataclass
class Site:
    folder: Path
    outside: Outside
    stack: AsyncExitStack
    lease: int = 1

    def configure(
        self,
        *,
        top: str = "",
        lanes: str = "",
        channel: str = "",
        debounce: str = "0s",
        lease: int = 1,
        command: Sequence[str] | None = None,
        agent: str | None = None,
    ) -> None:
        """The agent is the one outside, unless there is a command or a table of its own.

        Under a lease of one second a worker on a loaded machine may be late for its own renewal, and lose its lanes.
        Where that must not happen, let the lease be longer.
        """
        self.lease = lease
        if agent is None:
            agent = f'kind = "http"\nurl = "{self.outside.url}/turns"'
        if command is not None:
            agent = f'kind = "command"\ncommand = {json.dumps(list(command))}'
        text = SETTINGS.format(
            top=top,
            lanes=lanes,
            channel=channel,
            debounce=debounce,
            lease=lease,
            secret=SECRET,
            outside=self.outside.url,
            agent=agent,
        )
        (self.folder / "turnlane.toml").write_text(text)

    async def start(self, verb: str = "run", *arguments: str, wrapper: Sequence[str] = ()) -> Turnlane:
        """A process, as soon as it answers requests."""
        process = await self.begin(verb, *ANY_PORT, *arguments, wrapper=wrapper)
        await process.ready()
        return process

    async def start_thinking(self) -> Turnlane:
        """A process whose agent has been asked about m1."""
        process = await self.start()
        await self.post(process, "m1")
        await self.outside.until(lambda: len(self.outside.calls) == 1)
        return process

    async def start_sending(self) -> Turnlane:
        """A process that sends the answer to m1."""
        process = await self.start()
        await self.post(process, "m1")
        await self.outside.until(lambda: len(self.outside.requests) == 1)
        return process

    async def begin(self, *arguments: str, wrapper: Sequence[str] = ()) -> Turnlane:
        process = Turnlane(*arguments, "--log-format", "json", folder=self.folder, wrapper=wrapper)
        return await self.stack.enter_async_context(process)

    # What people do

    async def post(self, process: Turnlane, *ids: str, conversation: str = "alice") -> None:
        """Say these, in one request. Each is its own text."""
        answer = await self.try_to_post(process, *ids, conversation=conversation)
        assert (answer.status, answer.json["accepted"]) == (202, len(ids)), answer

    async def try_to_post(
        self, process: Turnlane, *ids: str, conversation: str = "alice", secret: str | None = SECRET
    ) -> Answer:
        said = [{"id": each, "conversation": conversation, "text": each} for each in ids]
        return await ask(f"{await process.ready()}channels/site", said, secret=secret)

    async def api(self, process: Turnlane, path: str) -> Any:
        answer = await ask(f"{await process.ready()}api/{path}")
        assert answer.status == 200, answer
        return answer.json

    # What the file says

    @property
    def file(self) -> Path:
        return self.folder / "turnlane.db"

    def rows(self, query: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self.file, timeout=SECONDS_MAX)) as connection, connection:
            return connection.execute(query, values).fetchall()

    def turns(self) -> list[tuple[str, int, str, int]]:
        """Conversation, number, outcome and epoch of every turn that is over."""
        return self.rows(
            "SELECT l.key, t.number, t.outcome, t.epoch FROM turn t JOIN lane l ON l.id = t.lane ORDER BY 1, 2"
        )

    async def comes_true(self, condition: Callable[[], bool]) -> None:
        """Looked at again and again, as no event tells what another process writes."""

        async def holds() -> bool:
            return condition()

        await eventually(holds)

    async def all_settled(self) -> None:
        waiting = "SELECT 1 FROM lane WHERE done_seq < next_seq OR owner IS NOT NULL"
        await self.comes_true(lambda: not self.rows(waiting))

    async def lease_was_renewed(self, process: Turnlane, conversation: str, terms: int = 2) -> None:
        """So often that the lock has been held for more than these terms."""
        long = self.lease * (terms + 1)

        async def outlived() -> bool:
            locks = (await self.api(process, "locks"))["locks"]
            held = [lock for lock in locks if lock["conversation"] == conversation]
            return any(lock["worker_alive_until"] > later(lock["since"], long) for lock in held)

        await eventually(outlived)


async def eventually(condition: Callable[[], Awaitable[bool]], within: float = SECONDS_MAX) -> None:
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - the other process has no event of ours to set
            await asyncio.sleep(0.02)


def later(moment: str, seconds: int) -> str:
    then = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_gone(pid: int) -> bool:
    """A zombie is gone, too: it runs nothing, and only waits to be counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
