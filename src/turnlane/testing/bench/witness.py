"""The null agent and the in-process channel of every workload: they do nothing, and see everything."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from turnlane.errors import TurnlaneError
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.event import Event
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage

PATIENCE_SECONDS = 120.0
PROBLEMS_SHOWN = 5
SPENT = Usage(input_tokens=10, output_tokens=20)


class WrongResult(TurnlaneError):
    """The engine lost, doubled, reordered or overlapped something: its speed says nothing."""


@dataclass(slots=True)
class Run:
    """One call of the agent. Times are of the machine's monotonic clock, so that processes can be compared."""

    conversation: str
    origins: tuple[str, ...]
    began: float
    ended: float = 0.0


@dataclass(slots=True)
class Record:
    """What one process saw; may be carried to another."""

    runs: list[Run] = field(default_factory=list)
    sends: list[tuple[str, int, str]] = field(default_factory=list)
    """Conversation, place in its outbox, text."""
    problems: list[str] = field(default_factory=list)


class Witness:
    """An agent, a channel and a listener in one; whoever measures waits here for what it wants to see."""

    name = "bench"

    def __init__(self, *, hold_seconds: float = 0.0, listens: bool = True) -> None:
        self.record = Record()
        self.listens = listens
        """False: it reads the journal afterwards instead, so that watching costs the burst nothing."""
        self.hold_seconds = hold_seconds
        self.messages_run = 0
        self.turns_started = 0
        self.turns_answered = 0
        self.sends_settled = 0
        self.workers_joined = 0
        self.last_answered = 0.0
        self.last_settled = 0.0
        self._running: set[str] = set()
        self._wanted: Callable[[], bool] = lambda: False
        self._seen = asyncio.Event()

    async def respond(self, turn: Turn) -> Reply:
        run = Run(turn.conversation, tuple([message.origin_id for message in turn.messages]), time.perf_counter())
        self.record.runs.append(run)
        if self.listens:
            self._begin(turn.conversation)
        self.messages_run += len(run.origins)
        if self.hold_seconds:
            await asyncio.sleep(self.hold_seconds)
        run.ended = time.perf_counter()
        return Reply("+".join(run.origins), session=f"session of {turn.conversation}", usage=SPENT)

    def _begin(self, conversation: str) -> None:
        if conversation in self._running:
            self.record.problems.append(f"{conversation}: a turn started before the one before was committed")
        self._running.add(conversation)

    def read(self, events: Sequence[Event]) -> None:
        """What was committed, in order, after the fact."""
        for event in events:
            if event.name == "turn.started":
                self._begin(event.conversation or "")
            self.listen([event])

    async def send(self, delivery: Delivery) -> SendResult:
        self.record.sends.append((delivery.conversation, delivery.seq, delivery.text))
        return Sent("receipt")

    async def close(self) -> None:
        """There is nothing to let go."""

    def listen(self, events: Sequence[Event]) -> None:
        """The backend tells its facts once they are durable, before whoever waited for them goes on."""
        for event in events:
            if event.name == "delivery.sent":
                self.sends_settled += 1
                self.last_settled = time.perf_counter()
            elif event.name == "turn.answered":
                self.turns_answered += 1
                self.last_answered = time.perf_counter()
                self._running.discard(event.conversation or "")
            elif event.name == "turn.started":
                self.turns_started += 1
            elif event.name == "worker.joined":
                self.workers_joined += 1
            elif event.name not in ORDINARY:
                self.record.problems.append(f"{event.conversation}: {event.name} {dict(event.facts)}")
        if self._wanted():
            self._seen.set()

    async def settled(self, messages: int) -> None:
        """Wait until that many messages are run, committed, delivered and settled."""
        await self._see(lambda: self.messages_run >= messages and self.sends_settled == len(self.record.runs))

    async def joined(self, workers: int) -> None:
        """Wait until that many workers may claim."""
        await self._see(lambda: self.workers_joined >= workers)

    async def started(self, turns: int) -> None:
        """Wait until that many turns are leased, so that their batches are fixed."""
        await self._see(lambda: self.turns_started >= turns)

    async def answered(self, turns: int) -> None:
        """Wait until that many turns are committed."""
        await self._see(lambda: self.turns_answered >= turns)

    async def _see(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._seen.clear()
        self.listen(())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._seen.wait()
        except TimeoutError:
            seen = f"{self.messages_run} messages run, {self.turns_answered} turns committed, {self.sends_settled} sent"
            problems = "; ".join(self.record.problems[:PROBLEMS_SHOWN]) or "nothing else is wrong"
            raise WrongResult(f"the engine stopped short: after {PATIENCE_SECONDS:g} s {seen}; {problems}") from None


ORDINARY = {
    "session.began",
    "message.accepted",
    "delivery.started",
    "worker.left",
    # While a worker drains, a claim that is called off gives back what it was just about to get.
    "turn.released",
    "delivery.released",
}
"""Facts of no interest that a benchmark in which nothing fails may cause."""


def check(records: Iterable[Record], said: Mapping[str, Sequence[str]]) -> None:
    """Everything said was run once, in order, without overlap, and every reply left once, in order."""
    records = list(records)
    problems = [problem for record in records for problem in record.problems]
    problems += _problems_of_runs([run for record in records for run in record.runs], said)
    problems += _problems_of_sends([send for record in records for send in record.sends], said)
    _raise(problems)


def check_sends(records: Iterable[Record], said: Mapping[str, Sequence[str]]) -> None:
    """Only the replies: each left once, in order, and together they answer everything said."""
    _raise(_problems_of_sends([send for record in records for send in record.sends], said))


def _raise(problems: Sequence[str]) -> None:
    if problems:
        shown = "; ".join(problems[:PROBLEMS_SHOWN])
        raise WrongResult(f"{len(problems)} wrong results, so the figures mean nothing; the first: {shown}")


def _problems_of_runs(runs: Sequence[Run], said: Mapping[str, Sequence[str]]) -> list[str]:
    by_conversation: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.began):
        by_conversation[run.conversation].append(run)
    problems = []
    for conversation, origins in said.items():
        mine = by_conversation.pop(conversation, [])
        if [origin for run in mine for origin in run.origins] != list(origins):
            problems.append(f"{conversation}: messages lost, doubled or out of order")
        if any(later.began < earlier.ended for earlier, later in pairwise(mine)):
            problems.append(f"{conversation}: turns overlap")
    return problems + [f"{conversation}: nobody said anything here" for conversation in by_conversation]


def _problems_of_sends(sends: Sequence[tuple[str, int, str]], said: Mapping[str, Sequence[str]]) -> list[str]:
    by_conversation: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for conversation, seq, text in sends:
        by_conversation[conversation].append((seq, text))
    problems = []
    for conversation, origins in said.items():
        mine = by_conversation[conversation]
        if len({seq for seq, _ in mine}) != len(mine):
            problems.append(f"{conversation}: a reply was sent twice")
        if "+".join(text for _, text in sorted(mine)) != "+".join(origins):
            problems.append(f"{conversation}: replies lost or out of order")
    return problems
