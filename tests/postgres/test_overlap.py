"""A group is decided while the one before it is under way: faster, and nobody can tell the difference."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.http.conftest import eventually
from tests.postgres.conftest import Opens
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Acceptance
from turnlane.backends.postgres import PostgresBackend
from turnlane.backends.postgres.rows import QuickRows
from turnlane.backends.postgres.store import PostgresStore
from turnlane.backends.writer import HALVED_FROM_CALLS, Call, Flight, Group, Writer
from turnlane.errors import BackendUnavailable, WorkerLost
from turnlane.model.lane import Kind
from turnlane.model.turn import Replied, Reply

TERM_MS = 60_000
MANY = 100
CONFLICT = "SELECT 1 / 0, $1::bigint, $2::bigint"
LOST = "SELECT pg_terminate_backend(pg_backend_pid()), $1::bigint, $2::bigint"
REFUSED = "SELECT 'one'::int, $1::bigint, $2::bigint"

Decided = dict[QuickRows, Sequence[Call]]


@pytest.fixture
async def store(opens: Opens) -> PostgresBackend:
    """With conversations that it knows, so that nothing has to be read on the way."""
    backend = await opens()
    await backend.accept([arrival(f"user-{n}", f"first-{n}") for n in range(MANY)])
    return backend


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Decided:
    """The calls of each group, in the order in which the groups were decided."""
    apply: Callable[..., Any] = Writer._apply
    groups: Decided = {}

    def apply_and_note(writer: Writer, rows: QuickRows, calls: Sequence[Call], to_all: bool) -> object:
        applied = apply(writer, rows, calls, to_all)
        groups[rows] = calls
        return applied

    monkeypatch.setattr(Writer, "_apply", apply_and_note)
    return groups


def says_more(store: PostgresBackend) -> list[asyncio.Task[list[Acceptance]]]:
    """All at once, so that they are more than one group."""
    return [asyncio.create_task(store.accept([arrival(f"user-{n}", f"second-{n}")])) for n in range(MANY)]


def waiting(store: PostgresBackend, kind: Kind) -> int:
    assert store._writer is not None
    return len(store._writer._waiting.get(("worker", kind), ()))


def is_large(rows: QuickRows) -> bool:
    return len(rows._writes["insert_message"]) >= HALVED_FROM_CALLS // 2


async def verdicts(said: list[asyncio.Task[list[Acceptance]]]) -> list[tuple[str, int]]:
    return [(acceptance.verdict, acceptance.seq) for (acceptance,) in await asyncio.gather(*said)]


async def test_the_next_group_is_decided_before_the_last_is_durable_and_told_after(
    store: PostgresBackend, decided: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm, waits, goes_on = QuickRows.confirm, threading.Event(), threading.Event()

    def wait_and_confirm(rows: QuickRows) -> None:
        if is_large(rows):
            waits.set()
            assert goes_on.wait(10)
        confirm(rows)

    monkeypatch.setattr(QuickRows, "confirm", wait_and_confirm)
    said = says_more(store)
    await eventually(waits.is_set)
    [under_way] = [rows for rows in decided if is_large(rows) and rows._composed][:1]
    later = list(decided)[list(decided).index(under_way) + 1 :]
    assert len(later) == 1, "the one after it is decided"
    assert not any(call.future.done() for rows in (under_way, *later) for call in decided[rows])
    goes_on.set()
    assert await verdicts(said) == [("accepted", 2)] * MANY
    assert store.counted.conflicts == 0


def undo_one(monkeypatch: pytest.MonkeyPatch, statement: str, which: Callable[[QuickRows], bool]) -> list[QuickRows]:
    """The first of these groups is given to the server as this statement, which does nothing but fail."""
    send: Callable[[QuickRows], None] = QuickRows.send
    undone: list[QuickRows] = []

    def send_or_undo(rows: QuickRows) -> None:
        if which(rows) and not undone:
            undone.append(rows)
            rows._composed = (statement, [])
        send(rows)

    monkeypatch.setattr(QuickRows, "send", send_or_undo)
    return undone


@pytest.mark.parametrize("statement", [CONFLICT, REFUSED])
async def test_what_was_decided_over_a_group_that_is_undone_is_decided_again(
    store: PostgresBackend, decided: Decided, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    undone = undo_one(monkeypatch, statement, is_large)
    assert await verdicts(says_more(store)) == [("accepted", 2)] * MANY
    [rows] = undone
    after = list(decided)[list(decided).index(rows) + 1]
    assert not is_the_same(decided[rows], decided[after]), "the other half was decided over it"
    stories = [await store.story(f"desk/user-{n}") for n in range(MANY)]
    assert [[message.seq for message in story.messages] for story in stories if story] == [[1, 2]] * MANY


def is_the_same(calls: Sequence[Call], others: Sequence[Call]) -> bool:
    return {id(call) for call in calls} == {id(call) for call in others}


async def test_if_the_connection_is_lost_only_those_are_told_whose_group_it_was(
    store: PostgresBackend, decided: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone = undo_one(monkeypatch, LOST, is_large)
    said = says_more(store)
    answers = await asyncio.gather(*said, return_exceptions=True)
    [rows] = undone
    assert sum(isinstance(answer, BackendUnavailable) for answer in answers) == len(decided[rows])
    assert await verdicts(says_more(store)) == [
        ("accepted" if isinstance(answer, BackendUnavailable) else "duplicate", 2) for answer in answers
    ]


async def test_who_waits_for_a_lease_that_is_undone_gets_another(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.join("worker", TERM_MS)
    for lease in await store.claim("worker", Kind.TURN, most=MANY):
        await store.commit(lease, Replied(Reply(None)))
    claims = [asyncio.create_task(store.claim("worker", Kind.TURN, wait=True)) for _ in range(MANY)]
    await eventually(lambda: waiting(store, Kind.TURN) == MANY)
    undone = undo_one(monkeypatch, CONFLICT, is_large)
    assert await verdicts(says_more(store)) == [("accepted", 2)] * MANY
    leases = [lease for leases in await asyncio.wait_for(asyncio.gather(*claims), 10) for lease in leases]
    assert undone
    assert sorted(lease.key for lease in leases) == sorted(f"desk/user-{n}" for n in range(MANY))
    assert {lease.epoch for lease in leases} == {2}


async def test_who_waits_and_seemed_lost_is_told_though_that_was_undone(store: PostgresBackend) -> None:
    """Others have to bury its worker in the very moment for that, so it is played."""
    assert store._writer is not None
    claim: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    store._writer._call_back(Flight([], Group(failures=[(claim, WorkerLost("buried"))])))
    with pytest.raises(WorkerLost, match="buried"):
        await asyncio.wait_for(claim, 10)


async def test_who_was_to_wait_by_what_is_undone_waits_once(
    store: PostgresBackend, decided: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.join("worker", TERM_MS)
    undone = undo_one(monkeypatch, CONFLICT, lambda rows: len(decided[rows]) >= HALVED_FROM_CALLS // 2)
    claims = [asyncio.create_task(store.claim("worker", Kind.OUT, wait=True)) for _ in range(MANY)]
    await eventually(lambda: waiting(store, Kind.OUT) >= MANY)
    assert undone
    assert waiting(store, Kind.OUT) == MANY
    for claim in claims:
        claim.cancel()


async def test_what_is_undone_is_not_believed(store: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    undone = undo_one(monkeypatch, REFUSED, lambda rows: bool(rows._composed))
    with pytest.raises(ValueError, match="cannot hold it"):
        await store.accept([arrival("user-1", "second")])
    assert undone
    assert await store.accept([arrival("user-1", "second")]) == [Acceptance("accepted", 2)]
    assert store.counted.conflicts == 0, "it was decided over what is so"


async def test_a_conversation_may_be_in_a_group_and_in_the_one_before(store: PostgresBackend, decided: Decided) -> None:
    names = [f"user-{n}" for n in range(MANY)] * 2
    said = [asyncio.create_task(store.accept([arrival(who, f"more-{n}")])) for n, who in enumerate(names)]
    assert await verdicts(said) == [("accepted", 2)] * MANY + [("accepted", 3)] * MANY
    assert store.counted.conflicts == 0
    assert sum(map(len, decided.values())) == 2 * MANY, "each call was decided once"


async def test_what_has_to_be_read_is_read_after_the_group_before(store: PostgresBackend, decided: Decided) -> None:
    groups = store.counted.groups
    said = says_more(store)
    new = [asyncio.create_task(store.accept([arrival(f"new-{n}", f"new-{n}")])) for n in range(MANY)]
    assert await verdicts(said) == [("accepted", 2)] * MANY
    assert await verdicts(new) == [("accepted", 1)] * MANY
    assert store.counted.groups - groups == len(decided), "none was given up on the way"


async def test_a_group_that_may_not_overlap_waits_for_the_one_before(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody else begins to write just now."""
    monkeypatch.setattr(PostgresStore, "overlaps", property(lambda it: it._under_way is None))
    assert await asyncio.wait_for(verdicts(says_more(store)), 10) == [("accepted", 2)] * MANY
