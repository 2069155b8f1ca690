"""Servers of a store that fail while others work with it: restarted, killed, frozen, out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from turnlane.testing.cable import cable_to
from turnlane.testing.servers import Mode, Nats, NatsCluster, Postgres

LOST_SECONDS = 2.0
"""How long a server of a cluster is away: others have to take over what it led."""

Servers = Literal["postgres", "nats", "three-nats"]
SERVERS: tuple[Servers, ...] = get_args(Servers)

Fault = Callable[[Random], Awaitable[str]]
"""Something that goes wrong now and then. Returns what it was, once it is over."""


@dataclass(frozen=True)
class Failing:
    """An empty store, and what happens to it."""

    url: str
    faults: Sequence[Fault]


@asynccontextmanager
async def started(servers: Servers) -> AsyncIterator[Failing]:
    """Servers of one's own, for as long as this is open."""
    if servers == "three-nats":
        with NatsCluster() as cluster:
            yield failing_cluster(cluster)
        return
    with Postgres() if servers == "postgres" else Nats() as server:
        async with failing_server(server) as failing:
            yield failing


@asynccontextmanager
async def failing_server(server: Postgres | Nats) -> AsyncIterator[Failing]:
    """It is restarted, with or without a goodbye, and connections to it are cut, some after a silence."""

    async def restart(chance: Random) -> str:
        mode: Mode = chance.choice(("fast", "immediate"))
        await asyncio.to_thread(server.restart, mode)
        return f"restarts of the server ({mode})"

    async with cable_to(server.url) as (cable, url):

        async def cut(chance: Random) -> str:
            if chance.random() < 0.5:
                cable.cut()
                return "cuts of all connections to the server"
            await cable.lose(chance.uniform(0.2, 3))
            return "cuts of all connections to the server, after a silence"

        yield Failing(url, [restart, cut])


def failing_cluster(cluster: NatsCluster) -> Failing:
    """One of three is killed or frozen, and is back soon."""

    async def lose_one(chance: Random) -> str:
        node = chance.choice(list(cluster.nodes.values()))
        how = chance.choice(("kill", "freeze"))
        await asyncio.to_thread(node.kill if how == "kill" else node.freeze)
        await asyncio.sleep(LOST_SECONDS)  # waits: that is the fault
        await asyncio.to_thread(cluster.start)
        return f"servers lost for two seconds ({how})"

    return Failing(f"{cluster.url}?replicas=3", [lose_one])
