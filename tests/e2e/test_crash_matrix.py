"""Killed, and stopped past the lease, at every named step of a turn and of a delivery: nothing lost, nothing doubled.

By hand: `python -m turnlane.testing.crash_matrix --how stop --backend postgresql://…`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlane.testing.crash_matrix import How, Matrix, Row, crash_matrix
from turnlane.testing.crash_steps import STEPS


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_every_promise_is_kept_on_sqlite_wherever_a_process_ends(tmp_path: Path, how: How) -> None:
    judged(await crash_matrix(how, tmp_path))


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_every_promise_is_kept_on_postgres_wherever_a_process_ends(
    tmp_path: Path, how: How, postgres: str
) -> None:
    judged(await crash_matrix(how, tmp_path, backend=postgres))


def judged(matrix: Matrix) -> None:
    assert [row.step for row in matrix.rows] == list(STEPS)
    assert matrix.holds, str(matrix)
    assert repeats_of(matrix, "out: after send, before settle") > 0, "that window was not hit"


def repeats_of(matrix: Matrix, step: str) -> int:
    return sum(row.repeats for row in matrix.rows if row.step == step)


def test_a_repeat_outside_the_window_is_no_result_to_be_content_with() -> None:
    assert Matrix("kill", [Row("out: after send, before settle", 8, 1)], []).holds
    assert not Matrix("kill", [Row("out: after settle", 8, 1)], []).holds
