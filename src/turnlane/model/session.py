"""The agent's own memory of one conversation."""

from __future__ import annotations

from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.value import value


@value
class Session:
    """The handle by which an agent finds its memory again, and what was spent under that handle."""

    handle: str
    turns: int = 0
    usage: Usage = NO_USAGE
    updated_at: int = 0
    machine: str | None = None
    """The only machine that holds what the handle stands for. None: any machine can go on with it."""

    def after_turn(self, handle: str, usage: Usage, now: int, *, anew: bool = False) -> Session:
        """Tokens belong to the session: the same handle adds up, another one starts from zero, and so does one that is
        used `anew`. Bound to no machine."""
        if handle != self.handle or anew:
            return Session(handle, 1, usage, now)
        return Session(handle, self.turns + 1, self.usage + usage, now)
