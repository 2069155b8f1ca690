"""The agent behind a URL."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.agents.turns import Audience, a_turn
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

from turnlane import outgoing
from turnlane.agents.http import Http
from turnlane.errors import AgentError, AgentFailed, AgentRefused, InvalidSettings, Throttled
from turnlane.model.turn import Reply
from turnlane.model.usage import Usage


async def ask(behave: Behaviour, timeout: float = 5.0) -> Reply:
    async with loopback(behave) as server:
        agent = Http(server.url, timeout=timeout)
        try:
            return await agent.respond(a_turn())
        finally:
            await agent.close()
            await agent.close()  # may be called twice


async def test_the_turn_is_posted_and_the_answer_is_the_reply() -> None:
    body = {"text": "hello", "session": "s-2", "usage": {"input_tokens": 1, "output_tokens": 2}}
    async with loopback(answers(200, json.dumps(body).encode())) as server:
        agent = Http(server.url, headers={"authorization": "Bearer key"})
        assert await agent.respond(a_turn("hi", "there")) == Reply("hello", "s-2", Usage(1, 2))
        await agent.close()
    [request] = server.requests
    assert request.line == "POST /here HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer key"
    assert request.json["turn"]["id"] == "site/alice#3"
    assert [message["text"] for message in request.json["turn"]["messages"]] == ["hi", "there"]


async def test_pieces_are_shown_as_they_come_and_the_last_object_is_the_answer() -> None:
    audience = Audience()

    async def streams(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n")
        writer.write(b'{"piece": "Hel"}\n{"pie')
        await audience.sees("Hel")
        writer.write(b'ce": "lo"}\n')
        await audience.sees("Hello")
        writer.write(b'{"text": "Hello!", "session": "s-2"}')
        writer.close()

    async with loopback(streams) as server:
        agent = Http(server.url, timeout=5.0)
        assert await agent.respond(a_turn(stage=audience)) == Reply("Hello!", "s-2")
        await agent.close()
    assert audience.seen == ["Hel", "Hello"]


async def test_only_an_answer_in_lines_is_read_in_pieces() -> None:
    with pytest.raises(AgentFailed, match="cannot be read"):
        await ask(answers(200, b'{"piece": "Hel"}\n{"text": "Hello"}'))


async def test_null_says_nothing() -> None:
    assert await ask(answers(200, b'{"text": null}')) == Reply(None)


@pytest.mark.parametrize("status", [429, 503])
async def test_an_agent_that_asks_for_time_gets_it(status: int) -> None:
    with pytest.raises(Throttled) as throttled:
        await ask(answers(status, retry_after="9"))
    assert throttled.value.retry_after == 9.0
    assert throttled.value.retry


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
async def test_an_agent_that_refuses_is_not_asked_again(status: int) -> None:
    with pytest.raises(AgentRefused, match=f"{status}: no, never") as refused:
        await ask(answers(status, b"no,\n never"))
    assert not refused.value.retry


@pytest.mark.parametrize(
    "behave",
    [
        answers(500, b"Traceback"),
        answers(502),
        answers(200, b"not json"),
        answers(200, b'{"text": 5}'),
        answers(204),
        accepts_then_cuts,
        promises_more_than_it_sends,
    ],
)
async def test_an_agent_that_fails_is_asked_again(behave: Behaviour) -> None:
    with pytest.raises(AgentFailed) as failed:
        await ask(behave)
    assert failed.value.retry


async def test_an_agent_that_is_too_slow_is_asked_again() -> None:
    with pytest.raises(AgentFailed, match=r"0\.2 s"):
        await ask(never_answers, timeout=0.2)


async def test_an_agent_that_is_not_there_is_asked_again() -> None:
    agent = Http(nobody_listens())
    with pytest.raises(AgentFailed, match="cannot be reached"):
        await agent.respond(a_turn())
    await agent.close()


async def test_an_answer_that_is_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "ANSWER_BYTES_MAX", 100)
    with pytest.raises(AgentFailed, match="longer than"):
        await ask(answers(200, json.dumps({"text": "x" * 200}).encode()))


async def test_a_turn_is_asked_once_per_call() -> None:
    async with loopback(accepts_then_cuts) as server:
        agent = Http(server.url)
        with pytest.raises(AgentError):
            await agent.respond(a_turn())
        await agent.close()
    assert len(server.requests) == 1


async def test_a_cancelled_turn_hangs_up() -> None:
    arrived, hung_up = asyncio.Event(), asyncio.Event()

    async def listens_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        writer.close()
        hung_up.set()

    async with await asyncio.start_server(listens_to_the_end, "127.0.0.1", 0) as server:
        agent = Http(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        asked = asyncio.create_task(agent.respond(a_turn()))
        await arrived.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await hung_up.wait()
        await agent.close()


@pytest.mark.parametrize("url", ["", "agent", "ftp://agent/"])
def test_a_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidSettings, match="the agent's url"):
        Http(url)


@pytest.mark.parametrize("headers", [{"x": "a\nb"}, {"": "a"}, {"x": "ä"}, {"x\n": "a"}])
def test_a_header_that_cannot_be_sent_is_refused_at_once(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="header"):
        Http("http://127.0.0.1/", headers=headers)
