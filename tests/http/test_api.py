"""The operator's API: what is in the store, in JSON, with times that people can read."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx2
import pytest
from tests.http.conftest import WORKER, SmallBot, in_process

from turnlane.backends.base import Backend
from turnlane.http.wire import plain, to_json
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.message import conversation_key
from turnlane.model.turn import GaveUp, Parked, Replied, Reply, RetryLater
from turnlane.model.usage import Usage
from turnlane.model.view import DeliveryView

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


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("lanes?channel=a%00b", 400),
        ("sessions?agent=%00", 400),
        ("usage?user=%00", 400),
        ("deadletters?conversation=site%2F%00", 400),
        ("conversations/site/%00", 404),
        ("messages/site/a%00b", 404),
        ("messages/%00/a", 404),
        ("outbox/%00", 404),
        ("deadletters/%00%231", 404),
        ("schedules/%00", 404),
        ("transcripts/%00", 404),
        ("transcripts/search?q=%00", 400),
    ],
)
async def test_what_no_store_can_hold_is_a_problem_on_each(
    bot: SmallBot, backend: Backend, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    monkeypatch.setattr(bot, "backend", backend)
    async with in_process(bot) as client:
        answer = await client.get(f"/api/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


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
        ("lanes?limit=1&limit=2", "limit"),
        ("outbox?state=failed&state=held", "state"),
        ("usage?user=%00", "user"),
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


# Steering


async def state_of(bot: SmallBot, conversation: str, kind: Kind = Kind.TURN) -> str:
    (lane,) = [lane for lane in await bot.backend.lanes(kind=kind) if lane.conversation == conversation]
    return lane.state


@pytest.mark.parametrize("spelling", ["site/a%2Fb", "site%2Fa%252Fb"])
async def test_a_conversation_is_paused_and_resumed(bot: SmallBot, client: httpx2.AsyncClient, spelling: str) -> None:
    await bot.say("site/a%2Fb", "hi")
    answer = await client.post(f"/api/conversations/{spelling}/pause")
    assert (answer.status_code, answer.json()["lane"]["state"]) == (200, "paused")
    assert await bot.backend.claim(WORKER, Kind.TURN) == []
    answer = await client.post(f"/api/conversations/{spelling}/resume", json={})
    assert (answer.status_code, answer.json()["lane"]["state"]) == (200, "ready")


async def test_a_pause_may_end_by_itself(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    lane = (await client.post("/api/conversations/site/alice/pause", json={"for": "2h"})).json()["lane"]
    assert (lane["state"], lane["paused_until"], lane["due_at"]) == ("paused", lane["due_at"], lane["paused_until"])
    assert lane["paused_until"].endswith("Z")
    for wrong in ({"for": "soon"}, {"for": 7200}, {"for": "999999d"}, {"for": "0s"}, {"for": "0h0m"}):
        answer = await client.post("/api/conversations/site/alice/pause", json=wrong)
        assert answer.status_code == 422
        assert "for" in answer.json()["detail"]
    answer = await client.post("/api/conversations/site/alice/resume", json={"for": "2h"})
    assert answer.status_code == 422
    assert await state_of(bot, "site/alice") == "paused"


async def test_an_answer_by_hand_is_queued_once_and_silences_the_agent(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    await bot.say("site/alice", "hi")
    path = "/api/conversations/site/alice/say"
    first = (await client.post(path, json={"text": "Anna here", "id": "a-1"})).json()
    assert (first["done"], first["lane"]["state"]) == (True, "paused")
    assert (first["state"], first["cause"]) == ("queued", None)
    second = (await client.post(path, json={"text": "Anna here", "id": "a-1"})).json()
    assert (second["done"], second["delivery"]) == (False, first["delivery"])
    (delivery,) = (await client.get("/api/outbox")).json()["deliveries"]
    assert (delivery["id"], delivery["kind"], delivery["turn"]) == (first["delivery"], "operator", None)


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        ("site/nobody", {"text": "hi"}, 404),
        ("site/alice", {}, 422),
        ("site/alice", {"text": " "}, 422),
        ("site/alice", {"text": "hi", "id": ""}, 422),
        ("site/alice", {"text": "hi", "takeover": "no"}, 422),
        ("site/alice", {"words": "hi"}, 422),
    ],
)
async def test_an_answer_by_hand_that_cannot_be_given_says_why(
    bot: SmallBot, client: httpx2.AsyncClient, key: str, body: dict[str, object], status: int
) -> None:
    await bot.say("site/alice", "hi")
    answer = await client.post(f"/api/conversations/{key}/say", json=body)
    assert (answer.status_code, bool(answer.json()["detail"])) == (status, True)
    assert await bot.backend.outbox() == []
    assert await state_of(bot, "site/alice") == "ready"


async def test_resume_lets_a_parked_lane_go_on(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, Parked("no such agent"))
    assert (await client.post("/api/conversations/site/alice/resume")).json()["lane"]["state"] == "ready"


async def test_the_outbox_is_held_apart_from_the_turns(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    outbox = {"outbox": True}
    early = await client.post("/api/conversations/site/alice/pause", json=outbox)
    assert (early.status_code, "nothing was sent" in early.json()["detail"]) == (404, True)
    await bot.answer_one("hello")
    await client.post("/api/conversations/site/alice/pause", json=outbox)
    assert (await state_of(bot, "site/alice"), await state_of(bot, "site/alice", Kind.OUT)) == ("idle", "paused")
    await client.post("/api/conversations/site/alice/resume", json=outbox)
    assert await state_of(bot, "site/alice", Kind.OUT) == "ready"


async def fail_one(bot: SmallBot, kind: Kind = Kind.TURN) -> None:
    (lease,) = await bot.backend.claim(WORKER, kind)
    await bot.backend.commit(lease, RetryLater(at=bot.clock.now() + 600_000, cause="busy"))


async def test_all_that_was_said_is_stopped(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    for done in (True, False):
        answer = (await client.post("/api/conversations/site/alice/stop", json={"outbox": False})).json()
        assert (answer["done"], answer["lane"]["state"]) == (done, "idle")


async def test_an_outbox_cannot_be_stopped(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    answer = await client.post("/api/conversations/site/alice/stop", json={"outbox": True})
    assert (answer.status_code, "skip gives up" in answer.json()["detail"]) == (422, True)
    assert await state_of(bot, "site/alice") == "ready"


async def test_what_waits_for_a_retry_starts_now_or_is_skipped(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await fail_one(bot)
    assert await state_of(bot, "site/alice") == "waiting"
    for verb, done, state in [("retry", True, "ready"), ("skip", True, "idle"), ("skip", False, "idle")]:
        answer = (await client.post(f"/api/conversations/site/alice/{verb}")).json()
        assert (answer["done"], answer["lane"]["state"]) == (done, state)
    assert len(await bot.backend.dead_letters()) == 1


async def test_a_sending_that_waits_for_a_retry_starts_now_or_is_skipped(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")
    await fail_one(bot, Kind.OUT)
    for verb, state in [("retry", "ready"), ("skip", "idle")]:
        answer = (await client.post(f"/api/conversations/site/alice/{verb}", json={"outbox": True})).json()
        assert (answer["done"], answer["lane"]["kind"], answer["lane"]["state"]) == (True, "out", state)
    assert [delivery.text for delivery in await bot.backend.outbox(state="failed")] == ["hello"]


@pytest.mark.parametrize("word", ["pause", "resume", "stop", "retry", "skip"])
async def test_a_conversation_may_be_called_like_a_verb(bot: SmallBot, client: httpx2.AsyncClient, word: str) -> None:
    await bot.say(f"site/{word}", "hi")
    assert (await client.get(f"/api/conversations/site/{word}")).status_code == 200
    assert (await client.post(f"/api/conversations/site/{word}/pause")).json()["lane"]["state"] == "paused"


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (b"", "application/x-www-form-urlencoded", 415),
        (b"", "text/plain", 415),
        (b"{}", None, 415),
        (b'{"outbox": true}', "text/plain", 415),
        (b"outbox", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 5_000, "application/json", 422),
        (b"[]", "application/json", 422),
        (b'{"outbox": "yes"}', "application/json", 422),
        (b'{"outbx": true}', "application/json", 422),
        (b'{"outbox": true' + b" " * 10_001 + b"}", "application/json", 413),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_body_that_steers_wrongly_changes_nothing(
    bot: SmallBot, client: httpx2.AsyncClient, body: bytes, media_type: str | None, status: int
) -> None:
    await bot.say("site/alice", "hi")
    headers = {"content-type": media_type} if media_type else {}
    answer = await client.post("/api/conversations/site/alice/pause", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert await state_of(bot, "site/alice") == "ready"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"host": "evil.example"},
    ],
)
async def test_a_page_of_another_site_cannot_steer(
    bot: SmallBot, client: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    await bot.say("site/alice", "hi")
    answer = await client.post("/api/conversations/site/alice/pause", headers=headers)
    assert (answer.status_code, await state_of(bot, "site/alice")) == (403, "ready")


async def test_only_the_operator_steers(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    await bot.say("site/alice", "hi")
    async with in_process(bot) as client:
        assert (await client.post("/api/conversations/site/alice/pause")).status_code == 401
        assert await state_of(bot, "site/alice") == "ready"
        headers = {"authorization": "Bearer operator"}
        assert (await client.post("/api/conversations/site/alice/pause", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("site/nobody/pause", 404),
        ("nothing/resume", 404),
        ("site/nobody/stop", 404),
        ("site/nobody/retry", 404),
        ("site/nobody/skip", 404),
        ("pause", 405),
        ("site/alice", 405),
        ("site/alice/stop-it", 405),
        ("site/alice/pause?outbox=true", 400),
    ],
)
async def test_what_cannot_be_steered_is_a_problem(
    bot: SmallBot, client: httpx2.AsyncClient, path: str, status: int
) -> None:
    await bot.say("site/alice", "hi")
    answer = await client.post(f"/api/conversations/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert (status == 405) == ("allow" in answer.headers)


async def test_a_conversation_is_told_how_to_behave(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    for body, on_busy in [({"on_busy": "steer"}, "steer"), ({"on_busy": None}, None)]:
        answer = await client.post("/api/conversations/site/alice/policy", json=body)
        assert (answer.status_code, answer.json()["lane"]["on_busy"]) == (200, on_busy)
    wrong = await client.post("/api/conversations/site/alice/policy", json={"on_busy": "ignore"})
    assert (wrong.status_code, "ignore" in wrong.json()["detail"]) == (422, True)


# What failed


@pytest.mark.parametrize("name", ["site/al%2523%2Fice%231", "site%2Fal%252523%252Fice%231"])
async def test_a_dead_letter_is_shown_retried_and_dropped(bot: SmallBot, client: httpx2.AsyncClient, name: str) -> None:
    key = "site/al%2523%2Fice"
    await bot.say(key, "hi")
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, GaveUp("no"))
    assert (await client.get(f"/api/deadletters/{name}")).json()["turn"]["conversation"] == key
    retried = await client.post(f"/api/deadletters/{name}/retry")
    assert (retried.status_code, retried.json()["lane"]["pending"]) == (200, 1)
    for path in ("", "/retry", "/drop"):
        method = client.post if path else client.get
        answer = await method(f"/api/deadletters/{name}{path}")
        assert (answer.status_code, "that turn was retried" in answer.json()["detail"]) == (404, True)
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, GaveUp("no"))
    assert (await client.post(f"/api/deadletters/{name[:-1]}2/drop")).json()["done"]
    assert await bot.backend.dead_letters() == []


@pytest.mark.parametrize(("path", "status"), [("site/alice/retry", 404), ("x%23y/drop", 404), ("site/alice%231", 405)])
async def test_what_names_no_dead_letter_is_a_problem(client: httpx2.AsyncClient, path: str, status: int) -> None:
    answer = await client.post(f"/api/deadletters/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_delivery_is_shown_resent_and_dropped(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")
    (lease,) = await bot.backend.claim(WORKER, Kind.OUT)
    await bot.backend.commit(lease, GaveUp("no"))
    (delivery,) = (await client.get("/api/outbox?state=failed")).json()["deliveries"]
    path = f"/api/outbox/{delivery['id']}"
    assert (await client.get(path)).json() == delivery
    resent = await client.post(f"{path}/resend")
    assert (resent.status_code, resent.json()["seq"], resent.json()["state"]) == (200, 2, "queued")
    again = await client.post(f"{path}/resend")
    assert (again.status_code, "waits to be sent already" in again.json()["detail"]) == (404, True)
    assert (await client.post(f"{path}/drop")).json()["state"] == "dropped"
    assert (await client.post(f"{path}/drop")).status_code == 404
    assert [each["id"] for each in (await client.get("/api/outbox?state=dropped")).json()["deliveries"]] == [
        delivery["id"]
    ]


async def test_a_delivery_is_dropped_though_somebody_sends_it_again_meanwhile(
    bot: SmallBot, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bot.say("site/alice", "hi")
    await bot.answer_one("hello")
    (lease,) = await bot.backend.claim(WORKER, Kind.OUT)
    await bot.backend.commit(lease, GaveUp("it cannot be sent"))
    (failed,) = await bot.backend.outbox(state="failed")
    read = bot.backend.delivery

    async def read_before_another_sends_it_again(id: str) -> DeliveryView | None:
        found = await read(id)
        await bot.backend.resend(failed.conversation, failed.seq)
        return found

    monkeypatch.setattr(bot.backend, "delivery", read_before_another_sends_it_again)
    answer = await client.post(f"/api/outbox/{failed.id}/drop")
    assert (answer.status_code, answer.json()["state"]) == (200, "dropped")


@pytest.mark.parametrize(("path", "status"), [("nope/resend", 404), ("nope/drop", 404), ("nope", 405), ("/drop", 404)])
async def test_what_names_no_delivery_is_a_problem(client: httpx2.AsyncClient, path: str, status: int) -> None:
    answer = await client.post(f"/api/outbox/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


# One message


@pytest.mark.parametrize("origin_id", ["m-1", "token/7", "a:b", "50%", "é ü", "a?b#c", "//"])
async def test_a_message_is_explained_whatever_its_id(
    bot: SmallBot, client: httpx2.AsyncClient, origin_id: str
) -> None:
    await bot.say("site/alice", "hi", origin_id)
    await bot.answer_one("hello")
    await bot.send_one()
    answer = await client.get(f"/api/messages/site/{quote(origin_id, safe='')}")
    assert (answer.status_code, answer.json()["message"]["origin_id"]) == (200, origin_id)
    names = [step["name"] for step in answer.json()["steps"]]
    assert names == ["stored", "gathered", "turn", "answered", "outbox", "receipt"]
    assert RFC3339.fullmatch(answer.json()["steps"][-1]["at"])


async def test_a_message_that_waits_says_for_what(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi", "token/7")
    await client.post("/api/conversations/site/alice/pause")
    waits = (await client.get("/api/messages/site/token/7")).json()["waits"]
    assert (waits["reason"], waits["next"]) == ("paused", "turnlane resume site/alice")


@pytest.mark.parametrize("path", ["site/nope", "site", "site/", "nope/m-1", "%00/%00", "%FF/%FF"])
async def test_an_unknown_message_is_not_found(bot: SmallBot, client: httpx2.AsyncClient, path: str) -> None:
    await bot.say("site/alice", "hi", "m-1")
    answer = await client.get(f"/api/messages/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


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


async def test_what_was_used_is_added_up_as_asked(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.end_one(Replied(Reply("hello", "s-1", Usage(10, 5, cost=2_500_000), model="small")))
    (used,) = (await client.get("/api/usage?by=model,user&channel=site")).json()["usage"]
    assert (used["model"], used["day"], used["turns"], used["input_tokens"], used["cost"]) == (
        "small",
        None,
        1,
        10,
        2.5,
    )
    (session,) = (await client.get("/api/sessions?agent=echo")).json()["sessions"]
    assert (session["conversation"], session["handle"]) == ("site/alice", "s-1")
    for query, what in [
        ("by=week", "by"),
        ("since=yesterday", "since"),
        ("until=2026-13-01", "until"),
        ("who=me", "who"),
    ]:
        refused = await client.get(f"/api/usage?{query}")
        assert (refused.status_code, what in refused.json()["detail"]) == (400, True)


async def test_a_session_is_forgotten(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say("site/alice", "hi")
    await bot.end_one(Replied(Reply("hello", "s-1")))
    assert (await client.post("/api/conversations/site/alice/renew")).json()["done"]
    assert not (await client.post("/api/conversations/site/alice/renew")).json()["done"]
    assert (await client.get("/api/sessions")).json() == {"sessions": []}
