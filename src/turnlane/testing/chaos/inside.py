"""A bot's workers in this very process, with faults where the store answers: quick enough for every test run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, cast

from turnlane.app import Bot
from turnlane.backends.base import Backend
from turnlane.errors import BackendUnavailable
from turnlane.event_loop import happens
from turnlane.testing.chaos.judge import Fault, judge
from turnlane.testing.chaos.people import People, Plan
from turnlane.testing.chaos.rehearsal import check_whole, rehearsed, seen_in
from turnlane.testing.chaos.report import PromiseBroken, Report
from turnlane.testing.chaos.witness import Log, Witness

LEASE_SECONDS = 0.5
SECONDS_MAX = 600.0
AWAY = "the store is away on purpose"


async def chaos(
    bot: Bot,
    *,
    seed: int = 1,
    messages: int = 200,
    processes: int = 3,
    conversations: int = 8,
    lease: float = LEASE_SECONDS,
    patience: float = 60.0,
    texts: Sequence[str] = (),
    witness: Witness | None = None,
) -> Report:
    """Torture the bot and return the report; raises PromiseBroken with the report if a promise was broken.

    The bot's store is not opened and nothing is sent: its channels are replaced by a witness, unless they send through
    the `witness` that is given. Its agents run for real.
    """
    plan = Plan(seed, SECONDS_MAX, messages, processes, conversations, lease, patience, texts)
    report = await live_through(bot, plan, witness=witness, replay=f"chaos(bot, seed={seed}, messages={messages})")
    if report.broken:
        raise PromiseBroken(report)
    return report


async def live_through(bot: Bot, plan: Plan, *, replay: str, witness: Witness | None = None) -> Report:
    """The same by a plan, and a broken promise is only reported."""
    check_whole(bot)
    with tempfile.TemporaryDirectory(prefix="turnlane-chaos-") as folder:
        return await _Inside(bot, plan, Path(folder), witness).run(replay)


class _Inside:
    def __init__(self, bot: Bot, plan: Plan, folder: Path, witness: Witness | None) -> None:
        self.bot = bot
        self.plan = plan
        self.folder = folder
        self.witness = witness
        self.happened: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.calm = asyncio.Event()
        self.ended = asyncio.Event()

    async def run(self, replay: str) -> Report:
        async with AsyncExitStack() as stack:
            for part in (*self.bot.agents.values(), *(self.bot.channels.values() if self.witness else ())):
                stack.push_async_callback(part.close)
            log = Log(seen_in(self.folder), by=0)
            stack.callback(log.close)
            receiver, _ = self._rehearsed(log, "people")
            await stack.enter_async_context(receiver.running(serve=False, work=False))
            people = People(receiver, self.plan)
            await self._live(people)
        return self._report(people, replay)

    async def _live(self, people: People) -> None:
        async with asyncio.TaskGroup() as group:
            for place in range(1, self.plan.processes + 1):
                group.create_task(self._worker(place))
            await people.write()
            self.calm.set()
            await people.are_answered()
            self.ended.set()

    def _rehearsed(self, log: Log, chance: str) -> tuple[Bot, Faulty]:
        own = Random(f"{self.plan.seed}/{chance}")
        bot = rehearsed(self.bot, self.folder, log, lease=self.plan.lease, chance=own, witness=self.witness)
        faulty = Faulty(bot.backend, own, self.calm, self.happened)
        bot.backend = cast(Backend, faulty)
        return bot, faulty

    # The faults

    async def _worker(self, place: int) -> None:
        """One worker after the other at this place: each lives until it crashes, or until all is over."""
        chance = Random(f"{self.plan.seed}/worker/{place}")
        log = Log(seen_in(self.folder), by=place)
        life = 0
        while not self.ended.is_set():
            life += 1
            bot, faulty = self._rehearsed(log, f"worker/{place}/{life}")
            async with bot.running(serve=False):
                try:
                    await self._live_as(place, faulty, chance)
                finally:
                    # Twice: at once. Nothing is left to drain, or nobody may; nor does who is interrupted wait for it.
                    bot.stop()
                    bot.stop()
        log.close()

    async def _live_as(self, place: int, faulty: Faulty, chance: Random) -> None:
        while await self._trouble_comes(chance):
            self.faults.append((place, time.monotonic()))
            faulty.cut = True
            if chance.random() < 0.5:
                self.happened["workers that crashed"] += 1
                return
            self.happened["workers cut off for longer than the lease"] += 1
            # waits: longer than the lease; that is the fault
            await asyncio.sleep(self.plan.lease * chance.uniform(1.2, 3))
            faulty.cut = False

    async def _trouble_comes(self, chance: Random) -> bool:
        """After a while; once it is calm, never again."""
        if await happens(self.calm, within=chance.uniform(0.1, 1.0)):
            await self.ended.wait()
        return not self.ended.is_set()

    def _report(self, people: People, replay: str) -> Report:
        plan = self.plan
        title = f"{plan.processes} workers in one process, leases of {plan.lease:g} s, seed {plan.seed}"
        return judge(
            people,
            folder=self.folder,
            title=title,
            replay=replay,
            happened=self.happened,
            faults=self.faults,
            own_channels=self.witness is not None,
        )


class Faulty:
    """A backend whose calls fail before they happen, or whose answers get lost; while `cut`, all of them."""

    UNTOUCHED = frozenset({"open", "close", "subscribe", "changed", "counts", "lanes", "unpark", "schema_version"})

    def __init__(self, backend: Backend, chance: Random, calm: asyncio.Event, happened: Counter[str]) -> None:
        self._backend = backend
        self._chance = chance
        self._calm = calm
        self._happened = happened
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._backend, name)
        if name in self.UNTOUCHED or not callable(verb):
            return verb

        async def called(*args: Any, **options: Any) -> Any:
            if self._fails():
                self._happened["calls of the store that failed"] += 1
                raise BackendUnavailable(AWAY)
            answer = await verb(*args, **options)
            if self._fails():
                self._happened["answers of the store that were lost"] += 1
                raise BackendUnavailable(AWAY)
            return answer

        return called

    def _fails(self) -> bool:
        return self.cut or (not self._calm.is_set() and self._chance.random() < 0.02)
