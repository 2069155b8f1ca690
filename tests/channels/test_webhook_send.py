"""How a reply leaves through the plain web hook, and what is known of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from standardwebhooks import Webhook as Signer
from tests.channels.loopback import (
    Behaviour,
    Request,
    accepts_then_cuts,
    answers,
    loopback,
    never_answers,
    nobody_listens,
    promises_more_than_it_sends,
)

from turnlane.channels.webhook import Webhook
from turnlane.clock import SystemClock
from turnlane.errors import InvalidSettings
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
DELIVERY = Delivery(
    id="0d1f1c5e-0000-5000-8000-000000000001",
    conversation="site/a%2Fb",
    text="Grüße 🙂",
    turn=3,
    part=1,
    parts=2,
    in_reply_to=("m-1", "m-2"),
)


async def send(behave: Behaviour, *, timeout: float = 5.0, delivery: Delivery = DELIVERY) -> SendResult:
    async with loopback(behave) as server, opened(server.url, timeout=timeout) as site:
        return await site.send(delivery)


@asynccontextmanager
async def opened(reply_url: str, *, secret: str | None = None, timeout: float = 5.0) -> AsyncIterator[Webhook]:
    site = Webhook("site", secret=secret, reply_url=reply_url, timeout=timeout)
    try:
        yield site
    finally:
        await site.close()
        await site.close()  # may be called twice


@pytest.fixture
async def server_requests() -> AsyncIterator[list[Request]]:
    async with loopback(answers(200)) as server:
        async with opened(server.url, secret=SECRET) as signed, opened(server.url) as plain:
            await signed.send(DELIVERY)
            await plain.send(DELIVERY)
        yield server.requests


async def test_the_reply_is_posted_in_the_documented_form(server_requests: list[Request]) -> None:
    assert server_requests[0].json == {
        "delivery": DELIVERY.id,
        "conversation": "a/b",
        "turn": 3,
        "part": 1,
        "parts": 2,
        "text": "Grüße 🙂",
        "in_reply_to": ["m-1", "m-2"],
    }
    assert server_requests[0].headers["content-type"] == "application/json"
    assert server_requests[0].headers["idempotency-key"] == DELIVERY.id


async def test_the_reply_is_signed_if_there_is_a_secret(server_requests: list[Request]) -> None:
    signed, plain = server_requests
    Signer(SECRET).verify(signed.body, signed.headers)
    assert signed.headers["webhook-id"] == DELIVERY.id
    assert not [name for name in plain.headers if name.startswith("webhook-")]
    assert not [value for value in signed.headers.values() if SECRET in value]


async def test_a_notice_belongs_to_no_turn() -> None:
    async with loopback(answers(200)) as server, opened(server.url) as site:
        await site.send(Delivery(id="d", conversation="site/alice", text="hello", kind="notice"))
    assert (server.requests[0].json["turn"], server.requests[0].json["in_reply_to"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "receipt"),
    [
        (b"", None),
        (b'{"id": "r-1"}', "r-1"),
        (b'{"receipt": "r-2", "other": [1]}', "r-2"),
        (b'{"id": 5}', None),
        (b'{"id": ""}', None),
        (b'{"id": "a\\u0000"}', None),
        (b'{"id": "%s"}' % (b"x" * 1000), None),
        (b'{"x": ' + b"[" * 100_000, None),
        (b"\xff", None),
        (b'["ok"]', None),
    ],
)
async def test_2xx_is_sent_whatever_the_body_says(body: bytes, receipt: str | None) -> None:
    assert await send(answers(202, body)) == Sent(receipt)


async def test_2xx_is_sent_though_the_rest_of_the_answer_was_cut() -> None:
    assert await send(promises_more_than_it_sends) == Sent(None)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured(status: int) -> None:
    result = await send(answers(status, b"slow down", retry_after="7"))
    assert result == NotSent(f"reply_url answered {status}: slow down", 7.0)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_receiver_that_says_it_failed_is_tried_again(status: int) -> None:
    assert await send(answers(status)) == NotSent(f"reply_url answered {status}", None)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410, 422])
async def test_a_receiver_that_will_never_take_it_is_not_tried_again(status: int) -> None:
    assert await send(answers(status)) == Refused(f"reply_url answered {status}", gone=status == 410)


async def test_a_refused_connection_is_proven_not_sent() -> None:
    async with opened(nobody_listens()) as site:
        assert isinstance(await site.send(DELIVERY), NotSent)


async def test_a_cut_is_unknown() -> None:
    assert isinstance(await send(accepts_then_cuts), Unknown)


async def test_a_time_out_is_unknown() -> None:
    assert isinstance(await send(never_answers, timeout=0.2), Unknown)


async def test_nothing_is_sent_twice_by_one_call() -> None:
    async with loopback(accepts_then_cuts) as server, opened(server.url) as site:
        await site.send(DELIVERY)
    assert len(server.requests) == 1


async def test_a_cancelled_send_lets_its_connection_go() -> None:
    async with loopback(never_answers) as server, opened(server.url) as site:
        sending = asyncio.create_task(site.send(DELIVERY))
        await server.arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_without_a_reply_url_the_reply_is_refused_with_the_next_step() -> None:
    result = await Webhook("site", clock=SystemClock()).send(DELIVERY)
    assert isinstance(result, Refused)
    assert "set its reply_url" in result.cause


def test_a_reply_url_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="reply_url"):
        Webhook("site", reply_url="localhost:9000")
