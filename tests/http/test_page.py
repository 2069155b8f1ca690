"""The chat page: one visitor's conversation, kept from everybody else."""

from __future__ import annotations

import asyncio
import hmac
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from importlib.resources import files
from urllib.parse import quote

import httpx2
import pytest
from tests.http.conftest import TOKEN, WORKER, Running, SmallBot, in_process
from tests.http.test_stream import reading

from turnlane.backends.base import Arrival
from turnlane.channels.web import Look, Web
from turnlane.http.history import FILES_BYTES_MAX, FIRST_LOOK, LINES_AT_ONCE
from turnlane.http.page import ASSETS, EMBEDDING, WATCHED_MAX
from turnlane.model.lane import Kind
from turnlane.model.message import Attachment, Message
from turnlane.model.policy import OnFull, Policy
from turnlane.model.question import Question
from turnlane.model.turn import GaveUp, Parked, Replied, Reply
from turnlane.model.view import DeliveryView


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
    assert beside_the_page == {*ASSETS, EMBEDDING}
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
    assert history["unsent"] is True


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
    await bot.say(f"web/{TOKEN}", "three", f"{TOKEN}/3")
    await bot.end_one(Parked("an operator has to look"))
    assert await states() == ["done", "given_up", "kept"]


@pytest.mark.parametrize(
    ("on_full", "states"), [("reject", ["waiting", "refused"]), ("drop_oldest", ["dropped", "waiting"])]
)
async def test_history_says_what_a_full_mailbox_did_not_take(
    bot: SmallBot, client: httpx2.AsyncClient, on_full: OnFull, states: list[str]
) -> None:
    policy = Policy(debounce_ms=0, max_pending=1, on_full=on_full)
    for each in ("1", "2"):
        said = Message("web", f"{TOKEN}/{each}", f"web/{TOKEN}", TOKEN, each)
        await bot.backend.accept([Arrival(said, policy)])
    lines = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
    assert [line["state"] for line in lines if line["from"] == "visitor"] == states


