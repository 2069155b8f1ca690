"""How the other processes are told that something was written."""

from __future__ import annotations

import math

from turnlane.backends.sql.database import Row
from turnlane.clock import SystemClock

RING_SECONDS = 0.05
"""How often it is rung at least while one group follows the other."""
COMPANY_SECONDS = 10.0
"""For so long after somebody else was heard, it is rung with each group."""
HEARD_SECONDS = 5.0
SETTLED_SECONDS = 1.0
"""Whoever has rung at least every five seconds, and for a second, is heard by all the others."""


class Bell:
    """Rung with each group. It costs the server as much as a quarter of a group, for itself and for all who listen.

    So a process that hears of nobody, and has more to write at once, rings only now and then. What it owes the others
    is paid with the next group, or when it rests. Whoever has rung lately has company that rings each time, too: only
    then does silence mean that nobody has written.
    """

    def __init__(self, row: Row | None) -> None:
        self._row = row
        """The channel, and who we are. None: nobody is told."""
        self._clock = SystemClock()
        self._owes = False
        self._heard_at = self._rang_at = self._ringing_since = -math.inf

    def hear(self) -> None:
        """Called by any thread: somebody else has rung."""
        self._heard_at = self._clock.monotonic()

    @property
    def is_heard(self) -> bool:
        now = self._clock.monotonic()
        return now - self._rang_at < HEARD_SECONDS and now - self._ringing_since > SETTLED_SECONDS

    def ring(self, *, noted: bool, more_follow: bool) -> Row | None:
        """What is to be written with a group, if it is rung."""
        self._owes = self._owes or noted
        now = self._clock.monotonic()
        if self._row is None or not self._owes or (more_follow and self._can_wait(now)):
            return None
        if now - self._rang_at > HEARD_SECONDS:
            self._ringing_since = now
        self._rang_at = now
        self._owes = False
        return self._row

    def _can_wait(self, now: float) -> bool:
        return now - self._rang_at < RING_SECONDS and now - self._heard_at > COMPANY_SECONDS

    def undone(self) -> None:
        """Nobody may have heard it."""
        self._owes = True
        self._ringing_since = self._clock.monotonic()
