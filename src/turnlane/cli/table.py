"""Tables, times and texts as a person likes to read them on a terminal."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

Colour = Callable[[str], str | None]

STATE_COLOURS = {
    "running": "green",
    "ready": "cyan",
    "gathering": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "parked": "red",
    "failed": "red",
    "due": "cyan",
    "off": "bright_black",
    "dead_letter": "red",
    "idle": "bright_black",
}


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    right: bool = False
    colour: Colour | None = None


def state_colour(state: str) -> str | None:
    return STATE_COLOURS.get(state)


def echo_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, nothing: str) -> None:
    """Print the rows aligned. On a terminal the last column is cut to fit; in a pipe nothing is."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    if not cells:
        click.echo(nothing)
        return
    for line in lines(columns, cells, width=terminal_width()):
        click.echo(line)


def lines(columns: Sequence[Column], cells: Sequence[Sequence[str]], *, width: int | None) -> Iterable[str]:
    headings = [column.heading for column in columns]
    widths = [max(map(cells_wide, texts)) for texts in zip(headings, *cells, strict=True)]
    before_last = sum(widths[:-1]) + 2 * (len(widths) - 1)
    if width is not None:
        widths[-1] = max(min(widths[-1], width - before_last), 10)
    yield click.style(_line(columns, headings, widths, plain=True), dim=True)
    for row in cells:
        yield _line(columns, row, widths)


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], *, plain: bool = False) -> str:
    padded = []
    for number, (column, text, width) in enumerate(zip(columns, row, widths, strict=True)):
        shown = cut(text, width) if number == len(row) - 1 else text
        blanks = " " * (width - cells_wide(shown))
        coloured = click.style(shown, fg=column.colour(text)) if column.colour and not plain else shown
        padded.append(blanks + coloured if column.right else coloured + blanks)
    return "  ".join(padded).rstrip()


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def one_line(text: str) -> str:
    """The text with line breaks shown and nothing in it that a terminal would obey."""
    text = text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", " ")
    return "".join(character if _is_harmless(character) else "�" for character in text)


def _is_harmless(character: str) -> bool:
    # Controls move the cursor or change colours; marks of direction make a line read as another one.
    category = unicodedata.category(character)
    return (
        category not in {"Cc", "Cs"} and not "\u202a" <= character <= "\u202e" and not "\u2066" <= character <= "\u2069"
    )


def cells_wide(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return sum(_width_of(character) for character in text)


def _width_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    if cells_wide(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _width_of(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"


def end_of(text: str, width: int) -> str:
    """As much of its end as fits."""
    kept, used = len(text), 0
    while kept and (used := used + _width_of(text[kept - 1])) <= width:
        kept -= 1
    return text[kept:]


def took(milliseconds: float) -> str:
    """A length of time in its largest fitting unit: 400ms, 3.2s, 12m, 5h, 3d."""
    seconds = max(milliseconds, 0) / 1_000
    if seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    for unit, size, most in (("s", 1, 90), ("m", 60, 90 * 60), ("h", 3_600, 36 * 3_600)):
        if seconds < most:
            return f"{seconds / size:.1f}{unit}" if unit == "s" and seconds < 10 else f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def relative(at: int | None, now: int) -> str:
    """`3s ago`, `in 5m`, `now`; `-` for never."""
    if at is None:
        return "-"
    if abs(at - now) < 1_000:
        return "now"
    return f"{took(now - at)} ago" if at < now else f"in {took(at - now)}"


def local_time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC).astimezone()
