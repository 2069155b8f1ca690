"""How much one sender may say."""

from __future__ import annotations

from turnlane.model.value import value


@value
class Pace:
    """One message in this time, and so many at once after a while in which none came."""

    every_ms: int
    burst: int
