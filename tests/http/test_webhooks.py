"""The web hook door: what is taken is stored, what is refused leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.http.conftest import TOKEN, Running, SmallBot, eventually, in_process

from turnlane.backends.base import Arrival
from turnlane.channels.base import Received
from turnlane.model.message import Message
from turnlane.model.policy import Policy

SIGNED = {"authorization": "Bearer site-secret"}
HELLO = {"id": "m-1", "conversation": "alice", "sender": "alice", "text": "hi"}


async def refused(bot: SmallBot, answer: httpx2.Response, status: int) -> str:
    """Check that it is a problem, that nothing was stored, and that the operator heard of it. Returns the detail."""
    body = answer.json()
    assert answer.status_code == status, body
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["type"], body["status"]) == ("about:blank", status)
    assert body["title"]
    assert await bot.is_empty()
    assert [event.name for event in bot.events] == ["hook.refused"]
    assert bot.events[0].facts["status"] == status
    detail: str = body["detail"]
    assert detail
    return detail


async def test_a_channel_may_have_a_path_of_its_own(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    answer = await client.post("/hooks/site", json=HELLO, headers=SIGNED)
    assert answer.status_code == 202
    assert await bot.backend.story("site/alice") is not None
    assert (await client.post("/hooks/site", json=HELLO)).status_code == 401
    assert (await client.get("/hooks/site")).status_code == 405
    assert (await client.post("/hooks/other", json=HELLO)).status_code == 404


async def test_a_message_is_stored_before_it_is_answered(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    answer = await client.post("/channels/site", json=HELLO, headers=SIGNED)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "duplicates": 0, "rejected": 0})
    story = await bot.backend.story("site/alice")
    assert story is not None
    assert [message.text for message in story.messages] == ["hi"]
    (event,) = bot.events
    assert (event.name, event.facts) == (
        "hook.received",
        {"channel": "site", "status": 202, "accepted": 1, "duplicates": 0},
    )


async def test_a_redelivered_message_is_accepted_once(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await client.post("/channels/site", json=HELLO, headers=SIGNED)
    again = await client.post("/channels/site", json=[HELLO, {**HELLO, "id": "m-2"}], headers=SIGNED)
    assert again.json() == {"accepted": 1, "duplicates": 1, "rejected": 0}


@pytest.mark.parametrize("given", [None, b"Bearer wrong", b"Bearer \xff", b"site-secret"])
async def test_a_wrong_or_missing_secret_is_refused(
    bot: SmallBot, client: httpx2.AsyncClient, given: bytes | None
) -> None:
    headers = {} if given is None else {b"authorization": given}
    answer = await client.post("/channels/site", json=HELLO, headers=headers)
    detail = await refused(bot, answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "site-secret" not in detail


JSON = {**SIGNED, "content-type": "application/json"}


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"not json", JSON),
        (400, b"", JSON),
        (400, b'{"id": "m-1", "conversation": "alice", "text": "\xff\xfe"}', JSON),
        (422, b"[" * 100_000 + b"]" * 100_000, JSON),
        (422, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, JSON),
        (415, b'{"id": "m-1", "conversation": "alice", "text": "hi"}', SIGNED),
        (415, b"id=m-1&text=hi", {**SIGNED, "content-type": "application/x-www-form-urlencoded"}),
        (422, b"[1, 2]", JSON),
        (422, b'"hello"', JSON),
        (422, b'{"id": 7, "conversation": "alice", "text": "hi"}', JSON),
        (422, b'{"id": "m-1", "conversation": "alice", "text": "a\\u0000b"}', JSON),
        (422, b'{"id": "", "conversation": "alice", "text": "hi"}', JSON),
        (422, b'{"id": "%s", "conversation": "alice", "text": "hi"}' % (b"x" * 5_000), JSON),
        (422, b'{"id": "m-1", "conversation": "%s", "text": "hi"}' % ("é".encode() * 500), JSON),
        (422, b'{"id": "m-1", "conversation": "alice", "text": "hi", "admin": true}', JSON),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_bad_bodies_are_refused_with_the_reason(
    bot: SmallBot, client: httpx2.AsyncClient, status: int, body: bytes, headers: dict[str, str]
) -> None:
    await refused(bot, await client.post("/channels/site", content=body, headers=headers), status)


@pytest.mark.parametrize("name", ["nobody", "a" * 5_000, "%00", "%0Aevil=1", "%F0%9F%98%80", "site%2Falice"])
async def test_an_unknown_channel_is_not_found_and_not_repeated(
    bot: SmallBot, client: httpx2.AsyncClient, name: str
) -> None:
    answer = await client.post(f"/channels/{name}", json=HELLO)
    assert answer.status_code in {404, 405}
    assert answer.headers["content-type"] == "application/problem+json"
    assert await bot.is_empty()
    assert all(event.facts["channel"] is None for event in bot.events)


async def test_a_channel_is_posted_to_and_nothing_else(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    answer = await client.get("/channels/site")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_past_the_limit_is_refused_by_its_declared_length(bot: SmallBot, running: Running) -> None:
    async with running.client() as client:
        body = b'{"text": "' + b"x" * 12_000_000 + b'"}'
        detail = await refused(bot, await client.post("/channels/site", content=body, headers=JSON), 413)
        assert "10485760" in detail
        assert (await client.get("/healthz")).status_code == 200


async def test_a_body_past_the_limit_is_refused_while_it_arrives(bot: SmallBot, running: Running) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(12):
            yield b"x" * 1_000_000

    async with running.client() as client:
        await refused(bot, await client.post("/channels/site", content=endless(), headers=JSON), 413)


async def test_the_limit_can_be_set(bot: SmallBot) -> None:
    async with in_process(bot, body_bytes_max=20) as client:
        await refused(bot, await client.post("/channels/site", json=HELLO, headers=SIGNED), 413)


async def test_a_body_that_trickles_too_long_is_refused(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlane.http.webhooks.BODY_SECONDS_MAX", 0.05)
    answer = await running.raw(
        b"POST /channels/site HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 10\r\n\r\nab"
    )
    assert answer.startswith(b"HTTP/1.1 408")
    assert bot.events[0].facts["status"] == 408


async def test_a_caller_that_hangs_up_leaves_nothing(
    bot: SmallBot, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"POST /channels/site HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await eventually(lambda: bool(bot.events))
    assert bot.events[0].facts == {"channel": "site", "status": 400, "cause": "ClientDisconnect"}
    assert not caplog.records


async def test_a_store_that_is_away_asks_for_another_try(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    bot.down = True
    answer = await client.post("/channels/site", json=HELLO, headers=SIGNED)
    detail = await refused(bot, answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    assert "/secret/place" not in detail


async def test_what_nobody_foresaw_shows_no_internals_and_is_logged(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(messages: Any) -> Received:
        raise RuntimeError("the text of a customer's message")

    monkeypatch.setattr(bot, "receive", broken)
    async with running.client() as client:
        answer = await client.post("/channels/site", json=HELLO, headers=SIGNED)
        detail = await refused(bot, answer, 500)
        assert "customer" not in detail
        assert bot.events[0].facts["cause"] == "RuntimeError"
        assert "RuntimeError" in caplog.text
        assert (await client.get("/healthz")).status_code == 200


async def test_a_parser_that_runs_out_of_stack_is_a_bad_body(
    bot: SmallBot, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deep(headers: object, body: bytes) -> list[Message]:
        raise RecursionError

    monkeypatch.setattr(bot.channels["site"], "parse", deep)
    await refused(bot, await client.post("/channels/site", json=HELLO), 400)


async def test_a_channel_without_a_secret_is_open_on_loopback(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    assert (await client.post("/channels/open", json=HELLO)).status_code == 202


async def test_a_channel_without_a_secret_is_closed_to_the_world(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        detail = await refused(bot, await client.post("/channels/open", json=HELLO), 404)
        assert "secret" in detail


async def test_pages_of_other_sites_cannot_post_to_an_open_channel(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    answer = await client.post("/channels/open", json=HELLO, headers={"origin": "https://evil.example"})
    await refused(bot, answer, 403)


async def test_a_channel_with_a_secret_may_stand_behind_any_host_name(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    answer = await client.post("/channels/site", json=HELLO, headers={**SIGNED, "host": "hooks.example.com"})
    assert answer.status_code == 202


@pytest.mark.parametrize("id", ["a\nb", "../../etc/passwd", "'; DROP TABLE message;--", "🦆" * 20, " "])
async def test_absurd_ids_are_kept_as_they_are(bot: SmallBot, client: httpx2.AsyncClient, id: str) -> None:
    answer = await client.post("/channels/site", json={**HELLO, "id": id, "conversation": id}, headers=SIGNED)
    assert answer.status_code == 202
    (lane,) = await bot.backend.lanes()
    story = await bot.backend.story(lane.conversation)
    assert story is not None
    assert story.messages[0].origin_id == id


async def test_the_chat_pages_channel_takes_its_lines(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    line = {"id": "1", "conversation": TOKEN, "text": "hello"}
    assert (await client.post("/channels/web", json=line)).status_code == 202
    assert (await client.post("/channels/web", json=line)).json()["duplicates"] == 1


async def test_a_report_of_typing_is_taken_and_counts_as_nothing(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    gathers = Policy(debounce_ms=60_000, max_wait_ms=600_000)
    for conversation, channel in ((f"web/{TOKEN}", "web"), ("open/alice", "open")):
        message = Message(channel, "m-1", conversation, "somebody", "hello")
        await bot.backend.accept([Arrival(message, gathers)])
        (before,) = await bot.backend.lanes(channel=channel)
        await asyncio.sleep(0.01)
        report = {"conversation": conversation.partition("/")[2], "typing": True}
        answer = await client.post(f"/channels/{channel}", json=report)
        assert (answer.status_code, answer.json()) == (202, {"accepted": 0, "duplicates": 0, "rejected": 0})
        (after,) = await bot.backend.lanes(channel=channel)
        assert (after.ready_at or 0) > (before.ready_at or 0)
    assert bot.events == [], "it is told every second or two, and no log line is needed"
    nobody = await client.post("/channels/open", json={"conversation": "nobody", "typing": True})
    assert nobody.status_code == 202
    assert len(await bot.backend.lanes()) == 2


async def test_a_bad_report_of_typing_stores_nothing(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    said = {"id": "m-1", "conversation": "alice", "text": "hi"}
    for channel, body in (
        ("open", [said, {"conversation": "alice", "typing": 1}]),
        ("web", {"conversation": "short", "typing": True}),
    ):
        assert (await client.post(f"/channels/{channel}", json=body)).status_code == 422
    form = {"content-type": "text/plain"}
    raw = b'{"conversation": "visitor-token-0123456789", "typing": true}'
    assert (await client.post("/channels/web", content=raw, headers=form)).status_code == 415
    assert await bot.backend.lanes() == []
