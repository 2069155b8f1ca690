"""Budgets: no turn starts past a stop, whoever asks, and what was put off is answered once there is money."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.flow.world import Thinker, World

from turnlane.backends.base import Backend
from turnlane.flow.spending import ASKED_AGAIN_MS, Spending
from turnlane.model.budget import Budget, Budgets
from turnlane.model.notice import BUDGET_OF_SESSION, BUDGET_OF_TODAY
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import DAY_MS, Price, Usage
from turnlane.testing.doubles import VirtualClock

ALICE = "desk/alice"


class Spender(Thinker):
    """Each answer takes a hundred tokens."""

    def answer(self, turn: Turn) -> Reply:
        return Reply(f"re: {turn.text}", f"session of {turn.conversation}", Usage(90, 10, 50), model="large-2026")


@asynccontextmanager
async def spending(world: World, budgets: Budgets, agent: Spender) -> AsyncIterator[Spending]:
    spends = Spending(backend=world.backend, clock=world.clock, emit=world.tell)
    spends.budgets = budgets
    async with world.working(agent, spending=spends, term_ms=3 * DAY_MS):
        yield spends


async def test_past_a_stop_no_turn_starts_and_the_person_is_told_once(world: World, clock: VirtualClock) -> None:
    agent = Spender(told=True)
    async with spending(world, Budgets(user=Budget(tokens=200)), agent):
        for number in (1, 2):
            await world.say("alice", f"m-{number}")
            await world.facts.seen("turn.answered", number)
        await world.say("alice", "m-3")
        await world.facts.seen("turn.retried")
        [stopped] = world.facts.of("budget.stopped")
        await world.facts.seen("delivery.sent", 3)
        assert (stopped.facts["budget"], stopped.facts["tokens"], stopped.facts["share"]) == ("user", 200, 1.0)
        assert [each.text for each in world.desk.sent][-1] == BUDGET_OF_TODAY
        clock.advance(ASKED_AGAIN_MS)
        await world.facts.seen("budget.stopped", 2)
        assert len(agent.turns) == 2
        assert len(world.desk.sent) == 3


async def test_what_was_put_off_is_answered_on_the_next_day(world: World, clock: VirtualClock) -> None:
    agent = Spender(told=True)
    async with spending(world, Budgets(day=Budget(tokens=100)), agent):
        await world.say("alice", "m-1")
        await world.facts.seen("turn.answered")
        await world.say("alice", "m-2")
        await world.facts.seen("turn.retried")
        clock.advance(DAY_MS)
        await world.facts.seen("turn.answered", 2)
    assert [turn.text for turn in agent.turns] == ["m-1", "m-2"]


async def test_more_money_lets_it_go_on(world: World, clock: VirtualClock) -> None:
    agent = Spender(told=True)
    async with spending(world, Budgets(channel=Budget(tokens=100)), agent) as spends:
        await world.say("alice", "m-1")
        await world.facts.seen("turn.answered")
        await world.say("bob", "m-2")
        await world.facts.seen("turn.retried")
        spends.budgets = Budgets(channel=Budget(tokens=1_000))
        clock.advance(ASKED_AGAIN_MS)
        await world.facts.seen("turn.answered", 2)


async def test_a_new_session_has_a_budget_of_its_own(world: World, backend: Backend) -> None:
    agent = Spender(told=True)
    async with spending(world, Budgets(session=Budget(tokens=100)), agent):
        await world.say("alice", "m-1")
        await world.facts.seen("turn.answered")
        await world.say("alice", "m-2")
        await world.facts.seen("turn.retried")
        await world.facts.seen("delivery.sent", 2)
        assert world.desk.sent[-1].text == BUDGET_OF_SESSION
        assert await backend.renew_session(ALICE)
        await world.facts.seen("turn.answered", 2)


async def test_a_burst_overshoots_by_what_runs_already_and_no_more(world: World, backend: Backend) -> None:
    """Five at once, ten wait: with the answers of the five the budget is used up, and none of the others starts."""
    agent = Spender()
    async with spending(world, Budgets(day=Budget(tokens=100)), agent):
        for number in range(15):
            await world.say(f"customer-{number}", f"m-{number}")
        await agent.asked(5)
        agent.go()
        await world.facts.seen("turn.answered", 5)
        await world.facts.seen("budget.stopped", 10)
    assert len(agent.turns) == 5
    assert sum(spent.usage.tokens for spent in await backend.spent()) == 500


async def test_a_budget_that_only_warns_stops_nothing_and_says_so_once(world: World) -> None:
    agent = Spender(told=True)
    async with spending(world, Budgets(user=Budget(tokens=100, stops=False)), agent):
        for number in (1, 2, 3):
            await world.say("alice", f"m-{number}")
            await world.facts.seen("turn.answered", number)
    assert len(world.facts.of("budget.warned")) == 1


async def test_the_price_table_says_what_a_turn_costs(world: World, backend: Backend) -> None:
    """By the longest name that the model's begins with; what is cached has its own price."""
    agent = Spender(told=True)
    async with spending(world, Budgets(day=Budget(cost=1_000)), agent) as spends:
        spends.prices = {"*": Price(99, 99), "large": Price(input=2.0, output=10.0, cached=0.5)}
        await world.say("alice", "m-1")
        await world.facts.seen("turn.answered")
        await world.say("alice", "m-2")
        await world.facts.seen("turn.answered", 2)
    [spent] = await backend.spent()
    assert spent.usage.cost == 2 * (40 * 2 + 50 * 0.5 + 10 * 10)
    assert (spent.account.model, spent.account.user) == ("large-2026", "alice")
