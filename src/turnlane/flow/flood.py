"""Notice who says more than the operator lets one sender say."""

from __future__ import annotations

from collections import OrderedDict

from turnlane.clock import Clock
from turnlane.model.message import Message
from turnlane.model.pace import Pace

SENDERS_MAX = 10_000
"""Remembered at once. Who is forgotten begins anew, which takes ten thousand others within one burst."""


class Flood:
    """Of the messages that this process receives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: OrderedDict[tuple[str, str, bool], int] = OrderedDict()

    def is_over(self, message: Message, pace: Pace) -> bool:
        """Counted, if it is not. Nobody but the person is counted, and what buttons say apart from what is written."""
        if message.role != "person":
            return False
        now, sender = self._clock.now(), (message.channel, message.sender, message.answers is not None)
        # Saying nothing saves up, but no more than a burst; as with what is sent (Policy.sends_again_at).
        free_at = max(self._free_at.pop(sender, 0), now - (pace.burst - 1) * pace.every_ms)
        over = free_at > now
        self._free_at[sender] = free_at if over else free_at + pace.every_ms
        if len(self._free_at) > SENDERS_MAX:
            self._free_at.popitem(last=False)
        return over
