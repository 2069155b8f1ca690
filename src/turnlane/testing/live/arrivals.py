"""Who says what when: bursts, pauses, a few who never stop, and what the platform sends again, all from a seed."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

SECONDS_MAX = 3_600.0
RATE_MAX = 2_000.0
CUSTOMERS_MAX = 100_000
MESSAGES_MAX = 500_000
"""Each is remembered until it is judged, so a storm must end somewhere."""

LINES_MAX = 6
BETWEEN_LINES = (0.3, 2.5)
"""Seconds that a person types."""
SENT_AGAIN_AFTER = (0.2, 3.0)
"""Seconds until a platform that has missed our answer tries once more."""
CHATTY_EVERY = 50
"""One customer in so many is one of those who write all the time …"""
CHATTY_SHARE = 0.15
"""… and this share of all bursts is theirs."""

NAMES = (
    "anna",
    "ben",
    "chiara",
    "dmitri",
    "elif",
    "farid",
    "grace",
    "hana",
    "ivan",
    "jun",
    "kofi",
    "lena",
    "mei",
    "noor",
)
LINES = (
    "hi",
    "are you there?",
    "where is my parcel?",
    "it should have come on Monday",
    "order 4711",
    "sorry, I meant 4712",
    "thanks!",
    "can I still change the address?",
    "wie lange dauert das noch?",
    "¿me puede ayudar?",
    "まだ届いていません",
    "it is broken 😢",
    "one more thing",
    "never mind, found it",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What comes down on an instance. The seed decides who says what when, and when the agent fails."""

    customers: int = 2_000
    seconds: float = 60.0
    rate: float = 100.0
    """Messages a second, without those that are sent again."""
    duplicates: float = 0.05
    """The share of messages that the platform sends once more."""
    lines_max: int = LINES_MAX
    """The longest burst. 1: everybody says one thing at a time."""
    seed: int = 1

    # Of an instance of its own alone.
    think: float = 1.0
    """Seconds that the agent takes for most turns; for a few it takes much longer."""
    failing: float = 0.04
    """The share of its runs that fail."""
    workers: int = 2
    kill_every: float | None = None
    """Seconds from one kill of a worker to the next. None: nobody is killed."""
    patience: float = 120.0
    """Seconds in which all must be answered once nobody writes any more."""

    @property
    def messages(self) -> int:
        """About so many, if the instance keeps up."""
        return round(self.rate * self.seconds)


@dataclass(frozen=True, slots=True)
class Said:
    """One request of the platform."""

    at: float
    """Seconds from the start."""
    customer: str
    id: str
    text: str
    again: bool = False
    """It was sent before."""


def arrivals(plan: Plan) -> Iterator[Said]:
    """All of the plan, in the order of time. Everybody comes once before anybody comes twice, but for the chatty."""
    ahead: list[tuple[float, int, Said]] = []
    order = count()
    chance = Random(plan.seed)
    for start, customer, numbers in _bursts(plan, chance):
        while ahead and ahead[0][0] <= start:
            yield heapq.heappop(ahead)[2]
        for said in _burst(plan, start, customer, numbers, chance):
            if said.at < plan.seconds:
                heapq.heappush(ahead, (said.at, next(order), said))
    while ahead:
        yield heapq.heappop(ahead)[2]


def name_of(customer: int) -> str:
    return f"{NAMES[customer % len(NAMES)]}-{customer + 1:04}"


def _bursts(plan: Plan, chance: Random) -> Iterator[tuple[float, int, range]]:
    """When each begins, whose it is, and which of that customer's messages it holds."""
    said: Counter[int] = Counter()
    customers = _customers(plan.customers, chance)
    at = 0.0
    while True:
        at += chance.expovariate(plan.rate / _mean_lines(plan.lines_max))
        if at >= plan.seconds:
            return
        customer, lines = next(customers), _lines(plan.lines_max, chance)
        yield at, customer, range(said[customer] + 1, said[customer] + lines + 1)
        said[customer] += lines


def _customers(many: int, chance: Random) -> Iterator[int]:
    chatty = range(0, many, CHATTY_EVERY)
    while True:
        for customer in chance.sample(range(many), many):
            while chance.random() < CHATTY_SHARE:
                yield chance.choice(chatty)
            yield customer


def _lines(most: int, chance: Random) -> int:
    """Short bursts are more common than long ones."""
    return min(chance.randint(1, most), chance.randint(1, most))


def _mean_lines(most: int) -> float:
    return sum(min(one, other) for one in range(1, most + 1) for other in range(1, most + 1)) / most**2


def _burst(plan: Plan, start: float, customer: int, numbers: range, chance: Random) -> Iterator[Said]:
    name, at = name_of(customer), start
    for number in numbers:
        text = chance.choice(LINES)
        yield Said(at, name, f"{name}-{number}", text)
        if chance.random() < plan.duplicates:
            yield Said(at + chance.uniform(*SENT_AGAIN_AFTER), name, f"{name}-{number}", text, again=True)
        at += chance.uniform(*BETWEEN_LINES)
