"""A whole terminal for one program: taken on entering, and given back however that ends."""

from __future__ import annotations

import codecs
import os
import signal
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

TAKE = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, without a cursor, and without wrapping lines: a character may be wider than we believe."""
GIVE_BACK = "\x1b[?7h\x1b[?25h\x1b[?1049l"
TO_THE_TOP, TO_THE_END_OF_LINE, TO_THE_END = "\x1b[H", "\x1b[K", "\x1b[J"
BYTES_AT_ONCE = 4_096


class Screen:
    """`input` and `output` are file descriptors of the terminal."""

    def __init__(self, *, input: int, output: int, encoding: str = "utf-8") -> None:
        self.input = input
        self._output = output
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._before: list[Any] | None = None
        """How the terminal was, while we have it."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        """Also again, after somebody else had it: a shell sets the terminal as it likes it."""
        if self._before is None:
            self._before = termios.tcgetattr(self.input)
        now = termios.tcgetattr(self.input)
        # Keys come one by one and are not shown. Ctrl-C and Ctrl-Z stay signals.
        now[3] &= ~(termios.ICANON | termios.ECHO)
        now[6] = [*now[6]]
        now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.input, termios.TCSADRAIN, now)
        self._write(TAKE)

    def give_back(self) -> None:
        if self._before is None:
            return
        before, self._before = self._before, None
        # Whoever closed the window has taken the terminal with it.
        with suppress(OSError, termios.error):
            self._write(GIVE_BACK)
            termios.tcsetattr(self.input, termios.TCSADRAIN, before)

    def pause(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was, and we go on when it says so."""
        self.give_back()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self.take()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        columns, lines = os.get_terminal_size(self._output)
        return columns or 80, lines or 24

    def draw(self, lines: Sequence[str]) -> None:
        text = f"{TO_THE_END_OF_LINE}\r\n".join(lines)
        self._write(f"{TO_THE_TOP}{text}{TO_THE_END_OF_LINE}{TO_THE_END}")

    def typed(self) -> str | None:
        """What came since; None: the terminal is gone."""
        try:
            raw = os.read(self.input, BYTES_AT_ONCE)
        except OSError:
            return None
        return self._decoder.decode(raw) if raw else None

    def _write(self, text: str) -> None:
        left = text.encode(self._encoding, errors="replace")
        while left:
            left = left[os.write(self._output, left) :]