async def test_history_says_what_was_set_aside(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    await bot.say(f"web/{TOKEN}", "one", f"{TOKEN}/1")
    await bot.backend.claim(WORKER, Kind.TURN)
    await bot.say(f"web/{TOKEN}", "two", f"{TOKEN}/2")
    await bot.backend.stop(f"web/{TOKEN}")
    lines = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
    assert [line["state"] for line in lines if line["from"] == "visitor"] == ["set_aside", "set_aside"]


async def test_a_question_has_its_options_as_long_as_it_is_open(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    async def options() -> list[list[str]]:
        lines = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
        return [line["options"] for line in lines if line["from"] == "bot"]

    await bot.say(f"web/{TOKEN}", "deploy", f"{TOKEN}/1")
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    question = Question("Now?", ("yes", "no"))
    await bot.backend.ask(lease, 1, question)
    await bot.send_one()
    assert await options() == [["yes", "no"]]
    await bot.backend.commit(lease, GaveUp("nobody knows"))
    assert await options() == [[]]


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


def a_file(size: int = 3, name: str = "dot.png") -> dict[str, str]:
    return {"name": name, "url": f"data:image/png;base64,{b64encode(bytes(size)).decode()}"}


async def test_older_lines_are_read_a_page_at_a_time(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    for number in range(LINES_AT_ONCE):
        await bot.say(f"web/{TOKEN}", f"question {number}", f"{TOKEN}/{number}")
        await bot.answer_one(f"answer {number}")
        await bot.send_one()
    pages: list[list[str]] = []
    before: dict[str, str] = {}
    while True:
        page = (await client.get(f"/channels/web/{TOKEN}/history", params=before)).json()
        pages.append([line["text"] for line in page["lines"]])
        if not page["more"]:
            break
        before = {"before": page["lines"][0]["id"]}
    said = [f"{what} {number}" for number in range(LINES_AT_ONCE) for what in ("question", "answer")]
    assert [len(page) for page in pages] == [LINES_AT_ONCE, LINES_AT_ONCE]
    assert [*pages[1], *pages[0]] == said
    nowhere = (await client.get(f"/channels/web/{TOKEN}/history", params={"before": "nobody"})).json()
    assert (nowhere["lines"], nowhere["more"]) == ([], False)


async def test_where_one_side_speaks_more_no_line_of_the_other_is_left_out(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    """Each side is read from its own end; what one of them said longer ago than the other was read is not shown yet."""
    await bot.say(f"web/{TOKEN}", "the first question", f"{TOKEN}/first")
    await bot.answer_one("the first answer")
    await bot.send_one()
    for number in range(FIRST_LOOK + 10):
        await bot.say(f"web/{TOKEN}", f"line {number}", f"{TOKEN}/{number}")
        await asyncio.sleep(0.001)  # waits: each at its own time
    page = (await client.get(f"/channels/web/{TOKEN}/history")).json()
    assert [line["text"] for line in page["lines"]] == [f"line {n}" for n in range(20, FIRST_LOOK + 10)]
    assert (page["more"], page["after"]) == (True, 1)
    older = (await client.get(f"/channels/web/{TOKEN}/history", params={"before": page["lines"][0]["id"]})).json()
    assert [line["text"] for line in older["lines"][:3]] == ["the first question", "the first answer", "line 0"]
    assert not older["more"]


async def test_files_come_back_with_the_history_and_only_if_they_are_wanted(client: httpx2.AsyncClient) -> None:
    line = {"id": "1", "conversation": TOKEN, "text": "", "attachments": [a_file()]}
    assert (await client.post("/channels/web", json=line)).status_code == 202
    (said,) = (await client.get(f"/channels/web/{TOKEN}/history")).json()["lines"]
    about = {"name": "dot.png", "media_type": "image/png", "size": 3}
    assert said["attachments"] == [about | {"url": "data:image/png;base64,AAAA"}]
    (said,) = (await client.get(f"/channels/web/{TOKEN}/history", params={"files": "no"})).json()["lines"]
    assert said["attachments"] == [about]


async def test_one_answer_holds_only_so_many_bytes_of_files(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    bot.channels["web"] = Web("web", file_bytes_max=5_000_000)
    for number in range(4):
        line = {"id": f"{number}", "conversation": TOKEN, "text": "", "attachments": [a_file(2_900_000)]}
        assert (await client.post("/channels/web", json=line)).status_code == 202
    latest = await client.get(f"/channels/web/{TOKEN}/history")
    assert ([line["id"] for line in latest.json()["lines"]], latest.json()["more"]) == (["2", "3"], True)
    assert len(latest.content) < FILES_BYTES_MAX + 100_000
    older = (await client.get(f"/channels/web/{TOKEN}/history", params={"before": "2"})).json()
    assert ([line["id"] for line in older["lines"]], older["more"]) == (["0", "1"], False)


async def test_where_a_file_of_a_platform_lies_is_not_told_to_a_browser(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    file = Attachment("https://files.example/secret", "a.pdf", "application/pdf", 7)
    await bot.receive([Message("web", f"{TOKEN}/1", f"web/{TOKEN}", "x", "see", (file,))])
    answer = await client.get(f"/channels/web/{TOKEN}/history")
    about = {"name": "a.pdf", "media_type": "application/pdf", "size": 7, "url": None}
    assert answer.json()["lines"][0]["attachments"] == [about]


async def test_an_operator_sees_that_there_are_files_and_not_their_bytes(client: httpx2.AsyncClient) -> None:
    line = {"id": "1", "conversation": TOKEN, "text": "", "attachments": [a_file(600_000)]}
    assert (await client.post("/channels/web", json=line)).status_code == 202
    story = await client.get(f"/api/conversations/web/{TOKEN}")
    assert story.json()["messages"][0]["attachments"] == [
        {"url": "data:image/png;base64,…", "name": "dot.png", "media_type": "image/png", "size": 600_000}
    ]
    assert len(story.content) < 10_000


# Visitors that a site has signed --------------------------------------------------------------------------------------

SECRET = "a-secret-of-the-sites-server"


def signed(visitor: str, expires: int | None = None, *, secret: str = SECRET) -> dict[str, str]:
    what = visitor if expires is None else f"{visitor}|{expires}"
    signature = hmac.new(secret.encode(), what.encode(), "sha256").hexdigest()
    parts = [quote(visitor, safe=""), *([str(expires)] if expires else []), signature]
    return {"turnlane-visitor": "|".join(parts)}


@pytest.fixture
async def signing(bot: SmallBot) -> AsyncIterator[httpx2.AsyncClient]:
    bot.channels["web"] = Web("web", visitor_secret=SECRET, signed_only=True)
    async with in_process(bot) as client:
        yield client


MINE = {"id": "1", "conversation": "me", "text": "it is me"}


async def test_a_signed_visitor_has_the_same_conversation_on_every_device(
    bot: SmallBot, signing: httpx2.AsyncClient
) -> None:
    soon = bot.clock.now() // 1000 + 60
    for id_, proof in (("1", signed("zoë-7")), ("2", signed("zoë-7", soon))):
        assert (await signing.post("/channels/web", json=MINE | {"id": id_}, headers=proof)).status_code == 202
    history = (await signing.get("/channels/web/me/history", headers=signed("zoë-7"))).json()
    assert [line["id"] for line in history["lines"]] == ["1", "2"]
    (lane,) = await bot.backend.lanes()
    story = await bot.backend.story(lane.conversation)
    assert story is not None
    assert {message.sender for message in story.messages} == {"zoë-7"}
    # Nobody can name the conversation, nor sign for its visitor with what is seen of it.
    assert lane.conversation.removeprefix("web/v.") not in signed("zoë-7")["turnlane-visitor"]
    assert (await signing.get("/channels/web/me/history", headers=signed("somebody"))).json()["lines"] == []


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"turnlane-visitor": ""},
        {"turnlane-visitor": "alice"},
        {"turnlane-visitor": "alice|"},
        {"turnlane-visitor": "alice|%C3%A9"},
        signed("alice", secret="another-secret-of-somebody"),
        {"turnlane-visitor": signed("alice")["turnlane-visitor"].replace("alice", "admin")},
        signed("alice", 1_000_000_000),
        {"turnlane-visitor": signed("alice", 1_000_000_000)["turnlane-visitor"].replace("1000000000", "9999999999")},
        {"turnlane-visitor": signed("alice|9999999999")["turnlane-visitor"]},
        {"turnlane-visitor": signed("alice|9999999999")["turnlane-visitor"].replace("%7C", "|")[:-1]},
        signed("a" * 300),
        signed("al\0ice"),
    ],
)
async def test_who_proves_nothing_neither_reads_nor_writes(
    bot: SmallBot, signing: httpx2.AsyncClient, proof: dict[str, str]
) -> None:
    asked = [
        await signing.post("/channels/web", json=MINE, headers=proof),
        await signing.post("/channels/web", json={"conversation": "me", "typing": True}, headers=proof),
        await signing.get("/channels/web/me/history", headers=proof),
        await signing.get("/channels/web/me/stream", headers=proof),
        await signing.get("/channels/web/stream?watch=me:0", headers=proof),
    ]
    assert [answer.status_code for answer in asked] == [401] * 5
    assert await bot.is_empty()
    told = "".join(answer.text for answer in asked) + repr(bot.events)
    assert SECRET not in told
    assert not any(value and value.rpartition("|")[2] in told for value in proof.values() if "|" in value[:-1])


async def test_where_visitors_are_signed_a_token_of_ones_own_is_none(
    bot: SmallBot, signing: httpx2.AsyncClient
) -> None:
    line = {"id": "1", "conversation": TOKEN, "text": "let me in"}
    assert (await signing.post("/channels/web", json=line, headers=signed("alice"))).status_code == 401
    assert (await signing.get(f"/channels/web/{TOKEN}/history", headers=signed("alice"))).status_code == 401
    assert await bot.is_empty()


async def test_a_signed_conversation_cannot_be_named(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    """Also where others chat without a signature, and know what it is called."""
    bot.channels["web"] = Web("web", visitor_secret=SECRET)
    assert (await client.post("/channels/web", json=MINE, headers=signed("alice"))).status_code == 202
    (lane,) = await bot.backend.lanes()
    token = lane.conversation.removeprefix("web/")
    for name in (token, token.removeprefix("v.")):
        answer = await client.get(f"/channels/web/{name}/history")
        assert "it is me" not in answer.text
        posted = await client.post("/channels/web", json={"id": "2", "conversation": name, "text": "mine now"})
        if posted.status_code == 202:
            assert (await client.get(f"/channels/web/{name}/history")).json()["lines"][0]["text"] == "mine now"
    story = await bot.backend.story(lane.conversation)
    assert story is not None
    assert [message.text for message in story.messages] == ["it is me"]


async def test_a_signed_visitors_stream_tells_of_their_conversation(bot: SmallBot, running: Running) -> None:
    bot.channels["web"] = Web("web", visitor_secret=SECRET)
    async with running.client() as client:
        assert (await client.post("/channels/web", json=MINE, headers=signed("alice"))).status_code == 202
    await bot.answer_one("hello Alice")
    await bot.send_one()
    async with reading(running, "/channels/web/stream?watch=me:0", signed("alice")) as reader:
        reply = await reader.next(but="working")
    assert (reply.data["conversation"], reply.data["text"], reply.data["in_reply_to"]) == ("me", "hello Alice", ["1"])


# On pages of other sites ----------------------------------------------------------------------------------------------


async def test_only_the_sites_that_are_named_may_have_the_page_in_theirs(
    bot: SmallBot, client: httpx2.AsyncClient
) -> None:
    assert (await client.get("/")).headers["content-security-policy"].endswith("frame-ancestors 'none'")
    nobody = await client.get("/embed?channel=web")
    assert nobody.headers["content-security-policy"].endswith("frame-ancestors 'self'")
    bot.channels["web"] = Web("web", look=Look("Help", "Hi!", ["https://www.example.com", "https://*.example.org"]))
    page = await client.get("/embed?channel=web")
    policy = page.headers["content-security-policy"]
    assert policy.endswith("frame-ancestors 'self' https://www.example.com https://*.example.org")
    assert "unsafe" not in policy
    assert (page.headers["cross-origin-resource-policy"], 'data-form="embedded"' in page.text) == ("cross-origin", True)
    assert "Hi!" in page.text


async def test_another_sites_page_gets_the_script_and_the_frame_and_nothing_else(client: httpx2.AsyncClient) -> None:
    script = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    frame = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    theirs = {"origin": "https://www.example.com", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    embedding = await client.get("/embed.js", headers=script)
    assert (embedding.status_code, embedding.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert (await client.get("/embed?channel=web", headers=frame)).status_code == 200
    line = {"id": "1", "conversation": TOKEN, "text": "hi"}
    answers = [
        await client.post("/channels/web", json=line, headers=theirs),
        await client.get(f"/channels/web/{TOKEN}/history", headers=theirs),
        await client.get(f"/channels/web/{TOKEN}/stream", headers=theirs),
        await client.get("/chat/chat.js", headers=script),
    ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert not any("access-control-allow-origin" in answer.headers for answer in [*answers, embedding])


@pytest.mark.parametrize("channel", ["", "site", "nobody"])
async def test_there_is_no_such_page_for_what_is_no_web_channel(client: httpx2.AsyncClient, channel: str) -> None:
    assert (await client.get("/embed", params={"channel": channel})).status_code == 404


async def test_what_the_settings_say_goes_into_the_page_as_text(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    bot.channels["web"] = Web("web", look=Look('<script>"', "{{title}}<b>"))
    page = (await client.get("/embed?channel=web")).text
    assert "<script>&" not in page
    assert 'data-title="&lt;script&gt;&quot;"' in page
    assert "<b>" not in page


# At work --------------------------------------------------------------------------------------------------------------


async def test_a_stream_tells_that_somebody_works_on_an_answer_whoever_it_is(bot: SmallBot, running: Running) -> None:
    """Here another process does: nothing but the store knows of it."""
    async with reading(running, f"/channels/web/stream?watch={TOKEN}:0") as reader:
        await bot.say(f"web/{TOKEN}", "hi", f"{TOKEN}/1")
        begun = await reader.next()
        await bot.answer_one("hello")
        await bot.send_one()
        reply, ended = await reader.next(), await reader.next()
    assert (begun.event, begun.data) == ("working", {"conversation": TOKEN, "working": True, "last": 1})
    assert (reply.event, ended.event, ended.data["working"]) == ("reply", "working", False)


async def test_a_turn_that_ends_without_a_word_is_told_too(bot: SmallBot, running: Running) -> None:
    await bot.say(f"web/{TOKEN}", "hi", f"{TOKEN}/1")
    async with reading(running, f"/channels/web/{TOKEN}/stream") as reader:
        assert (await reader.next()).data["working"] is True
        await bot.end_one(Replied(Reply(None)))
        assert (await reader.next()).data["working"] is False


async def test_a_new_visitors_history_is_empty(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"/channels/web/{TOKEN}/history")).json() == {
        "lines": [],
        "more": False,
        "after": 0,
        "last": 0,
        "unsent": False,
    }


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
        seen = [await reader.next(but="working")]
        await web.show(f"web/{TOKEN}", 1, "Hello")
        seen.append(await reader.next(but="working"))
        await web.show(f"web/{TOKEN}", 1, None)
        seen.append(await reader.next(but="working"))
        await bot.answer_one("Hello!")
        await bot.send_one()
        reply = await reader.next(but="working")
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


async def test_what_grows_is_seen_however_busy_the_store_is(
    bot: SmallBot, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, read = bot.channels["web"], bot.backend.deliveries
    assert isinstance(web, Web)

    async def changed(within: float) -> bool:
        return True

    async def read_slowly(key: str, *, after: int, limit: int) -> list[DeliveryView]:
        await asyncio.sleep(0)  # meanwhile the store has changed again
        return await read(key, after=after, limit=limit)

    monkeypatch.setattr(bot.backend, "changed", changed)
    monkeypatch.setattr(bot.backend, "deliveries", read_slowly)
    async with reading(running, f"/channels/web/{TOKEN}/stream") as reader:
        for text in ("Hel", "Hello"):
            await web.show(f"web/{TOKEN}", 1, text)
            assert (await reader.next()).data["text"] == text
