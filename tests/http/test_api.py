"""The operator's API: what is in the store, in JSON, with times that people can read."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx2
import pytest
from tests.http.conftest import WORKER, SmallBot

from turnlane.http.wire import plain, to_json
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.message import conversation_key
from turnlane.model.turn import GaveUp

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_lanes_are_listed_with_readable_times(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    (lane,) = (await client.get("/api/lanes")).json()["lanes"]
    assert (lane["conversation"], lane["kind"], lane["state"], lane["pending"]) == ("site/alice", "turn", "ready", 1)
    assert RFC3339.fullmatch(lane["first_at"])
    assert lane["claimed_at"] is None


async def test_lanes_are_chosen_by_kind_state_and_channel(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")
    await bot.say("open/bob", "hi")

    async def asked(query: str) -> list[str]:
        lanes = (await client.get(f"/api/lanes?{query}")).json()["lanes"]
        return [lane["conversation"] for lane in lanes]

    assert await asked("kind=out") == ["site/alice"]
    assert await asked("state=ready") == ["open/bob"]
    assert await asked("channel=site") == ["site/alice"]
    assert len(await asked("limit=1")) == 1


async def test_a_conversation_tells_its_story(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")
    story = (await client.get("/api/conversations/site/alice")).json()
    assert [message["text"] for message in story["messages"]] == ["hi"]
    assert [delivery["text"] for delivery in story["deliveries"]] == ["hello"]
    turns = (await client.get("/api/conversations/site/alice/turns")).json()["turns"]
    assert turns == story["turns"]
    assert (turns[0]["outcome"], turns[0]["number"]) == ("answered", 1)
    assert RFC3339.fullmatch(turns[0]["ended_at"])


@pytest.mark.parametrize(
    "parts",
    [["alice"], ["a/b"], ["a/b", "c%2Fd"], ["bob@example.com"], ["50%"], ["é ü"], ["a?b#c"], ["turns"], ["x", "turns"]],
)
async def test_a_conversation_is_found_by_its_key_however_it_is_spelled(
    bot: SmallBot, client: httpx2.AsyncClient, parts: list[str]
) -> None:
    key = conversation_key("site", *parts)
    await bot.say(key, "hi")
    encoded_again = quote(key, safe="")
    # Only `channel/room/turns` can mean two things, and then the encoded spelling is the one that cannot.
    spellings = [encoded_again] if key == "site/x/turns" else [key, encoded_again, key.replace("%2F", "%2f")]
    for spelling in spellings:
        answer = await client.get(f"/api/conversations/{spelling}")
        assert (answer.status_code, answer.json()["conversation"]) == (200, key)
        turns = await client.get(f"/api/conversations/{spelling}/turns")
        assert (turns.status_code, turns.json()) == (200, {"turns": []})


@pytest.mark.parametrize("key", ["site/nobody", "nothing", "%00/%00", "site/" + "a" * 5_000, "%FF%FE/%FF"])
async def test_an_unknown_conversation_is_not_found(client: httpx2.AsyncClient, key: str) -> None:
    answer = await client.get(f"/api/conversations/{key}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_outbox_shows_what_waits_and_what_left(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")

    async def texts(state: str) -> list[str]:
        deliveries = (await client.get(f"/api/outbox?state={state}")).json()["deliveries"]
        return [delivery["text"] for delivery in deliveries]

    assert (await texts("queued"), await texts("sent")) == (["hello"], [])
    await bot.send_one()
    assert (await texts("queued"), await texts("sent")) == ([], ["hello"])


async def test_dead_letters_show_their_messages(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, GaveUp("the agent will not"))
    (letter,) = (await client.get("/api/deadletters?conversation=site/alice")).json()["dead_letters"]
    assert (letter["turn"]["cause"], letter["messages"][0]["text"]) == ("the agent will not", "hi")
    assert (await client.get("/api/deadletters?conversation=site/bob")).json() == {"dead_letters": []}


async def test_locks_workers_and_counts_are_shown(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.backend.claim(WORKER, Kind.TURN)
    (lock,) = (await client.get("/api/locks")).json()["locks"]
    assert (lock["conversation"], lock["worker"], lock["kind"]) == ("site/alice", WORKER, "turn")
    assert RFC3339.fullmatch(lock["since"])
    assert RFC3339.fullmatch(lock["worker_alive_until"])
    (worker,) = (await client.get("/api/workers")).json()["workers"]
    assert (worker["id"], worker["lanes"], worker["live"]) == (WORKER, 1, True)
    counts = (await client.get("/api/counts")).json()
    assert (counts["locks"], counts["workers_live"], counts["lanes"]["running"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("lanes?limit=0", "limit"),
        ("lanes?limit=1001", "limit"),
        ("lanes?limit=ten", "limit"),
        ("lanes?limit=" + "9" * 5_000, "limit"),
        ("lanes?limit=%D9%A3", "limit"),
        ("lanes?kind=lane", "kind"),
        ("lanes?state=asleep", "state"),
        ("lanes?chanel=site", "channel"),
        ("outbox?state=lost", "state"),
        ("locks?limit=3", "limit"),
        ("conversations/site/alice?limit=-1", "limit"),
        ("events?after=yesterday", "after"),
        ("events?after=-2", "after"),
    ],
    ids=lambda value: value[:30],
)
async def test_a_wrong_parameter_is_named(client: httpx2.AsyncClient, query: str, named: str) -> None:
    answer = await client.get(f"/api/{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert named in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/api/nothing", "/api", "/api/lanes/", "/chat/secrets.py", "/chat/..%2Fserver.py", "//api/lanes"],
)
async def test_what_is_not_served_is_a_problem_too(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/api/lanes", "/", "/healthz", "/api/events"])
async def test_reading_is_all_that_can_be_done(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.delete(path)
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_time_is_written_in_rfc_3339() -> None:
    event = Event("turn.retried", at=0, conversation="site/alice", facts={"retry_at": 1_500, "attempt": 2, "at": None})
    assert plain(event) == {
        "name": "turn.retried",
        "at": "1970-01-01T00:00:00.000Z",
        "conversation": "site/alice",
        "facts": {"retry_at": "1970-01-01T00:00:01.500Z", "attempt": 2, "at": None},
    }
    assert to_json({"ok_at": True}) == b'{"ok_at":true}'
