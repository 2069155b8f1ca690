"""A Slack app with real processes (A1, A8, A14, D9): answered once, in order, in its thread, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.channels.slack_service import (
    APP_TOKEN,
    BOT,
    ROOM,
    SIGNING_SECRET,
    TOKEN,
    USER,
    Message,
    Mode,
    SlackService,
    callback,
    limited,
    pressed,
    signed,
    slack_service,
)
from tests.e2e.site import Site

from turnlane.testing.outside import Answer, Call, Outside, ask
from turnlane.testing.processes import Turnlane

CHANNEL = """
[channels.slack]
kind = "slack"
token = "{token}"
base_url = "{url}"
pause = "0s"
{more}
"""
SOCKET = f'app_token = "{APP_TOKEN}"'
HOOK = f'signing_secret = "{SIGNING_SECRET}"'

ASKING = """
import json, sys
turn = json.load(sys.stdin)["turn"]
if not turn["answers"]:
    print(json.dumps({"ask": {"text": "Deploy now?", "options": ["yes", "no"], "timeout": 600}}))
else:
    print(json.dumps({"text": "you said " + turn["answers"][0]["text"]}))
"""

GROWING = """
import json, pathlib, sys, time
json.load(sys.stdin)
print(json.dumps({"piece": "so far "}), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print(json.dumps({"text": "so far so good"}))
"""


@pytest.fixture
async def slack() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        yield service


def configure(site: Site, slack: SlackService, more: str = SOCKET, **options: Any) -> None:
    site.configure(channel=CHANNEL.format(token=TOKEN, url=slack.url, more=more), **options)


def event(message: Message, room: str = ROOM) -> dict[str, Any]:
    return callback({**message, "channel": room, "channel_type": "channel"})


async def say(slack: SlackService, text: str, thread: str | None = None, socket: int = -1) -> str:
    """Mention the bot, over a socket. Returns the thread."""
    message = slack.said(f"<@{BOT}> {text}", thread=thread)
    await slack.acknowledged(await slack.push(event(message), socket=socket))
    return str(thread or message["ts"])


async def post(process: Turnlane, payload: dict[str, Any], *, form: bool = False) -> Answer:
    body = urlencode({"payload": json.dumps(payload)}).encode() if form else json.dumps(payload).encode()
    headers: dict[str, Any] = signed(body, at=int(time.time()), form=form)
    return await ask(f"{await process.ready()}channels/slack", body, **headers)


def thread_of(slack: SlackService, thread: str) -> list[str]:
    """What the bot said in it."""
    return [m["text"] for m in slack.messages[ROOM] if m.get("thread_ts") == thread and m.get("bot_id")]


# Conversations


async def test_a_thread_is_a_conversation_over_a_socket(site: Site, outside: Outside, slack: SlackService) -> None:
    configure(site, slack)
    process = await site.start()
    thread = await say(slack, "one")
    await slack.until(lambda: thread_of(slack, thread) == ["one"])
    # In its thread nobody needs to mention it any more.
    await slack.acknowledged(await slack.push(event(slack.said("two", thread=thread))))
    await slack.until(lambda: thread_of(slack, thread) == ["one", "two"])
    await site.all_settled()
    assert {call.conversation for call in outside.calls} == {f"slack/T0001.{ROOM}/{thread}"}
    process.terminate()
    assert await process.ended() == 0


async def test_a_thread_is_a_conversation_over_http(site: Site, outside: Outside, slack: SlackService) -> None:
    configure(site, slack, HOOK)
    process = await site.start()
    message = slack.said(f"<@{BOT}> one")
    told = [event(message), {**event(message), "event": {**event(message)["event"], "type": "app_mention"}}]
    for payload in [*told, *told]:
        assert (await post(process, payload)).status == 202
    thread = message["ts"]
    await slack.until(lambda: thread_of(slack, thread) == ["one"])
    await site.all_settled()
    assert thread_of(slack, thread) == ["one"]
    forged = await ask(f"{await process.ready()}channels/slack", event(slack.said(f"<@{BOT}> forged")))
    assert forged.status == 401
    proof = await post(process, {"type": "url_verification", "challenge": "3eZbrw1aB"})
    assert (proof.status, proof.body) == (200, b"3eZbrw1aB")
    assert len(outside.calls) == 1


async def test_killed_while_it_thinks_the_answer_comes_once(site: Site, outside: Outside, slack: SlackService) -> None:
    hold = asyncio.Event()

    async def think(call: Call) -> str:
        await hold.wait()
        return " + ".join(call.texts)

    outside.respond = think
    configure(site, slack)
    process = await site.start()
    thread = await say(slack, "one")
    await outside.until(lambda: len(outside.calls) == 1)
    process.kill()
    await process.ended()
    hold.set()
    await site.start()
    await slack.until(lambda: thread_of(slack, thread) == ["one"])
    await site.all_settled()
    assert thread_of(slack, thread) == ["one"]


async def test_killed_while_it_sends_the_answer_is_looked_up_and_not_doubled(site: Site, slack: SlackService) -> None:
    configure(site, slack)
    slack.next["chat.postMessage"].append(Mode(hang=True, done=True))
    process = await site.start()
    thread = await say(slack, "one")
    await slack.until(lambda: thread_of(slack, thread) == ["one"])
    process.kill()
    await process.ended()
    await site.start()
    await slack.until(lambda: len(slack.of("conversations.replies")) > 0)
    await site.all_settled()
    assert thread_of(slack, thread) == ["one"]


async def test_cut_after_it_was_taken_the_answer_is_looked_up_and_not_doubled(site: Site, slack: SlackService) -> None:
    configure(site, slack, lanes='backoff = { first = "100ms" }')
    slack.next["chat.postMessage"].append(Mode(cut=True, done=True))
    await site.start()
    thread = await say(slack, "one")
    await slack.until(lambda: thread_of(slack, thread) == ["one"])  # else both may be one turn on a busy machine
    await say(slack, "two", thread)
    await slack.until(lambda: len(thread_of(slack, thread)) == 2)
    await site.all_settled()
    assert thread_of(slack, thread) == ["one", "two"]
    assert len(slack.of("conversations.replies")) == 1


@pytest.mark.parametrize("what", ["nothing happens", "it is killed", "there are others"])
async def test_an_answer_is_seen_as_it_grows_and_stands_there_once(site: Site, slack: SlackService, what: str) -> None:
    go_on = site.folder / "go-on"
    configure(site, slack, command=[sys.executable, "-c", GROWING, str(go_on)])
    process = await site.start()
    if what == "there are others":
        await site.start()
        await site.start()
    thread = await say(slack, "how is it?")
    await slack.until(lambda: thread_of(slack, thread) == ["so far"])
    if what == "it is killed":
        process.kill()
        await process.ended()
        await site.start()
        await slack.until(lambda: len(slack.of("chat.delete")) == 1)
    go_on.touch()
    await slack.until(lambda: thread_of(slack, thread) == ["so far so good"])
    await site.all_settled()
    assert thread_of(slack, thread) == ["so far so good"]


async def test_twenty_thousand_characters_arrive_whole_and_in_order(
    site: Site, outside: Outside, slack: SlackService
) -> None:
    paragraphs = [f"Paragraph {number}: " + "word " * 90 for number in range(40)]
    code = "```\n" + "\n".join(f"line {number}" for number in range(400)) + "\n```"
    text = "\n\n".join([*paragraphs[:20], code, *paragraphs[20:]])
    assert len(text) > 20_000

    async def at_length(call: Call) -> str:
        return text

    outside.respond = at_length
    configure(site, slack, SOCKET + '\nrate = "50/s"')
    await site.start()
    thread = await say(slack, "tell me all")
    await slack.until(lambda: "Paragraph 39" in "".join(thread_of(slack, thread)))
    await site.all_settled()
    parts = thread_of(slack, thread)
    assert len(parts) > 4
    assert all(len(part) <= 4_000 and part.count("```") % 2 == 0 for part in parts)
    said = "\n".join(parts).splitlines()
    assert [line for line in said if line.startswith("line ")] == [f"line {number}" for number in range(400)]
    assert [line.split(":")[0] for line in said if line.startswith("Para")] == [f"Paragraph {n}" for n in range(40)]


# Limits


async def test_two_processes_share_the_rate_of_one_workspace(site: Site, slack: SlackService) -> None:
    rate, burst, threads = 5, 2, 14
    configure(site, slack, f'{SOCKET}\nrate = "{rate}/s"\nburst = {burst}', lease=10)
    await site.start()
    await slack.until(lambda: slack.connections == 1)
    await site.start()
    await slack.until(lambda: slack.connections == 2)
    for number in range(threads):
        await say(slack, str(number), socket=number % 2)
    await slack.until(lambda: len(slack.texts()) == threads)
    posts = [call.at for call in slack.of("chat.postMessage")]
    # A busy machine may send one a little late and the next in time, so the window has some room.
    for began in range(threads):
        within = [at for at in posts[began:] if at - posts[began] < 1.0]
        assert len(within) <= rate + burst + 1
    assert posts[-1] - posts[0] >= (threads - burst - 1) / rate - 0.2
    started = [fact for (facts,) in site.rows("SELECT facts FROM journal") for fact in json.loads(facts)]
    workers = {fact[-1] for fact in started if fact[0] == "delivery.started"}
    assert len(workers) == 2


async def test_a_storm_of_429_delays_and_never_reorders_loses_or_doubles(site: Site, slack: SlackService) -> None:
    configure(site, slack, f'{SOCKET}\nrate = "50/s"\nburst = 50', lanes='on_busy = "queue"')
    slack.next["chat.postMessage"].extend([limited(1)] * 5)
    await site.start()
    threads = [await say(slack, "0") for _ in range(3)]
    for number in (1, 2):
        for thread in threads:
            await say(slack, str(number), thread)
    await slack.until(lambda: len(slack.texts()) == 9)
    await site.all_settled()
    assert [thread_of(slack, thread) for thread in threads] == [["0", "1", "2"]] * 3


# Approvals


@pytest.mark.parametrize("way", ["button", "reaction"])
async def test_an_approval_is_given_by_a_button_or_a_reaction(site: Site, slack: SlackService, way: str) -> None:
    configure(site, slack, f"{SOCKET}\n{HOOK}", command=[sys.executable, "-c", ASKING])
    process = await site.start()
    thread = await say(slack, "deploy")
    await slack.until(lambda: len(thread_of(slack, thread)) == 1)
    question = slack.messages[ROOM][-1]
    if way == "button":
        answer = await post(process, pressed(question, 1), form=True)
        assert (answer.status, answer.body) == (200, b"")
    else:
        reaction = {
            "type": "reaction_added",
            "user": USER,
            "reaction": "-1",
            "item": {"type": "message", "channel": ROOM, "ts": question["ts"]},
            "item_user": BOT,
            "event_ts": slack.ts(),
        }
        await slack.acknowledged(await slack.push(callback(reaction)))
    await slack.until(lambda: len(thread_of(slack, thread)) == 2)
    assert thread_of(slack, thread)[1] == "you said no"


# Secrets


async def test_the_operators_secrets_are_in_no_log_no_answer_and_no_store(site: Site, slack: SlackService) -> None:
    configure(site, slack, f"{SOCKET}\n{HOOK}")
    slack.next["apps.connections.open"].extend([Mode("invalid_auth"), Mode(cut=True)])
    slack.next["chat.postMessage"].extend([Mode("invalid_auth", retry_after="1"), Mode(status=502, body="<html>")])
    process = await site.start()
    thread = await say(slack, "one")
    told = [await post(process, {"type": "something_new", "token": "verification-token-of-old"})]
    told.append(await ask(f"{await process.ready()}channels/slack", b"forged"))
    await slack.drop()
    await slack.until(lambda: slack.connections == 2)
    await slack.until(lambda: len(slack.of("chat.postMessage")) >= 1)
    outbox = await site.api(process, "outbox")
    process.terminate()
    await process.ended()
    everything = "\n".join(
        [
            *(json.dumps(line) for line in process.lines),
            json.dumps(outbox),
            *(repr(each) for each in told),
            *(file.read_bytes().decode("latin-1") for file in site.folder.glob("turnlane.db*")),
        ]
    )
    assert thread in everything
    for secret in (TOKEN, APP_TOKEN, SIGNING_SECRET, "verification-token-of-old", "a-ticket"):
        assert secret not in everything
