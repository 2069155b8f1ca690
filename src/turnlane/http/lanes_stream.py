"""`/api/lanes/stream`: how every lane stands, and then every change, for the board of the console.

Whoever watches is told lanes, not only facts about them: a lane that is told replaces what was known of it, and is read
no earlier than the facts that are told with it. So nothing has to be worked out from facts, and being told something
twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from turnlane.flow.lately import recent
from turnlane.http.base import Bot
from turnlane.http.query import Query
from turnlane.http.stream import Streams, Told, cursor_of
from turnlane.http.wire import encode
from turnlane.model.event import Event, Fact
from turnlane.model.view import Changes, LaneView, StoredEvent

LANES_MAX = 10_000
"""In a snapshot; what is left out are idle lanes, as long as there are any."""
EVENTS_MAX = 1_000
"""Told at once."""
READ_EVERY_SECONDS = 0.1
"""All who watch share the reads of a process, and there are no more: one for each change would cost more than that."""
KEPT_MAX = 20
"""So many of the last reads are kept for whoever lags a little behind."""
RESUME_MS_MAX = 60_000
"""Whoever missed more is told how the lanes stand, rather than all that has happened since."""
PAST_MS = 60_000
"""What happened before a snapshot, so that there is something to see at once; of a busy store, less than a minute."""

COLUMNS = (
    "conversation",
    "state",
    "agent",
    "pending",
    "turn",
    "attempt",
    "epoch",
    "open",
    "owner",
    "claimed_at",
    "first_at",
    "runs_at",
    "paused_until",
    "awaits",
    "gone",
)
"""Of a lane's row. Times are milliseconds before or after the `at` of what is told. `open`: there is a batch that runs,
or is tried again; `runs_at`: when gathering or waiting ends. What is empty at the end of a row is left out."""

SHOWN: Mapping[str, str | None] = {
    "message.accepted": None,
    "message.heard": "role",
    "message.refused": "cause",
    "message.dropped": None,
    "turn.started": "attempt",
    "turn.answered": None,
    "turn.retried": "cause",
    "turn.released": None,
    "turn.lost": "worker",
    "turn.dead_lettered": "cause",
    "turn.superseded": "cause",
    "turn.asked": None,
    "delivery.sent": None,
    "delivery.retried": "cause",
    "delivery.failed": "cause",
    "delivery.lost": "worker",
    "lane.paused": "by",
    "lane.resumed": "by",
    "lane.parked": "cause",
    "lane.unparked": None,
    "lane.stopped": None,
}
"""Facts that the board draws, and of each the one particular that it tells."""


class LaneStream:
    def __init__(self, bot: Bot, streams: Streams) -> None:
        self._backend = bot.backend
        self._clock = bot.clock
        self._streams = streams
        self._kept: deque[Batch] = deque(maxlen=KEPT_MAX)
        self._reading = asyncio.Lock()
        self._rest_until = 0.0

    async def lanes(self, request: Request) -> Response:
        """From the cursor on if that is not long ago; else a snapshot, and what changes from then on."""
        cursor = cursor_of(request, Query(request, "after"))
        resumes = cursor is not None and await self._can_resume(cursor)
        return self._streams.answer(request, self._read, cursor if resumes and cursor is not None else -1)

    async def _can_resume(self, cursor: int) -> bool:
        """Only if the fact at the cursor is still kept: then so is all that followed it."""
        if cursor == 0:
            return False
        kept = await self._backend.events(after=cursor - 1, limit=2)
        if not kept or kept[0].cursor != cursor:
            return False
        return all(self._clock.now() - missed.event.at <= RESUME_MS_MAX for missed in kept[1:])

    async def _read(self, after: int) -> Sequence[Told]:
        if after < 0:
            return [await self._snapshot()]
        if not self._told_since(after):
            async with self._reading:
                if not self._told_since(after):  # else somebody else has read it meanwhile
                    return await self._read_on(after)
        return self._told_since(after)

    async def _snapshot(self) -> Told:
        """The cursor is taken before the lanes: what changes in between is told once more."""
        latest = await self._backend.events(after=-1)
        cursor = latest[-1].cursor if latest else 0
        past = await recent(self._backend, cursor, self._clock.now() - PAST_MS)
        lanes = await self._backend.board(LANES_MAX)
        counts = await self._backend.counts()
        return Snapshot(cursor, self._clock.now(), past.events, lanes, sum(counts.lanes.values()))

    def _told_since(self, after: int) -> Sequence[Told]:
        if not self._kept or not self._kept[0].after <= after < self._kept[-1].cursor:
            return []
        return [batch.since(after) for batch in self._kept if batch.cursor > after]

    async def _read_on(self, after: int) -> Sequence[Told]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._rest_until - loop.time())
        changes = await self._backend.changes(after=after, limit=EVENTS_MAX)
        self._rest_until = loop.time() + READ_EVERY_SECONDS
        if not changes.events:
            return []
        batch = Batch(after, self._clock.now(), changes)
        self._keep(batch)
        return [batch]

    def _keep(self, batch: Batch) -> None:
        newest = self._kept[-1].cursor if self._kept else 0
        if batch.after > newest:
            self._kept.clear()  # nobody watched for a while
        if batch.after >= newest:
            self._kept.append(batch)


@dataclass(frozen=True)
class Snapshot:
    cursor: int
    at: int
    past: Sequence[StoredEvent]
    lanes: Sequence[LaneView]
    total: int

    def __bytes__(self) -> bytes:
        told = _told(self.past, self.lanes, self.at)
        return _written("snapshot", self.cursor, {**told, "total": max(self.total, len(self.lanes))})


@dataclass(frozen=True)
class Batch:
    """What one read of the store found."""

    after: int
    at: int
    changes: Changes

    @property
    def cursor(self) -> int:
        return self.changes.events[-1].cursor

    def since(self, after: int) -> Batch:
        """For somebody who was told the beginning of it already."""
        if after <= self.after:
            return self
        later = [stored for stored in self.changes.events if stored.cursor > after]
        return Batch(after, self.at, Changes(later, self.changes.lanes))

    def __bytes__(self) -> bytes:
        return self._written

    @cached_property
    def _written(self) -> bytes:
        """Once, for all who watch."""
        return _written("changes", self.cursor, _told(self.changes.events, self.changes.lanes, self.at))


def _told(events: Sequence[StoredEvent], lanes: Sequence[LaneView], at: int) -> dict[str, object]:
    places = {lane.conversation: place for place, lane in enumerate(lanes)}
    shown = [told for stored in events if (told := _event(stored, places, at)) is not None]
    return {"at": at, "columns": COLUMNS, "lanes": [_row(lane, at) for lane in lanes], "events": shown}


def _written(name: str, cursor: int, data: Mapping[str, object]) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (cursor, name.encode(), encode(data))


def _row(lane: LaneView, at: int) -> list[Fact]:
    is_open = lane.claim_seq > lane.done_seq
    runs_at = lane.retry_at if is_open else lane.ready_at
    row: list[Fact] = [
        lane.conversation,
        lane.state,
        lane.agent,
        lane.pending,
        lane.number,
        lane.attempt,
        lane.epoch,
        int(is_open),
        lane.owner,
        None if lane.claimed_at is None else lane.claimed_at - at,
        None if lane.first_at is None else lane.first_at - at,
        None if runs_at is None else runs_at - at,
        None if lane.paused_until is None else lane.paused_until - at,
        lane.awaits,
        lane.gone,
    ]
    while row[-1] is None:
        row.pop()
    return row


def _event(stored: StoredEvent, places: Mapping[str, int], at: int) -> list[Fact] | None:
    """The place of its lane among those told with it, its name, its time, and what there is to tell of it."""
    event = stored.event
    if event.name not in SHOWN or _is_of_the_outbox(event):
        return None
    place = places.get(event.conversation or "")
    if place is None:
        return None
    told = SHOWN[event.name]
    return [place, event.name, event.at - at, *([] if told is None else [event.facts[told]])]


def _is_of_the_outbox(event: Event) -> bool:
    return event.facts.get("kind", "turn") != "turn"
