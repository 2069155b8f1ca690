"""The description of the API: complete, true, and never answered with a 500 whatever is made of it."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from tests.http.conftest import WORKER, SmallBot
from tests.transcripts.written import SESSION, answered, said, text

from turnlane.http.api import DECISIONS, DELIVERY_DECISIONS, SCHEDULE_VERBS, VERBS
from turnlane.http.openapi import Operation, description, operations
from turnlane.http.server import create_app
from turnlane.model.lane import Kind
from turnlane.model.schedule import Schedule
from turnlane.model.turn import GaveUp, RetryLater
from turnlane.transcripts import follow, open_transcripts

OPERATOR = {"Authorization": "Bearer operator"}


async def lived() -> SmallBot:
    """A bot that has seen something of everything."""
    bot = SmallBot(operator_token="operator")
    await bot.backend.open()
    await bot.backend.join(WORKER, 600_000)
    await bot.say("site/alice", "hi", "m-1")
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, RetryLater(at=0, cause="busy"))
    await bot.answer_one("hello")
    await bot.send_one()
    for name in ("bob", "dave", "erin"):
        await bot.say(f"site/{name}", "hi", name)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.commit(lease, GaveUp("it cannot be answered"))
    for name in ("fay", "gus"):
        await bot.say(f"site/{name}", "hi", name)
        await bot.answer_one("hello")
        (lease,) = await bot.backend.claim(WORKER, Kind.OUT)
        await bot.backend.commit(lease, GaveUp("it cannot be sent"))
    await bot.backend.schedule(Schedule("pulse", "site/alice", "beat", every_ms=3_600_000), bot.policy_for("site"))
    await bot.say("site/carol", "hi", "m-3")
    await bot.backend.claim(WORKER, Kind.TURN)
    return bot


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one session."""
    folder = tmp_path_factory.mktemp("transcripts")
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(said("hello") + answered(text("hi"), hour=1))

    async def followed() -> None:
        store = open_transcripts("memory://", folder / "t.db")
        await follow(store, path)
        await store.close()

    asyncio.run(followed())
    return folder / "t.db"


def served(transcripts: Path) -> Starlette:
    bot = asyncio.run(lived())
    opens = partial(open_transcripts, "memory://", transcripts)
    return create_app(bot, listen_host="0.0.0.0", metrics=bot.metrics, transcripts=opens)


@pytest.fixture
def fresh(transcripts: Path) -> Starlette:
    """Nobody has decided about what failed yet."""
    return served(transcripts)


@pytest.fixture(scope="module")
def app(transcripts: Path) -> Starlette:
    return served(transcripts)


def described(app: Starlette, operation: Operation) -> schemathesis.schemas.APIOperation[Any, Any, Any, Any]:
    schema = schemathesis.openapi.from_dict(description())
    schema.app = app
    return schema[operation.path][operation.method.upper()]


def can_be_wrong(operation: Operation) -> bool:
    """Any text will do as part of a path."""
    return operation.body is not None or any(parameter["in"] == "query" for parameter in operation.parameters)


ENDING = [each for each in operations() if each.media_type == "application/json"]
"""A stream goes on for ever; tests/http/test_stream.py reads those."""
RIGHT_AND_WRONG = [
    *((each, GenerationMode.POSITIVE) for each in ENDING),
    *((each, GenerationMode.NEGATIVE) for each in ENDING if can_be_wrong(each)),
]


def named(value: object) -> str:
    return f"{value.method} {value.path}" if isinstance(value, Operation) else str(getattr(value, "value", value))


@pytest.mark.parametrize(("operation", "mode"), RIGHT_AND_WRONG, ids=named)
def test_every_answer_is_as_described(app: Starlette, operation: Operation, mode: GenerationMode) -> None:
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=described(app, operation).as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=OPERATOR, excluded_checks=beyond_any_schema)

    beyond_any_schema: list[Any] = [positive_data_acceptance] if operation.judged else []
    ask()


@pytest.mark.parametrize("operation", ENDING, ids=named)
def test_what_the_description_gives_as_an_example_is_there(fresh: Starlette, operation: Operation) -> None:
    examples = {
        parameter["name"]: quote(parameter["schema"]["examples"][0], safe="")
        for parameter in operation.parameters
        if parameter["in"] == "path"
    }
    properties = operation.body["properties"] if operation.body else {}
    body = {name: schema["examples"][0] for name, schema in properties.items() if "examples" in schema}
    more: dict[str, Any] = {"body": body, "media_type": "application/json"} if body else {}
    case = described(fresh, operation).Case(path_parameters=examples, **more)
    answer = case.call_and_validate(headers=OPERATOR)
    assert answer.status_code == 200


def test_every_path_of_the_api_is_described_and_no_other(app: Starlette) -> None:
    (api,) = [route for route in app.routes if isinstance(route, Mount) and route.path == "/api"]
    served = {
        ("/api" + route.path, method)
        for route in api.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    # One route serves several paths where only the path as it was written tells which.
    by_route = {
        "/api/conversations/{key}": "/api/conversations/{key:path}",
        "/api/conversations/{key}/turns": "/api/conversations/{key:path}",
        "/api/outbox/{id}": "/api/outbox/{id:path}",
        **{f"/api/outbox/{{id}}{word}": "/api/outbox/{id:path}" for word in DELIVERY_DECISIONS},
        "/api/deadletters/{id}": "/api/deadletters/{id:path}",
        **{f"/api/deadletters/{{id}}{word}": "/api/deadletters/{id:path}" for word in DECISIONS},
        "/api/schedules/{name}": "/api/schedules/{name:path}",
        **{f"/api/schedules/{{name}}{word}": "/api/schedules/{name:path}" for word in SCHEDULE_VERBS},
        "/api/settings/{name}": "/api/settings/{name:path}",
        "/api/transcripts/{session}": "/api/transcripts/{session:path}",
        **{f"/api/conversations/{{key}}{word}": "/api/conversations/{key:path}" for word in VERBS},
        "/api/messages/{channel}/{origin_id}": "/api/messages/{id:path}",
    }
    assert {(by_route.get(each.path, each.path), each.method.upper()) for each in operations()} == served


def test_every_path_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text("utf-8")
    for operation in operations():
        method = "" if operation.method == "get" else f"{operation.method.upper()} "
        assert f"| `{method}{operation.path}` |" in page, operation.path


def test_a_length_of_time_is_described_as_it_is_taken() -> None:
    [pause] = (each for each in operations() if each.path == "/api/conversations/{key}/pause")
    assert pause.body is not None
    pattern = pause.body["properties"]["for"]["pattern"]
    assert [re.search(pattern, text) is not None for text in ("2h", "1h30m", "10s")] == [True, True, True]
    assert [re.search(pattern, text) is not None for text in ("soon", "", "0s")] == [False, False, False]
