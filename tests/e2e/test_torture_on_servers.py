"""Real processes on one store, killed and frozen while people write; its servers fail, and are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlane.testing.failing import Failing, failing_cluster, failing_server
from turnlane.testing.servers import Nats, NatsCluster, Postgres
from turnlane.testing.torture import Plan, torture


@pytest.fixture(params=[Postgres, Nats])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | Nats]:
    with request.param() as server:
        yield server


async def test_every_promise_is_kept_while_processes_and_the_server_fail(
    tmp_path: Path, server: Postgres | Nats
) -> None:
    """C5 and D1. Longer, by hand: `python -m turnlane.testing.torture --servers postgres --seconds 1200`"""
    async with failing_server(server) as failing:
        await tortured(tmp_path, failing)


async def test_every_promise_is_kept_while_processes_and_servers_of_a_cluster_fail(
    tmp_path: Path, nats_cluster: NatsCluster
) -> None:
    await tortured(tmp_path, failing_cluster(nats_cluster))


async def tortured(folder: Path, failing: Failing) -> None:
    plan = Plan(seconds=12, processes=3, seed=3, conversations=8, backend=failing.url)
    report = await torture(plan, folder, failing.faults)
    assert not report.violations, str(report)
    assert sum(report.figures[name] for name in report.figures if "server" in name) > 0  # type: ignore[misc]
