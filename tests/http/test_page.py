"""The chat page: one visitor's conversation, kept from everybody else."""

from __future__ import annotations

import re
from importlib.resources import files

import httpx2
import pytest
from tests.http.conftest import TOKEN, WORKER, Running, SmallBot, in_process
from tests.http.test_stream import reading

from turnlane.channels.web import Web
from turnlane.http.page import ASSETS, WATCHED_MAX
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.turn import GaveUp


async def test_the_page_is_served_with_a_strict_policy(client: httpx2.AsyncClient) -> None:
    page = await client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert 'data-channel="web"' in page.text
    for asset, kind in ASSETS.items():
        answer = await client.get(f"/chat/{asset}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_asks_nobody_else_and_renders_only_text(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/")).text
    script = "".join([(await client.get(f"/chat/{asset}")).text for asset in ASSETS])
    addresses = re.findall(r"https?://[^\s'\"]+", page + script)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


async def test_every_file_of_the_page_is_served(client: httpx2.AsyncClient) -> None:
    beside_the_page = {file.name for file in (files("turnlane.http") / "chat").iterdir()} - {"index.html"}
    assert beside_the_page == set(ASSETS)
    assert (await client.get("/chat/index.html")).status_code == 404


async def test_the_page_uses_the_first_web_channel(bot: SmallBot) -> None:
    bot.channels = {"site": bot.channels["site"], 'a"><script>': Web('a"><script>'), "web": bot.channels["web"]}
    async with in_process(bot) as client:
        page = (await client.get("/")).text
    assert 'data-channel="a&quot;&gt;&lt;script&gt;"' in page


async def test_without_a_web_channel_the_page_says_so(bot: SmallBot) -> None:
    bot.channels = {"site": bot.channels["site"]}
    async with in_process(bot) as client:
        answer = await client.get("/")
    assert answer.status_code == 404
    assert "[channels.web]" in answer.json()["detail"]


async def test_the_page_is_open_to_the_world_only_if_it_is_called_public(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.get(f"/channels/web/{TOKEN}/history")).status_code == 404
        bot.channels = {"web": Web("web", public=True)}
        headers = {"host": "chat.example.com"}
        assert (await client.get("/", headers=headers)).status_code == 200
        assert (await client.get(f"/channels/web/{TOKEN}/history", headers=headers)).status_code == 200


