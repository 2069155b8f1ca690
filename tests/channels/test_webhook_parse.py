"""What the plain web hook takes in, and what it refuses."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Signer
from tests.channels.still_clock import StillClock

from turnlane.channels.base import HookChannel
from turnlane.channels.incoming import TEXT_BYTES_MAX
from turnlane.channels.secret import REPLAY_SECONDS_MAX
from turnlane.channels.webhook import MESSAGES_MAX, Webhook
from turnlane.errors import InvalidBody, InvalidMessage, InvalidSettings, Unauthorized, UnsupportedMediaType
from turnlane.model.message import Attachment, Message, local_part

JSON = {"content-type": "application/json"}
SECRET = "correct-horse-battery"
WHSEC = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
SAID = {"id": "m-1", "conversation": "alice", "sender": "Alice", "text": "hi"}


def channel(secret: str | None = None, at: int = StillClock.at) -> Webhook:
    return Webhook("site", secret=secret, clock=StillClock(at))


def parse(*said: Any) -> list[Message]:
    return list(channel().parse(JSON, json.dumps(said[0] if len(said) == 1 else said).encode()))


def parse_one(**changes: Any) -> Message:
    [message] = parse(SAID | changes)
    return message


def test_it_is_a_hook_channel_and_knows_whether_it_is_secured() -> None:
    assert isinstance(channel(), HookChannel)
    assert not channel().secured
    assert channel(SECRET).secured


def test_an_object_is_one_message() -> None:
    [message] = parse(SAID)
    assert message == Message(
        channel="site", origin_id="m-1", conversation="site/alice", sender="Alice", text="hi", sent_at=None
    )


def test_a_list_is_several_messages_in_order() -> None:
    assert [message.origin_id for message in parse(SAID, SAID | {"id": "m-2"})] == ["m-1", "m-2"]


def test_everything_that_can_be_said_is_kept() -> None:
    file = {"url": "https://files.example/1", "name": "a.ogg", "media_type": "audio/ogg", "size": 12}
    message = parse_one(attachments=[file, {"url": "x"}], sent_at="2023-11-14T23:13:20.123+01:00", text="")
    assert message.attachments == (Attachment("https://files.example/1", "a.ogg", "audio/ogg", 12), Attachment("x"))
    assert message.sent_at == 1_700_000_000_123


def test_a_sender_who_is_not_named_is_called_like_the_conversation() -> None:
    [message] = parse({"id": "m-1", "conversation": "alice", "text": "hi"})
    assert message.sender == "alice"


def test_somebody_of_the_business_may_speak_in_the_conversation() -> None:
    message = parse_one(role="business", sender="Anna")
    assert (message.role, message.sender, message.conversation) == ("business", "Anna", "site/alice")
    [message] = parse({"id": "m-1", "conversation": "alice", "text": "hi", "role": "business"})
    assert message.sender == "business"


def test_typing_is_reported_alone_or_among_messages() -> None:
    typing = {"conversation": "alice", "typing": True}
    for body, said in ((typing, 0), ([typing], 0), ([SAID, typing, {**SAID, "id": "m-2"}], 2)):
        raw = json.dumps(body).encode()
        assert len(channel().parse(JSON, raw)) == said
        assert channel().typing(raw) == ["site/alice"]
    assert channel().typing(json.dumps({**typing, "typing": False}).encode()) == []
    assert channel().typing(json.dumps(SAID).encode()) == []


@pytest.mark.parametrize(
    "report",
    [
        {"typing": True},
        {"conversation": "alice", "typing": "yes"},
        {"conversation": "", "typing": True},
        {"conversation": "x" * 600, "typing": True},
        {"conversation": "alice", "typing": True, "text": "hi"},
    ],
)
def test_a_bad_report_of_typing_refuses_the_whole_list(report: dict[str, object]) -> None:
    for body in (report, [SAID, report]):
        with pytest.raises(InvalidMessage):
            channel().parse(JSON, json.dumps(body).encode())


@pytest.mark.parametrize("name", ["alice", "a/b", "a%2Fb", "Zoë 🙂", "..", "a\nb"])
def test_any_name_of_a_conversation_comes_back_as_it_was(name: str) -> None:
    message = parse_one(conversation=name)
    assert message.conversation.count("/") == 1
    assert local_part(message.conversation) == name


def test_content_type_may_have_parameters() -> None:
    assert channel().parse({"content-type": "Application/JSON; charset=utf-8"}, json.dumps(SAID).encode())


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": "application/jsonx"}])
def test_another_content_type_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        channel().parse(headers, json.dumps(SAID).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b'{"id": "m-1"',
        b"NaN",
        json.dumps(SAID).encode() + b"}",
        json.dumps(SAID).encode("utf-16"),
        json.dumps(SAID).encode().replace(b"hi", b"\xff\xfe"),
        json.dumps(SAID).encode().replace(b"hi", b"\\ud800"),
        json.dumps(SAID).encode().replace(b"hi", b"\\udc00 and more"),
        json.dumps(SAID).encode().replace(b"hi", b"\x00"),
    ],
)
def test_what_is_not_json_in_utf8_is_an_invalid_body(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        channel().parse(JSON, body)


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"id":' * 200_000, b'[{"x":' + b"[" * 200_000])
def test_deep_nesting_is_refused(body: bytes) -> None:
    with pytest.raises((InvalidBody, InvalidMessage)):
        channel().parse(JSON, body)


@pytest.mark.parametrize(
    "changes",
    [
        {"role": "operator"},
        {"id": 1},
        {"id": None},
        {"id": ""},
        {"id": "x" * 513},
        {"id": "é" * 257},
        {"id": "a\0b"},
        {"conversation": ""},
        {"conversation": "x" * 513},
        {"conversation": "é" * 100},
        {"conversation": "a\0"},
        {"sender": ""},
        {"sender": ["Alice"]},
        {"sender": "x" * 513},
        {"text": None},
        {"text": 5},
        {"text": "a\0"},
        {"text": "x" * (TEXT_BYTES_MAX + 1)},
        {"text": "é" * (TEXT_BYTES_MAX // 2 + 1)},
        {"attachments": None},
        {"attachments": ["https://files.example/1"]},
        {"attachments": [{}]},
        {"attachments": [{"url": ""}]},
        {"attachments": [{"url": "x\0"}]},
        {"attachments": [{"url": "x", "size": -1}]},
        {"attachments": [{"url": "x", "size": 2**63}]},
        {"attachments": [{"url": "x", "name": "n" * 2000}]},
        {"attachments": [{"url": "x"}] * 101},
        {"sent_at": "yesterday"},
        {"sent_at": "2023-11-14T23:13:20"},
        {"sent_at": 1_700_000_000},
        {"sent_at": "1969-12-31T23:59:59Z"},
        {"sent_at": "0001-01-01T00:00:00+23:59"},
        {"sent_at": "9999-12-31T23:59:59-23:59"},
        {"answers": ""},
        {"answers": "a\0"},
        {"txt": "hi"},
    ],
)
def test_json_of_the_wrong_shape_is_an_invalid_message(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_one(**changes)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("missing", ["id", "conversation", "text"])
def test_what_a_message_cannot_do_without_is_named(missing: str) -> None:
    with pytest.raises(InvalidMessage, match=missing):
        parse({name: value for name, value in SAID.items() if name != missing})


@pytest.mark.parametrize("body", ["null", "5", '"hi"', "[[]]", "[null]", "true"])
def test_other_json_is_an_invalid_message(body: str) -> None:
    with pytest.raises(InvalidMessage):
        channel().parse(JSON, body.encode())


def test_one_bad_message_refuses_the_whole_list() -> None:
    with pytest.raises(InvalidMessage):
        parse(SAID, SAID | {"id": ""})


def test_too_many_messages_at_once_are_refused() -> None:
    many = [SAID | {"id": str(number)} for number in range(MESSAGES_MAX + 1)]
    assert len(parse(*many[:-1])) == MESSAGES_MAX
    with pytest.raises(InvalidMessage, match=str(MESSAGES_MAX)):
        parse(*many)


def test_an_absurdly_long_unknown_field_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse(SAID | {"x" * 100_000: 1})
    assert len(str(refused.value)) < 400


# Who may post ---------------------------------------------------------------------------------------------------------

BODY = json.dumps(SAID).encode()


def signed(body: bytes = BODY, *, secret: str | bytes = WHSEC, at: int = StillClock.at) -> dict[str, str]:
    signature = Signer(secret).sign("msg_1", datetime.fromtimestamp(at // 1000, UTC), body.decode())
    return JSON | {"webhook-id": "msg_1", "webhook-timestamp": str(at // 1000), "webhook-signature": signature}


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
@pytest.mark.parametrize("secret", [SECRET, WHSEC])
def test_the_bearer_of_the_secret_may_post(scheme: str, secret: str) -> None:
    assert channel(secret).parse(JSON | {"authorization": scheme + secret}, BODY)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", SECRET, f"Basic {SECRET}", f"Bearer {SECRET}é", "Bearer ☃"],
)
def test_a_wrong_or_missing_secret_is_refused_and_not_repeated(authorization: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        channel(SECRET).parse(JSON | {"authorization": authorization}, BODY)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("ours", "theirs"), [(WHSEC, WHSEC), (SECRET, SECRET.encode())])
def test_a_signed_body_may_come_in(ours: str, theirs: str | bytes) -> None:
    """`whsec_…` is base64-decoded, anything else is the key itself."""
    assert channel(ours).parse(signed(secret=theirs), BODY)


def test_one_of_several_signatures_is_enough() -> None:
    headers = signed()
    headers["webhook-signature"] = f"v1a,other v1,{'A' * 43}= {headers['webhook-signature']}"
    assert channel(WHSEC).parse(headers, BODY)


@pytest.mark.parametrize(
    "forged",
    [BODY[:-1], BODY + b" ", BODY.replace(b"alice", b"mallo"), json.dumps(SAID, indent=1).encode(), b"", b"{}"],
    ids=["truncated", "longer", "changed", "re-serialised", "empty", "other"],
)
def test_a_body_that_was_not_signed_is_refused(forged: bytes) -> None:
    with pytest.raises(Unauthorized):
        channel(WHSEC).parse(signed(), forged)


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-id": "msg_2"},
        {"webhook-id": ""},
        {"webhook-timestamp": "1700000001"},
        {"webhook-timestamp": "1700000000.0"},
        {"webhook-timestamp": "01700000000"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": "-1"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,a,b"},
        {"webhook-signature": "v1,☃"},
        {"webhook-signature": signed(secret=b"another")["webhook-signature"]},
        {"webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,")},
    ],
)
def test_forged_or_malformed_signature_headers_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(Unauthorized) as refused:
        channel(WHSEC).parse(signed() | changes, BODY)
    assert WHSEC not in str(refused.value)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_all_three_headers_are_needed(missing: str) -> None:
    with pytest.raises(Unauthorized):
        channel(WHSEC).parse({name: value for name, value in signed().items() if name != missing}, BODY)


@pytest.mark.parametrize("seconds", [-REPLAY_SECONDS_MAX - 1, REPLAY_SECONDS_MAX + 1])
def test_a_replayed_request_is_refused_by_our_clock(seconds: int) -> None:
    with pytest.raises(Unauthorized, match="clock"):
        channel(WHSEC, at=StillClock.at + seconds * 1000).parse(signed(), BODY)


@pytest.mark.parametrize("seconds", [-REPLAY_SECONDS_MAX, REPLAY_SECONDS_MAX])
def test_a_late_request_is_taken_within_the_window(seconds: int) -> None:
    assert channel(WHSEC, at=StillClock.at + seconds * 1000).parse(signed(), BODY)


def test_the_secret_is_checked_before_the_body_is_looked_at() -> None:
    with pytest.raises(Unauthorized):
        channel(SECRET).parse({"content-type": "text/plain"}, b"\xff not json")
    with pytest.raises(Unauthorized):
        channel(WHSEC).parse(signed(), b"not json")


def test_a_signed_body_that_is_not_utf8_is_an_invalid_body() -> None:
    with pytest.raises(InvalidBody, match="UTF-8"):
        channel(WHSEC).parse(signed(), b"\xff")


@pytest.mark.parametrize("secret", ["", " ", "two words", "whsec_", "whsec_###", "whsec_abcde", "sécret", "a\n"])
def test_a_secret_that_cannot_work_is_refused_at_once(secret: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        channel(secret)
    assert len(secret) < 6 or secret == "whsec_" or secret not in str(refused.value)


def test_the_secret_is_not_in_the_repr() -> None:
    site = channel(SECRET)
    assert SECRET not in repr(site) + repr(vars(site))


# Whatever is thrown at it ---------------------------------------------------------------------------------------------

DOCUMENTED = (Unauthorized, UnsupportedMediaType, InvalidBody, InvalidMessage)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*SAID, "attachments", "sent_at", "url"]), inner),
    max_leaves=20,
)
ALMOST_SAID = st.fixed_dictionaries(
    {"id": st.text(), "conversation": st.text(), "text": st.text()},
    optional={
        "sender": st.none() | st.text(),
        "attachments": st.lists(st.fixed_dictionaries({"url": st.text()}, optional={"size": st.integers()})),
        "sent_at": st.none() | st.datetimes(timezones=st.timezones()).map(datetime.isoformat) | st.text(),
    },
)


def parse_or_refuse(site: Webhook, headers: dict[str, str], body: bytes) -> None:
    with suppress(*DOCUMENTED):
        for message in site.parse(headers, body):
            assert message.origin_id
            assert "\0" not in message.text
            assert message.conversation.isascii()
            assert len(message.conversation) <= 512


@given(st.binary())
def test_no_bytes_cause_any_but_the_documented_errors(body: bytes) -> None:
    parse_or_refuse(channel(), JSON, body)


@given(st.one_of(ANY_JSON, ALMOST_SAID, st.lists(ALMOST_SAID)))
def test_no_json_causes_any_but_the_documented_errors(said: Any) -> None:
    parse_or_refuse(channel(), JSON, json.dumps(said).encode())


@given(
    st.dictionaries(
        st.sampled_from(
            ["content-type", "authorization", "webhook-id", "webhook-timestamp", "webhook-signature"],
        ),
        st.text() | st.sampled_from(["1700000000", "Bearer ", "v1,", "application/json", "\udc80"]),
    ),
    st.sampled_from([BODY, b"\xff", b""]),
)
def test_no_headers_cause_any_but_the_documented_errors(headers: dict[str, str], body: bytes) -> None:
    parse_or_refuse(channel(WHSEC), headers, body)
