"""The trace of benchmarks/requests.py, for few users."""

from __future__ import annotations

from turnlane.testing.bench.requests import happenings, live


def test_the_trace_is_the_same_each_time() -> None:
    assert list(happenings(10, 2)) == list(happenings(10, 2))


async def test_with_what_is_at_hand_others_are_asked_seldom() -> None:
    """B11"""
    ours = await live(20, 4)
    without = await live(20, 4, at_hand=False)
    assert (ours.messages, ours.turns) == (without.messages, without.turns)
    assert ours.requests_per_message < 1.3 < without.requests_per_message
    assert ours.requests["agent: turns"] == ours.turns < ours.messages
    assert ours.hits + ours.misses == ours.turns
    assert ours.misses <= 20
    assert without.hits == 0
