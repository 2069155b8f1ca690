"""`turnlane chat`: talk to a running server from the terminal, through its web channel."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
import httpx2
import msgspec

from turnlane.cli import common
from turnlane.cli.main import EXIT_UNAVAILABLE, EXIT_WAITED, Failed
from turnlane.cli.table import cells_wide, end_of, one_line
from turnlane.clock import SystemClock
from turnlane.errors import NotFound
from turnlane.event_loop import happens
from turnlane.model.delivery import with_options
from turnlane.settings import Settings, WebChannel

PROMPT = "› "
CLEAR_LINE = "\r\x1b[K"
QUIT = "/quit"
AT_WORK = "an answer is being made"
ROOM_TO_TYPE = 12
"""Cells that a glimpse leaves free: the first key is echoed behind it, before it makes room."""

REQUEST_SECONDS_MAX = 20.0
SILENCE_SECONDS_MAX = 40.0
"""A stream that says nothing for so long is dead: it sends a comment every 15 s."""
RETRY_SECONDS_FIRST = 0.25
RETRY_SECONDS_MAX = 5.0
FURTHER_PARTS_SECONDS = 0.5
"""At the end of a pipe: how long a reply may take to be followed by its next part."""
LOOK_SECONDS = 1.0
"""And how often it is asked what became of the lines: the stream tells of replies alone."""
CLOSE_SECONDS_MAX = 5.0
TYPING_LOOK_SECONDS = 0.1
"""How soon a glimpse makes room for who begins to type."""
LAST_LINE_SECONDS = 3.0
"""How long, at the end, a server that is there may take to store what was just typed."""

TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")

ON_ITS_WAY = frozenset({"waiting", "kept"})
UNANSWERED = {
    "refused": "not taken",
    "dropped": "dropped, as too much was waiting",
    "given_up": "could not be answered",
    "set_aside": "set aside",
}

UNREACHED = (httpx2.HTTPError, OSError, msgspec.DecodeError)
"""No answer, or half of one: the server may have the line or not, and the same id makes sending it again safe."""


@click.command()
@click.argument("conversation", required=False)
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="In a pipe: how long to wait for replies once the input has ended.",
)
@common.reaches_server
@click.pass_context
def command(ctx: click.Context, given: common.Given, conversation: str | None, seconds: float) -> None:
    """Talk in CONVERSATION (CHANNEL/TOKEN of a web channel), or in a new one. Each line is a message; /quit ends.

    Needs a running server. In a pipe each line of the input is a message, and replies alone go to standard output.
    """
    settings = given.load()
    place = _place(settings, conversation)
    screen = Screen(color=ctx.color)
    with suppress(KeyboardInterrupt), _connected(Talk(place, screen)) as connection:  # Ctrl-C is how talking ends, too.
        connection.wait(connection.talk.begin())
        for line in screen.lines():
            connection.do(connection.talk.say, line)
        if not screen.live:
            connection.wait(connection.talk.answered(seconds))


@dataclass(frozen=True, slots=True)
class Place:
    """One conversation on one server."""

    server: str
    channel: str
    token: str
    is_new: bool

    @property
    def key(self) -> str:
        return f"{self.channel}/{self.token}"


def _place(settings: Settings, conversation: str | None) -> Place:
    web = [name for name, channel in settings.channels.items() if isinstance(channel, WebChannel)]
    if not web:
        raise NotFound('no web channel to talk through; add [channels.web] with kind = "web" to turnlane.toml')
    server = common.server_of(settings)
    if conversation is None:
        clock = SystemClock()
        return Place(server, web[0], clock.token() + clock.token(), is_new=True)
    channel, _, token = conversation.rpartition("/")
    channel = channel or web[0]
    if channel not in web:
        raise NotFound(f"{channel!r} is no web channel; those of this server are {', '.join(web)}")
    if not TOKEN.fullmatch(token):
        raise click.BadParameter(
            "a web conversation is known by a random token of 16 to 128 letters, digits, _ and -; "
            "leave it out to begin a new one"
        )
    return Place(server, channel, token, is_new=False)


# The terminal, in the main thread: only there can a line be edited, and only there does Ctrl-C arrive.


class Screen:
    """What the person sees. On a terminal everything is put above the line that is being typed."""

    def __init__(self, *, color: bool | None) -> None:
        self.live = sys.stdin.isatty() and sys.stdout.isatty()
        self._color = color
        self._typed: Callable[[], str] = str
        self._prompting = False
        self._preview: str | None = None
        self._is_at_work = False
        self._is_asked = False
        self._glimpsed: str | None = None

    def lines(self) -> Iterator[str]:
        """What is typed, until the end of the input or /quit."""
        for line in self._prompted() if self.live else self._piped():
            if line.strip() == QUIT:
                return
            if line.strip():
                yield line

    def _prompted(self) -> Iterator[str]:
        import readline  # changes how input() works, and tells what is in its line

        self._typed = readline.get_line_buffer
        readline.set_pre_input_hook(self._prompt_is_there)
        try:
            while True:
                line = input(PROMPT)
                self._prompting = False
                yield line
        except (EOFError, KeyboardInterrupt):
            self._prompting = False
            click.echo()

    def _prompt_is_there(self) -> None:
        self._glimpsed = None
        self._prompting = True

    @staticmethod
    def _piped() -> Iterator[str]:
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe may bring anything
        for line in sys.stdin:
            yield line.rstrip("\r\n")

    def said(self, name: str, text: str, colour: str) -> None:
        """A line of the conversation; in a pipe the text alone."""
        lines = [one_line(line) for line in text.splitlines() or [""]]
        if not self.live:
            click.echo("\n".join(lines))
            return
        indent = "\n" + " " * (len(name) + 2)
        self._put(f"{click.style(name, fg=colour)}  {indent.join(lines)}")

    def preview(self, text: str | None) -> None:
        """What there is of the answer that is being made; None if there is no more to see."""
        self._preview = text
        self.glimpse()

    def at_work(self, is_at_work: bool) -> None:
        """Whether an answer is to be expected."""
        self._is_at_work = is_at_work
        self.glimpse()

    def asked(self, is_asked: bool) -> None:
        """Whether it is the person's turn: an answer is to be expected only once they have said something."""
        self._is_asked = is_asked
        self.glimpse()

    def glimpse(self) -> None:
        """The end of what is being said, in the line of the prompt, as long as nobody types there."""
        if not self._prompting:
            return
        at_work = AT_WORK if self._is_at_work and not self._is_asked else None
        shown = None if self._typed() else self._preview or at_work
        if shown == self._glimpsed:
            return
        if shown is None:
            click.echo(f"{self._cleared()}{PROMPT}{self._typed()}", nl=False)
        else:
            end = end_of(one_line(shown.rstrip().rpartition("\n")[2]), _columns() - ROOM_TO_TYPE)
            click.echo(self._cleared() + click.style(f"… {end}", dim=True), nl=False, color=self._color)
        self._glimpsed = shown

    def note(self, text: str) -> None:
        if self.live:
            self._put(click.style(f"· {one_line(text)}", dim=True))
        else:
            click.echo(one_line(text), err=True)

    def _put(self, text: str) -> None:
        before, after = (self._cleared(), f"{PROMPT}{self._typed()}") if self._prompting else ("", "")
        click.echo(f"{before}{text}\n{after}", nl=False, color=self._color)
        self._glimpsed = None

    def _cleared(self) -> str:
        """Back to where the prompt begins, also of a line that has grown over several of the terminal."""
        rows_above = 0 if self._glimpsed is not None else cells_wide(PROMPT + self._typed()) // _columns()
        return CLEAR_LINE if not rows_above else f"\r\x1b[{rows_above}A\x1b[J"


