"""Chat completions by the real client, with our own history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.agents.openai_service import KEY, MODEL, SNAPSHOT, Mode, OpenAIService, serving
from tests.agents.turns import FILE, Audience, a_message, a_turn

from turnlane.agents.base import Agent
from turnlane.agents.openai import agent as build
from turnlane.agents.openai.options import Options
from turnlane.errors import AgentFailed, AgentRefused, InvalidSettings, Throttled
from turnlane.model.turn import Exchange, Turn
from turnlane.model.usage import Usage

PAST = [
    Exchange(1, [a_message(1, "one", attachments=(FILE,))], ["first", "and more"]),
    Exchange(2, [a_message(2, "two"), a_message(3, "by hand", role="operator")], ["second"]),
]


class Remembering(Audience):
    def __init__(self, past: Sequence[Exchange] = PAST) -> None:
        super().__init__()
        self._past = past

    async def past(self, turn: Turn, turns: int) -> Sequence[Exchange]:
        return self._past[-turns:] if turns else ()


@pytest.fixture
async def service() -> AsyncIterator[OpenAIService]:
    async with serving() as started:
        yield started


@asynccontextmanager
async def an_agent(service: OpenAIService, **more: Any) -> AsyncIterator[Agent]:
    agent = build(Options(**{"model": MODEL, "api_key": KEY, "base_url": service.url, **more}))
    try:
        yield agent
    finally:
        await agent.close()
        await agent.close()  # may be called twice


async def test_a_first_turn_makes_up_a_session_which_is_the_same_on_every_attempt(service: OpenAIService) -> None:
    async with an_agent(service) as agent:
        first = await agent.respond(a_turn("one", session=None))
        again = await agent.respond(a_turn("one", session=None, attempt=3))
        other = await agent.respond(a_turn("one", session=None, number=4))
    assert first.session == again.session != other.session
    assert first.text == "heard one"


async def test_the_model_is_told_what_was_said_in_this_session_by_turns(service: OpenAIService) -> None:
    async with an_agent(service, instructions="Be brief.") as agent:
        reply = await agent.respond(a_turn("three", stage=Remembering()))
    assert service.bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one\n[attachment a.ogg]"},
        {"role": "assistant", "content": "first\nand more"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "by hand\nsecond"},
        {"role": "user", "content": "three"},
    ]
    assert reply.session == "s-1"


async def test_of_a_long_past_only_the_latest_exchanges_that_have_room_are_told(service: OpenAIService) -> None:
    async with an_agent(service, history_characters=20) as agent:
        await agent.respond(a_turn("three", stage=Remembering()))
    assert [each["content"] for each in service.bodies[0]["messages"]] == ["two", "by hand\nsecond", "three"]


async def test_usage_and_model_are_those_of_the_answer_which_is_shown_as_it_grows(service: OpenAIService) -> None:
    service.next(Mode(says="all is well"))
    stage = Remembering()
    async with an_agent(service, temperature=0.0, max_output_tokens=9, extra={"seed": 7}) as agent:
        reply = await agent.respond(a_turn("three", stage=stage))
    assert (reply.usage, reply.model) == (Usage(service.paid[0]["prompt_tokens"], 3, 1, 2), SNAPSHOT)
    assert stage.seen == ["all", "all is", "all is well"]
    sent = {name: service.bodies[0][name] for name in ("temperature", "max_tokens", "seed")}
    assert sent == {"temperature": 0.0, "max_tokens": 9, "seed": 7}


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        (Mode(cut_after=1), AgentFailed),
        (Mode(status=500), AgentFailed),
        (Mode(status=429, headers={"retry-after": "3"}), Throttled),
        (Mode(status=400), AgentRefused),
        (Mode(status=404), AgentRefused),
        (Mode(reason="content_filter"), AgentRefused),
        (Mode(reason="tool_calls"), AgentRefused),
    ],
)
async def test_what_goes_wrong_is_judged(service: OpenAIService, mode: Mode, error: type[Exception]) -> None:
    service.next(mode)
    async with an_agent(service) as agent:
        with pytest.raises(error):
            await agent.respond(a_turn("one", session=None))
    assert service.count("POST /v1/chat") == 1


# Whom the key is for


def test_the_key_of_the_environment_is_for_openai_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    assert Options(MODEL).key == "sk-mine"
    assert Options(MODEL, base_url="https://eu.api.openai.com/v1").key == "sk-mine"
    assert Options(MODEL, base_url="https://api.openai.com.example/v1").key is None
    assert Options(MODEL, "sk-other", "http://127.0.0.1:1/v1").key == "sk-other"
    assert "sk-" not in repr(Options(MODEL, "sk-other"))


def test_without_a_key_openai_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidSettings, match="set OPENAI_API_KEY"):
        build(Options(MODEL))


def test_others_are_spoken_to_in_chat_completions_unless_told() -> None:
    assert Options(MODEL, "sk").default_api == "conversations"
    assert Options(MODEL, base_url="http://127.0.0.1:1/v1").default_api == "chat"
