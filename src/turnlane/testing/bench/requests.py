"""How often others are asked on a day of many users, with what is at hand and without."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from turnlane.agents.base import SessionState
from turnlane.backends.base import Arrival, Backend
from turnlane.backends.memory import MemoryBackend
from turnlane.flow.remember import Memory
from turnlane.flow.run_turn import run_turn
from turnlane.flow.spending import Spending
from turnlane.flow.split import Splitter
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.policy import Policy
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage
from turnlane.people.profiles import LOOK_SECONDS, Profiles
from turnlane.testing.doubles import VirtualClock

SEED = 20261116
USERS, CHANGES = 1_000, 200
DAY_MS = 86_400_000
CHANNEL, AGENT = "phone", "assistant"
POLICY = Policy(agent=AGENT, tenant=CHANNEL, debounce_ms=3_000, max_wait_ms=15_000)
FOR_EVER_MS = 10 * DAY_MS

Happening = tuple[int, int, str, str]
"""When, in what order, what, and to whom."""


@dataclass(frozen=True, slots=True)
class Day:
    """What came of it."""

    messages: int
    turns: int
    requests: Counter[str]
    hits: int
    misses: int
    looks: int
    """How often it was asked who has changed: once a second, however much or little is said."""

    @property
    def requests_per_message(self) -> float:
        return self.requests.total() / self.messages

    @property
    def hit_rate(self) -> float:
        return self.hits / (self.hits + self.misses)


def happenings(users: int, changes: int, seed: int = SEED) -> Iterator[Happening]:
    """The trace, in no order."""
    chance = random.Random(seed)
    number = 0
    for user in range(users):
        for _ in range(chance.randint(2, 5)):
            at = chance.randrange(DAY_MS)
            for _ in range(chance.randint(3, 8)):
                for _ in range(chance.randint(1, 4)):
                    number += 1
                    yield at, number, "message", f"user-{user}"
                    at += chance.randint(500, 2_500)
                at += chance.randint(20_000, 300_000)
    for _ in range(changes):
        number += 1
        yield chance.randrange(DAY_MS), number, "change", f"user-{chance.randrange(users)}"


class Service:
    """An agent that keeps its sessions outside, and a platform that knows everybody: both count what they are asked."""

    name = CHANNEL

    def __init__(self, requests: Counter[str]) -> None:
        self._requests = requests

    async def respond(self, turn: Turn) -> Reply:
        self._requests["agent: a session begins"] += turn.session is None
        self._requests["agent: turns"] += 1
        # As the openai agent does (`turn.was_begun`), so that it pays for no answer twice.
        self._requests["store: was the turn begun"] += turn.session is not None
        return Reply(None, turn.session or f"session of {turn.conversation}", Usage(100, 10))

    async def examine(self, session: str) -> SessionState:
        self._requests["agent: is a session there"] += 1
        return "alive"

    async def profile(self, user: str) -> Person | None:
        self._requests["platform: who is it"] += 1
        return Person(CHANNEL, user, user.title())

    async def send(self, delivery: Delivery) -> SendResult:
        return Sent()

    async def close(self) -> None:
        """Nothing is held."""


class Counted:
    """The store, with a count of how often it is asked about people."""

    def __init__(self, backend: Backend, requests: Counter[str]) -> None:
        self._backend = backend
        self._requests = requests

    async def person(self, channel: str, user: str) -> Person | None:
        self._requests["store: who is it"] += 1
        return await self._backend.person(channel, user)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Process:
    """One process that lives through the day; `at_hand` is false for one that keeps nothing."""

    def __init__(self, *, at_hand: bool) -> None:
        self.clock = VirtualClock()
        self.backend = MemoryBackend("memory://", self.clock)
        self.requests: Counter[str] = Counter()
        self.turns = self.looks = 0
        self._at_hand = at_hand
        self._service = Service(self.requests)
        store: Any = Counted(self.backend, self.requests)
        self.people = Profiles(backend=store, clock=self.clock, channels={CHANNEL: self._service})
        self._memory = Memory(clock=self.clock) if at_hand else Memory(clock=self.clock, valid_ms=0)
        self._spending = Spending(backend=self.backend, clock=self.clock)
        self._looked_at = 0.0

    async def change(self, user: str) -> None:
        await self.people.update(user, channel=CHANNEL, enrich=True)
        await self.people.enrich((CHANNEL, user))

    async def say(self, number: int, user: str) -> None:
        message = Message(CHANNEL, f"m-{number}", f"{CHANNEL}/{user}", user, "hello")
        await self.backend.accept([Arrival(message, POLICY)])

    async def run_what_is_due(self) -> None:
        for lease in await self.backend.claim("worker", Kind.TURN, most=100):
            await self._look()
            stage: Any = None
            if not self._at_hand:
                self._forget(lease)
            outcome = await run_turn(
                lease,
                stage,
                agents={AGENT: self._service},
                clock=self.clock,
                spending=self._spending,
                memory=self._memory,
                splitter=Splitter({}),
                people=self.people,
            )
            await self.backend.commit(lease, outcome)
            self.turns += 1
            if self._at_hand and (person := self.people.cache.peek((CHANNEL, lease.user))) and not person.version:
                await self.people.enrich((CHANNEL, lease.user))

    def _forget(self, lease: Lease) -> None:
        """As one would do it who keeps nothing: everything is asked before each turn."""
        self.people.cache.drop((CHANNEL, lease.user))
        self.requests["platform: who is it"] += 1
        self.requests["agent: has a session messages"] += lease.session is not None

    async def _look(self) -> None:
        """It does so once a second; here, once before what rests on it."""
        passed = self.clock.monotonic() - self._looked_at
        if self._at_hand and passed >= LOOK_SECONDS:
            self.looks += int(passed / LOOK_SECONDS)
            self._looked_at = self.clock.monotonic()
            await self.people.look()


async def live(users: int = USERS, changes: int = CHANGES, *, at_hand: bool = True) -> Day:
    process = Process(at_hand=at_hand)
    await process.backend.open()
    await process.backend.join("worker", FOR_EVER_MS)
    began = process.clock.now()
    waiting = list(happenings(users, changes))
    heapq.heapify(waiting)
    messages = 0
    while waiting:
        at, number, what, user = heapq.heappop(waiting)
        process.clock.advance(max(0, began + at - process.clock.now()))
        if what == "message":
            messages += 1
            await process.say(number, user)
            heapq.heappush(waiting, (at + POLICY.debounce_ms, number, "due", user))
        elif what == "change":
            await process.change(user)
        else:
            await process.run_what_is_due()
    cache = process.people.cache
    return Day(messages, process.turns, process.requests, cache.hits, cache.misses, process.looks)
