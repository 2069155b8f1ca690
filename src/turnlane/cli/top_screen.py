"""How `turnlane top` looks: lines for a size, with nothing in them that a terminal would obey but our colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import click

from turnlane.cli.table import cells_wide, cut, local_time, one_line, relative, state_colour, took
from turnlane.cli.top_board import RANK, SPAN_MS, Board, Mark, Row
from turnlane.cli.top_desk import Desk, chosen
from turnlane.model.lane import LaneState
from turnlane.model.view import Counts

OURS = re.compile(r"(\x1b\[[0-9;]*m)")
"""The only sequences of control that are in a line: `click.style` put them there."""
RESET = "\x1b[0m"

GLYPHS: Mapping[LaneState | Mark, str] = {
    "idle": "·",
    "gathering": "░",
    "ready": "▒",
    "running": "█",
    "waiting": "▁",
    "paused": "═",
    "parked": "×",
    "answered": "✓",
    "retried": "!",
    "released": "↺",
    "lost": "✗",
    "dead": "†",
}
ASCII: Mapping[LaneState | Mark, str] = {
    "idle": ".",
    "gathering": ":",
    "ready": "=",
    "running": "#",
    "waiting": "_",
    "paused": "-",
    "parked": "x",
    "answered": "v",
    "retried": "!",
    "released": "<",
    "lost": "X",
    "dead": "D",
}
MARK_COLOURS: Mapping[str, str] = {
    "answered": "green",
    "retried": "yellow",
    "released": "yellow",
    "lost": "magenta",
    "dead": "red",
}
MARKS: Sequence[Mark] = ("dead", "lost", "retried", "released", "answered")
"""Of several in one cell, the first is shown."""
MEANING: Mapping[Mark, str] = {
    "dead": "given up",
    "lost": "worker lost",
    "retried": "failed, tried again",
    "released": "given back",
    "answered": "answered",
}

BAR_CELLS_MIN, BAR_CELLS_MAX = 12, 60
CONVERSATION_CELLS_MIN, CONVERSATION_CELLS_MAX = 12, 40
ABOVE, BELOW = 5, 2
"""Lines that are no lanes: the header with its headings, and the foot."""
SMALL_LINES_MAX = 11
"""So few, and the header is a line, and the foot, too."""

KEYS = "? help  q quit  ↑↓ choose  enter story  / find  s state  c channel  o order  p pause/resume  x stop  r retry"
KEYS_OF_A_STORY = "q back  ↑↓ scroll  p pause/resume  x stop  r retry"
HELP = """
 ↑ ↓ j k  PgUp PgDn  g G   choose a conversation
 enter                     its story: messages, turns, attempts, deliveries
 /                         show only what has this text in its name or agent; esc shows all again
 s                         show only lanes in one state, then in the next
 c                         show only lanes of one channel, then of the next
 o                         order: what matters, name, most waiting, last changed
 p                         pause the conversation, or resume it if it is paused or parked
 x                         stop: set aside all that was said and not answered
 r                         retry: let what waits for its next attempt start now
 ?                         this page
 q                         back, or quit

 p, x and r ask before anything is done.
