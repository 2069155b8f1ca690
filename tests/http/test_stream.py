"""Server-sent events: nothing missed, nothing doubled, and an end whenever one is due."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
from tests.http.conftest import TOKEN, Running, SmallBot, eventually

from turnlane.errors import BackendUnavailable
from turnlane.http import stream


@dataclass
class Sse:
    id: int | None
    event: str
    data: dict[str, object]


class Reader:
    """One open stream, read piece by piece."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def block(self) -> list[str]:
        """The lines up to the next empty one."""
        lines: list[str] = []
        async with asyncio.timeout(10):
            async for line in self._lines:
                if not line:
                    return lines
                lines.append(line)
        raise EOFError

    async def next(self, *, but: str = "") -> Sse:
        """The next event, passing over those of one name."""
        while True:
            fields = dict(line.split(": ", 1) for line in await self.block() if not line.startswith(":"))
            if "data" in fields and fields["event"] != but:
                cursor = int(fields["id"]) if "id" in fields else None
                return Sse(cursor, fields["event"], json.loads(fields["data"]))

    async def ends(self) -> bool:
        try:
            while True:
                await self.block()
        except EOFError:
            return True


@asynccontextmanager
async def reading(running: Running, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[Reader]:
    async with running.client() as client, client.stream("GET", path, headers=headers) as answer:
        reader = Reader(answer)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert await reader.block() == ["retry: 1000"]
        yield reader


async def test_events_come_as_they_happen(bot: SmallBot, running: Running) -> None:
    await bot.say("site/alice", "before", "m-0")
    async with reading(running, "/api/events") as reader:
        await bot.say("site/alice", "the secret text", "m-1")
        told = await reader.next()
        assert (told.event, told.data["conversation"]) == ("message.accepted", "site/alice")
        assert told.data["facts"]["message"] == "site:m-1"  # type: ignore[index]
        assert "secret text" not in json.dumps(told.data)


async def test_a_reader_goes_on_from_the_last_one_it_saw(bot: SmallBot, running: Running) -> None:
    for number in range(3):
        await bot.say("site/alice", "hi", f"m-{number}")
    stored = [row for row in await bot.backend.events() if row.event.name == "message.accepted"]
    async with reading(running, f"/api/events?after={stored[0].cursor}") as reader:
        assert (await reader.next()).id == stored[1].cursor
    # On reconnecting a browser repeats the old query, and says in the header how far it came.
    seen = {"last-event-id": str(stored[1].cursor)}
    async with reading(running, "/api/events?after=0", seen) as reader:
        assert (await reader.next()).id == stored[2].cursor


async def test_more_than_one_read_holds_comes_whole_and_in_order(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "ROWS_MAX", 3)
    for number in range(10):
        await bot.say("site/alice", "hi", f"m-{number}")
    stored = [row.cursor for row in await bot.backend.events()]
    async with reading(running, "/api/events?after=0") as reader:
        assert [(await reader.next()).id for _ in stored] == stored


async def test_a_quiet_stream_says_that_it_is_still_there(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(stream, "LOOK_AGAIN_SECONDS", 0.01)
    async with reading(running, "/api/events") as reader:
        assert await reader.block() == [": still here"]


async def test_a_reader_that_leaves_frees_its_place(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STREAMS_MAX", 1)

    async def is_full() -> bool:
        async with running.client() as client, client.stream("GET", "/api/events") as answer:
            return answer.status_code == 503 and answer.headers["retry-after"] == "2"

    async with reading(running, "/api/events"):
        assert await is_full()

    async def has_room() -> bool:
        return not await is_full()

    await eventually(has_room)


async def test_asking_only_for_the_head_does_not_wait_for_events(running: Running) -> None:
    async with running.client() as client:
        answer = await client.head("/api/events")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_one_reader_that_leaves_does_not_end_another(bot: SmallBot, running: Running) -> None:
    async with reading(running, "/api/events") as stays:
        async with reading(running, "/api/events"):
            pass
        await bot.say("site/alice", "hi")
        assert (await stays.next()).event == "message.accepted"


async def test_streams_end_when_the_server_stops(running: Running) -> None:
    async with reading(running, "/api/events") as events, reading(running, f"/channels/web/{TOKEN}/stream") as replies:
        running.stop.set()
        assert await events.ends()
        assert await replies.ends()
    async with asyncio.timeout(5):
        await running.served


async def test_a_store_that_goes_away_ends_the_stream_and_not_the_server(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(timeout: float) -> bool:
        raise BackendUnavailable("gone")

    monkeypatch.setattr(bot.backend, "changed", away)
    async with reading(running, "/api/events") as reader:
        assert await reader.ends()
    async with running.client() as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_replies_reach_the_page_once_they_left(bot: SmallBot, running: Running) -> None:
    await bot.say(f"web/{TOKEN}", "hi", f"{TOKEN}/1")
    async with reading(running, f"/channels/web/{TOKEN}/stream?after=0") as reader:
        await bot.answer_one("hello")
        await bot.send_one()
        reply = await reader.next(but="working")
        assert (reply.id, reply.event, reply.data["text"], reply.data["from"]) == (1, "reply", "hello", "bot")
    async with reading(running, f"/channels/web/{TOKEN}/stream?after=1") as reader:
        await bot.say(f"web/{TOKEN}", "more", f"{TOKEN}/2")
        await bot.answer_one("again")
        await bot.send_one()
        assert (await reader.next()).data["text"] == "again"
