"""Which session a turn goes on with, and how seldom its agent is asked about that."""

from __future__ import annotations

import pytest
from tests.flow.world import Thinker, World

from turnlane.agents.base import SessionState
from turnlane.backends.base import Backend
from turnlane.errors import AgentError, AgentFailed
from turnlane.flow.remember import VALID_MS, Memory
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock


class Librarian(Thinker):
    """Goes on with whatever it is handed, and can tell what has become of it."""

    def __init__(self) -> None:
        super().__init__(told=True)
        self.state: SessionState | AgentError = "alive"
        self.examined: list[str] = []
        self.begun = 0

    def answer(self, turn: Turn) -> Reply:
        if turn.session is None:
            self.begun += 1
        return Reply("yes", turn.session or f"s-{self.begun}", Usage(10, 5))

    async def examine(self, session: str) -> SessionState:
        self.examined.append(session)
        if isinstance(self.state, AgentError):
            raise self.state
        return self.state


async def turn_of(world: World, librarian: Librarian) -> Turn:
    answered = len(world.facts.of("turn.answered"))
    await world.say("alice", "hello")
    await world.facts.seen("turn.answered", answered + 1)
    return librarian.turns[-1]


async def totals(backend: Backend) -> tuple[str, int, int]:
    [session] = await backend.sessions()
    return session.handle, session.turns, session.usage.tokens


def working(world: World, librarian: Librarian):  # type: ignore[no-untyped-def]
    return world.working(agents={"agent": librarian}, memory=Memory(clock=world.clock, emit=world.tell), term_ms=10**9)


async def test_the_first_turn_begins_a_session_and_asks_nobody(world: World, backend: Backend) -> None:
    librarian = Librarian()
    async with working(world, librarian):
        assert (await turn_of(world, librarian)).session is None
    assert librarian.examined == []
    assert await totals(backend) == ("s-1", 1, 15)


async def test_a_session_that_was_used_a_while_ago_is_not_asked_about(world: World, clock: VirtualClock) -> None:
    """Nor by another process: that it was used stands in the store."""
    librarian = Librarian()
    async with working(world, librarian):
        await turn_of(world, librarian)
    clock.advance(VALID_MS - 1_000)
    async with working(world, librarian):
        assert (await turn_of(world, librarian)).session == "s-1"
    assert librarian.examined == []


@pytest.mark.parametrize(
    ("state", "handed", "after", "why"),
    [
        ("alive", "s-1", ("s-1", 2, 30), None),
        ("empty", "s-1", ("s-1", 1, 15), "nothing was said in it"),
        ("gone", None, ("s-2", 1, 15), "the last one is gone"),
        (AgentFailed("no answer"), "s-1", ("s-1", 2, 30), None),
    ],
)
async def test_what_its_agent_says_of_an_old_session_decides(
    world: World,
    backend: Backend,
    clock: VirtualClock,
    state: SessionState | AgentError,
    handed: str | None,
    after: tuple[str, int, int],
    why: str | None,
) -> None:
    """B3. A check that fails never stops an answer."""
    librarian = Librarian()
    async with working(world, librarian):
        await turn_of(world, librarian)
        clock.advance(VALID_MS)
        librarian.state = state
        assert (await turn_of(world, librarian)).session == handed
    assert librarian.examined == ["s-1"]
    assert await totals(backend) == after
    began = [(fact.facts["why"], fact.facts["dropped_tokens"]) for fact in world.facts.of("session.began")]
    assert began == [("first", 0)] + ([] if why is None else [(why, 15)])
    assert sum(spent.usage.tokens for spent in await backend.spent()) == 30


async def test_an_answer_about_a_session_is_remembered(world: World, clock: VirtualClock) -> None:
    """Also if the turn that asked failed, so that the store does not tell of a use."""
    librarian = Librarian()
    async with working(world, librarian):
        await turn_of(world, librarian)
        clock.advance(VALID_MS)
        librarian.hold()
        await world.say("alice", "hello")
        await librarian.asked(2)
    librarian.go()
    async with working(world, librarian):
        await world.facts.seen("turn.answered", 2)
    assert len(librarian.examined) == 2  # another process, which has not asked
    assert [fact.facts["known"] for fact in world.facts.of("session.reused")] == [False, False]
