"""The story that `turnlane show` tells of messages that are in no turn, and of turns without an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnlane.backends.base import Arrival
from turnlane.backends.memory import MemoryBackend
from turnlane.cli.show import _tell
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply, Superseded
from turnlane.testing.doubles import VirtualClock

REJECT = Policy(debounce_ms=0, on_busy="reject")


def said(number: int, text: str) -> Message:
    return Message("site", f"m-{number}", "site/alice", "alice", text)


async def test_superseded_turns_and_refused_messages_are_told_as_what_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = MemoryBackend("memory://", VirtualClock(1))
    await backend.join("worker", 60_000)
    await backend.accept([Arrival(said(1, "tea"), REJECT)])
    [lease] = await backend.claim("worker", Kind.TURN)
    await backend.accept([Arrival(said(2, "and cake"), REJECT), Arrival(said(3, "/status"), REJECT, "status")])
    await backend.commit(lease, Superseded(set_aside=False, cause="interrupted by a new message"))
    [lease] = await backend.claim("worker", Kind.TURN)
    await backend.accept([Arrival(said(4, "hello?"), REJECT)])
    await backend.commit(lease, Replied(Reply("here you are")))
    story = await backend.story("site/alice")
    assert story is not None
    _tell(story)
    told = capsys.readouterr().out
    assert "turn 1 ended without an answer: interrupted by a new message" in told
    assert "turn 2 answered 2 messages" in told
    assert "/status  (a command)" in told
    assert "hello?  (refused)" in told


async def test_the_story_says_who_spoke(capsys: pytest.CaptureFixture[str]) -> None:
    backend = MemoryBackend("memory://", VirtualClock(1))
    await backend.accept([Arrival(said(1, "help"), REJECT)])
    word = replace(said(2, "I am looking"), sender="Anna", role="business")
    await backend.accept([Arrival(word, REJECT)])
    await backend.say(replace(said(3, "found it"), sender="Ben", role="operator"))
    story = await backend.story("site/alice")
    assert story is not None
    _tell(story)
    told = capsys.readouterr().out
    assert "Anna      I am looking  (of the business, kept for the agent)" in told
    assert "operator  found it  (waits to be sent)" in told
