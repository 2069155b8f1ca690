"""Real processes on one Postgres, killed and frozen while people write, and the server restarted under them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from turnlane.testing.servers import Mode, Postgres
from turnlane.testing.torture import Plan, torture


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


async def test_every_promise_is_kept_while_processes_and_the_server_fail(tmp_path: Path, server: Postgres) -> None:
    """C5 and D1. Longer, by hand: `python -m turnlane.testing.torture --backend postgresql://…`"""

    async def restart(chance: Random) -> str:
        mode: Mode = chance.choice(("fast", "immediate"))
        await asyncio.to_thread(server.restart, mode)
        return f"restarts of the server ({mode})"

    plan = Plan(seconds=12, processes=3, seed=3, conversations=8, backend=server.url)
    report = await torture(plan, tmp_path, [restart])
    assert not report.violations, str(report)
    assert sum(report.figures[name] for name in report.figures if name.startswith("restarts")) > 0  # type: ignore[misc]
