"""Two backends on one file, as two processes have it: one holder, one order, and wake-ups across."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.contention import USERS, contend
from tests.sqlite.arrivals import arrival
from tests.sqlite.conftest import Opens

from turnlane.backends.sqlite import SqliteBackend
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock

TERM_MS = 60_000


async def test_two_processes_never_hold_one_lane_on_one_sqlite_file_too(opens: Opens) -> None:
    """C3 and PEERS"""
    seen = await contend([await opens(), await opens()])
    assert seen.overlaps == []
    for user in range(USERS):
        assert seen.places_done(user) == list(range(1, seen.said // USERS + 1))


async def test_a_lane_claimed_by_one_is_not_seen_as_free_by_the_other_that_remembers_it(opens: Opens) -> None:
    """What a process remembers of a lane is worth nothing once another process has written."""
    here, there = await opens(), await opens()
    await here.join("here", TERM_MS)
    await there.join("there", TERM_MS)
    await here.accept([arrival("alice", "m-1")])
    (lease,) = await there.claim("there", Kind.TURN)
    assert await here.claim("here", Kind.TURN) == []
    await here.accept([arrival("alice", "m-2")])
    assert (await there.commit(lease, Replied(Reply("ok")))).verdict == "answered"
    (second,) = await here.claim("here", Kind.TURN)
    assert (second.epoch, second.number, [message.seq for message in second.messages]) == (2, 2, [2])
    assert (await there.commit(lease, Replied(Reply("again")))).verdict == "answered"
    (delivery,) = await here.claim("here", Kind.OUT)
    assert await there.claim("there", Kind.OUT) == []
    assert (await here.commit(delivery, Delivered())).verdict == "sent"


async def test_a_message_accepted_by_one_wakes_a_claim_that_waits_at_the_other(opens: Opens) -> None:
    here, there = await opens(), await opens()
    await here.join("here", TERM_MS)
    claim = asyncio.create_task(here.claim("here", Kind.TURN, wait=True))
    await asyncio.sleep(0)
    assert await here.claim("here", Kind.TURN) == []
    await there.accept([arrival("alice", "m-1")])
    (lease,) = await asyncio.wait_for(claim, 5)
    assert lease.key == "desk/alice"


async def test_a_queue_that_is_new_here_or_there_is_served_by_who_knew_of_one_only(opens: Opens) -> None:
    here, there = await opens(), await opens()
    await here.join("worker", TERM_MS)
    one, two, three = (Policy(tenant=tenant, debounce_ms=0) for tenant in ("one", "two", "three"))

    async def say(store: SqliteBackend, who: str, policy: Policy) -> None:
        await store.accept([replace(arrival(who, f"m-{who}"), policy=policy)])

    async def served(many: int) -> set[str]:
        return {lease.policy.tenant for lease in await here.claim("worker", Kind.TURN, most=many)}

    for number in range(4):
        await say(there, f"user-{number}", one)
    assert [await served(1), await served(1)] == [{"one"}, {"one"}]
    await say(here, "somebody", two)
    assert await served(2) == {"one", "two"}
    await say(there, "somebody else", three)
    assert await served(2) == {"one", "three"}


async def test_a_change_made_by_one_is_noticed_by_who_watches_at_the_other(opens: Opens) -> None:
    here, there = await opens(), await opens()
    assert not await here.changed(0.01)
    watching = asyncio.create_task(here.changed(10.0))
    await asyncio.sleep(0)
    await here.counts()  # reads are done in turn: the watcher has had its first look
    await there.accept([arrival("alice", "m-1")])
    assert await asyncio.wait_for(watching, 5)
    cursors = [stored.cursor for stored in await here.events()]
    assert len(cursors) == 1
    assert cursors == sorted(cursors)


async def test_the_same_message_at_both_is_accepted_by_one(opens: Opens) -> None:
    """A15, across processes."""
    here, there = await opens(), await opens()
    calls = [store.accept([arrival("alice", f"m-{n}")]) for n in range(50) for store in (here, there)]
    answers = await asyncio.gather(*calls)
    verdicts = Counter(acceptance.verdict for (acceptance,) in answers)
    assert verdicts == {"accepted": 50, "duplicate": 50}
    (lane,) = await here.lanes()
    assert lane.pending == 50


async def test_a_worker_that_died_in_one_process_is_taken_over_by_the_other(opens: Opens, clock: VirtualClock) -> None:
    """C5, across processes."""
    here, there = await opens(), await opens()
    await here.join("dead", TERM_MS)
    await here.accept([arrival("alice", "m-1")])
    (lost,) = await here.claim("dead", Kind.TURN)
    clock.advance(TERM_MS + 1)
    await there.join("live", TERM_MS)
    assert await there.reap() == 1
    (taken,) = await there.claim("live", Kind.TURN)
    assert (taken.attempt, taken.epoch, taken.took_over) == (2, 2, True)
    assert (await here.commit(lost, Replied(Reply("late")))).verdict == "fenced"
    assert (await there.commit(taken, Replied(Reply("once")))).verdict == "answered"
    assert [view.text for view in await here.deliveries("desk/alice")] == ["once"]


async def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    """C3: the processes of `run --processes N` all start on a file that is not there yet."""
    for attempt in range(20):
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        backends = [SqliteBackend(url, SystemClock()) for _ in range(6)]
        try:
            await asyncio.gather(*(backend.open() for backend in backends))
        finally:
            await asyncio.gather(*(backend.close() for backend in backends))


async def test_a_session_is_whole_when_its_lane_goes_on_in_the_transaction_that_saved_it(opens: Opens) -> None:
    """Though another process wrote meanwhile, so that nothing of the lane is remembered."""
    here, there = await opens(), await opens()
    await here.join("here", TERM_MS)
    policy = Policy(agent="agent", debounce_ms=0, max_wait_ms=0, on_busy="queue")
    for number in range(3):
        await here.accept([replace(arrival("alice", f"m-{number}"), policy=policy)])
    [lease] = await here.claim("here", Kind.TURN)
    for turns in range(3):
        await there.accept([arrival("bob", f"m-{turns}")])
        committed = await here.commit(lease, Replied(Reply("", session="s", usage=Usage(1, 1))), take_next=True)
        assert committed.verdict == "answered"
        while committed.next is not None and committed.next.key != "desk/alice":
            committed = await here.commit(committed.next, Replied(Reply(None)), take_next=True)
        if committed.next is not None:
            lease = committed.next
            assert lease.session is not None
            assert lease.session.turns == turns + 1
