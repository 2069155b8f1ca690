"""How `turnlane top` reads the store: lightly, however much is in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnlane.backends import Backend
from turnlane.cli.top_board import LANES_MAX, SPAN_MS, Board
from turnlane.clock import Clock
from turnlane.errors import TurnlaneError
from turnlane.model.view import StoredEvent

T = TypeVar("T")

READING_SHARE_MAX = 0.05
"""Of the time, for each of the two reads that may pass over all lanes: who costs more is read less often."""
EVENTS_AT_ONCE = 1_000
PAGES_MAX = 10
"""What is beyond that in one refresh is passed over; reading all lanes tells what it came to."""
EVENTS_READ_MAX = EVENTS_AT_ONCE * (PAGES_MAX - 2)
"""With some room for those that come meanwhile."""
SAMPLE_MS = 3_000
"""By so much of the past it is guessed how much there is of it."""
STEPS_BACK_MAX = 64
"""Of halving, to find where the last minute begins."""


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
        if self._cursor is None:
            self._cursor = await self._beginning(now)
        heard_at = self.board.heard_since or now
        for _ in range(PAGES_MAX):
            events = await self._backend.events(after=self._cursor, limit=EVENTS_AT_ONCE)
            self.board.hear([stored.event for stored in events])
            if events:
                self._cursor, heard_at = events[-1].cursor, events[-1].event.at
            if len(events) < EVENTS_AT_ONCE:
                return
        newest = await self._backend.events(after=-1)
        self._cursor = newest[-1].cursor if newest else self._cursor
        self.board.miss(heard_at, now)

    async def _beginning(self, now: int) -> int:
        """Where to begin: a minute ago, or as far back as can be read at once."""
        sample = await self._backend.events(after=await cursor_at(self._backend, now - SAMPLE_MS), limit=EVENTS_AT_ONCE)
        lasted = sample[-1].event.at - sample[0].event.at if len(sample) == EVENTS_AT_ONCE else SAMPLE_MS
        readable = EVENTS_READ_MAX * max(lasted, 1) // max(len(sample), 1)
        since = now - min(SPAN_MS, readable)
        self.board.begin(since)
        return await cursor_at(self._backend, since)


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


async def cursor_at(backend: Backend, at: int) -> int:
    """A cursor after which all events since then come, and few before. Found by halves, as cursors are not dense."""
    newest = await backend.events(after=-1)
    if not newest:
        return 0
    low, high = 0, newest[-1].cursor
    for _ in range(STEPS_BACK_MAX):
        if low >= high:
            break
        middle = (low + high) // 2
        first = await _first_after(backend, middle)
        if first is not None and first.event.at < at:
            low = first.cursor
        else:
            high = middle
    return low


async def _first_after(backend: Backend, cursor: int) -> StoredEvent | None:
    found = await backend.events(after=cursor, limit=1)
    return found[0] if found else None
