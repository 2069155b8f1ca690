"""Real processes of a bot on one throwaway file, killed, frozen past their leases and stopped while people write."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

from turnlane.app import Bot
from turnlane.errors import BackendUnavailable, InvalidInput
from turnlane.event_loop import happens
from turnlane.model.lane import Kind
from turnlane.model.view import LaneView
from turnlane.testing.chaos.judge import Fault, judge
from turnlane.testing.chaos.people import People, Plan
from turnlane.testing.chaos.rehearsal import load_bot, rehearsed, seen_in
from turnlane.testing.chaos.report import Finding, Report
from turnlane.testing.chaos.witness import Log
from turnlane.testing.processes import Turnlane

CHILD = (sys.executable, "-m", "turnlane.testing.chaos.child")
LAST_WORDS = 5
LOOK_SECONDS = 0.2
START_SECONDS_MAX = 120.0
END_SECONDS_MAX = 15.0
"""How long a process may take to end once it is told to do so at once. Agents may take a few seconds to tidy up."""


async def torture(name: str, plan: Plan, *, replay: str = "the same plan") -> Report:
    """Live through the plan with real processes of the bot that `name` names, wait for all answers, and judge.

    Its own store is not opened and nothing is sent: its channels are replaced by a witness. Its agents run for real.
    """
    load_bot(name)
    with tempfile.TemporaryDirectory(prefix="turnlane-chaos-") as folder:
        return await _Fleet(name, plan, Path(folder)).run(replay)


class _Fleet:
    def __init__(self, name: str, plan: Plan, folder: Path) -> None:
        self.name = name
        self.plan = plan
        self.folder = folder
        self.happened: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.broken: list[Finding] = []
        self.calm = asyncio.Event()
        self.over = asyncio.Event()

    async def run(self, replay: str) -> Report:
        async with AsyncExitStack() as stack:
            log = Log(seen_in(self.folder), by=0)
            stack.callback(log.close)
            receiver = rehearsed(load_bot(self.name), self.folder, log, lease=self.plan.lease, chance=Random(0))
            await stack.enter_async_context(receiver.running(serve=False, work=False))
            fleet = [self._process(place) for place in range(1, self.plan.processes + 1)]
            for process in fleet:
                await stack.enter_async_context(process)
            for process in fleet:
                await _joined(process)
                if not process.is_running:
                    raise InvalidInput(f"a process of the bot ended before it began to work:\n{process.last_words}")
            people = People(receiver, self.plan)
            await self._live(people, fleet, receiver)
            for place, process in enumerate(fleet, start=1):
                await self._end(process, place)
        return self._report(people, replay)

    def _process(self, place: int) -> Turnlane:
        arguments = (self.name, str(self.folder), str(place), str(self.plan.seed), str(self.plan.lease))
        # Whatever can be imported here can be imported there.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(each).resolve()) for each in sys.path)}
        return Turnlane(*arguments, folder=Path.cwd(), command=CHILD, environment=environment)

    async def _live(self, people: People, fleet: list[Turnlane], receiver: Bot) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._operate(receiver))
            for place, process in enumerate(fleet, start=1):
                group.create_task(self._trouble(process, place))
            await people.write()
            self.calm.set()
        async with asyncio.TaskGroup() as group:
            for place, process in enumerate(fleet, start=1):
                group.create_task(self._keep_up(process, place))
            await people.are_answered()
            self.over.set()

    async def _keep_up(self, process: Turnlane, place: int) -> None:
        """As a supervisor does. With nobody left to work, all that waits would seem to be lost by the engine."""
        while not await happens(self.over, within=LOOK_SECONDS):
            if not process.is_running:
                await self._start_anew(process, place)

    # The faults

    async def _trouble(self, process: Turnlane, place: int) -> None:
        """Nothing is done to a process before it has joined: a bot may take its time to start."""
        chance = Random(f"{self.plan.seed}/process/{place}")
        while not self.calm.is_set():
            await _joined(process)
            await self._pause(chance.uniform(0.5, 4))
            if self.calm.is_set():
                return
            if not process.is_running:
                await self._start_anew(process, place)
            else:
                self.faults.append((place, time.monotonic()))
                await chance.choice((self._kill, self._freeze, self._stop))(process, place, chance)

    async def _start_anew(self, process: Turnlane, place: int) -> None:
        self.faults.append((place, time.monotonic()))
        self._note_end(process, place)
        await process.start()

    async def _kill(self, process: Turnlane, place: int, chance: Random) -> None:
        self.happened["processes killed (SIGKILL)"] += 1
        process.kill()
        await process.ended()
        await process.start()

    async def _stop(self, process: Turnlane, place: int, chance: Random) -> None:
        """In the middle of its runs: whoever is frozen or killed is never told anything."""
        self.happened["processes stopped at once (SIGTERM, twice)"] += 1
        await self._end(process, place)
        await process.start()

    async def _freeze(self, process: Turnlane, place: int, chance: Random) -> None:
        self.happened["processes frozen past the lease (SIGSTOP)"] += 1
        process.freeze()
        # waits: longer than the lease, even if the torture ends meanwhile; that is the fault
        await asyncio.sleep(self.plan.lease * chance.uniform(1.2, 3))
        process.thaw()

    async def _operate(self, receiver: Bot) -> None:
        """Somebody stops a conversation in which a turn runs: that reaches the run through the store."""
        chance = Random(f"{self.plan.seed}/operator")
        while not self.calm.is_set():
            await self._pause(chance.uniform(0.5, 2))
            with suppress(BackendUnavailable):  # nothing was stopped, then; the next time
                running = await receiver.backend.lanes(kind=Kind.TURN, state="running")
                if running and not self.calm.is_set() and await receiver.backend.stop(_any(running, chance)):
                    self.happened["conversations stopped by an operator"] += 1

    async def _pause(self, seconds: float) -> None:
        await happens(self.calm, within=seconds)

    async def _end(self, process: Turnlane, place: int) -> None:
        """Told twice, so that its runs are stopped and not waited for."""
        await _joined(process)
        if process.is_running:
            process.terminate()
            with suppress(AssertionError):  # it has ended meanwhile
                await process.said("server.draining", within=END_SECONDS_MAX)
        if process.is_running:
            process.terminate()
        try:
            code = await process.ended(within=END_SECONDS_MAX)
        except AssertionError:
            words = f"process {place} was told to stop at once, and still ran after {END_SECONDS_MAX:g} s"
            self.broken.append(Finding("stops when it is told to", f"{words}; let CancelledError pass"))
            process.kill()
            await process.ended()
            return
        if code != 0:
            self._note_end(process, place)

    def _note_end(self, process: Turnlane, place: int) -> None:
        words = "\n  ".join([f"process {place} ended, and nobody had told it to:", *process.printed[-LAST_WORDS:]])
        self.broken.append(Finding("does not end its process", words))

    def _report(self, people: People, replay: str) -> Report:
        plan = self.plan
        title = f"{plan.processes} processes of {self.name}, {plan.seconds:g} s of faults, seed {plan.seed}"
        return judge(
            people,
            folder=self.folder,
            title=title,
            replay=replay,
            happened=self.happened,
            faults=self.faults,
            found=self.broken,
        )


def _any(lanes: Sequence[LaneView], chance: Random) -> str:
    return chance.choice([lane.conversation for lane in lanes])


async def _joined(process: Turnlane) -> None:
    """Wait until its worker runs, or it has ended."""
    with suppress(AssertionError):  # one that never joins is judged like any other: what it did not do is missing
        await process.said("worker.joined", within=START_SECONDS_MAX)
