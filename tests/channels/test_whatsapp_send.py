"""How replies leave by the three ways to WhatsApp, and what is known of them afterwards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.channels.loopback import Behaviour, accepts_then_cuts, answers, never_answers, nobody_listens
from tests.channels.still_clock import StillClock
from tests.channels.whatsapp_service import Service, json_answer, meta_error, whapi_error, whatsapp_service

from turnlane.agents.attachments import Attachments, File
from turnlane.channels import whatsapp
from turnlane.channels.base import FileAt, FileChannel, Hook, IndicatingChannel, ProfileChannel, SplittingChannel
from turnlane.channels.markup.characters import units
from turnlane.channels.wati import ENCODED_MAX, Wati
from turnlane.channels.whapi import Whapi
from turnlane.channels.whatsapp_meta import WhatsAppMeta
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.message import Attachment
from turnlane.model.person import Person

TOKEN = "the-token-of-ours"
ID = "0d1f1c5e-0000-5000-8000-000000000001"
USER = "US.13491208655302741918"
TO_META = Delivery(ID, f"wa/112233/{USER}", "Grüße 🙂 **now**")
TO_WHAPI = Delivery(ID, "wh/1415%40s.whatsapp.net", "Grüße 🙂 **now**")
TO_WATI = Delivery(ID, "wati/911234567890", "Grüße 🙂 **now** & more")

Made = WhatsAppMeta | Whapi | Wati


def meta(url: str, **settings: Any) -> WhatsAppMeta:
    given = {"token": TOKEN, "app_secret": "s", "verify_token": "v"} | settings
    return WhatsAppMeta("wa", base_url=url, clock=StillClock(), **given)


def whapi(url: str, **settings: Any) -> Whapi:
    return Whapi("wh", token=TOKEN, base_url=url, clock=StillClock(), **settings)


def wati(url: str, **settings: Any) -> Wati:
    return Wati("wati", base_url=url, clock=StillClock(), **{"token": TOKEN} | settings)


@asynccontextmanager
async def opened(channel: Made) -> AsyncIterator[Made]:
    try:
        yield channel
    finally:
        await channel.close()
        await channel.close()  # may be called twice


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with whatsapp_service() as service:
        yield service


async def send(service: Service, make: Callable[[str], Made], delivery: Delivery, *behave: Behaviour) -> SendResult:
    service.next = list(behave)
    async with opened(make(service.url)) as channel:
        result = await channel.send(delivery)
    assert TOKEN not in repr(result)
    return result


# Meta -----------------------------------------------------------------------------------------------------------------


async def test_meta_gets_the_text_our_id_and_the_token(service: Service) -> None:
    assert await send(service, meta, TO_META) == Sent("wamid.out1")
    (taken,) = service.taken
    assert taken.request.line.startswith("POST /here/112233/messages ")
    assert taken.request.headers["authorization"] == f"Bearer {TOKEN}"
    assert taken.request.json == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "recipient": USER,
        "type": "text",
        "text": {"body": "Grüße 🙂 *now*", "preview_url": False},
        "biz_opaque_callback_data": f"{ID} {USER}",
    }


async def test_who_is_known_by_a_number_is_written_to_by_it(service: Service) -> None:
    await send(service, meta, replace(TO_META, conversation="wa/112233/972987654321"))
    said = service.taken[0].request.json
    assert (said["to"], "recipient" in said) == ("972987654321", False)


@pytest.mark.parametrize("options", [("yes", "no"), ("yes", "no", "perhaps tomorrow")])
async def test_a_question_with_few_options_has_buttons_that_name_it(service: Service, options: tuple[str, ...]) -> None:
    await send(service, meta, replace(TO_META, kind="question", options=options))
    asked = service.taken[0].request.json["interactive"]
    assert (asked["type"], asked["body"]["text"]) == ("button", "Grüße 🙂 *now*")
    buttons = [button["reply"] for button in asked["action"]["buttons"]]
    assert [(button["id"], button["title"]) for button in buttons] == [
        (f"{ID}/{number}", option) for number, option in enumerate(options)
    ]


async def test_a_question_with_more_options_has_a_list(service: Service) -> None:
    options = tuple(f"option {number}" for number in range(10))
    await send(service, meta, replace(TO_META, kind="question", options=options))
    asked = service.taken[0].request.json["interactive"]
    rows = asked["action"]["sections"][0]["rows"]
    assert (asked["type"], [row["title"] for row in rows]) == ("list", list(options))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Which?", ("a" * 25, "b")),
        ("Which?", tuple(map(str, range(11)))),
        ("Which?", ("a", "a")),
        ("W" * 1_025, ("a", "b")),
    ],
)
async def test_a_question_that_fits_no_button_is_asked_in_words(
    service: Service, text: str, options: tuple[str, ...]
) -> None:
    await send(service, meta, replace(TO_META, text=text, kind="question", options=options))
    said = service.taken[0].request.json
    assert said["type"] == "text"
    assert all(f"{number}. {option}" in said["text"]["body"] for number, option in enumerate(options, 1))


@pytest.mark.parametrize(
    ("behave", "seconds", "whole_account"),
    [
        (meta_error(130429), 5.0, True),
        (meta_error(80007), 60.0, True),
        (meta_error(4, status=403), 60.0, True),
        (meta_error(131048), 300.0, True),
        (meta_error(130429, retry_after="17"), 17.0, True),
        (meta_error(131056), 6.0, False),
        (meta_error(190, status=401), 60.0, True),
        (meta_error(10, status=403), 60.0, True),
        (meta_error(299, status=403), 60.0, True),
        (answers(401), 60.0, True),
        (meta_error(777, status=401), 60.0, True),
        (meta_error(777, status=500), None, True),
        (meta_error(131031), 300.0, True),
        (meta_error(131042), 300.0, True),
        (answers(429, retry_after="3"), 3.0, True),
        (answers(503), None, True),
        (meta_error(131000, status=500), None, True),
        (meta_error(131016, status=503), None, True),
        (meta_error(2, status=500), None, True),
    ],
)
async def test_what_meta_asks_to_wait_for_is_waited_for(
    service: Service, behave: Behaviour, seconds: float | None, whole_account: bool
) -> None:
    result = await send(service, meta, TO_META, behave)
    assert isinstance(result, NotSent)
    assert (result.retry_after, result.whole_account) == (seconds, whole_account)


async def test_a_refused_token_names_the_next_step(service: Service) -> None:
    result = await send(service, meta, TO_META, meta_error(190, f"Malformed access token {TOKEN}", 401))
    assert isinstance(result, NotSent)
    assert "renew the token in [channels.wa]" in result.cause


async def test_a_closed_window_is_refused_with_the_next_step_until_they_write_again(service: Service) -> None:
    result = await send(service, meta, TO_META, meta_error(131047, "Re-engagement message"))
    assert isinstance(result, Refused)
    assert result.gone
    assert "template" in result.cause


@pytest.mark.parametrize("code", [100, 131026, 131051, 131008, 131009, 131021, 131030, 131062])
async def test_what_meta_will_never_take_is_given_up(service: Service, code: int) -> None:
    result = await send(service, meta, TO_META, meta_error(code, "no way"))
    assert isinstance(result, Refused)
    assert "no way" in result.cause
    assert not result.gone


@pytest.mark.parametrize("behave", [answers(500), answers(502, b"<html>"), answers(504)])
async def test_who_stands_between_us_and_meta_does_not_know(service: Service, behave: Behaviour) -> None:
    assert isinstance(await send(service, meta, TO_META, behave), Unknown)


# Whapi ----------------------------------------------------------------------------------------------------------------


async def test_whapi_gets_the_text_for_the_chat(service: Service) -> None:
    assert await send(service, whapi, TO_WHAPI) == Sent("out1")
    (taken,) = service.taken
    assert taken.request.json == {"to": "1415@s.whatsapp.net", "body": "Grüße 🙂 *now*", "typing_time": 0}
    assert taken.request.headers["authorization"] == f"Bearer {TOKEN}"


async def test_whapi_asks_questions_in_words(service: Service) -> None:
    await send(service, whapi, replace(TO_WHAPI, kind="question", options=("yes", "no")))
    assert service.taken[0].text.endswith("1. yes\n2. no")


@pytest.mark.parametrize(
    ("behave", "expected"),
    [
        (whapi_error(400), Refused),
        (whapi_error(403), Refused),
        (whapi_error(404), Refused),
        (whapi_error(413), Refused),
        (json_answer(200, {"sent": False}), Refused),
        (whapi_error(500), Unknown),
        (answers(502), Unknown),
    ],
)
async def test_whapis_other_answers(service: Service, behave: Behaviour, expected: type[object]) -> None:
    assert isinstance(await send(service, whapi, TO_WHAPI, behave), expected)


@pytest.mark.parametrize(
    ("behave", "seconds", "step"),
    [
        (whapi_error(401), 60.0, "connect the phone again"),
        (whapi_error(402), 3_600.0, "choose a plan"),
        (whapi_error(429, retry_after="9"), 9.0, "429"),
        (whapi_error(503), None, "503"),
    ],
)
async def test_what_whapi_asks_to_wait_for_is_waited_for(
    service: Service, behave: Behaviour, seconds: float | None, step: str
) -> None:
    result = await send(service, whapi, TO_WHAPI, behave)
    assert isinstance(result, NotSent)
    assert (result.retry_after, result.whole_account) == (seconds, True)
    assert step in result.cause


# Wati -----------------------------------------------------------------------------------------------------------------


async def test_wati_gets_the_text_as_a_parameter_and_our_id(service: Service) -> None:
    assert await send(service, lambda url: wati(url, number="1777"), TO_WATI) == Sent("out1")
    (taken,) = service.taken
    asked = urlsplit(taken.request.line.split()[1])
    assert asked.path == "/here/api/v1/sendSessionMessage/911234567890"
    assert parse_qs(asked.query) == {
        "messageText": ["Grüße 🙂 *now* & more"],
        "localMessageId": [f"{ID}.911234567890"],
        "channelPhoneNumber": ["1777"],
    }
    assert taken.request.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        ({"result": False, "info": "Ticket has been expired."}, True),
        ({"result": False}, True),
        ({"result": "false", "message": "outside the 24 hours window"}, True),
        ({"result": False, "info": "Invalid phone number"}, False),
    ],
)
async def test_a_200_that_says_no_is_refused(service: Service, answer: object, gone: bool) -> None:
    result = await send(service, wati, TO_WATI, json_answer(200, answer))
    assert isinstance(result, Refused)
    assert (result.gone, "template" in result.cause) == (gone, gone)


@pytest.mark.parametrize("answer", [{"result": "success"}, {"result": "PENDING"}, {"ok": True}, [], "fine"])
async def test_every_other_200_is_sent(service: Service, answer: object) -> None:
    assert await send(service, wati, TO_WATI, json_answer(200, answer)) == Sent()


@pytest.mark.parametrize(
    ("behave", "expected"), [(answers(400), Refused), (answers(500), Unknown), (answers(504), Unknown)]
)
async def test_watis_other_answers(service: Service, behave: Behaviour, expected: type[object]) -> None:
    assert isinstance(await send(service, wati, TO_WATI, behave), expected)


@pytest.mark.parametrize(("behave", "seconds"), [(answers(401), 60.0), (answers(429, retry_after="2"), 2.0)])
async def test_what_wati_asks_to_wait_for_is_waited_for(service: Service, behave: Behaviour, seconds: float) -> None:
    result = await send(service, wati, TO_WATI, behave)
    assert isinstance(result, NotSent)
    assert result.retry_after == seconds


async def test_without_a_token_nothing_leaves_by_wati(service: Service) -> None:
    result = await send(service, lambda url: wati(url, token=None), TO_WATI)
    assert isinstance(result, Refused)
    assert "[channels.wati]" in result.cause


# All three ------------------------------------------------------------------------------------------------------------

EACH = pytest.mark.parametrize(("make", "delivery"), [(meta, TO_META), (whapi, TO_WHAPI), (wati, TO_WATI)])


@EACH
async def test_a_cut_after_accepting_is_unknown(service: Service, make: Any, delivery: Delivery) -> None:
    service.after = [accepts_then_cuts]
    assert isinstance(await send(service, make, delivery), Unknown)
    assert len(service.taken) == 1


@EACH
async def test_no_answer_in_time_is_unknown(
    service: Service, make: Any, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whatsapp, "SEND_SECONDS_MAX", 0.2)
    assert isinstance(await send(service, make, delivery, never_answers), Unknown)


@EACH
async def test_nobody_there_is_proven_not_sent(make: Any, delivery: Delivery) -> None:
    async with opened(make(nobody_listens())) as channel:
        assert isinstance(await channel.send(delivery), NotSent)


@EACH
async def test_another_kind_of_conversation_is_refused(service: Service, make: Any, delivery: Delivery) -> None:
    assert isinstance(await send(service, make, replace(delivery, conversation="x/a/b/c")), Refused)
    assert not service.taken


@EACH
def test_long_texts_leave_in_pieces_that_fit(make: Any, delivery: Delivery) -> None:
    channel = make("http://127.0.0.1:1")
    assert isinstance(channel, SplittingChannel)
    text = "\n\n".join(f"{number}. " + "Every word 🙂 counts. " * 60 for number in range(20))
    pieces = channel.parts(text)
    assert all(units(piece) <= 4_096 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert list(channel.parts("short")) == ["short"]


def test_what_travels_in_a_url_is_shorter_where_it_takes_more_bytes() -> None:
    pieces = wati("http://127.0.0.1:1").parts("Привет, мир. " * 1_000)
    assert max(map(len, pieces)) < ENCODED_MAX // 4


@pytest.mark.parametrize("latest", ["wamid.in7", "schedule/morning/1"])
async def test_meta_shows_that_somebody_types_and_that_it_was_read(service: Service, latest: str) -> None:
    async with opened(meta(service.url)) as channel:
        assert isinstance(channel, IndicatingChannel)
        await channel.indicate("wa/112233/9", latest)
    shown = [request.json for request in service.indicated]
    expected = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.in7"}
    expected_all = [expected | {"typing_indicator": {"type": "text"}}]
    assert shown == (expected_all if latest.startswith("wamid") else [])
    assert channel.indicated_seconds < 25


async def test_whapi_shows_that_somebody_types(service: Service) -> None:
    async with opened(whapi(service.url)) as channel:
        assert isinstance(channel, IndicatingChannel)
        await channel.indicate(TO_WHAPI.conversation, "m-1")
    (request,) = service.indicated
    assert request.line.startswith("PUT /here/presences/1415@s.whatsapp.net ")
    assert request.json["presence"] == "typing"


@pytest.mark.parametrize("make", [meta, whapi])
async def test_typing_is_shown_only_if_wanted(service: Service, make: Any) -> None:
    async with opened(make(service.url, typing=False)) as channel:
        assert isinstance(channel, IndicatingChannel)
        await channel.indicate(TO_META.conversation if make is meta else TO_WHAPI.conversation, "wamid.1")
    assert not service.indicated


async def test_typing_that_cannot_be_shown_is_told(service: Service) -> None:
    async with opened(whapi(nobody_listens())) as channel:
        assert isinstance(channel, IndicatingChannel)
        with pytest.raises(ConnectionError):
            await channel.indicate(TO_WHAPI.conversation, "m-1")


def named(base_url: str, url: str) -> str:
    """As a channel with this token names a file of its platform."""
    return whatsapp.Api("a platform", base_url, TOKEN).named(url)


async def test_a_file_of_metas_is_found_where_meta_says_with_our_token(service: Service) -> None:
    service.known["/654"] = {"url": "http://127.0.0.1:9/there", "mime_type": "image/jpeg"}
    async with opened(meta(service.url)) as channel:
        assert isinstance(channel, FileChannel)
        at = await channel.file(named(service.url, f"{service.url}/654"))
        assert at == FileAt("http://127.0.0.1:9/there", {"authorization": f"Bearer {TOKEN}"})
        assert TOKEN not in repr(at)
        with pytest.raises(ConnectionError):
            await channel.file(named(service.url, f"{service.url}/gone"))


@pytest.mark.parametrize("make", [meta, whapi])
async def test_nobody_else_can_name_a_file_that_is_fetched_with_our_token(service: Service, make: Any) -> None:
    """Else a visitor of another channel could read what only we may, or have the token shown to a host of theirs."""
    service.known["/654"] = {"url": "http://127.0.0.1:9/there"}
    ours = named(service.url, f"{service.url}/654")
    forged = [
        ours[:-1],
        ours.replace("/654", "/me"),
        ours.partition("#")[0],
        f"{service.url}/654#",
        "#",
        "",
        "http://[",
    ]
    forged.append(whatsapp.Api("a platform", service.url, "another token").named(f"{service.url}/654"))
    async with opened(make(service.url)) as channel:
        assert [await channel.file(url) for url in forged] == [None] * len(forged)
    assert not service.asked


@pytest.mark.parametrize("make", [meta, whapi])
async def test_a_picture_reaches_the_agent_with_our_token_on_the_way(service: Service, make: Any) -> None:
    service.known = {"/654": {"url": f"{service.url}/there"}, "/there": b"JPEG", "/media/654": b"JPEG"}

    async def locate(url: str) -> tuple[str, Mapping[str, str]] | None:
        at = await channel.file(url)
        return None if at is None else (at.url, at.headers)

    path = "654" if make is meta else "media/654"
    async with opened(make(service.url)) as channel:
        attachments = Attachments(locate=locate)
        (file,) = await attachments.fetched(
            [Attachment(named(service.url, f"{service.url}/{path}"), None, "image/jpeg")]
        )
        await attachments.close()
    assert isinstance(file, File)
    assert (file.data, file.media_type) == (b"JPEG", "image/jpeg")
    assert {request.headers["authorization"] for request in service.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("where", ["ftp://x", "", "https://other-scheme.example/1"])
async def test_the_token_is_not_shown_to_whoever_an_odd_answer_names(service: Service, where: str) -> None:
    service.known["/654"] = {"url": where}
    async with opened(meta(service.url)) as channel:
        with pytest.raises(ConnectionError):
            await channel.file(named(service.url, f"{service.url}/654"))


@pytest.mark.parametrize(
    ("told", "ours"),
    [
        ("https://live-server-113.wati.io/api/file/showFile?fileName=a", True),
        ("data/images/a.jpg", True),
        ("http://live-server-113.wati.io/a", False),
        ("https://wati.io.evil.example/a", False),
        ("https://evil.example/.wati.io/a", False),
        ("https://evil.example#.wati.io/", False),
        ("http://[", False),
    ],
)
async def test_watis_token_is_shown_to_wati_only(told: str, ours: bool) -> None:
    async with opened(wati("https://live-mt-server.wati.io/1", passkey=None)) as channel:
        said = {"waId": "9", "id": "1", "type": "image", "data": told}
        assert isinstance(channel, Wati)
        (message,) = (await channel.hear(Hook(json.dumps(said).encode()))).messages
        at = await channel.file(message.attachments[0].url)
    assert (at is not None) == ours
    assert at is None or at.headers == {"authorization": f"Bearer {TOKEN}"}


async def test_whapi_tells_who_somebody_is(service: Service) -> None:
    service.known["/contacts/1415"] = {"id": "1415", "name": "Ann (shop)", "pushname": "annie"}
    service.known["/chats/1415@s.whatsapp.net"] = {"labels": [{"id": "1", "name": "VIP"}, {"id": "2"}]}
    async with opened(whapi(service.url)) as channel:
        assert isinstance(channel, ProfileChannel)
        assert await channel.profile("1415") == Person(
            "wh", "1415", name="Ann (shop)", user_name="annie", labels=("VIP",), chat_id="1415@s.whatsapp.net"
        )
        assert await channel.profile("999") is None


# For the doctor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (meta, {"/me": {"id": "1"}}),
        (lambda url: meta(url, rooms=["11", "22"]), {"/11": {"id": "11"}, "/22": {"id": "22"}}),
        (whapi, {"/health": {"status": {"code": 4, "text": "AUTH"}}}),
        (wati, {"/api/v1/getContacts": {"result": "success"}}),
    ],
)
async def test_a_token_that_works_is_known_to(service: Service, make: Any, known: dict[str, object]) -> None:
    service.known = known
    async with opened(make(service.url)) as channel:
        assert (await channel.who_we_are()).startswith("the token works")


async def test_a_phone_that_is_not_connected_and_a_number_that_is_not_there_are_found(service: Service) -> None:
    service.known = {"/health": {"status": {"text": "QR"}}}
    async with opened(whapi(service.url)) as channel:
        with pytest.raises(ConnectionError, match="scan the code"):
            await channel.who_we_are()
    async with opened(meta(service.url, rooms=["33"])) as channel:
        with pytest.raises(ConnectionError, match="no phone number 33"):
            await channel.who_we_are()


@pytest.mark.parametrize("make", [meta, whapi, wati])
async def test_a_token_that_is_refused_is_not_repeated(make: Any) -> None:
    from tests.channels.loopback import loopback

    async with loopback(answers(401, TOKEN.encode())) as server, opened(make(server.url)) as channel:
        with pytest.raises(whatsapp.TokenRefused) as refused:
            await channel.who_we_are()
    assert TOKEN not in str(refused.value)
