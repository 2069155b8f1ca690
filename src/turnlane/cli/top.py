"""`turnlane top`: all lanes in a terminal, live, and what an operator does to them."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import click

from turnlane.backends import Backend
from turnlane.cli import common
from turnlane.cli.screen import Screen
from turnlane.cli.show import told
from turnlane.cli.steering import Steer
from turnlane.cli.table import one_line
from turnlane.cli.top_board import LANES_MAX, Board, Row
from turnlane.cli.top_desk import Desk, Seen, Steering, Verb, keys_in, last_key, pressed
from turnlane.cli.top_look import Lookout
from turnlane.cli.top_screen import ABOVE, BELOW, GLYPHS, Look, frame
from turnlane.clock import Clock, SystemClock
from turnlane.errors import TurnlaneError
from turnlane.event_loop import happens
from turnlane.flow import steer
from turnlane.model.view import Counts, LaneView
from turnlane.settings import Settings, without_password

EVERY_SECONDS = 1.0
STORY_MAX = 200
ESCAPE_SECONDS = 0.05
"""A key that begins with Escape is here as a whole by then; if not, it was Escape."""
WIDTH_IN_A_PIPE = 120

STEERING: Mapping[Verb, Steer] = {
    "pause": steer.pause,
    "resume": steer.resume,
    "stop": steer.stop,
    "retry": steer.retry,
}
WORDS: Mapping[Verb, str] = {
    "pause": "no more turns start",
    "resume": "resumed",
    "stop": "stopped",
    "retry": "starts now",
}


@click.command()
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3_600),
    default=EVERY_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Print what there is now, and end. So it does in a pipe.")
@click.option("--channel", metavar="NAME", help="Begin with lanes of this channel alone.")
@click.option(
    "--limit",
    type=click.IntRange(1, LANES_MAX),
    default=100,
    show_default=True,
    metavar="N",
    help="With --once or --json: at most so many lanes.",
)
@common.as_json
@common.reads_store
@click.pass_context
def command(
    ctx: click.Context,
    given: common.Given,
    every: float,
    once: bool,
    channel: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """All lanes, live: what runs and waits, since when, and what each did in the last minute. `?` tells the keys.

    With --json: one snapshot.
    """
    settings = given.load()
    desk = Desk(channel=channel)
    if as_json:
        common.echo_json(asyncio.run(_snapshot(settings, desk, limit)))
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        for line in asyncio.run(_once(settings, desk, limit)):
            click.echo(line.rstrip())
    else:
        asyncio.run(_live(settings, desk, every, plain=ctx.color is False))


# Once


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What --json tells."""

    at: int
    store: str
    counts: Counts | None
    turns_per_second: float
    messages_per_second: float
    lanes: list[Mapping[str, Any]]


async def _looked(settings: Settings) -> tuple[Board, int]:
    clock = SystemClock()
    async with common.opened(settings) as backend:
        lookout = Lookout(backend, clock)
        await lookout.look()
        return lookout.board, clock.now()


async def _once(settings: Settings, desk: Desk, limit: int) -> list[str]:
    board, now = await _looked(settings)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_IN_A_PIPE
    lanes = min(len(board.shown(channel=desk.channel)), limit)
    look = Look(width, ABOVE + lanes + BELOW, now, without_password(settings.backend), _only_ascii(), whole=True)
    return frame(board, desk, look)[:-BELOW]


async def _snapshot(settings: Settings, desk: Desk, limit: int) -> Snapshot:
    board, now = await _looked(settings)
    return Snapshot(
        at=now,
        store=without_password(settings.backend),
        counts=board.counts,
        turns_per_second=board.per_second("turn.answered", now),
        messages_per_second=board.per_second("message.accepted", now),
        lanes=[_lane(row) for row in board.shown(channel=desk.channel)[:limit]],
    )


def _lane(row: Row) -> Mapping[str, Any]:
    view: LaneView = row.view
    return {
        **{name: getattr(view, name) for name in view.__dataclass_fields__},
        "since": row.since,
        "past": [{"at": at, "state": state} for at, state in row.past],
        "marks": [{"at": at, "mark": mark} for at, mark in row.marks],
    }


