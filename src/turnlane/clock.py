"""The only source of time and randomness, so that a test or a simulation can supply its own."""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the code may know about time and chance."""

    def now(self) -> int:
        """Wall time in milliseconds since 1970. May jump; decides when, never what may be written."""

    def monotonic(self) -> float:
        """Seconds that only ever grow; how a worker measures its own lease."""

    def random(self) -> float:
        """A number from 0 to 1, for jitter."""

    def token(self) -> str:
        """A fresh id that nobody has used before, nor will."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    # As they are: a turn asks for the time more often than for anything else.
    monotonic = staticmethod(time.monotonic)
    random = staticmethod(random.random)

    def token(self) -> str:
        return secrets.token_hex(8)
