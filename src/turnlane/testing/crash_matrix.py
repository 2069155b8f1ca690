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

from turnlane.testing.crash_diary import avoidable_repeats, diaries_in
from turnlane.testing.crash_steps import CRASH_AT, REACHED, STEPS
from turnlane.testing.evidence import Violation, answer_of, gather
from turnlane.testing.outside import NO_ANSWER, Call, Outside, ask
from turnlane.testing.processes import Turnlane, surroundings
from turnlane.testing.torture import SECRET, SETTINGS

How = Literal["kill", "stop"]

CONVERSATIONS = ("site/alice", "site/bob", "desk/carol", "desk/dave")
MESSAGES_A_ROUND = 2
THINK_SECONDS = 0.06
POST_SECONDS_MAX = 1.0
REACH_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 2.5
TRIES_MAX = 5
PLAN, NO_PLAN = "plan.txt", "no-plan.txt"
BURIED = "worker.lost"
CHILD = (sys.executable, "-m", "turnlane.testing.crash_steps")
RUN = ("run", "--listen", "127.0.0.1:0", "--log-format", "json")


@dataclass(frozen=True)
class Row:
    step: str
    crashes: int
    messages: int
    repeats: int
    """Sendings under a key that the receiver knew already."""


@dataclass
class Matrix:
    how: How
    rows: Sequence[Row]
    violations: Sequence[Violation]
    avoidable_repeats: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.violations and not self.avoidable_repeats

    def __str__(self) -> str:
        table = [
            f"  {row.step:<36}{row.crashes:>3} crashes {row.messages:>5} messages {row.repeats:>3} repeats"
            for row in self.rows
        ]
        broken = [f"  {promise}: {what}" for promise, what in self.violations]
        repeats = [f"  sent twice: {what}" for what in self.avoidable_repeats]
        verdict = "every promise was kept" if self.holds else "a promise was BROKEN"
        return "\n".join([f"{self.how} at {len(self.rows)} steps", *table, *broken, *repeats, verdict])


async def crash_matrix(how: How, folder: Path, *, backend: str | None = None, steps: Sequence[str] = STEPS) -> Matrix:
    """One round for each step, in this folder, on an empty store."""
    return await _Rounds(how, folder, backend or f"sqlite:///{folder}/turnlane.db", steps).run()


