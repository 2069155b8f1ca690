"""The channel of the person at the keyboard."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import pytest
from tests.channels.still_clock import StillClock

from turnlane.channels import terminal
from turnlane.channels.base import Heard, ListeningChannel, Received, StreamingChannel
from turnlane.channels.terminal import Terminal
from turnlane.errors import BackendUnavailable
from turnlane.model.delivery import Delivery, NotSent, Sent
from turnlane.model.message import Message

DELIVERY = Delivery(id="d", conversation="terminal/local", text="You said: hi")


class Inbox:
    """Takes in what is said, or refuses once."""

    def __init__(self, *, broken: bool = False) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self._broken = broken

    async def receive(self, heard: Heard) -> Received:
        if self._broken:
            self._broken = False
            raise BackendUnavailable("the disk is full")
        for message in heard.messages:
            self.messages.put_nowait(message)
        return Received(accepted=len(heard.messages))

    def texts(self) -> list[str]:
        return [self.messages.get_nowait().text for _ in range(self.messages.qsize())]


@dataclass
class Pipe:
    source: TextIO
    keyboard: TextIO

    def type(self, text: str) -> None:
        self.keyboard.write(text)
        self.keyboard.flush()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    with os.fdopen(read) as source, os.fdopen(write, "w") as keyboard:
        yield Pipe(source, keyboard)


async def heard(text: str) -> list[str]:
    inbox = Inbox()
    await Terminal(source=io.StringIO(text), sink=io.StringIO()).listen(inbox.receive)
    return inbox.texts()


async def test_each_line_is_a_message_with_a_fresh_id(pipe: Pipe) -> None:
    inbox = Inbox()
    channel = Terminal(source=pipe.source, sink=io.StringIO(), clock=StillClock())
    assert isinstance(channel, ListeningChannel)
    listening = asyncio.create_task(channel.listen(inbox.receive))
    pipe.type("hi\nthere\n")
    first, second = await inbox.messages.get(), await inbox.messages.get()
    assert (first.text, first.conversation, first.sender) == ("hi", "terminal/local", "local")
    assert (first.origin_id, second.origin_id, first.sent_at) == ("token-1", "token-2", StillClock.at)
    pipe.keyboard.close()
    await listening


async def test_a_line_is_heard_as_soon_as_it_is_typed(pipe: Pipe) -> None:
    inbox = Inbox()
    listening = asyncio.create_task(Terminal(source=pipe.source, sink=io.StringIO()).listen(inbox.receive))
    pipe.type("one")
    pipe.type(" line\n")
    assert (await inbox.messages.get()).text == "one line"
    pipe.type("the last one has no end")
    pipe.keyboard.close()
    await listening
    assert inbox.texts() == ["the last one has no end"]


async def test_listening_can_be_cancelled_and_leaves_no_thread(pipe: Pipe) -> None:
    before = threading.active_count()
    listening = asyncio.create_task(Terminal(source=pipe.source, sink=io.StringIO()).listen(Inbox().receive))
    await asyncio.sleep(0)
    assert threading.active_count() == before
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert os.get_blocking(pipe.source.fileno())


async def test_empty_lines_say_nothing() -> None:
    assert await heard("\n  \nhi\r\n\n") == ["hi"]


async def test_a_file_can_be_read_too(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("hi\nGrüße\n")
    inbox = Inbox()
    with script.open() as source:
        await Terminal(source=source, sink=io.StringIO()).listen(inbox.receive)
    assert inbox.texts() == ["hi", "Grüße"]


async def test_bytes_that_no_store_would_take_are_replaced(pipe: Pipe) -> None:
    inbox = Inbox()
    pipe.keyboard.buffer.write(b"a\x00b\xffc\n")
    pipe.keyboard.close()
    await Terminal(source=pipe.source, sink=io.StringIO()).listen(inbox.receive)
    assert inbox.texts() == ["a\ufffdb\ufffdc"]


async def test_an_endless_line_is_cut_into_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LINE_BYTES_MAX", 4)
    assert await heard("abcdefghij\nk\n") == ["abcd", "efgh", "ij", "k"]


async def test_what_could_not_be_stored_is_said_so() -> None:
    screen, inbox = io.StringIO(), Inbox(broken=True)
    await Terminal(source=io.StringIO("one\ntwo\n"), sink=screen).listen(inbox.receive)
    assert screen.getvalue() == "(not stored, please say it again: the disk is full)\n"
    assert inbox.texts() == ["two"]


async def test_replies_are_printed_without_a_prompt_where_nobody_sits() -> None:
    screen = io.StringIO()
    channel = Terminal(user="alice", source=io.StringIO(), sink=screen)
    assert await channel.send(DELIVERY) == Sent()
    await channel.close()
    assert screen.getvalue() == "You said: hi\n"


async def test_a_screen_that_is_gone_is_not_sent() -> None:
    screen = io.StringIO()
    channel = Terminal(source=io.StringIO(), sink=screen)
    screen.close()
    assert isinstance(await channel.send(DELIVERY), NotSent)


async def test_a_person_at_a_terminal_gets_a_prompt_and_can_leave() -> None:
    ours, theirs = pty.openpty()
    inbox = Inbox()
    with os.fdopen(theirs, "r+b", buffering=0) as raw, io.TextIOWrapper(raw, write_through=True) as tty:
        channel = Terminal(source=tty, sink=tty)
        listening = asyncio.create_task(channel.listen(inbox.receive))
        os.write(ours, b"hi\n")
        assert (await inbox.messages.get()).text == "hi"
        await channel.send(DELIVERY)
        os.write(ours, b"\x04")
        await listening
        assert b"\r\x1b[KYou said: hi\r\n> " in os.read(ours, 10_000)
    os.close(ours)


class Screen(io.StringIO):
    """A terminal that only shows; nobody types there."""

    def isatty(self) -> bool:
        return True


async def test_an_answer_grows_on_a_terminal_and_is_printed_once() -> None:
    screen = Screen()
    channel = Terminal(source=io.StringIO(), sink=screen)
    assert isinstance(channel, StreamingChannel)
    for text in ("You ", "You said", None):
        await channel.show("terminal/local", 1, text)
    assert screen.getvalue() == "You said"
    await channel.send(replace(DELIVERY, turn=1))
    await channel.send(replace(DELIVERY, text="more", turn=1, part=2))
    assert screen.getvalue() == "You said: hi\nmore\n"


async def test_an_answer_that_turns_out_otherwise_is_printed_whole_on_a_line_of_its_own() -> None:
    screen = Screen()
    channel = Terminal(source=io.StringIO(), sink=screen)
    await channel.show("terminal/local", 1, "I think")
    await channel.send(replace(DELIVERY, text="Stopped.", kind="notice"))
    await channel.show("terminal/local", 2, "You")
    await channel.show("terminal/local", 2, "Yo")  # the turn failed, and runs again
    await channel.show("terminal/local", 2, "Your turn")
    await channel.send(replace(DELIVERY, turn=2))
    assert screen.getvalue() == "I think\nStopped.\nYour turn\nYou said: hi\n"


async def test_a_question_that_begins_like_the_answer_is_put_with_its_options() -> None:
    screen = Screen()
    channel = Terminal(source=io.StringIO(), sink=screen)
    await channel.show("terminal/local", 1, "Deploy")
    await channel.send(replace(DELIVERY, text="Deploy now?", kind="question", turn=1, options=("yes", "no")))
    assert screen.getvalue().startswith("Deploy\nDeploy now?")
    assert "yes" in screen.getvalue()


async def test_where_nobody_sits_only_the_answer_is_printed() -> None:
    screen = io.StringIO()
    channel = Terminal(source=io.StringIO(), sink=screen)
    await channel.show("terminal/local", 1, "You")
    await channel.send(replace(DELIVERY, turn=1))
    assert screen.getvalue() == "You said: hi\n"


def test_the_process_can_end_while_somebody_could_still_type() -> None:
    code = """
import asyncio
from turnlane.channels.terminal import Terminal

async def main():
    listening = asyncio.create_task(Terminal().listen(None))
    await asyncio.sleep(0)
    listening.cancel()

asyncio.run(main())
"""
    # Standard input stays open, and nobody writes to it.
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""
