"""The channel of the plain chat page."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.backends.base import Arrival, Backend
from turnlane.channels.base import HookChannel, StreamingChannel
from turnlane.channels.web import FILE_BYTES_MAX, TEXT_BESIDE_FILES_BYTES_MAX, Web
from turnlane.errors import InvalidBody, InvalidMessage, Unauthorized, UnsupportedMediaType
from turnlane.model.delivery import Delivery, Sent
from turnlane.model.lane import Kind
from turnlane.model.message import Attachment, Message
from turnlane.model.policy import Policy

JSON = {"content-type": "application/json"}
TOKEN = "Kf3_x9-QmZ71aLpw"
SAID = {"id": "1", "conversation": TOKEN, "text": "hi"}


def parse(said: Any) -> Message:
    [message] = Web().parse(JSON, json.dumps(said).encode())
    return message


def test_it_is_served_on_loopback_only_until_the_operator_calls_it_public() -> None:
    assert isinstance(Web(), HookChannel)
    assert not Web().secured
    assert Web(public=True).secured


def test_the_visitors_token_names_the_conversation_and_the_sender() -> None:
    message = parse(SAID)
    assert (message.channel, message.conversation, message.sender) == ("web", f"web/{TOKEN}", TOKEN)
    assert message.text == "hi"


def test_the_same_id_of_two_visitors_is_two_messages() -> None:
    assert parse(SAID).id != parse(SAID | {"conversation": TOKEN[::-1]}).id
    assert parse(SAID).id == parse(SAID).id


@pytest.mark.parametrize("token", ["", "short", "a" * 15, "a" * 129, "a b" * 8, "../" * 8, "é" * 20, TOKEN + "\n"])
def test_a_token_that_could_be_guessed_or_misread_is_refused(token: str) -> None:
    with pytest.raises(InvalidMessage, match="conversation"):
        parse(SAID | {"conversation": token})


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ""},
        {"id": "x" * 257},
        {"id": 1},
        {"text": None},
        {"text": "\0"},
        {"answers": ""},
        {"sender": "somebody else"},
    ],
)
def test_other_shapes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        parse(SAID | changes)


FILE = {"name": "dot.png", "url": "data:image/png;base64,AAAA"}


def test_files_travel_inside_the_message() -> None:
    message = parse(SAID | {"text": "", "attachments": [FILE]})
    assert message.attachments == (Attachment(FILE["url"], "dot.png", "image/png", 3),)


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "https://example.com/dot.png"},
        {"url": "data:image/png,AAAA"},
        {"url": "data:;base64,AAAA"},
        {"url": "data:image/png;base64,not base64"},
        {"url": "data:image/png;base64,AAA"},
        {"url": "data:image/png;base64,é"},
        {"url": "data:text/html;charset=utf-8;base64,AAAA"},
        {"url": "data:" + "a" * 300 + "/x;base64,AAAA"},
        {"name": ""},
        {"name": "x" * 257},
        {"name": "\0"},
        {"size": 3},
    ],
)
def test_a_file_that_is_not_there_or_not_what_it_seems_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        parse(SAID | {"attachments": [FILE | changes]})


def test_files_have_their_limits() -> None:
    with pytest.raises(InvalidMessage, match="5 files"):
        parse(SAID | {"attachments": [FILE] * 6})
    large = FILE | {"url": "data:image/png;base64," + "A" * 4 * 120_000}
    assert len(parse(SAID | {"attachments": [large]}).attachments) == 1
    with pytest.raises(InvalidMessage, match="700000 bytes together"):
        parse(SAID | {"attachments": [large, large]})
    with pytest.raises(InvalidMessage, match="text beside files"):
        parse(SAID | {"text": "x" * 100_001, "attachments": [FILE]})
    with pytest.raises(InvalidMessage, match="0 files"):
        Web(files_max=0).parse(JSON, json.dumps(SAID | {"attachments": [FILE]}).encode())


async def test_the_largest_message_fits_every_store_and_reaches_the_agent_whole(backend: Backend) -> None:
    file = FILE | {"url": "data:image/png;base64," + b64encode(bytes(FILE_BYTES_MAX)).decode()}
    message = parse(SAID | {"text": "x" * TEXT_BESIDE_FILES_BYTES_MAX, "attachments": [file]})
    await backend.accept([Arrival(message, Policy(debounce_ms=0))])
    await backend.join("worker", 60_000)
    (lease,) = await backend.claim("worker", Kind.TURN)
    assert [(each.text, each.attachments) for each in lease.messages] == [(message.text, message.attachments)]
    story = await backend.story(message.conversation)
    assert story is not None
    assert story.messages[0].attachments == message.attachments


def test_only_json_is_taken() -> None:
    """The page of another site could post a form without asking first, but not JSON."""
    with pytest.raises(UnsupportedMediaType):
        Web().parse({"content-type": "text/plain"}, json.dumps(SAID).encode())
    with pytest.raises(InvalidBody):
        Web().parse(JSON, b"hi")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
files = st.fixed_dictionaries({"name": st.text(), "url": st.text() | st.text().map("data:image/png;base64,{}".format)})
said = st.fixed_dictionaries(
    {"id": st.text(), "conversation": st.text() | st.sampled_from([TOKEN, "me"]), "text": st.text()},
    optional={"attachments": st.lists(files) | anything, "answers": anything, "typing": anything},
)


@given(body=st.binary() | (said | anything).map(lambda value: json.dumps(value).encode()), proof=st.text())
def test_nothing_causes_any_but_the_documented_errors(body: bytes, proof: str) -> None:
    with suppress(InvalidBody, InvalidMessage, Unauthorized):
        Web(visitor_secret="a-secret-of-the-site").parse(JSON | {"turnlane-visitor": proof}, body)


async def test_what_is_stored_is_sent() -> None:
    web = Web()
    assert await web.send(Delivery(id="d", conversation=f"web/{TOKEN}", text="hello")) == Sent()
    await web.close()


async def test_what_there_is_of_an_answer_is_kept_until_its_turn_ends() -> None:
    web = Web()
    assert isinstance(web, StreamingChannel)
    await web.show("web/one", 3, "Hel")
    await web.show("web/one", 3, "Hello")
    await web.show("web/one", 2, None)  # said by a turn that is long over
    assert (web.previews.of("web/one"), web.previews.of("web/other")) == ((3, "Hello"), None)
    await web.show("web/one", 3, None)
    assert web.previews.of("web/one") is None


async def test_whoever_watches_a_conversation_is_told_of_that_one() -> None:
    web = Web()
    with web.previews.watched(["web/one", "web/two"]) as moved:
        await web.show("web/other", 1, "Hel")
        assert not moved.is_set()
        await web.show("web/two", 1, "Hel")
        assert moved.is_set()
    assert web.previews._watchers == {}
