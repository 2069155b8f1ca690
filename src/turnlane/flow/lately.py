"""What happened lately: the end of a store's events, found without reading the rest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnlane.backends.base import Backend
from turnlane.model.view import StoredEvent

EVENTS_MAX = 4_096
REACH = 1_024
"""How far back is looked first, in cursors, and then four times as far, and so on: cursors are not dense."""


@dataclass(frozen=True)
class Lately:
    events: Sequence[StoredEvent]
    since: int
    """All that happened from then on, up to the cursor, is here."""


async def recent(backend: Backend, cursor: int, since: int) -> Lately:
    """What happened from that time up to the cursor; if that is too much, only the last of it."""
    found: Sequence[StoredEvent] = ()
    reach = REACH
    while True:
        after = max(cursor - reach, 0)
        page = await backend.events(after=after, limit=EVENTS_MAX + 1)
        if len(page) > EVENTS_MAX:
            kept = _up_to(cursor, found, since)
            return Lately(kept, max(since, kept[0].event.at) if kept else page[-1].event.at)
        found = page
        if after == 0 or (page and page[0].event.at < since):
            return Lately(_up_to(cursor, found, since), since)
        reach *= 4


def _up_to(cursor: int, events: Sequence[StoredEvent], since: int) -> Sequence[StoredEvent]:
    return [stored for stored in events if stored.cursor <= cursor and stored.event.at >= since]
