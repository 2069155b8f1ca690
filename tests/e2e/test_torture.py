"""Processes that are killed and frozen while people write; and that the judge of it would see a broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from turnlane.testing.evidence import Conversation, Turn, answer_of
from turnlane.testing.outside import Call, Reply
from turnlane.testing.torture import Plan, torture


@pytest.mark.slow
async def test_nothing_is_lost_doubled_or_reordered_while_processes_are_killed_and_frozen(tmp_path: Path) -> None:
    report = await torture(Plan(seconds=12, processes=3, seed=7), tmp_path)
    print(report)
    assert report.violations == [], str(report)
    assert report.figures["kills (SIGKILL)"]
    assert report.figures["freezes past the lease (SIGSTOP)"]


KEY = "site/alice"


def reply(turn: int, *ids: str, epoch: int, key: str | None = None) -> Reply:
    return Reply(key or f"key-{turn}", "alice", turn, 1, answer_of(KEY, turn, epoch), ids)


def call(turn: int, epoch: int, began: float, ended: float) -> Call:
    return Call({"conversation": KEY, "number": turn, "epoch": epoch}, began, ended)


KEPT = Conversation(
    KEY,
    sent=["m1", "m2", "m3"],
    replies=[reply(1, "m1", "m2", epoch=1), reply(2, "m3", epoch=3)],
    requests=[reply(1, "m1", "m2", epoch=1), reply(1, "m1", "m2", epoch=1), reply(2, "m3", epoch=3)],
    calls=[call(1, 1, 0, 2), call(2, 2, 2, 9), call(2, 3, 5, 6)],
    messages=["m1", "m2", "m3"],
    turns=[Turn(1, 1, 2, "answered", 1), Turn(2, 3, 3, "answered", 3)],
    deliveries=[("key-1", 1, "sent"), ("key-2", 2, "sent")],
)
"""One repeated request, and one run whose worker was lost: both are allowed."""


def test_kept_promises_are_not_called_broken() -> None:
    assert KEPT.violations() == []


@pytest.mark.parametrize(
    ("promise", "broken"),
    [
        ("lost", replace(KEPT, replies=KEPT.replies[:1])),
        ("lost", replace(KEPT, messages=["m1", "m2"])),
        ("lost", replace(KEPT, turns=[KEPT.turns[0], replace(KEPT.turns[1], outcome="dead_letter")])),
        ("lost", replace(KEPT, deliveries=[("key-1", 1, "sent"), ("key-2", 2, "queued")])),
        ("doubled", replace(KEPT, messages=["m1", "m2", "m3", "m3"])),
        ("doubled", replace(KEPT, replies=[*KEPT.replies, reply(2, "m3", epoch=3, key="another")])),
        ("doubled", replace(KEPT, replies=[*KEPT.replies, reply(3, "m4", epoch=4)])),
        ("doubled", replace(KEPT, requests=[*KEPT.requests, reply(2, "m3", epoch=2)])),
        ("doubled", replace(KEPT, deliveries=[*KEPT.deliveries, ("another", 2, "sent")])),
        ("reordered", replace(KEPT, replies=[reply(1, "m2", "m1", epoch=1), KEPT.replies[1]])),
        ("reordered", replace(KEPT, replies=KEPT.replies[::-1])),
        ("reordered", replace(KEPT, messages=["m2", "m1", "m3"])),
        ("reordered", replace(KEPT, deliveries=KEPT.deliveries[::-1])),
        ("overlapping", replace(KEPT, turns=[KEPT.turns[0], replace(KEPT.turns[1], first=2)])),
        ("overlapping", replace(KEPT, turns=[KEPT.turns[0], replace(KEPT.turns[1], epoch=1)])),
        ("overlapping", replace(KEPT, replies=[KEPT.replies[0], reply(2, "m3", epoch=2)])),
        ("overlapping", replace(KEPT, calls=[call(1, 1, 0, 6), call(2, 3, 5, 6)])),
        ("overlapping", replace(KEPT, calls=[call(1, 1, 0, 1), call(1, 1, 2, 3)])),
    ],
)
def test_every_broken_promise_is_seen(promise: str, broken: Conversation) -> None:
    assert promise in {seen for seen, _ in broken.violations()}
