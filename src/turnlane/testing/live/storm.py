"""The customers' side of a storm: each message is posted when its time comes, and is ours once the answer says so."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle

from turnlane.errors import InvalidInput
from turnlane.event_loop import happens
from turnlane.testing.live.arrivals import Said
from turnlane.testing.outside import NO_ANSWER, Answer, Caller

CALLERS = 32
"""Connections. A customer's messages all take the same one, so that their order is known."""
POST_SECONDS_MAX = 10.0
AGAIN_SECONDS = 0.2
RETRY_AFTER_SECONDS_MAX = 5.0
NO_ANSWERS_MAX = 100
"""So many in a row for one message, and the instance is gone."""


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    """Of the server, without a path."""
    channel: str
    secret: str | None = None

    @property
    def hook(self) -> str:
        return f"{self.url.rstrip('/')}/channels/{self.channel}"


@dataclass
class Storm:
    """What was posted, and what was answered to it."""

    target: Target
    happened: Counter[str] = field(default_factory=Counter)
    """`sent`, `sent again`, `accepted`, `duplicates`, `rejected`, and what went wrong on the way."""
    said: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ids by conversation; each was accepted before the next was posted."""
    accepted_at: dict[str, float] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    """Seconds from a post to its answer."""
    late: float = 0.0
    """The most seconds that a post began after its time: the instance, or this machine, did not keep up."""

    async def blow(self, messages: Iterable[Said], over: asyncio.Event) -> None:
        """Post them all, each at its time, or until it is over. Raises InvalidInput if the instance wants none."""
        lines = [_Line(self, Caller(self.target.hook, secret=self.target.secret)) for _ in range(CALLERS)]
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    group.create_task(line.work(began, over))
                await _hand_out(messages, lines, began, over)
        except ExceptionGroup as errors:
            # Each of them was told the same.
            raise errors.exceptions[0] from None

    def note(self, said: Said, answer: Answer, seconds: float) -> None:
        told = answer.json
        self.took.append(seconds)
        self.happened["sent again" if said.again else "sent"] += 1
        for name in ("accepted", "duplicates", "rejected"):
            self.happened[name] += told[name]
        if said.id not in self.accepted_at:
            self.accepted_at[said.id] = time.monotonic()
            self.said[f"{self.target.channel}/{said.customer}"].append(said.id)


class _Line:
    def __init__(self, storm: Storm, caller: Caller) -> None:
        self.waiting: asyncio.Queue[Said | None] = asyncio.Queue()
        self._storm = storm
        self._caller = caller

    async def work(self, began: float, over: asyncio.Event) -> None:
        try:
            while (said := await self.waiting.get()) is not None and not over.is_set():
                self._storm.late = max(self._storm.late, time.monotonic() - began - said.at)
                await self._post(said)
        finally:
            self._caller.close()

    async def _post(self, said: Said) -> None:
        """Until the instance says that it has it. Nobody knows what became of the tries before."""
        value = {"id": said.id, "conversation": said.customer, "sender": said.customer, "text": said.text}
        for _ in range(NO_ANSWERS_MAX):
            began = time.monotonic()
            try:
                answer = await self._caller.post(value, within=POST_SECONDS_MAX)
            except NO_ANSWER:
                self._storm.happened["posts without an answer, sent again"] += 1
                # waits: for a server that is just being started, or has just gone
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if answer.status == 202:
                self._storm.note(said, answer, time.monotonic() - began)
                return
            await self._come_back(answer)
        raise InvalidInput(f"{self._storm.target.url} does not answer any more; is it still running?")

    async def _come_back(self, answer: Answer) -> None:
        if answer.status not in {429, 503}:
            raise InvalidInput(refusal(self._storm.target, answer))
        self._storm.happened[f"posts refused with {answer.status}, sent again"] += 1
        await asyncio.sleep(_patience(answer))


async def _hand_out(messages: Iterable[Said], lines: Sequence[_Line], began: float, over: asyncio.Event) -> None:
    line_of: dict[str, _Line] = {}
    free = cycle(lines)
    for said in messages:
        await _until(began + said.at, over)
        if over.is_set():
            break
        if said.customer not in line_of:
            line_of[said.customer] = next(free)
        line_of[said.customer].waiting.put_nowait(said)
    for line in lines:
        line.waiting.put_nowait(None)


def refusal(target: Target, answer: Answer) -> str:
    match answer.status:
        case 401 | 403:
            advice = "name the variable that holds the channel's secret with --secret-env"
        case 404:
            advice = "name one of its web hook channels with --channel"
        case _:
            advice = "it must be a channel of kind webhook"
    why = answer.body.decode(errors="replace")[:200]
    return f"{target.hook} answered {answer.status}; {advice} ({why})"


def _patience(answer: Answer) -> float:
    with suppress(ValueError):
        return min(max(float(answer.headers.get("retry-after", AGAIN_SECONDS)), AGAIN_SECONDS), RETRY_AFTER_SECONDS_MAX)
    return AGAIN_SECONDS


async def _until(moment: float, over: asyncio.Event) -> None:
    seconds = moment - time.monotonic()
    if seconds <= 0:
        # Even a storm that is behind its plan must hear that it is over.
        await asyncio.sleep(0)
        return
    await happens(over, within=seconds)
