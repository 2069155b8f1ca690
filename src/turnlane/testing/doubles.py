"""Stand-ins for the world that a test turns by hand."""

from __future__ import annotations

import random

A_MOMENT_IN_2027 = 1_800_000_000_000


class VirtualClock:
    """Time that passes only when told to, chance that a seed decides, and ids that are counted.

    The wall clock may be set like any wall clock: `jump` moves it and leaves the monotonic one alone.
    """

    def __init__(self, seed: int = 0, *, now: int = A_MOMENT_IN_2027) -> None:
        self._now = now
        self._elapsed_ms = 0
        self._random = random.Random(seed)
        self._tokens = 0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def random(self) -> float:
        return self._random.random()

    def token(self) -> str:
        self._tokens += 1
        return f"token-{self._tokens}"

    def advance(self, ms: int) -> None:
        """Let time pass, on the wall and inside."""
        assert ms >= 0, "time does not run backwards; use jump() to set the wall clock back"
        self._elapsed_ms += ms
        self._now += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forwards, or backwards; no time passes."""
        self._now += ms
