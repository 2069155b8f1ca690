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
EVENTS_READ_MAX = 10_000
"""What is beyond that in one refresh is passed over; reading all lanes tells what it came to."""
EVENTS_BACK_MAX = 8_000
"""So much of the past; with some room for what comes meanwhile."""
STEPS_BACK_MAX = 28
"""Of halving, to find where the last minute begins …"""
CLOSE_ENOUGH_MS = 1_000
"""… and when that is found."""


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
        events = await self._after(self._cursor, EVENTS_READ_MAX)
        self.board.hear([stored.event for stored in events])
        self._cursor = events[-1].cursor if events else self._cursor
        if len(events) >= EVENTS_READ_MAX:
            newest = await self._backend.events(after=-1)
            self._cursor = newest[-1].cursor if newest else self._cursor
            self.board.miss(events[-1].event.at, now)

    async def _beginning(self, now: int) -> int:
        """Where to begin: a minute ago, or as far back as can be read at once."""
        since = now - SPAN_MS
        cursor = await cursor_at(self._backend, since)
        events = await self._after(cursor, EVENTS_BACK_MAX)
        if len(events) >= EVENTS_BACK_MAX:
            since = now - (events[-1].event.at - events[0].event.at)
            cursor = await cursor_at(self._backend, since)
        self.board.begin(since)
        return cursor

    async def _after(self, cursor: int, most: int) -> list[StoredEvent]:
        found: list[StoredEvent] = []
        while len(found) < most:
            page = await self._backend.events(after=cursor, limit=EVENTS_AT_ONCE)
            found += page
            if len(page) < EVENTS_AT_ONCE:
                break
            cursor = page[-1].cursor
        return found


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
    """A cursor after which all events since then come, and few before. Found by halves, as cursors are not dense.

    Each step may take a while, where the store is a server of streams.
    """
    newest, oldest = await backend.events(after=-1), await _first_after(backend, 0)
    if not newest or oldest is None or oldest.event.at >= at:
        return 0
    low, high = oldest.cursor, newest[-1].cursor
    for _ in range(STEPS_BACK_MAX):
        if low >= high:
            break
        middle = (low + high) // 2
        first = await _first_after(backend, middle)
        if first is None or first.event.at >= at:
            high = middle
            continue
        low = first.cursor
        if first.event.at >= at - CLOSE_ENOUGH_MS:
            break
    return low


async def _first_after(backend: Backend, cursor: int) -> StoredEvent | None:
    found = await backend.events(after=cursor, limit=1)
    return found[0] if found else None
