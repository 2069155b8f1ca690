"""Talking from the terminal: in a pipe, at a keyboard, and while the server goes and comes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.http.conftest import WORKER, SmallBot, eventually, served, small_bot

import turnlane
from turnlane.channels.base import Received
from turnlane.channels.web import Web
from turnlane.errors import BackendUnavailable
from turnlane.http.history import FIRST_LOOK
from turnlane.http.listen import bind
from turnlane.model.lane import Kind
from turnlane.model.message import Attachment, Message
from turnlane.model.question import Question
from turnlane.model.turn import GaveUp, Replied, Reply
from turnlane.model.view import Story

TOKEN = "visitor-token-0123456789"
KEY = f"web/{TOKEN}"
SOURCES = Path(turnlane.__file__).parents[1]
SECONDS_MAX = 30


@pytest.fixture
async def bot() -> AsyncIterator[SmallBot]:
    async with small_bot() as small:
        yield small


@asynccontextmanager
async def serving(bot: SmallBot, port: int = 0) -> AsyncIterator[int]:
    async with served(bot, port) as server:
        yield server.port


class Chat:
    """One `turnlane chat` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())

    async def hear(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), SECONDS_MAX)).decode().rstrip("\n")

    async def noted(self) -> str:
        assert self.process.stderr is not None
        return (await asyncio.wait_for(self.process.stderr.readline(), SECONDS_MAX)).decode().rstrip("\n")

    async def end(self) -> tuple[int, str, str]:
        """End its input. Its exit code, and the rest of what it says."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        out, err = await asyncio.wait_for(self.process.communicate(), SECONDS_MAX)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def chatting(folder: Path, *arguments: str, port: int = 1, stdio: int | None = None) -> AsyncIterator[Chat]:
    stream = asyncio.subprocess.PIPE if stdio is None else stdio
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnlane.cli.main", "chat", *arguments, "--listen", f"127.0.0.1:{port}"),
        stdin=stream,
        stdout=stream,
        stderr=stream,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), "TERM": "xterm"},
    )
    try:
        yield Chat(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def said(bot: SmallBot) -> list[str]:
    story = await bot.backend.story(KEY)
    return [message.text for message in story.messages] if story else []


def is_said(bot: SmallBot, *texts: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await said(bot) == list(texts)

    return look


async def reply(bot: SmallBot, *texts: str) -> None:
    """Answer what waits, and send the answer."""
    (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
    await bot.backend.commit(lease, Replied(Reply(texts)))
    for _ in texts:
        await bot.send_one()


# In a pipe


async def test_in_a_pipe_replies_alone_are_the_output(bot: SmallBot, tmp_path: Path) -> None:
    await bot.say(KEY, "before", f"{TOKEN}/1")
    await reply(bot, "an old reply")
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("hello")
        chat.say("there")
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "before", "hello", "there"), SECONDS_MAX)
        await reply(bot, "one\nand \x1b[31mmore", "two")
        assert await ended == (0, "one\nand �[31mmore\ntwo\n", "")


async def test_a_question_shows_its_options(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("deploy it")
        await eventually(is_said(bot, "deploy it"), SECONDS_MAX)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.ask(lease, 1, Question("Deploy now?", ("yes", "no")))
        await bot.send_one()
        assert [await chat.hear() for _ in range(3)] == ["Deploy now?", "1. yes", "2. no"]


async def test_a_new_conversation_tells_how_to_come_back(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, port=port) as chat:
        code, out, note = await chat.end()
    assert (code, out) == (0, "")
    key = note.rpartition("turnlane chat ")[2].strip("`\n")
    async with serving(bot) as port, chatting(tmp_path, key, port=port) as chat:
        assert await chat.end() == (0, "", "")


async def test_quit_ends_the_input_too(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, TOKEN, port=port) as chat:
        for line in ("hello", "", "/quit", "never said"):
            chat.say(line)
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        await reply(bot, "bye")
        assert await ended == (0, "bye\n", "")
    assert await said(bot) == ["hello"]


async def test_no_reply_in_time_names_the_message(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, "--wait", "0.3", port=port) as chat:
        chat.say("hello")
        code, out, err = await chat.end()
    assert (code, out) == (5, "")
    assert f"`turnlane explain web:{TOKEN}/" in err


async def test_an_agent_that_says_nothing_is_not_waited_for(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("hello")
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.commit(lease, Replied(Reply(None)))
        assert await ended == (0, "", "")


async def test_a_line_that_nobody_answers_ends_the_wait_and_says_so(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("hello")
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.commit(lease, GaveUp("nobody knows"))
        code, out, err = await ended
    assert (code, out) == (5, "")
    assert f"could not be answered; `turnlane explain web:{TOKEN}/" in err


async def test_a_reply_that_is_held_is_waited_for(
    bot: SmallBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is over by then, and nobody is at work."""
    story, looks = bot.backend.story, 0

    async def counted(conversation: str, *, limit: int = 100) -> Story | None:
        nonlocal looks
        looks += limit == FIRST_LOOK
        return await story(conversation, limit=limit)

    async def has_looked_again() -> bool:
        return looks >= 6

    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("hello")
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.commit(lease, Replied(Reply("hi")))
        await bot.backend.pause(KEY, Kind.OUT)
        monkeypatch.setattr(bot.backend, "story", counted)
        await eventually(has_looked_again, SECONDS_MAX)
        await bot.backend.resume(KEY, Kind.OUT)
        await bot.send_one()
        assert await ended == (0, "hi\n", "")


