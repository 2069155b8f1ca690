"""What turns may spend, asked of the ledger before each one, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from turnlane.backends.base import Backend
from turnlane.clock import Clock
from turnlane.model.budget import NO_BUDGETS, Budget, Budgets, Scope
from turnlane.model.event import Event, Fact
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.notice import BUDGET_OF_SESSION, BUDGET_OF_TODAY
from turnlane.model.turn import Reply, RetryLater
from turnlane.model.usage import DAY_MS, NO_USAGE, Price, Spent, Usage, day_of, price_of

ASKED_AGAIN_MS = 900_000
"""What waits for money looks again so often, as an operator may have given more."""
WARNED_MAX = 10_000
"""How many warnings are remembered, so that each is given once a day."""

Place = tuple[Scope, str]
"""A budget, and whose it is."""


class Spending:
    """`budgets` and `prices` may change while turns run: the next one goes by them."""

    def __init__(self, *, backend: Backend, clock: Clock, emit: Callable[[Event], None] = lambda event: None) -> None:
        self.budgets: Budgets = NO_BUDGETS
        self.prices: Mapping[str, Price] = {}
        self._backend = backend
        self._clock = clock
        self._emit = emit
        self._warned: set[tuple[Place, int]] = set()

    # Before a turn

    async def refusal(self, lease: Lease) -> RetryLater | None:
        """Why the turn must not start now; None if it may. Whoever runs already is not stopped."""
        if self.budgets is NO_BUDGETS or self.budgets == NO_BUDGETS:
            return None
        now = self._clock.now()
        for place, budget, spent in await self._accounts(lease, day_of(now)):
            share = budget.share(spent)
            if share >= 1 and budget.stops:
                self._say("budget.stopped", lease, place, spent, share)
                return _put_off(place, now)
            if share >= budget.warn:
                self._warn(lease, place, spent, share, day_of(now))
        return None

    async def _accounts(self, lease: Lease, day: int) -> list[tuple[Place, Budget, Usage]]:
        """Whatever would pay for the turn, and what it has paid until now."""
        channel, user, budgets = channel_of(lease.key), lease.user, self.budgets
        found = list(self._of_session(lease))
        wanted: list[tuple[Place, Budget | None, str | None, str | None]] = [
            (("user", user), budgets.user, channel, user),
            (("channel", channel), budgets.channel, channel, None),
            (("day", ""), budgets.day, None, None),
        ]
        for place, budget, of_channel, of_user in wanted:
            if budget is not None:
                spent = await self._backend.spent(since=day, until=day, channel=of_channel, user=of_user)
                found.append((place, budget, total(spent)))
        return found

    def _of_session(self, lease: Lease) -> Iterator[tuple[Place, Budget, Usage]]:
        if self.budgets.session is not None and lease.session is not None:
            yield ("session", lease.session.handle), self.budgets.session, lease.session.usage

    def _warn(self, lease: Lease, place: Place, spent: Usage, share: float, day: int) -> None:
        if (place, day) not in self._warned:
            if len(self._warned) >= WARNED_MAX:
                self._warned.clear()
            self._warned.add((place, day))
            self._say("budget.warned", lease, place, spent, share)

    def _say(self, name: str, lease: Lease, place: Place, spent: Usage, share: float) -> None:
        budget, whose = place
        facts: dict[str, Fact] = {"budget": budget, "whose": whose, "tokens": spent.tokens, "cost": spent.cost / 1e6}
        self._emit(Event(name, self._clock.now(), lease.key, facts | {"share": round(share, 3)}))

    # After it

    def priced(self, reply: Reply) -> Reply:
        """With its cost by the price table; without a price, the cost is what the agent says."""
        price = price_of(reply.model, self.prices) if self.prices and reply.usage != NO_USAGE else None
        return reply if price is None else replace(reply, usage=replace(reply.usage, cost=price.cost(reply.usage)))


def total(spent: list[Spent]) -> Usage:
    return sum((each.usage for each in spent), NO_USAGE)


def _put_off(place: Place, now: int) -> RetryLater:
    scope, whose = place
    tomorrow = (day_of(now) + 1) * DAY_MS
    at = now + ASKED_AGAIN_MS if scope == "session" else min(tomorrow, now + ASKED_AGAIN_MS)
    named = f"the budget of the {scope}{f' {whose}' if whose else ''} is used up"
    cause = f"{named}; raise budgets.{scope}, or wait" if scope != "session" else f"{named}; raise budgets.session"
    notice = BUDGET_OF_SESSION if scope == "session" else BUDGET_OF_TODAY
    return RetryLater(at=at, cause=cause, counts=False, notice=notice)
