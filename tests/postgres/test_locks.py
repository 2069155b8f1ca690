"""Whoever needs several locks takes them in one order, so that nobody waits for one who waits for him."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.http.conftest import eventually
from tests.postgres.conftest import Opens
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Arrival, Backend
from turnlane.model.lane import Kind
from turnlane.model.limits import Limits
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.testing.servers import Postgres

TERM_MS = 60_000
SECONDS_MAX = 60.0
MESSAGES = 400
MACHINES = 3
RATED = Policy(
    agent="agent",
    tenant="desk",
    on_busy="queue",
    debounce_ms=0,
    max_wait_ms=0,
    max_pending=MESSAGES,
    send_every_ms=1,
    send_burst=MESSAGES,
)


@pytest.mark.parametrize("conversations", [4, MESSAGES])
async def test_machines_that_count_turns_and_send_at_a_rate_never_wait_for_each_other_in_a_circle(
    opens: Opens, postgres_server: Postgres, conversations: int
) -> None:
    """The server notices that after a second and undoes one of them, while all the others wait, too."""
    before = circles(postgres_server)
    machines = [await opens() for _ in range(MACHINES)]
    sent: list[str] = []
    slots = []
    for place, machine in enumerate(machines):
        machine.limits = Limits(all=2 * MACHINES)
        await machine.join(f"worker-{place}", TERM_MS)
        slots += [asyncio.create_task(answers(machine, f"worker-{place}")) for _ in range(2)]
        slots += [asyncio.create_task(sends(machine, f"worker-{place}", sent)) for _ in range(2)]
    said = [replace(arrival(f"user-{n % conversations}", f"m-{n}"), policy=RATED) for n in range(MESSAGES)]
    await asyncio.gather(*(says(machine, said[place::MACHINES]) for place, machine in enumerate(machines)))
    await eventually(lambda: len(sent) == MESSAGES, SECONDS_MAX)
    for slot in slots:
        slot.cancel()
    await asyncio.gather(*slots, return_exceptions=True)
    assert circles(postgres_server) == before


def circles(server: Postgres) -> int:
    return server.log.count("deadlock detected")


async def says(machine: Backend, said: Sequence[Arrival]) -> None:
    for each in said:
        await machine.accept([each])


async def answers(machine: Backend, worker: str) -> None:
    while True:
        [lease] = await machine.claim(worker, Kind.TURN, wait=True)
        await machine.commit(lease, Replied(Reply("hello")))


async def sends(machine: Backend, worker: str, sent: list[str]) -> None:
    while True:
        [lease] = await machine.claim(worker, Kind.OUT, wait=True)
        await machine.commit(lease, Delivered("receipt"))
        sent.append(lease.key)
