"""Settings over the API: listed with where each came from, changed for all, and refused with nothing stored."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.http.conftest import SmallBot, in_process


async def listed(client: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/api/settings")
    assert answer.status_code == 200
    return {setting["name"]: setting for setting in answer.json()["settings"]}


async def test_a_setting_is_changed_and_told_where_it_came_from(client: httpx2.AsyncClient, bot: SmallBot) -> None:
    put = await client.put("/api/settings/lanes.debounce", json={"value": "5s"})
    assert (put.status_code, put.json()) == (
        200,
        {
            "name": "lanes.debounce",
            "value": "5s",
            "source": "stored",
            "changeable": True,
            "stored": "5s",
            "ignored": None,
        },
    )
    assert bot.live.settings.lanes.debounce.ms == 5_000
    assert (await listed(client))["lanes.debounce"] == put.json()
    deleted = await client.delete("/api/settings/lanes.debounce")
    assert (deleted.status_code, deleted.json()["value"], deleted.json()["source"]) == (200, "3s", "default")
    stored = [each.event.facts for each in await bot.backend.events() if each.event.name == "settings.changed"]
    assert [(facts["value"], facts["by"]) for facts in stored] == [("5s", "api"), (None, "api")]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("channels.web.paused", True, True),
        ("channels.web.paused", "true", True),
        ("limits.all", 3, 3),
        ("limits.all", None, None),
        ("lanes.backoff.factor", 2.5, 2.5),
        ("commands.stop", "", ""),
    ],
)
async def test_a_value_may_be_written_as_json_has_it(
    client: httpx2.AsyncClient, name: str, value: object, shown: object
) -> None:
    answer = await client.put(f"/api/settings/{name}", json={"value": value})
    assert (answer.status_code, answer.json()["value"]) == (200, shown)


@pytest.mark.parametrize(
    ("name", "body", "status", "says"),
    [
        ("lanes.debounce", {"value": 5}, 400, "expected a duration with its unit"),
        ("listen", {"value": "127.0.0.1:1"}, 400, "is read when a process starts"),
        ("lanes.debonce", {"value": "5s"}, 404, "did you mean 'lanes.debounce'?"),
        ("lanes/debounce", {"value": "5s"}, 404, "did you mean 'lanes.debounce'?"),
        ("lanes.debounce", {"valeu": "5s"}, 422, "valeu"),
        ("lanes.debounce", {"value": ["5s"]}, 422, "value"),
        ("lanes.debounce", {}, 422, "value"),
    ],
)
async def test_what_cannot_be_set_is_refused_and_nothing_is_stored(
    client: httpx2.AsyncClient, bot: SmallBot, name: str, body: object, status: int, says: str
) -> None:
    answer = await client.put(f"/api/settings/{name}", json=body)
    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text
    assert await bot.backend.configuration() == {}


async def test_a_long_body_is_refused(client: httpx2.AsyncClient) -> None:
    assert (await client.put("/api/settings/commands.stop", json={"value": "a" * 300_000})).status_code == 413
    assert (await client.put("/api/settings/commands.stop", json={"value": "a" * 20_001})).status_code == 400


async def test_another_method_is_told_which_there_are(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/settings/paused")
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"PUT", "DELETE"})


async def test_only_the_operator_sees_and_changes_settings() -> None:
    bot = SmallBot(operator_token="operator")
    async with in_process(bot) as client:
        for answer in (
            await client.get("/api/settings"),
            await client.put("/api/settings/paused", json={"value": True}),
            await client.delete("/api/settings/paused"),
        ):
            assert answer.status_code == 401
    assert await bot.backend.configuration() == {}


async def test_a_page_of_another_site_changes_nothing(client: httpx2.AsyncClient, bot: SmallBot) -> None:
    for answer in (
        await client.put("/api/settings/paused", json={"value": True}, headers={"origin": "http://evil.example"}),
        await client.delete("/api/settings/paused", headers={"origin": "http://evil.example"}),
    ):
        assert answer.status_code == 403
    assert await bot.backend.configuration() == {}
