"""Two real processes on one store; one is killed or stopped past its lease at every step of a turn and a delivery.

    python -m turnlane.testing.crash_matrix --how kill --backend postgresql://…

Exits with 1 if anything was lost, reordered or committed twice, or sent twice where that could have been avoided.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from turnlane.testing.crash_steps import CRASH_AT, REACHED, STEPS
from turnlane.testing.evidence import Violation, answer_of, gather
from turnlane.testing.outside import NO_ANSWER, Call, Outside, ask
from turnlane.testing.processes import Turnlane, surroundings
from turnlane.testing.torture import LEASE_SECONDS, SECRET, SETTINGS

How = Literal["kill", "stop"]

CONVERSATIONS = ("site/alice", "site/bob", "desk/carol", "desk/dave")
MESSAGES_A_ROUND = 2
THINK_SECONDS = 0.06
POST_SECONDS_MAX = 1.0
REACH_SECONDS_MAX = 60.0
PLAN = "plan.txt"
CHILD = (sys.executable, "-m", "turnlane.testing.crash_steps")
RUN = ("run", "--listen", "127.0.0.1:0", "--log-format", "json")

MAY_REPEAT = {
    "kill": {"out: after send, before settle"},
    "stop": {"out: in the send", "out: after send, before settle"},
}
"""The platform has it, or gets it from who stands still, and nobody can know: sent again, under the same key."""


@dataclass(frozen=True)
class Row:
    step: str
    messages: int
    repeats: int
    """Sendings under a key that the receiver knew already."""


@dataclass
class Matrix:
    how: How
    rows: Sequence[Row]
    violations: Sequence[Violation]

    @property
    def avoidable_repeats(self) -> list[Row]:
        return [row for row in self.rows if row.repeats and row.step not in MAY_REPEAT[self.how]]

    @property
    def holds(self) -> bool:
        return not self.violations and not self.avoidable_repeats

    def __str__(self) -> str:
        table = [f"  {row.step:<36}{row.messages:>6} messages {row.repeats:>4} repeats" for row in self.rows]
        broken = [f"  {promise}: {what}" for promise, what in self.violations]
        verdict = "every promise was kept" if self.holds else "a promise was BROKEN"
        return "\n".join([f"{self.how} at every step", *table, *broken, verdict])


async def crash_matrix(how: How, folder: Path, *, backend: str | None = None) -> Matrix:
    """One round for each step, in this folder, on an empty store."""
    return await _Rounds(how, folder, backend or f"sqlite:///{folder}/turnlane.db").run()


@dataclass
class _Rounds:
    how: How
    folder: Path
    store: str
    sent: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in CONVERSATIONS})
    chance: Random = field(default_factory=lambda: Random(1))

    async def run(self) -> Matrix:
        async with Outside(respond=self._think) as self.outside, AsyncExitStack() as stack:
            settings = SETTINGS.format(backend=self.store, secret=SECRET, outside=self.outside.url)
            (self.folder / "turnlane.toml").write_text(settings)
            fated = Turnlane(*RUN, folder=self.folder, command=CHILD, environment=surroundings() | {CRASH_AT: PLAN})
            self.fleet = [await stack.enter_async_context(each) for each in (fated, Turnlane(*RUN, folder=self.folder))]
            for process in self.fleet:
                await process.ready()
            rows = [await self._round(step, fated) for step in STEPS]
            for process in self.fleet:
                process.terminate()
            ends = [await process.ended() for process in self.fleet]
        return await asyncio.to_thread(self._judge, rows, ends)

    async def _think(self, call: Call) -> str:
        # waits: so that a process can be hit while its agent thinks
        await asyncio.sleep(THINK_SECONDS)
        return answer_of(call.conversation, call.turn["number"], call.turn["epoch"])

    async def _round(self, step: str, fated: Turnlane) -> Row:
        """People write until the step is reached, and a little more; then all is answered."""
        before, repeats = self._messages, self._repeats
        self._plan(step)
        reached = asyncio.create_task(fated.said(REACHED, step=step, within=REACH_SECONDS_MAX))
        async with asyncio.TaskGroup() as group:
            for key in CONVERSATIONS:
                group.create_task(self._write(key, reached))
            await reached
            await self._recover(fated)
        await self.outside.until(self._all_is_answered)
        return Row(step, self._messages - before, self._repeats - repeats)

    def _plan(self, step: str) -> None:
        (self.folder / PLAN).write_text(f"{step}\n{self.how}\n")

    async def _recover(self, fated: Turnlane) -> None:
        if self.how == "kill":
            await fated.ended()
            await fated.start()
            await fated.ready()
        else:
            # waits: longer than the lease; that is the fault
            await asyncio.sleep(LEASE_SECONDS * 1.7)
            fated.thaw()

    async def _write(self, key: str, reached: asyncio.Task[object]) -> None:
        channel, name = key.split("/")
        written = 0
        while written < MESSAGES_A_ROUND or not reached.done():
            said = f"{name}-{len(self.sent[key]) + 1}"
            await self._post(channel, {"id": said, "conversation": name, "text": said})
            self.sent[key].append(said)
            written += 1
            # waits: as people do; the quiet window is longer
            await asyncio.sleep(self.chance.uniform(0.05, 0.4))

    async def _post(self, channel: str, message: object) -> None:
        """Until some process says that it has it."""
        while True:
            url = self.chance.choice(self.fleet).url
            with suppress(*NO_ANSWER):  # nobody knows what became of it, so it is sent again
                if url is not None:
                    posted = await ask(f"{url}channels/{channel}", message, secret=SECRET, within=POST_SECONDS_MAX)
                    if posted.status == 202:
                        return
            await asyncio.sleep(0.02)

    @property
    def _messages(self) -> int:
        return sum(map(len, self.sent.values()))

    @property
    def _repeats(self) -> int:
        return sum(times - 1 for times in Counter(reply.key for reply in self.outside.requests).values())

    def _all_is_answered(self) -> bool:
        return sum(len(reply.in_reply_to) for reply in self.outside.replies) >= self._messages

    def _judge(self, rows: Sequence[Row], ends: Sequence[int]) -> Matrix:
        world = self.outside
        conversations = gather(
            self.sent, store=self.store, calls=world.calls, replies=world.replies, requests=world.requests
        )
        broken = [violation for each in conversations for violation in each.violations()]
        broken += [("ended by itself", f"it drained with {code}") for code in ends if code != 0]
        return Matrix(self.how, rows, broken)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m turnlane.testing.crash_matrix", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--how", choices=("kill", "stop"), default="kill", help="SIGKILL, or SIGSTOP past the lease")
    parser.add_argument("--backend", help="the URL of an empty store; else a throwaway file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="turnlane-crash-") as folder:
        matrix = asyncio.run(crash_matrix(given.how, Path(folder), backend=given.backend))
    sys.stdout.write(f"{matrix}\n")
    return 0 if matrix.holds else 1


if __name__ == "__main__":
    sys.exit(main())
