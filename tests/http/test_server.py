"""The server itself: what is not even HTTP does not hurt it, and it stops when told."""

from __future__ import annotations

import asyncio
import signal

import httpx2
import pytest
from tests.http.conftest import Running, SmallBot

from turnlane.errors import BackendUnavailable

NOT_HTTP = [
    b"\x00" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.2\r\n\r\n",
    b"POST /channels/site HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"\xff" * 10 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
]


@pytest.mark.parametrize("request_", NOT_HTTP, ids=lambda request: repr(request)[:30])
async def test_what_is_not_http_is_refused_and_survived(bot: SmallBot, running: Running, request_: bytes) -> None:
    answer = await running.raw(request_)
    assert answer.startswith(b"HTTP/1.1 4") or answer == b""
    assert await bot.is_empty()
    async with running.client() as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_a_websocket_is_answered_like_any_request(running: Running) -> None:
    async with running.client() as client:
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        assert (await client.get("/nothing", headers=headers)).status_code == 404


async def test_the_server_leaves_signals_to_the_worker(running: Running) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert "handle_exit" not in repr(handlers)


async def test_it_stops_while_connections_are_kept_alive(running: Running) -> None:
    async with running.client() as client:
        await client.get("/healthz")
        running.stop.set()
        async with asyncio.timeout(5):
            await running.served
        with pytest.raises(httpx2.TransportError):
            await client.get("/healthz")


async def test_not_ready_while_the_store_is_away(
    bot: SmallBot, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(**options: object) -> object:
        raise BackendUnavailable("gone")

    monkeypatch.setattr(bot.backend, "events", away)
    monkeypatch.setattr(bot.backend, "counts", away)
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "2")
    assert ready.headers["content-type"] == "application/problem+json"
    assert (await client.get("/healthz")).status_code == 200
    assert "turnlane_backend_up 0.0" in (await client.get("/metrics")).text


async def test_the_numbers_are_shown(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await client.post("/channels/open", json={"id": "1", "conversation": "alice", "text": "hi"})
    await client.post("/channels/nobody", json={})
    page = await client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    lines = page.text.splitlines()
    assert 'turnlane_hooks_total{channel="open",status="202"} 1.0' in lines
    assert 'turnlane_hooks_total{channel="other",status="404"} 1.0' in lines
    assert 'turnlane_messages_total{channel="open",outcome="accepted"} 1.0' in lines
    assert 'turnlane_lanes{state="ready"} 1.0' in lines
    assert "turnlane_messages_waiting 1.0" in lines
