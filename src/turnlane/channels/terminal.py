"""The channel of the person at the keyboard: each line is a message, each reply is printed."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator
from typing import TextIO

from turnlane.channels.base import Heard, Receive
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendUnavailable
from turnlane.model.delivery import Delivery, NotSent, SendResult, Sent, in_words
from turnlane.model.message import Message, conversation_key

LINE_BYTES_MAX = 1_000_000
"""A longer line is several messages."""

_READ_BYTES = 65_536
_PROMPT = "> "
_CLEAR_LINE = "\r\x1b[K"


class Terminal:
    """Reads standard input until its end and writes to standard output, or to the streams given."""

    def __init__(
        self,
        name: str = "terminal",
        *,
        user: str | None = None,
        source: TextIO | None = None,
        sink: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._user = user or "local"
        self._source = source or sys.stdin
        self._sink = sink or sys.stdout
        self._clock = clock or SystemClock()
        self._prompting = self._source.isatty() and self._sink.isatty()
        self._turn: int | None = None
        self._shown = ""
        """What of that turn's answer stands in the last line, or lines, which have no end yet."""

    async def listen(self, receive: Receive) -> None:
        """Hand in each line that says something. Returns at the end of the input."""
        self._prompt()
        async for line in _lines(self._source):
            if line.strip():
                await self._hand_in(line, receive)
            self._prompt()

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        """Piece by piece on a terminal; elsewhere the answer alone. What is over ends with whatever is written next."""
        if text is None or not self._sink.isatty():
            return
        if (turn, text) == (self._turn, self._shown[: len(text)]):
            return  # shown before: the turn runs again
        begun = turn == self._turn and text.startswith(self._shown)
        self._put(text[len(self._shown) :] if begun else f"{self._fresh_line()}{text}")
        self._turn, self._shown = turn, text

    async def send(self, delivery: Delivery) -> SendResult:
        try:
            if self._shown and self._completes(delivery):
                self._put(f"{delivery.text[len(self._shown) :]}\n{_PROMPT if self._prompting else ''}")
                self._turn, self._shown = None, ""
            else:
                self._write(f"{in_words(delivery)}\n")
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            return NotSent(f"the terminal cannot be written to: {error}")
        return Sent()

    async def close(self) -> None:
        """The streams are not ours to close."""

    def _completes(self, delivery: Delivery) -> bool:
        is_answer = delivery.kind == "reply" and delivery.turn == self._turn
        return is_answer and delivery.text.startswith(self._shown)

    async def _hand_in(self, line: str, receive: Receive) -> None:
        try:
            await receive(Heard([self._message(line)]))
        except BackendUnavailable as error:
            self._write(f"(not stored, please say it again: {error})\n")

    def _message(self, line: str) -> Message:
        return Message(
            channel=self.name,
            origin_id=self._clock.token(),
            conversation=conversation_key(self.name, self._user),
            sender=self._user,
            text=line,
            sent_at=self._clock.now(),
        )

    def _prompt(self) -> None:
        if self._prompting:
            self._write("")

    def _write(self, text: str) -> None:
        """Put the text above the prompt, if there is one."""
        self._put(f"{self._fresh_line()}{text}{_PROMPT}" if self._prompting else f"{self._fresh_line()}{text}")
        self._turn, self._shown = None, ""

    def _fresh_line(self) -> str:
        """What leads to an empty line: past what is shown, or over the prompt."""
        if self._shown:
            return "\n"
        return _CLEAR_LINE if self._prompting else ""

    def _put(self, text: str) -> None:
        self._sink.write(text)
        self._sink.flush()


async def _lines(source: TextIO) -> AsyncIterator[str]:
    waiting = bytearray()
    async for chunk in _chunks(source):
        waiting += chunk
        while (end := waiting.find(b"\n") + 1) or len(waiting) > LINE_BYTES_MAX:
            length = min(end or LINE_BYTES_MAX, LINE_BYTES_MAX)
            yield _text(waiting[:length])
            del waiting[:length]
    if waiting:
        yield _text(waiting)


def _text(line: bytearray) -> str:
    # What a keyboard or a pipe brings may be anything; no backend stores a NUL.
    return line.decode(errors="replace").rstrip("\r\n").replace("\0", "\ufffd")


async def _chunks(source: TextIO) -> AsyncIterator[bytes]:
    """What arrives, as it arrives, without a thread: one that waits in `read` would keep the process from ending."""
    try:
        descriptor = source.fileno()
        await _readable(descriptor)
    except OSError:  # a file, or a stream in memory: cannot be waited for, and never blocks
        while text := source.read(_READ_BYTES):
            yield text.encode(errors="replace")
        return
    while chunk := _read(descriptor):
        yield chunk
        await _readable(descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # the terminal was closed
            return b""
        raise


async def _readable(descriptor: int) -> None:
    """Wait until a read would not block. The descriptor stays blocking: a terminal shares that mode with its output."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
