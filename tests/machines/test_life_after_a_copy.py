"""A store with everything in it is moved: all is there, and goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.machines.copies import AT_ONCE, Opens, copied, moved, said
from tests.machines.test_copy import ALL

from turnlane.backends.base import Arrival, Backend
from turnlane.backends.nats.contents import RECORD_BYTES
from turnlane.errors import BackendError, SchemaMismatch
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.question import Question
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Asks, Delivered, GaveUp, Replied, Reply, RetryLater
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.servers import Nats, NatsCluster

TERM_MS = 3_600_000
A_DAY_MS = 86_400_000
NAMES = ("answered", "asked", "asks", "dead", "failed", "heard", "late", "one", "open", "other", "paused", "unsent")
SURE = Question("Sure?", ("yes", "no"))


async def fill(store: Backend, clock: VirtualClock) -> None:
    """One conversation for each thing that may be the matter with it."""
    await store.join("worker", TERM_MS)
    for name in NAMES:
        await store.accept([said(f"{name}-1", f"site/{name}"), said(f"{name}-2", f"site/{name}")])
    leases = {lease.key: lease for lease in await store.claim("worker", Kind.TURN, most=len(NAMES))}
    clock.advance(1_000)
    assert await store.ask(leases["site/asked"], 1, SURE) is None
    assert await store.answer("site/asked", "yes")
    for name in NAMES:
        await end(store, leases[f"site/{name}"], name)
    while leases_out := await store.claim("worker", Kind.OUT, most=len(NAMES)):
        for lease in leases_out:
            await send(store, lease, clock)
    late = replace(AT_ONCE, on_busy="reject")
    await store.accept([Arrival(said("late-3", "site/late").message, late)])
    [held] = [lease for lease in await store.claim("worker", Kind.TURN, most=9) if lease.key == "site/late"]
    await store.accept([Arrival(said("late-4", "site/late").message, late)])
    assert await store.refuse_late(held) == 1
    await store.accept([said("open-3", "site/open"), said("paused-3", "site/paused")])
    await store.pause("site/paused")
    word = said("heard-3", "site/heard")
    await store.accept([replace(word, message=replace(word.message, role="business"))])
    await store.schedule(Schedule("pulse", "site/answered", "Anything new?", every_ms=A_DAY_MS), AT_ONCE)
    await store.configure("lanes.debounce", "1s")


async def end(store: Backend, lease: Lease, name: str) -> None:
    match name:
        case "open" | "late":
            if name == "late":
                await store.commit(lease, Replied(Reply(None)))
        case "asks":
            assert (await store.commit(lease, Asks(1, SURE))).verdict == "asked"
        case "dead":
            assert (await store.commit(lease, GaveUp("poison"))).verdict == "dead_letter"
        case "one" | "other":
            await store.commit(lease, Replied(Reply("yes", "shared", Usage(10, 5))))
        case _:
            await store.commit(lease, Replied(Reply(["yes", "indeed"], f"session of {name}", Usage(10, 5))))


async def send(store: Backend, lease: Lease, clock: VirtualClock) -> None:
    match lease.key:
        case "site/failed":
            assert (await store.commit(lease, GaveUp("refused"))).verdict == "failed"
        case "site/unsent":
            await store.commit(lease, RetryLater(clock.now() + 60_000, "slow down", holds_account=True))
        case _:
            assert (await store.commit(lease, Delivered("receipt"))).verdict == "sent"


async def seen(store: Backend) -> Mapping[str, object]:
    """All that an operator can look at."""
    keys = [f"site/{name}" for name in NAMES]
    lanes = [view for kind in Kind for view in await store.lanes(kind=kind)]
    return {
        "lanes": sorted(lanes, key=lambda view: (view.kind, view.conversation)),
        "stories": [await store.story(key) for key in keys],
        "waiting": [await store.waiting(key) for key in keys],
        "questions": [await store.questions(key) for key in keys],
        "dead letters": await store.dead_letters(),
        "queued": sorted(await store.outbox(), key=lambda view: view.conversation),
        "failed": await store.outbox(state="failed"),
        "locks": sorted(await store.locks(), key=lambda lock: lock.conversation),
        "workers": await store.workers(),
        "schedules": await store.schedules(),
        "settings": await store.configuration(),
        "counts": await store.counts(),
    }


@pytest.mark.parametrize("both", ALL, indirect=True)
async def test_a_store_with_everything_in_it_is_the_same_afterwards_and_goes_on(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    source, target = both
    before = await opens(source)
    await fill(before, clock)
    expected = await seen(before)
    await before.close()
    after = await moved(source, target, opens)
    assert await seen(after) == expected
    [again] = await after.accept([said("open-1", "site/open")])
    assert (again.verdict, again.seq) == ("duplicate", 1)
    assert await after.answer("site/asks", "no")
    assert await after.retry_dead_letter("site/dead", 1) == 2
    assert await after.resend("site/failed", 1)
    await after.resume("site/paused")
    clock.advance(TERM_MS + 1)
    assert await after.reap() > 0
    await after.join("next", TERM_MS)
    leases = {lease.key: lease for lease in await after.claim("next", Kind.TURN, most=20)}
    said_in = {key: [message.origin_id for message in lease.messages] for key, lease in leases.items()}
    assert said_in == {
        "site/asks": ["asks-1", "asks-2"],
        "site/dead": ["dead-1", "dead-2"],
        "site/late": ["late-3"],
        "site/open": ["open-1", "open-2"],
        "site/paused": ["paused-3"],
    }
    answer = await after.ask(leases["site/asks"], 1, SURE)
    assert answer is not None
    assert answer.text == "no"
    for lease in leases.values():
        assert (await after.commit(lease, Replied(Reply("late")))).verdict == "answered"
    [rest] = await after.claim("next", Kind.TURN, most=20)
    assert [message.origin_id for message in rest.messages] == ["open-3"]


async def test_two_conversations_that_share_a_session_never_run_at_once(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    source, target = both
    before = await opens(source)
    await before.join("worker", TERM_MS)
    await before.accept([said("m-1", "site/one"), said("m-2", "site/other")])
    for lease in await before.claim("worker", Kind.TURN, most=2):
        await before.commit(lease, Replied(Reply(None, "shared")))
    await before.close()
    after = await moved(source, target, opens)
    await after.accept([said("m-3", "site/one"), said("m-4", "site/other")])
    [first] = await after.claim("worker", Kind.TURN, most=2)
    await after.commit(first, Replied(Reply(None, "shared")))
    clock.advance(10_000)
    [second] = await after.claim("worker", Kind.TURN, most=2)
    assert {first.key, second.key} == {"site/one", "site/other"}


# A message is known again, or not


async def answered(store: Backend, *arrivals: Arrival) -> None:
    worker = f"worker for {arrivals[0].message.id}"
    await store.accept(arrivals)
    await store.join(worker, TERM_MS)
    for lease in await store.claim(worker, Kind.TURN, most=9):
        await store.commit(lease, Replied(Reply(None)))
    await store.leave(worker)


async def moved_after_forgetting(
    both: tuple[str, str], opens: Opens, clock: VirtualClock, *, messages: bool, ids: bool, then: Arrival
) -> Backend:
    """Two messages are answered, then they or their ids forgotten, and one more is answered before all is moved."""
    source, target = both
    before = await opens(source)
    await answered(before, said("m-1"), said("m-2"))
    clock.advance(1)
    now = clock.now()
    await before.forget(messages_before=now * messages, events_before=0, origins_before=now * ids)
    await answered(before, then)
    await before.close()
    return await moved(source, target, opens)


async def test_a_message_is_known_again_that_was_forgotten_before_its_id(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    after = await moved_after_forgetting(both, opens, clock, messages=True, ids=False, then=said("m-3"))
    acceptances = await after.accept([said("m-1"), said("m-2"), said("m-3"), said("m-4")])
    assert [(each.verdict, each.seq) for each in acceptances] == [
        ("duplicate", 1),
        ("duplicate", 2),
        ("duplicate", 3),
        ("accepted", 4),
    ]
    assert await after.place_of("site", "m-3") == ("site/alice", 3)


async def test_an_id_that_was_forgotten_before_its_message_stays_forgotten(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    after = await moved_after_forgetting(both, opens, clock, messages=False, ids=True, then=said("m-2"))
    [anew, known] = await after.accept([said("m-1"), said("m-2")])
    assert (anew.verdict, anew.seq, known.verdict, known.seq) == ("accepted", 4, "duplicate", 3)


async def test_what_was_copied_is_forgotten_in_its_time(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    source, target = both
    before = await opens(source)
    await fill(before, clock)
    await before.close()
    after = await moved(source, target, opens)
    expected = await seen(after)
    await after.forget(messages_before=clock.now() - 1_000, events_before=0, origins_before=0)
    assert await seen(after) == expected
    clock.advance(1)
    now = clock.now()
    await after.forget(messages_before=now, events_before=now, origins_before=now)
    story = await after.story("site/answered")
    assert story is not None
    assert (story.messages, story.turns) == ((), ())
    left = await seen(after)
    for what in ("dead letters", "queued", "failed", "waiting", "schedules", "settings", "counts"):
        assert left[what] == expected[what]
    [anew] = await after.accept([said("answered-1", "site/answered")])
    assert anew.verdict == "accepted"


async def test_a_message_is_known_again_after_the_new_server_was_restarted(
    sqlite: str, nats_server: Nats, opens: Opens
) -> None:
    """A2"""
    before = await opens(sqlite)
    await answered(before, said("m-1"))
    await before.close()
    assert all(table.equal for table in await copied(sqlite, nats_server.url))
    await asyncio.to_thread(nats_server.restart, "immediate")
    after = await opens(nats_server.url)
    [known] = await after.accept([said("m-1")])
    assert (known.verdict, known.seq) == ("duplicate", 1)


# What is long, large, or on three servers


async def test_a_long_conversation_comes_in_as_many_records_as_it_needs(both: tuple[str, str], opens: Opens) -> None:
    source, target = both
    policy = replace(AT_ONCE, max_batch=700, max_pending=10_000)
    text = "x" * (RECORD_BYTES // 300)
    before = await opens(source)
    arrivals = [Arrival(said(f"m-{place}", text=text).message, policy) for place in range(1_500)]
    for first_of_some in range(0, len(arrivals), 500):
        await before.accept(arrivals[first_of_some : first_of_some + 500])
    await before.join("worker", TERM_MS)
    [first] = await before.claim("worker", Kind.TURN)
    await before.commit(first, Replied(Reply(["y" * RECORD_BYTES] * 3)))
    [second] = await before.claim("worker", Kind.TURN)
    story = await before.story("site/alice", limit=10_000)
    await before.close()
    after = await moved(source, target, opens)
    assert await after.story("site/alice", limit=10_000) == story
    assert (await after.commit(second, Replied(Reply("yes")))).verdict == "answered"
    [third] = await after.claim("worker", Kind.TURN)
    assert [message.seq for message in third.messages] == list(range(1_401, 1_501))
    [sending] = await after.claim("worker", Kind.OUT)
    assert sending.delivery is not None
    assert sending.delivery.text == "y" * RECORD_BYTES


async def test_what_no_record_can_hold_is_refused_and_says_what_to_do(sqlite: str, nats: str, opens: Opens) -> None:
    before = await opens(sqlite)
    await before.accept([said("m-1", text="x" * 2_000_000)])
    with pytest.raises(BackendError, match=r"max_payload is 1048576; raise it there.*run the same command again"):
        await copied(sqlite, nats)
    with pytest.raises(SchemaMismatch, match="not finished"):
        await opens(nats)


async def test_three_servers_hold_a_copy_together(sqlite: str, nats_cluster: NatsCluster, opens: Opens) -> None:
    before = await opens(sqlite)
    await before.accept([said(f"m-{place}", f"site/user-{place % 70}") for place in range(2_000)])
    await before.close()
    url = f"{nats_cluster.url}?replicas=3"
    for _ in range(2):
        after = await moved(sqlite, url, opens)
        assert (await after.counts()).messages_waiting == 2_000
        await after.close()
        url = f"{url}&stream=other"
    back = sqlite.replace("store.db", "back.db")
    assert all(table.equal for table in await copied(url, back))
