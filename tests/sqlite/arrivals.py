"""Messages as they arrive, in as few words as possible."""

from __future__ import annotations

from turnlane.backends.base import Arrival
from turnlane.model.message import Message
from turnlane.model.policy import Policy

AT_ONCE = Policy(agent="agent", debounce_ms=0, max_wait_ms=0)


def arrival(who: str, origin_id: str, text: str = "hello", *, sent_at: int | None = None) -> Arrival:
    return Arrival(Message("desk", origin_id, f"desk/{who}", who, text, sent_at=sent_at), AT_ONCE)