""".strip("\n").splitlines()


@dataclass(frozen=True, slots=True)
class Look:
    """What a frame depends on beside what is shown."""

    width: int
    height: int
    now: int
    store: str = ""
    ascii: bool = False
    """The terminal cannot show more."""

    @property
    def glyphs(self) -> Mapping[LaneState | Mark, str]:
        return ASCII if self.ascii else GLYPHS

    whole: bool = False
    """The header and the foot are all there, however few lines there are."""

    @property
    def small(self) -> bool:
        return self.height <= SMALL_LINES_MAX and not self.whole

    @property
    def lines(self) -> int:
        """How many lanes fit below their headings."""
        return max(self.height - (3 if self.small else ABOVE + BELOW), 1)


def frame(board: Board, desk: Desk, look: Look, story: Sequence[str] = ()) -> list[str]:
    """At most as many lines as the screen has, none of them wider."""
    header, foot = _header(board, look), list(_foot(desk))
    header, foot = (header[:1], foot[:1]) if look.small else ([*header, ""], foot)
    room = max(look.height - len(header) - len(foot), 0)
    match desk.page:
        case "story":
            body = _story(desk, look.width, room, story)
        case "help":
            body = [*HELP, "", *_legend(look)]
        case _:
            body = _lanes(board, desk, look)
    lines = [*header, *body[:room], *[""] * (room - len(body)), *foot]
    return [fitted(line, look.width) for line in lines[: look.height]]


# The header


def _header(board: Board, look: Look) -> list[str]:
    clock = f"{local_time(look.now):%H:%M:%S}"
    numbers = _numbers(board.counts, look.now) if board.counts else ("", "")
    if board.trouble is not None:
        since = relative(board.trouble_since, look.now)
        trouble = click.style(f"the store does not answer ({since}): {one_line(board.trouble)}", fg="red", bold=True)
        return [f"{clock}  {trouble}", *numbers]
    if look.small:
        return [*numbers]
    turns, messages = (board.per_second(name, look.now) for name in ("turn.answered", "message.accepted"))
    name = click.style("turnlane", bold=True)
    return [f"{clock}  {name}  {turns:.1f} turns/s  {messages:.1f} messages/s  {one_line(look.store)}", *numbers]


def _numbers(counts: Counts, now: int) -> tuple[str, str]:
    lanes = [_count(state, counts.lanes[state]) for state in RANK if counts.lanes.get(state)]
    total = sum(counts.lanes.values())
    return (
        f"workers {_workers(counts.workers_live)}   lanes {total:,}: {' · '.join(lanes) or 'none yet'}",
        f"{counts.messages_waiting:,} messages and {counts.deliveries_waiting:,} deliveries wait   "
        f"{_bad(counts.deliveries_failed)} failed   {_bad(counts.dead_letters)} dead letters   "
        f"oldest due {_overdue(counts.oldest_due_at, now)}",
    )


def _count(state: str, many: int) -> str:
    return f"{many:,} {click.style(one_line(state), fg=state_colour(state))}"


def _workers(many: int) -> str:
    return f"{many:,}" if many else click.style("0", fg="red", bold=True)


def _bad(many: int) -> str:
    return click.style(f"{many:,}", fg="red") if many else "0"


def _overdue(at: int | None, now: int) -> str:
    return "-" if at is None or at > now else took(now - at)


# Lanes


@dataclass(frozen=True, slots=True)
class Cell:
    heading: str
    width: int
    right: bool = False


def _lanes(board: Board, desk: Desk, look: Look) -> list[str]:
    rows = board.shown(text=desk.text, state=desk.state, channel=desk.channel, sort=desk.sort)
    if not rows:
        return ["no such lanes" if board.rows else "no conversations yet; `turnlane send web/alice hello` starts one"]
    here = chosen(desk, rows)
    first = _first_shown(rows, here, look.lines)
    cells = columns(look.width)
    heading = " ".join(_padded(cell.heading, cell) for cell in cells)
    shown = rows[first : first + look.lines]
    return [
        click.style(f"  {heading}", dim=True),
        *(_row(row, cells, look, chosen=row is here) for row in shown),
    ]


def _first_shown(rows: Sequence[Row], here: Row | None, lines: int) -> int:
    """So that the chosen one is in sight, in the middle if there is more on both sides."""
    place = next((place for place, row in enumerate(rows) if row is here), 0)
    return min(max(place - lines // 2, 0), max(len(rows) - lines, 0))


def columns(width: int) -> list[Cell]:
    """Those that fit, the most telling first, and the time bar with what is left."""
    name = min(max(width // 4, CONVERSATION_CELLS_MIN), CONVERSATION_CELLS_MAX)
    wanted = [
        (0, Cell("CONVERSATION", name)),
        (1, Cell("STATE", 9)),
        (2, Cell("FOR", 6, right=True)),
        (4, Cell("WAITING", 7, right=True)),
        (5, Cell("TURN", 8, right=True)),
        (6, Cell("AGENT", 12)),
    ]
    left = width - 2
    taken: list[tuple[int, Cell]] = []
    bar = 0
    for rank, cell in wanted:
        if rank > 2 and not bar:
            # The bar comes before the rest.
            bar = min(left - 1, BAR_CELLS_MAX) if left > BAR_CELLS_MIN else -1
            left -= BAR_CELLS_MIN + 1 if bar > 0 else 0
        if not taken or cell.width + 1 <= left:
            taken.append((rank, cell))
            left -= cell.width + 1
    if bar > 0:
        taken.append((7, Cell(f"LAST {SPAN_MS // 1_000}s", min(BAR_CELLS_MIN + max(left, 0), BAR_CELLS_MAX))))
    return [cell for _, cell in taken]


def _row(row: Row, cells: Sequence[Cell], look: Look, *, chosen: bool) -> str:
    view = row.view
    attempt = f"×{view.attempt}" if view.attempt > 1 else ""
    texts = {
        "CONVERSATION": view.conversation,
        "STATE": view.state,
        "FOR": _how_long(row, look.now),
        "WAITING": str(view.pending or ""),
        "TURN": f"{view.number or ''}{attempt}",
        "AGENT": view.agent,
    }
    parts = []
    for cell in cells:
        if cell.heading not in texts:
            parts.append(bar(row, look, cell.width))
            continue
        text = _padded(one_line(texts[cell.heading]), cell)
        colour = state_colour(view.state) if cell.heading == "STATE" else None
        parts.append(click.style(text, fg=colour, bold=chosen or None) if colour or chosen else text)
    return f"{click.style('>', fg='cyan', bold=True) if chosen else ' '} {' '.join(parts)}"


def _how_long(row: Row, now: int) -> str:
    return "" if row.state == "idle" else f"{'>' if row.longer else ''}{took(now - row.since)}"


def _padded(text: str, cell: Cell) -> str:
    shown = cut(text, cell.width)
    blanks = " " * (cell.width - cells_wide(shown))
    return blanks + shown if cell.right else shown + blanks


def bar(row: Row, look: Look, cells: int) -> str:
    """What the lane did lately, a cell for each stretch of time: the newest on the right."""
    whats = [_within(row, begin, end) for begin, end in _stretches(look.now, cells)]
    return "".join(_run(what, len(list(same)), look) for what, same in groupby(whats))


def _run(what: LaneState | Mark | None, many: int, look: Look) -> str:
    if what is None:
        return " " * many
    return click.style(look.glyphs[what] * many, fg=MARK_COLOURS.get(what) or state_colour(what))


def _stretches(now: int, cells: int) -> Iterator[tuple[int, int]]:
    for place in range(cells):
        yield now - SPAN_MS + SPAN_MS * place // cells, now - SPAN_MS + SPAN_MS * (place + 1) // cells


def _within(row: Row, begin: int, end: int) -> LaneState | Mark | None:
    """A mark in this time; else the state in it that matters most. None: nobody saw the lane then."""
    marked = {mark for at, mark in row.marks if begin < at <= end}
    for mark in MARKS:
        if mark in marked:
            return mark
    ends = [at for at, _ in row.past][1:]
    spans = [(at, over, state) for (at, state), over in zip(row.past, [*ends, end + 1], strict=True)]
    states = [state for at, over, state in spans if at <= end and over > begin and state is not None]
    return min(states, key=RANK.__getitem__, default=None)


# The story, and the foot


def _story(desk: Desk, width: int, room: int, told: Sequence[str]) -> list[str]:
    """As much as fits: its end, unless somebody scrolled back."""
    lines = [piece for line in told for piece in wrapped(line, width)] or ["…"]
    last = len(lines) - min(desk.scroll, max(len(lines) - room, 0))
    return lines[max(last - room, 0) : last]


def _legend(look: Look) -> Iterator[str]:
    whats: Sequence[LaneState | Mark] = ("gathering", "ready", "running", "waiting", "paused", "parked", "idle")
    yield " in the time bar: " + "  ".join(f"{_run(what, 1, look)} {what}" for what in whats)
    yield " and in a moment: " + "  ".join(f"{_run(mark, 1, look)} {MEANING[mark]}" for mark in MARKS)


def _foot(desk: Desk) -> Iterator[str]:
    yield _status(desk)
    yield click.style(KEYS_OF_A_STORY if desk.page == "story" else KEYS, dim=True)


def _status(desk: Desk) -> str:
    if desk.asked is not None:
        what = f"{desk.asked.verb} {one_line(desk.asked.conversation)}?"
        return f"{click.style(what, fg='yellow', bold=True)} y does it, any other key does not"
    if desk.typing:
        return f"find: {one_line(desk.text)}▏"
    if desk.told:
        return one_line(desk.told)
    chosen_by = [
        f"text {one_line(desk.text)!r}" if desk.text else "",
        f"state {desk.state}" if desk.state else "",
        f"channel {one_line(desk.channel)}" if desk.channel else "",
    ]
    only = ", ".join(filter(None, chosen_by))
    return click.style(f"by {desk.sort}{f'; only {only} (esc: all)' if only else ''}", dim=True)


# Fitting


def fitted(line: str, width: int) -> str:
    """The line, cut to so many cells; colours take none, and end with it."""
    pieces = wrapped(line, width)
    if len(pieces) <= 1:
        return pieces[0] if pieces else ""
    shorter = wrapped(line, max(width - 1, 0))
    return f"{shorter[0]}…" if width > 0 else ""


def wrapped(line: str, width: int) -> list[str]:
    """The line in pieces of at most so many cells, each with its colours."""
    if width <= 0:
        return [""]
    pieces, now, used, colour = [], "", 0, ""
    for token in OURS.split(line):
        if OURS.fullmatch(token):
            colour = "" if token == RESET else colour + token
            now += token
            continue
        for character in token:
            wide = cells_wide(character)
            if used + wide > width:
                pieces.append(now + (RESET if colour else ""))
                now, used = colour, 0
            if wide <= width:
                now += character
                used += wide
    return [*pieces, now + (RESET if colour else "")]
