"""Whatever is thrown at the parsers of WhatsApp: no error but the documented ones, nothing that cannot be stored."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.channels import test_wati_hear as wati
from tests.channels import test_whapi_hear as whapi
from tests.channels import test_whatsapp_meta_hear as meta

from turnlane.channels.base import Heard, Hook, HookChannel
from turnlane.errors import InvalidBody, Unauthorized
from turnlane.model.message import Message

SAMPLES: dict[str, list[Any]] = {
    "meta": [
        meta.posted(meta.news(meta.message("text", {"body": "hi"}, context={"forwarded": True}, referral=meta.AD))),
        meta.posted(meta.news(meta.message("image", meta.FILE | {"caption": "c"}), meta.message("audio", meta.VOICE))),
        meta.posted(meta.news(meta.message("contacts", meta.FRIENDS), meta.message("location", meta.PLACE))),
        meta.posted(meta.news(meta.message("order", {"product_items": meta.ITEMS}))),
        meta.posted(meta.news(meta.message("interactive", meta.FLOW))),
        meta.posted(meta.news(meta.ECHO, name="message_echoes"), field="smb_message_echoes"),
        meta.posted(meta.news(meta.TOLD | {"status": "failed", "errors": [meta.WINDOW]}, name="statuses")),
    ],
    "whapi": [
        whapi.posted(whapi.message("text", {"body": "hi"}, context=whapi.QUOTED)),
        whapi.posted(whapi.message("image", whapi.LINKED), whapi.message("voice", whapi.FILE)),
        whapi.posted(whapi.message("contact_list", {"list": [whapi.CARD]})),
        whapi.posted(whapi.message("poll", {"title": "When?", "options": ["nine"]})),
        whapi.posted(whapi.message("action", {"type": "vote", "votes": ["nine"]})),
        whapi.posted(whapi.message("reply", {"buttons_reply": {"id": "1", "title": "t"}})),
        {"statuses": [{"id": "o", "status": "failed", "recipient_id": "1", "errors": [{"message": "m"}]}]},
        {"presences": [{"contact_id": "1", "status": "typing"}]},
    ],
    "wati": [
        wati.SAID,
        [wati.SAID, wati.SAID | {"type": "image", "data": wati.FILE_URL}],
        wati.SAID | {"type": "contacts", "messageContact": [{"name": {"formatted_name": "Bo"}}]},
        {"eventType": "sessionMessageFailed", "localMessageId": wati.OURS, "failedDetail": "late"},
        wati.BARE,
    ],
}
NASTY: st.SearchStrategy[Any] = st.sampled_from(
    ["", "\0", "a\0b", "x" * 600, "é" * 300, "☃/..%2f", "-1", "1" * 30, "nan", "http://[", "wamid.", 0, -1, 10**30,
     1e300, True, False, None, [], {}, [[]], {"": {}}]
)  # fmt: skip
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path, *(found for key in keys for found in places(value[key], (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, samples: list[Any]) -> Any:
    """A sample of which some values, anywhere in it, are something else, or gone."""
    root = {"it": deepcopy(draw(st.sampled_from(samples)))}
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(root)[1:]))
        inside: Any = root
        for key in path:
            inside = inside[key]
        if isinstance(inside, dict) and draw(st.booleans()):
            del inside[last]
        else:
            inside[last] = deepcopy(draw(NASTY | ANY_JSON))  # the next round may change something in it
        if not root:
            return None
    return root["it"]


def hooked(platform: str, said: Any) -> tuple[HookChannel, Hook]:
    body = json.dumps(said).encode()
    if platform == "meta":
        return meta.channel(), Hook(body, meta.signed(body))
    if platform == "whapi":
        return whapi.channel(), Hook(body, whapi.BEARER)
    return wati.channel(), Hook(body, {}, {"passkey": wati.PASSKEY})


def at_once(hearing: Coroutine[Any, Any, Heard]) -> Heard:
    """Nothing that was posted makes a channel wait."""
    with pytest.raises(StopIteration) as ended:
        hearing.send(None)
    heard: Heard = ended.value.value
    return heard


def check(heard: Heard) -> None:
    for message in heard.messages:
        check_message(message)
    for status in heard.statuses:
        assert len(status.conversation) <= 512
        assert "\0" not in f"{status.receipt}{status.delivery}{status.cause}"
    for aside in heard.asides:
        assert "\0" not in aside.body
        assert len(aside.body) <= 4_000


def check_message(message: Message) -> None:
    assert 0 < len(message.origin_id.encode()) <= 512
    assert 0 < len(message.sender.encode()) <= 512
    assert len(message.conversation) <= 512
    assert message.text or message.attachments
    assert len(message.text.encode()) <= 1_000_000
    assert message.sent_at is None or 0 <= message.sent_at < 2**63
    texts = [message.origin_id, message.sender, message.text, message.answers or ""]
    for file in message.attachments:
        texts += [file.url, file.name or "", file.media_type or ""]
        assert len(file.url) <= 8_192
        assert file.size is None or 0 <= file.size < 2**63
    assert not any("\0" in text for text in texts)


@pytest.mark.parametrize("platform", SAMPLES)
@given(data=st.data())
def test_no_mutation_of_a_sample_causes_an_error(platform: str, data: st.DataObject) -> None:
    channel, hook = hooked(platform, data.draw(mutated(SAMPLES[platform])))
    check(at_once(channel.hear(hook)))


@pytest.mark.parametrize("platform", SAMPLES)
@given(said=ANY_JSON)
def test_no_json_causes_an_error(platform: str, said: Any) -> None:
    channel, hook = hooked(platform, said)
    check(at_once(channel.hear(hook)))


@pytest.mark.parametrize("platform", SAMPLES)
@given(body=st.binary(), headers=st.dictionaries(st.sampled_from(["authorization", "x-hub-signature-256"]), st.text()))
def test_no_bytes_and_no_headers_cause_any_but_the_documented_errors(
    platform: str, body: bytes, headers: dict[str, str]
) -> None:
    channel, _ = hooked(platform, {})
    with suppress(Unauthorized, InvalidBody):
        check(at_once(channel.hear(Hook(body, headers))))
    signed = meta.signed(body) | whapi.BEARER
    with suppress(InvalidBody):
        check(at_once(channel.hear(Hook(body, signed, {"passkey": wati.PASSKEY}))))
