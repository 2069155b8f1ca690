"""History goes when it is old; what still matters stays."""

from __future__ import annotations

from dataclasses import replace

from tests.sqlite.arrivals import AT_ONCE, arrival

from turnlane.backends.base import Arrival
from turnlane.backends.sql import backend
from turnlane.backends.sqlite import SqliteBackend
from turnlane.model.lane import Kind
from turnlane.model.turn import Delivered, GaveUp, Replied, Reply, RetryLater
from turnlane.testing.doubles import VirtualClock

TERM_MS = 10_000_000
A_DAY_MS = 86_400_000


async def forget_all(store: SqliteBackend, clock: VirtualClock, *, origins_before: int | None = None) -> int:
    now = clock.now()
    return await store.forget(messages_before=now, events_before=now, origins_before=origins_before or now)


async def test_forgetting_keeps_dead_letters_pending_messages_and_unsent_deliveries(
    store: SqliteBackend, clock: VirtualClock
) -> None:
    await store.join("worker", TERM_MS)
    for who in ("answered", "dead", "pending", "unsent", "failed"):
        await store.accept([arrival(who, f"m-{who}")])
    for lease in await store.claim("worker", Kind.TURN, most=5):
        if lease.key == "desk/dead":
            await store.commit(lease, GaveUp("poison"))
        elif lease.key == "desk/pending":
            await store.commit(lease, RetryLater(at=clock.now() + A_DAY_MS, cause="later"))
        else:
            await store.commit(lease, Replied(Reply("ok", session="session-1")))
    for lease in await store.claim("worker", Kind.OUT, most=3):
        if lease.key == "desk/answered":
            await store.commit(lease, Delivered("receipt"))
        elif lease.key == "desk/failed":
            await store.commit(lease, GaveUp("refused"))
    clock.advance(1)
    assert await forget_all(store, clock) > 0

    answered = await store.story("desk/answered")
    assert answered is not None
    assert (answered.messages, answered.turns, answered.deliveries) == ((), (), ())
    assert answered.sessions["agent"].handle == "session-1"
    (dead,) = await store.dead_letters()
    assert [message.text for message in dead.messages] == ["hello"]
    assert [view.conversation for view in await store.outbox(state="failed")] == ["desk/failed"]
    assert [view.conversation for view in await store.outbox()] == ["desk/unsent"]
    clock.advance(A_DAY_MS)
    await store.renew("worker", TERM_MS, [])
    (pending,) = await store.claim("worker", Kind.TURN)
    assert [message.text for message in pending.messages] == ["hello"]


async def test_what_others_said_long_ago_is_not_told_any_more_and_holds_nothing_up(
    store: SqliteBackend, clock: VirtualClock
) -> None:
    await store.join("worker", TERM_MS)
    word = arrival("alice", "m-1")
    await store.accept([replace(word, message=replace(word.message, role="business"))])
    clock.advance(120_000)  # long enough for the process to forget it, too
    await forget_all(store, clock)
    await store.resume("desk/alice")
    await store.accept([arrival("alice", "m-2")])
    (lease,) = await store.claim("worker", Kind.TURN)
    assert ([message.origin_id for message in lease.messages], lease.heard) == (["m-2"], ())


async def test_a_message_is_recognised_for_as_long_as_its_origin_is_remembered(
    store: SqliteBackend, clock: VirtualClock
) -> None:
    """A15: longer than the message itself is kept, and no longer."""
    await store.join("worker", TERM_MS)
    await store.accept([arrival("alice", "m-1")])
    (lease,) = await store.claim("worker", Kind.TURN)
    await store.commit(lease, Replied(Reply(None)))
    clock.advance(1)
    await forget_all(store, clock, origins_before=clock.now() - 1)
    story = await store.story("desk/alice")
    assert story is not None
    assert story.messages == ()
    (known,) = await store.accept([arrival("alice", "m-1")])
    assert (known.verdict, known.seq) == ("duplicate", 1)
    await forget_all(store, clock)
    (anew,) = await store.accept([arrival("alice", "m-1")])
    assert (anew.verdict, anew.seq) == ("accepted", 2)


async def test_nothing_is_old_that_is_younger_than_asked(store: SqliteBackend, clock: VirtualClock) -> None:
    await store.accept([arrival("alice", "m-1")])
    before = clock.now() - 1
    assert await store.forget(messages_before=before, events_before=before, origins_before=before) == 0


async def test_more_than_a_page_of_history_goes_in_one_call(store: SqliteBackend, clock: VirtualClock) -> None:
    await store.join("worker", TERM_MS)
    count = backend.FORGET_ROWS * 2 + 1
    policy = replace(AT_ONCE, max_batch=count)
    await store.accept([Arrival(arrival("alice", f"m-{n}").message, policy) for n in range(count)])
    (lease,) = await store.claim("worker", Kind.TURN)
    await store.commit(lease, Replied(Reply(None)))
    clock.advance(1)
    assert await forget_all(store, clock) >= 2 * count
    assert await forget_all(store, clock) <= 1


async def test_dead_workers_are_forgotten_once_they_own_nothing(store: SqliteBackend, clock: VirtualClock) -> None:
    await store.join("gone", 10)
    await store.leave("gone")
    await store.join("holds", 10)
    await store.accept([arrival("alice", "m-1")])
    assert len(await store.claim("holds", Kind.TURN)) == 1
    clock.advance(A_DAY_MS)
    await forget_all(store, clock)
    assert [view.id for view in await store.workers()] == ["holds"]
