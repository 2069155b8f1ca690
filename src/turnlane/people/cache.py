"""Values at hand for a while: the oldest go first, and none is older than it may be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from turnlane.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """At most so many values, each for at most so long; those that nobody asked for longest make room."""

    def __init__(self, clock: Clock, *, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.hits = 0
        self.misses = 0
        self.failed = 0
        """Of the misses, those that nobody else could answer either: counted by whoever asked."""
        self._clock = clock
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._confirmed_at = float("-inf")

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is None or self._clock.monotonic() - max(found[1], self._confirmed_at) >= self.seconds:
            self._kept.pop(key, None)
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return found[0]

    def put(self, key: K, value: V) -> None:
        self._kept[key] = (value, self._clock.monotonic())
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)

    def confirm(self) -> None:
        """All of them are as they should be now: their time begins anew."""
        self._confirmed_at = self._clock.monotonic()

    def peek(self, key: K) -> V | None:
        """Without being counted, or kept longer for it."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def drop(self, key: K) -> None:
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)
