"""How often others are asked on a day of 1,000 users, with what is at hand and without.

python benchmarks/requests.py [--users 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import time

from turnlane.backends.memory import MemoryBackend
from turnlane.clock import SystemClock
from turnlane.model.person import Person
from turnlane.people.profiles import CACHED_MOST, CACHED_SECONDS, Profiles
from turnlane.testing.bench.requests import CHANGES, SEED, USERS, Day, live

HITS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--users", type=int, default=USERS)
    given = parser.parse_args()
    changes = max(1, CHANGES * given.users // USERS)
    print(f"seed {SEED}, {given.users:,} users, {changes:,} changes")
    show("at hand", asyncio.run(live(given.users, changes)))
    show("nothing at hand", asyncio.run(live(given.users, changes, at_hand=False)))
    print(f"somebody who is at hand: {asyncio.run(hit_microseconds()):.2f} µs")


def show(name: str, day: Day) -> None:
    print(f"\n{name}: {day.messages:,} messages, {day.turns:,} turns")
    for what, count in sorted(day.requests.items()):
        print(f"  {what:32} {count:8,}")
    print(f"  {'requests a message':32} {day.requests_per_message:8.2f}")
    print(f"  {'people who were at hand':32} {day.hit_rate:8.1%}")
    print(f"  {'who has changed? (each second)':32} {day.looks:8,}")


async def hit_microseconds() -> float:
    clock = SystemClock()
    people = Profiles(backend=MemoryBackend("memory://", clock), clock=clock, channels={})
    for number in range(CACHED_MOST):
        people.cache.put(("phone", f"user-{number}"), Person("phone", f"user-{number}"))
    before = time.perf_counter()
    for number in range(HITS):
        await people.of("phone", f"user-{number % CACHED_MOST}")
    assert people.cache.seconds == CACHED_SECONDS
    return (time.perf_counter() - before) / HITS * 1e6


if __name__ == "__main__":
    main()
