"""Several backends on one store, as several machines have it: one order, one holder, one count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.contention import USERS, accepted, contend
from tests.http.conftest import eventually
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Backend, open_backend
from turnlane.errors import WorkerLost
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import Limits
from turnlane.model.person import Person
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.testing.servers import Mode, Nats, NatsCluster, Postgres

TERM_MS = 60_000

Opens = Callable[[], Awaitable[Backend]]


@pytest.fixture(params=["postgres", "postgres without notify", "nats", "nats with three replicas"])
def store(request: pytest.FixtureRequest) -> str:
    match request.param:
        case "postgres":
            return str(request.getfixturevalue("postgres"))
        case "postgres without notify":
            return f"{request.getfixturevalue('postgres')}?notify=false"
        case "nats":
            return str(request.getfixturevalue("nats"))
        case _:
            cluster: NatsCluster = request.getfixturevalue("nats_cluster")
            return f"{cluster.url}?replicas=3"


@pytest.fixture
async def opens(store: str) -> AsyncIterator[Opens]:
    async with AsyncExitStack() as stack:

        async def opened() -> Backend:
            backend = open_backend(store)
            await backend.open()
            stack.push_async_callback(backend.close)
            return backend

        yield opened


async def test_of_one_message_that_comes_to_two_machines_at_once_one_is_accepted(opens: Opens) -> None:
    """A2, and the conversation is new to both."""
    machines = [await opens(), await opens()]
    for number in range(40):
        twice = [arrival(f"user-{number}", f"m-{number}")]
        answers = await asyncio.gather(*(machine.accept(twice) for machine in machines))
        assert sorted(acceptance.verdict for [acceptance] in answers) == ["accepted", "duplicate"]
        assert {acceptance.seq for [acceptance] in answers} == {1}


async def test_numbers_of_a_conversation_that_two_machines_write_to_are_dense(opens: Opens) -> None:
    machines = [await opens(), await opens()]
    calls = [machines[n % 2].accept([arrival("alice", f"m-{n}")]) for n in range(200)]
    answers = await asyncio.gather(*calls)
    assert sorted(acceptance.seq for [acceptance] in answers) == list(range(1, 201))


async def test_two_machines_never_hold_one_lane(opens: Opens) -> None:
    """C3 and D1"""
    seen = await contend([await opens(), await opens()])
    assert seen.overlaps == []
    for user in range(USERS):
        assert seen.places_done(user) == list(range(1, seen.said // USERS + 1))


async def test_a_limit_of_the_fleet_is_never_exceeded_by_two_machines_together(opens: Opens) -> None:
    machines = [await opens(), await opens()]
    running, most, done = 0, 0, 0
    for machine in machines:
        machine.limits = Limits(all=3)
    await machines[0].accept([arrival(f"user-{n}", f"m-{n}") for n in range(60)])

    async def work(store: Backend, worker: str) -> None:
        nonlocal running, most, done
        await store.join(worker, TERM_MS)
        while done < 60:
            leases = await store.claim(worker, Kind.TURN, most=2)
            running += len(leases)
            most = max(most, running)
            for lease in leases:
                await asyncio.sleep(0)
                running -= 1
                done += 1
                await store.commit(lease, Replied(Reply(None)))

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(machines[n % 2], f"worker-{n}") for n in range(4)))
    assert 1 < most <= 3


async def test_a_rate_is_shared_by_all_machines(opens: Opens) -> None:
    """A whole account sends one in an hour: of two machines one gets the first delivery, and nobody the second."""
    machines = [await opens(), await opens()]
    slow = Policy(agent="agent", tenant="desk", debounce_ms=0, max_wait_ms=0, send_every_ms=3_600_000)
    for machine, worker in zip(machines, ("one", "other"), strict=True):
        await machine.join(worker, TERM_MS)
    said = [replace(arrival(f"user-{n}", f"m-{n}"), policy=slow) for n in range(6)]
    await machines[0].accept(said)
    for lease in await machines[0].claim("one", Kind.TURN, most=6):
        await machines[0].commit(lease, Replied(Reply("hello")))
    claims = [machine.claim(worker, Kind.OUT) for machine, worker in zip(machines, ("one", "other"), strict=True)]
    assert sorted(len(leases) for leases in await asyncio.gather(*claims)) == [0, 1]


async def test_what_one_machine_remembers_does_not_hide_what_another_has_done(opens: Opens) -> None:
    here, there = await opens(), await opens()
    await here.join("here", TERM_MS)
    for number in range(20):
        await here.accept([arrival("alice", f"m-{number}")])
        [lease] = await here.claim("here", Kind.TURN)
        await there.pause("desk/alice")
        assert (await here.commit(lease, Replied(Reply(None)))).verdict == "answered"
        await here.accept([arrival("alice", f"n-{number}")])
        assert await here.claim("here", Kind.TURN) == []
        await there.resume("desk/alice")
        async with asyncio.timeout(5):
            [lease] = await here.claim("here", Kind.TURN, wait=True)
        assert [message.origin_id for message in lease.messages] == [f"n-{number}"]
        assert (await here.commit(lease, Replied(Reply(None)))).verdict == "answered"


async def test_a_worker_that_another_machine_gave_up_is_not_renewed(opens: Opens) -> None:
    here, there = await opens(), await opens()
    await here.join("here", 1)
    await eventually(lambda: here_is_gone(there), 5)
    assert not await here.renew("here", TERM_MS, [])
    await here.accept([arrival("alice", "m-1")])
    with pytest.raises(WorkerLost):
        await here.claim("here", Kind.TURN)


async def here_is_gone(there: Backend) -> bool:
    await there.reap()
    return not any(worker.live for worker in await there.workers())


async def test_conversations_that_begin_with_one_session_on_two_machines_take_turns(opens: Opens) -> None:
    """CONTRACTS 20, though none of the two machines knew of the other's."""
    machines = [await opens(), await opens()]
    workers = list(zip(machines, ("one", "other"), strict=True))
    for machine, worker in workers:
        await machine.join(worker, TERM_MS)

    async def say(word: str) -> list[list[Lease]]:
        """Each conversation to its own machine, and then whatever each of them is given."""
        leases = []
        for machine, worker in workers:
            await machine.accept([arrival(f"{worker}-{pair}", f"{word}-{worker}-{pair}") for pair in range(20)])
            leases.append(sorted(await machine.claim(worker, Kind.TURN, most=20), key=_pair))
        return leases

    for leases in zip(*await say("hello"), strict=True):
        both = zip(machines, leases, strict=True)
        begun = Replied(Reply(None, session=f"memory {_pair(leases[0])}"))
        await asyncio.gather(*(machine.commit(lease, begun) for machine, lease in both))
    running = [_pair(lease) for leases in await say("again") for lease in leases]
    assert sorted(running) == sorted(map(str, range(20)))


