"""The one thread that writes: calls that wait together are committed together, and fail alone."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.http.conftest import eventually
from tests.sqlite.arrivals import AT_ONCE, arrival
from tests.sqlite.conftest import Opens

from turnlane.backends import writer
from turnlane.backends.base import Acceptance, Arrival, Committed
from turnlane.backends.serving import Serving
from turnlane.backends.sqlite import SqliteBackend
from turnlane.backends.sqlite.file import FileLock
from turnlane.backends.transaction import Transaction
from turnlane.backends.writer import Call, Group, Writer
from turnlane.errors import BackendUnavailable
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.turn import Delivered, Replied, Reply, RetryLater
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock

TERM_MS = 60_000


def transactions(path: Path) -> int:
    """Each transaction that decided something wrote one row of facts."""
    connection = sqlite3.connect(path)
    try:
        count: int = connection.execute("SELECT count(*) FROM journal").fetchone()[0]
        return count
    finally:
        connection.close()


async def test_calls_that_wait_together_are_one_transaction(path: Path, store: SqliteBackend) -> None:
    before = transactions(path)
    answers = await asyncio.gather(*(store.accept([arrival(f"user-{n}", f"m-{n}")]) for n in range(500)))
    assert [acceptance.verdict for (acceptance,) in answers] == ["accepted"] * 500
    assert transactions(path) - before < 50


@asynccontextmanager
async def file_taken(path: Path, store: SqliteBackend) -> AsyncIterator[None]:
    """By another process, with one call waiting for it: all that are made meanwhile wait together behind that one."""
    assert store._writer is not None
    perform, waiting = store._writer._perform, threading.Event()

    def perform_what_was_taken(calls: Sequence[Call]) -> Group:
        waiting.set()  # not as soon as no call is left: one that is made then may still be taken along
        return perform(calls)

    with closing(FileLock(path)) as theirs, mock.patch.object(store._writer, "_perform", perform_what_was_taken):
        with theirs.taken():
            first = asyncio.ensure_future(store.accept([arrival("first", "first")]))
            await eventually(waiting.is_set)
            yield
        await first


async def test_an_answer_does_not_wait_for_another_process(
    path: Path, store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of many calls are told when the other half is about to be made durable, but not later than this."""
    theirs = FileLock(path)
    taken_again = theirs.taken()
    groups: list[Group] = []
    perform = Writer._perform

    def perform_and_lose_the_file(writer: Writer, calls: Sequence[Call]) -> Group:
        groups.append(perform(writer, calls))
        if len(groups) == 2:
            taken_again.__enter__()
        return groups[-1]

    monkeypatch.setattr(Writer, "_perform", perform_and_lose_the_file)
    async with file_taken(path, store):
        calls = [asyncio.ensure_future(store.accept([arrival(f"user-{n}", f"m-{n}")])) for n in range(100)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls[:50])
    assert not any(call.done() for call in calls[50:])
    taken_again.__exit__(None, None, None)
    theirs.close()
    assert [acceptance.verdict for (acceptance,) in await asyncio.gather(*calls)] == ["accepted"] * 100


