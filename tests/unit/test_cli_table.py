"""Tables and times: aligned, cut to fit, and harmless."""

from __future__ import annotations

import pytest

from turnlane.cli.table import Column, cells_wide, cut, lines, one_line, relative, took


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (-5, "0ms"),
        (0, "0ms"),
        (400, "400ms"),
        (3_200, "3.2s"),
        (45_000, "45s"),
        (300_000, "5m"),
        (7_200_000, "2h"),
        (4 * 86_400_000, "4d"),
    ],
)
def test_times_are_said_in_their_largest_fitting_unit(milliseconds: int, said: str) -> None:
    assert took(milliseconds) == said


@pytest.mark.parametrize(
    ("at", "said"), [(None, "-"), (100_000, "now"), (95_000, "5.0s ago"), (160_000, "in 60s"), (100_900, "now")]
)
def test_times_are_relative_to_now(at: int | None, said: str) -> None:
    assert relative(at, now=100_000) == said


def test_columns_line_up_whatever_is_in_them() -> None:
    columns = [Column("NAME"), Column("N", right=True), Column("TEXT")]
    told = list(lines(columns, [["a", "1", "x"], ["日本", "100", "y"], ["e\u0301t", "5", "z"]], width=None))
    assert told[1:] == ["a       1  x", "日本  100  y", "e\u0301t      5  z"]


def test_only_the_last_column_is_cut_and_only_on_a_terminal() -> None:
    columns = [Column("NAME"), Column("TEXT")]
    rows = [["a" * 30, "b" * 100]]
    assert list(lines(columns, rows, width=50))[1] == "a" * 30 + "  " + "b" * 17 + "…"
    assert list(lines(columns, rows, width=None))[1] == "a" * 30 + "  " + "b" * 100


def test_a_wide_character_is_never_cut_in_half() -> None:
    assert cut("日本語", 4) == "日…"
    assert cells_wide(cut("日本語", 4)) <= 4


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x00b", "a\x07", "\x9b31m", "\u202egpj.exe", "\ud800"])
def test_what_people_wrote_cannot_steer_the_terminal(text: str) -> None:
    shown = one_line(text)
    assert "�" in shown
    assert shown.isprintable()


def test_line_breaks_are_shown() -> None:
    assert one_line("a\nb\r\nc\td") == "a⏎b⏎c d"
