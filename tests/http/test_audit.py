"""Who did what: every change over the API is in the store afterwards, and nothing that was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from tests.http.conftest import WORKER, SmallBot, in_process

from turnlane.backends.memory import MemoryBackend
from turnlane.errors import BackendUnavailable
from turnlane.model.delivery import delivery_id
from turnlane.model.event import ACTION_CHARACTERS_MAX, Event, Fact
from turnlane.model.lane import Kind
from turnlane.model.turn import GaveUp


async def acts(bot: SmallBot) -> list[Event]:
    return [stored.event for stored in await bot.backend.events() if stored.event.name == "operator.acted"]


async def given_up(bot: SmallBot, name: str, kind: Kind) -> None:
    await bot.say(f"site/{name}", "hi", name)
    if kind is Kind.OUT:
        await bot.answer_one("hello")
    (lease,) = await bot.backend.claim(WORKER, kind)
    await bot.backend.commit(lease, GaveUp("it cannot be done"))


SCHEDULE = {"name": "pulse", "conversation": "site/alice", "prompt": "beat", "every": "1h"}
OUTBOX = f"/api/outbox/{delivery_id('site/fay', 1, 1)}"
CHANGES: list[tuple[str, str, Mapping[str, Any] | None, str | None]] = [
    ("POST", "/api/conversations/site%2Falice/pause", {}, "site/alice"),
    ("POST", "/api/conversations/site/alice/resume", {}, "site/alice"),
    ("POST", "/api/conversations/site%2Falice/say", {"text": "Anna here."}, "site/alice"),
    ("POST", "/api/deadletters/site%2Fbob%231/retry", {}, "site/bob"),
    ("POST", f"{OUTBOX}/resend", {}, "site/fay"),
    ("POST", "/api/schedules", SCHEDULE, "site/alice"),
    ("POST", "/api/schedules/pulse/fire", {}, "site/alice"),
    ("POST", "/api/schedules/pulse/remove", {}, "site/alice"),
    ("PUT", "/api/settings/lanes.debounce", {"value": "5s"}, None),
    ("DELETE", "/api/settings/lanes.debounce", None, None),
]


async def test_every_change_is_written_down(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await given_up(bot, "bob", Kind.TURN)
    await given_up(bot, "fay", Kind.OUT)
    await bot.say("site/alice", "hi", "m-1")
    for method, path, body, conversation in CHANGES:
        before = len(await acts(bot))
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        written = (await acts(bot))[before:]
        facts = {"action": f"{method} {path}", "by": "loopback", "from": "127.0.0.1", "status": 200}
        assert [(each.conversation, each.facts) for each in written] == [(conversation, facts)], path


async def test_looking_and_what_was_refused_is_no_act(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi", "m-1")
    await client.get("/api/conversations/site%2Falice")
    await client.post("/api/conversations/site%2Fnobody/pause")
    await client.post("/api/conversations/site%2Falice/nothing")
    await client.post("/api/conversations/site%2Falice/pause", json={"for": "ever"})
    await client.post("/api/conversations/site%2Falice/pause", headers={"origin": "https://evil.example"})
    assert await acts(bot) == []


@pytest.mark.parametrize("way", ["operator", "console"])
async def test_it_says_by_what_right(bot: SmallBot, way: str) -> None:
    bot.operator_token = "operator"
    await bot.say("site/alice", "hi", "m-1")
    async with in_process(bot) as client:
        if way == "operator":
            headers = {"authorization": "Bearer operator"}
        else:
            await client.post("/console/login", data={"token": "operator"})
            headers = {"x-turnlane-csrf": (await client.get("/api/me")).json()["csrf"]}
        assert (await client.post("/api/conversations/site%2Falice/pause", headers=headers)).status_code == 200
    (act,) = await acts(bot)
    assert act.facts["by"] == way


async def test_a_long_path_is_cut_and_its_query_left_out(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    room = "a" * 400
    await bot.say(f"site/{room}", "hi", "m-1")
    assert (await client.post(f"/api/conversations/site%2F{room}/pause")).status_code == 200
    (act,) = await acts(bot)
    assert act.conversation == f"site/{room}"
    assert len(str(act.facts["action"])) == ACTION_CHARACTERS_MAX


async def test_what_was_done_is_answered_even_if_it_cannot_be_written_down(
    bot: SmallBot, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def note(self: MemoryBackend, name: str, conversation: str | None = None, **facts: Fact) -> None:
        raise BackendUnavailable("the disk is full")

    monkeypatch.setattr(MemoryBackend, "note", note)
    await bot.say("site/alice", "hi", "m-1")
    answer = await client.post("/api/conversations/site%2Falice/pause")
    assert answer.json()["done"] is True
    assert [event.name for event in bot.events] == ["operator.acted"]
