"""What Wati posts, and whoever posts like it, and what comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.channels.still_clock import StillClock
from tests.channels.whatsapp_service import unmarked

from turnlane.channels.base import Heard, Hook
from turnlane.channels.wati import Wati
from turnlane.errors import InvalidBody, Unauthorized
from turnlane.model.message import Attachment, Message

PASSKEY, TOKEN = "wati-passkey", "wati-token"
BASE = "https://live-mt-server.wati.io/1234"
SENT = "0d1f1c5e-0000-5000-8000-000000000001"
SAID: dict[str, Any] = {
    "eventType": "message", "id": "634930ab", "created": "2022-10-14T09:49:31.2419621Z", "type": "text",
    "whatsappMessageId": "wamid.in1", "conversationId": "c1", "ticketId": "t1", "text": "Grüße 🙂", "data": None,
    "timestamp": "1665726781", "owner": False, "statusString": "SENT", "waId": "911234567890", "senderName": "Ann",
}  # fmt: skip
OURS = f"{SENT}.911234567890"


def channel(**settings: Any) -> Wati:
    given: dict[str, Any] = {"token": TOKEN, "passkey": PASSKEY, "base_url": BASE, "clock": StillClock()}
    return Wati("wati", **given | settings)


async def hear(*said: Any, wati: Wati | None = None) -> Heard:
    body = json.dumps(said[0] if len(said) == 1 else list(said)).encode()
    return await (wati or channel()).hear(Hook(body, {}, {"passkey": PASSKEY}))


async def heard_one(said: Any) -> Message:
    heard = await hear(said)
    (one,) = heard.messages
    assert not heard.ignored
    assert not heard.asides
    return one


async def test_a_text_becomes_a_message_of_the_person() -> None:
    assert await heard_one(SAID) == Message(
        channel="wati",
        origin_id="wamid.in1",
        conversation="wati/911234567890",
        sender="911234567890",
        text="Grüße 🙂",
        sent_at=1_665_726_781_000,
    )


FILE_URL = "https://live-server-113.wati.io/api/file/showFile?fileName=data/images/31b9.jpg"


@pytest.mark.parametrize(
    ("changes", "text", "files"),
    [
        ({"type": "image", "text": None, "data": FILE_URL}, "[image 31b9.jpg]", (Attachment(FILE_URL, "31b9.jpg"),)),
        ({"type": "image", "text": "my cat", "data": FILE_URL}, "my cat", (Attachment(FILE_URL, "31b9.jpg"),)),
        ({"type": "voice", "text": None, "data": "data/audios/a.opus"}, "[voice message a.opus]",
         (Attachment(f"{BASE}/api/v1/getMedia?fileName=data%2Faudios%2Fa.opus", "a.opus"),)),
        ({"type": "document", "text": None, "data": None}, "[document]", ()),
        ({"type": "audio", "text": None, "data": {"url": FILE_URL}}, "[audio 31b9.jpg]",
         (Attachment(FILE_URL, "31b9.jpg"),)),
        ({"type": "location", "text": None, "data": {"latitude": 52.5, "longitude": 13.4}}, "[location 52.5,13.4]", ()),
        ({"type": "contacts", "text": None, "messageContact": [{"name": {"formatted_name": "Bo"}}]},
         "[contact Bo]", ()),
        ({"type": "order", "text": None}, "[order]", ()),
        ({"type": "button", "text": "Yes", "buttonReply": {"text": "Yes", "payload": "y"}}, "Yes", ()),
        ({"type": "interactive", "text": None, "listReply": {"title": "Tea", "description": "green"}}, "Tea", ()),
        ({"type": "interactive", "text": None, "interactiveButtonReply": {"id": "1", "title": "No"}}, "No", ()),
        ({"type": "media_placeholder", "text": None}, "[a message that WhatsApp does not hand on]", ()),
    ],
)  # fmt: skip
async def test_every_type_is_put_in_words(changes: Any, text: str, files: tuple[Attachment, ...]) -> None:
    one = await heard_one(SAID | changes)
    assert (one.text, unmarked(one.attachments)) == (text, files)


@pytest.mark.parametrize(
    ("changes", "user"),
    [({"bsuid": "HK.1"}, "HK.1"), ({"bsuid": "HK.1", "waId": None}, "HK.1"), ({"waId": 911234567890}, "911234567890")],
)
async def test_a_person_is_known_by_the_id_that_stays_when_the_number_is_hidden(changes: Any, user: str) -> None:
    assert (await heard_one(SAID | changes)).conversation == f"wati/{user}"


@pytest.mark.parametrize("suffix", ["", "_v2", "_bsuid"])
async def test_twins_have_the_same_id_so_the_second_changes_nothing(suffix: str) -> None:
    one = await heard_one(SAID | {"eventType": f"message{suffix}", "id": f"another{suffix}"})
    assert one.origin_id == "wamid.in1"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": "reaction", "text": "👍"}, "a reaction"),
        ({"eventType": "newContactMessageReceived", "text": None}, "a first message, which comes as a message, too"),
        ({"eventType": "newContactMessageReceived_v2"}, "a first message, which comes as a message, too"),
        ({"eventType": "templateMessageSent_v2"}, "news of the account that is no message"),
        ({"eventType": "chatAssigned"}, "news of the account that is no message"),
        ({"owner": True, "chatbotTriggeredEventId": "bot-1"}, "said by an automation of Wati's"),
        ({"channelPhoneNumber": "555"}, "another number of the account"),
        ({"waId": "1"}, "somebody who is not among `users`"),
    ],
)
async def test_what_is_no_message_to_us_is_ignored_for_a_reason(changes: Any, why: str) -> None:
    heard = await hear(SAID | changes, wati=channel(number="177742", users=["+911234567890"]))
    assert (heard.messages, heard.ignored, heard.asides) == ([], [why], [])


@pytest.mark.parametrize("event", ["message", "sessionMessageSent", "sessionMessageSent_v2"])
async def test_what_somebody_says_by_hand_is_said_by_the_business(event: str) -> None:
    said: dict[str, Any] = {"eventType": event, "text": "I take over", "operatorEmail": "bo@shop.example"}
    said["owner"] = event == "message"  # the name of the other events says as much
    one = await heard_one(SAID | said | {"localMessageId": "16bf77ae-79e8", "chatbotTriggeredEventId": None})
    assert (one.role, one.sender, one.text) == ("business", "bo@shop.example", "I take over")


@pytest.mark.parametrize(
    "said",
    [
        "hello",
        17,
        None,
        {},
        {"eventType": "telepathy"},
        SAID | {"type": "hologram"},
        SAID | {"text": " "},
        SAID | {"waId": None},
        SAID | {"waId": "9" * 600},
        SAID | {"whatsappMessageId": "w" * 513},
    ],
)
async def test_what_nobody_can_read_is_kept_aside_and_never_refused(said: Any) -> None:
    heard = await hear(said)
    assert (heard.messages, len(heard.asides)) == ([], 1)


# Statuses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("sentMessageDELIVERED", "delivered"),
        ("sentMessageREAD_v2", "read"),
        ("sentMessageREPLIED_v2", "read"),
        ("sessionMessageSent_v2", "sent"),
    ],
)
async def test_a_status_without_a_person_is_known_by_what_we_called_the_message(event: str, state: str) -> None:
    told = {"eventType": event, "localMessageId": OURS, "id": "x", "whatsappMessageId": "wamid.out1", "owner": True}
    (status,) = (await hear(told)).statuses
    assert (status.conversation, status.state) == ("wati/911234567890", state)
    assert (status.delivery, status.receipt) == (SENT, "wamid.out1")


async def test_a_failure_says_why() -> None:
    told = {"eventType": "sessionMessageFailed", "localMessageId": OURS, "failedCode": "131047", "failedDetail": "late"}
    (status,) = (await hear(told)).statuses
    assert (status.state, status.cause) == ("failed", "131047 late")


async def test_a_status_of_nobody_is_ignored() -> None:
    heard = await hear({"eventType": "sentMessageREAD", "localMessageId": "theirs", "whatsappMessageId": "w"})
    assert list(heard.ignored) == ["a status that does not say of which conversation"]


# C8: no id, no content type -------------------------------------------------------------------------------------------

BARE = {"waId": "911234567890", "text": "yes"}


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/json"])
async def test_any_body_that_holds_json_is_taken(content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    heard = await channel().hear(Hook(json.dumps(BARE).encode(), headers, {"passkey": PASSKEY}))
    assert [(one.text, one.conversation) for one in heard.messages] == [("yes", "wati/911234567890")]


async def test_without_an_id_and_a_time_nothing_is_lost_as_a_repetition() -> None:
    wati = channel()
    said = [await hear(BARE, wati=wati), await hear(BARE, wati=wati), await hear(BARE, BARE, wati=wati)]
    ids = [one.origin_id for heard in said for one in heard.messages]
    assert len(set(ids)) == len(ids) == 4


async def test_without_an_id_but_with_a_time_a_repetition_is_recognised() -> None:
    timed = BARE | {"timestamp": "1665726781"}
    backwards = dict(reversed(timed.items())) | {"passkey": PASSKEY}
    first, again, later = [
        (await heard_one(each)).origin_id for each in (timed, backwards, timed | {"timestamp": "1665726782"})
    ]
    assert first == again != later


# Who may post ---------------------------------------------------------------------------------------------------------

BODY = json.dumps(SAID).encode()


@pytest.mark.parametrize(
    "hook",
    [
        Hook(BODY, {}, {"passkey": PASSKEY}),
        Hook(BODY, {"authorization": f"Bearer {PASSKEY}"}),
        Hook(BODY, {"authorization": PASSKEY}),
        Hook(BODY, {"x-passkey": PASSKEY}),
        Hook(json.dumps(SAID | {"passkey": PASSKEY}).encode()),
        Hook(json.dumps([SAID | {"passkey": PASSKEY}]).encode()),
    ],
)
async def test_the_passkey_may_come_in_any_of_its_places(hook: Hook) -> None:
    assert len((await channel().hear(hook)).messages) == 1


@pytest.mark.parametrize(
    "hook",
    [
        Hook(BODY),
        Hook(BODY, {}, {"passkey": "wati-passke"}),
        Hook(BODY, {"authorization": "Bearer "}),
        Hook(BODY, {"x-passkey": "☃"}),
        Hook(json.dumps(SAID | {"passkey": "x"}).encode()),
        Hook(json.dumps(SAID | {"passkey": None}).encode()),
        Hook(json.dumps(SAID | {"passkey": [PASSKEY]}).encode()),
        Hook(json.dumps([SAID | {"passkey": PASSKEY}, SAID]).encode()),
        Hook(b"[]"),
        Hook(b"\xff"),
        Hook(b""),
    ],
)
async def test_a_wrong_or_missing_passkey_is_refused_and_not_repeated(hook: Hook) -> None:
    """C1."""
    with pytest.raises(Unauthorized) as refused:
        await channel().hear(hook)
    assert PASSKEY not in str(refused.value)


async def test_the_passkey_is_in_nothing_that_is_kept() -> None:
    heard = await hear(SAID | {"eventType": "telepathy", "passkey": PASSKEY}, {"passkey": PASSKEY})
    assert len(heard.asides) == 2
    assert PASSKEY not in repr(heard)


@pytest.mark.parametrize("body", [b"", b"hello", BODY[:-1], b"\xff", b"[" * 100_000])
async def test_what_is_not_json_is_an_invalid_body(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        await channel().hear(Hook(body, {}, {"passkey": PASSKEY}))


async def test_without_a_passkey_it_is_not_secured() -> None:
    assert (channel().secured, channel(passkey=None).secured) == (True, False)
    assert (await channel(passkey=None).hear(Hook(BODY))).messages


def test_no_secret_is_in_the_repr() -> None:
    wati = channel()
    assert not [word for word in (PASSKEY, TOKEN) if word in repr(wati) + repr(vars(wati))]
