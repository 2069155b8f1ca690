"""`POST /update-user`: who may say that somebody has changed, and what is refused."""

from __future__ import annotations

import httpx2
import pytest
from tests.http.conftest import SmallBot, in_process

from turnlane.model.person import Person


async def test_somebody_is_read_anew(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.backend.save_person(Person("site", "alice", "Alice"))
    await bot.people.of("site", "alice")
    await bot.backend.save_person(Person("site", "alice", "Alice B."))
    answer = await client.post("/update-user", json={"userId": "alice", "changes": ["enrichment"]})
    assert (answer.status_code, answer.json()) == (200, {"updated": 1})
    assert (await bot.people.of("site", "alice")).name == "Alice B."


async def test_the_secret_is_needed_once_there_is_one(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    bot.update_user_secret = "sesame"
    assert (await client.post("/update-user", json={"userId": "alice"})).status_code == 401
    bearer = {"Authorization": "Bearer sesame"}
    assert (await client.post("/update-user", json={"userId": "alice"}, headers=bearer)).status_code == 200


async def test_without_a_secret_nobody_outside_may_say_so(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        answer = await client.post("/update-user", json={"userId": "alice"})
    assert (answer.status_code, "update_user_secret" in answer.json()["detail"]) == (404, True)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "userId"),
        ({"userId": ""}, 422, "userId is empty"),
        ({"userId": 7}, 422, "userId"),
        ({"userId": "a\0b"}, 422, "userId"),
        ({"userId": "a", "changes": ["name"]}, 422, "use 'enrichment'"),
        ({"userId": "a", "channel": "nowhere"}, 404, "no channel is named 'nowhere'"),
        ({"userId": "a", "why": "x"}, 422, "why"),
    ],
)
async def test_bad_input_is_refused_with_its_place(
    client: httpx2.AsyncClient, body: dict[str, object], status: int, said: str
) -> None:
    answer = await client.post("/update-user", json=body)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True)
