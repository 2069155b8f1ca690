"""Tokens and money that turns used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

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


@dataclass(frozen=True, slots=True, order=True)
class Account:
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


def day_of(at: int) -> int:
    return at // DAY_MS


def date_of(day: int) -> date:
    return FIRST_DAY + timedelta(days=day)


def day_of_date(when: date) -> int:
    return (when - FIRST_DAY).days