async def test_what_two_machines_store_of_somebody_is_heard_of_in_the_end(opens: Opens) -> None:
    """However they come: the greatest version is the one that is stored, and whoever listens has met it."""
    machines = [await opens(), await opens()]
    listener = await opens()
    _, cursor = await listener.changed_people(-1)
    saves = [machines[n % 2].save_person(Person("desk", "alice", f"Alice {n}")) for n in range(20)]
    stored = await asyncio.gather(*saves)
    assert sorted(each.version for each in stored) == list(range(1, 21))
    heard, _ = await listener.changed_people(cursor)
    assert heard[-1] == max(stored, key=lambda each: each.version) == await listener.person("desk", "alice")


def _pair(lease: Lease) -> str:
    return lease.key.rpartition("-")[2]


async def test_a_waiting_claim_is_served_by_what_another_machine_accepts(opens: Opens) -> None:
    """D3: at once where the server tells, and soon where a pool keeps it from telling."""
    here, there = await opens(), await opens()
    await here.join("here", TERM_MS)
    waiting = asyncio.create_task(here.claim("here", Kind.TURN, wait=True))
    await there.accept([arrival("alice", "m-1")])
    async with asyncio.timeout(5):
        [lease] = await waiting
    assert lease.key == "desk/alice"


async def test_a_reader_of_events_misses_none_though_two_machines_write(opens: Opens) -> None:
    machines = [await opens(), await opens()]
    seen: list[tuple[str | None, object]] = []
    over = asyncio.Event()

    async def follow() -> None:
        cursor = 0
        while True:
            last_look = over.is_set()
            for stored in await machines[0].events(after=cursor, limit=50):
                cursor = stored.cursor
                seen.append((stored.event.conversation, stored.event.facts["message"]))
            if last_look and not await machines[0].events(after=cursor, limit=1):
                return
            await asyncio.sleep(0)

    async def write(machine: Backend, name: str) -> None:
        for number in range(150):
            await machine.accept([arrival(f"{name}-{number}", f"{name}-{number}")])

    following = asyncio.create_task(follow())
    await asyncio.gather(write(machines[0], "one"), write(machines[1], "other"))
    over.set()
    await following
    assert len(seen) == len(set(seen)) == 300


# The server goes, and comes back


@pytest.fixture(params=[Postgres, Nats])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | Nats]:
    with request.param() as server:
        yield server


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_nothing_is_lost_when_the_server_is_restarted(server: Postgres | Nats, mode: Mode) -> None:
    """What was acknowledged is there; what was not is told so, and works when it is tried again."""
    store = open_backend(server.url)
    await store.open()
    await store.join("worker", TERM_MS)
    acknowledged: set[str] = set()
    over = asyncio.Event()

    async def say(place: int) -> None:
        number = 0
        while not over.is_set():
            said = arrival(f"user-{place}", f"m-{place}-{number}")
            while not await accepted(store, said):
                pass  # to the end, as the last one may have been stored though nobody was told
            acknowledged.add(said.message.origin_id)
            number += 1

    talking = [asyncio.create_task(say(place)) for place in range(10)]
    for _ in range(2):
        acknowledged_before = len(acknowledged)
        await eventually(lambda: len(acknowledged) >= acknowledged_before + 50, 30)  # noqa: B023 - awaited at once
        await asyncio.to_thread(server.restart, mode)
    over.set()
    await asyncio.gather(*talking)
    found: list[str] = []
    while leases := await store.claim("worker", Kind.TURN, most=10):
        for lease in leases:
            found += [message.origin_id for message in lease.messages]
            assert (await store.commit(lease, Replied(Reply("yes")))).verdict == "answered"
    assert sorted(found) == sorted(acknowledged)
    for lease in await store.claim("worker", Kind.OUT, most=10):
        assert (await store.commit(lease, Delivered("receipt"))).verdict == "sent"
    await store.close()
