"""What the operator at `turnlane top` has chosen, and what each key makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from turnlane.cli.top_board import SORTS, Row, Sort
from turnlane.model.lane import LaneState

T = TypeVar("T")

Verb = Literal["pause", "resume", "stop", "retry"]
Page = Literal["lanes", "story", "help"]

FILTER_CHARACTERS_MAX = 100

ESCAPES: Mapping[str, str] = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
}
PLAIN: Mapping[str, str] = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace"}
ESCAPE_CHARACTERS_MAX = 16


@dataclass(frozen=True, slots=True)
class Steering:
    """Something to be done to a conversation, once it is confirmed."""

    verb: Verb
    conversation: str


@dataclass(frozen=True, slots=True)
class Desk:
    page: Page = "lanes"
    selected: str | None = None
    scroll: int = 0
    """In a story: lines from its end."""
    text: str = ""
    typing: bool = False
    """The text to look for is being typed."""
    state: LaneState | None = None
    channel: str | None = None
    sort: Sort = "what matters"
    asked: Steering | None = None
    """Waits for y or n."""
    told: str = ""
    """What came of the last thing that was done."""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What is on the screen while a key is pressed."""

    rows: Sequence[Row]
    channels: Sequence[str] = ()
    lines: int = 10
    """How many fit."""


def pressed(desk: Desk, key: str, seen: Seen) -> tuple[Desk, Steering | None]:
    """The desk afterwards, and what is to be done if that was confirmed just now."""
    if desk.asked is not None:
        return _answered(replace(desk, asked=None, told=""), desk.asked, key)
    if desk.typing:
        return _typed(desk, key), None
    desk = replace(desk, told="")
    if key == "q":
        return (replace(desk, over=True) if desk.page == "lanes" else replace(desk, page="lanes", scroll=0)), None
    if key in _STEERING:
        return _ask(desk, key, seen), None
    return (_in_lanes(desk, key, seen) if desk.page == "lanes" else _in_pages(desk, key, seen)), None


def _answered(desk: Desk, asked: Steering, key: str) -> tuple[Desk, Steering | None]:
    if key in ("y", "Y"):
        return desk, asked
    return replace(desk, told=f"{asked.conversation}: nothing was done"), None


def _typed(desk: Desk, key: str) -> Desk:
    match key:
        case "enter":
            return replace(desk, typing=False)
        case "escape":
            return replace(desk, typing=False, text="")
        case "backspace":
            return replace(desk, text=desk.text[:-1])
        case _ if len(key) == 1 and key.isprintable():
            return replace(desk, text=(desk.text + key)[:FILTER_CHARACTERS_MAX])
    return desk


_STEERING = frozenset({"p", "x", "r"})


def _ask(desk: Desk, key: str, seen: Seen) -> Desk:
    row = chosen(desk, seen.rows)
    if row is None or desk.page == "help":
        return replace(desk, told="no conversation is chosen")
    held = row.state in ("paused", "parked")
    verbs: Mapping[str, Verb] = {"p": "resume" if held else "pause", "x": "stop", "r": "retry"}
    return replace(desk, selected=row.conversation, asked=Steering(verbs[key], row.conversation))


def _in_lanes(desk: Desk, key: str, seen: Seen) -> Desk:
    match key:
        case "up" | "k":
            return _moved(desk, seen, -1)
        case "down" | "j":
            return _moved(desk, seen, 1)
        case "page up":
            return _moved(desk, seen, -seen.lines)
        case "page down":
            return _moved(desk, seen, seen.lines)
        case "home" | "g":
            return _moved(desk, seen, -len(seen.rows))
        case "end" | "G":
            return _moved(desk, seen, len(seen.rows))
        case "enter" if (row := chosen(desk, seen.rows)) is not None:
            return replace(desk, page="story", selected=row.conversation, scroll=0)
        case "/":
            return replace(desk, typing=True)
        case "s":
            return replace(desk, state=_next(desk.state, (None, *get_args(LaneState))))
        case "c":
            return replace(desk, channel=_next(desk.channel, (None, *seen.channels)))
        case "o":
            return replace(desk, sort=_next(desk.sort, SORTS))
        case "?" | "h":
            return replace(desk, page="help")
        case "escape":
            return replace(desk, text="", state=None, channel=None)
    return desk


def _in_pages(desk: Desk, key: str, seen: Seen) -> Desk:
    match key:
        case "up" | "k":
            return replace(desk, scroll=desk.scroll + 1)
        case "down" | "j":
            return replace(desk, scroll=max(desk.scroll - 1, 0))
        case "page up":
            return replace(desk, scroll=desk.scroll + seen.lines)
        case "page down":
            return replace(desk, scroll=max(desk.scroll - seen.lines, 0))
        case "end" | "G":
            return replace(desk, scroll=0)
        case "escape" | "enter" | "?":
            return replace(desk, page="lanes", scroll=0)
    return desk


def chosen(desk: Desk, rows: Sequence[Row]) -> Row | None:
    """The lane that keys are about; the first, as long as none was chosen or the one that was is not shown."""
    return next((row for row in rows if row.conversation == desk.selected), rows[0] if rows else None)


def _moved(desk: Desk, seen: Seen, by: int) -> Desk:
    if not seen.rows:
        return desk
    places = {row.conversation: place for place, row in enumerate(seen.rows)}
    place = min(max(places.get(desk.selected or "", 0) + by, 0), len(seen.rows) - 1)
    return replace(desk, selected=seen.rows[place].conversation)


def _next(now: T, choices: Sequence[T]) -> T:
    return choices[(choices.index(now) + 1) % len(choices)] if now in choices else choices[0]


# What a terminal sends


def keys_in(typed: str) -> tuple[list[str], str]:
    """The keys in what came, and what may be the beginning of one more."""
    keys: list[str] = []
    while typed:
        if typed[0] != "\x1b" or len(typed) == 1 or typed[1] not in "[O":
            if typed == "\x1b":
                return keys, typed
            keys.append(PLAIN.get(typed[0], typed[0]))
            typed = typed[1:]
            continue
        end = next((place for place, each in enumerate(typed[2:], 2) if "@" <= each <= "~"), None)
        if end is None:
            return (keys, typed) if len(typed) < ESCAPE_CHARACTERS_MAX else (keys, "")
        # A key that means nothing here is left out, all of it.
        if (name := ESCAPES.get(typed[: end + 1])) is not None:
            keys.append(name)
        typed = typed[end + 1 :]
    return keys, ""


def last_key(left: str) -> list[str]:
    """What a beginning turns out to be if nothing follows: somebody pressed Escape."""
    return ["escape"] if left.startswith("\x1b") else []
