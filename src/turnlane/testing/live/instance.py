"""An instance to storm: a server and workers on a throwaway file, with a slow agent that fails now and then."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from types import TracebackType

from turnlane.event_loop import happens
from turnlane.testing.evidence import Violation
from turnlane.testing.live.arrivals import Plan
from turnlane.testing.live.storm import Target
from turnlane.testing.outside import Call, Fails, Outside, Reply
from turnlane.testing.processes import Turnlane

CHANNEL, AGENT, SECRET = "shop", "clerk", "a-shared-secret"
KEPT = ("server.ready", "worker.joined", "worker.left")
"""Of the log. All of it would be most of what this process remembers."""
LOG_LINES_SHOWN = 5
THINK_SECONDS_MAX = 15.0
THINK_SPREAD = 0.7

SETTINGS = """
backend = "sqlite:///{folder}/turnlane.db"
turns_at_once = 250
sends_at_once = 50

[lanes]
debounce = "1s"
max_wait = "5s"
lease = "5s"
attempts = 1000    # the storm is to show retries, not dead letters
takeovers = 1000
backoff = {{ first = "500ms", most = "4s" }}

[channels.{channel}]
kind = "webhook"
secret = "{secret}"
reply_url = "{outside}/replies"

[agents.{agent}]
kind = "http"
url = "{outside}/turns"

[[routes]]
channel = "{channel}"
"""

ANSWERS = (
    "It is on its way and should be with you tomorrow.",
    "I have looked it up: the address can still be changed.",
    "Thank you for waiting. Is there anything else?",
    "Das tut mir leid, ich kümmere mich darum.",
    "Claro, ahora mismo lo miro.",
    "確認いたしますので、少々お待ちください。",
)


def answer_in(conversation: str, turn: int, epoch: int) -> str:
    """What the clerk says. It names the epoch, so that a stale holder's answer would be seen."""
    words = ANSWERS[hash_of(conversation, turn) % len(ANSWERS)]
    return f"{words} (turn {turn} of {conversation}, epoch {epoch})"


def hash_of(conversation: str, turn: int) -> int:
    """The same in every process, unlike hash()."""
    return sum(map(ord, conversation)) + turn


class Instance:
    """`async with Instance(plan, folder) as it:` — a server and its workers; nothing is left when the block ends."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.outside = Outside(respond=self._think, receive=self._receive)
        self.answered_at: dict[str, float] = {}
        self.kills = 0
        self.problems: list[Violation] = []
        self.workers: list[Turnlane] = []
        self._folder = folder
        self._chance = Random(f"{plan.seed}/agent")
        self._stack = AsyncExitStack()

    @property
    def store(self) -> str:
        return f"sqlite:///{self._folder}/turnlane.db"

    async def __aenter__(self) -> Instance:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.outside)
            self._write_settings()
            self.server = self._process("serve", "--listen", "127.0.0.1:0")
            await stack.enter_async_context(self.server)
            self.url = (await self.server.ready()).rstrip("/")
            self.workers = [self._process("worker") for _ in range(self.plan.workers)]
            for worker in self.workers:
                await stack.enter_async_context(worker)
            await asyncio.gather(*(worker.said("worker.joined") for worker in self.workers))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    @property
    def target(self) -> Target:
        return Target(self.url, CHANNEL, SECRET)

    def _write_settings(self) -> None:
        names = {"folder": self._folder, "channel": CHANNEL, "agent": AGENT, "secret": SECRET}
        (self._folder / "turnlane.toml").write_text(SETTINGS.format(**names, outside=self.outside.url))

    def _process(self, *arguments: str) -> Turnlane:
        return Turnlane(*arguments, "--log-format", "json", folder=self._folder, keeps=KEPT, apart=True)

    # What is outside of it

    async def _think(self, call: Call) -> str:
        turn = call.turn
        seconds = self.plan.think * self._chance.lognormvariate(0, THINK_SPREAD)
        # waits: a model takes its time, and that is what makes lanes worth looking at
        await asyncio.sleep(min(seconds, THINK_SECONDS_MAX))
        if self._chance.random() < self.plan.failing:
            raise Fails(self._chance.choice((500, 503)))
        return answer_in(call.conversation, turn["number"], turn["epoch"])

    async def _receive(self, reply: Reply) -> int:
        for each in reply.in_reply_to:
            self.answered_at.setdefault(each, time.monotonic())
        return 204

    async def all_answered(self, ids: int) -> bool:
        """Wait until so many messages have an answer. False: patience is over."""
        with suppress(AssertionError):
            await self.outside.until(lambda: len(self.answered_at) >= ids, within=self.plan.patience)
        return len(self.answered_at) >= ids

    # What is done to it

    async def kill_workers(self, over: asyncio.Event) -> None:
        """One after the other, every so often, until it is over. A new one takes the place of each."""
        chance = Random(f"{self.plan.seed}/kills")
        while self.plan.kill_every is not None and not over.is_set():
            if not await happens(over, within=self.plan.kill_every):
                await self._kill(chance.choice(self.workers))

    async def _kill(self, worker: Turnlane) -> None:
        if worker.is_running:
            self.kills += 1
            worker.kill()
            await worker.ended()
        else:
            self._note_end(worker)
        await worker.start()
        await worker.said("worker.joined")

    async def end(self) -> None:
        """Let everybody drain and leave; who did not do so properly is a problem."""
        for process in (*self.workers, self.server):
            if process.is_running:
                process.terminate()
            if await process.ended() != 0:
                self._note_end(process)

    def _note_end(self, process: Turnlane) -> None:
        self.problems.append(("ended by itself", "\n".join(process.last_words.splitlines()[-LOG_LINES_SHOWN:])))
