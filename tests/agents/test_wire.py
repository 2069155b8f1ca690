"""What an agent outside this process is told, and what it may answer."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.turns import FILE, Audience, a_message, a_turn

from turnlane.agents.wire import Pieces, decode_answer, encode_turn
from turnlane.errors import AgentFailed
from turnlane.model.turn import Reply
from turnlane.model.usage import NO_USAGE, Usage


def test_a_turn_is_told_in_the_documented_form() -> None:
    messages = [
        a_message(1, "Grüße", attachments=(FILE,), sent_at=1_700_000_000_007),
        a_message(2, "", role="business"),
    ]
    assert json.loads(encode_turn(a_turn(messages=messages, session=None))) == {
        "turn": {
            "id": "site/alice#3",
            "number": 3,
            "attempt": 2,
            "epoch": 7,
            "conversation": "site/alice",
            "channel": "site",
            "session": None,
            "moved_from": None,
            "messages": [
                {
                    "id": "site:m-1",
                    "role": "person",
                    "sender": "Alice",
                    "text": "Grüße",
                    "sent_at": "2023-11-14T22:13:20.007Z",
                    "attachments": [
                        {"url": "https://files.example/1", "name": "a.ogg", "media_type": "audio/ogg", "size": 12}
                    ],
                },
                {
                    "id": "site:m-2",
                    "role": "business",
                    "sender": "Alice",
                    "text": "",
                    "sent_at": None,
                    "attachments": [],
                },
            ],
            "answers": [],
        }
    }


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ({"text": "hello"}, Reply("hello")),
        ({"text": None}, Reply(None)),
        ({"text": "a", "session": None, "usage": None}, Reply("a", None, NO_USAGE)),
        (
            {"text": "a", "session": "s-2", "usage": {"input_tokens": 1, "output_tokens": 2}},
            Reply("a", "s-2", Usage(1, 2)),
        ),
        ({"text": "a", "usage": {"cached_tokens": 3, "reasoning_tokens": 4}}, Reply("a", None, Usage(0, 0, 3, 4))),
    ],
)
def test_an_answer_is_a_reply(answer: Any, reply: Reply) -> None:
    assert decode_answer(json.dumps(answer).encode()) == reply


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (b"", "truncated"),
        (b"hello", "malformed"),
        (b"\xff", "malformed"),
        (b'{"text": "\xff"}', "utf-8"),
        (b"{}", "text"),
        (b'{"text": 5}', r"\$\.text"),
        (b'{"text": ["a"]}', r"\$\.text"),
        (b'{"text": "a", "sesion": "s"}', "sesion"),
        (b'{"text": "a", "session": 5}', r"\$\.session"),
        (b'{"text": "a", "session": ""}', r"\$\.session"),
        (b'{"text": "a", "session": "\\u0000"}', "NUL"),
        (b'{"text": "a\\u0000"}', "NUL"),
        (b'{"text": "\\ud800"}', "answer cannot be read"),
        (b'{"text": "a", "usage": {"input_tokens": -1}}', r"\$\.usage\.input_tokens"),
        (b'{"text": "a", "usage": {"input_tokens": 1.5}}', r"\$\.usage\.input_tokens"),
        (b'{"text": "a", "usage": {"input_tokens": 99999999999999999999}}', r"\$\.usage\.input_tokens"),
        (b'{"text": "a", "usage": {"tokens": 1}}', "tokens"),
        (b'[{"text": "a"}]', "array"),
        (b'{"%s": 1}' % (b"x" * 10_000), "unknown field"),
    ],
)
def test_another_answer_is_a_failure_that_says_where(answer: bytes, named: str) -> None:
    with pytest.raises(AgentFailed, match=named) as failed:
        decode_answer(answer)
    assert len(str(failed.value)) < 500


@given(
    st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda value: json.dumps({"text": value}).encode())
)
def test_no_answer_causes_any_other_error(answer: bytes) -> None:
    with suppress(AgentFailed):
        assert isinstance(decode_answer(answer), Reply)


def test_megabytes_of_small_pieces_block_nobody_for_long() -> None:
    """To add each piece to all before it takes ten times as long for each of ten times as many: seconds, in which the
    process can renew no lease."""
    few, many = seconds_to_feed(30), seconds_to_feed(300)
    assert many < few * 30


def seconds_to_feed(chunks: int) -> float:
    audience, line = Audience(), b'{"piece": "a"}\n'
    pieces, chunk = Pieces(a_turn(stage=audience)), line * 4_000
    began = time.process_time()
    for _ in range(chunks):
        pieces.feed(chunk)
    seconds = time.process_time() - began
    assert audience.seen[-1] == "a" * 4_000 * chunks
    assert pieces.length == chunks * len(chunk)
    return seconds
