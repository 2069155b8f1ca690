"""The contract of a channel as tests, for every channel to pass.

Subclass in a test module and provide the fixtures; the tests run under pytest with pytest-asyncio in auto mode:

    class TestMyChannel(ChannelContract, SendingChannelContract, HookChannelContract):
        secrets = ["s3cret"]
        conversation = "mine/alice"

    channel    a Channel. If it sends over a network: in front of `platform`, and waiting for an answer a second at most
    platform   (Sending) a Platform: the other side. `http_platform()` of turnlane.testing.loopback is one
    hooks      (Hook) a Hooks: what the other side posts to us
    speaker    (Listening) a Speaker: the other side, if the channel listens to it

What a channel can besides (splitting, looking up, showing, indicating, files, a handshake) is seen, and held to what it
promises.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import pytest

from turnlane.channels.base import (
    Channel,
    FileChannel,
    HandshakingChannel,
    Heard,
    Hook,
    HookChannel,
    IndicatingChannel,
    ListeningChannel,
    LookingChannel,
    Received,
    SplittingChannel,
    StreamingChannel,
)
from turnlane.errors import BackendUnavailable, InvalidBody, InvalidMessage, Unauthorized, UnsupportedMediaType
from turnlane.model.delivery import Delivery, DeliveryKind, NotSent, Refused, SendResult, Sent, Unknown, delivery_id
from turnlane.model.message import (
    CONVERSATION_BYTES_MAX,
    ORIGIN_ID_BYTES_MAX,
    SENDER_BYTES_MAX,
    Message,
    channel_of,
    key_written,
    local_part,
)
from turnlane.testing.agents import SAID
from turnlane.testing.loopback import RETRY_AFTER_SECONDS, Trouble

PATIENCE_SECONDS = 30.0
NOT_HEARD = (Unauthorized, UnsupportedMediaType, InvalidBody, InvalidMessage)
"""How a request may be refused."""

OUTCOMES: Mapping[Trouble, tuple[type[SendResult], ...]] = {
    "refuses": (Refused,),
    "throttles": (NotSent,),
    "breaks": (NotSent, Unknown),
    "cuts": (Unknown,),
    "hangs": (Unknown,),
    "is away": (NotSent,),
}
"""What is known of a message that met trouble. One that may have arrived is never NotSent: it would be sent twice."""

ANSWERS = [
    "hello",
    "word " * 8_000,
    "x" * 30_000,
    "A sentence, and another one. " * 200 + "\n\n" + "- item **bold** `code`\n" * 1_000,
    "🫖" * 20_000,
    "字" * 20_000,
    "e\u0301" * 15_000,
    "<!channel> & <b>" * 2_000,
]
"""What agents say, at length and without fences."""

BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"{}",
    b"5",
    b'"text"',
    b"\xff\xfe\x00",
    b"a=1&payload=%7B",
    b"[" * 100_000,
    b'{"id": 1, "messages": {"id": []}, "entry": [null], "event": [], "text": {}}',
    b'{"messages": [null, 5, [], {"id": null}], "statuses": [{}], "type": {"a": 1}}',
]
"""What may be posted by anybody and means nothing."""


class Platform(Protocol):
    """The other side of a channel, played on loopback."""

    @property
    def sendings(self) -> Sequence[str]:
        """Every message that reached it, whole, as text to look for something in."""

    async def meet(self, trouble: Trouble | None) -> object:
        """What becomes of messages from now on. None: they are taken."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a platform posts."""

    said: Callable[[int, str], bytes]
    """The body of a request in which a person says this text, in a message with this number."""
    proven: Callable[[bytes], Hook]
    """The request with this body and what proves where it comes from."""
    unknown: Sequence[bytes] = ()
    """Bodies of a shape that nobody knows yet, but that the platform may well send."""
    ours: Sequence[bytes] = ()
    """Bodies in which it repeats what we said ourselves, if it does."""
    asks_for_proof: bool = True
    """False: anybody may post."""
    proves_the_body: bool = True
    """False: the proof is a word that fits any body."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A platform that is listened to."""

    say: Callable[[int, str], Awaitable[str]]
    """A person says this text, in a message with this number. Returns what this telling of it is called."""
    acknowledged: Callable[[str], Awaitable[object]]
    """Returns once this telling was acknowledged."""
    is_acknowledged: Callable[[str], bool]


