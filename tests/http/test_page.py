"""The chat page: one visitor's conversation, kept from everybody else."""

from __future__ import annotations

import re

import httpx2
import pytest
from tests.http.conftest import TOKEN, SmallBot, in_process

from turnlane.channels.web import Web


async def test_the_page_is_served_with_a_strict_policy(client: httpx2.AsyncClient) -> None:
    page = await client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert 'data-channel="web"' in page.text
    for asset, kind in {"chat.js": "text/javascript", "chat.css": "text/css"}.items():
        answer = await client.get(f"/chat/{asset}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_asks_nobody_else_and_renders_only_text(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/")).text
    script = (await client.get("/chat/chat.js")).text
    style = (await client.get("/chat/chat.css")).text
    addresses = re.findall(r"https?://[^\s'\"]+", page + script + style)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


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
