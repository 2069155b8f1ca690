"""What we tell Slack, and what is certain about it afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.channels.loopback import nobody_listens
from tests.channels.slack_service import (
    ROOM,
    SIGNING_SECRET,
    TEAM,
    TOKEN,
    USER,
    Mode,
    SlackService,
    callback,
    limited,
    message_event,
    signed,
    slack_service,
)

from turnlane.agents.attachments import Attachments, File
from turnlane.channels.base import (
    AskLater,
    FileAt,
    FileChannel,
    Hook,
    HookChannel,
    IndicatingChannel,
    ListeningChannel,
    LookingChannel,
    ProfileChannel,
    SplittingChannel,
    StreamingChannel,
)
from turnlane.channels.slack import slack
from turnlane.channels.slack.channel import Slack
from turnlane.channels.slack.files import Files
from turnlane.channels.slack.history import PAGE, PAGES_MAX
from turnlane.channels.slack.options import Options
from turnlane.clock import SystemClock
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.message import Attachment
from turnlane.model.person import Person
from turnlane.parts import locating

THREAD = "1699999999.000200"
KEY = f"slack/{TEAM}.{ROOM}/{THREAD}"
DELIVERY = Delivery("0d1f1c5e-0000-5000-8000-000000000001", KEY, "hello **you** & <me>", turn=1)


@pytest.fixture
async def service() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        service.messages[ROOM].append({"type": "message", "user": USER, "text": "hi", "ts": THREAD})
        yield service


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Slack]:
    channel = slack("slack", Options(**{"tokens": {"": TOKEN}, "base_url": url, "app_token": "xapp-1", **options}))
    try:
        yield channel
    finally:
        await channel.close()


@pytest.fixture
async def channel(service: SlackService) -> AsyncIterator[Slack]:
    async with opened(service.url) as channel:
        yield channel


async def sent(service: SlackService, mode: Mode, **options: Any) -> SendResult:
    service.next["chat.postMessage"].append(mode)
    async with opened(service.url, **options) as channel:
        return await channel.send(DELIVERY)


def test_slack_is_all_that_a_channel_can_be() -> None:
    channel = slack("slack", Options(tokens={"": TOKEN}))
    for kind in (
        HookChannel,
        ListeningChannel,
        LookingChannel,
        StreamingChannel,
        SplittingChannel,
        IndicatingChannel,
        FileChannel,
        ProfileChannel,
    ):
        assert isinstance(channel, kind)


# Sending


async def test_a_reply_goes_to_its_thread_in_slacks_own_writing_and_carries_its_id(
    channel: Slack, service: SlackService
) -> None:
    result = await channel.send(DELIVERY)
    message = service.messages[ROOM][-1]
    assert result == Sent(message["ts"])
    assert message["text"] == "hello *you* &amp; &lt;me&gt;"
    assert message["thread_ts"] == THREAD
    assert message["metadata"] == {
        "event_type": "turnlane_delivery",
        "event_payload": {"delivery": DELIVERY.id, "conversation": KEY, "part": 1, "kind": "reply"},
    }
    (call,) = service.of("chat.postMessage")
    assert (call.args["unfurl_links"], call.args["unfurl_media"]) == (False, False)


async def test_a_direct_message_is_answered_outside_threads(channel: Slack, service: SlackService) -> None:
    await channel.send(replace(DELIVERY, conversation=f"slack/{TEAM}.D0001"))
    assert "thread_ts" not in service.messages["D0001"][0]


async def test_a_question_has_buttons_and_words_for_where_there_are_none(channel: Slack, service: SlackService) -> None:
    options = tuple(f"option {number} " + "x" * 80 for number in range(20))
    await channel.send(replace(DELIVERY, kind="question", text="Which?\n" * 1_000, options=options))
    message = service.messages[ROOM][-1]
    *sections, actions = message["blocks"]
    assert all(len(section["text"]["text"]) <= 3_000 for section in sections)
    assert len(actions["elements"]) == 20
    assert all(len(button["text"]["text"]) <= 75 and len(button["value"]) <= 2_000 for button in actions["elements"])
    assert len({button["action_id"] for button in actions["elements"]}) == 20
    assert "20. option 19" in message["text"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (limited(7), NotSent("Slack says ratelimited", 7.0)),
        (Mode("ratelimited", retry_after="3"), NotSent("Slack says ratelimited", 3.0)),
        (Mode("service_unavailable", 503), NotSent("Slack says service_unavailable")),
        (Mode("channel_not_found"), Refused("Slack says channel_not_found", gone=True)),
        (Mode("is_archived"), Refused("Slack says is_archived", gone=True)),
        (Mode("account_inactive"), Refused("Slack says account_inactive", gone=True)),
        (Mode("msg_too_long"), Refused("Slack says msg_too_long")),
        (Mode("something_new"), Refused("Slack says something_new")),
        (Mode("internal_error"), Unknown("Slack says internal_error")),
        (Mode("fatal_error", 500), Unknown("Slack says fatal_error")),
        (Mode(status=502, body="<html>bad gateway"), Unknown("Slack says HTTP 502")),
        (Mode(status=200, body="<html>a login page"), Unknown("Slack says HTTP 200")),
    ],
)
async def test_each_answer_of_slacks_says_what_is_certain(
    service: SlackService, mode: Mode, expected: SendResult
) -> None:
    assert await sent(service, mode) == expected
    assert len(service.of("chat.postMessage")) == 1


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "missing_scope"])
async def test_with_a_token_that_is_not_well_everything_waits_and_nothing_is_lost(
    service: SlackService, error: str
) -> None:
    result = await sent(service, Mode(error))
    assert isinstance(result, NotSent)
    assert (result.retry_after, result.whole_account) == (60.0, True)
    assert "turnlane doctor" in result.cause
    both = {TEAM: TOKEN, "T2": "xoxb-2"}
    elsewhere = await sent(service, Mode(error), tokens=both)
    assert isinstance(elsewhere, NotSent)
    assert not elsewhere.whole_account


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("mode", [Mode(cut=True), Mode(hang=True)])
async def test_without_an_answer_nobody_knows_and_it_is_not_sent_again_by_itself(
    service: SlackService, mode: Mode, done: bool
) -> None:
    assert isinstance(await sent(service, replace(mode, done=done), timeout=0.3), Unknown)
    assert len(service.of("chat.postMessage")) == 1


async def test_a_refused_connection_is_proven_not_sent() -> None:
    async with opened(nobody_listens()) as channel:
        assert isinstance(await channel.send(DELIVERY), NotSent)


@pytest.mark.parametrize("key", ["slack/alice", "slack/a/b/c", "slack/.C1", "slack/T1."])
async def test_a_conversation_that_is_no_place_in_slack_is_refused(channel: Slack, key: str) -> None:
    assert isinstance(await channel.send(replace(DELIVERY, conversation=key)), Refused)


async def test_a_workspace_without_a_token_is_refused(service: SlackService) -> None:
    async with opened(service.url, tokens={"T9": TOKEN}) as channel:
        assert isinstance(await channel.send(DELIVERY), Refused)
    assert not service.calls


async def test_twenty_thousand_characters_leave_in_parts_that_fit(channel: Slack, service: SlackService) -> None:
    code = "```python\n" + "print('<&>')\n" * 300 + "```\n\n"
    text = "".join(f"paragraph {number} " + "word " * 100 + "\n\n" for number in range(25)) + code
    parts = channel.parts(text)
    assert len(parts) > 4
    for number, part in enumerate(parts, 1):
        await channel.send(replace(DELIVERY, id=f"d-{number}", text=part, part=number, parts=len(parts)))
    texts = service.texts()
    assert all(len(text) <= 4_000 for text in texts)
    joined = "".join(texts)
    assert [joined.index(f"paragraph {number} ") for number in range(25)] == sorted(
        joined.index(f"paragraph {number} ") for number in range(25)
    )
    assert joined.count("print('&lt;&amp;&gt;')") == 300
    assert channel.parts("") == [""]


# Looking up


@pytest.mark.parametrize("conversation", [KEY, f"slack/{TEAM}.D0001"])
async def test_what_was_cut_after_it_was_taken_is_found(
    service: SlackService, channel: Slack, conversation: str
) -> None:
    delivery = replace(DELIVERY, conversation=conversation, queued_at=SystemClock().now())
    service.next["chat.postMessage"].append(Mode(cut=True, done=True))
    assert isinstance(await channel.send(delivery), Unknown)
    room = "D0001" if "D0001" in conversation else ROOM
    assert await channel.look_up(delivery) == Sent(service.messages[room][-1]["ts"])
    assert isinstance(await channel.look_up(replace(delivery, id="another")), NotSent)


async def test_it_is_looked_for_on_every_page_but_not_for_ever(channel: Slack, service: SlackService) -> None:
    delivery = replace(DELIVERY, queued_at=SystemClock().now())
    await channel.send(delivery)
    found = service.messages[ROOM].pop()
    for _ in range(PAGE + 1):
        service.said("chatter", thread=THREAD)
    service.messages[ROOM].append(found)
    assert await channel.look_up(delivery) == Sent(found["ts"])
    for _ in range(PAGE * PAGES_MAX):
        service.said("chatter", thread=THREAD)
    assert await channel.look_up(replace(delivery, id="another")) is None


@pytest.mark.parametrize(
    "mode", [limited(), Mode("internal_error"), Mode(status=503, body="no"), Mode("invalid_auth"), Mode(cut=True)]
)
async def test_nobody_who_could_tell_is_asked_again(channel: Slack, service: SlackService, mode: Mode) -> None:
    service.next["conversations.replies"].append(mode)
    with pytest.raises(ConnectionError):
        await channel.look_up(DELIVERY)


async def test_who_says_when_to_ask_again_is_believed(channel: Slack, service: SlackService) -> None:
    service.next["conversations.replies"].append(limited(30))
    with pytest.raises(AskLater) as raised:
        await channel.look_up(DELIVERY)
    assert raised.value.retry_after == 30.0


@pytest.mark.parametrize("error", ["missing_scope", "thread_not_found", "channel_not_found"])
async def test_where_slack_will_never_tell_the_policy_decides(
    channel: Slack, service: SlackService, error: str
) -> None:
    service.next["conversations.replies"].append(Mode(error))
    assert await channel.look_up(DELIVERY) is None


# Beside the answer


async def test_a_status_is_shown_in_threads(channel: Slack, service: SlackService) -> None:
    await channel.indicate(KEY, f"{TEAM}/{ROOM}/{THREAD}")
    await channel.indicate(f"slack/{TEAM}.D0001", f"{TEAM}/D0001/{THREAD}")
    assert service.statuses == [(ROOM, THREAD, "is thinking…")]


async def test_a_room_that_takes_no_status_is_not_asked_again(channel: Slack, service: SlackService) -> None:
    service.next["assistant.threads.setStatus"].extend([limited(), Mode("not_allowed")])
    for _ in range(4):
        await channel.indicate(KEY, "latest")
    assert len(service.of("assistant.threads.setStatus")) == 2


async def test_without_a_status_nothing_is_shown(service: SlackService) -> None:
    async with opened(service.url, status="") as channel:
        await channel.indicate(KEY, "latest")
    assert not service.calls


async def test_what_slack_knows_of_a_person_is_told(service: SlackService) -> None:
    service.users[USER] = {"name": "ann", "real_name": "Ann Other", "profile": {"display_name": "annie"}}
    service.teams["xoxb-2"] = "T0002"
    async with opened(service.url, tokens={TEAM: TOKEN, "T0002": "xoxb-2"}) as channel:
        assert await channel.profile(USER) == Person("slack", USER, name="Ann Other", user_name="ann")
        assert await channel.profile("U0NOBODY") is None
        service.next["users.info"].append(limited())
        with pytest.raises(ConnectionError):
            await channel.profile(USER)


async def test_files_are_fetched_with_the_token_of_their_workspace(service: SlackService) -> None:
    tokens = {TEAM: TOKEN, "T0002": "xoxb-2"}
    files = Files(tokens, service.url)
    async with opened(service.url, tokens=tokens) as channel:
        for team, token in tokens.items():
            url = f"https://files.slack.com/files-pri/{team}-F1/download/a.png"
            at = await channel.file(files.named(team, url))
            assert at == FileAt(url, {"authorization": f"Bearer {token}"})
            assert token not in repr(at)
        beside = service.url.replace("/api/", f"/files-pri/{TEAM}-F6/c")
        assert await channel.file(files.named(TEAM, beside)) == FileAt(beside, {"authorization": f"Bearer {TOKEN}"})


async def test_a_file_that_is_known_by_its_id_is_asked_about(service: SlackService) -> None:
    files = Files({"": TOKEN}, service.url)
    async with opened(service.url) as channel:
        url = "https://files.slack.com/files-pri/T9-F3/b"
        service.files["F3"] = {"url_private": url}
        assert await channel.file(files.known_by(TEAM, "F3")) == FileAt(url, {"authorization": f"Bearer {TOKEN}"})
        service.files["F4"] = {"url_private": "https://docs.example.com/x"}
        assert await channel.file(files.known_by(TEAM, "F4")) is None
        with pytest.raises(ConnectionError):
            await channel.file(files.known_by(TEAM, "F5"))


async def test_a_picture_reaches_the_agent(service: SlackService) -> None:
    """A16. Slack gives it to whoever shows the token, and we show it for what came from Slack."""
    picture = service.url.replace("/api/", f"/files-pri/{TEAM}-F1")
    message = message_event("look", channel="D1", channel_type="im", files=[{"id": "F1", "url_private": picture}])
    body = json.dumps(callback(message)).encode()
    async with opened(service.url, signing_secret=SIGNING_SECRET) as channel:
        heard = await channel.hear(Hook(body, signed(body, at=SystemClock().now() // 1000)))
        attachments = Attachments(locate=locating([channel]))
        try:
            (file,) = await attachments.fetched(heard.messages[0].attachments)
            (left_out,) = await attachments.fetched([Attachment(picture)])
        finally:
            await attachments.close()
    assert isinstance(file, File)
    assert (file.data, file.media_type) == (b"a picture", "image/png")
    assert isinstance(left_out, str)


async def test_the_token_is_shown_only_for_files_that_slack_itself_named(channel: Slack, service: SlackService) -> None:
    files, others = Files({"": TOKEN}, service.url), Files({"": "xoxb-2"}, service.url)
    ours = "https://files.slack.com/files-pri/T1-F1/a"
    for url in (
        ours,
        f"{ours}#{'0' * 32}",
        others.named(TEAM, ours),
        others.known_by(TEAM, "F3"),
        f"{service.url}conversations.list",
        *(
            files.named(TEAM, elsewhere)
            for elsewhere in (
                "https://example.com/a",
                "http://files.slack.com/a",
                "https://files.slack.com.example.com/a",
                f"{service.url}conversations.list",
                "data:,x",
                "http://[",
            )
        ),
    ):
        assert await channel.file(url) is None


async def test_a_channel_may_be_closed_twice_and_before_it_did_anything(service: SlackService) -> None:
    async with opened(service.url) as channel:
        await channel.close()
        assert isinstance(await channel.send(DELIVERY), Sent)
        await asyncio.gather(channel.close(), channel.close())
