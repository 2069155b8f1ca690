"""Every statement on the path of a message finds its rows by an index, however many lanes wait."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.sqlite import SqliteBackend
from turnlane.backends.sqlite.queries import SQL
from turnlane.model.lane import Kind
from turnlane.model.turn import Replied, Reply

SEEN_BY_OPERATORS = re.compile(r"view_\w+")
FEW_ROWS = {"lapsed_workers", "machine_is_live", "policies", "holds"}
"""Workers, policies and accounts are counted in tens."""
HOUSEKEEPING = re.compile(r"old_\w+")

HOT = sorted(
    name
    for name in SQL
    if not SEEN_BY_OPERATORS.fullmatch(name) and not HOUSEKEEPING.fullmatch(name) and name not in FEW_ROWS
)


@pytest.fixture
def connection(path: Path, store: SqliteBackend) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    statement = SQL[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    count = max(numbered) if numbered else statement.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * count)]


@pytest.mark.parametrize("name", HOT)
def test_the_path_of_a_message_reads_no_table_from_end_to_end(connection: sqlite3.Connection, name: str) -> None:
    steps = [step for step in plan(connection, name) if "VIRTUAL TABLE" not in step]
    assert [step for step in steps if step.startswith("SCAN") or "TEMP B-TREE" in step] == []


@pytest.mark.parametrize(
    ("name", "index"),
    [("due_lanes", "lane_due"), ("next_queue", "lane_due"), ("lanes_of", "lane_owner"), ("running", "lane_owner")],
)
def test_each_index_serves_the_query_it_is_named_for(connection: sqlite3.Connection, name: str, index: str) -> None:
    assert any(re.search(rf"USING (COVERING )?INDEX {index}\b", step) for step in plan(connection, name))


@pytest.mark.parametrize("name", sorted(name for name in SQL if HOUSEKEEPING.fullmatch(name)))
def test_housekeeping_pages_through_a_table_without_sorting_it(connection: sqlite3.Connection, name: str) -> None:
    assert [step for step in plan(connection, name) if "TEMP B-TREE" in step] == []


async def test_a_claim_of_few_among_many_waiting_lanes_touches_few(store: SqliteBackend) -> None:
    """The plan above, seen from outside: what a claim costs does not grow with what waits."""
    steps: list[int] = []
    await store.join("worker", 60_000)
    for number in range(0, 5_000, 500):
        await store.accept([arrival(f"user-{n}", f"m-{n}") for n in range(number, number + 500)])
        assert store._writer is not None
        connection, counted = store._store.connection, [0]
        connection.set_progress_handler(_counter(counted), 1_000)
        for lease in await store.claim("worker", Kind.TURN, most=5):
            await store.commit(lease, Replied(Reply(None)))
        connection.set_progress_handler(None, 0)
        steps.append(counted[0])
    assert steps[-1] <= steps[0] + 3


def _counter(counted: list[int]) -> Callable[[], int]:
    def step() -> int:
        counted[0] += 1
        return 0

    return step
