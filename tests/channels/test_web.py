"""The channel of the plain chat page."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.channels.base import HookChannel, StreamingChannel
from turnlane.channels.web import Web
from turnlane.errors import InvalidBody, InvalidMessage, UnsupportedMediaType
from turnlane.model.delivery import Delivery, Sent
from turnlane.model.message import Message

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
    "changes", [{"id": ""}, {"id": "x" * 257}, {"id": 1}, {"text": None}, {"text": "\0"}, {"sender": "somebody else"}]
)
def test_other_shapes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        parse(SAID | changes)


def test_only_json_is_taken() -> None:
    """The page of another site could post a form without asking first, but not JSON."""
    with pytest.raises(UnsupportedMediaType):
        Web().parse({"content-type": "text/plain"}, json.dumps(SAID).encode())
    with pytest.raises(InvalidBody):
        Web().parse(JSON, b"hi")


@given(
    st.binary() | st.fixed_dictionaries({name: st.text() for name in SAID}).map(lambda said: json.dumps(said).encode())
)
def test_nothing_causes_any_but_the_documented_errors(body: bytes) -> None:
    with suppress(InvalidBody, InvalidMessage):
        assert Web().parse(JSON, body)


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
