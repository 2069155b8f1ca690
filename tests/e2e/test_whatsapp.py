"""WhatsApp with real processes: what Meta, Whapi and Wati post to them, and what reaches these again."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest
from tests.channels.loopback import accepts_then_cuts
from tests.channels.whatsapp_service import Service, json_answer, meta_error, whatsapp_service
from tests.e2e.site import Site
from tests.e2e.test_approvals import PROGRAM

from turnlane.model.notice import CLOSED
from turnlane.testing.outside import Answer, Call, Outside, ask
from turnlane.testing.processes import Turnlane

PHONE, NUMBER = "112233", "972987654321"
SECRETS = {name: f"{name}-that-nobody-may-see" for name in ("token", "app_secret", "verify_token", "secret", "passkey")}
CHAT = "14155552671@s.whatsapp.net"
NOW = str(int(time.time()))

CHANNELS = """
[channels.wa]
kind = "whatsapp_meta"
token = "{token}"
app_secret = "{app_secret}"
verify_token = "{verify_token}"
base_url = "{url}"

[channels.phone]
kind = "whapi"
token = "{token}"
secret = "{secret}"
base_url = "{url}"
rate = "20/s"

[channels.desk]
kind = "wati"
token = "{token}"
passkey = "{passkey}"
base_url = "{url}"
"""


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with whatsapp_service() as service:
        yield service


def configure(site: Site, service: Service, *, lanes: str = "", **settings: Any) -> None:
    agent = f'kind = "http"\nurl = "{site.outside.url}/turns"\n{CHANNELS.format(url=service.url, **SECRETS)}'
    backoff = 'backoff = { first = "100ms", most = "300ms" }\n'
    site.configure(agent=agent, lanes=backoff + lanes, **settings)


def from_meta(*messages: dict[str, Any], name: str = "messages", field: str = "messages") -> bytes:
    metadata = {"display_phone_number": "972123456789", "phone_number_id": PHONE}
    value = {"messaging_product": "whatsapp", "metadata": metadata, name: list(messages)}
    entry = {"id": "waba", "changes": [{"field": field, "value": value}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}, ensure_ascii=False).encode()


def text(said: str, **more: str) -> dict[str, Any]:
    message = {"from": NUMBER, "id": f"wamid.{said}", "timestamp": NOW, "type": "text"}
    return message | {"text": {"body": said}} | more


def signature(body: bytes) -> str:
    return "sha256=" + hmac.new(SECRETS["app_secret"].encode(), body, sha256).hexdigest()


async def meta_posts(process: Turnlane, body: bytes, *, signed: str | None = None) -> Answer:
    url = f"{await process.ready()}channels/wa"
    return await ask(url, body, x_hub_signature_256=signature(body) if signed is None else signed)


async def wati_posts(process: Turnlane, said: object, *, passkey: str = SECRETS["passkey"]) -> Answer:
    """As `curl -d` does: the content type is a form's."""
    url = f"{await process.ready()}channels/desk?passkey={passkey}"
    body = json.dumps(said).encode()
    return await ask(url, body, content_type="application/x-www-form-urlencoded")


async def whapi_posts(process: Turnlane, *messages: dict[str, Any]) -> Answer:
    said = {"messages": list(messages), "event": {"type": "messages", "event": "post"}}
    return await ask(f"{await process.ready()}channels/phone", said, secret=SECRETS["secret"])


def in_chat(said: str, **more: Any) -> dict[str, Any]:
    message = {"id": said, "from_me": False, "type": "text", "chat_id": CHAT, "timestamp": 1712995245}
    return message | {"source": "mobile", "text": {"body": said}, "from": "14155552671"} | more


async def typed(site: Site, *words: str) -> str:
    """An operator at a terminal, in the folder of the site."""
    async with Turnlane(*words, folder=site.folder) as command:
        assert await command.ended() == 0, command.last_words
        return command.last_words


# In -------------------------------------------------------------------------------------------------------------------


