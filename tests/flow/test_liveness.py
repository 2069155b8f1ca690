"""Workers stall, die and lose the store: their lanes go on elsewhere, and what they lost stays lost to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.flow.world import (
    A_SHORT_TERM_MS,
    AT_ONCE,
    BEATS_FOR_REAL,
    Thinker,
    Unreachable,
    Watched,
    World,
    crashing,
    ends,
    terms_pass,
)

from turnlane.backends.base import Backend
from turnlane.errors import BackendError, BackendUnavailable
from turnlane.flow import slot, worker
from turnlane.model.turn import Reply, Turn
from turnlane.testing.doubles import VirtualClock

TERM_MS = 30_000


@pytest.fixture(autouse=True)
def quick_reconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "RECONNECT_SECONDS", 0.01)
    monkeypatch.setattr(worker, "RECONNECT_SECONDS", 0.01)


def through(backend: Backend) -> Any:
    return Unreachable(backend)


@BEATS_FOR_REAL
async def test_a_lease_outlives_any_turn(world: World, backend: Backend, clock: VirtualClock) -> None:
    """PEERS: a turn of many terms, with a second worker that takes over whatever lapses."""
    agent, second = Thinker(), Thinker(told=True)
    renewing, watching = Watched(backend), Watched(backend)
    async with world.working(agent, backend=renewing, term_ms=A_SHORT_TERM_MS):
        await world.say("alice", "think for long")
        await agent.asked(1)
        async with world.working(second, backend=watching, term_ms=A_SHORT_TERM_MS):
            await terms_pass(clock, 4, renewing, watching)
            agent.go()
            await world.desk.has(1)
            await world.settled()
    assert (len(agent.turns), second.turns) == (1, [])
    assert world.facts.of("worker.lost") == []


async def test_a_new_worker_says_how_many_leases_of_the_dead_it_found(world: World, clock: VirtualClock) -> None:
    """C7: more than ten of them are an alert."""
    agent = Thinker()
    async with crashing(world.new_worker(agent, term_ms=TERM_MS, turns_at_once=12)):
        for number in range(12):
            await world.say(f"user-{number}", "hello")
        await agent.asked(12)
    clock.advance(TERM_MS + 1)
    async with world.working(Thinker(told=True), term_ms=TERM_MS):
        found = await world.facts.seen("lanes.recovered")
    assert (found.facts["lanes"], found.facts["at_start"]) == (12, True)


async def test_what_is_found_later_was_not_there_at_the_start(world: World, clock: VirtualClock) -> None:
    worker = world.new_worker(Thinker(), term_ms=TERM_MS)
    for passed, at_start in [(2 * TERM_MS, True), (1, False)]:
        clock.advance(passed)
        worker._tell_of_the_recovered(3)
        assert world.facts.of("lanes.recovered")[-1].facts["at_start"] is at_start


async def test_a_stalled_worker_whose_lane_was_taken_over_changes_nothing_and_says_nothing(
    world: World, clock: VirtualClock
) -> None:
    """C4 and PEERS: it wakes up late, and its commit is fenced."""
    slow, quick = Unstoppable(), Thinker(told=True)
    slow.answer = lambda turn: Reply("from the stalled one", session="stale")  # type: ignore[method-assign]
    quick.answer = lambda turn: Reply("from the live one", session="live")  # type: ignore[method-assign]
    async with world.working(slow, term_ms=TERM_MS, turns_at_once=1):
        await world.say("alice", "hello")
        await slow.asked(1)
        clock.advance(TERM_MS + 1)
        async with world.working(quick, term_ms=TERM_MS):
            await world.desk.has(1)
            slow.go()
            fenced = await world.facts.seen("turn.fenced")
            await world.settled()
    assert world.desk.texts() == ["from the live one"]
    assert fenced.facts["epoch"] == 1
    story = await world.backend.story("desk/alice")
    assert story is not None
    assert [turn.session for turn in story.turns] == ["live"]


class Unstoppable(Thinker):
    """Goes on when it is cancelled, as a stalled process does that nobody can reach."""

    async def respond(self, turn: Turn) -> Reply:
        try:
            return await super().respond(turn)
        except asyncio.CancelledError:
            await self._told.wait()
            return self.answer(turn)


@BEATS_FOR_REAL
async def test_a_crashed_workers_conversations_are_taken_over_when_its_lease_lapses(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """C5 and PEERS (a dead worker's lane resumes by itself): by a worker that has been running all along."""
    dying, living, renewing = Thinker(), Thinker(told=True), Watched(backend)
    survivor = world.new_worker(living, backend=renewing, term_ms=A_SHORT_TERM_MS)
    async with crashing(world.new_worker(dying, term_ms=A_SHORT_TERM_MS, turns_at_once=3)):
        for who in ("alice", "bob", "carol"):
            await world.say(who, f"I am {who}")
        await dying.asked(3)
        run = asyncio.create_task(survivor.run())
        await world.facts.seen("worker.joined", 2)
    assert world.facts.of("worker.lost") == []
    await terms_pass(clock, 2, renewing)
    await world.desk.has(3)
    survivor.stop()
    await ends(run)
    assert sorted(world.desk.texts()) == ["re: I am alice", "re: I am bob", "re: I am carol"]
    assert {turn.attempt for turn in living.turns} == {2}


async def test_orphaned_messages_are_found_without_a_restart(world: World) -> None:
    """C6: stored while nobody worked; whoever comes answers them."""
    await world.say("alice", "anybody there?")
    async with world.working(Thinker(told=True)):
        assert await world.desk.has(1) == ["re: anybody there?"]


async def test_a_worker_declared_dead_stops_its_runs_and_goes_on_under_a_new_id(world: World, backend: Backend) -> None:
    agent = Thinker()
    async with world.working(agent):
        await world.say("alice", "hello")
        await agent.asked(1)
        (before,) = await backend.workers()
        await backend.leave(before.id)
        turn = await agent.asked(2)
        assert len(agent.cancelled) == 1
        agent.go()
        assert await world.desk.has(1) == ["re: hello"]
        after = [each for each in await backend.workers() if each.live]
    assert turn.epoch == 2
    assert [each.id for each in after] != [before.id]
    assert len(after) == 1


async def test_a_worker_is_never_known_by_pid_or_host_name(world: World, backend: Backend) -> None:
    """PEERS: its id is fresh at every start."""
    for _ in range(3):
        async with world.working(Thinker()):
            await world.facts.seen("worker.joined")
    ids = [each.id for each in await backend.workers()]
    assert len(set(ids)) == len(ids)


async def test_a_commit_is_repeated_until_the_store_is_back(world: World, backend: Backend) -> None:
    """The answer is paid for: it is neither lost nor asked for again."""
    away = through(backend)
    agent = Thinker()
    async with world.working(agent, backend=away):
        await world.say("alice", "hello")
        await agent.asked(1)
        away.down |= {"commit", "claim", "renew"}
        agent.go()
        await away.refuses(3)
        assert world.desk.tried == []
        away.down.clear()
        assert await world.desk.has(1) == ["re: hello"]
    assert len(agent.turns) == 1


async def test_a_commit_that_was_done_though_its_answer_got_lost_is_not_done_twice(
    world: World, backend: Backend
) -> None:
    """Contract 5: repeated after an unknown outcome, it answers what it answered the first time."""
    lossy = Lossy(backend)
    async with world.working(Thinker(told=True), backend=lossy):
        await world.say("alice", "one")
        await world.desk.has(1)
        await world.say("alice", "two")
        assert await world.desk.has(2) == ["re: one", "re: two"]
        await world.settled()
    assert len(lossy.lost) == 4
    assert len(world.desk.tried) == 2
    assert world.facts.of("turn.fenced") == world.facts.of("delivery.fenced") == []


class Lossy(Unreachable):
    """Does every commit, and loses its first answer."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.lost: set[Any] = set()

    async def commit(self, lease: Any, outcome: Any, *, take_next: bool = False) -> Any:
        committed = await self._backend.commit(lease, outcome, take_next=False)
        key = (lease.kind, lease.key, lease.number)
        if key not in self.lost:
            self.lost.add(key)
            raise BackendUnavailable("the answer got lost")
        return committed


async def test_messages_wait_while_the_store_cannot_be_reached_and_are_answered_after(
    world: World, backend: Backend
) -> None:
    away = through(backend)
    async with world.working(Thinker(told=True), backend=away):
        await world.facts.seen("worker.joined")
        away.down |= {"claim", "commit", "renew", "reap"}
        await world.say("alice", "first")
        await away.refuses(1)
        await world.say("bob", "second")
        away.down.clear()
        await world.desk.has(2)
    assert sorted(world.desk.texts()) == ["re: first", "re: second"]


@BEATS_FOR_REAL
async def test_past_two_thirds_of_the_term_without_a_renewal_runs_are_stopped_before_anybody_takes_over(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """Contract 5 of lanes: the worker judges by its own clock, and stops while its lease is still good."""
    away = through(backend)
    agent = Thinker()
    async with world.working(agent, backend=away, term_ms=A_SHORT_TERM_MS):
        await world.say("alice", "hello")
        await agent.asked(1)
        away.down |= {"renew", "reap", "leave", "join"}
        await away.refuses(2)
        assert agent.cancelled == []
        clock.advance(A_SHORT_TERM_MS * 2 // 3 + 1)
        await agent.was_cancelled()
        (lock,) = await backend.locks()
        assert clock.now() < (lock.worker_alive_until or 0)
        away.down.clear()
        agent.go()
        assert await world.desk.has(1) == ["re: hello"]
    assert len(agent.turns) == 2


@BEATS_FOR_REAL
async def test_a_worker_that_was_stopped_for_a_while_reaps_nobody_for_a_term(
    world: World, backend: Backend, clock: VirtualClock
) -> None:
    """Contract 2 of lanes: what it missed, it must not mistake for the death of others."""
    watched = Watched(backend)
    async with world.working(Thinker(), backend=watched, term_ms=A_SHORT_TERM_MS):
        await watched.was_called("reap", 2)
        clock.advance(10_000)
        await watched.renews()
        reaped = watched.calls.count("reap")
        for _ in range(3):
            await watched.renews()
        assert watched.calls.count("reap") == reaped
        for _ in range(2):
            clock.advance(50)
            await watched.renews()
        await watched.was_called("reap", reaped + 1)


async def test_a_worker_that_cannot_stay_alive_ends_with_the_reason(world: World, backend: Backend) -> None:
    """Half a worker would only look alive: a damaged store ends it, and whoever started it hears why."""

    class Damaged(Unreachable):
        async def renew(self, *_: object) -> bool:
            await agent.asked(1)
            raise BackendError("the file is damaged; restore a backup")

    agent = Thinker()
    run = asyncio.create_task(world.new_worker(agent, backend=Damaged(backend), term_ms=60).run())
    await world.say("alice", "hello")
    await agent.asked(1)
    with pytest.raises(BackendError, match="restore a backup"):
        await ends(run)
    assert agent.running == []


@pytest.mark.parametrize(("ack", "answers"), [("commit", ["hello"]), ("claim", [])])
async def test_a_crash_repeats_the_turn_or_loses_it_as_the_operator_chose(
    world: World, clock: VirtualClock, ack: Any, answers: list[str]
) -> None:
    """D4: `commit` never loses a turn, `claim` never repeats one; what is lost is kept as a dead letter."""
    policy = replace(AT_ONCE, ack=ack)
    dying, living = Thinker(), Thinker(told=True)
    async with crashing(world.new_worker(dying, term_ms=TERM_MS)):
        await world.say("alice", "hello", policy=policy)
        await dying.asked(1)
    clock.advance(TERM_MS + 1)
    async with world.working(living, term_ms=TERM_MS):
        await world.facts.seen("worker.lost")
        await world.say("alice", "next", policy=policy)
        await world.settled()
    assert [turn.text for turn in living.turns] == [*answers, "next"]
    assert len(await world.backend.dead_letters()) == (0 if answers else 1)


async def test_with_claim_a_failed_turn_is_not_tried_again(world: World) -> None:
    """D4"""

    async def answer(turn: Turn) -> str:
        if turn.text == "crash":
            raise RuntimeError("after its effects")
        return turn.text

    policy = replace(AT_ONCE, ack="claim")
    async with world.working(answer):
        await world.say("alice", "crash", policy=policy)
        await world.facts.seen("turn.dead_lettered")
        await world.say("alice", "next", policy=policy)
        assert await world.desk.has(1) == ["next"]


async def test_takeovers_are_bounded(world: World, clock: VirtualClock) -> None:
    """PEERS (a poison turn stops after its attempts), for a turn that takes its process with it every time."""
    policy = replace(AT_ONCE, takeovers=2)
    await world.say("alice", "deadly", policy=policy)
    agent = Thinker()
    for death in range(1, 4):
        async with crashing(world.new_worker(agent, term_ms=TERM_MS)):
            await agent.asked(death)
        clock.advance(TERM_MS + 1)
    agent.go()
    async with world.working(agent, term_ms=TERM_MS):
        await world.facts.seen("turn.dead_lettered")
        await world.say("alice", "harmless", policy=policy)
        assert await world.desk.has(1) == ["re: harmless"]
    (dead,) = await world.backend.dead_letters()
    assert dead.turn.cause == "its worker was lost 3 times"
