"""The judge of the crash matrix sees what a process must not have done, in diaries that nobody wrote but we."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnlane.testing.crash_diary import Diary, Note, What, avoidable_repeats, diaries_in

Line = tuple[str, What, str | None]


def diary(*lines: Line) -> list[Note]:
    return [Note(at, life, what, delivery) for at, (life, what, delivery) in enumerate(lines)]


BEGUN: Line = ("one", "begins", "d1")
SETTLED: Line = ("one", "settled", "d1")
CRASHED: Line = ("one", "crashes", None)
AGAIN: Line = ("two", "begins", "d1")
SETTLED_AGAIN: Line = ("two", "settled", "d1")


@pytest.mark.parametrize(
    "lines",
    [
        (BEGUN, SETTLED),
        (BEGUN, CRASHED, AGAIN, SETTLED_AGAIN),
        (BEGUN, ("one", "lost", "d1"), AGAIN, SETTLED_AGAIN),
        # Stopped in the window; the other one settles it, and the first one is fenced when it goes on.
        (BEGUN, CRASHED, AGAIN, SETTLED_AGAIN, ("one", "lost", "d1")),
        # Stopped in the window, but nobody could bury it meanwhile: it sends again itself.
        (BEGUN, CRASHED, ("one", "lost", "d1"), BEGUN, SETTLED),
        # Another delivery of the same process was in its own window.
        (("one", "begins", "d2"), BEGUN, SETTLED, CRASHED, ("two", "begins", "d2"), ("two", "settled", "d2")),
    ],
)
def test_a_repeat_that_nobody_could_avoid_is_excused(lines: tuple[Line, ...]) -> None:
    notes = diary(*lines)
    assert avoidable_repeats(notes, [note.delivery for note in notes if note.what == "begins" and note.delivery]) == []


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((BEGUN, SETTLED, CRASHED, AGAIN), "it was settled"),
        ((BEGUN, SETTLED, AGAIN), "it was settled"),
        ((BEGUN, CRASHED, SETTLED, AGAIN), "it was settled"),
        ((BEGUN, AGAIN), "nothing had cut it off"),
        ((BEGUN, BEGUN), "nothing had cut it off"),
        ((BEGUN, CRASHED, BEGUN, SETTLED, BEGUN), "it was settled"),
        ((BEGUN, ("two", "crashes", None), AGAIN), "nothing had cut it off"),
        ((BEGUN, ("one", "lost", "d2"), AGAIN), "nothing had cut it off"),
        # Stopped before the send, it did not look at its lease again.
        ((CRASHED, AGAIN, SETTLED_AGAIN, BEGUN), "it was settled"),
    ],
)
def test_every_other_repeat_is_told(lines: tuple[Line, ...], why: str) -> None:
    (said,) = avoidable_repeats(diary(*lines), ["d1", "d1"])
    assert said.startswith("d1 was sent again")
    assert said.endswith(why)


def test_a_request_that_no_process_knows_of_is_told() -> None:
    assert avoidable_repeats(diary(BEGUN, SETTLED), ["d1", "another"]) == [
        "another arrived 1 times, and was sent 0 times"
    ]
    assert avoidable_repeats(diary(BEGUN, SETTLED), ["d1", "d1"]) == ["d1 arrived 2 times, and was sent 1 times"]


def test_what_a_process_writes_is_there_whatever_becomes_of_it(tmp_path: Path) -> None:
    first, second = Diary(tmp_path), Diary(tmp_path)
    first.note("begins", "d1")
    second.note("begins", "d2")
    first.note("crashes")
    assert [(note.what, note.delivery) for note in diaries_in(tmp_path)] == [
        ("begins", "d1"),
        ("begins", "d2"),
        ("crashes", None),
    ]
    assert all(note.life.startswith(f"{os.getpid()}-") for note in diaries_in(tmp_path))
