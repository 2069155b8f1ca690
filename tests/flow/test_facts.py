"""Every decision is told as a fact with a documented name and exactly the documented particulars."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.flow.world import A_SHORT_TERM_MS, AT_ONCE, Desk, GoesOn, Thinker, Unreachable, World, crashing, ends

from turnlane.agents.base import SessionState
from turnlane.backends.base import Arrival, Backend
from turnlane.errors import AgentFailed, AgentRefused
from turnlane.flow.remember import Memory
from turnlane.flow.slot import STOP_AGAIN_SECONDS
from turnlane.flow.spending import Spending
from turnlane.model.budget import Budget, Budgets
from turnlane.model.delivery import NotSent, Refused
from turnlane.model.event import EVENTS, Event
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Delivered, Fired, Released, Replied, Reply, Turn
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock

TERM_MS = 30_000
GATHERS = replace(AT_ONCE, debounce_ms=3_000, max_wait_ms=15_000)
INTERRUPT = replace(AT_ONCE, on_busy="interrupt")
TOLD_BY_OTHERS = {
    "store.waiting",
    "store.copied",
    "server.ready",
    "server.draining",
    "hook.received",
    "hook.refused",
    "hook.ignored",
    "hook.aside",
    "indication.failed",
    "profile.enriched",
    "profile.unenriched",
    "profile.fallback",
    "activity.untold",
    "alert.raised",
    "alert.cleared",
    "alert.untold",
    "settings.applied",
    "settings.ignored",
    "operator.acted",
    "login.accepted",
    "login.refused",
}


def documented(name: str) -> set[str]:
    """`A sentence or two. fact, fact, fact`"""
    return set(EVENTS[name].rpartition(". ")[2].split(", "))


async def test_every_decision_of_a_life_is_told_with_exactly_the_documented_facts(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """B8"""
    await _a_good_day(world)
    await _a_bad_day(world, clock)
    await _steered(world)
    await _too_busy(world)
    await _asked(world)
    await _away(world)
    await _stopped(world)
    await _called_off(world, clock)
    await _unseen(world)
    await _deaf(world)
    await _unstopped(world, clock)
    await _lost_and_fenced(world, clock)
    await _scheduled(world, clock)
    await backend.configure("lanes.debounce", "1s")
    await _moved(world)
    await _spent(world)
    await _remembered(world)
    wrong = [(each.name, sorted(each.facts)) for each in world.facts.all if set(each.facts) != documented(each.name)]
    assert wrong == []
    assert set(world.facts.names()) == set(EVENTS) - TOLD_BY_OTHERS


async def test_what_was_told_is_what_was_stored(world: World, backend: Backend) -> None:
    """B8: whoever asks the store later reads the same facts, in the same order."""
    await _a_good_day(world)
    assert [stored.event for stored in await backend.events()] == world.facts.all


async def test_the_facts_of_a_turn_say_who_what_and_how_long(world: World, clock: VirtualClock) -> None:
    """B8"""
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "hello", policy=replace(AT_ONCE, debounce_ms=3_000, max_wait_ms=15_000))
        clock.advance(3_000)
        await agent.asked(1)
        clock.advance(500)
        agent.go()
        await world.facts.seen("delivery.sent")
        (worker,) = await world.backend.workers()
    assert _told(world, "turn.started") == [
        {"turn": 1, "attempt": 1, "epoch": 1, "worker": worker.id, "messages": 1, "waited_ms": 3_000}
    ]
    (answered,) = _told(world, "turn.answered")
    assert (answered["took_ms"], answered["deliveries"]) == (500, 1)
    assert {each.conversation for each in world.facts.all if not each.name.startswith("worker.")} == {"desk/alice"}


async def _a_good_day(world: World) -> None:
    async with world.working(Thinker(told=True)):
        message = Arrival(world.message("alice", "hello"), AT_ONCE)
        await world.backend.accept([message])
        await world.backend.accept([message])
        await world.facts.seen("delivery.sent")


async def _a_bad_day(world: World, clock: VirtualClock) -> None:
    errors = [AgentFailed("once"), AgentRefused("for good")]

    async def answer(turn: Turn) -> str:
        if errors:
            raise errors.pop(0)
        return "at last"

    async with world.working(answer):
        await world.say("bob", "one")
        await world.facts.seen("turn.retried")
        clock.advance(5_000)
        await world.facts.seen("turn.dead_lettered")
        await world.backend.drop_dead_letter("desk/bob", 1)
        world.desk.results.extend([NotSent("busy", retry_after=1.0), Refused("never")])
        await world.say("bob", "two")
        await world.facts.seen("delivery.retried")
        clock.advance(1_000)
        await world.facts.seen("delivery.failed")
        world.desk.results.extend([Refused("nobody is there", gone=True)])
        await world.backend.resend("desk/bob", 1)
        await world.facts.seen("conversation.gone")
        await world.backend.drop("desk/bob", 2)
        await world.say("bob", "three")
        await world.settled("desk/bob")
        await world.backend.report("desk/bob", (await world.backend.deliveries("desk/bob"))[-1].seq, "read")


async def _deaf(world: World) -> None:
    class Deaf(Thinker):
        async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
            raise OSError("cannot hear")

    agent, policy = Deaf(), replace(AT_ONCE, on_busy="steer")
    async with world.working(agent):
        await world.say("hans", "one", policy=policy)
        await agent.asked(1)
        await world.say("hans", "two", policy=policy)
        await world.facts.seen("steering.failed")
        agent.go()
        await world.settled("desk/hans")


async def _unstopped(world: World, clock: VirtualClock) -> None:
    agent = GoesOn(swallows=1)
    async with world.working(agent):
        await world.say("ida", "go on", policy=replace(AT_ONCE, turn_deadline_ms=1_000))
        await agent.asked(1)
        clock.advance(1_000)
        await agent.was_stopped(1)
        clock.advance(int(STOP_AGAIN_SECONDS * 1_000))
        await world.facts.seen("stopping.failed")
        await world.facts.seen("turn.retried", conversation="desk/ida")
        agent.go()
        clock.advance(5_000)
        await world.settled("desk/ida")


async def _unseen(world: World) -> None:
    class Blind(Desk):
        async def show(self, conversation: str, turn: int, text: str | None) -> None:
            raise OSError("nobody can look")

    agent = Thinker()
    async with world.working(agent, channels=[Blind()]):
        await world.say("erin", "show me")
        (await agent.asked(1)).show("some of it")
        await world.facts.seen("preview.failed")
        agent.go()
        await world.settled("desk/erin")


async def _steered(world: World) -> None:
    async with world.working(Thinker(told=True), channels=[Desk("another")]):
        await world.say("carol", "parked", policy=replace(AT_ONCE, agent="nobody"))
        await world.facts.seen("lane.parked")
        await world.say("carol", "on", "and on", policy=replace(AT_ONCE, agent="nobody", max_pending=2))
        await world.backend.pause("desk/carol")
        await world.backend.behave("desk/carol", "queue")
        await world.backend.unpark("desk/carol")
        await world.backend.retry("desk/carol")
        await world.backend.skip("desk/carol")
        await world.backend.retry_dead_letter("desk/carol", 1)
        await world.backend.resume("desk/carol")
        await world.facts.seen("lane.parked", 2)
        await world.backend.accept([Arrival(replace(world.message("carol", "hm"), role="business"), AT_ONCE)])


async def _too_busy(world: World) -> None:
    """A turn that is interrupted, a mailbox that drops, and one that refuses."""
    agent = Thinker()
    await world.backend.accept([Arrival(world.message("fred", "/status"), AT_ONCE, "status")])
    async with world.working(agent):
        await world.say("fred", "one", policy=INTERRUPT)
        await agent.asked(1)
        await world.say("fred", "two", policy=INTERRUPT)
        await world.facts.seen("turn.superseded")
        await agent.asked(2)
        await world.say("fred", "three", "four", policy=replace(AT_ONCE, max_pending=3, on_full="drop_oldest"))
        await world.say("fred", "five", policy=replace(AT_ONCE, max_pending=1, on_full="reject"))
        await world.facts.seen("message.refused")
        agent.go()
        await world.settled("desk/fred")


async def _asked(world: World) -> None:
    async def answer(turn: Turn) -> str | None:
        return (await turn.ask("Sure?")).text

    async with world.working(answer):
        await world.say("gina", "deploy")
        await world.facts.seen("turn.asked")
        await world.facts.seen("delivery.started", conversation="desk/gina")
        await world.say("gina", "yes")
        await world.settled("desk/gina")


async def _away(world: World) -> None:
    away = Unreachable(world.backend)
    async with world.working(Thinker(), backend=away, term_ms=A_SHORT_TERM_MS):
        away.down |= {"join", "renew", "reap"}
        await world.facts.seen("store.unavailable")
        away.down.clear()
        await world.facts.seen("store.available")


async def _stopped(world: World) -> None:
    """A turn and a sending that are given back."""
    agent = Thinker()
    world.desk.hold()
    worker = world.new_worker(agent)
    run = asyncio.create_task(worker.run())
    await world.say("dora", "hello")
    await agent.asked(1)
    agent.go()
    await world.desk.was_tried(1)
    agent.hold()
    await world.say("dora", "again")
    await agent.asked(2)
    worker.stop_now()
    await ends(run)
    world.desk.go()
    agent.go()
    async with world.working(agent):
        await world.settled("desk/dora")


async def _called_off(world: World, clock: VirtualClock) -> None:
    """Somebody types, and an operator stops what was said before and while a turn runs."""
    await world.say("gathering", "hello", policy=GATHERS)
    clock.advance(1_000)
    assert await world.backend.typing("desk/gathering")
    assert await world.backend.stop("desk/gathering")
    agent = Thinker()
    async with world.working(agent):
        await world.say("frida", "hello")
        await agent.asked(1)
        await world.backend.stop("desk/frida")
        await world.facts.seen("lane.freed")


async def _lost_and_fenced(world: World, clock: VirtualClock) -> None:
    """A turn and a sending whose worker dies, and comes back to find both taken over."""
    agent = Thinker()
    world.desk.hold()
    tried = len(world.desk.tried)
    doomed = world.new_worker(agent, term_ms=TERM_MS)
    async with crashing(doomed):
        await world.say("emil", "hello")
        await agent.asked(1)
        agent.go()
        await world.desk.was_tried(tried + 1)
        agent.hold()
        await world.say("emil", "again")
        await agent.asked(2)
        stale = [slot.lease for slot in doomed._slots if slot.lease is not None]
    clock.advance(TERM_MS + 1)
    world.desk.go()
    agent.go()
    async with world.working(agent, term_ms=TERM_MS):
        await world.settled("desk/emil")
    assert {lease.kind for lease in stale} == {Kind.TURN, Kind.OUT}
    for lease in stale:
        outcome = Replied(Reply("stale")) if lease.kind is Kind.TURN else Delivered()
        assert (await world.backend.commit(lease, outcome)).verdict == "fenced"


async def _moved(world: World) -> None:
    """A session that is on one machine is left to it, and taken over when that is gone."""
    backend = world.backend
    await backend.join("here", TERM_MS, "north")
    await backend.join("there", TERM_MS, "south")
    for number in (1, 2):
        message = Message("desk", f"moved-{number}", "desk/mona", "mona", "hello")
        await backend.accept([Arrival(message, AT_ONCE)])
        if number == 1:
            for lease in await backend.claim("here", Kind.TURN, most=10):  # others may wait from the days before
                await backend.commit(lease, Replied(Reply(None, lease.key, local=True)))
    assert await backend.claim("there", Kind.TURN) == []
    await backend.leave("here")
    [lease] = await backend.claim("there", Kind.TURN)
    await backend.commit(lease, Replied(Reply(None)))
    await backend.leave("there")


async def _spent(world: World) -> None:
    """A budget that is used up by the first turn, and a session that is forgotten."""

    async def answer(turn: Turn) -> Reply:
        return Reply(None, "s-1", Usage(90, 10))

    spending = Spending(backend=world.backend, clock=world.clock, emit=world.tell)
    spending.budgets = Budgets(session=Budget(tokens=100), user=Budget(tokens=100, stops=False))
    async with world.working(answer, spending=spending):
        answered = len(world.facts.of("turn.answered"))
        await world.say("paula", "one")
        await world.facts.seen("turn.answered", answered + 1)
        await world.backend.renew_session("desk/paula")
        await world.say("paula", "two")
        await world.facts.seen("turn.answered", answered + 2)
        await world.say("paula", "three")
        await world.facts.seen("budget.stopped")


class Forgetful:
    """Says of its sessions that they are there, that nobody can tell, and whatever else it is told to."""

    def __init__(self) -> None:
        self.states: list[SessionState | AgentFailed] = []

    async def respond(self, turn: Turn) -> Reply:
        return Reply(None, "s-2")

    async def examine(self, session: str) -> SessionState:
        state = self.states.pop(0)
        if isinstance(state, AgentFailed):
            raise state
        return state

    async def close(self) -> None:
        """Nothing is held."""


async def _remembered(world: World) -> None:
    agent = Forgetful()
    async with world.working(agents={"agent": agent}, memory=Memory(clock=world.clock, emit=world.tell, valid_ms=0)):
        agent.states = ["alive", AgentFailed("no answer"), "gone"]
        for number in range(4):
            answered = len(world.facts.of("turn.answered"))
            await world.say("quentin", f"q-{number}")
            await world.facts.seen("turn.answered", answered + 1)


async def _scheduled(world: World, clock: VirtualClock) -> None:
    """A due schedule that is given back, lost with its worker, and fired late."""
    backend = world.backend
    await backend.schedule(Schedule("pulse", "desk/ida", "beat", every_ms=1_000), AT_ONCE)
    clock.advance(1_000)
    await backend.join("first", 1_000)
    (lease,) = await backend.claim("first", Kind.TICK)
    await backend.commit(lease, Released())
    (stale,) = await backend.claim("first", Kind.TICK)
    clock.advance(1_001)
    await backend.reap()
    await backend.join("second", 1_000)
    (lease,) = await backend.claim("second", Kind.TICK)
    assert (await backend.commit(stale, Fired())).verdict == "fenced"
    assert (await backend.commit(lease, Fired())).verdict == "fired"
    await backend.unschedule("pulse")


def _told(world: World, name: str) -> list[dict[str, object]]:
    return [dict(event.facts) for event in world.facts.of(name)]


def test_the_facts_are_documented_in_one_form() -> None:
    """B8: names and particulars are words that stay; a sentence says what happened."""
    for name in EVENTS:
        assert name.count(".") == 1
        assert all(fact.replace("_", "").isalpha() for fact in documented(name))
    assert isinstance(Event("worker.joined", 0).facts, dict)
