"""Killed, and stopped past the lease, at every named step of a turn and of a delivery: nothing lost, nothing doubled.

By hand: `python -m turnlane.testing.crash_matrix --how stop --backend postgresql://…`
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnlane.testing.crash_matrix import CONVERSATIONS, How, Matrix, crash_matrix
from turnlane.testing.crash_steps import STEPS
from turnlane.testing.evidence import in_rows, in_stories

IN_THE_WINDOW = "out: after send, before settle"
WHERE_STORES_DIFFER = ("before commit", "after commit, before it is told", IN_THE_WINDOW)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_every_promise_is_kept_on_sqlite_wherever_a_process_ends(tmp_path: Path, how: How) -> None:
    judged(await crash_matrix(how, tmp_path), STEPS)
    store = f"sqlite:///{tmp_path}/turnlane.db"
    told = await asyncio.to_thread(in_stories, store, CONVERSATIONS)
    assert told == in_rows(store, CONVERSATIONS), "a store without rows is judged by what its backend tells"


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_every_promise_is_kept_on_postgres_where_it_matters_most(tmp_path: Path, how: How, postgres: str) -> None:
    judged(await crash_matrix(how, tmp_path, backend=postgres, steps=WHERE_STORES_DIFFER), WHERE_STORES_DIFFER)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_every_promise_is_kept_on_nats_where_it_matters_most(tmp_path: Path, how: How, nats: str) -> None:
    judged(await crash_matrix(how, tmp_path, backend=nats, steps=WHERE_STORES_DIFFER), WHERE_STORES_DIFFER)


def judged(matrix: Matrix, steps: Sequence[str]) -> None:
    assert [row.step for row in matrix.rows] == list(steps)
    assert matrix.holds, str(matrix)
    assert sum(row.repeats for row in matrix.rows if row.step == IN_THE_WINDOW) > 0, "that window was not hit"