def a_delivery(conversation: str, text: str = "hello", *, number: int = 1, kind: DeliveryKind = "reply") -> Delivery:
    options = ("tea", "coffee") if kind == "question" else ()
    return Delivery(
        delivery_id(conversation, number, 1), conversation, text, kind, number, seq=number, queued_at=1, options=options
    )


async def sent(channel: Channel, delivery: Delivery) -> SendResult:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await channel.send(delivery)


async def heard(channel: HookChannel, hook: Hook) -> Heard:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await channel.hear(hook)


class ChannelContract:
    """What every channel promises."""

    secrets: ClassVar[Sequence[str]] = ()
    """What must never be shown: tokens, passwords, signing secrets."""

    def test_its_name_begins_the_name_of_every_conversation(self, channel: Channel) -> None:
        assert channel.name
        assert "/" not in channel.name

    async def test_it_may_be_closed_twice_and_before_it_did_anything(self, channel: Channel) -> None:
        await channel.close()
        await channel.close()

    def test_nobody_who_looks_at_it_sees_a_secret(self, channel: Channel) -> None:
        assert not _shown(self.secrets, f"{channel!r} {channel!s}")

    @pytest.mark.parametrize("text", ANSWERS, ids=lambda text: ascii(text[:12]))
    def test_the_parts_of_an_answer_are_all_of_it(self, channel: Channel, text: str) -> None:
        if isinstance(channel, SplittingChannel):
            assert _solid("".join(channel.parts(text))) == _solid(text)

    def test_code_is_whole_in_every_part(self, channel: Channel) -> None:
        if isinstance(channel, SplittingChannel):
            lines = [f"    line_{number} = {number}" for number in range(3_000)]
            parts = channel.parts("Look:\n\n```python\n" + "\n".join(lines) + "\n```\n\nDone.")
            assert [line for part in parts for line in part.split("\n") if line.startswith("    line_")] == lines
            assert all(part.count("```") % 2 == 0 for part in parts)

    @pytest.mark.parametrize("text", ANSWERS, ids=lambda text: ascii(text[:12]))
    def test_a_part_fits_as_it_is(self, channel: Channel, text: str) -> None:
        if isinstance(channel, SplittingChannel):
            assert all(list(channel.parts(part)) == [part] for part in channel.parts(text))

    @pytest.mark.parametrize("text", ["", " \n ", "```", "\ud800", "**", "[]()"], ids=ascii)
    def test_there_is_always_a_part(self, channel: Channel, text: str) -> None:
        if isinstance(channel, SplittingChannel):
            assert channel.parts(text)

    async def test_an_indication_lasts(self, channel: Channel) -> None:
        if isinstance(channel, IndicatingChannel):
            assert channel.indicated_seconds > 0

    @pytest.mark.parametrize(
        "url", ["https://files.elsewhere.example/a.png", "http://127.0.0.1:1/a", "file:///etc/passwd", "data:,a", ""]
    )
    async def test_only_the_platform_is_shown_our_secrets_for_a_file(self, channel: Channel, url: str) -> None:
        if isinstance(channel, FileChannel):
            found = await channel.file(url)
            assert found is None or not _shown(self.secrets, f"{found.url} {dict(found.headers)}")


