"""Reads for operators, in a thread of their own that never waits for a writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from turnlane.model.delivery import DeliveryState
from turnlane.model.lane import Kind, LaneState
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.question import QuestionView
from turnlane.model.usage import Period, Spent
from turnlane.model.view import (
    Busy,
    Changes,
    Counts,
    DeadLetter,
    DeliveryView,
    LaneView,
    Lock,
    ScheduleView,
    SessionView,
    StoredEvent,
    Story,
    WorkerView,
)

T = TypeVar("T")

EVENTS_PER_ROW_MAX = 1_000_000
"""A cursor is `row * EVENTS_PER_ROW_MAX + place`, so that it grows with both."""


class Views(Protocol):
    """What is seen of a store, as the contract of a backend says."""

    def version(self) -> int:
        """Another one whenever somebody has written."""

    def lanes(
        self, *, kind: Kind, state: LaneState | None, channel: str | None, limit: int, now: int
    ) -> list[LaneView]: ...
    def board(self, limit: int, now: int) -> list[LaneView]: ...
    def story(self, conversation: str, limit: int, now: int) -> Story | None: ...
    def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None: ...
    def deliveries(self, conversation: str, after: int, limit: int) -> list[DeliveryView]: ...
    def delivery(self, id: str) -> DeliveryView | None: ...
    def questions(self, conversation: str, limit: int) -> list[QuestionView]: ...
    def outbox(self, state: DeliveryState, limit: int) -> list[DeliveryView]: ...
    def dead_letters(self, conversation: str | None, limit: int) -> list[DeadLetter]: ...
    def locks(self) -> list[Lock]: ...
    def busy(self, worker: str, now: int) -> list[Busy]: ...
    def waiting(self, conversation: str) -> list[Message]: ...
    def workers(self) -> list[WorkerView]: ...
    def schedules(self, now: int) -> list[ScheduleView]: ...
    def person(self, channel: str, user: str) -> Person | None: ...
    def changed_people(self, after: int) -> tuple[list[Person], int]: ...
    def sessions(self, agent: str | None, limit: int) -> list[SessionView]: ...
    def spent(self, wanted: Period) -> list[Spent]: ...
    def counts(self, now: int) -> Counts: ...
    def configuration(self) -> Mapping[str, str]: ...
    def events(self, after: int, limit: int) -> list[StoredEvent]: ...
    def changes(self, after: int, limit: int, now: int) -> Changes: ...


class Reader:
    """`read` is called with what somebody wants to see, and hands it the views of the store."""

    def __init__(self, read: Callable[[Callable[[Any], Any]], Any], close: Callable[[], None]) -> None:
        self._read = read
        self._close = close
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="turnlane-reader")

    async def read(self, view: Callable[[Any], T]) -> T:
        seen: T = await asyncio.get_running_loop().run_in_executor(self._thread, self._read, view)
        return seen

    def close(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown()
