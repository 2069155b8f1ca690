"""A clock that stands still, so that a test says what time it is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count


@dataclass
class StillClock:
    at: int = 1_700_000_000_000

    def __post_init__(self) -> None:
        self._tokens = count(1)

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / 1000

    def random(self) -> float:
        return 0.5

    def token(self) -> str:
        return f"token-{next(self._tokens)}"