class SendingChannelContract:
    """What a channel promises that sends over a network."""

    secrets: ClassVar[Sequence[str]] = ()
    conversation: ClassVar[str]
    """One that the platform knows."""
    names_the_delivery: ClassVar[bool] = True
    """False: the platform has no place for our id of a message."""

    async def test_what_is_taken_is_sent(self, channel: Channel, platform: Platform) -> None:
        assert isinstance(await sent(channel, a_delivery(self.conversation, "a-word-to-find")), Sent)
        (sending,) = platform.sendings
        assert "a-word-to-find" in sending

    @pytest.mark.parametrize("kind", ["reply", "notice", "question", "operator"])
    async def test_every_kind_of_delivery_is_carried(
        self, channel: Channel, platform: Platform, kind: DeliveryKind
    ) -> None:
        assert isinstance(await sent(channel, a_delivery(self.conversation, kind=kind)), Sent)
        if kind == "question":
            assert all(option in platform.sendings[0] for option in ("tea", "coffee"))

    @pytest.mark.parametrize("trouble", OUTCOMES)
    async def test_trouble_is_a_value_that_says_what_is_known(
        self, channel: Channel, platform: Platform, trouble: Trouble, caplog: pytest.LogCaptureFixture
    ) -> None:
        await platform.meet(trouble)
        result = await sent(channel, a_delivery(self.conversation))
        assert isinstance(result, OUTCOMES[trouble])
        assert not isinstance(result, Sent)
        assert result.cause
        assert not _shown(self.secrets, f"{result!r} {caplog.text}")

    @pytest.mark.parametrize("trouble", OUTCOMES)
    async def test_it_sends_once_and_leaves_the_rest_to_the_outbox(
        self, channel: Channel, platform: Platform, trouble: Trouble
    ) -> None:
        await platform.meet(trouble)
        await sent(channel, a_delivery(self.conversation))
        assert len(platform.sendings) <= 1

    async def test_how_long_to_wait_is_what_the_platform_said(self, channel: Channel, platform: Platform) -> None:
        await platform.meet("throttles")
        result = await sent(channel, a_delivery(self.conversation))
        assert isinstance(result, NotSent)
        assert result.retry_after == RETRY_AFTER_SECONDS

    @pytest.mark.parametrize("trouble", ["throttles", "breaks", "cuts", "hangs"])
    async def test_after_trouble_the_same_delivery_is_sent_under_the_same_id(
        self, channel: Channel, platform: Platform, trouble: Trouble
    ) -> None:
        delivery = a_delivery(self.conversation)
        await platform.meet(trouble)
        await sent(channel, delivery)
        await platform.meet(None)
        assert isinstance(await sent(channel, replace(delivery, resent=trouble in {"cuts", "hangs"})), Sent)
        assert not self.names_the_delivery or all(delivery.id in sending for sending in platform.sendings)

    async def test_deliveries_at_the_same_time_do_not_mix(self, channel: Channel, platform: Platform) -> None:
        deliveries = [a_delivery(self.conversation, f"number-{number}-", number=number) for number in range(1, 6)]
        results = await asyncio.gather(*(sent(channel, delivery) for delivery in deliveries))
        assert all(isinstance(result, Sent) for result in results)
        for delivery in deliveries:
            (sending,) = [each for each in platform.sendings if delivery.text in each]
            assert not self.names_the_delivery or delivery.id in sending

    async def test_what_was_taken_is_never_said_to_be_missing(self, channel: Channel, platform: Platform) -> None:
        if isinstance(channel, LookingChannel):
            delivery = a_delivery(self.conversation)
            await sent(channel, delivery)
            assert not isinstance(await channel.look_up(delivery), NotSent)

    async def test_what_never_came_is_never_said_to_be_there(self, channel: Channel, platform: Platform) -> None:
        if isinstance(channel, LookingChannel):
            await sent(channel, a_delivery(self.conversation))
            assert not isinstance(await channel.look_up(a_delivery(self.conversation, number=2)), Sent)

    async def test_while_nobody_can_be_asked_nothing_is_known(self, channel: Channel, platform: Platform) -> None:
        if isinstance(channel, LookingChannel):
            await platform.meet("is away")
            with suppress(OSError):
                assert await channel.look_up(a_delivery(self.conversation)) is None

    async def test_what_is_shown_before_is_no_part_of_the_answer(self, channel: Channel, platform: Platform) -> None:
        if isinstance(channel, StreamingChannel):
            for text in (None, "a", "a b", None, None):
                await channel.show(self.conversation, 1, text)
            assert isinstance(await sent(channel, a_delivery(self.conversation, "a-word-to-find")), Sent)
            assert "a-word-to-find" in platform.sendings[-1]

    async def test_it_may_be_used_again_after_it_was_closed_or_says_that_it_cannot(
        self, channel: Channel, platform: Platform
    ) -> None:
        """A worker that stops closes its channels while a sending may still be under way."""
        await channel.close()
        assert isinstance(await sent(channel, a_delivery(self.conversation)), SendResult)


