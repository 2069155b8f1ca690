"""Tokens and money that turns used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import date, timedelta
from operator import attrgetter, itemgetter
from typing import Literal, NamedTuple, get_args

from turnlane.model.value import value

DAY_MS = 86_400_000
FIRST_DAY = date(1970, 1, 1)
EVERY_MODEL = "*"


@value
class Usage:
    input_tokens: int = 0
    """All that the model read, `cached_tokens` of it at the lower price."""
    output_tokens: int = 0
    """All that it wrote, `reasoning_tokens` of it unseen."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0
    """In millionths of whatever the price table counts in."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cost + other.cost,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()
amounts = attrgetter(*[each.name for each in fields(Usage)])
"""Of a usage, in their order."""


@value
class Price:
    """Of a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    """None: as `input`."""

    def cost(self, usage: Usage) -> int:
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        cached = self.input if self.cached is None else self.cached
        return round(fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output)


def price_of(model: str | None, prices: Mapping[str, Price]) -> Price | None:
    """The longest name in the table that the model's begins with, as vendors date their models; else that of `*`."""
    named = [name for name in prices if model is not None and model.startswith(name)]
    return prices[max(named, key=len)] if named else prices.get(EVERY_MODEL)


class Account(NamedTuple):
    """What is added up together: what one user spent with one agent and model, in one channel, on one day."""

    day: int
    """Since 1970, by universal time."""
    channel: str
    user: str
    agent: str
    model: str


@value
class Spent:
    account: Account
    turns: int = 0
    usage: Usage = NO_USAGE

    def and_also(self, usage: Usage, turns: int = 1) -> Spent:
        return Spent(self.account, self.turns + turns, self.usage + usage)


class Tally:
    """What turns spend, noted for each of them and added up at the end, which is quicker."""

    def __init__(self) -> None:
        self._used: defaultdict[Account, list[Usage]] = defaultdict(list)

    def add(self, account: Account, usage: Usage) -> None:
        self._used[account].append(usage)

    def spent(self) -> Iterator[Spent]:
        """In one order everywhere, so that no two processes wait for each other."""
        for account, used in sorted(self._used.items(), key=itemgetter(0)):
            yield Spent(account, len(used), Usage(*map(sum, zip(*map(amounts, used), strict=True))))


@value
class Period:
    """Which accounts somebody wants to see."""

    since: int = 0
    until: int | None = None
    """Days, both of them included."""
    channel: str | None = None
    user: str | None = None

    def __contains__(self, account: Account) -> bool:
        return (
            self.since <= account.day
            and (self.until is None or account.day <= self.until)
            and self.channel in (None, account.channel)
            and self.user in (None, account.user)
        )


By = Literal["day", "channel", "user", "agent", "model"]


BY_DAY: tuple[By, ...] = ("day",)


@value
class Sum:
    """What was spent, added up by some of its names; the others are None."""

    day: str | None
    channel: str | None
    user: str | None
    agent: str | None
    model: str | None
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float


def summed(spent: Iterable[Spent], by: Collection[By]) -> list[Sum]:
    """In the order of their names; by day if by nothing else."""
    by = by or BY_DAY
    sums: dict[tuple[str | None, ...], Spent] = {}
    for each in spent:
        account = each.account
        named = (date_of(account.day).isoformat(), account.channel, account.user, account.agent, account.model)
        names = tuple(name if what in by else None for what, name in zip(get_args(By), named, strict=True))
        sums[names] = sums.get(names, Spent(account)).and_also(each.usage, each.turns)
    return [_sum(names, sums[names]) for names in sorted(sums, key=lambda names: [name or "" for name in names])]


def _sum(names: tuple[str | None, ...], spent: Spent) -> Sum:
    day, channel, user, agent, model = names
    used = spent.usage
    tokens = (used.input_tokens, used.output_tokens, used.cached_tokens, used.reasoning_tokens)
    return Sum(day, channel, user, agent, model, spent.turns, *tokens, used.cost / 1_000_000)


def written_cost(cost: int) -> str:
    """In whole units, with as many places as are needed to see it."""
    return f"{cost / 1_000_000:.2f}" if cost == 0 or cost >= 10_000 else f"{cost / 1_000_000:.6f}".rstrip("0")


def day_of(at: int) -> int:
    return at // DAY_MS


def date_of(day: int) -> date:
    return FIRST_DAY + timedelta(days=day)


def day_of_date(when: date) -> int:
    return (when - FIRST_DAY).days
