"""Real processes on one store, killed and frozen past their leases while people write: is every promise kept?

    python -m turnlane.testing.torture --seconds 120 --processes 3 --seed 1

The seed decides what the driver does and when; what the machine makes of it differs from run to run. Exits with 1 if a
promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import get_args

from turnlane.event_loop import happens
from turnlane.testing.evidence import Conversation, Promise, Violation, answer_of, gather, what_happened
from turnlane.testing.failing import SERVERS, Fault, Servers, started
from turnlane.testing.outside import NO_ANSWER, Call, Outside, ask
from turnlane.testing.processes import Turnlane

SECRET = "a-shared-secret"
LEASE_SECONDS = 1.0
STALLED_SECONDS = 60.0
"""Once the faults are over, something must be answered in each so long until all is: what waits may be a lot."""
POST_SECONDS_MAX = 2.0
VIOLATIONS_SHOWN = 20
LOG_LINES_SHOWN = 5

SETTINGS = """
backend = "{backend}"

[lanes]
debounce = "100ms"
max_wait = "1s"
lease = "1s"
attempts = 1000    # the torture is to lose workers, not patience
takeovers = 1000
backoff = {{ first = "100ms", most = "1s" }}

[channels.site]
kind = "webhook"
secret = "{secret}"
reply_url = "{outside}/replies"

[channels.desk]
kind = "webhook"
secret = "{secret}"
reply_url = "{outside}/replies"

[agents.tortured]
kind = "http"
url = "{outside}/turns"

[[routes]]
channel = "site"
on_busy = "collect"