async def test_a_burst_of_three_is_answered_once(site: Site, service: Service, outside: Outside) -> None:
    configure(site, service, debounce="1s", lease=3)
    process = await site.start()
    for said in ("one", "two"):
        assert (await meta_posts(process, from_meta(text(said)))).status == 200
    await meta_posts(process, from_meta(text("two"), text("three 🙂")))
    assert site.rows("SELECT count(*) FROM message") == [(3,)]
    await service.until(lambda: bool(service.taken))
    await site.all_settled()
    assert service.texts(NUMBER) == ["one + two + three 🙂"]
    assert len(outside.calls) == 1


async def test_meta_shakes_hands(site: Site, service: Service) -> None:
    configure(site, service)
    url = f"{await (await site.start()).ready()}channels/wa?hub.mode=subscribe&hub.challenge=1158"
    answer = await ask(f"{url}&hub.verify_token={SECRETS['verify_token']}")
    assert (answer.status, answer.body) == (200, b"1158")
    assert (await ask(f"{url}&hub.verify_token=guess")).status in {401, 403}


async def test_forged_cut_and_rewritten_bodies_leave_nothing_and_a_replay_changes_nothing(
    site: Site, service: Service
) -> None:
    configure(site, service)
    process = await site.start()
    body = from_meta(text("Grüße 🙂"))
    rewritten = json.dumps(json.loads(body)).encode()
    for other in (body[:-1], body + b" ", rewritten, body.replace(b"972987", b"972988"), b"{}"):
        assert (await meta_posts(process, other, signed=signature(body))).status == 401
    for passkey in ("", "wrong", SECRETS["passkey"][:-1]):
        assert (await wati_posts(process, {"waId": NUMBER, "text": "hi"}, passkey=passkey)).status == 401
    answer = await ask(f"{await process.ready()}channels/phone", {"messages": [in_chat("hi")]}, secret="wrong")
    assert answer.status == 401
    assert site.rows("SELECT count(*) FROM message") == site.rows("SELECT count(*) FROM lane") == [(0,)]
    assert [(await meta_posts(process, body)).status for _ in range(2)] == [200, 200]
    assert site.rows("SELECT count(*) FROM message") == [(1,)]
    await service.until(lambda: len(service.taken) == 1)
    await site.all_settled()
    assert len(service.taken) == 1


