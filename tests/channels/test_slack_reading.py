"""What Slack tells, what of it is a message to us, and whose conversation it is in (A1, A2)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.channels.slack_service import BOT, ROOM, TEAM, USER, callback, message_event

from turnlane.channels.base import Heard, Hook
from turnlane.channels.slack import reading
from turnlane.channels.slack.options import Options
from turnlane.channels.slack.reading import Reader, payload_of, team_of
from turnlane.errors import InvalidBody, UnsupportedMediaType
from turnlane.model.message import Message

MENTION = f"<@{BOT}>"
THREAD = "1699999999.000200"


def heard(event: dict[str, Any], *, bot: str | None = BOT, **options: Any) -> Heard:
    reader = Reader("slack", Options(tokens={"": "t"}, **options))
    return reader.read(callback(event), team=TEAM, bot=bot).heard


def message(event: dict[str, Any], **options: Any) -> Message:
    (found,) = heard(event, **options).messages
    return found


# Whose conversation it is


def test_a_mention_in_a_room_opens_a_thread_of_its_own() -> None:
    found = message(message_event(f"{MENTION} hello"))
    assert found == Message(
        channel="slack",
        origin_id=f"{TEAM}/{ROOM}/1700000000.000100",
        conversation=f"slack/{TEAM}.{ROOM}/1700000000.000100",
        sender=USER,
        text="hello",
        sent_at=1_700_000_000_000,
    )


def test_a_reply_in_a_thread_belongs_to_it() -> None:
    found = message(message_event(f"hi {MENTION}", thread_ts=THREAD))
    assert found.conversation == f"slack/{TEAM}.{ROOM}/{THREAD}"
    assert found.text == "hi"


def test_one_message_is_one_however_often_and_in_whatever_form_it_is_told() -> None:
    told = [message_event(f"{MENTION} hello"), message_event(f"{MENTION} hello", type="app_mention", channel_type=None)]
    assert message(told[0]) == message(told[1])


@pytest.mark.parametrize(
    ("direct", "thread", "key"),
    [
        ("room", None, f"slack/{TEAM}.D0001"),
        ("room", THREAD, f"slack/{TEAM}.D0001/{THREAD}"),
        ("thread", None, f"slack/{TEAM}.D0001/1700000000.000100"),
        ("thread", THREAD, f"slack/{TEAM}.D0001/{THREAD}"),
    ],
)
def test_a_direct_message_is_one_conversation_or_opens_threads(direct: str, thread: str | None, key: str) -> None:
    event = message_event(channel="D0001", channel_type="im", thread_ts=thread)
    assert message(event, direct=direct).conversation == key


def test_what_is_said_in_a_thread_without_a_mention_is_overheard() -> None:
    found = heard(message_event("and you?", thread_ts=THREAD))
    assert [each.text for each in found.overheard] == ["and you?"]
    assert not found.messages


def test_a_room_may_be_listened_to_whole() -> None:
    assert message(message_event("anybody here?"), mention_only=False).text == "anybody here?"


def test_in_a_group_of_people_the_bot_is_spoken_to_by_a_mention() -> None:
    assert heard(message_event(channel="G0001", channel_type="mpim")).ignored == [reading.NO_MENTION]


def test_a_mention_is_known_even_if_nobody_knows_who_we_are() -> None:
    assert heard(message_event(f"{MENTION} hello", type="app_mention"), bot=None).messages


def test_the_workspace_is_the_one_that_we_have_a_token_for() -> None:
    told = callback(message_event(), team="T0THEIRS")
    told["authorizations"] = [{"team_id": TEAM, "user_id": BOT, "is_bot": True}]
    assert team_of(told, lambda team: team == TEAM) == TEAM
    assert team_of(callback(message_event(), team="T0OTHER"), lambda team: team == TEAM) is None


# What is not a message


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (message_event(), reading.NO_MENTION),
        (message_event(f"{MENTION} hi", user="U0OTHER"), reading.NOT_AMONG_USERS),
        (message_event(f"{MENTION} hi", channel="C0OTHER"), reading.NOT_AMONG_ROOMS),
        (message_event(user=BOT), reading.BY_A_BOT),
        (message_event(bot_id="B1"), reading.BY_A_BOT),
        (message_event(user="USLACKBOT"), reading.BY_A_BOT),
        (message_event(user=None, subtype="bot_message", bot_id="B1"), reading.BY_A_BOT),
        (message_event(user=None, subtype="message_changed", hidden=True), reading.NOT_SAID),
        (message_event(user=None, subtype="message_deleted"), reading.NOT_SAID),
        (message_event(subtype="channel_join"), reading.NOT_SAID),
        (message_event(subtype="channel_topic"), reading.NOT_SAID),
        ({"type": "channel_created", "channel": {"id": "C2"}}, reading.OTHER_EVENT),
        ({"type": "team_join", "user": {"id": "U2"}}, reading.OTHER_EVENT),
    ],
)
def test_what_is_not_said_to_us_is_ignored_for_a_stated_reason(event: dict[str, Any], why: str) -> None:
    found = heard(event, users=[USER], rooms=[ROOM])
    assert found == Heard(ignored=[why])


def test_direct_messages_are_no_rooms_of_the_list() -> None:
    assert heard(message_event(channel="D1", channel_type="im"), rooms=[ROOM]).messages


@pytest.mark.parametrize("subtype", ["file_share", "thread_broadcast", "me_message"])
def test_files_broadcasts_and_emotes_are_something_said(subtype: str) -> None:
    assert message(message_event(f"{MENTION} look", subtype=subtype)).text == "look"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"type": "url_verification", "challenge": "abc"}, Heard(answer="abc")),
        ({"type": "app_rate_limited", "minute_rate_limited": 1}, Heard(ignored=[reading.HELD_BACK])),
        ({"type": "view_submission", "view": {}}, Heard(ignored=[reading.INTERACTION], answer="")),
        ({"command": "/weather", "text": "94070"}, Heard(ignored=[reading.INTERACTION], answer="")),
    ],
)
def test_all_else_that_slack_sends_has_its_answer(payload: dict[str, Any], expected: Heard) -> None:
    reader = Reader("slack", Options(tokens={"": "t"}))
    assert reader.read(payload, team=TEAM, bot=BOT).heard == expected


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "something_new", "token": "verification-token"},
        {"type": "event_callback", "event": None},
        {"type": "event_callback", "event": {"type": "message", "channel": {"id": "C1"}, "ts": "1.1"}},
        {"type": "event_callback", "event": message_event(ts="yesterday")},
        {"type": "event_callback", "event": message_event(channel="C1/../x")},
        {"type": "block_actions", "user": "U1"},
    ],
)
def test_what_nobody_can_read_is_kept_aside_without_its_secrets(payload: dict[str, Any]) -> None:
    reader = Reader("slack", Options(tokens={"": "t"}))
    found = reader.read({**payload, "token": "verification-token"}, team=TEAM, bot=BOT).heard
    assert len(found.asides) == 1
    assert "verification-token" not in found.asides[0].body
    assert not found.messages


# What it says


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("see <https://example.com/a?b=1&amp;c=2>", "see https://example.com/a?b=1&c=2"),
        ("see <http://example.com|example.com>", "see example.com"),
        ("see <https://example.com|the shop>", "see the shop (https://example.com)"),
        ("<mailto:a@example.com|a@example.com>", "a@example.com"),
        ("<#C0002|general> and <@U0002|ann>", "#general and @ann"),
        ("<@U0002> knows", "<@U0002> knows"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @team today"),
        (f"{MENTION}: hi {MENTION}", "hi"),
        ("line one\nline two", "line one\nline two"),
        ("half \ud800 a\0 character", "half ? a\ufffd character"),
    ],
)
def test_slacks_way_of_writing_is_turned_back(written: str, text: str) -> None:
    assert message(message_event(f"{MENTION} {written}")).text == text


def test_files_become_attachments() -> None:
    files = [
        {"id": "F1", "url_private": "https://files.slack.com/a", "name": "a.png", "mimetype": "image/png", "size": 5},
        {"id": "F2", "url_private": "p", "url_private_download": "https://files.slack.com/files-pri/T1-F2/download/b"},
        {"id": "F3", "file_access": "check_file_info"},
        {"id": "F4", "url_private": "https://docs.example.com/x", "size": -1},
        {"id": "F5", "url_private": "http://["},
        {"name": "nothing"},
    ]
    found = message(message_event(f"{MENTION} look", subtype="file_share", files=files)).attachments
    assert (found[0].name, found[0].media_type, found[0].size) == ("a.png", "image/png", 5)
    # Those of Slack's are marked as named by Slack, in the part of the address that is never sent.
    addresses, marks = zip(*(each.url.partition("#")[::2] for each in found), strict=True)
    assert addresses == (
        "https://files.slack.com/a",
        "https://files.slack.com/files-pri/T1-F2/download/b",
        "https://slack.com/api/files.info?file=F3",
        "https://docs.example.com/x",
        "http://[",
    )
    assert [len(mark) for mark in marks] == [32, 32, 32, 0, 0]


# Whatever comes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("http://["),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
_FIELDS = ["type", "event", "user", "team", "actions", "channel", "ts", "thread_ts", "text", "files", "item", "subtype"]
_NEAR = st.dictionaries(st.sampled_from(_FIELDS), _JSON | st.sampled_from([USER, ROOM, "1.1", "message", "im"]))


@given(
    payload=st.dictionaries(st.text(), _JSON)
    | st.builds(lambda event: callback({**message_event(), **event}), _NEAR)
    | st.builds(lambda event: callback({"type": "reaction_added", **event}), _NEAR)
    | st.builds(lambda fields: {"type": "block_actions", **fields}, _NEAR)
)
def test_whatever_slack_sends_is_heard_or_ignored_or_set_aside(payload: dict[str, Any]) -> None:
    team = team_of(payload, lambda team: True)
    read = Reader("slack", Options(tokens={"": "t"})).read(payload, team=team, bot=BOT)
    for found in [*read.heard.messages, *read.heard.overheard]:
        found.text.encode()
        found.conversation.encode()


@given(
    body=st.binary() | st.dictionaries(st.just("payload") | st.text(), st.text()).map(urlencode).map(str.encode),
    media_type=st.sampled_from(["application/json", "application/x-www-form-urlencoded", "text/plain", ""]),
)
def test_no_bytes_cause_any_but_the_documented_errors(body: bytes, media_type: str) -> None:
    with suppress(InvalidBody, UnsupportedMediaType):
        payload = payload_of(Hook(body, {"content-type": media_type}))
        Reader("slack", Options(tokens={"": "t"})).read(payload, team=TEAM, bot=BOT)