def _only_ascii() -> bool:
    try:
        "".join(GLYPHS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


# Live


async def _live(settings: Settings, desk: Desk, every: float, *, plain: bool) -> None:
    screen = Screen(input=sys.stdin.fileno(), output=sys.stdout.fileno(), encoding=sys.stdout.encoding or "utf-8")
    async with common.opened(settings) as backend:
        store = without_password(settings.backend)
        top = Top(backend, screen, desk, every=every, store=store, machine=settings.this_machine, plain=plain)
        await top.run()


class Top:
    """The loop: look every so often, heed keys at once, and draw whenever something is new."""

    def __init__(
        self,
        backend: Backend,
        screen: Screen,
        desk: Desk,
        *,
        every: float,
        store: str,
        machine: str,
        plain: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.desk = desk
        self._backend = backend
        self._screen = screen
        self._clock = clock or SystemClock()
        self._lookout = Lookout(backend, self._clock)
        self._every = every
        self._store = store
        self._machine = machine
        self._plain = plain
        self._ascii = _only_ascii()
        self._story: list[str] = []
        self._left_over = ""
        self._new = asyncio.Event()
        self._look_now = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until somebody quits, or the terminal is gone."""
        with self._screen.taken(), self._heeding():
            self._start(self._look_on())
            try:
                while not self.desk.over:
                    self._draw()
                    await self._new.wait()
                    self._new.clear()
                    self._raise_what_broke()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _draw(self) -> None:
        look = Look(*self._screen.size, self._clock.now(), self._store, self._ascii)
        lines = frame(self._lookout.board, self.desk, look, self._story)
        self._screen.draw([click.unstyle(line) for line in lines] if self._plain else lines)

    # What it does beside

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._new.set())

    def _raise_what_broke(self) -> None:
        """Whatever a task could not decide about ends it all; the terminal is given back first."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    async def _look_on(self) -> None:
        while True:
            self._look_now.clear()
            await self._lookout.try_to_look()
            await self._read_story()
            self._new.set()
            await happens(self._look_now, within=self._every)

    async def _read_story(self) -> None:
        conversation = self.desk.selected
        if self.desk.page != "story" or conversation is None:
            return
        try:
            story = await self._backend.story(conversation, limit=STORY_MAX)
        except TurnlaneError as error:
            self._story = [one_line(str(error))]
            return
        self._story = ["it is not there any more"] if story is None else list(told(story, self._clock.now()))

    async def _steer(self, todo: Steering) -> None:
        try:
            steered = await STEERING[todo.verb](self._backend, todo.conversation)
        except TurnlaneError as error:
            said = str(error)
        else:
            lane = steered.lane
            self._lookout.board.see(lane, self._clock.now())
            words = WORDS[todo.verb] if steered.done else f"there is nothing to {todo.verb}"
            untold = await common.write_down(
                self._backend, self._machine, f"turnlane top {todo.verb} {todo.conversation}", todo.conversation
            )
            said = untold or f"{words}: {lane.conversation} is {lane.state}, {lane.pending} to be answered"
        self.desk = replace(self.desk, told=said)
        self._look_now.set()

    # What it heeds

    @contextmanager
    def _heeding(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGINT: self._quit,
            signal.SIGTERM: self._quit,
            signal.SIGHUP: self._quit,
            signal.SIGWINCH: self._new.set,
            signal.SIGTSTP: self._pause,
            signal.SIGCONT: self._go_on,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        loop.add_reader(self._screen.input, self._read)
        try:
            yield
        finally:
            loop.remove_reader(self._screen.input)
            for number in handlers:
                loop.remove_signal_handler(number)

    def _quit(self) -> None:
        self.desk = replace(self.desk, over=True)
        self._new.set()

    def _pause(self) -> None:
        self._screen.pause()
        self._new.set()

    def _go_on(self) -> None:
        self._screen.take()
        self._new.set()

    def _read(self) -> None:
        typed = self._screen.typed()
        if typed is None:
            self._quit()
            return
        keys, self._left_over = keys_in(self._left_over + typed)
        self._press(keys)
        if self._left_over:
            asyncio.get_running_loop().call_later(ESCAPE_SECONDS, self._nothing_follows, self._left_over)

    def _nothing_follows(self, left_over: str) -> None:
        if self._left_over == left_over:
            self._left_over = ""
            self._press(last_key(left_over))

    def _press(self, keys: Sequence[str]) -> None:
        board = self._lookout.board
        look = Look(*self._screen.size, self._clock.now())
        for key in keys:
            before = self.desk
            rows = board.shown(text=before.text, state=before.state, channel=before.channel, sort=before.sort)
            self.desk, todo = pressed(before, key, Seen(rows, board.channels, look.lines))
            if todo is not None:
                self._start(self._steer(todo))
            if self.desk.page == "story" != before.page:
                self._story = []
                self._start(self._read_story())
        self._new.set()
