"""Two stores on one file, as two processes have it: each goes on believing what the other has left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import cast

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.rows import Rows
from turnlane.backends.sqlite import believed, file, schema
from turnlane.backends.sqlite.store import SqliteStore
from turnlane.backends.transaction import Transaction
from turnlane.model.lane import TURN
from turnlane.testing.doubles import VirtualClock

ALICE = (TURN, "desk/alice")


class Process:
    """Whoever has the file open."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._said = 0

    def say(self, who: str) -> None:
        """One transaction that changes this conversation's lane, and notes it."""
        self._said += 1
        with self._store.transaction(lambda: None) as rows:
            transaction = Transaction(cast("Rows", rows), rows.now)
            transaction.accept([arrival(who, f"{id(self)}-{self._said}")])
            rows.flush(transaction.noted)
        self._store.believed.keep(rows.changed, rows.now)

    def change_silently(self, who: str) -> None:
        with self._store.transaction(lambda: None) as rows:
            lane = rows.lane(TURN, f"desk/{who}")
            assert lane is not None
            lane.due_at = 1
            rows.save_lane(lane)
            rows.flush(())
        self._store.believed.keep(rows.changed, rows.now)

    def fail(self) -> None:
        with suppress(ZeroDivisionError), self._store.transaction(lambda: None) as rows:
            rows.flush([("lane.freed", "desk/carol", 1, "w")])
            raise ZeroDivisionError

    def knows_alice(self) -> bool:
        self._store.believed.check()
        return ALICE in self._store.believed.lanes

    def places_of_alice(self) -> int:
        with self._store.transaction(lambda: None) as rows:
            lane = rows.lane(*ALICE)
            assert lane is not None
            return lane.next_seq


Opened = Callable[[], Process]


@pytest.fixture
def opened(path: Path, clock: VirtualClock) -> Iterator[Opened]:
    location = file.Location(f"sqlite:///{path}?synchronous=off")
    with closing(file.connect(location)) as connection:
        schema.migrate(connection)
    with ExitStack() as stack:

        def open_one() -> Process:
            store = SqliteStore(location, clock, idle_after_ms=60_000)
            stack.callback(store.close)
            return Process(store)

        yield open_one


@pytest.fixture
def both(opened: Opened) -> tuple[Process, Process]:
    """Two that know of each other, and one of them knows Alice."""
    here, there = opened(), opened()
    for process in (here, there, here, there):
        process.say("carol")
    here.say("alice")
    assert here.knows_alice()
    return here, there


def test_a_lane_stays_known_while_others_write_elsewhere(both: tuple[Process, Process]) -> None:
    here, there = both
    there.say("bob")
    there.say("bob")
    assert here.knows_alice()
    here.say("bob")
    assert here.knows_alice()
    assert here.places_of_alice() == 1


def test_a_lane_that_another_changed_is_read_again(both: tuple[Process, Process]) -> None:
    here, there = both
    there.say("alice")
    assert not here.knows_alice()
    assert here.places_of_alice() == 2
    here.say("alice")
    assert there.places_of_alice() == 3


def test_what_another_changed_without_noting_it_is_read_again(both: tuple[Process, Process]) -> None:
    here, there = both
    there.change_silently("alice")
    assert not here.knows_alice()


def test_what_one_changed_silently_itself_is_no_news(both: tuple[Process, Process]) -> None:
    here, there = both
    here.change_silently("carol")
    there.say("bob")
    assert here.knows_alice()


def test_who_was_alone_tells_nobody_and_so_everything_is_read_again(
    both: tuple[Process, Process], opened: Opened
) -> None:
    here, _ = both
    newcomer = opened()
    newcomer.say("alice")
    assert not here.knows_alice()
    assert here.places_of_alice() == 2


def test_who_slept_through_too_much_reads_everything_again(both: tuple[Process, Process]) -> None:
    here, there = both
    for _ in range(believed.TRANSACTIONS_READ_MAX):
        there.say("bob")
    there.say("alice")
    assert not here.knows_alice()
    assert here.places_of_alice() == 2
    here.say("alice")
    there.say("bob")
    assert here.knows_alice(), "from then on it listens as before"


def test_after_a_transaction_was_undone_nothing_is_believed(both: tuple[Process, Process]) -> None:
    here, there = both
    here.fail()
    here.change_silently("alice")
    there.say("alice")
    assert not here.knows_alice()
    assert here.places_of_alice() == 2
