"""The stream of the board: a snapshot, then every change, and nothing is lost between the two or on reconnecting."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.http.conftest import WORKER, Running, SmallBot
from tests.http.test_stream import Reader, Sse, reading

from turnlane.flow import lately
from turnlane.http import lanes_stream
from turnlane.model.lane import Kind
from turnlane.model.turn import Replied, Reply
from turnlane.model.view import Changes

PATH = "/api/lanes/stream"


def lanes_of(told: Sse) -> list[dict[str, Any]]:
    """By the names of their columns; what is empty at the end is left out."""
    columns: list[str] = told.data["columns"]  # type: ignore[assignment]
    rows: list[list[Any]] = told.data["lanes"]  # type: ignore[assignment]
    return [dict(zip(columns, [*row, *[None] * (len(columns) - len(row))], strict=True)) for row in rows]


def events_of(told: Sse) -> list[tuple[str, str]]:
    lanes = lanes_of(told)
    events: list[list[Any]] = told.data["events"]  # type: ignore[assignment]
    return [(lanes[place]["conversation"], name) for place, name, *_ in events]


async def heard_until(reader: Reader, cursor: int) -> list[Sse]:
    heard: list[Sse] = []
    while not heard or (heard[-1].id or 0) < cursor:
        heard.append(await reader.next())
    return heard


async def last_cursor(bot: SmallBot) -> int:
    return (await bot.backend.events(after=-1))[-1].cursor


async def test_it_begins_with_every_lane_and_goes_on_with_what_changes(bot: SmallBot, running: Running) -> None:
    await bot.say("site/alice", "hello", "m-1")
    async with reading(running, PATH) as reader:
        snapshot = await reader.next()
        (alice,) = lanes_of(snapshot)
        assert (snapshot.event, snapshot.id, snapshot.data["total"]) == ("snapshot", await last_cursor(bot), 1)
        assert (alice["conversation"], alice["state"], alice["pending"], alice["open"]) == ("site/alice", "ready", 1, 0)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        begun = await reader.next()
        (alice,) = lanes_of(begun)
        assert (begun.event, events_of(begun)) == ("changes", [("site/alice", "turn.started")])
        assert (alice["state"], alice["owner"], alice["attempt"], alice["open"]) == ("running", WORKER, 1, 1)
        assert alice["claimed_at"] + begun.data["at"] == lease.claimed_at
        await bot.backend.commit(lease, Replied(Reply("hi")))
        answered = await reader.next()
        assert events_of(answered) == [("site/alice", "turn.answered")]
        assert [lane["state"] for lane in lanes_of(answered)] == ["idle"]


async def test_a_snapshot_tells_of_the_last_minute(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await bot.say(f"site/person{number}", "hello", f"m-{number}")
    await bot.answer_one("hi")

    async def told() -> list[tuple[str, str]]:
        async with reading(running, PATH) as reader:
            return events_of(await reader.next())

    monkeypatch.setattr(lately, "REACH", 4)
    everything = [(f"site/person{number}", "message.accepted") for number in range(30)]
    assert await told() == [*everything, ("site/person0", "turn.started"), ("site/person0", "turn.answered")]
    # Of too much, the last of it: as much as the widest look found that was not too much.
    monkeypatch.setattr(lately, "EVENTS_MAX", 20)
    assert await told() == [*everything[-14:], ("site/person0", "turn.started"), ("site/person0", "turn.answered")]
    monkeypatch.setattr(lanes_stream, "PAST_MS", -1)
    assert await told() == []


async def test_whoever_reconnects_hears_what_it_missed_and_no_snapshot(bot: SmallBot, running: Running) -> None:
    async with reading(running, PATH) as reader:
        await bot.say("site/alice", "hello", "m-1")
        seen = (await heard_until(reader, await last_cursor(bot)))[-1]
    await bot.answer_one("hi")
    await bot.say("site/bob", "hello", "m-2")
    async with reading(running, PATH, {"last-event-id": str(seen.id)}) as reader:
        missed = await heard_until(reader, await last_cursor(bot))
        assert {told.event for told in missed} == {"changes"}
        assert [name for told in missed for _, name in events_of(told)] == [
            "turn.started",
            "turn.answered",
            "message.accepted",
        ]
        latest = {lane["conversation"]: lane["state"] for told in missed for lane in lanes_of(told)}
        assert latest == {"site/alice": "idle", "site/bob": "ready"}


async def test_whoever_was_away_too_long_or_asks_from_nowhere_gets_a_snapshot(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bot.say("site/alice", "hello", "m-1")
    cursor = await last_cursor(bot)
    await bot.say("site/bob", "hello", "m-2")
    for unknown in (0, cursor + 1_000):
        async with reading(running, f"{PATH}?after={unknown}") as reader:
            assert (await reader.next()).event == "snapshot"
    monkeypatch.setattr(lanes_stream, "RESUME_MS_MAX", -1)
    async with reading(running, f"{PATH}?after={cursor}") as reader:
        assert (await reader.next()).event == "snapshot"


async def test_all_who_watch_share_one_read_and_whoever_lags_misses_nothing(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    changes = bot.backend.changes

    async def counted(*, after: int, limit: int = 1000) -> Changes:
        found = await changes(after=after, limit=limit)
        reads.extend([after] * bool(found.events))
        return found

    monkeypatch.setattr(bot.backend, "changes", counted)
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(running, PATH)) for _ in range(5)]
        for reader in readers:
            assert (await reader.next()).event == "snapshot"
        for number in range(40):
            await bot.say(f"site/person{number % 4}", "hello", f"m-{number}")
            await asyncio.sleep(0)
        cursor = await last_cursor(bot)
        for reader in readers:
            told = await heard_until(reader, cursor)
            assert [name for each in told for _, name in events_of(each)] == ["message.accepted"] * 40
        assert len(reads) == len(set(reads)) < 10
        # Its cursor lies in the middle of what the others were told at once.
        behind = await stack.enter_async_context(reading(running, PATH, {"last-event-id": str(cursor - 1)}))
        (rest,) = await heard_until(behind, cursor)
        assert len(events_of(rest)) == 1
        assert len(reads) == len(set(reads))


async def test_more_lanes_than_fit_are_left_out_and_said_to_be(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_stream, "LANES_MAX", 2)
    for name in ("alice", "bob", "carol"):
        await bot.say(f"site/{name}", "hello", f"m-{name}")
    await bot.answer_one("hi")
    async with reading(running, PATH) as reader:
        snapshot = await reader.next()
        assert [lane["conversation"] for lane in lanes_of(snapshot)] == ["site/carol", "site/bob"]
        assert snapshot.data["total"] == 3


async def test_pausing_the_outbox_is_not_told_as_pausing_the_lane(bot: SmallBot, running: Running) -> None:
    await bot.say("site/alice", "hello", "m-1")
    await bot.answer_one("hi")
    async with reading(running, PATH) as reader:
        await reader.next()
        await bot.backend.pause("site/alice", Kind.OUT)
        await bot.backend.pause("site/alice")
        told = await heard_until(reader, await last_cursor(bot))
        assert [event for each in told for event in events_of(each)] == [("site/alice", "lane.paused")]
        assert lanes_of(told[-1])[0]["state"] == "paused"
