"""How `turnlane top` reads the store: lightly, however much is in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnlane.backends import Backend
from turnlane.cli.top_board import LANES_MAX, SPAN_MS, Board
from turnlane.clock import Clock
from turnlane.errors import TurnlaneError
from turnlane.flow.lately import recent

T = TypeVar("T")

READING_SHARE_MAX = 0.05
"""Of the time, for each of the two reads that may pass over all lanes: who costs more is read less often."""
EVENTS_AT_ONCE = 1_000
PAGES_READ_MAX = 10
"""What is beyond that in one refresh is passed over; reading all lanes tells what it came to."""


class Lookout:
    """Keeps a board up to date."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self.board = Board()
        self._backend = backend
        self._clock = clock
        self._cursor: int | None = None
        self._counted = Paced(clock)
        self._read = Paced(clock)

    async def look(self) -> None:
        """Once more. Events first: what is read after them is newer."""
        board = self.board
        await self._hear(self._clock.now())
        counts = await self._counted.run(self._backend.counts)
        board.counts = board.counts if counts is None else counts
        lanes = await self._read.run(lambda: self._backend.lanes(limit=LANES_MAX))
        if lanes is not None:
            board.look(lanes, self._clock.now())
        board.trouble = board.trouble_since = None

    async def try_to_look(self) -> None:
        """A store that does not answer is said on the board, and asked again the next time."""
        try:
            await self.look()
        except TurnlaneError as error:
            self.board.trouble = str(error)
            self.board.trouble_since = self.board.trouble_since or self._clock.now()

    async def _hear(self, now: int) -> None:
        """What happened since the last time, and how the lanes stand that it happened to."""
        if self._cursor is None:
            self._cursor = await self._begin(now)
        heard_to = now
        for _ in range(PAGES_READ_MAX):
            changes = await self._backend.changes(after=self._cursor, limit=EVENTS_AT_ONCE)
            if not changes.events:
                return
            self.board.hear([stored.event for stored in changes.events])
            for view in changes.lanes:
                self.board.see(view, now)
            self._cursor, heard_to = changes.events[-1].cursor, changes.events[-1].event.at
        self._cursor = await self._newest()
        self.board.miss(heard_to, now)

    async def _begin(self, now: int) -> int:
        """With the last minute, or as much of it as can be read at once."""
        cursor = await self._newest()
        lately = await recent(self._backend, cursor, now - SPAN_MS)
        self.board.begin(lately.since)
        self.board.hear([stored.event for stored in lately.events])
        return cursor

    async def _newest(self) -> int:
        newest = await self._backend.events(after=-1)
        return newest[-1].cursor if newest else 0


class Paced:
    """Something that may be dear: after it took a while, it is left alone for a longer one."""

    def __init__(self, clock: Clock, share_max: float = READING_SHARE_MAX) -> None:
        self._clock = clock
        self._share_max = share_max
        self._next_at = float("-inf")

    async def run(self, read: Callable[[], Awaitable[T]]) -> T | None:
        """What was read; None if it is too soon."""
        began = self._clock.monotonic()
        if began < self._next_at:
            return None
        found = await read()
        took = self._clock.monotonic() - began
        self._next_at = began + took / self._share_max
        return found