async def test_what_nobody_can_read_is_acknowledged_and_told(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    assert (await meta_posts(process, from_meta(text("hi") | {"type": "hologram"}))).status == 200
    assert (await meta_posts(process, from_meta(text("hi") | {"type": "reaction"}))).status == 200
    await process.said("hook.aside", why="a message of a type that nobody here knows")
    assert any("hologram" in facts for (facts,) in site.rows("SELECT facts FROM journal"))
    assert (await process.said("hook.ignored"))["why"] == "a reaction"


async def test_no_secret_is_in_any_log_event_or_stored_cause(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    token = SECRETS["token"]
    service.next = [meta_error(190, f"bad token {token}", 401)] * 3  # whichever of them comes first
    await meta_posts(process, from_meta(text("hi")), signed="sha256=" + SECRETS["app_secret"])
    await meta_posts(process, from_meta(text("hi")))
    await whapi_posts(process, in_chat("hi"))
    await wati_posts(process, {"waId": NUMBER, "text": "hi", "passkey": SECRETS["passkey"], "eventType": "odd"})
    await wati_posts(process, {"waId": NUMBER, "text": "hi", "passkey": SECRETS["passkey"]})
    await process.said("delivery.retried", times=3)
    kept = b"".join(path.read_bytes() for path in site.folder.glob("turnlane.db*"))
    told = json.dumps(process.lines).encode()
    assert not [name for name, word in SECRETS.items() if word.encode() in told]
    assert not [name for name, word in SECRETS.items() if word.encode() in kept]


async def test_whom_the_agent_talks_to_is_known_from_whapi_and_read_anew_when_told(
    site: Site, service: Service, outside: Outside
) -> None:
    """B2: the first message waits for nobody; later ones come with what was found meanwhile."""
    configure(site, service)
    process = await site.start()
    service.known = {"/contacts/14155552671": {"id": "14155552671", "name": "Ann", "pushname": "annie"}}
    service.known[f"/chats/{CHAT}"] = {"labels": [{"id": "1", "name": "VIP"}]}
    await whapi_posts(process, in_chat("one"))
    await process.said("profile.enriched", found=True)
    await whapi_posts(process, in_chat("two"))
    await outside.until(lambda: len(outside.calls) == 2)
    service.known["/contacts/14155552671"] = {"id": "14155552671", "name": "Ann B."}
    told = {"userId": "14155552671", "changes": ["enrichment"]}
    assert (await ask(f"{await process.ready()}update-user", told)).json == {"updated": 1}
    await process.said("profile.enriched", times=2)
    await whapi_posts(process, in_chat("three"))
    await outside.until(lambda: len(outside.calls) == 3)
    people = [call.turn["person"] for call in outside.calls[1:]]
    assert [(person["name"], person["labels"]) for person in people] == [("Ann", ["VIP"]), ("Ann B.", ["VIP"])]


# C8: four processes, requests without id and content type -------------------------------------------------------------


async def start_four(site: Site) -> Turnlane:
    four = await site.start("run", "--processes", "4")
    await four.said("worker.joined", times=4)
    return four


@pytest.mark.parametrize("window", ["2s", "65s"])
async def test_a_rapid_burst_of_one_customer_gives_one_turn_and_one_reply(
    site: Site, service: Service, outside: Outside, window: str
) -> None:
    """The first scenario. The window there is 65 s; that it is kept is seen without waiting for its end."""
    configure(site, service, debounce=window, lease=3)
    four = await start_four(site)
    answers = await asyncio.gather(*(wati_posts(four, {"waId": NUMBER, "text": "yes"}) for _ in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    if window == "65s":
        (lane,) = (await site.api(four, "lanes"))["lanes"]
        assert (lane["state"], lane["pending"]) == ("gathering", 5)
        return
    await service.until(lambda: bool(service.taken))
    await site.all_settled()
    assert len(outside.calls) == 1
    assert service.texts(NUMBER) == ["yes + yes + yes + yes + yes"]


async def test_four_customers_at_once_run_concurrently(site: Site, service: Service, outside: Outside) -> None:
    """The second scenario."""
    all_run = asyncio.Event()

    async def respond(call: Call) -> str:
        await all_run.wait()
        return f"hello {call.conversation}"

    outside.respond = respond
    configure(site, service, lease=3)
    four = await start_four(site)
    numbers = [f"9112345678{n}" for n in range(4)]
    await asyncio.gather(*(wati_posts(four, {"waId": number, "text": "hi"}) for number in numbers))
    await outside.until(lambda: len(outside.calls) == 4)  # none of them has been answered
    all_run.set()
    await service.until(lambda: len(service.taken) == 4)
    assert sorted(taken.to for taken in service.taken) == numbers


async def test_a_planted_stale_lock_is_cleaned_up_and_its_messages_are_answered(
    site: Site, service: Service, outside: Outside
) -> None:
    """The third scenario."""
    configure(site, service, debounce="5s", lease=3)
    four = await start_four(site)
    for _ in range(2):
        await wati_posts(four, {"waId": NUMBER, "text": "hi"})
    site.rows(
        "UPDATE lane SET owner = 'a-worker-of-last-week', claimed_at = 1, epoch = 7, number = 1, attempt = 1,"
        " claim_seq = next_seq, first_at = NULL, due_at = NULL"
    )
    await four.said("turn.lost", worker="a-worker-of-last-week")
    await service.until(lambda: bool(service.taken))
    await site.all_settled()
    assert service.texts(NUMBER) == ["hi + hi"]
    assert site.turns() == [(f"desk/{NUMBER}", 1, "answered", 8)]


# Takeover -------------------------------------------------------------------------------------------------------------

ECHO: dict[str, Any] = {
    "from": "972123456789",
    "to": NUMBER,
    "id": "wamid.echo",
    "timestamp": NOW,
    "type": "text",
}
ECHO["text"] = {"body": "Anna here"}
ECHO_BODY = from_meta(ECHO, name="message_echoes", field="smb_message_echoes")
BY_HAND = {"owner": True, "eventType": "sessionMessageSent_v2", "id": "e1", "waId": NUMBER, "text": "Anna here"}


@pytest.mark.parametrize("platform", ["meta", "whapi", "wati"])
async def test_whoever_answers_from_the_phone_silences_the_agent_until_it_may_go_on(
    site: Site, service: Service, outside: Outside, platform: str
) -> None:
    configure(site, service)
    process = await site.start()
    if platform == "meta":
        conversation, to = f"wa/{PHONE}/{NUMBER}", NUMBER
        await meta_posts(process, ECHO_BODY)
        await meta_posts(process, from_meta(text("are you there?")))
    elif platform == "whapi":
        conversation, to = f"phone/{CHAT.replace('@', '%40')}", CHAT
        await whapi_posts(process, in_chat("Anna here", from_me=True))
        await whapi_posts(process, in_chat("are you there?"))
    else:
        conversation, to = f"desk/{NUMBER}", NUMBER
        await wati_posts(process, BY_HAND)
        await wati_posts(process, {"waId": NUMBER, "id": "m1", "text": "are you there?"})
    (lane,) = (await site.api(process, "lanes"))["lanes"]
    assert (lane["state"], outside.calls) == ("paused", [])
    await typed(site, "resume", conversation)
    await service.until(lambda: bool(service.taken))
    assert service.texts(to) == ["Anna here + are you there?"]


# Out ------------------------------------------------------------------------------------------------------------------


async def test_a_closed_window_is_visible_in_the_outbox(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    service.next = [meta_error(131047, "Re-engagement message")]
    await meta_posts(process, from_meta(text("hi")))
    await process.said("delivery.failed")
    shown = await typed(site, "outbox", "--state", "failed", "--json")
    assert "24 h after the person last wrote" in shown
    assert "template" in shown
    await meta_posts(process, from_meta(text("again")))
    await service.until(lambda: service.texts(NUMBER) == ["again"])


async def test_a_refused_token_holds_what_is_to_be_sent_until_it_works(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    service.next = [meta_error(190, "expired", 401)]
    await meta_posts(process, from_meta(text("hi")))
    retried = await process.said("delivery.retried")
    assert "renew the token in [channels.wa]" in retried["cause"]
    assert [each["state"] for each in (await site.api(process, "outbox"))["deliveries"]] == ["queued"]


async def test_a_cut_after_accepting_follows_the_policy(site: Site, service: Service) -> None:
    configure(site, service, lanes='on_unknown = "hold"')
    process = await site.start()
    service.after = [accepts_then_cuts]
    await whapi_posts(process, in_chat("hi"))
    await process.said("lane.parked")
    assert service.texts(CHAT) == ["hi"]


LONG = "\n\n".join(
    f"## Part {number}\n\n" + f"Sentence {number} of **many**, see [the page](https://example.com/{number}). " * 12
    + f"\n\n```python\n{chr(10).join(f'line_{number}_{n} = {n}' for n in range(20))}\n```"
    for number in range(20)
)  # fmt: skip


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.replace("python", "")))


@pytest.mark.parametrize(("platform", "storm"), [("meta", 131056), ("whapi", 429), ("wati", 429)])
async def test_a_long_answer_arrives_whole_and_in_order_through_a_storm_of_refusals(
    site: Site, service: Service, outside: Outside, platform: str, storm: int
) -> None:
    """20,000 characters with code, in pieces of 4,096; of which every third is refused for a while."""
    assert len(LONG) > 20_000

    async def respond(call: Call) -> str:
        return LONG if call.texts == ["tell me all"] else "and this is the next answer"

    outside.respond = respond
    configure(site, service)
    process = await site.start()
    service.every = 3
    service.storm = meta_error(storm) if platform == "meta" else json_answer(429, {"error": {}}, retry_after="1")
    for said in ("tell me all", "and then?"):
        if platform == "meta":
            await meta_posts(process, from_meta(text(said)))
        elif platform == "whapi":
            await whapi_posts(process, in_chat(said))
        else:
            await wati_posts(process, {"waId": NUMBER, "id": said, "text": said})
        await outside.until(lambda: len(outside.calls) > 0)  # else both may be one turn
    to = CHAT if platform == "whapi" else NUMBER
    await service.until(lambda: any("next answer" in each for each in service.texts(to)), within=90)
    await site.all_settled()
    *pieces, last = service.texts(to)
    assert last == "and this is the next answer"
    assert len(pieces) > 4
    assert all(len(piece) <= 4_096 for piece in pieces)
    assert letters("".join(pieces)) == letters(LONG)
    assert len(service.refused) >= 2
    assert all(piece.count("```") % 2 == 0 for piece in pieces)


async def test_the_pair_rate_holds_one_conversation_and_no_other(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    service.next = [meta_error(131056)]
    await meta_posts(process, from_meta(text("hi")))
    await process.said("delivery.retried")
    other = text("hello", id="wamid.other") | {"from": "15550001111"}
    await meta_posts(process, from_meta(other))
    await service.until(lambda: len(service.taken) == 2)
    assert [taken.to for taken in service.taken] == ["15550001111", NUMBER]


async def test_what_meta_tells_later_reaches_the_delivery(site: Site, service: Service) -> None:
    configure(site, service)
    process = await site.start()
    await meta_posts(process, from_meta(text("hi")))
    await process.said("delivery.sent")
    sent = service.taken[0].request.json["biz_opaque_callback_data"]
    told = {"id": "wamid.out1", "timestamp": "1", "recipient_id": "other", "biz_opaque_callback_data": sent}
    await meta_posts(process, from_meta(told | {"status": "read"}, name="statuses"))
    assert (await process.said("delivery.reported"))["state"] == "read"
    window = {"code": 131047, "title": "Re-engagement message"}
    await meta_posts(process, from_meta(told | {"status": "failed", "errors": [window]}, name="statuses"))
    assert "template" in (await process.said("delivery.failed"))["cause"]


@pytest.mark.parametrize("platform", ["meta", "wati"])
async def test_a_status_settles_what_nobody_knew(site: Site, service: Service, platform: str) -> None:
    """The answer to a sending was lost, and would be held; the platform tells of it under our own id."""
    configure(site, service, lanes='on_unknown = "hold"')
    process = await site.start()
    service.after = [accepts_then_cuts]
    if platform == "meta":
        await meta_posts(process, from_meta(text("hi")))
    else:
        await wati_posts(process, {"waId": NUMBER, "id": "m1", "text": "hi"})
    await process.said("lane.parked")
    if platform == "meta":
        sent = service.taken[0].request.json["biz_opaque_callback_data"]
        told = {"id": "wamid.out1", "status": "sent", "recipient_id": NUMBER, "biz_opaque_callback_data": sent}
        await meta_posts(process, from_meta(told, name="statuses"))
    else:
        delivery = f"{service.taken[0].delivery}.{NUMBER}"
        await wati_posts(process, BY_HAND | {"localMessageId": delivery, "text": "hi"})
    await process.said("delivery.sent")
    await site.all_settled()
    assert service.texts(NUMBER) == ["hi"]


async def test_a_button_on_the_phone_answers_the_turn_that_asked(site: Site, service: Service) -> None:
    """D9, and once: whoever presses it again is told that it is over."""
    program = json.dumps([sys.executable, "-c", PROGRAM, "600"])
    agent = f'kind = "command"\ncommand = {program}\n{CHANNELS.format(url=service.url, **SECRETS)}'
    site.configure(agent=agent)
    process = await site.start()
    await meta_posts(process, from_meta(text("deploy")))
    await service.until(lambda: len(service.taken) == 1)
    yes, _ = service.taken[0].request.json["interactive"]["action"]["buttons"]
    for number in (1, 2):
        pressed = {"type": "interactive", "interactive": {"type": "button_reply", "button_reply": yes["reply"]}}
        await meta_posts(process, from_meta(text(f"press {number}") | pressed))
    await service.until(lambda: len(service.taken) == 3)
    await site.all_settled()
    assert sorted(service.texts(NUMBER)) == sorted(["Deploy now?", "deploy: yes", CLOSED])


@pytest.mark.parametrize("platform", ["meta", "whapi"])
async def test_somebody_is_seen_to_type_while_the_agent_thinks(
    site: Site, service: Service, outside: Outside, platform: str
) -> None:
    seen = asyncio.Event()

    async def respond(call: Call) -> str:
        await seen.wait()
        return "done"

    outside.respond = respond
    configure(site, service)
    process = await site.start()
    if platform == "meta":
        await meta_posts(process, from_meta(text("hi")))
    else:
        await whapi_posts(process, in_chat("hi"))
    await service.until(lambda: bool(service.indicated))
    assert not service.taken
    seen.set()
    await service.until(lambda: bool(service.taken))
