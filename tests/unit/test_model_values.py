"""The other values of the model, and the small decisions they carry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.errors import InvalidMessage
from turnlane.model.delivery import delivery_id
from turnlane.model.event import event_of
from turnlane.model.message import Message, channel_of, conversation_key, local_part
from turnlane.model.policy import Backoff, Policy
from turnlane.model.session import Session
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@given(room=TEXT)
def test_a_conversation_key_splits_back_exactly(room: str) -> None:
    key = conversation_key("site", room)
    assert (channel_of(key), local_part(key)) == ("site", room)


@given(one=st.lists(TEXT, min_size=1, max_size=3), other=st.lists(TEXT, min_size=1, max_size=3))
def test_two_conversations_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (conversation_key("site", *one) == conversation_key("site", *other)) == (one == other)


def test_a_key_that_is_too_long_says_how_long_it_may_be() -> None:
    assert len(conversation_key("site", "a" * 507)) == 512
    with pytest.raises(InvalidMessage, match="513 bytes long once encoded; use at most 512"):
        conversation_key("site", "a" * 508)


def test_a_message_is_known_by_its_channel_and_origin_id() -> None:
    """A15"""
    message = Message("site", "m-1", "site/alice", "alice", "hello")
    assert message.id == "site:m-1"
    stored = message.stored(3, 1_000)
    assert stored == replace(message, seq=3, accepted_at=1_000)


def test_a_turn_keeps_its_id_over_attempts_and_reads_as_lines() -> None:
    said = [Message("site", str(n), "site/alice", "alice", text) for n, text in enumerate(["one", "two"])]
    turn = Turn("site/alice", 7, 1, 1, "site", said)
    assert (turn.id, turn.text) == ("site/alice#7", "one\ntwo")
    assert replace(turn, attempt=2, epoch=5).id == turn.id


def test_a_reply_has_as_many_parts_as_texts() -> None:
    assert [tuple(Reply(text).parts) for text in (None, "one", ["one", "two"], [])] == [
        (),
        ("one",),
        ("one", "two"),
        (),
    ]


def test_the_same_turn_and_part_always_give_the_same_delivery_id() -> None:
    ids = {delivery_id(f"site/{who}", turn, part) for who in "ab" for turn in (1, 2) for part in (1, 2)}
    assert len(ids) == 8
    assert delivery_id("site/a", 1, 1) in ids


def test_tokens_belong_to_the_session() -> None:
    """B5: the same handle adds up, another one starts from zero."""
    first = Session("one").after_turn("one", Usage(10, 1), 5)
    assert first == Session("one", 1, Usage(10, 1), 5)
    assert first.after_turn("one", Usage(1, 1, 1, 1), 6) == Session("one", 2, Usage(11, 2, 1, 1), 6)
    assert first.after_turn("two", Usage(3, 3), 7) == Session("two", 1, Usage(3, 3), 7)


def test_waiting_times_grow_to_their_most() -> None:
    backoff = Backoff(first_ms=1_000, factor=3.0, most_ms=10_000)
    assert [backoff.delay_ms(failures) for failures in (1, 2, 3, 4, 10_000)] == [1_000, 3_000, 9_000, 10_000, 10_000]


@given(first=st.integers(0, 10**6), gap=st.integers(0, 10**6), waiting=st.integers(1, 100))
def test_a_lane_is_ready_after_its_window_and_never_after_max_wait(first: int, gap: int, waiting: int) -> None:
    """A4 and E2"""
    policy = Policy(debounce_ms=3_000, max_wait_ms=15_000, max_batch=50)
    ready = policy.ready_at(first=first, latest=first + gap, waiting=waiting)
    assert ready <= max(first + 15_000, first + gap)
    assert ready == (first + gap if waiting >= 50 else min(first + gap + 3_000, first + 15_000))


def test_queue_takes_one_message_a_turn() -> None:
    assert Policy(on_busy="queue", max_batch=50).batch_max == 1
    assert Policy(max_batch=50).batch_max == 50


def test_with_claim_one_failure_is_enough() -> None:
    """D4"""
    assert [Policy(attempts=3).failures_used_up(n) for n in (1, 2, 3)] == [False, False, True]
    assert Policy(attempts=3, ack="claim").failures_used_up(1)


def test_what_was_noted_gets_its_names_when_somebody_asks() -> None:
    event = event_of(("worker.joined", None, "w-1", "here"), at=5)
    assert (event.name, event.at, event.conversation) == ("worker.joined", 5, None)
    assert event.facts == {"worker": "w-1", "machine": "here"}
    assert event == event_of(["worker.joined", None, "w-1", "here"], at=5)
    assert event != event_of(("worker.joined", None, "w-2", "here"), at=5)


def test_a_fact_too_few_is_seen() -> None:
    event = event_of(("worker.joined", None, "w-1"), at=5)
    with pytest.raises(ValueError, match="shorter"):
        assert event.facts