async def test_what_nobody_works_on_is_said_once(bot: SmallBot, tmp_path: Path) -> None:
    await bot.say(KEY, "before", f"{TOKEN}/1")
    await reply(bot, "an old reply")
    await bot.backend.pause(KEY)
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("hello")
        chat.say("there")
        assert chat.process.stdin is not None
        chat.process.stdin.close()
        await eventually(is_said(bot, "before", "hello", "there"), SECONDS_MAX)
        assert "no answer is made until the conversation goes on" in await chat.noted()
        await bot.backend.resume(KEY)
        await reply(bot, "hi")
        assert await chat.end() == (0, "hi\n", "")


async def test_a_line_that_is_not_taken_says_why(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("nul \0")
        code, out, err = await chat.end()
    assert (code, out, "not taken: text contains a NUL" in err) == (0, "", True)


# The server goes and comes


async def test_a_restart_of_the_server_is_said_and_survived(bot: SmallBot, tmp_path: Path) -> None:
    async with AsyncExitStack() as client:
        async with serving(bot) as port:
            chat = await client.enter_async_context(chatting(tmp_path, KEY, port=port))
            chat.say("one")
            await eventually(is_said(bot, "one"), SECONDS_MAX)
            await reply(bot, "re one")
            assert await chat.hear() == "re one"
        chat.say("two")
        assert "the server does not answer" in await chat.noted()
        async with serving(bot, port):
            assert await chat.noted() == "the server is back"
            await eventually(is_said(bot, "one", "two"), SECONDS_MAX)
            await reply(bot, "re two")
            assert await chat.end() == (0, "re two\n", "")


async def test_a_line_of_unknown_fate_is_sent_again_under_its_id(
    bot: SmallBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bot.receive
    fates = iter([BackendUnavailable("stored, but the answer got lost")])

    async def receive(messages: Sequence[Message]) -> Received:
        received = await store(messages)
        for fate in fates:
            raise fate
        return received

    monkeypatch.setattr(bot, "receive", receive)
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port) as chat:
        chat.say("once")
        assert "the server does not answer" in await chat.noted()
        ended = asyncio.create_task(chat.end())
        await eventually(is_said(bot, "once"), SECONDS_MAX)
        await reply(bot, "re once")
        code, out, _ = await ended
    assert (code, out, await said(bot)) == (0, "re once\n", ["once"])


async def test_what_could_not_be_stored_is_counted_at_the_end(bot: SmallBot, tmp_path: Path) -> None:
    async with serving(bot) as port, chatting(tmp_path, KEY, "--wait", "0.3", port=port) as chat:
        bot.down = True
        chat.say("lost")
        code, _, err = await chat.end()
    assert (code, "1 line could not be stored" in err) == (3, True)


async def test_with_no_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    with bind("127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
    async with chatting(tmp_path, port=port) as chat:
        code, out, err = await chat.end()
    assert (code, out, "start one with `turnlane run`" in err) == (3, "", True)


async def test_a_server_of_somebody_else_is_not_talked_to(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with other, chatting(tmp_path, port=other.sockets[0].getsockname()[1]) as chat:
        code, _, err = await chat.end()
    assert (code, "is no Turnlane server" in err) == (1, True)


@pytest.mark.parametrize(
    ("conversation", "settings", "code", "words"),
    [
        ("alice", "", 2, "leave it out to begin a new one"),
        ("web/alice smith", "", 2, "leave it out to begin a new one"),
        (f"wed/{TOKEN}", "", 1, "those of this server are web"),
        (TOKEN, '[channels.site]\nkind = "webhook"\n', 1, "no web channel to talk through"),
    ],
)
async def test_what_cannot_be_talked_in_names_the_next_step(
    tmp_path: Path, conversation: str, settings: str, code: int, words: str
) -> None:
    (tmp_path / "turnlane.toml").write_text(settings)
    async with chatting(tmp_path, conversation) as chat:
        ended, out, err = await chat.end()
    assert (ended, out, words in err) == (code, "", True), err


# At a keyboard


class Keyboard:
    """A terminal with somebody at it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def sees(self, text: str) -> str:
        """Everything on the screen up to the text, once it is there."""
        async with asyncio.timeout(SECONDS_MAX):
            while text not in self._seen:
                self._seen += (await asyncio.to_thread(os.read, self._descriptor, 4096)).decode()
        seen, found, self._seen = self._seen.partition(text)
        return seen + found


async def test_at_a_keyboard_replies_stand_above_what_is_being_typed(bot: SmallBot, tmp_path: Path) -> None:
    file = Attachment("data:text/plain;base64,AAAA", "notes.txt")
    await bot.receive([Message("web", f"{TOKEN}/1", KEY, TOKEN, "before", (file,))])
    await reply(bot, "an old reply")
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        history = await keyboard.sees("› ")
        assert "before" in history
        assert "[notes.txt]" in history
        assert "an old reply" in history
        keyboard.type("hello\r")
        await eventually(is_said(bot, "before", "hello"), SECONDS_MAX)
        keyboard.type("half a li")
        await keyboard.sees("half a li")
        await reply(bot, "hi")
        assert "\r\x1b[K" in await keyboard.sees("hi\r\n› half a li")
        keyboard.type("ne\r")
        await eventually(is_said(bot, "before", "hello", "half a line"), SECONDS_MAX)
        keyboard.type("/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_an_answer_is_glimpsed_while_it_grows(bot: SmallBot, tmp_path: Path) -> None:
    web = bot.channels["web"]
    assert isinstance(web, Web)
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        keyboard.type("hello\r")
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        await web.show(KEY, 1, "first line\nsecond li")
        assert "first" not in await keyboard.sees("… second li")
        keyboard.type("half")
        await keyboard.sees("half")
        await web.show(KEY, 1, "first line\nsecond line")
        assert "second" not in await keyboard.sees("\r\x1b[K› half")  # whoever types is left alone
        await web.show(KEY, 1, None)
        await reply(bot, "first line\nsecond line")
        await keyboard.sees("second line\r\n› half")
        keyboard.type("\x15/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_what_nobody_works_on_is_said(bot: SmallBot, tmp_path: Path) -> None:
    await bot.say(KEY, "before", f"{TOKEN}/1")
    await reply(bot, "an old reply")
    await bot.backend.pause(KEY)
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        keyboard.type("hello\r")
        await keyboard.sees("· what you say is stored; no answer is made until")
        keyboard.type("/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_nobody_is_at_work_while_a_question_is_open(bot: SmallBot, tmp_path: Path) -> None:
    web = bot.channels["web"]
    assert isinstance(web, Web)
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        keyboard.type("deploy it\r")
        await keyboard.sees("… an answer is being made")
        (lease,) = await bot.backend.claim(WORKER, Kind.TURN)
        await bot.backend.ask(lease, 1, Question("Deploy now?", ("yes", "no")))
        await bot.send_one()
        await keyboard.sees("2. no")
        await web.show(KEY, 1, "soon")
        await keyboard.sees("… soon")
        await web.show(KEY, 1, None)
        assert "an answer is being made" not in await keyboard.sees("› ")
        keyboard.type("yes\r")
        await keyboard.sees("… an answer is being made")
        keyboard.type("/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_it_is_said_anew_that_nobody_works_on_it(bot: SmallBot, tmp_path: Path) -> None:
    await bot.say(KEY, "before", f"{TOKEN}/1")
    await reply(bot, "an old reply")
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        for text in ("one", "two"):
            await bot.backend.pause(KEY)
            keyboard.type(f"{text}\r")
            await keyboard.sees("· what you say is stored; no answer is made until")
            await bot.backend.resume(KEY)
            await reply(bot, f"re {text}")
            await keyboard.sees(f"re {text}")
        keyboard.type("/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_a_glimpse_fits_its_line_and_makes_room(bot: SmallBot, tmp_path: Path) -> None:
    web = bot.channels["web"]
    assert isinstance(web, Web)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        keyboard.type("hello\r")
        await keyboard.sees("… an answer is being made")
        await web.show(KEY, 1, "漢字" * 30)
        assert "漢字" * 8 not in await keyboard.sees("漢字" * 6)
        keyboard.type("h")
        await keyboard.sees("\r\x1b[K› h")  # though nothing more of the answer comes
        await web.show(KEY, 1, None)
        keyboard.type("\x15/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def test_at_a_keyboard_a_line_longer_than_the_terminal_is_moved_as_a_whole(bot: SmallBot, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        keyboard.type("hello\r")
        await eventually(is_said(bot, "hello"), SECONDS_MAX)
        keyboard.type("long " * 20 + "end")
        await keyboard.sees("end")
        await reply(bot, "hi")
        await keyboard.sees("\r\x1b[2A\x1b[J")
        await keyboard.sees("hi\r\n› long long")
        keyboard.type("\x15/quit\r")
        assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
    os.close(master)


async def interrupted(process: asyncio.subprocess.Process) -> int:
    """Like a person, press again: one signal may fall just before the library begins to wait for a key.

    Not soon, though: on a busy machine it may be ending already, and an interpreter that ends cannot take a signal.
    """
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            with suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), SECONDS_MAX / 3)


@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-D"])
async def test_at_a_keyboard_it_ends_quietly(bot: SmallBot, tmp_path: Path, how: str) -> None:
    master, slave = pty.openpty()
    async with serving(bot) as port, chatting(tmp_path, KEY, port=port, stdio=slave) as chat:
        os.close(slave)
        keyboard = Keyboard(master)
        await keyboard.sees("› ")
        if how == "Ctrl-D":
            keyboard.type("\x04")
            assert await asyncio.wait_for(chat.process.wait(), SECONDS_MAX) == 0
        else:
            assert await interrupted(chat.process) == 0
        assert "Traceback" not in (await keyboard.sees("\n"))
    os.close(master)
