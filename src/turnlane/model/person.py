"""Somebody who writes: what is known of them beyond their words."""

from __future__ import annotations

from turnlane.model.value import value


@value
class Person:
    channel: str
    user: str
    """As the platform knows them: the sender of their messages."""
    name: str | None = None
    user_name: str | None = None
    labels: tuple[str, ...] = ()
    chat_id: str | None = None
    enriched_at: int | None = None
    """When the platform was last asked about them."""
    version: int = 0
    """Grows with each change; 0: nothing is stored of them."""
    changed_at: int = 0

    @property
    def place(self) -> tuple[str, str]:
        return self.channel, self.user
