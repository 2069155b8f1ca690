"""A store is moved to another backend: it holds the same, goes on where it stood, and is never used half copied."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nats import connect
from tests.http.conftest import eventually
from tests.machines.copies import NOBODY_IS_ALIVE, Opens, copied, said, store_at, sums
from tests.sqlite.test_migrations import file_of_version_1

import turnlane
from turnlane.backends.base import Arrival, Backend
from turnlane.backends.copying import (
    CONVERSATIONS as SOME,
)
from turnlane.backends.copying import (
    JOURNAL,
    TABLES,
    Piece,
    Step,
    Sum,
    copy,
)
from turnlane.backends.sql.contents import SqlContents
from turnlane.errors import BackendUnavailable, InvalidInput, NotFound, SchemaMismatch
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply
from turnlane.model.view import StoredEvent, Story
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.servers import Postgres
from turnlane.testing.simulation.world import CONVERSATIONS, World

ALICE = Person("site", "alice", "Älice", labels=("vip", '"de"'), enriched_at=7)
ODD_TEXTS = [
    "",
    " ",
    "naïve 漢字 🧑‍🚀",
    "\u202eright to left",
    "\x01\x7f\t\r\n",
    "'\"\\%?$1",
    "\uffff\U0010ffff",
    "é",
    "e\u0301",
]

KINDS = ("sqlite", "postgres", "nats")
ALL = [f"{source} to {target}" for source in KINDS for target in KINDS]


async def seen(backend: Backend) -> tuple[list[Story | None], list[StoredEvent]]:
    stories = [await backend.story(key, limit=100_000) for key in CONVERSATIONS]
    return stories, await backend.events(limit=100_000)


class Disturbs:
    """Does something when the copy has come to a place."""

    def __init__(self, act: Callable[[], object], step: Step = "copying", what: str = SOME) -> None:
        self._act, self._place = act, (step, what)

    def expect(self, rows: int) -> None:
        pass

    def passed(self, step: Step, what: str, rows: int) -> None:
        if rows and (step, what) == self._place:
            self._act()


# The same


@pytest.mark.parametrize(("both", "seed"), [(both, seed) for seed, both in enumerate(ALL)], indirect=["both"])
async def test_a_store_is_moved_in_the_middle_of_its_work_and_nobody_can_tell(
    both: tuple[str, str], opens: Opens, clock: VirtualClock, seed: int
) -> None:
    """Issue 4, item 7: an oracle that knows nothing of the move watches before and after it."""
    source, target = both
    before = await opens(source)
    world = World([before], clock, seed)
    await world.live(400)
    await before.save_person(ALICE)
    stories, events = await seen(before)
    await before.close()
    contents = await sums(source)
    assert all(table.equal for table in await copied(source, target))
    assert await sums(source) == await sums(target) == contents
    processes = [await opens(target), await opens(target)]
    stories_after, (*events_after, copied_from) = await seen(processes[0])
    assert (stories_after, events_after) == (stories, events)
    assert copied_from.event.name == "store.copied"
    assert copied_from.cursor > events[-1].cursor
    assert await processes[0].person("site", "alice") == replace(ALICE, version=1, changed_at=clock.now())
    assert await processes[1].events(after=-1) == [copied_from]
    world.move(processes, noted=[copied_from.event])
    await world.live(200)
    await world.drain()
    later = await processes[0].events(after=events[-1].cursor, limit=100_000)
    assert later[0] == copied_from
    assert [event.cursor for event in later] == sorted(event.cursor for event in later)


async def test_there_and_back_again_is_the_same(sqlite: str, postgres: str, opens: Opens, clock: VirtualClock) -> None:
    before = await opens(sqlite)
    await World([before], clock, 5).live(1_000)
    await before.configure("lanes.debounce", "1s")
    await before.save_person(ALICE)
    await before.close()
    back = sqlite.replace("store.db", "back.db")
    await copied(sqlite, postgres)
    await copied(postgres, back)
    assert await sums(back) == await sums(postgres) == await sums(sqlite)
    empty = {table for table, total in (await sums(back)).items() if total.rows == 0}
    assert empty <= {"question", "hold"}


async def test_any_text_and_any_number_has_the_same_checksum_everywhere(both: tuple[str, str], opens: Opens) -> None:
    source, target = both
    before = await opens(source)
    numbers = [None, 0, -1, 2**62, -(2**62)]
    arrivals = [
        said(f"m-{place}", text=text, sent_at=numbers[place % len(numbers)]) for place, text in enumerate(ODD_TEXTS)
    ]
    await before.accept(arrivals)
    story = await before.story("site/alice")
    await before.close()
    assert all(table.equal for table in await copied(source, target))
    assert await (await opens(target)).story("site/alice") == story


def test_a_checksum_knows_a_text_from_a_number_and_one_row_from_two() -> None:
    def checksum(*rows: tuple[object, ...]) -> str:
        total = Sum()
        total.add(rows)
        return total.checksum

    different = [(), (("1",),), ((1,),), ((None,),), (("null",),), ((1,), (1,)), ((1, 1),), (("a", ""),), (("", "a"),)]
    assert len({checksum(*rows) for rows in different}) == len(different)
    assert checksum((1, "a"), (2, "b")) == checksum((2, "b"), (1, "a"))


async def test_every_table_is_copied(postgres: str, postgres_server: Postgres, opens: Opens) -> None:
    """Of a file, tests/unit/test_cli_backend.py says the same. Handles are learned from the sessions."""
    await opens(postgres)
    tables = postgres_server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert set(tables.split()) == {*TABLES, "meta", "policy", "handle"}


# It goes on


async def test_what_a_dead_worker_held_is_taken_over_in_the_new_store(
    both: tuple[str, str], opens: Opens, clock: VirtualClock
) -> None:
    source, target = both
    before = await opens(source)
    await before.accept([said("m-1")])
    await before.join("lost", 1_000)
    [held] = await before.claim("lost", Kind.TURN)
    await before.close()
    await copied(source, target)
    after = await opens(target)
    clock.advance(1_001)
    assert await after.reap() == 1
    await after.join("next", 60_000)
    [lease] = await after.claim("next", Kind.TURN)
    assert (lease.number, lease.attempt, lease.epoch) == (held.number, 2, held.epoch + 1)
    assert (await after.commit(held, Replied(Reply("too late")))).verdict == "fenced"
    assert (await after.commit(lease, Replied(Reply("hi")))).verdict == "answered"


async def test_new_conversations_and_policies_get_numbers_of_their_own(both: tuple[str, str], opens: Opens) -> None:
    source, target = both
    before = await opens(source)
    await before.accept([said(f"m-{n}", f"site/user-{n}") for n in range(1_500)])
    await before.close()
    await copied(source, target)
    after = await opens(target)
    fresh = Arrival(Message("site", "new", "site/new", "new", "hello"), Policy(debounce_ms=7))
    [new, again] = await after.accept([fresh, said("m-3", "site/user-3")])
    assert (new.verdict, new.seq, again.verdict) == ("accepted", 1, "duplicate")
    await after.close()
    assert (await sums(target))["lane"].rows == 1_501


async def test_a_file_of_an_older_version_is_brought_up_before(tmp_path: Path, postgres: str, opens: Opens) -> None:
    file_of_version_1(tmp_path / "old.db")
    await copied(f"sqlite:///{tmp_path / 'old.db'}", postgres)
    after = await opens(postgres)
    await after.join("worker", 60_000)
    [lease] = await after.claim("worker", Kind.TURN)
    assert [message.origin_id for message in lease.messages] == ["m-2", "m-3"]


# It is refused


async def test_a_live_worker_in_the_old_store_is_refused_and_nothing_is_made(
    tmp_path: Path, sqlite: str, opens: Opens, clock: VirtualClock
) -> None:
    before = await opens(sqlite)
    await before.join("busy", 60_000)
    other = f"sqlite:///{tmp_path}/other.db"
    with pytest.raises(InvalidInput, match=r"worker is at work; stop every .* counts for another 6\ds"):
        await copied(sqlite, other, now=clock.now())
    assert not (tmp_path / "other.db").exists()


async def test_a_store_that_is_not_empty_is_left_as_it_is(both: tuple[str, str], opens: Opens) -> None:
    source, target = both
    before, after = await opens(source), await opens(target)
    await before.accept([said("m-1")])
    await after.accept([said("m-2")])
    contents = await sums(target)
    with pytest.raises(InvalidInput, match="not empty"):
        await copied(source, target)
    assert await sums(target) == contents
    [fine] = await (await opens(target)).accept([said("m-3")])
    assert fine.seq == 2


async def test_where_no_store_is_none_is_made(both: tuple[str, str]) -> None:
    source, target = both
    with pytest.raises(NotFound, match="no store to copy from"):
        await copied(source, target)
    for url in both:
        assert await asyncio.to_thread(store_at(url).version) == 0


async def test_what_comes_in_meanwhile_is_not_left_behind_unnoticed(both: tuple[str, str], opens: Opens) -> None:
    source, target = both
    before = await opens(source)
    await before.accept([said("m-1")])
    await before.close()

    def somebody_writes() -> None:
        script = WRITES.format(url=source)
        subprocess.run([sys.executable, "-c", script], check=True, env=environment(), timeout=60)

    with pytest.raises(BackendUnavailable, match=r"somebody wrote to it meanwhile; .* run the same command again"):
        await copied(source, target, watcher=Disturbs(somebody_writes))
    with pytest.raises(SchemaMismatch, match="not finished"):
        await opens(target)
    assert all(table.equal for table in await copied(source, target))
    [again] = await (await opens(target)).accept([said("m-2")])
    assert again.verdict == "duplicate"


@pytest.mark.parametrize("kind", ["postgres", "nats"])
async def test_two_copies_into_one_store_are_not_mixed(
    request: pytest.FixtureRequest, sqlite: str, kind: str, opens: Opens
) -> None:
    target = str(request.getfixturevalue(kind))
    before = await opens(sqlite)
    await before.accept([said("m-1")])
    refusals: list[pytest.ExceptionInfo[BackendUnavailable]] = []

    def another() -> None:
        with pytest.raises(BackendUnavailable, match="another copy into it is under way") as refused:
            copy(store_at(sqlite), store_at(target), now=NOBODY_IS_ALIVE)
        refusals.append(refused)

    assert all(table.equal for table in await copied(sqlite, target, watcher=Disturbs(another)))
    assert len(refusals) == 1
    assert await sums(target) == await sums(sqlite)


async def test_a_stream_that_somebody_else_writes_to_meanwhile_is_never_used(
    sqlite: str, nats: str, opens: Opens
) -> None:
    before = await opens(sqlite)
    await before.accept([said(f"m-{place}", f"site/user-{place}") for place in range(500)])
    await before.close()

    def somebody_writes() -> None:
        asyncio.run(publish(nats, "turnlane.c.site/somebody"))

    with pytest.raises(BackendUnavailable, match=r"somebody else writes to it, too.*run the same command again"):
        await copied(sqlite, nats, watcher=Disturbs(somebody_writes))
    with pytest.raises(SchemaMismatch, match="not finished"):
        await opens(nats)
    assert all(table.equal for table in await copied(sqlite, nats))


async def publish(url: str, subject: str) -> None:
    client = await connect(url)
    await client.jetstream().publish(subject, b"{}")
    await client.close()


async def test_a_copy_that_differs_is_never_used(
    sqlite: str, postgres: str, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await opens(sqlite)
    await before.accept([said("m-1"), said("m-2")])
    write = SqlContents.write

    def loses_one(self: SqlContents, piece: Piece) -> None:
        what, values = piece
        write(self, (what, [replace(it, messages=it.messages[1:]) for it in values] if what == SOME else values))

    with monkeypatch.context() as patch:
        patch.setattr(SqlContents, "write", loses_one)
        different = [table for table in await copied(sqlite, postgres) if not table.equal]
    assert [(table.table, table.source.rows, table.target.rows) for table in different] == [("message", 2, 1)]
    with pytest.raises(SchemaMismatch, match="not finished"):
        await opens(postgres)
    assert all(table.equal for table in await copied(sqlite, postgres))


# It is killed

WRITES = """
import asyncio
from turnlane.backends import open_backend
from turnlane.backends.base import Arrival
from turnlane.model.message import Message
from turnlane.model.policy import Policy

