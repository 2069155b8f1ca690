"""The newest facts, as hints tell them: kept while somebody watches, so that what was just told is not read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WATCHED_SECONDS = 10.0
"""Whoever watches asks more often than that; then nothing is kept any longer."""
KEPT_MAX = 20_000
"""Facts and lanes, some 20 MB; whoever is further behind reads the stream."""


class Told(NamedTuple):
    """What one group of records said."""

    seq: int
    """Of the record with the facts, which is the last one."""
    at: int
    noted: Sequence[Any]
    lanes: Mapping[str, Sequence[Any]]
    """How they stand afterwards, by conversation, packed."""

    @property
    def size(self) -> int:
        return len(self.noted) + len(self.lanes)


class Tail:
    """Used by the writing thread alone."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}
        """By their sequences: what was missed may be read, and then be told late."""
        self._size = 0
        self._since: int | None = None
        """All that was stored after this record, as far as this process has heard of it, is here."""
        self._watched_until = 0.0

    def is_kept(self, now: float) -> bool:
        if self._since is not None and now >= self._watched_until:
            self._since, self._size = None, 0
            self._told.clear()
        return self._since is not None

    def add(self, told: Told) -> None:
        self._told[told.seq] = told
        self._size += told.size
        if self._size > KEPT_MAX:
            self.lose(sorted(self._told)[len(self._told) // 2])

    def lose(self, seq: int) -> None:
        """What is up to there cannot be told from here."""
        if self._since is not None:
            self._since = max(self._since, seq)
            self._told = {place: told for place, told in self._told.items() if place > self._since}
            self._size = sum(told.size for told in self._told.values())

    def watched(self, now: float, heard_to: int) -> None:
        """Somebody asks, and will again. `heard_to`: the last record of which this process has heard."""
        if not self.is_kept(now):
            self._since = heard_to
        self._watched_until = now + WATCHED_SECONDS

    def following(self, seq: int, until: int) -> list[Told] | None:
        """From this record on, in order. None: that is further back than what is kept."""
        if self._since is None or seq <= self._since:
            return None
        return [told for place, told in sorted(self._told.items()) if seq <= place <= until]
