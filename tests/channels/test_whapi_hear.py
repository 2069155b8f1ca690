"""What Whapi posts, and what comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.channels.whatsapp_service import unmarked

from turnlane.channels.base import Heard, Hook
from turnlane.channels.whapi import Whapi
from turnlane.errors import InvalidBody, Unauthorized
from turnlane.model.message import Attachment, Message

SECRET, TOKEN = "whapi-secret", "whapi-token"
BASE = "https://gate.example"
CHAT, GROUP = "14155552671@s.whatsapp.net", "120363025246125244@g.us"
QUESTION = "0d1f1c5e-0000-5000-8000-000000000001"
BEARER = {"authorization": f"Bearer {SECRET}"}


def channel(**settings: Any) -> Whapi:
    return Whapi("wh", **{"token": TOKEN, "secret": SECRET, "base_url": BASE} | settings)


async def hear(said: object, whapi: Whapi | None = None) -> Heard:
    return await (whapi or channel()).hear(Hook(json.dumps(said).encode(), BEARER))


def posted(*messages: Any) -> dict[str, Any]:
    event = {"type": "messages", "event": "post"}
    return {"messages": list(messages), "event": event, "channel_id": "SUPERMAN-f75"}


def message(kind: str, content: object = None, **more: Any) -> dict[str, Any]:
    said = {"id": "p.1-gA", "from_me": False, "type": kind, "chat_id": CHAT, "timestamp": 1712995245}
    said |= {"source": "mobile", "from": "14155552671", "from_name": "Ann"}
    return said | ({} if content is None else {kind: content}) | more


async def heard_one(said: Any) -> Message:
    heard = await hear(posted(said))
    (one,) = heard.messages
    assert not heard.ignored
    assert not heard.asides
    return one


async def test_a_text_becomes_a_message_of_its_chat() -> None:
    assert await heard_one(message("text", {"body": "Grüße 🙂"})) == Message(
        channel="wh",
        origin_id="p.1-gA",
        conversation="wh/14155552671%40s.whatsapp.net",
        sender="14155552671",
        text="Grüße 🙂",
        sent_at=1_712_995_245_000,
    )


async def test_in_a_group_the_chat_is_the_conversation_and_whoever_speaks_the_sender() -> None:
    one = await heard_one(message("text", {"body": "hi"}, chat_id=GROUP))
    assert (one.conversation, one.sender) == ("wh/120363025246125244%40g.us", "14155552671")


FILE = {"id": "jpeg-1-gA", "mime_type": "image/jpeg", "file_size": 1000, "sha256": "x"}
LINKED = FILE | {"link": "https://s3.example/jpeg-1"}
JPEG = (Attachment(f"{BASE}/media/jpeg-1-gA", media_type="image/jpeg", size=1000),)
AT_LINK = (Attachment("https://s3.example/jpeg-1", media_type="image/jpeg", size=1000),)
CARD = {"name": "Bo Li", "vcard": "BEGIN:VCARD\nFN:Bo Li\nTEL;type=CELL;waid=1555:+1 555\nEND:VCARD"}
QUOTED = {"quoted_id": "q-1", "quoted_content": {"body": "At nine?\nOr ten?"}}


@pytest.mark.parametrize(
    ("said", "text", "files"),
    [
        (message("link_preview", {"body": "see https://a.example", "url": "https://a.example"}),
         "see https://a.example", ()),
        (message("image", FILE), "[image]", JPEG),
        (message("image", LINKED | {"caption": "my cat"}), "my cat", AT_LINK),
        (message("image", FILE | {"link": "javascript:x"}), "[image]", JPEG),
        (message("video", FILE), "[video]", JPEG),
        (message("gif", FILE), "[video]", JPEG),
        (message("short", FILE), "[video]", JPEG),
        (message("sticker", FILE), "[sticker]", JPEG),
        (message("audio", FILE), "[audio]", JPEG),
        (message("voice", FILE | {"seconds": 3}), "[voice message]", JPEG),
        (message("document", LINKED | {"file_name": "a.pdf"}), "[document a.pdf]",
         (Attachment("https://s3.example/jpeg-1", "a.pdf", "image/jpeg", 1000),)),
        (message("location", {"latitude": 52.5, "longitude": 13.4, "name": "Town Hall"}),
         "[location 52.5,13.4 Town Hall]", ()),
        (message("live_location", {"latitude": 1.5, "longitude": 2, "caption": "soon"}), "[location 1.5,2]\nsoon", ()),
        (message("contact", CARD), "[contact Bo Li +1 555]", ()),
        (message("contact_list", {"list": [CARD, {"name": "Cy"}]}), "[contact Bo Li +1 555]\n[contact Cy]", ()),
        (message("poll", {"title": "When?", "options": ["nine", "ten"]}), "[poll When?: nine / ten]", ()),
        (message("order", {"order_id": "1", "item_count": 2, "text": "soon"}), "[order 2 items]\nsoon", ()),
        (message("product", {"catalog_id": "1", "product_id": "tea"}), "[product tea]", ()),
        (message("group_invite", {"body": "join us", "invite_code": "x"}), "join us", ()),
        (message("interactive", {"body": {"text": "choose"}, "action": {}}), "choose", ()),
        (message("buttons", {"text": "choose", "buttons": []}), "choose", ()),
        (message("catalog", {"catalog_id": "1"}), "[catalog]", ()),
        (message("unknown"), "[a message that WhatsApp does not hand on]", ()),
        (message("action", {"type": "vote", "target": "m", "votes": ["nine"]}), "[vote nine]", ()),
        (message("action", {"type": "comment", "comment": "nice"}), "nice", ()),
        (message("text", {"body": "ten"}, context=QUOTED), "[in reply to: At nine? Or ten?]\nten", ()),
        (message("text", {"body": "ten"}, context={"forwarded": True}), "[forwarded]\nten", ()),
    ],
)  # fmt: skip
async def test_every_type_is_put_in_words(said: dict[str, Any], text: str, files: tuple[Attachment, ...]) -> None:
    one = await heard_one(said)
    assert (one.text, unmarked(one.attachments)) == (text, files)


@pytest.mark.parametrize("prefix", ["", "ButtonsV3:"])
async def test_a_button_says_its_title_and_one_of_ours_its_question(prefix: str) -> None:
    reply = {"type": "buttons_reply", "buttons_reply": {"id": f"{prefix}{QUESTION}/0", "title": "yes"}}
    one = await heard_one(message("reply", reply, context=QUOTED))
    assert (one.text, one.answers) == ("yes", QUESTION)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (message("action", {"type": "edit", "target": "m"}), "an edited or deleted message"),
        (message("action", {"type": "delete", "target": "m"}), "an edited or deleted message"),
        (message("action", {"type": "ephemeral"}), "a notice of the platform"),
        (message("system", {"body": "x"}), "a notice of the platform"),
        (message("call"), "a notice of the platform"),
        (message("text", {"body": "x"}, chat_id="status@broadcast"), "a story or the post of a channel"),
        (message("text", {"body": "x"}, chat_id="120@newsletter"), "a story or the post of a channel"),
        (message("story", {"body": "x"}), "a story or the post of a channel"),
        (message("text", {"body": "x"}, from_me=True, source="api"), "our own message, come back"),
    ],
)
async def test_what_is_no_message_to_us_is_ignored_for_a_reason(said: dict[str, Any], why: str) -> None:
    heard = await hear(posted(said))
    assert (heard.messages, heard.ignored, heard.asides) == ([], [why], [])


@pytest.mark.parametrize("source", ["mobile", "web", "business_api", None])
@pytest.mark.parametrize("chat", [CHAT, GROUP])
async def test_what_somebody_says_from_the_phone_is_said_by_the_business(source: str | None, chat: str) -> None:
    said = message("text", {"body": "I take over"}, from_me=True, source=source, chat_id=chat)
    said["from"] = "15550001111"
    one = await heard_one(said)
    assert (one.role, one.sender, one.text) == ("business", "business", "I take over")


@pytest.mark.parametrize(
    "name", ["messages_updates", "messages_removed", "chats_updates", "calls", "contacts", "groups_participants"]
)
async def test_news_of_the_account_are_ignored(name: str) -> None:
    heard = await hear({name: [{"id": "x"}], "channel_id": "S"})
    assert (list(heard.ignored), heard.asides) == (["news of the account that is no message"], [])


@pytest.mark.parametrize(
    "said",
    [
        [],
        {},
        {"channel_id": "S"},
        posted(message("hologram", {"id": "1"})),
        posted(message("text")),
        posted(message("text", {"body": ""})),
        posted(message("reply", {"type": "buttons_reply"})),
        posted(message("image")),
        posted(message("action", {"type": "teleport"})),
        posted(message("text", {"body": "hi"}, id=None)),
        posted(message("text", {"body": "hi"}, chat_id=None)),
        posted(message("text", {"body": "hi"}, chat_id="9" * 600)),
    ],
)
async def test_what_nobody_can_read_is_kept_aside_and_never_refused(said: Any) -> None:
    heard = await hear(said)
    assert (heard.messages, len(heard.asides)) == ([], 1)


async def test_a_batch_is_taken_whole() -> None:
    said = posted(*(message("text", {"body": str(n)}, id=f"m-{n}") for n in range(3)), message("hologram"))
    heard = await hear(said | {"statuses": [{"id": "out", "status": "read", "recipient_id": CHAT}]})
    assert [one.text for one in heard.messages] == ["0", "1", "2"]
    assert (len(heard.statuses), len(heard.asides)) == (1, 1)


@pytest.mark.parametrize(
    ("told", "state"), [("delivered", "delivered"), ("read", "read"), ("played", "read"), ("failed", "failed")]
)
@pytest.mark.parametrize("recipient", [CHAT, "14155552671"])
async def test_a_status_names_the_receipt_and_the_chat(told: str, state: str, recipient: str) -> None:
    said = {"id": "out-1", "code": 4, "status": told, "recipient_id": recipient, "timestamp": "1712995290"}
    (status,) = (await hear({"statuses": [said]})).statuses
    assert (status.conversation, status.receipt) == ("wh/14155552671%40s.whatsapp.net", "out-1")
    assert (status.state, status.delivery) == (state, None)


@pytest.mark.parametrize(("status", "typing"), [("typing", True), ("recording", True), ("online", False)])
async def test_whoever_types_is_waited_for(status: str, typing: bool) -> None:
    heard = await hear({"presences": [{"contact_id": "14155552671", "status": status}]})
    assert list(heard.typing) == (["wh/14155552671%40s.whatsapp.net"] if typing else [])
    assert not heard.asides


@pytest.mark.parametrize("users", [["14155552671"], ["+14155552671"], [CHAT]])
async def test_who_is_on_the_list_is_welcome(users: list[str]) -> None:
    assert (await hear(posted(message("text", {"body": "hi"})), channel(users=users, rooms=[CHAT]))).messages


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ({"users": ["1"]}, "somebody who is not among `users`"),
        ({"rooms": [GROUP]}, "a number or chat that is not among `rooms`"),
    ],
)
async def test_who_is_not_on_the_list_is_ignored(lists: dict[str, Any], why: str) -> None:
    heard = await hear(posted(message("text", {"body": "hi"})), channel(**lists))
    assert (heard.messages, heard.ignored) == ([], [why])


async def test_whoever_of_the_business_speaks_needs_no_place_on_the_list() -> None:
    said = posted(message("text", {"body": "hi"}, chat_id=GROUP, from_me=True))
    assert (await hear(said, channel(users=["1"], rooms=[GROUP]))).messages


# Who may post ---------------------------------------------------------------------------------------------------------

BODY = json.dumps(posted(message("text", {"body": "hi"}))).encode()


@pytest.mark.parametrize(
    "hook",
    [
        Hook(BODY, BEARER),
        Hook(BODY, {"authorization": SECRET}),
        Hook(BODY, {"x-turnlane-secret": SECRET}),
        Hook(BODY, {}, {"secret": SECRET}),
    ],
)
async def test_the_secret_may_come_in_any_of_its_places(hook: Hook) -> None:
    assert (await channel().hear(hook)).messages


@pytest.mark.parametrize(
    "hook",
    [
        Hook(BODY),
        Hook(BODY, {"authorization": "Bearer"}),
        Hook(BODY, {"authorization": f"Bearer {SECRET}é"}),
        Hook(BODY, {"authorization": f"Basic {SECRET}"}),
        Hook(BODY, {"x-turnlane-secret": "☃"}),
        Hook(BODY, {}, {"secret": SECRET[:-1]}),
        Hook(b"\xff", {}, {"secret": "\udc80"}),
    ],
)
async def test_a_wrong_or_missing_secret_is_refused_and_not_repeated(hook: Hook) -> None:
    with pytest.raises(Unauthorized) as refused:
        await channel().hear(hook)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"hello", BODY[:-1], b"\xff", b"[" * 100_000])
async def test_what_is_not_json_is_an_invalid_body(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        await channel().hear(Hook(body, BEARER))


async def test_without_a_secret_it_is_not_secured() -> None:
    assert (channel().secured, channel(secret=None).secured) == (True, False)
    assert (await channel(secret=None).hear(Hook(BODY))).messages


def test_no_secret_is_in_the_repr() -> None:
    whapi = channel()
    assert not [word for word in (SECRET, TOKEN) if word in repr(whapi) + repr(vars(whapi))]


async def test_a_sign_put_to_something_of_ours_may_be_an_answer() -> None:
    heard = await hear(posted(message("action", {"type": "reaction", "target": "out-1", "emoji": "👎"})))
    (sign,) = heard.reactions
    assert (sign.receipt, sign.sign) == ("out-1", "👎")
    assert heard.messages == []
