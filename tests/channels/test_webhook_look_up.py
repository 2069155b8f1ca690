"""What the plain web hook learns when it asks whether a reply arrived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from standardwebhooks import Webhook as Signer
from tests.channels.loopback import (
    Behaviour,
    accepts_then_cuts,
    answers,
    loopback,
    never_answers,
    nobody_listens,
    promises_more_than_it_sends,
)

from turnlane.channels.base import AskLater, LookingChannel
from turnlane.channels.web import Web
from turnlane.channels.webhook import Webhook
from turnlane.errors import InvalidSettings
from turnlane.model.delivery import Delivery, NotSent, Sent

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
DELIVERY = Delivery(id="0d1f1c5e-0000-5000-8000-000000000001", conversation="site/alice", text="hello")


@asynccontextmanager
async def opened(url: str | None, *, secret: str | None = None, timeout: float = 5.0) -> AsyncIterator[Webhook]:
    site = Webhook("site", secret=secret, reply_url=nobody_listens(), lookup_url=url, timeout=timeout)
    try:
        yield site
    finally:
        await site.close()


async def look_up(behave: Behaviour, *, timeout: float = 5.0) -> Sent | NotSent | None:
    async with loopback(behave) as server, opened(server.url, timeout=timeout) as site:
        return await site.look_up(DELIVERY)


async def test_the_question_is_asked_in_the_documented_form() -> None:
    async with (
        loopback(answers(404)) as server,
        opened(server.url) as plain,
        opened(f"{server.url}?key=a%20b#top") as with_a_query,
    ):
        await plain.look_up(DELIVERY)
        await with_a_query.look_up(DELIVERY)
        await with_a_query.look_up(replace(DELIVERY, id="a b&c=d/é"))
    assert [request.line for request in server.requests] == [
        f"GET /here?delivery={DELIVERY.id} HTTP/1.1",
        f"GET /here?key=a%20b&delivery={DELIVERY.id} HTTP/1.1",
        "GET /here?key=a%20b&delivery=a%20b%26c%3Dd%2F%C3%A9 HTTP/1.1",
    ]
    assert server.requests[0].body == b""


async def test_the_question_is_signed_if_there_is_a_secret() -> None:
    async with loopback(answers(404)) as server, opened(server.url, secret=SECRET) as site:
        await site.look_up(DELIVERY)
    (request,) = server.requests
    Signer(SECRET).verify(b"", request.headers, json_parse=False)
    assert request.headers["webhook-id"] == DELIVERY.id
    assert not [value for value in request.headers.values() if SECRET in value]


@pytest.mark.parametrize(
    ("body", "receipt"),
    [
        (b'{"sent": true, "receipt": "r-1"}', "r-1"),
        (b'{"sent": true}', None),
        (b'{"sent": true, "receipt": null, "other": []}', None),
        (b'{"sent": true, "receipt": 5}', None),
    ],
)
async def test_what_arrived_is_known_with_its_receipt(body: bytes, receipt: str | None) -> None:
    assert await look_up(answers(200, body)) == Sent(receipt)


@pytest.mark.parametrize("behave", [answers(200, b'{"sent": false}'), answers(404), answers(404, b"no such page")])
async def test_what_never_came_is_proven_not_sent(behave: Behaviour) -> None:
    assert isinstance(await look_up(behave), NotSent)


@pytest.mark.parametrize(
    "body", [b"", b"sent", b"{}", b'{"sent": 1}', b'{"sent": null}', b"[]", b"\xff", b"[" * 100_000]
)
async def test_an_answer_that_says_something_else_cannot_tell(body: bytes) -> None:
    assert await look_up(answers(200, body)) is None


@pytest.mark.parametrize("status", [204, 301, 400, 401, 405, 410, 500, 501])
async def test_any_other_status_cannot_tell(status: int) -> None:
    assert await look_up(answers(status)) is None


@pytest.mark.parametrize(
    "behave",
    [
        answers(429),
        answers(502),
        answers(503, b"come back later"),
        answers(504),
        accepts_then_cuts,
        never_answers,
        promises_more_than_it_sends,
    ],
)
async def test_nobody_who_could_tell_is_asked_again_and_not_taken_for_an_answer(behave: Behaviour) -> None:
    with pytest.raises(ConnectionError, match="lookup_url"):
        await look_up(behave, timeout=0.5)


async def test_who_says_when_to_ask_again_is_believed() -> None:
    for behave, seconds in ((answers(429, retry_after="120"), 120.0), (answers(429), None)):
        with pytest.raises(AskLater, match="lookup_url answered 429") as raised:
            await look_up(behave)
        assert raised.value.retry_after == seconds


async def test_a_refused_connection_is_asked_again_too() -> None:
    async with opened(nobody_listens()) as site:
        with pytest.raises(ConnectionError, match="lookup_url"):
            await site.look_up(DELIVERY)


async def test_without_a_lookup_url_the_channel_cannot_tell() -> None:
    async with opened(None) as site:
        assert isinstance(site, LookingChannel)
        assert await site.look_up(DELIVERY) is None


def test_a_lookup_url_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="lookup_url"):
        Webhook("site", lookup_url="localhost:9000")


async def test_a_reply_on_the_chat_page_is_never_in_doubt() -> None:
    """The page reads the outbox itself, so nothing of it can be said twice."""
    web = Web()
    assert isinstance(web, LookingChannel)
    assert await web.look_up(DELIVERY) == Sent()
