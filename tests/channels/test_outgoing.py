"""What is certain about a post: answered, proven not sent, or unknown."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from tests.channels.loopback import (
    Request,
    accepts_then_cuts,
    answers,
    loopback,
    never_answers,
    nobody_listens,
    promises_more_than_it_sends,
)

from turnlane import outgoing
from turnlane.errors import InvalidSettings
from turnlane.outgoing import Answer, Lost, NotReached, Outgoing, Posted, checked_url


@pytest.fixture
async def out() -> AsyncIterator[Outgoing]:
    out = Outgoing()
    yield out
    await out.close()


async def post(out: Outgoing, url: str, timeout: float = 5.0) -> Posted:
    return await out.post(url, body=b'{"a": 1}', headers={"x-key": "k"}, timeout=timeout)


async def test_an_answer_comes_back_as_it_is(out: Outgoing) -> None:
    async with loopback(answers(207, b"here", x_of_theirs="yes")) as server:
        posted = await post(out, server.url)
    assert isinstance(posted, Answer)
    assert (posted.status, posted.body, posted.headers["x-of-theirs"]) == (207, b"here", "yes")
    assert posted.ok
    assert posted.complete
    [request] = server.requests
    assert (request.line, request.body) == ("POST /here HTTP/1.1", b'{"a": 1}')
    assert (request.headers["content-type"], request.headers["x-key"]) == ("application/json", "k")


async def test_a_refused_connection_is_proven_not_sent(out: Outgoing) -> None:
    assert isinstance(await post(out, nobody_listens()), NotReached)


async def test_a_host_that_does_not_exist_is_proven_not_sent(out: Outgoing) -> None:
    assert isinstance(await post(out, "http://no-such-host.invalid/"), NotReached)


async def test_a_connection_that_takes_too_long_is_proven_not_sent(out: Outgoing) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        # Nobody accepts, so the kernel leaves every further caller waiting.
        with socket.create_connection(address):
            posted = await post(out, f"http://127.0.0.1:{address[1]}/", timeout=0.2)
    assert posted == NotReached("no answer within 0.2 s")


async def test_a_failed_handshake_is_proven_not_sent(out: Outgoing) -> None:
    """Whatever is said before TLS stands is not yet the request."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        posted = await post(out, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert isinstance(posted, NotReached)


async def test_a_cut_after_the_request_left_is_unknown(out: Outgoing) -> None:
    async with loopback(accepts_then_cuts) as server:
        assert isinstance(await post(out, server.url), Lost)
    assert len(server.requests) == 1, "nothing is retried here"


async def test_a_time_out_after_the_request_left_is_unknown(out: Outgoing) -> None:
    async with loopback(never_answers) as server:
        posted = await post(out, server.url, timeout=0.2)
    assert posted == Lost("no answer within 0.2 s")


async def test_a_status_is_certain_though_the_body_was_cut(out: Outgoing) -> None:
    async with loopback(promises_more_than_it_sends) as server:
        posted = await post(out, server.url)
    assert isinstance(posted, Answer)
    assert (posted.status, posted.body, posted.complete) == (200, b'{"text"', False)


async def test_an_endless_answer_is_read_up_to_the_limit(out: Outgoing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "ANSWER_BYTES_MAX", 1000)

    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 700)
            await writer.drain()

    async with loopback(endless) as server:
        posted = await post(out, server.url)
    assert isinstance(posted, Answer)
    assert (len(posted.body), posted.complete) == (1000, False)


async def test_an_answer_of_exactly_the_limit_is_complete(out: Outgoing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "ANSWER_BYTES_MAX", 1000)
    async with loopback(answers(200, b"x" * 1000)) as server:
        posted = await post(out, server.url)
    assert isinstance(posted, Answer)
    assert (len(posted.body), posted.complete) == (1000, True)


async def test_redirects_are_not_followed(out: Outgoing) -> None:
    async with loopback(answers(307, location="/elsewhere")) as server:
        posted = await post(out, server.url)
    assert isinstance(posted, Answer)
    assert posted.status == 307
    assert len(server.requests) == 1


async def test_a_cookie_of_one_answer_never_comes_with_the_next_request(out: Outgoing) -> None:
    async with loopback(answers(200, set_cookie="visitor=alice; Path=/")) as server:
        await post(out, server.url)
        await post(out, server.url)
    assert ["cookie" in request.headers for request in server.requests] == [False, False]


async def test_connections_are_kept_and_closed(out: Outgoing) -> None:
    async with loopback(answers(200)) as server:
        await post(out, server.url)
        await post(out, server.url)
        assert server.connections == 1
        await out.close()
        await out.close()
        await post(out, server.url)
        assert server.connections == 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 10.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("9" * 400, outgoing.RETRY_AFTER_SECONDS_MAX),
        ("-1", None),
        ("soon", None),
        ("²", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert Answer(429, {"retry-after": header}, b"").retry_after(1_445_412_470_000) == seconds


def test_no_retry_after_is_none() -> None:
    assert Answer(503, {}, b"").retry_after(0) is None


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "ftp://a/", "http://?key", "http://[::1", "http://a:99999/", "http://a b/", "http://a\0/"],
)
def test_a_url_that_cannot_be_posted_to_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidSettings, match="reply_url is not a URL") as refused:
        checked_url(url, setting="reply_url")
    assert not url or url not in str(refused.value)


def test_the_http_client_is_imported_only_when_it_is_used() -> None:
    code = "import sys, turnlane.outgoing; assert 'httpx2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