async def test_history_has_both_sides_in_order(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    for number in (1, 2):
        line = {"id": f"{number}", "conversation": TOKEN, "text": f"question {number}"}
        assert (await client.post("/channels/web", json=line)).status_code == 202
        await bot.answer_one(f"answer {number}")
        await bot.send_one()
    history = (await client.get(f"/channels/web/{TOKEN}/history")).json()
    assert [(line["from"], line["text"]) for line in history["lines"]] == [
        ("visitor", "question 1"),
        ("bot", "answer 1"),
        ("visitor", "question 2"),
        ("bot", "answer 2"),
    ]
    assert history["lines"][0]["id"] == "1"
    assert history["after"] == 2


async def test_a_reply_that_has_not_left_is_not_shown_yet(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say(f"web/{TOKEN}", "hi", f"{TOKEN}/1")
    await bot.answer_one("hello")
    history = (await client.get(f"/channels/web/{TOKEN}/history")).json()
    assert ([line["text"] for line in history["lines"]], history["after"]) == (["hi"], 0)


async def test_history_says_what_still_waits_and_what_was_given_up_on(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    async def states() -> list[str]:
        lines = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
        return [line["state"] for line in lines if line["from"] == "visitor"]

    await bot.say(f"web/{TOKEN}", "one", f"{TOKEN}/1")
    await bot.answer_one("answer")
    await bot.say(f"web/{TOKEN}", "two", f"{TOKEN}/2")
    assert await states() == ["done", "waiting"]
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    assert await states() == ["done", "waiting"]
    await bot.backend.commit(lease, GaveUp("nobody knows"))
    assert await states() == ["done", "given_up"]


async def test_history_shows_a_person_of_the_business_once_and_no_agent_at_work_meanwhile(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    await bot.say(f"web/{TOKEN}", "help", f"{TOKEN}/1")
    await bot.backend.say(Message("web", "h-1", f"web/{TOKEN}", "operator", "Anna here", role="operator"))
    await bot.send_one()
    lines = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
    assert [(line["from"], line["text"], line.get("state"), line.get("kind")) for line in lines] == [
        ("visitor", "help", "kept", None),
        ("bot", "Anna here", None, "operator"),
    ]


async def test_a_reply_names_what_it_answers_as_the_page_does(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say(f"web/{TOKEN}", "from the page", f"{TOKEN}/1")
    await bot.say(f"web/{TOKEN}", "from elsewhere", "cli-1")
    await bot.answer_one("to both")
    await bot.send_one()
    *said, reply = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
    assert [line["id"] for line in said] == reply["in_reply_to"] == ["1", "cli-1"]


async def test_a_new_visitors_history_is_empty(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"/channels/web/{TOKEN}/history")).json() == {"lines": [], "after": 0}


@pytest.mark.parametrize(
    "path", ["web/short", f"site/{TOKEN}", f"nobody/{TOKEN}", "web/" + "a" * 500, "web/%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"]
)
@pytest.mark.parametrize("what", ["history", "stream"])
async def test_only_web_conversations_are_read_this_way(
    bot: SmallBot, client: httpx2.AsyncClient, path: str, what: str
) -> None:
    await bot.say(f"site/{TOKEN}", "private", "m-1")
    answer = await client.get(f"/channels/{path}/{what}")
    assert answer.status_code == 404
    assert "private" not in answer.text


async def test_one_stream_carries_several_conversations_each_from_its_own_place(
    bot: SmallBot, running: Running
) -> None:
    other = TOKEN[::-1]
    for token, text in ((TOKEN, "known"), (TOKEN, "new"), (other, "also new")):
        await bot.say(f"web/{token}", "question", f"{token}/{text}")
        await bot.answer_one(text)
        await bot.send_one()
    async with reading(running, f"/channels/web/stream?watch={TOKEN}:1,{other}:0") as reader:
        rows = [(await reader.next()).data, (await reader.next()).data]
        assert [(row["conversation"], row["seq"], row["text"]) for row in rows] == [
            (TOKEN, 2, "new"),
            (other, 1, "also new"),
        ]


@pytest.mark.parametrize(
    "watch", ["", TOKEN, f"{TOKEN}:x", f"{TOKEN}:-1", ",".join([f"{TOKEN}:0"] * (WATCHED_MAX + 1))]
)
async def test_a_stream_of_several_says_how_to_ask_for_it(client: httpx2.AsyncClient, watch: str) -> None:
    answer = await client.get("/channels/web/stream", params={"watch": watch})
    assert (answer.status_code, "'watch'" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize("path", [f"site/stream?watch={TOKEN}:0", "web/stream?watch=short:0"])
async def test_a_stream_of_several_is_for_web_conversations_only(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(f"/channels/{path}")).status_code == 404


@pytest.mark.parametrize("path", [f"/channels/web/{TOKEN}/stream", f"/channels/web/stream?watch={TOKEN}:0"])
async def test_an_answer_is_seen_growing_and_its_reply_takes_its_place(
    bot: SmallBot, running: Running, path: str
) -> None:
    web = bot.channels["web"]
    assert isinstance(web, Web)
    await bot.say(f"web/{TOKEN}", "hi", f"{TOKEN}/1")
    await web.show(f"web/{TOKEN}", 1, "Hel")
    async with reading(running, path) as reader:
        seen = [await reader.next()]
        await web.show(f"web/{TOKEN}", 1, "Hello")
        seen.append(await reader.next())
        await web.show(f"web/{TOKEN}", 1, None)
        seen.append(await reader.next())
        await bot.answer_one("Hello!")
        await bot.send_one()
        reply = await reader.next()
    assert [(each.id, each.event, each.data["text"], each.data["partial"]) for each in seen] == [
        (None, "preview", "Hel", True),
        (None, "preview", "Hello", True),
        (None, "preview", None, True),
    ]
    assert {each.data["conversation"] for each in seen} == {TOKEN}
    assert (reply.event, reply.data["text"]) == ("reply", "Hello!")
    assert {each.data["id"] for each in [*seen, reply]} == {reply.data["id"]}


async def test_what_grows_is_seen_by_its_own_visitor_only(bot: SmallBot, running: Running) -> None:
    web = bot.channels["web"]
    assert isinstance(web, Web)
    async with reading(running, f"/channels/web/{TOKEN}/stream") as reader:
        await web.show("web/somebody-elses-token", 1, "a secret")
        await web.show(f"web/{TOKEN}", 1, "mine")
        assert (await reader.next()).data["text"] == "mine"
        await web.show(f"web/{TOKEN}", 2, "the next turn's")
        assert [(await reader.next()).data["text"] for _ in range(2)] == [None, "the next turn's"]
