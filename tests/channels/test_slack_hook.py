"""What is posted to us in Slack's name: taken if Slack signed it a moment ago, and else refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import SignatureVerifier
from tests.channels.slack_service import (
    BOT,
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
    pressed,
    signed,
    slack_service,
)
from tests.channels.still_clock import StillClock

from turnlane.channels.base import Heard, Hook
from turnlane.channels.slack import channel as channels_slack
from turnlane.channels.slack import reading, slack
from turnlane.channels.slack.channel import Slack
from turnlane.channels.slack.options import Options
from turnlane.errors import BackendUnavailable, InvalidBody, Unauthorized, UnsupportedMediaType
from turnlane.model.delivery import Delivery, Sent

CLOCK = StillClock()
NOW = CLOCK.now() // 1000
BODY = json.dumps(callback(message_event(f"<@{BOT}> héllo 🙂")), ensure_ascii=False).encode()
THREAD = "1699999999.000200"
KEY = f"slack/{TEAM}.{ROOM}/{THREAD}"


@pytest.fixture
async def service() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        yield service


@pytest.fixture
async def channel(service: SlackService) -> AsyncIterator[Slack]:
    channel = made(service)
    yield channel
    await channel.close()


def made(service: SlackService, **options: Any) -> Slack:
    given = {"tokens": {"": TOKEN}, "signing_secret": SIGNING_SECRET, "base_url": service.url, **options}
    return slack("slack", Options(**given), clock=CLOCK)


def hook(payload: object, **headers: str) -> Hook:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Hook(body, {**signed(body, at=NOW), **headers})


async def test_what_slack_signed_is_heard(channel: Slack) -> None:
    heard = await channel.hear(Hook(BODY, signed(BODY, at=NOW)))
    assert [message.text for message in heard.messages] == ["héllo 🙂"]
    assert channel.secured


def test_the_signature_is_slacks_own() -> None:
    class Clock:
        def now(self) -> float:
            return NOW

    verifier = SignatureVerifier(SIGNING_SECRET, Clock())  # type: ignore[arg-type]
    assert verifier.is_valid_request(BODY, signed(BODY, at=NOW))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY, signed(BODY, at=NOW, secret="another")),
        (BODY, signed(BODY, at=NOW - 301)),
        (BODY, signed(BODY, at=NOW + 301)),
        (BODY[:-1], signed(BODY, at=NOW)),
        (json.dumps(json.loads(BODY)).encode(), signed(BODY, at=NOW)),
        (BODY, {**signed(BODY, at=NOW), "x-slack-request-timestamp": str(NOW - 1)}),
        (BODY, {**signed(BODY, at=NOW), "x-slack-request-timestamp": "soon"}),
        (BODY, {**signed(BODY, at=NOW), "x-slack-signature": "é"}),
        (BODY, {"content-type": "application/json"}),
    ],
)
async def test_what_is_forged_replayed_cut_or_written_anew_is_refused(
    channel: Slack, body: bytes, headers: dict[str, str]
) -> None:
    with pytest.raises(Unauthorized) as refused:
        await channel.hear(Hook(body, headers))
    assert SIGNING_SECRET not in str(refused.value)


async def test_a_channel_that_listens_by_a_socket_takes_nothing_that_is_posted(service: SlackService) -> None:
    channel = made(service, signing_secret=None, app_token="xapp-1")
    assert not channel.secured
    with pytest.raises(Unauthorized, match="app_token"):
        await channel.hear(Hook(BODY, signed(BODY, at=NOW)))


@pytest.mark.parametrize(
    ("body", "media_type", "error"),
    [
        (b"{", "application/json", InvalidBody),
        (b"[]", "application/json", InvalidBody),
        (b"\xff", "application/json", InvalidBody),
        (b"[" * 100_000, "application/json", InvalidBody),
        (b"payload=%7B", "application/x-www-form-urlencoded", InvalidBody),
        (b"{}", "text/plain", UnsupportedMediaType),
    ],
)
async def test_what_is_signed_and_no_json_is_refused(
    channel: Slack, body: bytes, media_type: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await channel.hear(Hook(body, {**signed(body, at=NOW), "content-type": media_type}))


async def test_the_address_is_proven_to_slack(channel: Slack) -> None:
    heard = await channel.hear(hook({"type": "url_verification", "challenge": "3eZbrw1aB"}))
    assert heard == Heard(answer="3eZbrw1aB")


async def test_who_we_are_is_asked_once_where_slack_does_not_say(channel: Slack, service: SlackService) -> None:
    payload = {**callback(message_event(f"<@{BOT}> hi")), "authorizations": []}
    for _ in range(3):
        assert [message.text for message in (await channel.hear(hook(payload))).messages] == ["hi"]
    assert len(service.of("auth.test")) == 1


async def test_not_knowing_who_we_are_stops_nothing(channel: Slack, service: SlackService) -> None:
    service.always["auth.test"] = limited()
    payload = {**callback(message_event(f"<@{BOT}> hi", type="app_mention")), "authorizations": []}
    for _ in range(3):
        assert len((await channel.hear(hook(payload))).messages) == 1
    assert len(service.of("auth.test")) == 1


async def test_one_app_may_be_in_several_workspaces(service: SlackService) -> None:
    service.teams["xoxb-2"] = "T0002"
    channel = made(service, tokens={TEAM: TOKEN, "T0002": "xoxb-2"})
    try:
        for team, token in ((TEAM, TOKEN), ("T0002", "xoxb-2")):
            heard = await channel.hear(hook(callback(message_event(f"<@{BOT}> hi"), team=team)))
            key = heard.messages[0].conversation
            assert key == f"slack/{team}.{ROOM}/1700000000.000100"
            assert isinstance(await channel.send(Delivery("d", key, "hello")), Sent)
            assert service.calls[-1].token == token
        heard = await channel.hear(hook(callback(message_event(f"<@{BOT}> hi"), team="T0003")))
        assert heard == Heard(ignored=[reading.NO_TOKEN])
    finally:
        await channel.close()


async def test_what_was_stored_is_marked_and_nothing_before_that(service: SlackService) -> None:
    channel = made(service, receipt="eyes")
    heard = await channel.hear(hook(callback(message_event(f"<@{BOT}> hi"))))
    assert service.of("reactions.add") == []
    assert heard.when_stored is not None
    heard.when_stored()
    await service.until(lambda: service.reactions == [(ROOM, "1700000000.000100", "eyes")])
    await channel.close()


# Answers to questions


async def asked(channel: Slack, service: SlackService, *options: str, text: str = "Deploy?") -> dict[str, Any]:
    delivery = Delivery("d-1", KEY, text, kind="question", options=options)
    assert isinstance(await channel.send(delivery), Sent)
    return service.messages[ROOM][-1]


def reacted(message: dict[str, Any], reaction: str, **fields: Any) -> dict[str, Any]:
    return callback(
        {
            "type": "reaction_added",
            "user": USER,
            "reaction": reaction,
            "item": {"type": "message", "channel": ROOM, "ts": message["ts"]},
            "item_user": BOT,
            "event_ts": "1700000200.000300",
            **fields,
        }
    )


async def test_a_button_answers_the_question(channel: Slack, service: SlackService) -> None:
    question = await asked(channel, service, "yes", "no, not on a Friday " + "please " * 20)
    body = urlencode({"payload": json.dumps(pressed(question, 1))}).encode()
    heard = await channel.hear(Hook(body, signed(body, at=NOW, form=True)))
    (answer,) = heard.messages
    assert (answer.answers, answer.conversation, answer.sender) == ("d-1", KEY, USER)
    assert answer.text == "no, not on a Friday " + "please " * 20
    assert heard.answer == ""
    again = await channel.hear(Hook(body, signed(body, at=NOW, form=True)))
    assert again.messages[0].origin_id == answer.origin_id


async def test_a_button_of_somebody_else_is_ignored(channel: Slack, service: SlackService) -> None:
    question = await asked(channel, service, "yes")
    press = pressed(question, 0)
    press["actions"][0]["value"] = "theirs"
    assert await channel.hear(hook(press)) == Heard(ignored=[reading.OTHER_BUTTON], answer="")
    strict = made(service, users=["U0BOSS"])
    assert await strict.hear(hook(pressed(question, 0))) == Heard(ignored=[reading.NOT_AMONG_USERS], answer="")


@pytest.mark.parametrize(
    ("reaction", "options", "text"),
    [
        ("+1", ["yes", "no"], "yes"),
        ("+1::skin-tone-3", ["yes", "no"], "yes"),
        ("white_check_mark", ["deploy", "wait"], "deploy"),
        ("x", ["deploy", "wait"], "wait"),
        ("three", ["a", "b", "c"], "c"),
        ("heavy_check_mark", [], "yes"),
        ("-1", [], "no"),
    ],
)
async def test_a_reaction_answers_the_question(
    channel: Slack, service: SlackService, reaction: str, options: list[str], text: str
) -> None:
    question = await asked(channel, service, *options)
    heard = await channel.hear(hook(reacted(question, reaction)))
    (answer,) = heard.messages
    assert (answer.answers, answer.conversation, answer.text, answer.sender) == ("d-1", KEY, text, USER)


async def test_a_reaction_answers_a_question_in_a_direct_message(channel: Slack, service: SlackService) -> None:
    await channel.send(Delivery("d-2", f"slack/{TEAM}.D0001", "Sure?", kind="question"))
    (question,) = service.messages["D0001"]
    item = {"type": "message", "channel": "D0001", "ts": question["ts"]}
    heard = await channel.hear(hook(reacted(question, "+1", item=item)))
    assert [(answer.conversation, answer.text) for answer in heard.messages] == [(f"slack/{TEAM}.D0001", "yes")]


async def test_reactions_to_anything_else_are_ignored(channel: Slack, service: SlackService) -> None:
    question = await asked(channel, service, "yes")
    await channel.send(Delivery("d-3", KEY, "an answer"))
    reply = service.messages[ROOM][-1]
    for payload in (
        reacted(question, "tada"),
        reacted(question, "two"),
        reacted(question, "+1", item_user="U0OTHER"),
        reacted(reply, "+1"),
        reacted({"ts": "1600000000.000001"}, "+1"),
    ):
        assert await channel.hear(hook(payload)) == Heard(ignored=[reading.OTHER_REACTION])


async def test_a_reaction_that_cannot_be_looked_up_now_is_left_to_slack_to_tell_again(
    channel: Slack, service: SlackService, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = await asked(channel, service, "yes")
    monkeypatch.setattr(channels_slack, "REACTION_SECONDS_MAX", 0.2)
    for trouble in (limited(), Mode(hang=True), Mode(cut=True)):
        service.always["conversations.replies"] = trouble
        with pytest.raises(BackendUnavailable):
            await channel.hear(hook(reacted(question, "+1")))
