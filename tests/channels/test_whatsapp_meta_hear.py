"""What Meta posts, and what comes of it: messages, statuses, reasons, and what nobody can read."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from tests.channels.still_clock import StillClock
from tests.channels.whatsapp_service import unmarked

from turnlane.channels.base import HandshakingChannel, Heard, Hook
from turnlane.channels.whatsapp_meta import WhatsAppMeta
from turnlane.errors import InvalidBody, Unauthorized
from turnlane.model.message import Attachment, Message

APP_SECRET, VERIFY, TOKEN = "app-secret-of-ours", "verify-word", "EAAG-token"
BASE = "https://graph.example/v23.0"
PHONE, NUMBER, USER = "1122334455667", "972987654321", "US.13491208655302741918"
SAID_AT = 1_697_043_223
NOW = SAID_AT * 1_000 + 60_000
QUESTION = "0d1f1c5e-0000-5000-8000-000000000001"
FILE = {"id": "65463453", "mime_type": "image/jpeg", "sha256": "4654+8g="}


def channel(**settings: Any) -> WhatsAppMeta:
    given = {"token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY, "base_url": BASE}
    return WhatsAppMeta("wa", **given | settings, clock=StillClock(at=NOW))


def signed(body: bytes, secret: str = APP_SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()}


async def hear(said: object, meta: WhatsAppMeta | None = None) -> Heard:
    body = json.dumps(said, ensure_ascii=False).encode()
    return await (meta or channel()).hear(Hook(body, signed(body)))


def posted(*values: Any, field: str = "messages") -> dict[str, Any]:
    changes = [{"field": field, "value": value} for value in values]
    return {"object": "whatsapp_business_account", "entry": [{"id": "waba", "changes": changes}]}


def news(
    *messages: Any, name: str = "messages", user: str | None = USER, number: str | None = NUMBER
) -> dict[str, Any]:
    person: dict[str, Any] = {"profile": {"name": "Test Name"}}
    person |= {"wa_id": number} if number else {}
    person |= {"user_id": user} if user else {}
    metadata = {"display_phone_number": "972123456789", "phone_number_id": PHONE}
    return {"messaging_product": "whatsapp", "metadata": metadata, "contacts": [person], name: list(messages)}


def message(kind: str, content: object = None, **more: object) -> dict[str, Any]:
    inner = {} if content is None else {kind: content}
    return {"from": NUMBER, "id": "wamid.in1", "timestamp": "1697043223", "type": kind} | inner | more


async def heard_one(**said: Any) -> Message:
    heard = await hear(posted(news(said)))
    (one,) = heard.messages
    assert not heard.ignored
    assert not heard.asides
    return one


async def test_a_text_becomes_a_message_of_our_number_and_the_person() -> None:
    assert await heard_one(**message("text", {"body": "Grüße 🙂"})) == Message(
        channel="wa",
        origin_id="wamid.in1",
        conversation=f"wa/{PHONE}/{USER}",
        sender=USER,
        text="Grüße 🙂",
        sent_at=1_697_043_223_000,
    )


def file_at(number: str, **facts: Any) -> tuple[Attachment, ...]:
    return (Attachment(f"{BASE}/{number}", **facts),)


JPEG = file_at("65463453", media_type="image/jpeg")
OGG = file_at("7", media_type="audio/ogg")
VOICE = {"id": "7", "mime_type": "audio/ogg; codecs=opus", "voice": True}
PLACE = {"latitude": 37.4611978, "longitude": -122.2164385, "name": "Facebook HQ", "address": "1 Hacker Way"}
FRIENDS = [
    {"name": {"formatted_name": "Chandler Bing"}, "phones": [{"phone": "+1 555", "wa_id": "1555"}]},
    {"name": {"first_name": "Monica"}},
]
ITEMS = [
    {"product_retailer_id": "TEA", "quantity": 3, "item_price": 30, "currency": "ILS"},
    {"product_retailer_id": "CUP", "quantity": 1},
]
FLOW = {"type": "nfm_reply", "nfm_reply": {"response_json": '{"stars":"4"}', "body": "Sent", "name": "flow"}}
AD = {"source_url": "https://fb.me/1", "source_type": "ad", "headline": "Tea", "body": "Buy tea"}
PDF = {"id": "9", "filename": "offer.pdf", "mime_type": "application/pdf"}


@pytest.mark.parametrize(
    ("said", "text", "files"),
    [
        (message("image", FILE), "[image]", JPEG),
        (message("image", FILE | {"caption": "my cat"}), "my cat", JPEG),
        (message("image", FILE | {"url": "https://lookaside.example/x"}), "[image]", JPEG),
        (message("video", FILE), "[video]", JPEG),
        (
            message("document", PDF),
            "[document offer.pdf]",
            file_at("9", name="offer.pdf", media_type="application/pdf"),
        ),
        (message("sticker", FILE | {"animated": True}), "[sticker]", JPEG),
        (message("audio", VOICE), "[voice message]", OGG),
        (message("audio", VOICE | {"voice": False}), "[audio]", OGG),
        (message("location", PLACE), "[location 37.4611978,-122.2164385 Facebook HQ 1 Hacker Way]", ()),
        (message("location", {"latitude": 12.25, "longitude": 43.5}), "[location 12.25,43.5]", ()),
        (message("contacts", FRIENDS), "[contact Chandler Bing +1 555]\n[contact Monica]", ()),
        (message("order", {"text": "soon", "product_items": ITEMS}), "[order 3 × TEA at 30 ILS, 1 × CUP]\nsoon", ()),
        (message("interactive", FLOW), '[form {"stars":"4"}]', ()),
        (message("button", {"payload": "data", "text": "Yes, please"}), "Yes, please", ()),
        (message("unsupported", errors=[{"code": 131051}]), "[a message that WhatsApp does not hand on]", ()),
        (message("unsupported", {"type": "poll"}), "[a message that WhatsApp does not hand on poll]", ()),
        (message("text", {"body": "hi"}, context={"from": "972", "id": "wamid.0"}), "hi", ()),
        (message("text", {"body": "hi"}, context={"forwarded": True}), "[forwarded]\nhi", ()),
        (message("text", {"body": "hi"}, referral=AD), "[came from ad Tea https://fb.me/1]\nhi", ()),
        (
            message("text", {"body": "this?"}, context={"referred_product": {"product_retailer_id": "TEA"}}),
            "[about product TEA]\nthis?",
            (),
        ),
    ],
)
async def test_every_type_is_put_in_words(said: dict[str, Any], text: str, files: tuple[Attachment, ...]) -> None:
    one = await heard_one(**said)
    assert (one.text, unmarked(one.attachments)) == (text, files)


@pytest.mark.parametrize("kind", ["button_reply", "list_reply"])
async def test_a_button_of_ours_answers_its_question(kind: str) -> None:
    reply = {"type": kind, kind: {"id": f"{QUESTION}/1", "title": "no"}}
    one = await heard_one(**message("interactive", reply, context={"id": "wamid.out1"}))
    assert (one.text, one.answers) == ("no", QUESTION)


async def test_a_button_of_somebody_elses_is_only_said() -> None:
    reply = {"type": "button_reply", "button_reply": {"id": "buy-1", "title": "Buy"}}
    one = await heard_one(**message("interactive", reply))
    assert (one.text, one.answers) == ("Buy", None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (message("reaction", {"message_id": "wamid.out1"}), "a reaction"),
        (message("edit", {"original_message_id": "wamid.0", "message": {}}), "an edited or deleted message"),
        (message("revoke", {"original_message_id": "wamid.0"}), "an edited or deleted message"),
        (message("system", {"body": "changed", "type": "user_changed_number"}), "a notice of the platform"),
        (message("request_welcome"), "a notice of the platform"),
        (message("text", {"body": "hi"}, group_id="g1"), "said in a group, where this channel does not speak"),
    ],
)
async def test_what_is_no_message_to_us_is_ignored_for_a_reason(said: dict[str, Any], why: str) -> None:
    heard = await hear(posted(news(said)))
    assert (heard.messages, heard.ignored, heard.asides) == ([], [why], [])


@pytest.mark.parametrize("field", ["account_update", "message_template_status_update", "phone_number_quality_update"])
async def test_news_of_the_account_are_ignored(field: str) -> None:
    heard = await hear(posted({"event": "APPROVED"}, field=field))
    assert list(heard.ignored) == ["news of the account that is no message"]


@pytest.mark.parametrize(
    "said",
    [
        [],
        "hello",
        {"object": "page"},
        posted({"a": 1}, field="telepathy"),
        posted(news(message("hologram", {"id": "1"}))),
        posted(news(message("text"))),
        posted(news(message("text", {"body": " "}))),
        posted(news(message("image", {"mime_type": "image/png"}))),
        posted(news(message("interactive"))),
        posted(news(message("text", {"body": "hi"}) | {"id": ""})),
        posted(news(message("text", {"body": "hi"}) | {"id": "w" * 513})),
        posted(news(message("text", {"body": "hi"}) | {"from": None}, user=None, number=None)),
        posted(news(message("text", {"body": "hi"}) | {"from": "9" * 600}, user=None)),
        posted({"metadata": {"phone_number_id": PHONE}, "errors": [{"code": 131000}]}),
    ],
)
async def test_what_nobody_can_read_is_kept_aside_and_never_refused(said: Any) -> None:
    heard = await hear(said)
    assert (heard.messages, len(heard.asides)) == ([], 1)


async def test_one_that_nobody_can_read_does_not_hide_the_others() -> None:
    """Batches: entries of changes of messages."""
    first = news(message("text", {"body": "a"}), message("hologram"), message("text", {"body": "b"}, id="wamid.in2"))
    twice = posted(first, news(message("text", {"body": "c"}, id="wamid.in3")))
    twice["entry"] += posted(news(message("text", {"body": "d"}, id="wamid.in4")))["entry"]
    heard = await hear(twice)
    assert [one.text for one in heard.messages] == ["a", "b", "c", "d"]
    assert len(heard.asides) == 1


# Who it is ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "contact", "user"),
    [
        ({"from": NUMBER}, {"number": NUMBER, "user": USER}, USER),
        ({"from": NUMBER}, {"number": NUMBER, "user": None}, NUMBER),
        ({"from": None, "from_user_id": USER}, {"number": None, "user": USER}, USER),
        ({"from": None}, {"number": None, "user": USER}, USER),
        ({"from": NUMBER, "from_user_id": USER}, {"number": None, "user": None}, USER),
    ],
)
async def test_a_person_is_known_by_the_id_that_stays_when_the_number_is_hidden(
    said: dict[str, Any], contact: dict[str, Any], user: str
) -> None:
    heard = await hear(posted(news(message("text", {"body": "hi"}) | said, **contact)))
    assert [(one.conversation, one.sender) for one in heard.messages] == [(f"wa/{PHONE}/{user}", user)]


async def test_of_two_people_without_a_number_neither_is_taken_for_the_other() -> None:
    said = news(message("text", {"body": "hi"}) | {"from": None}, number=None)
    said["contacts"].append({"user_id": "US.2"})
    assert len((await hear(posted(said))).asides) == 1


async def test_each_of_our_numbers_has_its_own_conversations() -> None:
    one, other = news(message("text", {"body": "a"})), news(message("text", {"body": "b"}, id="wamid.in2"))
    other["metadata"] = {"phone_number_id": "777"}
    heard = await hear(posted(one, other))
    assert [each.conversation for each in heard.messages] == [f"wa/{PHONE}/{USER}", f"wa/777/{USER}"]


@pytest.mark.parametrize("users", [[USER], [NUMBER], [f"+{NUMBER}"]])
async def test_who_is_on_the_list_is_welcome_by_either_name(users: list[str]) -> None:
    assert (await hear(posted(news(message("text", {"body": "hi"}))), channel(users=users, rooms=[PHONE]))).messages


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ({"users": ["US.2"]}, "somebody who is not among `users`"),
        ({"rooms": ["777"]}, "a number or chat that is not among `rooms`"),
    ],
)
async def test_who_is_not_on_the_list_is_ignored(lists: dict[str, Any], why: str) -> None:
    heard = await hear(posted(news(message("text", {"body": "hi"}))), channel(**lists))
    assert (heard.messages, heard.ignored) == ([], [why])


ECHO: dict[str, Any] = {
    "from": "972123456789",
    "to": NUMBER,
    "id": "wamid.e1",
    "timestamp": "1697043223",
    "type": "text",
}
ECHO |= {"text": {"body": "I take over"}}


@pytest.mark.parametrize(
    "said",
    [
        posted(news(ECHO, name="message_echoes"), field="smb_message_echoes"),
        posted(news(ECHO | {"to_user_id": USER}, name="message_echoes", user=None), field="smb_message_echoes"),
        posted(news(ECHO)),
    ],
    ids=["echo", "echo to a user id", "among the messages"],
)
async def test_what_somebody_says_from_the_phone_is_said_by_the_business(said: Any) -> None:
    (one,) = (await hear(said)).messages
    assert (one.role, one.sender, one.conversation) == ("business", "business", f"wa/{PHONE}/{USER}")
    assert (one.origin_id, one.text) == ("wamid.e1", "I take over")


# What became of deliveries --------------------------------------------------------------------------------------------

TOLD = {"id": "wamid.out1", "status": "delivered", "timestamp": "1698266945", "recipient_id": NUMBER}
WINDOW = {"code": 131047, "title": "Re-engagement message", "error_data": {"details": "more than 24 hours"}}


async def test_a_status_names_the_delivery_and_the_conversation_that_it_was_sent_in() -> None:
    """Whatever the status calls the person: what we sent says to whom."""
    heard = await hear(posted(news(TOLD | {"biz_opaque_callback_data": f"{QUESTION} {USER}"}, name="statuses")))
    (status,) = heard.statuses
    assert (status.conversation, status.state) == (f"wa/{PHONE}/{USER}", "delivered")
    assert (status.delivery, status.receipt) == (QUESTION, "wamid.out1")


@pytest.mark.parametrize(("told", "state"), [("sent", "sent"), ("read", "read"), ("played", "read")])
async def test_without_our_id_a_status_names_metas(told: str, state: str) -> None:
    heard = await hear(posted(news(TOLD | {"status": told}, name="statuses")))
    (status,) = heard.statuses
    assert (status.conversation, status.state, status.delivery) == (f"wa/{PHONE}/{NUMBER}", state, None)


async def test_a_failure_says_why_and_what_to_do() -> None:
    heard = await hear(posted(news(TOLD | {"status": "failed", "errors": [WINDOW]}, name="statuses")))
    (status,) = heard.statuses
    assert status.state == "failed"
    assert "template" in str(status.cause)
    assert "131047 Re-engagement message: more than 24 hours" in str(status.cause)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"status": "teleported"}, "a status that tells nothing new"),
        ({"recipient_id": None}, "a status that does not say of which conversation"),
    ],
)
async def test_a_status_of_nothing_is_ignored(told: dict[str, Any], why: str) -> None:
    heard = await hear(posted(news(TOLD | told, name="statuses")))
    assert (heard.statuses, heard.ignored) == ([], [why])


# Who may post ---------------------------------------------------------------------------------------------------------

BODY = json.dumps(posted(news(message("text", {"body": "Grüße 🙂"}))), ensure_ascii=False).encode()


async def test_a_body_with_emoji_is_signed_as_it_came() -> None:
    assert (await channel().hear(Hook(BODY, signed(BODY)))).messages


@pytest.mark.parametrize(
    "forged",
    [BODY[:-1], BODY + b" ", BODY.replace(b"972", b"973"), json.dumps(json.loads(BODY)).encode(), b"", b"{}"],
    ids=["truncated", "longer", "changed", "re-serialised", "empty", "other"],
)
async def test_a_body_that_was_not_signed_is_refused(forged: bytes) -> None:
    with pytest.raises(Unauthorized):
        await channel().hear(Hook(forged, signed(BODY)))


@pytest.mark.parametrize(
    "given", ["", "sha256=", "sha256=☃", "sha1=0", "sha256=\udc80", signed(BODY, "another")["x-hub-signature-256"]]
)
async def test_a_wrong_or_missing_signature_is_refused_and_nothing_is_repeated(given: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        await channel().hear(Hook(BODY, {"x-hub-signature-256": given} if given else {}))
    assert APP_SECRET not in str(refused.value)
    assert not given[7:] or given not in str(refused.value)


async def test_a_signed_body_that_is_not_json_is_an_invalid_body() -> None:
    with pytest.raises(InvalidBody):
        await channel().hear(Hook(b"\xff", signed(b"\xff")))


@pytest.mark.parametrize(("days", "heard"), [(0, 1), (7.5, 1), (8.5, 0), (400, 0), (-1, 1)])
async def test_what_was_signed_long_ago_and_is_shown_again_is_not_heard(days: float, heard: int) -> None:
    """Meta posts for seven days at most; ids are known for thirty."""
    said = posted(news(message("text", {"body": "hi"}, timestamp=str(SAID_AT - int(days * 86_400)))))
    told = await hear(said)
    assert (len(told.messages), len(told.ignored)) == (heard, 1 - heard)


def test_the_handshake_is_answered_word_for_word() -> None:
    meta = channel()
    assert isinstance(meta, HandshakingChannel)
    asked = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "1158201444"}
    assert meta.handshake(asked) == "1158201444"


@pytest.mark.parametrize(
    "changes", [{"hub.mode": "unsubscribe"}, {"hub.verify_token": "guess"}, {"hub.verify_token": ""}, {"hub.mode": ""}]
)
def test_a_handshake_of_somebody_else_is_refused(changes: dict[str, str]) -> None:
    asked = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "1"}
    with pytest.raises(Unauthorized) as refused:
        channel().handshake(asked | changes)
    assert VERIFY not in str(refused.value)


def test_no_secret_is_in_the_repr() -> None:
    meta = channel()
    shown = repr(meta) + repr(vars(meta))
    assert not [word for word in (APP_SECRET, TOKEN, VERIFY) if word in shown]


async def test_a_sign_put_to_something_of_ours_may_be_an_answer() -> None:
    heard = await hear(posted(news(message("reaction", {"message_id": "wamid.out1", "emoji": "👍"}))))
    (sign,) = heard.reactions
    assert (sign.receipt, sign.sign, sign.origin_id) == ("wamid.out1", "👍", "wamid.in1")
    assert heard.messages == []
