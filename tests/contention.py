"""Workers that fight for the lanes of one store through several handles on it, as several processes have them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Arrival, Backend
from turnlane.errors import BackendUnavailable
from turnlane.model.lane import Kind
from turnlane.model.turn import Replied, Reply

TERM_MS = 60_000
SECONDS_MAX = 60.0
USERS = 8
MESSAGES_EACH = 200
"""Said through each handle."""


@dataclass
class Contention:
    """What the workers of all handles saw together."""

    said: int
    holders: Counter[str] = field(default_factory=Counter)
    overlaps: list[str] = field(default_factory=list)
    done: list[tuple[str, int]] = field(default_factory=list)

    def places_done(self, user: int) -> list[int]:
        return [seq for key, seq in self.done if key == f"desk/user-{user}"]


async def contend(stores: Sequence[Backend]) -> Contention:
    """All write to the same conversations and claim them, two workers to a handle, until everything is answered."""
    seen = Contention(said=MESSAGES_EACH * len(stores))
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(
            *(_say(store, MESSAGES_EACH * place) for place, store in enumerate(stores)),
            *(_work(store, f"worker-{place}", seen) for place, store in enumerate([*stores, *stores])),
        )
    return seen


async def _say(store: Backend, first: int) -> None:
    for number in range(first, first + MESSAGES_EACH):
        await store.accept([arrival(f"user-{number % USERS}", f"m-{number}")])


async def _work(store: Backend, worker: str, seen: Contention) -> None:
    await store.join(worker, TERM_MS)
    while len(seen.done) < seen.said:
        for lease in await store.claim(worker, Kind.TURN, most=3):
            seen.holders[lease.key] += 1
            if seen.holders[lease.key] > 1:
                seen.overlaps.append(lease.key)
            await asyncio.sleep(0)
            seen.holders[lease.key] -= 1
            seen.done.extend((lease.key, message.seq) for message in lease.messages)
            assert (await store.commit(lease, Replied(Reply("ok")))).verdict == "answered"


async def accepted(store: Backend, said: Arrival) -> bool:
    """Whether it was, by a store whose server comes and goes."""
    try:
        [acceptance] = await store.accept([said])
    except BackendUnavailable:
        await asyncio.sleep(0.02)  # waits: as whoever sends again does
        return False
    return acceptance.verdict in {"accepted", "duplicate"}