class HookChannelContract:
    """What a channel promises that is posted to."""

    secrets: ClassVar[Sequence[str]] = ()

    def reads(self, message: Message, text: str) -> bool:
        """Whether this is what the person said. Override it if the platform changes what people write."""
        return message.text.split() == text.split()

    async def _heard_one(self, channel: HookChannel, hooks: Hooks, number: int = 1, text: str = "hello") -> Message:
        told = await heard(channel, hooks.proven(hooks.said(number, text)))
        (message,) = [*told.messages, *told.overheard]
        return message

    async def test_what_a_person_says_is_a_message(self, channel: HookChannel, hooks: Hooks) -> None:
        message = await self._heard_one(channel, hooks)
        assert self.reads(message, "hello")
        assert (message.channel, message.role) == (channel.name, "person")
        _assert_storable(message)

    @pytest.mark.parametrize("text", SAID, ids=lambda text: ascii(text[:12]))
    async def test_what_people_say_is_text_and_nothing_else(
        self, channel: HookChannel, hooks: Hooks, text: str
    ) -> None:
        assert self.reads(await self._heard_one(channel, hooks, text=text), text)

    async def test_the_name_of_a_conversation_splits_back(self, channel: HookChannel, hooks: Hooks) -> None:
        key = (await self._heard_one(channel, hooks)).conversation
        assert channel_of(key) == channel.name
        assert local_part(key)
        assert key_written(key) == key

    async def test_a_message_that_is_told_again_is_the_same_message(self, channel: HookChannel, hooks: Hooks) -> None:
        hook = hooks.proven(hooks.said(1, "hello"))
        assert await heard(channel, hook) == await heard(channel, hook)

    async def test_two_messages_with_the_same_words_are_two(self, channel: HookChannel, hooks: Hooks) -> None:
        first, second = await self._heard_one(channel, hooks), await self._heard_one(channel, hooks, number=2)
        assert first.id != second.id
        assert first.conversation == second.conversation

    async def test_what_we_said_ourselves_is_no_message_of_a_person(self, channel: HookChannel, hooks: Hooks) -> None:
        for body in hooks.ours:
            told = await heard(channel, hooks.proven(body))
            assert not [message for message in (*told.messages, *told.overheard) if message.role == "person"]

    async def test_without_a_proof_nothing_is_heard(self, channel: HookChannel, hooks: Hooks) -> None:
        if hooks.asks_for_proof:
            hook = hooks.proven(hooks.said(1, "hello"))
            kept = {name: value for name, value in hook.headers.items() if name == "content-type"}
            await self._assert_unauthorized(channel, Hook(hook.body, kept))
            assert channel.secured

    async def test_a_proof_is_good_for_one_body_only(self, channel: HookChannel, hooks: Hooks) -> None:
        if hooks.asks_for_proof and hooks.proves_the_body:
            hook = hooks.proven(hooks.said(1, "hello"))
            for body in (hook.body[:-1], hook.body + b" ", hooks.said(1, "other")):
                await self._assert_unauthorized(channel, replace(hook, body=body))

    async def _assert_unauthorized(self, channel: HookChannel, hook: Hook) -> None:
        with pytest.raises(Unauthorized) as refused:
            await heard(channel, hook)
        assert str(refused.value)
        assert not _shown(self.secrets, str(refused.value))

    async def test_half_a_request_is_no_message(self, channel: HookChannel, hooks: Hooks) -> None:
        whole = hooks.said(1, "hello")
        for end in range(0, len(whole), max(len(whole) // 20, 1)):
            with suppress(*NOT_HEARD):
                assert not (await heard(channel, hooks.proven(whole[:end]))).messages

    @pytest.mark.parametrize("body", BODIES, ids=lambda body: ascii(body[:12]))
    async def test_whatever_is_posted_is_heard_or_refused(
        self, channel: HookChannel, hooks: Hooks, body: bytes
    ) -> None:
        try:
            told = await heard(channel, hooks.proven(body))
        except NOT_HEARD as refused:
            assert str(refused)
            assert not _shown(self.secrets, str(refused))
        else:
            for message in (*told.messages, *told.overheard):
                _assert_storable(message)

    async def test_what_nobody_can_read_is_kept_aside(self, channel: HookChannel, hooks: Hooks) -> None:
        for body in hooks.unknown:
            told = await heard(channel, hooks.proven(body))
            assert told.asides
            assert all(aside.why and not _shown(self.secrets, f"{aside.why} {aside.body}") for aside in told.asides)

    def test_a_handshake_needs_a_proof(self, channel: HookChannel) -> None:
        if isinstance(channel, HandshakingChannel):
            for query in ({}, {"hub.mode": "subscribe", "hub.verify_token": "guessed", "hub.challenge": "1"}):
                with pytest.raises(Unauthorized):
                    channel.handshake(query)


class ListeningChannelContract:
    """What a channel promises that listens, to a platform that tells everything again until it is acknowledged."""

    async def test_what_is_said_is_handed_in_and_acknowledged(
        self, channel: ListeningChannel, speaker: Speaker
    ) -> None:
        store = _Store()
        async with _listening(channel, store):
            await speaker.acknowledged(await speaker.say(1, "hello"))
        assert [message.text for message in store.messages] == ["hello"]

    async def test_nothing_is_acknowledged_before_it_is_stored(
        self, channel: ListeningChannel, speaker: Speaker
    ) -> None:
        store = _Store()
        store.may_store.clear()
        async with _listening(channel, store):
            telling = await speaker.say(1, "hello")
            await store.asked.wait()
            assert not speaker.is_acknowledged(telling)
            store.may_store.set()
            await speaker.acknowledged(telling)

    async def test_what_could_not_be_stored_is_left_to_be_told_again(
        self, channel: ListeningChannel, speaker: Speaker
    ) -> None:
        store = _Store(failures=1)
        async with _listening(channel, store):
            lost = await speaker.say(1, "hello")
            await store.asked.wait()
            await speaker.acknowledged(await speaker.say(1, "hello"))
            assert not speaker.is_acknowledged(lost)
        assert len({message.id for message in store.messages}) == 1

    async def test_it_may_listen_again_after_it_was_cancelled(
        self, channel: ListeningChannel, speaker: Speaker
    ) -> None:
        store = _Store()
        for number in (1, 2):
            async with _listening(channel, store):
                await speaker.acknowledged(await speaker.say(number, "hello"))
        assert len({message.id for message in store.messages}) == 2


class _Store:
    """Takes what is heard, once it may."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[Message] = []
        self.asked = asyncio.Event()
        self.may_store = asyncio.Event()
        self.may_store.set()
        self._failures = failures

    async def receive(self, told: Heard) -> Received:
        self.asked.set()
        await self.may_store.wait()
        if self._failures:
            self._failures -= 1
            raise BackendUnavailable("the store cannot be reached")
        self.messages += [*told.messages, *told.overheard]
        return Received(accepted=len(told.messages))


@asynccontextmanager
async def _listening(channel: ListeningChannel, store: _Store) -> AsyncIterator[None]:
    """Ends in time, and so does the listening."""
    task = asyncio.create_task(channel.listen(store.receive))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    finally:
        task.cancel()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.wait([task])


def _assert_storable(message: Message) -> None:
    assert 0 < len(message.conversation.encode()) <= CONVERSATION_BYTES_MAX
    assert 0 < len(message.origin_id.encode()) <= ORIGIN_ID_BYTES_MAX
    assert 0 < len(message.sender.encode()) <= SENDER_BYTES_MAX
    assert "\0" not in message.text + message.origin_id + message.sender


def _shown(secrets: Sequence[str], text: str) -> list[str]:
    return [secret for secret in secrets if secret in text]


def _solid(text: str) -> str:
    return re.sub(r"\s", "", text)
