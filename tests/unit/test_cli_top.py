"""`turnlane top`: what it knows, how it looks on every size of screen, and what each key does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace

import click
import pytest
from tests.unit.test_cli import AT_ONCE, URL, Life, call
from tests.unit.test_cli_explain import folder, lived  # noqa: F401 - a fixture of every test here

from turnlane.backends import open_backend
from turnlane.backends.base import Arrival
from turnlane.backends.memory import MemoryBackend
from turnlane.cli.table import cells_wide
from turnlane.cli.top_board import LANES_MAX, SPAN_MS, Board, Row
from turnlane.cli.top_desk import Desk, Seen, Steering, keys_in, last_key, pressed
from turnlane.cli.top_look import Lookout, Paced
from turnlane.cli.top_screen import ASCII, GLYPHS, Look, bar, columns, fitted, frame, wrapped
from turnlane.errors import BackendUnavailable
from turnlane.model.event import Event
from turnlane.model.lane import Kind, LaneState
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply
from turnlane.model.view import Counts, LaneView
from turnlane.testing.doubles import VirtualClock

NOW = 1_800_000_000_000
HOSTILE = "site/\x1b]0;owned\x07\x1b[2J\x9b31m\r\nroot\u202eevil"
WIDE = "site/まだ届いていません😢😢😢e\u0301"
COUNTS = Counts({"running": 2, "parked": 1, "idle": 4_000}, 12, 3, 1, 2, 5, 2, NOW - 7_000)


def lane(name: str = "site/alice", state: LaneState = "idle", **facts: object) -> LaneView:
    return replace(LaneView(name, Kind.TURN, state, 0, 1, 1, 0, "clerk", 1), **facts)  # type: ignore[arg-type]


def a_board(*lanes: LaneView, counts: Counts | None = COUNTS) -> Board:
    board = Board()
    board.counts = counts
    board.look(lanes, NOW)
    return board


def told(name: str, at: int, conversation: str = "site/alice", **facts: str | int) -> Event:
    return Event(name, at, conversation, facts)


# What it knows


def test_events_move_a_lane_between_two_looks() -> None:
    board = a_board(lane())
    row = board.rows["site/alice"]
    board.hear([told("message.accepted", NOW + 1, pending=1), told("message.accepted", NOW + 2, pending=2)])
    assert (row.state, row.view.pending) == ("gathering", 2)
    board.hear([told("turn.started", NOW + 3, turn=4, attempt=1, epoch=9, worker="w1", messages=2)])
    assert (row.state, row.view.number, row.view.owner, row.since) == ("running", 4, "w1", NOW + 3)
    board.hear([told("message.accepted", NOW + 4, pending=3)])
    assert row.state == "running"
    board.hear([told("turn.retried", NOW + 5, turn=4, attempt=1, epoch=9, worker="w1", cause="503", retry_at=NOW + 99)])
    assert (row.state, row.view.retry_at, row.view.owner) == ("waiting", NOW + 99, None)
    board.hear([told("turn.started", NOW + 6, turn=4, attempt=2, epoch=10, worker="w2", messages=2)])
    board.hear([told("turn.answered", NOW + 7, turn=4)])
    assert (row.state, row.view.pending) == ("gathering", 1)
    assert [state for _, state in row.past] == [
        "idle", "gathering", "running", "waiting", "running", "gathering"
    ]  # fmt: skip
    assert [mark for _, mark in row.marks] == ["retried", "answered"]


def test_a_lane_that_nobody_has_read_yet_is_known_by_its_events() -> None:
    board = a_board()
    board.hear([told("message.accepted", NOW, "site/new", pending=1)])
    assert [row.conversation for row in board.shown()] == ["site/new"]


@pytest.mark.parametrize(
    ("event", "state"),
    [("lane.paused", "paused"), ("lane.parked", "parked"), ("lane.resumed", "idle"), ("lane.unparked", "idle")],
)
def test_what_is_done_to_the_outbox_is_not_taken_for_the_turns(event: str, state: LaneState) -> None:
    before: LaneState = "idle" if state != "idle" else "paused"
    board = a_board(lane(state=before))
    board.hear([told(event, NOW + 1, kind="out")])
    assert board.rows["site/alice"].state == before
    board.hear([told(event, NOW + 1, kind="turn")])
    assert board.rows["site/alice"].state == state


def test_a_look_corrects_what_events_have_made_of_it() -> None:
    board = a_board(lane(state="gathering"), lane("site/gone"))
    board.look([lane(state="ready", pending=7)], NOW + 50)
    assert list(board.rows) == ["site/alice"]
    assert (board.rows["site/alice"].state, board.rows["site/alice"].since) == ("ready", NOW + 50)


def test_what_nobody_has_heard_is_left_blank_in_the_bar() -> None:
    board = a_board(lane(state="gathering", first_at=NOW - 90_000))
    board.miss(NOW + 10_000, NOW + 30_000)
    board.look([lane(state="running")], NOW + 30_000)
    shown = click.unstyle(bar(board.rows["site/alice"], Look(80, 24, NOW + 30_000), 12))
    assert shown == "░░░░░░░░   █", "of the last twenty seconds only how they ended is known"


def test_a_lane_without_events_was_for_all_the_time_that_was_heard_as_it_is() -> None:
    for heard_since, cells in ((NOW - 90_000, "════════════"), (NOW - 9_000, "          ══"), (None, "           ═")):
        board = Board()
        if heard_since is not None:
            board.begin(heard_since)
        board.look([lane(state="paused")], NOW)
        row = board.rows["site/alice"]
        assert click.unstyle(bar(row, Look(80, 24, NOW), 12)) == cells
        assert row.longer


def test_what_matters_comes_first() -> None:
    board = a_board(
        lane("site/idle"),
        lane("site/parked", "parked"),
        lane("site/waiting", "waiting"),
        lane("site/short", "running", claimed_at=NOW - 1_000),
        lane("site/long", "running", claimed_at=NOW - 9_000),
    )
    names = ["site/long", "site/short", "site/waiting", "site/parked", "site/idle"]
    assert [row.conversation for row in board.shown()] == names
    assert [row.conversation for row in board.shown(sort="name")] == sorted(names)


def test_lanes_are_chosen_by_text_state_and_channel() -> None:
    board = a_board(lane("site/alice", "running"), lane("site/bob"), lane("desk/alice", "paused"))
    assert board.channels == ["desk", "site"]
    assert {row.conversation for row in board.shown(text="ALI")} == {"site/alice", "desk/alice"}
    assert {row.conversation for row in board.shown(state="paused")} == {"desk/alice"}
    assert {row.conversation for row in board.shown(channel="site", text="clerk")} == {"site/alice", "site/bob"}


def test_rates_are_means_of_the_last_ten_seconds() -> None:
    board = a_board()
    board.hear([told("turn.answered", NOW - second * 1_000, turn=1) for second in range(1, 21) for _ in range(3)])
    assert board.per_second("turn.answered", NOW) == 3.0
    assert board.per_second("message.accepted", NOW) == 0.0
    assert board.per_second("turn.answered", NOW + 60_000) == 0.0


def test_however_many_lanes_there_are_it_keeps_only_so_many() -> None:
    board = a_board(lane("site/running", "running"))
    board.hear([told("message.accepted", NOW, f"site/{number}", pending=1) for number in range(LANES_MAX + 50)])
    assert len(board.rows) == LANES_MAX
    assert "site/running" in board.rows


# How it looks

SIZES = [(200, 60), (120, 30), (80, 24), (60, 10), (40, 8), (20, 5), (10, 3), (3, 2), (1, 1)]


@pytest.mark.parametrize("page", ["lanes", "story", "help"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_frame_is_larger_than_the_screen(width: int, height: int, page: str) -> None:
    lanes = [lane(HOSTILE, "running", agent=HOSTILE), lane(WIDE, "waiting"), *(lane(f"site/{n}") for n in range(99))]
    board = a_board(*lanes)
    desk = Desk(page=page, asked=Steering("stop", WIDE))  # type: ignore[arg-type]
    story = [click.style(WIDE * 20, fg="red"), "", "short"]
    lines = frame(board, desk, Look(width, height, NOW, store="sqlite:///a.db"), story)
    assert len(lines) <= height
    assert all(cells_wide(click.unstyle(line)) <= width for line in lines)


@pytest.mark.parametrize("page", ["lanes", "story", "help"])
def test_nothing_that_people_write_reaches_the_terminal_raw(page: str) -> None:
    board = a_board(lane(HOSTILE, "running", agent=HOSTILE))
    board.trouble = HOSTILE
    for desk in (
        Desk(page=page, asked=Steering("pause", HOSTILE)),  # type: ignore[arg-type]
        Desk(page=page, told=HOSTILE),  # type: ignore[arg-type]
        Desk(page=page, text=HOSTILE[:3], channel="site"),  # type: ignore[arg-type]
        Desk(page=page, text=HOSTILE, typing=True),  # type: ignore[arg-type]
    ):
        shown = "".join(frame(board, desk, Look(150, 40, NOW, store=HOSTILE)))
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert not [character for character in plain if ord(character) < 32 or 0x7F <= ord(character) < 0xA0]
        assert "\u202e" not in plain


def test_the_header_tells_what_there_is() -> None:
    board = a_board(lane("site/alice", "running", claimed_at=NOW - 4_000, pending=3, attempt=2))
    lines = [click.unstyle(line) for line in frame(board, Desk(), Look(140, 12, NOW, store="sqlite:///a.db"))]
    assert lines[0].endswith("turnlane  0.0 turns/s  0.0 messages/s  sqlite:///a.db")
    assert lines[1] == "workers 2   lanes 4,003: 2 running · 1 parked · 4,000 idle"
    assert lines[2] == "12 messages and 3 deliveries wait   1 failed   2 dead letters   oldest due 7.0s"
    assert re.match(r"> site/alice +running +4\.0s +3 +1×2 clerk", lines[5])


def test_a_store_that_is_down_is_said_and_the_lanes_stay() -> None:
    board = a_board(lane("site/alice", "running"))
    board.trouble, board.trouble_since = "the server is away; start it", NOW - 12_000
    lines = [click.unstyle(line) for line in frame(board, Desk(), Look(140, 12, NOW))]
    assert "the store does not answer (12s ago): the server is away; start it" in lines[0]
    assert any("site/alice" in line for line in lines)


def test_the_bar_shows_the_last_minute_newest_on_the_right() -> None:
    row = Row(lane(), NOW)
    row.past.extend([(NOW - 40_000, "gathering"), (NOW - 30_000, "running"), (NOW - 10_000, "idle")])
    row.marks.extend([(NOW - 25_000, "retried"), (NOW - 10_000, "answered")])
    assert click.unstyle(bar(row, Look(80, 24, NOW), 12)) == "   ░░█!██✓··"
    assert click.unstyle(bar(row, Look(80, 24, NOW, ascii=True), 12)) == "   ::#!##v.."
    assert click.unstyle(bar(row, Look(80, 24, NOW + SPAN_MS), 12)) == "·" * 12


def test_glyphs_take_one_cell_each() -> None:
    assert set(GLYPHS) == set(ASCII)
    assert len(set(GLYPHS.values())) == len(set(ASCII.values())) == len(GLYPHS), "each means one thing, without colour"
    assert all(cells_wide(glyph) == 1 for glyph in [*GLYPHS.values(), *ASCII.values()])
    assert all(glyph.isascii() for glyph in ASCII.values())


def test_columns_fit_and_the_name_is_always_there() -> None:
    for width in range(1, 220):
        cells = columns(width)
        assert cells[0].heading == "CONVERSATION"
        assert sum(cell.width + 1 for cell in cells) + 1 <= max(width, 16)
    assert [cell.heading for cell in columns(30)] == ["CONVERSATION", "STATE"]
    assert [cell.heading for cell in columns(60)][-1] == "LAST 60s"


def test_lines_are_cut_and_wrapped_by_cells_and_keep_their_colours() -> None:
    red = click.style("まだ届いて", fg="red")
    assert [click.unstyle(piece) for piece in wrapped(red, 4)] == ["まだ", "届い", "て"]
    assert all(piece.startswith("\x1b[31m") and piece.endswith("\x1b[0m") for piece in wrapped(red, 4))
    assert click.unstyle(fitted(red, 5)) == "まだ…"
    assert fitted(red, 10) == red
    assert fitted("plain", 3) == "pl…"


# Keys

ROWS = [Row(lane(f"site/{name}", state), NOW) for name, state in (("a", "running"), ("b", "paused"), ("c", "waiting"))]  # type: ignore[arg-type]
SEEN = Seen(ROWS, ["desk", "site"], lines=2)


def after(*keys: str, desk: Desk | None = None) -> Desk:
    desk = desk or Desk()
    for key in keys:
        desk, _ = pressed(desk, key, SEEN)
    return desk


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        (["down"], "site/b"),
        (["j", "j"], "site/c"),
        (["j", "j", "j", "k"], "site/b"),
        (["end"], "site/c"),
        (["G", "up"], "site/b"),
        (["page down"], "site/c"),
        (["G", "home"], "site/a"),
        (["up"], "site/a"),
    ],
)
def test_keys_choose_a_conversation(keys: Sequence[str], selected: str) -> None:
    assert after(*keys).selected == selected


def test_keys_choose_what_is_shown_and_how() -> None:
    assert after("/", "a", "l", "x", "backspace", "enter").text == "al"
    assert after("/", "q", "p").text == "qp", "while typing, keys are letters"
    assert after("/", "a", "escape") == Desk()
    assert after("s").state == "idle"
    assert after("s", "s", "s", "s").state == "running"
    assert after(*"ssssssss").state is None
    assert after("c", "c").channel == "site"
    assert after("c", "c", "c").channel is None
    assert after("o").sort == "name"
    assert after("s", "c", "escape") == Desk()


def test_enter_opens_the_story_and_q_leaves_one_thing_after_the_other() -> None:
    story = after("j", "enter")
    assert (story.page, story.selected) == ("story", "site/b")
    assert after("up", "page up", "down", desk=story).scroll == 2
    assert after("q", desk=story).page == "lanes"
    assert after("?").page == "help"
    assert after("?", "escape").page == "lanes"
    assert after("q").over
    assert not after("q", desk=story).over


@pytest.mark.parametrize(
    ("keys", "todo"),
    [
        (["p"], Steering("pause", "site/a")),
        (["j", "p"], Steering("resume", "site/b")),
        (["x"], Steering("stop", "site/a")),
        (["G", "r"], Steering("retry", "site/c")),
        (["j", "enter", "x"], Steering("stop", "site/b")),
    ],
)
def test_what_changes_something_is_asked_first(keys: Sequence[str], todo: Steering) -> None:
    asked = after(*keys)
    assert asked.asked == todo
    assert pressed(asked, "y", SEEN)[1] == todo
    for key in ("n", "escape", "enter", "q", "x", " "):
        desk, done = pressed(asked, key, SEEN)
        assert (done, desk.asked, desk.over) == (None, None, False)
        assert "nothing was done" in desk.told


def test_without_a_conversation_nothing_is_asked() -> None:
    desk, todo = pressed(Desk(), "x", Seen([]))
    assert (desk.asked, todo) == (None, None)
    assert pressed(Desk(), "down", Seen([])) == (Desk(), None)
    assert pressed(Desk(), "enter", Seen([])) == (Desk(), None)


@pytest.mark.parametrize(
    ("typed", "keys", "left"),
    [
        ("jk", ["j", "k"], ""),
        ("\x1b[A\x1b[Bq", ["up", "down", "q"], ""),
        ("\x1bOA\x1b[5~", ["up", "page up"], ""),
        ("\x1b", [], "\x1b"),
        ("\x1b[", [], "\x1b["),
        ("j\x1b[1", ["j"], "\x1b[1"),
        ("\x1b[200~x", ["x"], ""),
        ("\x1bx", ["escape", "x"], ""),
        ("\r\x7f", ["enter", "backspace"], ""),
        ("é日", ["é", "日"], ""),
        ("\x1b[" + "1" * 40, [], ""),
    ],
)
def test_what_a_terminal_sends_is_read_as_keys(typed: str, keys: Sequence[str], left: str) -> None:
    assert keys_in(typed) == (keys, left)
    assert last_key(left) == (["escape"] if left else [])


# Reading the store


async def test_what_is_dear_is_read_less_often() -> None:
    clock = VirtualClock()
    paced = Paced(clock, share_max=0.1)

    async def read() -> int:
        clock.advance(200)
        return 1

    assert await paced.run(read) == 1
    assert await paced.run(read) is None
    clock.advance(1_799)
    assert await paced.run(read) is None
    clock.advance(1)
    assert await paced.run(read) == 1


async def test_a_flood_of_events_is_read_as_far_back_as_is_light(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    backend = MemoryBackend("memory://", clock)
    monkeypatch.setattr("turnlane.cli.top_look.EVENTS_AT_ONCE", 50)
    monkeypatch.setattr("turnlane.flow.lately.EVENTS_MAX", 400)
    monkeypatch.setattr("turnlane.flow.lately.REACH", 100)

    async def flood(seconds: int) -> None:
        for number in range(seconds * 40):
            message = Message("site", f"m-{clock.now()}-{number}", f"site/{number % 7}", "a", "hi")
            await backend.accept([Arrival(message, AT_ONCE)])
            clock.advance(25)

    await flood(30)
    lookout = Lookout(backend, clock)
    await lookout.look()
    since = lookout.board.heard_since
    assert since is not None
    assert clock.now() - 15_000 < since < clock.now() - 5_000, "400 of 40 a second"
    assert lookout.board.per_second("message.accepted", clock.now()) > 30
    await flood(30)
    await lookout.look()
    assert lookout.board.heard_since == clock.now(), "too many to be read at once"
    assert all(row.past[-2][1] is None for row in lookout.board.rows.values())


async def test_a_store_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    backend = MemoryBackend("memory://", clock)
    await backend.accept([Arrival(Message("site", "m-1", "site/alice", "alice", "hi"), AT_ONCE)])
    lookout = Lookout(backend, clock)
    await lookout.try_to_look()

    async def away(**asked: object) -> list[object]:
        raise BackendUnavailable("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "changes", away)
        await lookout.try_to_look()
        troubled = lookout.board.trouble
    assert troubled == "the server is away"
    assert list(lookout.board.rows) == ["site/alice"]
    await lookout.try_to_look()
    assert lookout.board.trouble is None


# Once


async def two_people(life: Life) -> None:
    await life.say("site/alice", "hi", id="m-1")
    await life.end(Replied(Reply("hello")))
    await life.say("site/bob", "where is my parcel?", id="m-2")


def test_in_a_pipe_it_prints_one_frame_and_ends() -> None:
    lived(two_people)
    result = call("top")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1] == "workers 1   lanes 2: 1 ready · 1 idle"
    assert re.match(r"> site/bob +ready", lines[5])
    assert "\x1b" not in result.stdout
    assert call("top", "--once", "--limit", "1").stdout.count("site/") == 1
    assert "no such lanes" in call("top", "--channel", "desk").stdout


def test_in_json_it_is_one_snapshot() -> None:
    lived(two_people)
    told = json.loads(call("top", "--json").stdout)
    assert sorted(told) == ["at", "counts", "lanes", "messages_per_second", "store", "turns_per_second"]
    bob, alice = told["lanes"]
    assert (bob["conversation"], bob["state"], bob["pending"]) == ("site/bob", "ready", 1)
    assert alice["marks"][-1]["mark"] == "answered"
    assert {each["state"] for each in alice["past"]} >= {"running", "idle"}
    assert told["counts"]["lanes"] == {"ready": 1, "idle": 1}


def test_without_a_store_it_says_so() -> None:
    result = call("top")
    assert result.exit_code == 1
    assert "turnlane run" in result.stderr


def test_with_five_thousand_lanes_a_look_is_light() -> None:
    """Not by the clock: by how many rows are read."""
    calls: list[str] = []

    async def looked() -> None:
        clock = VirtualClock()
        backend = open_backend(f"{URL}?synchronous=off", clock)
        await backend.open()
        arrivals = [Arrival(Message("site", f"m-{n}", f"site/{n}", "a", "hi"), Policy()) for n in range(300)]
        await backend.accept(arrivals)
        lookout = Lookout(backend, clock)
        lanes = backend.lanes

        async def slowly(**asked: object) -> list[LaneView]:
            calls.append("lanes")
            clock.advance(500)
            return await lanes(**asked)  # type: ignore[arg-type]

        backend.lanes = slowly  # type: ignore[method-assign]
        for _ in range(20):
            await lookout.look()
            clock.advance(1_000)
        assert len(lookout.board.rows) == 300
        await backend.close()

    asyncio.run(looked())
    assert len(calls) <= 3, "half a second each is one in ten seconds"