@dataclass
class _Rounds:
    how: How
    folder: Path
    store: str
    steps: Sequence[str]
    sent: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in CONVERSATIONS})
    chance: Random = field(default_factory=lambda: Random(1))

    async def run(self) -> Matrix:
        async with Outside(respond=self._think) as self.outside, AsyncExitStack() as stack:
            settings = SETTINGS.format(backend=self.store, secret=SECRET, outside=self.outside.url)
            (self.folder / "turnlane.toml").write_text(settings)
            self.fleet = [await stack.enter_async_context(self._process(plan)) for plan in (PLAN, NO_PLAN)]
            for process in self.fleet:
                await process.ready()
            rows = [await self._round(step) for step in self.steps]
            for process in self.fleet:
                process.terminate()
            ends = [await process.ended() for process in self.fleet]
        return await asyncio.to_thread(self._judge, rows, ends)

    def _process(self, plan: str) -> Turnlane:
        return Turnlane(*RUN, folder=self.folder, command=CHILD, environment=surroundings() | {CRASH_AT: plan})

    async def _think(self, call: Call) -> str:
        # waits: so that a process can be hit while its agent thinks
        await asyncio.sleep(THINK_SECONDS)
        return answer_of(call.conversation, call.turn["number"], call.turn["epoch"])

    async def _round(self, step: str) -> Row:
        """Crashes until one has let the other process take over; nearly always that is the first."""
        before, repeats = self._messages, self._repeats
        for crashes in range(1, TRIES_MAX + 1):
            if await self._crash(step):
                return Row(step, crashes, self._messages - before, self._repeats - repeats)
        raise AssertionError(f"stopped {TRIES_MAX} times at {step!r}, and it held the store each time")

    async def _crash(self, step: str) -> bool:
        """People write until the step is reached, and a little more; then all is answered."""
        self._plan(step)
        reached = asyncio.create_task(self.fleet[0].said(REACHED, step=step, within=REACH_SECONDS_MAX))
        async with asyncio.TaskGroup() as group:
            for key in CONVERSATIONS:
                group.create_task(self._write(key, reached))
            buried = self._buried
            await reached
            taken_over = await (self._start_again() if self.how == "kill" else self._go_on(buried))
        await self.outside.until(self._all_is_answered)
        await self._all_is_settled()
        return taken_over

    @property
    def _buried(self) -> int:
        return sum(line.get("event") == BURIED for line in self.fleet[1].lines)

    async def _start_again(self) -> bool:
        fated = self.fleet[0]
        await fated.ended()
        await fated.start()
        await fated.ready()
        return True

    async def _go_on(self, buried: int) -> bool:
        """Once the other process has declared this one dead. It cannot as long as this one stands in the middle of a
        transaction: the file of SQLite is locked then (and everybody told so), or rows of Postgres are."""
        fated, other = self.fleet
        try:
            await other.said(BURIED, times=buried + 1, within=STOP_SECONDS_MAX)
        except AssertionError:
            return False
        finally:
            fated.thaw()
        return True

    def _plan(self, step: str) -> None:
        (self.folder / PLAN).write_text(f"{step}\n{self.how}\n")

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
        """Until some process says that it has it, which must not take for ever."""
        async with asyncio.timeout(REACH_SECONDS_MAX):
            while not await self._is_taken(channel, message):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)

    async def _is_taken(self, channel: str, message: object) -> bool:
        url = self.chance.choice(self.fleet).url
        if url is None:
            return False
        with suppress(*NO_ANSWER):  # nobody knows what became of it, so it is sent again
            posted = await ask(f"{url}channels/{channel}", message, secret=SECRET, within=POST_SECONDS_MAX)
            return posted.status == 202
        return False

    @property
    def _messages(self) -> int:
        return sum(map(len, self.sent.values()))

    @property
    def _repeats(self) -> int:
        return sum(times - 1 for times in Counter(reply.key for reply in self.outside.requests).values())

    def _all_is_answered(self) -> bool:
        return sum(len(reply.in_reply_to) for reply in self.outside.replies) >= self._messages

    async def _all_is_settled(self) -> None:
        """An answer that arrived may still be sent again by whoever took over: that belongs to this round."""
        async with asyncio.timeout(REACH_SECONDS_MAX):
            while await self._waits_to_leave():  # noqa: ASYNC110 - no event tells, whoever settles it
                await asyncio.sleep(0.02)

    async def _waits_to_leave(self) -> bool:
        listed = await ask(f"{self.fleet[1].url}api/outbox")
        return bool(listed.json["deliveries"])

    def _judge(self, rows: Sequence[Row], ends: Sequence[int]) -> Matrix:
        world = self.outside
        conversations = gather(
            self.sent, store=self.store, calls=world.calls, replies=world.replies, requests=world.requests
        )
        broken = [violation for each in conversations for violation in each.violations()]
        broken += [("ended by itself", f"it drained with {code}") for code in ends if code != 0]
        repeats = avoidable_repeats(diaries_in(self.folder), [request.key for request in world.requests])
        return Matrix(self.how, rows, broken, repeats)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m turnlane.testing.crash_matrix", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--how", choices=("kill", "stop"), default="kill", help="SIGKILL, or SIGSTOP past the lease")
    parser.add_argument("--step", action="append", choices=STEPS, help="only this one; may be repeated")
    parser.add_argument("--backend", help="the URL of an empty store; else a throwaway file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="turnlane-crash-") as folder:
        matrix = asyncio.run(crash_matrix(given.how, Path(folder), backend=given.backend, steps=given.step or STEPS))
    sys.stdout.write(f"{matrix}\n")
    return 0 if matrix.holds else 1


if __name__ == "__main__":
    sys.exit(main())