[[routes]]
channel = "desk"
on_busy = "queue"
"""


@dataclass(frozen=True)
class Plan:
    seconds: float = 120.0
    processes: int = 3
    seed: int = 1
    conversations: int = 12
    backend: str | None = None
    """An empty store; without one, a file in the folder."""


@dataclass
class Report:
    plan: Plan
    figures: dict[str, object]
    violations: Sequence[Violation]

    @property
    def verdict(self) -> dict[str, int]:
        broken = Counter(promise for promise, _ in self.violations)
        return {promise: broken[promise] for promise in get_args(Promise)}

    def __str__(self) -> str:
        plan = self.plan
        head = f"{plan.processes} processes, {plan.seconds:g} s of faults, seed {plan.seed}"
        rows = [f"  {name:<44}{value:>10}" for name, value in {**self.figures, **self.verdict}.items()]
        broken = [f"  {promise}: {what}" for promise, what in self.violations[:VIOLATIONS_SHOWN]]
        return "\n".join([head, *rows, *broken, "a promise was BROKEN" if broken else "every promise was kept"])


async def torture(plan: Plan, folder: Path, faults: Sequence[Fault] = ()) -> Report:
    """Live through the plan in this folder, wait until everything is answered, and judge."""
    return await _Torture(plan, folder, faults).run()


@dataclass
class _Torture:
    plan: Plan
    folder: Path
    faults: Sequence[Fault] = ()
    fleet: list[Turnlane] = field(default_factory=list)
    sent: dict[str, list[str]] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    problems: list[Violation] = field(default_factory=list)

    async def run(self) -> Report:
        self.over = asyncio.Event()
        async with Outside(respond=self._think) as self.outside, AsyncExitStack() as stack:
            (self.folder / "turnlane.toml").write_text(self._settings())
            for _ in range(self.plan.processes):
                command = Turnlane("run", "--listen", "127.0.0.1:0", "--log-format", "json", folder=self.folder)
                self.fleet.append(await stack.enter_async_context(command))
            drained_in = await self._live()
            for process in self.fleet:
                await self._end(process)
        return await asyncio.to_thread(self._judge, drained_in)

    @property
    def _store(self) -> str:
        return self.plan.backend or f"sqlite:///{self.folder}/turnlane.db"

    def _settings(self) -> str:
        return SETTINGS.format(backend=self._store, secret=SECRET, outside=self.outside.url)

    async def _live(self) -> float:
        """Traffic and faults for the planned time; then only what is left. Returns how long that took."""
        customers = [self._customer(place) for place in range(self.plan.conversations)]
        troubles = [self._trouble(process, place) for place, process in enumerate(self.fleet)]
        others = [self._other_trouble(fault, place) for place, fault in enumerate(self.faults)]
        async with asyncio.TaskGroup() as group:
            for each in [*customers, *troubles, *others]:
                group.create_task(_task(each))
            await asyncio.sleep(self.plan.seconds)
            self.over.set()
            calm_since = time.monotonic()
        before = -1
        while not self._all_answered() and self._answered > before:
            before = self._answered
            with suppress(AssertionError):  # what is missing is judged, and named, below
                await self.outside.until(self._all_answered, within=STALLED_SECONDS)
        return time.monotonic() - calm_since

    @property
    def _answered(self) -> int:
        return sum(len(reply.in_reply_to) for reply in self.outside.replies)

    def _all_answered(self) -> bool:
        return self._answered >= sum(map(len, self.sent.values()))

    # The agent and the customers

    async def _think(self, call: Call) -> str:
        turn = call.turn
        chance = Random(f"{self.plan.seed}/agent/{turn['id']}/{turn['epoch']}")
        await asyncio.sleep(chance.uniform(0, 0.3))
        return answer_of(call.conversation, turn["number"], turn["epoch"])

    async def _customer(self, place: int) -> None:
        """Writes in bursts, one request after the other, so that the order of acceptance is known."""
        chance = Random(f"{self.plan.seed}/customer/{place}")
        channel, name = ("site", "desk")[place % 2], f"customer-{place}"
        sent = self.sent[f"{channel}/{name}"] = []
        while not self.over.is_set():
            for _ in range(chance.randint(1, 5)):
                said = [f"{name}-{len(sent) + n}" for n in range(1, chance.choice((1, 1, 1, 3)) + 1)]
                await self._post(channel, [{"id": each, "conversation": name, "text": each} for each in said], chance)
                sent += said
            await self._pause(chance.uniform(0, 1.5))

    async def _post(self, channel: str, messages: Sequence[object], chance: Random) -> None:
        """Until some process says that it has them. Nobody knows what became of the tries before."""
        while True:
            url = chance.choice(self.fleet).url
            if url is None:
                await asyncio.sleep(0.02)
                continue
            try:
                answer = await ask(f"{url}channels/{channel}", messages, secret=SECRET, within=POST_SECONDS_MAX)
            except NO_ANSWER:
                self.happened["posts without an answer, sent again"] += 1
                await asyncio.sleep(0.02)
                continue
            if answer.status == 202:
                self.happened["messages accepted"] += answer.json["accepted"]
                self.happened["messages answered as duplicates"] += answer.json["duplicates"]
                return
            self.happened[f"posts refused with {answer.status}"] += 1
            await asyncio.sleep(0.1)

    # The faults

    async def _trouble(self, process: Turnlane, place: int) -> None:
        chance = Random(f"{self.plan.seed}/process/{place}")
        while not self.over.is_set():
            await self._pause(chance.uniform(0.5, 4))
            if not process.is_running:
                self._note_end(process)
                await process.start()
            elif chance.random() < 0.5:
                await self._kill(process, chance)
            else:
                await self._freeze(process, chance)

    async def _other_trouble(self, fault: Fault, place: int) -> None:
        chance = Random(f"{self.plan.seed}/fault/{place}")
        while not self.over.is_set():
            await self._pause(chance.uniform(2, 8))
            self.happened[await fault(chance)] += 1

    async def _kill(self, process: Turnlane, chance: Random) -> None:
        self.happened["kills (SIGKILL)"] += 1
        process.kill()
        await process.ended()
        await self._pause(chance.uniform(0, 1))
        await process.start()

    async def _freeze(self, process: Turnlane, chance: Random) -> None:
        self.happened["freezes past the lease (SIGSTOP)"] += 1
        process.freeze()
        # waits: longer than the lease, even if the torture ends meanwhile; that is the fault
        await asyncio.sleep(LEASE_SECONDS * chance.uniform(1.2, 3))
        process.thaw()

    async def _pause(self, seconds: float) -> None:
        await happens(self.over, within=seconds)

    # The judgement

    async def _end(self, process: Turnlane) -> None:
        process.terminate()
        if await process.ended() != 0:
            self._note_end(process)

    def _note_end(self, process: Turnlane) -> None:
        """Nothing that is done to a process here is a reason to leave by itself, or to drain with an error."""
        self.problems.append(("ended by itself", "\n".join(process.last_words.splitlines()[-LOG_LINES_SHOWN:])))

    def _judge(self, drained_in: float) -> Report:
        world = self.outside
        conversations = gather(
            self.sent, store=self._store, calls=world.calls, replies=world.replies, requests=world.requests
        )
        broken = [violation for each in conversations for violation in each.violations()]
        return Report(self.plan, self._figures(conversations, drained_in), [*self.problems, *broken])

    def _figures(self, conversations: Sequence[Conversation], drained_in: float) -> dict[str, object]:
        world, events = self.outside, what_happened(self._store)
        turns = sum(len(each.turns) for each in conversations)
        return {
            **{name: self.happened[name] for name in sorted(self.happened)},
            "workers declared lost": events["worker.lost"],
            "turns and sendings taken over": events["turn.lost"] + events["delivery.lost"],
            "stale writes refused": events["turn.fenced"] + events["delivery.fenced"],
            "turns committed": turns,
            "agent calls that were not committed": len(world.calls) - turns,
            "replies": len(world.replies),
            "repeats under a known key": len(world.requests) - len(world.replies),
            "seconds until all was answered": f"{drained_in:.1f}",
        }


async def _task(work: Awaitable[None]) -> None:
    await work


async def _tortured(plan: Plan, folder: Path, servers: Servers | None) -> Report:
    if servers is None:
        return await torture(plan, folder)
    async with started(servers) as failing:
        return await torture(replace(plan, backend=failing.url), folder, failing.faults)


def main(arguments: Sequence[str] | None = None) -> int:
    defaults = Plan()
    parser = argparse.ArgumentParser(prog="python -m turnlane.testing.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long faults happen")
    parser.add_argument("--processes", type=int, default=defaults.processes, help="how many share the store")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="decides bursts and faults")
    parser.add_argument("--conversations", type=int, default=defaults.conversations, help="how many customers write")
    parser.add_argument("--backend", help="the URL of an empty store; else a file in the folder")
    parser.add_argument("--servers", choices=SERVERS, help="servers of its own in place of a file, which fail too")
    parser.add_argument("--folder", type=Path, help="an empty folder that is kept; else a temporary one")
    given = parser.parse_args(arguments)
    plan = Plan(given.seconds, given.processes, given.seed, given.conversations, given.backend)
    with tempfile.TemporaryDirectory(prefix="turnlane-torture-") as temporary:
        report = asyncio.run(_tortured(plan, given.folder or Path(temporary), given.servers))
    sys.stdout.write(f"{report}\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
