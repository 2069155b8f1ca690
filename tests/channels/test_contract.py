"""Every channel keeps every promise of the contract."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook as Signer
from tests.channels import test_wati_hear as wati
from tests.channels import test_whapi_hear as whapi
from tests.channels import test_whatsapp_meta_hear as meta
from tests.channels.slack_service import (
    APP_TOKEN,
    BOT,
    ROOM,
    SIGNING_SECRET,
    TEAM,
    TOKEN,
    Mode,
    SlackService,
    callback,
    limited,
    message_event,
    signed,
    slack_service,
)
from tests.channels.still_clock import StillClock

from turnlane.channels import whatsapp
from turnlane.channels.base import Aside, FileAt, Heard, Hook, Receive
from turnlane.channels.markup import fitting, plain, split
from turnlane.channels.slack import slack
from turnlane.channels.slack.channel import Slack
from turnlane.channels.slack.options import Options
from turnlane.channels.wati import Wati
from turnlane.channels.web import Web
from turnlane.channels.webhook import Webhook
from turnlane.channels.whapi import Whapi
from turnlane.channels.whatsapp_meta import WhatsAppMeta
from turnlane.errors import BackendUnavailable, InvalidBody, Unauthorized
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.message import Message
from turnlane.outgoing import Answer, Lost, NotReached, Outgoing, Posted
from turnlane.testing.channels import (
    ChannelContract,
    HookChannelContract,
    Hooks,
    ListeningChannelContract,
    SendingChannelContract,
    Speaker,
)
from turnlane.testing.loopback import RETRY_AFTER_SECONDS, HttpPlatform, Trouble, http_platform

CLOCK = StillClock()
JSON = {"content-type": "application/json"}
SECRET = "open-sesame-of-the-site"


@pytest.fixture
async def platform() -> AsyncIterator[HttpPlatform]:
    async with http_platform() as platform:
        yield platform


def as_json(**said: Any) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode()


class TestWebhook(ChannelContract, SendingChannelContract, HookChannelContract):
    secrets = (SECRET,)
    conversation = "site/alice"

    @pytest.fixture
    async def channel(self, platform: HttpPlatform) -> AsyncIterator[Webhook]:
        site = Webhook("site", secret=SECRET, reply_url=platform.url, timeout=0.3, clock=CLOCK)
        yield site
        await site.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        return Hooks(said=self.said, proven=self.signed)

    def said(self, number: int, text: str) -> bytes:
        return as_json(id=f"m-{number}", conversation="alice", text=text)

    def signed(self, body: bytes) -> Hook:
        signer = Signer(SECRET.encode())
        signature = signer.sign(
            "w-1", datetime.fromtimestamp(CLOCK.now() // 1000, UTC), body.decode("utf-8", "replace")
        )
        seconds = str(CLOCK.now() // 1000)
        return Hook(body, JSON | {"webhook-id": "w-1", "webhook-timestamp": seconds, "webhook-signature": signature})


class TestWebhookWithAWord(ChannelContract, HookChannelContract):
    secrets = (SECRET,)

    @pytest.fixture
    def channel(self) -> Webhook:
        return Webhook("site", secret=SECRET)

    @pytest.fixture
    def hooks(self) -> Hooks:
        return Hooks(
            said=lambda number, text: as_json(id=f"m-{number}", conversation="alice", text=text),
            proven=lambda body: Hook(body, JSON | {"authorization": f"Bearer {SECRET}"}),
            proves_the_body=False,
        )


class TestWeb(ChannelContract, HookChannelContract):
    @pytest.fixture
    def channel(self) -> Web:
        return Web()

    @pytest.fixture
    def hooks(self) -> Hooks:
        return Hooks(
            said=lambda number, text: as_json(id=str(number), conversation="Kf3_x9-QmZ71aLpw", text=text),
            proven=lambda body: Hook(body, JSON),
            asks_for_proof=False,
        )


class TestWebOfSignedVisitors(ChannelContract, HookChannelContract):
    secrets = (SECRET,)

    @pytest.fixture
    def channel(self) -> Web:
        return Web(public=True, visitor_secret=SECRET, signed_only=True, clock=CLOCK)

    @pytest.fixture
    def hooks(self) -> Hooks:
        visitor = f"alice|{hmac.new(SECRET.encode(), b'alice', 'sha256').hexdigest()}"
        return Hooks(
            said=lambda number, text: as_json(id=str(number), conversation="me", text=text),
            proven=lambda body: Hook(body, JSON | {"turnlane-visitor": visitor}),
            proves_the_body=False,
        )


# WhatsApp, three ways


class WhatsAppContract(ChannelContract, SendingChannelContract, HookChannelContract):
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(whatsapp, "SEND_SECONDS_MAX", 1.0)


class TestWhatsAppMeta(WhatsAppContract):
    secrets = (meta.APP_SECRET, meta.VERIFY, meta.TOKEN)
    conversation = f"wa/{meta.PHONE}/{meta.NUMBER}"

    @pytest.fixture
    async def channel(self, platform: HttpPlatform) -> AsyncIterator[WhatsAppMeta]:
        channel = meta.channel(base_url=platform.url)
        yield channel
        await channel.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        echo = meta.message("text", {"body": "ours"}, to=meta.NUMBER)
        return Hooks(
            said=lambda number, text: as_json(
                **meta.posted(meta.news(meta.message("text", {"body": text}, id=f"wamid.{number}")))
            ),
            proven=lambda body: Hook(body, meta.signed(body)),
            unknown=[as_json(**meta.posted({}, field="invented")), as_json(**meta.posted(meta.news({"id": "1"})))],
            ours=[as_json(**meta.posted(meta.news(echo, name="message_echoes"), field="smb_message_echoes"))],
        )


class TestWhapi(WhatsAppContract):
    secrets = (whapi.SECRET, whapi.TOKEN)
    conversation = "wh/14155552671%40s.whatsapp.net"
    names_the_delivery = False

    @pytest.fixture
    async def channel(self, platform: HttpPlatform) -> AsyncIterator[Whapi]:
        channel = whapi.channel(base_url=platform.url, clock=CLOCK)
        yield channel
        await channel.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        return Hooks(
            said=lambda number, text: as_json(**whapi.posted(whapi.message("text", {"body": text}, id=f"p.{number}"))),
            proven=lambda body: Hook(body, whapi.BEARER),
            unknown=[as_json(novelties=[1]), as_json(**whapi.posted(whapi.message("invented", {"a": 1})))],
            ours=[
                as_json(**whapi.posted(whapi.message("text", {"body": "ours"}, from_me=True, source=source)))
                for source in ("api", "mobile")
            ],
            proves_the_body=False,
        )


class TestWati(WhatsAppContract):
    secrets = (wati.PASSKEY, wati.TOKEN)
    conversation = "wati/911234567890"

    @pytest.fixture
    async def channel(self, platform: HttpPlatform) -> AsyncIterator[Wati]:
        channel = wati.channel(base_url=platform.url)
        yield channel
        await channel.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        ours = wati.SAID | {"owner": True}
        return Hooks(
            said=lambda number, text: as_json(**wati.SAID | {"whatsappMessageId": f"wamid.{number}", "text": text}),
            proven=lambda body: Hook(body, {}, {"passkey": wati.PASSKEY}),
            unknown=[as_json(eventType="invented"), as_json(**wati.SAID | {"type": "invented", "text": None})],
            ours=[as_json(**ours), as_json(**ours | {"localMessageId": wati.OURS})],
            proves_the_body=False,
        )


# Slack


@dataclass
class SlackPlatform:
    service: SlackService
    stack: AsyncExitStack

    @property
    def sendings(self) -> list[str]:
        said = (*self.service.of("chat.postMessage"), *self.service.of("chat.update"))
        return [json.dumps(call.args) for call in sorted(said, key=lambda call: call.at)]

    async def meet(self, trouble: Trouble | None) -> None:
        if trouble == "is away":
            await self.stack.aclose()
        else:
            self.service.always["chat.postMessage"] = SLACK_TROUBLES[trouble]


SLACK_TROUBLES: Mapping[Trouble | None, Mode] = {
    None: Mode(),
    "refuses": Mode("msg_too_long"),
    "throttles": limited(RETRY_AFTER_SECONDS),
    "breaks": Mode("internal_error", 500),
    "cuts": Mode(done=True, cut=True),
    "hangs": Mode(done=True, hang=True),
}


class TestSlack(ChannelContract, SendingChannelContract, HookChannelContract):
    secrets = (TOKEN, APP_TOKEN, SIGNING_SECRET)
    conversation = f"slack/{TEAM}.{ROOM}/1699999999.000200"

    @pytest.fixture
    async def platform(self) -> AsyncIterator[SlackPlatform]:
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(slack_service())
            service.messages[ROOM].append({"type": "message", "text": "hi", "ts": "1699999999.000200"})
            yield SlackPlatform(service, stack)

    @pytest.fixture
    async def channel(self, platform: SlackPlatform) -> AsyncIterator[Slack]:
        options = Options(
            tokens={"": TOKEN},
            app_token=APP_TOKEN,
            signing_secret=SIGNING_SECRET,
            base_url=platform.service.url,
            timeout=0.5,
        )
        channel = slack("slack", options, clock=CLOCK)
        yield channel
        await channel.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        return Hooks(
            said=self.said,
            proven=lambda body: Hook(body, signed(body, at=CLOCK.now() // 1000)),
            unknown=[as_json(type="invented")],
            ours=[as_json(**callback(message_event("ours", user=BOT, bot_id="B0001")))],
        )

    def said(self, number: int, text: str) -> bytes:
        written = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        place = {"channel": "D0001", "channel_type": "im", "ts": f"1700000000.{number:06d}"}
        return as_json(**callback(message_event(written, **place)))


class TestSlackOverASocket(ListeningChannelContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[SlackService]:
        async with slack_service() as service:
            yield service

    @pytest.fixture
    async def channel(self, service: SlackService) -> AsyncIterator[Slack]:
        channel = slack("slack", Options(tokens={"": TOKEN}, app_token=APP_TOKEN, base_url=service.url))
        yield channel
        await channel.close()

    @pytest.fixture
    def speaker(self, service: SlackService) -> Speaker:
        async def say(number: int, text: str) -> str:
            place = {"channel": "D0001", "channel_type": "im", "ts": f"1700000000.{number:06d}"}
            return await service.push(callback(message_event(text, **place)))

        return Speaker(say, service.acknowledged, service.acks.__contains__)


# The contract sees a channel that breaks it


class Bad:
    """Does one thing wrong, by its name; without one it does all things right."""

    name = "bad"
    secured = True

    def __init__(self, wrong: str, url: str = "") -> None:
        self.wrong = wrong
        self._url = url
        self._outgoing = Outgoing()
        self._count = 0

    def __repr__(self) -> str:
        return f"Bad({SECRET if self.wrong == 'shows itself' else ''})"

    async def send(self, delivery: Delivery) -> SendResult:
        named = f"{delivery.id} {delivery.text} {' '.join(delivery.options)}"
        body = delivery.text if self.wrong == "forgets" else named
        if self.wrong == "insists":
            await self._post(body)
        match await self._post(body):
            case Answer(ok=True):
                return Sent()
            case Answer(status=400):
                return Refused("no" + (SECRET if self.wrong == "chatters" else ""))
            case Answer() as answer:
                waits = None if self.wrong == "hurries" else answer.retry_after(CLOCK.now())
                return NotSent(str(answer), waits)
            case NotReached(cause):
                return NotSent(cause)
            case Lost(cause) if self.wrong == "raises":
                raise ConnectionError(cause)
            case Lost(cause):
                return NotSent(cause) if self.wrong == "guesses" else Unknown(cause)

    async def _post(self, body: str) -> Posted:
        return await self._outgoing.post(self._url, body=body.encode(), headers={}, timeout=0.3)

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        if self.wrong == "finds all":
            return Sent()
        return NotSent("never came") if self.wrong == "finds nothing" else None

    async def hear(self, hook: Hook) -> Heard:
        if hook.headers.get("x-proof") != proof(hook.body) and self.wrong != "trusts":
            raise Unauthorized(f"sign it with {SECRET if self.wrong == 'helps' else 'the secret'}")
        try:
            said = json.loads(hook.body)
            if self.wrong != "breaks" and not isinstance(said.get("text"), str):
                return Heard(asides=[Aside("no message", hook.body.decode())])
            return Heard([self._message(said)])
        except (ValueError, RecursionError, AttributeError):
            raise InvalidBody("that is no JSON object") from None

    def _message(self, said: Any) -> Message:
        self._count += 1
        number = self._count if self.wrong == "counts" else said["id"]
        where = "bad/a b" if self.wrong == "writes plainly" else "bad/a%20b"
        text = said["text"].lower() if self.wrong == "mumbles" else said["text"]
        return Message(self.name, f"m-{number}", where, "alice", text)

    def parts(self, text: str) -> Sequence[str]:
        if self.wrong == "drops":
            return [text[:4_000]]
        return [text] if self.wrong == "fills" else split(text, fitting(4_000, plain)) or [""]

    async def file(self, url: str) -> FileAt | None:
        return FileAt(url, {"authorization": SECRET}) if self.wrong == "gives away" else None

    async def close(self) -> None:
        self._count += 1
        if self.wrong == "closes once" and self._count > 1:
            raise RuntimeError("closed already")
        await self._outgoing.close()


def proof(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, "sha256").hexdigest()


BAD_HOOKS = Hooks(
    said=lambda number, text: as_json(id=number, text=text),
    proven=lambda body: Hook(body, JSON | {"x-proof": proof(body)}),
    unknown=[b'{"news": true}'],
)


class Right(ChannelContract, SendingChannelContract, HookChannelContract):
    secrets = (SECRET,)
    conversation = "bad/alice"

    @pytest.fixture
    async def channel(self, platform: HttpPlatform) -> AsyncIterator[Bad]:
        bad = Bad("nothing", platform.url)
        yield bad
        await bad.close()

    @pytest.fixture
    def hooks(self) -> Hooks:
        return BAD_HOOKS


class TestRight(Right): ...


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        ("shows itself", Right().test_nobody_who_looks_at_it_sees_a_secret),
        ("closes once", Right().test_it_may_be_closed_twice_and_before_it_did_anything),
        ("drops", lambda bad: Right().test_the_parts_of_an_answer_are_all_of_it(bad, "word " * 8_000)),
        ("drops", Right().test_code_is_whole_in_every_part),
        ("gives away", lambda bad: Right().test_only_the_platform_is_shown_our_secrets_for_a_file(bad, "https://x.y")),
        ("trusts", lambda bad: Right().test_without_a_proof_nothing_is_heard(bad, BAD_HOOKS)),
        ("trusts", lambda bad: Right().test_a_proof_is_good_for_one_body_only(bad, BAD_HOOKS)),
        ("helps", lambda bad: Right().test_without_a_proof_nothing_is_heard(bad, BAD_HOOKS)),
        ("counts", lambda bad: Right().test_a_message_that_is_told_again_is_the_same_message(bad, BAD_HOOKS)),
        ("writes plainly", lambda bad: Right().test_the_name_of_a_conversation_splits_back(bad, BAD_HOOKS)),
        ("mumbles", lambda bad: Right().test_what_people_say_is_text_and_nothing_else(bad, BAD_HOOKS, "DROP it")),
        ("breaks", lambda bad: Right().test_whatever_is_posted_is_heard_or_refused(bad, BAD_HOOKS, b"{}")),
        ("breaks", lambda bad: Right().test_what_nobody_can_read_is_kept_aside(bad, BAD_HOOKS)),
        (
            "nothing",
            lambda bad: Right().test_what_we_said_ourselves_is_no_message_of_a_person(
                bad, replace(BAD_HOOKS, ours=[as_json(id=1, text="ours")])
            ),
        ),
    ],
)
async def test_the_contract_sees_a_channel_that(wrong: str, test: Callable[[Any], Awaitable[None] | None]) -> None:
    with pytest.raises((AssertionError, RuntimeError, KeyError, InvalidBody, pytest.fail.Exception)):
        await seen_by(test, Bad(wrong))


async def seen_by(test: Callable[[Any], Awaitable[None] | None], bad: Bad) -> None:
    if (done := test(bad)) is not None:
        await done


Meets = Callable[[Any, HttpPlatform], Awaitable[None]]


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (
            "forgets",
            lambda bad, met: Right().test_after_trouble_the_same_delivery_is_sent_under_the_same_id(bad, met, "cuts"),
        ),
        ("forgets", Right().test_deliveries_at_the_same_time_do_not_mix),
        ("insists", Right().test_what_is_taken_is_sent),
        ("insists", lambda bad, met: Right().test_it_sends_once_and_leaves_the_rest_to_the_outbox(bad, met, "cuts")),
        ("hurries", Right().test_how_long_to_wait_is_what_the_platform_said),
        ("finds all", Right().test_what_never_came_is_never_said_to_be_there),
        ("finds nothing", Right().test_what_was_taken_is_never_said_to_be_missing),
        ("finds nothing", Right().test_while_nobody_can_be_asked_nothing_is_known),
    ],
)
async def test_the_contract_sees_a_sender_that(wrong: str, test: Meets, platform: HttpPlatform) -> None:
    bad = Bad(wrong, platform.url)
    with pytest.raises((AssertionError, ValueError)):
        await test(bad, platform)
    await bad.close()


@pytest.mark.parametrize(("wrong", "trouble"), [("guesses", "cuts"), ("raises", "cuts"), ("chatters", "refuses")])
async def test_the_contract_sees_a_sender_that_tells_trouble_wrongly(
    wrong: str, trouble: Trouble, platform: HttpPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Bad(wrong, platform.url)
    with pytest.raises((AssertionError, ConnectionError)):
        await Right().test_trouble_is_a_value_that_says_what_is_known(bad, platform, trouble, caplog)
    await bad.close()


class Hasty:
    """Acknowledges first, and stores then."""

    name = "hasty"

    def __init__(self) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.acks: list[str] = []

    async def listen(self, receive: Receive) -> None:
        while True:
            telling = await self.said.get()
            self.acks.append(telling)
            with suppress(BackendUnavailable):
                await receive(Heard([Message(self.name, telling, "hasty/alice", "alice", "hello")]))

    async def send(self, delivery: Delivery) -> SendResult:
        return Sent()

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "test",
    [
        ListeningChannelContract().test_nothing_is_acknowledged_before_it_is_stored,
        ListeningChannelContract().test_what_could_not_be_stored_is_left_to_be_told_again,
    ],
)
async def test_the_contract_sees_a_listener_that_acknowledges_first(
    test: Callable[[Hasty, Speaker], Awaitable[None]],
) -> None:
    hasty = Hasty()

    async def say(number: int, text: str) -> str:
        hasty.said.put_nowait(f"m-{number}")
        return f"m-{number}"

    async def acknowledged(telling: str) -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError):
        await test(hasty, Speaker(say, acknowledged, hasty.acks.__contains__))
