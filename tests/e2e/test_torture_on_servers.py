"""Real processes on one store, killed and frozen while people write, and its servers killed, frozen or restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from turnlane.testing.servers import Mode, Nats, NatsCluster, Postgres
from turnlane.testing.torture import Fault, Plan, torture


@pytest.fixture(params=[Postgres, Nats])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | Nats]:
    with request.param() as server:
        yield server


async def test_every_promise_is_kept_while_processes_and_the_server_fail(
    tmp_path: Path, server: Postgres | Nats
) -> None:
    """C5 and D1. Longer, by hand: `python -m turnlane.testing.torture --backend postgresql://…`"""

    async def restart(chance: Random) -> str:
        mode: Mode = chance.choice(("fast", "immediate"))
        await asyncio.to_thread(server.restart, mode)
        return f"restarts of the server ({mode})"

    await tortured(tmp_path, server.url, restart)


async def test_every_promise_is_kept_while_processes_and_servers_of_a_cluster_fail(
    tmp_path: Path, nats_cluster: NatsCluster
) -> None:
    async def lose_one(chance: Random) -> str:
        node = chance.choice(list(nats_cluster.nodes.values()))
        how = chance.choice(("kill", "freeze"))
        await asyncio.to_thread(node.kill if how == "kill" else node.freeze)
        await asyncio.sleep(2)  # waits: for others to take over what it led
        await asyncio.to_thread(nats_cluster.start)
        return f"servers lost for two seconds ({how})"

    await tortured(tmp_path, f"{nats_cluster.url}?replicas=3", lose_one)


async def tortured(folder: Path, store: str, breaks: Fault) -> None:
    plan = Plan(seconds=12, processes=3, seed=3, conversations=8, backend=store)
    report = await torture(plan, folder, [breaks])
    assert not report.violations, str(report)
    assert sum(report.figures[name] for name in report.figures if "server" in name) > 0  # type: ignore[misc]
