"""Stored first, told after: what was accepted survives everything, and is answered by whoever comes next."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.flow.world import A_TERM_MS, AT_ONCE, Thinker, Unreachable, World, crashing

from turnlane.backends.base import Arrival, Backend, open_backend
from turnlane.errors import BackendUnavailable
from turnlane.flow.receive import receive
from turnlane.model.lane import Lane
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock


@asynccontextmanager
async def opened(path: Path, clock: VirtualClock) -> AsyncIterator[World]:
    """The same file again, as after a restart."""
    backend = open_backend(f"sqlite:///{path}/store.db?synchronous=off", clock)
    await backend.open()
    try:
        yield World(backend, clock, said=(await backend.counts()).lanes.get("idle", 0) * 100)
    finally:
        await backend.close()


async def test_the_user_is_told_queued_only_after_it_is_stored(world: World, backend: Backend) -> None:
    """PEERS and C2: `receive` returns, and with it the web hook, once the store has it and not before."""

    class Slow(Unreachable):
        def __init__(self) -> None:
            super().__init__(backend)
            self.asked, self.go = asyncio.Event(), asyncio.Event()

        async def accept(self, arrivals: list[Arrival]) -> object:
            self.asked.set()
            await self.go.wait()
            return await backend.accept(arrivals)

    slow = Slow()
    telling = asyncio.create_task(
        receive([world.message("alice", "hello")], backend=slow, policy_for=lambda _: AT_ONCE)  # type: ignore[arg-type] # by name
    )
    await slow.asked.wait()
    assert not telling.done()
    assert await backend.lanes() == []
    slow.go.set()
    assert (await telling).accepted == 1
    assert [lane.pending for lane in await backend.lanes()] == [1]


async def test_what_could_not_be_stored_is_refused_and_nothing_is_half_stored(world: World, backend: Backend) -> None:
    """C2: after a refusal, sending everything again is safe."""
    away = Unreachable(backend)
    away.down.add("accept")
    messages = [world.message("alice", "one"), world.message("bob", "two")]
    with pytest.raises(BackendUnavailable):
        await receive(messages, backend=away, policy_for=lambda _: AT_ONCE)
    assert await backend.lanes() == []
    again = [await receive(messages, backend=backend, policy_for=lambda _: AT_ONCE) for _ in range(2)]
    assert [(each.accepted, each.duplicates) for each in again] == [(2, 0), (0, 2)]


async def test_nothing_received_asks_the_store_for_nothing(backend: Backend) -> None:
    away = Unreachable(backend)
    away.down.add("accept")
    received = await receive([], backend=away, policy_for=lambda _: AT_ONCE)
    assert received.accepted == 0


async def test_messages_that_no_turn_acknowledged_are_processed_on_start_and_sessions_survive(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """A13"""

    async def answer(turn: Turn) -> Reply:
        return Reply(f"{turn.text} in {turn.session}", session="session-1")

    async with opened(tmp_path, clock) as world, world.working(answer):
        await world.say("alice", "first")
        await world.desk.has(1)
        await world.settled()
    agent = Thinker()
    async with opened(tmp_path, clock) as world:
        async with crashing(world.new_worker(agent, term_ms=30_000)):
            await world.say("alice", "second")
            await agent.asked(1)
        await world.say("alice", "third")
    clock.advance(30_001)
    async with opened(tmp_path, clock) as world, world.working(answer, term_ms=30_000):
        # The batch that was begun stays as it was.
        assert await world.desk.has(2) == ["second in session-1", "third in session-1"]


async def test_every_message_is_stored_once_however_often_it_comes_and_with_all_that_belongs_to_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """A15 and PEERS: a redelivered message is accepted once and never lost, through a restart and after its answer."""
    message = Message("desk", "e-1", "desk/thread", "alice", "hello", sent_at=7)
    verdicts, story = [], None
    for _ in range(3):
        async with opened(tmp_path, clock) as world, world.working(Thinker(told=True)):
            for _ in range(2):
                (acceptance,) = await world.backend.accept([Arrival(message, AT_ONCE)])
                verdicts.append(acceptance.verdict)
            await world.settled()
            story = await world.backend.story("desk/thread")
    assert verdicts == ["accepted", *["duplicate"] * 5]
    assert story is not None
    (stored,) = story.messages
    assert (stored.id, stored.channel, stored.conversation) == ("desk:e-1", "desk", "desk/thread")
    assert (stored.sender, stored.text, stored.sent_at) == ("alice", "hello", 7)
    assert [turn.outcome for turn in story.turns] == ["answered"]
    assert len(story.deliveries) == 1


async def test_sessions_are_stored_with_when_they_were_used_and_what_they_cost(world: World) -> None:
    """A15"""

    async def answer(turn: Turn) -> Reply:
        return Reply("ok", session="session-1", usage=Usage(10, 2))

    async with world.working(answer):
        for number in (1, 2):
            await world.say("alice", "hello")
            await world.facts.seen("turn.answered", number)
    story = await world.backend.story("desk/alice")
    assert story is not None
    session = story.sessions["agent"]
    assert (session.handle, session.turns, session.usage) == ("session-1", 2, Usage(20, 4))
    assert session.updated_at == world.clock.now()


async def test_idle_lanes_cost_no_memory(tmp_path: Path, clock: VirtualClock) -> None:
    """A6: after a conversation went quiet nothing of it is left in the process; its session is found in the store."""
    seen: list[str | None] = []

    async def answer(turn: Turn) -> Reply:
        if turn.conversation == "desk/user-0":
            seen.append(turn.session)
        return Reply("ok", session=f"session of {turn.conversation}")

    async with opened(tmp_path, clock) as world, world.working(answer, term_ms=A_TERM_MS):
        world.facts.all = _Forgetful()
        world.desk.sent = world.desk.tried = _Forgetful()
        after = []
        for conversations in (range(20), range(20, 120), range(120, 620)):
            for number in conversations:
                await world.say(f"user-{number}", "hello")
            await world.settled()
            clock.advance(60_000)
            await world.say("witness", "time passes")
            await world.settled()
            await world.backend.reap()  # answered only when whoever sent the last one has heard that it is settled
            after.append(_objects())
        await world.say("user-0", "still me")
        await world.settled()
    assert seen == [None, "session of desk/user-0"]
    assert after[2] == after[1] == after[0]


def _objects() -> dict[str, int]:
    gc.collect()
    kinds: tuple[Callable[..., object], ...] = (Message, Lane, Lease, Turn, Reply, asyncio.Task, asyncio.Event)
    everything = gc.get_objects()
    return {kind.__name__: sum(isinstance(each, kind) for each in everything) for kind in kinds}  # type: ignore[arg-type] # classes


class _Forgetful(list):  # type: ignore[type-arg] # whatever is put in
    """A test that counts objects must not keep them."""

    def append(self, _: object) -> None:
        """Gone."""

    def __iadd__(self, _: object) -> _Forgetful:  # type: ignore[misc] # the same
        return self