async def main():
    backend = open_backend({url!r})
    await backend.open()
    await backend.accept([Arrival(Message("site", "m-2", "site/alice", "alice", "hello"), Policy())])
    await backend.close()

asyncio.run(main())
"""

DIES = """
import os, signal
from turnlane.backends import open_backend
from turnlane.backends.copying import copy

class Dies:
    def expect(self, rows):
        pass

    def passed(self, step, what, rows):
        if rows and (step, what) == {place!r}:
            os.kill(os.getpid(), signal.SIGKILL)

copy(open_backend({source!r}), open_backend({target!r}), now={now}, watcher=Dies())
"""


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(turnlane.__file__).parents[1])}


@pytest.mark.parametrize("place", [("copying", JOURNAL), ("copying", SOME), ("verifying", SOME)])
async def test_killed_in_the_middle_it_leaves_a_store_that_nobody_opens_and_starts_over(
    both: tuple[str, str], opens: Opens, place: tuple[str, str]
) -> None:
    source, target = both
    before = await opens(source)
    await before.accept([said(f"m-{n}", f"site/user-{n}") for n in range(50)])
    await before.close()
    contents = await sums(source)
    script = DIES.format(place=place, source=source, target=target, now=NOBODY_IS_ALIVE)
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", script, env=environment())
    assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
    with pytest.raises(SchemaMismatch, match="run the same `turnlane backend copy` again"):
        await opens(target)
    assert await sums(source) == contents

    async def starts_over() -> bool:
        try:
            tables = await copied(source, target)
        except BackendUnavailable:
            return False  # the server learns in a moment that who was killed is gone
        assert all(table.equal for table in tables)
        return True

    await eventually(starts_over, 30)
    assert len(await (await opens(target)).lanes()) == 50