def _columns() -> int:
    return shutil.get_terminal_size().columns


# The server, in a thread with a loop of its own.


@dataclass(frozen=True, slots=True)
class Line:
    id: str
    text: str


class Talk:
    """Sends each line until it is stored, always under the same id, and shows replies from the last one seen on."""

    def __init__(self, place: Place, screen: Screen) -> None:
        self._place = place
        self._screen = screen
        self._path = f"/channels/{place.channel}"
        self._clock = SystemClock()
        self._unsent: deque[Line] = deque()
        self._unanswered: dict[str, Line] = {}
        self._after = 0
        self._fates: dict[str, str] = {}
        """Of lines that nobody answers."""
        self._is_kept = False
        """What was said waits, and nobody is at work on it."""
        self._is_unclear = asyncio.Event()
        """What became of it is to be asked."""
        self._lost = False
        self._moved = asyncio.Event()
        """Something was typed, stored or answered, or the server came back."""
        self._tasks: list[asyncio.Task[None]] = []
        self._client = httpx2.AsyncClient(
            base_url=place.server,
            trust_env=False,
            timeout=httpx2.Timeout(REQUEST_SECONDS_MAX, read=SILENCE_SECONDS_MAX),
        )

    async def begin(self) -> None:
        """Show what was said before, then follow. Raises Failed if there is nobody to talk to."""
        history = await self._history()
        self._after = history["after"]
        if self._screen.live:
            self._screen.note(f"{self._place.key} on {self._place.server}; {QUIT} ends")
            for line in history["lines"]:
                self._show(line)
        if self._place.is_new:
            self._screen.note(f"a new conversation; come back to it with `turnlane chat {self._place.key}`")
        works = [
            self._send(),
            self._follow(),
            *([self._give_way(), self._look_when_unclear()] if self._screen.live else []),
        ]
        self._tasks = [asyncio.create_task(work) for work in works]

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_LINE_SECONDS):
                while self._unsent and not self._lost:
                    await self._until_moved()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()
        if self._unsent:
            many = "1 line" if len(self._unsent) == 1 else f"{len(self._unsent)} lines"
            raise Failed(f"{many} could not be stored: the server does not answer", EXIT_UNAVAILABLE)

    def say(self, text: str) -> None:
        line = Line(self._clock.token(), text)
        self._unsent.append(line)
        self._unanswered[line.id] = line
        self._screen.asked(False)
        self._moved.set()

    async def answered(self, seconds: float) -> None:
        """Wait until every line has its reply, or will have none. Raises Failed if one has none that should."""
        try:
            async with asyncio.timeout(seconds):
                while self._unanswered:
                    if not await self._moves(within=LOOK_SECONDS):
                        await self._look()
        except TimeoutError:
            if self._unsent:
                return  # said when the connection is closed
            raise self._no_reply(f"no reply within {seconds:g}s", next(iter(self._unanswered))) from None
        await self._until_quiet()
        for id_, fate in self._fates.items():
            raise self._no_reply(fate, id_)

    def _no_reply(self, why: str, id_: str) -> Failed:
        message = f"{self._place.channel}:{self._place.token}/{id_}"
        return Failed(f"{why}; `turnlane explain {message}` tells more", EXIT_WAITED)

    async def _until_quiet(self) -> None:
        while await self._moves(within=FURTHER_PARTS_SECONDS):
            pass

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _moves(self, *, within: float) -> bool:
        self._moved.clear()
        return await happens(self._moved, within=within)

    # Before

    async def _history(self) -> Any:
        try:
            answer = await self._client.get(f"{self._path}/{self._place.token}/history", params={"files": "no"})
        except UNREACHED:
            raise Failed(
                f"no server answers on {self._place.server}; start one with `turnlane run`, "
                "or name the address of another with --listen",
                EXIT_UNAVAILABLE,
            ) from None
        if answer.status_code != 200:
            raise Failed(f"{self._place.server} cannot be talked to: {_detail(answer)}")
        with suppress(msgspec.DecodeError):
            history = msgspec.json.decode(answer.content)
            if isinstance(history, dict) and {"lines", "after"} <= history.keys():
                return history
        raise Failed(f"what answers on {self._place.server} is no Turnlane server; name another with --listen")

    # What became of what was said

    async def _look_when_unclear(self) -> None:
        while True:
            await self._is_unclear.wait()
            self._is_unclear.clear()
            await self._look()

    async def _look(self) -> None:
        states, _ = await self._states()
        self._tell_if_kept("kept" in states.values())
        settled = {id_: state for id_, state in states.items() if state not in ON_ITS_WAY}
        # A reply is stored with what settles its line: asked once more, it is seen if there is one.
        if settled and (await self._states())[1]:
            for id_, state in settled.items():
                self._unanswered.pop(id_, None)
                if state in UNANSWERED:
                    self._fates[id_] = UNANSWERED[state]

    async def _states(self) -> tuple[dict[str, str], bool]:
        """Of each stored line that has no reply here; and whether all replies that there are by now have come here."""
        wanted = self._unanswered.keys() - {line.id for line in self._unsent}
        states: dict[str, str] = {}
        page = newest = await self._page()
        if newest is not None and any(line.get("options") for line in newest["lines"]):
            self._screen.asked(True)  # still: what was said was a command
        while page is not None:
            states |= {line["id"]: line["state"] for line in page["lines"] if line["from"] == "visitor"}
            if not page["more"] or wanted <= states.keys():
                break
            page = await self._page(before=page["lines"][0]["id"])
        is_all = newest is not None and not newest.get("unsent", True) and newest["after"] <= self._after
        return {id_: states[id_] for id_ in wanted & states.keys()}, is_all

    async def _page(self, **place: str) -> Any:
        """Of the history. None: the server is away, or has something else to say; the stream tells."""
        with suppress(*UNREACHED):
            path = f"{self._path}/{self._place.token}/history"
            answer = await self._client.get(path, params={"files": "no", **place})
            if answer.status_code == 200:
                return msgspec.json.decode(answer.content)
        return None

    def _tell_if_kept(self, is_kept: bool) -> None:
        if is_kept and not self._is_kept:
            self._screen.note("what you say is stored; no answer is made until the conversation goes on")
        self._is_kept = is_kept

    # Sending

    async def _send(self) -> None:
        failures = 0
        while True:
            while not self._unsent:
                await self._until_moved()
            if await self._post(self._unsent[0]):
                self._unsent.popleft()
                self._moved.set()
                self._is_unclear.set()
                failures = 0
            else:
                failures += 1
                await self._pause(failures)

    async def _post(self, line: Line) -> bool:
        """True: it is stored, or will never be."""
        try:
            body = {"id": line.id, "conversation": self._place.token, "text": line.text}
            answer = await self._client.post(self._path, json=body)
        except UNREACHED:
            self._is_lost()
            return False
        if answer.status_code >= 500 or answer.status_code in {408, 429}:
            self._is_lost()
            return False
        if answer.status_code != 202:
            self._unanswered.pop(line.id, None)
            self._screen.note(f"not taken: {_detail(answer)}")
        return True

    # Receiving

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                path = f"{self._path}/{self._place.token}/stream"
                async with self._client.stream("GET", path, params={"after": self._after}) as answer:
                    answer.raise_for_status()
                    self._is_back()
                    failures = 0
                    await self._read(answer)
            except UNREACHED:
                self._is_lost()
            failures += 1
            await asyncio.sleep(_retry_seconds(failures))

    async def _read(self, answer: httpx2.Response) -> None:
        event: dict[str, str] = {}
        async for text in answer.aiter_lines():
            if text:
                name, _, value = text.partition(": ")
                event[name] = value
                continue
            if event.get("event") == "reply":
                self._after = int(event["id"])
                self._show(msgspec.json.decode(event["data"]))
            elif event.get("event") == "preview":
                self._screen.preview(msgspec.json.decode(event["data"])["text"])
            elif event.get("event") == "working":
                self._screen.at_work(msgspec.json.decode(event["data"])["working"])
                self._is_unclear.set()
            event = {}

    def _show(self, line: Any) -> None:
        is_bot = line["from"] == "bot"
        at = "" if not self._screen.live else f"{datetime.fromisoformat(line['at']).astimezone():%H:%M} "
        who = "person" if line.get("kind") == "operator" else "bot" if is_bot else "you"
        files = [f"[{file['name']}]" for file in line.get("attachments", ())]
        text = with_options(line["text"] or "", line.get("options", ()))
        self._screen.said(at + who, "\n".join([*filter(None, [text]), *files]), "green" if is_bot else "cyan")
        for id_ in line.get("in_reply_to", ()):
            self._unanswered.pop(id_, None)
            self._is_kept = False  # the conversation went on
        if line.get("kind") not in {"notice", "operator"}:
            self._screen.asked(line.get("kind") == "question")
        self._moved.set()

    async def _give_way(self) -> None:
        """Nobody tells when a key is pressed."""
        while True:
            await asyncio.sleep(TYPING_LOOK_SECONDS)
            self._screen.glimpse()

    # The server goes and comes

    def _is_lost(self) -> None:
        self._screen.at_work(False)
        self._screen.preview(None)
        if not self._lost:
            self._lost = True
            self._screen.note("the server does not answer; what you say is kept, and sent once it is back")

    def _is_back(self) -> None:
        if self._lost:
            self._lost = False
            self._screen.note("the server is back")
            self._moved.set()

    async def _pause(self, failures: int) -> None:
        await self._moves(within=_retry_seconds(failures))


def _retry_seconds(failures: int) -> float:
    return min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** min(failures - 1, 16))


def _detail(answer: httpx2.Response) -> str:
    """What a problem says; of anything else its status."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        problem = msgspec.json.decode(answer.content)
        if isinstance(problem, dict) and isinstance(problem.get("detail"), str):
            return str(problem["detail"])
    return f"status {answer.status_code}"


class _Connection:
    """What the main thread may ask of the other one."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnlane-chat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, what: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(what, *arguments)

    def wait(self, what: Any, seconds: float | None = None) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(seconds)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def _connected(talk: Talk) -> Iterator[_Connection]:
    connection = _Connection(talk)
    connection.start()
    try:
        yield connection
    finally:
        try:
            with suppress(TimeoutError):  # a connection that will not close is dropped with the process
                connection.wait(talk.close(), CLOSE_SECONDS_MAX)
        finally:
            connection.stop()
