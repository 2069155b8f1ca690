"""One run of the program: what is said to it, what it shows, and what it answers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from turnlane.agents.claude_code.lines import (
    Assistant,
    Block,
    Lifecycle,
    Result,
    Streamed,
    failure_of,
    read_line,
    user_line,
)
from turnlane.agents.claude_code.transcript import SYNTHETIC, Answer
from turnlane.agents.program import Program
from turnlane.errors import AgentFailed
from turnlane.model.usage import NO_USAGE

LINE_BYTES_MAX = 100_000_000


class SessionUnknown(Exception):
    """The session that was to be gone on with is not there."""


class Run(Program):
    """Its input stays open until everything that was said to it is answered, so that more can be said meanwhile.

    What is said while the model speaks is answered after it, with a result of its own; what is said while a tool runs
    is answered together with the rest.
    """

    # Asked like this it stops what it does, its tools included. At SIGTERM it may ask the model once more.
    ends_with = signal.SIGINT

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        self._answered = ""
        """What the results so far say."""
        self._speaking = ""
        """What the model says now."""
        self._results: list[Result] = []
        self._model: str | None = None
        self._line = bytearray()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        """What was said meanwhile and is not answered, and whether it was taken."""
        self._is_closed = False
        self._broken: AgentFailed | None = None

    def say(self, uuid: str, content: Sequence[Block]) -> None:
        self.write(user_line(uuid, content))

    async def say_meanwhile(self, uuid: str, content: Sequence[Block]) -> bool:
        """False: it comes too late for this run."""
        if self._is_closed or self.exited.is_set():
            return False
        taken = self._waiting.setdefault(uuid, asyncio.get_running_loop().create_future())
        self.say(uuid, content)
        return await asyncio.shield(taken)

    def answer(self) -> Answer:
        """Once it has exited. Raises what went wrong, if something did; the exit code alone tells nothing."""
        if self._broken is not None:
            raise self._broken
        if not self._results:
            raise AgentFailed(f"Claude Code ended without a result (exit code {self.returncode}){self.last_words()}")
        if any(result.names_no_session for result in self._results):
            raise SessionUnknown
        for result in self._results:
            if (failure := failure_of(result)) is not None:
                raise failure
        texts = tuple(result.result for result in self._results if result.result)
        return Answer(texts, sum((result.tokens for result in self._results), NO_USAGE), self._model)

    # What it writes

    def hear(self, data: bytes) -> None:
        self._line += data
        if b"\n" in data:
            *lines, rest = self._line.split(b"\n")
            self._line = rest
            for line in lines:
                self._take(bytes(line))
        if len(self._line) > LINE_BYTES_MAX:
            self._break(AgentFailed(f"Claude Code wrote a line of more than {LINE_BYTES_MAX} bytes and was stopped"))

    def _take(self, line: bytes) -> None:
        if self._broken is not None or not line.strip():
            return
        try:
            match read_line(line):
                case Streamed() as piece:
                    self._speak(piece)
                case Assistant(message=message, parent_tool_use_id=None) if message.model != SYNTHETIC:
                    self._model = message.model or None
                case Lifecycle() as told:
                    self._follow(told)
                case Result() as result:
                    self._finish(result)
        except AgentFailed as error:
            self._break(error)

    def _break(self, error: AgentFailed) -> None:
        self._broken = error
        self.kill()

    def _speak(self, piece: Streamed) -> None:
        if piece.begins_message:
            self._speaking = ""
        if piece.text:
            self._speaking += piece.text
            self._show(self._answered + self._speaking)

    def _follow(self, told: Lifecycle) -> None:
        taken = self._waiting.get(told.command_uuid)
        if taken is None:
            return
        if not taken.done():
            taken.set_result(True)
        if told.is_over:
            del self._waiting[told.command_uuid]
            self._close_if_all_is_answered()

    def _finish(self, result: Result) -> None:
        self._results.append(result)
        self._answered += f"{result.result}\n\n" if result.result else ""
        if result.is_error:
            self._close()
        self._close_if_all_is_answered()

    def _close_if_all_is_answered(self) -> None:
        if self._results and not self._waiting:
            self._close()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.close_input()

    def process_exited(self) -> None:
        super().process_exited()
        for taken in self._waiting.values():
            if not taken.done():
                taken.set_result(False)