async def test_turns_that_end_together_are_not_all_in_one_group_if_it_would_take_all(
    path: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other processes a group takes whatever waits; what started together in it would end together for ever."""
    here, there = await opens(), await opens()
    many = writer.GROUP_TURNS_MAX + 50
    await here.join("worker", TERM_MS)
    await here.accept([arrival(f"user-{n}", f"m-{n}") for n in range(many)])
    leases = await here.claim("worker", Kind.TURN, most=many)
    groups: list[int] = []
    perform = Writer._perform

    def perform_and_count(writer: Writer, calls: Sequence[Call]) -> Group:
        groups.append(sum(call.ends_a_turn for call in calls))
        return perform(writer, calls)

    monkeypatch.setattr(Writer, "_perform", perform_and_count)
    await there.accept([arrival("somebody", "else")])
    async with file_taken(path, here):
        ends = [asyncio.ensure_future(here.commit(lease, Replied(Reply(None)))) for lease in leases]
        await asyncio.sleep(0)
    assert {(await end).verdict for end in ends} == {"answered"}
    assert [turns for turns in groups if turns] == [writer.GROUP_TURNS_MAX, 50]


Sending = asyncio.Task[Committed]


async def nothing(_: Committed, __: Sending) -> None:
    """What a runner does that waits for its agent."""


@asynccontextmanager
async def turn_and_sending_over(
    path: Path, store: SqliteBackend, then: Callable[[Committed, Sending], Awaitable[None]] = nothing
) -> AsyncIterator[tuple[asyncio.Task[Committed], Sending]]:
    """At the same time. Another turn follows the one that is over; `then` is what its runner does at once."""

    async def run(lease: Lease) -> Committed:
        committed = await store.commit(lease, Replied(Reply(None)), take_next=True)
        await then(committed, sent)
        return committed

    await store.join("worker", TERM_MS)
    await store.accept([arrival("alice", "m-1"), arrival("bob", "m-2"), arrival("carol", "m-3")])
    (alice,) = await store.claim("worker", Kind.TURN)
    bob = (await store.commit(alice, Replied(Reply("one")), take_next=True)).next
    assert bob is not None
    (sending,) = await store.claim("worker", Kind.OUT)
    async with file_taken(path, store):
        turn = asyncio.create_task(run(bob))
        sent = asyncio.create_task(store.commit(sending, Delivered(), take_next=True))
        await asyncio.sleep(0)  # until both are made
    yield turn, sent
    assert (await asyncio.wait_for(sent, 5)).verdict == "sent"


async def test_who_has_sent_something_is_told_last_while_the_next_turn_is_stored(
    path: Path, store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "HEARD_SECONDS_MAX", 5)
    commit = Transaction.commit
    sendings: list[Sending] = []
    told_before: list[bool] = []

    def commit_and_look(transaction: Transaction, lease: Lease, *arguments: Any) -> Any:
        if lease.key == "desk/carol":
            told_before.extend(sending.done() for sending in sendings)
        return commit(transaction, lease, *arguments)

    async def answer_carol(committed: Committed, sending: Sending) -> None:
        assert committed.next is not None
        sendings.append(sending)
        await store.commit(committed.next, Replied(Reply(None)))

    monkeypatch.setattr(Transaction, "commit", commit_and_look)
    with one_round_of_the_loop_in_one_go():
        async with turn_and_sending_over(path, store, answer_carol) as (turn, sent):
            await turn
            assert told_before == [False]
            assert sent.done()


@contextmanager
def one_round_of_the_loop_in_one_go() -> Iterator[None]:
    """On a busy machine a round may take longer than a thread may run, and the writer would look in its middle."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


async def test_who_has_sent_something_does_not_wait_for_a_slow_agent(
    path: Path, store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "HEARD_SECONDS_MAX", 5)
    async with turn_and_sending_over(path, store) as (turn, sent):
        assert (await turn).next is not None
        await asyncio.wait_for(sent, 4)


async def test_the_writer_goes_on_though_the_event_loop_is_busy(path: Path, store: SqliteBackend) -> None:
    """Whoever is told first calls, and then does not let go of the loop: the call is stored nevertheless."""
    accepting = store.accept([arrival("dave", "m-4")])

    async def hold_the_loop(_: Committed, __: Sending) -> None:
        call_and_keep_busy()

    def call_and_keep_busy() -> None:
        accepting.send(None)
        until = time.monotonic() + 5
        while not is_stored(path, "m-4") and time.monotonic() < until:
            time.sleep(0.01)
        was_stored.append(is_stored(path, "m-4"))

    was_stored: list[bool] = []
    async with turn_and_sending_over(path, store, hold_the_loop) as (turn, _):
        await turn
    accepting.close()
    assert was_stored == [True]


def is_stored(path: Path, origin_id: str) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT 1 FROM message WHERE origin_id = ?", (origin_id,)).fetchone() is not None


async def test_half_of_many_calls_are_told_though_the_other_half_fails(
    path: Path, store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = Transaction.accept

    def fail_for_some(transaction: Transaction, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        if arrivals[0].message.sender == "unlucky":
            raise sqlite3.OperationalError("the disk is gone")
        return accept(transaction, arrivals)

    monkeypatch.setattr(Transaction, "accept", fail_for_some)
    async with file_taken(path, store):
        who = ["lucky"] * 50 + ["unlucky"] * 50
        calls = [asyncio.ensure_future(store.accept([arrival(name, f"m-{n}")])) for n, name in enumerate(who)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, BackendUnavailable) for answer in answers] == [False] * 50 + [True] * 50


async def test_one_bad_call_in_a_group_fails_alone(path: Path, store: SqliteBackend) -> None:
    bad = {
        3: arrival("eve", "bad-1", "half a pair: \ud800"),
        5: arrival("eve", "bad-2", sent_at=2**70),
        7: Arrival(replace(arrival("eve", "bad-3").message, text=None), AT_ONCE),  # type: ignore[arg-type] # what no channel may do
    }
    calls = [store.accept([bad.get(n) or arrival("alice", f"m-{n}")]) for n in range(10)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = {n for n, answer in enumerate(answers) if isinstance(answer, Exception)}
    assert failed == set(bad)
    (lane,) = await store.lanes()
    assert (lane.conversation, lane.pending) == ("desk/alice", 7)
    assert await store.accept([arrival("eve", "bad-1", "better now")]) == [Acceptance("accepted", 1)]


async def test_each_message_of_a_bad_call_is_undone(store: SqliteBackend) -> None:
    """An accept of several is one call: what raised stored nothing, and may be sent again."""
    with pytest.raises(UnicodeEncodeError):
        await store.accept([arrival("alice", "m-1"), arrival("alice", "m-2", "\udfff")])
    assert await store.lanes() == []
    (again,) = await store.accept([arrival("alice", "m-1")])
    assert again.verdict == "accepted"


async def test_a_commit_that_cannot_be_stored_leaves_the_lease_as_it_was(store: SqliteBackend) -> None:
    await store.join("worker", TERM_MS)
    await store.accept([arrival("alice", "m-1")])
    (lease,) = await store.claim("worker", Kind.TURN)
    with pytest.raises(OverflowError):
        await store.commit(lease, Replied(Reply("ok", usage=Usage(input_tokens=2**64))))
    assert (await store.commit(lease, Replied(Reply("ok")))).verdict == "answered"


async def test_a_bug_in_one_call_is_told_to_its_caller_and_the_others_go_on(store: SqliteBackend) -> None:
    """A thread that dies silently would leave everybody waiting for ever."""

    def broken(_: Transaction) -> None:
        raise KeyError("a bug")

    good, bad = store.accept([arrival("alice", "m-1")]), store._call(broken)
    answers = await asyncio.wait_for(asyncio.gather(good, bad, return_exceptions=True), 10)
    assert answers[0] == [Acceptance("accepted", 1)]
    assert isinstance(answers[1], KeyError)
    assert (await store.counts()).messages_waiting == 1


async def test_a_waiting_claim_is_served_by_the_accept_that_makes_it_possible(path: Path, store: SqliteBackend) -> None:
    await store.join("worker", TERM_MS)
    claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
    await asyncio.sleep(0)
    await store.claim("worker", Kind.TURN)
    before = transactions(path)
    await store.accept([arrival("alice", "m-1")])
    (lease,) = await claim
    assert lease.key == "desk/alice"
    assert transactions(path) == before + 1


async def test_what_others_fight_for_keeps_no_call_from_being_performed(
    store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leases a lane is always too late here. A message is stored all the same, and a worker stays alive."""

    class Again(Exception):
        pass

    def too_late(*_: object) -> None:
        raise Again

    await store.join("worker", TERM_MS)
    monkeypatch.setattr(store._store, "conflict", (Again,))
    with monkeypatch.context() as contested:
        contested.setattr(Serving, "_hand_out", too_late)
        waiting = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
        assert await store.accept([arrival("alice", "m-1")]) == [Acceptance("accepted", 1)]
        assert await store.renew("worker", TERM_MS, [])
        with pytest.raises(Again):
            await store.claim("worker", Kind.TURN)
        assert not waiting.done()
    assert [lease.key for lease in await waiting] == ["desk/alice"]


async def test_cancelled_waiting_claims_give_their_lease_back(store: SqliteBackend) -> None:
    """Whenever the cancellation comes: while the claim waits, and just after it was served."""
    await store.join("worker", TERM_MS)
    for number in range(30):
        claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
        await asyncio.sleep(0)
        accepting = asyncio.create_task(store.accept([arrival("alice", f"m-{number}")]))
        if number % 2:
            await accepting
        claim.cancel()
        (served,) = await asyncio.gather(claim, return_exceptions=True)
        await accepting
        leases = [] if isinstance(served, BaseException) else served
        if not leases:
            leases = await asyncio.wait_for(store.claim("worker", Kind.TURN, wait=True), 5)
        (lease,) = leases
        assert lease.attempt == 1
        await store.commit(lease, Replied(Reply(None)))
    assert await store.locks() == []


async def test_a_claim_cancelled_in_the_very_moment_it_is_served_holds_nothing(store: SqliteBackend) -> None:
    await store.join("worker", TERM_MS)
    claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
    await asyncio.sleep(0)

    # Listeners are told after the answers are set and before anybody who waits for them runs.
    def cancel_once_served(events: Sequence[Event]) -> None:
        if any(event.name == "turn.started" for event in events):
            claim.cancel()

    store.subscribe(cancel_once_served)
    await store.accept([arrival("alice", "m-1")])
    with pytest.raises(asyncio.CancelledError):
        await claim
    await store.claim("worker", Kind.OUT)
    assert await store.locks() == []
    (lane,) = await store.lanes()
    assert (lane.state, lane.attempt) == ("ready", 0)


async def test_who_waits_when_the_backend_is_closed_is_told(opens: Opens) -> None:
    store = await opens()
    await store.join("worker", TERM_MS)
    claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        await claim


@pytest.mark.parametrize("error", [sqlite3.OperationalError("the disk is gone"), RuntimeError("unforeseen")])
async def test_a_look_that_fails_is_repeated_now_and_then_until_who_waits_is_served(
    store: SqliteBackend, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await store.join("worker", TERM_MS)
    await store.accept(
        [Arrival(arrival("alice", "m-1").message, replace(AT_ONCE, debounce_ms=1_000, max_wait_ms=1_000))]
    )
    looks: list[float] = []
    looked, loop, look = asyncio.Event(), asyncio.get_running_loop(), store._store.next_due

    def fail_at_first(kinds: Iterable[Kind]) -> int | None:
        looks.append(loop.time())
        if len(looks) <= 5:
            raise error
        loop.call_soon_threadsafe(looked.set)
        return look(kinds)

    monkeypatch.setattr(store._store, "next_due", fail_at_first)
    claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
    await asyncio.sleep(0)  # until it is made
    await store.reap()  # answered only when the claim waits
    clock.advance(1_000)
    async with asyncio.timeout(20):
        await looked.wait()
        (lease,) = await claim
    assert lease.key == "desk/alice"
    assert store.undone is (error if isinstance(error, RuntimeError) else None)
    assert looks[4] - looks[1] >= 3 * 0.9 * store._store.poll_seconds


async def test_what_was_submitted_before_the_close_is_stored(opens: Opens) -> None:
    store = await opens()
    calls = [asyncio.create_task(store.accept([arrival("alice", f"m-{n}")])) for n in range(100)]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*calls)
    assert all(acceptance.verdict == "accepted" for (acceptance,) in answers)
    again = await opens()
    assert (await again.counts()).messages_waiting == 100


async def test_a_locked_file_is_unavailable_for_all_and_works_again_after(
    path: Path, store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store._writer is not None
    store._store.connection.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    answers = await asyncio.gather(
        *(store.accept([arrival("alice", f"m-{n}")]) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(answer, BackendUnavailable) and "locked" in str(answer) for answer in answers)
    other.execute("ROLLBACK")
    other.close()
    (acceptance,) = await store.accept([arrival("alice", "m-1")])
    assert acceptance == Acceptance("accepted", 1)


async def test_a_group_that_failed_leaves_no_trace_in_what_is_remembered(store: SqliteBackend) -> None:
    """Lanes are remembered between transactions: those of one that was undone must not be."""
    await store.join("worker", TERM_MS)
    await store.accept([arrival("alice", "m-1")])
    (lease,) = await store.claim("worker", Kind.TURN)
    with pytest.raises(OverflowError):
        await store.commit(lease, RetryLater(at=2**70, cause="a bug"))
    (lane,) = await store.lanes()
    assert (lane.state, lane.failures) == ("running", 0)
    assert (await store.commit(lease, RetryLater(at=0, cause="try"))).verdict == "retried"
    (lane,) = await store.lanes()
    assert (lane.state, lane.failures) == ("ready", 1)


async def test_a_waiting_claim_is_served_by_time_passing(store: SqliteBackend, clock: VirtualClock) -> None:
    await store.join("worker", TERM_MS)
    slow = replace(AT_ONCE, debounce_ms=3_000, max_wait_ms=3_000)
    await store.accept([Arrival(arrival("alice", "m-1").message, slow)])
    claim = asyncio.create_task(store.claim("worker", Kind.TURN, wait=True))
    assert await store.claim("worker", Kind.TURN) == []
    clock.advance(3_000)
    (lease,) = await asyncio.wait_for(claim, 5)
    assert lease.key == "desk/alice"
