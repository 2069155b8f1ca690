"""A schedule: what is said in a conversation, and when; and what becomes of the times at which nobody was there."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from turnlane.errors import InvalidSchedule
from turnlane.model.cron import Times, cron, every
from turnlane.model.message import CONVERSATION_BYTES_MAX, Message, channel_of
from turnlane.model.value import value

Missed = Literal["once", "skip", "all"]
"""Of the times that passed while nobody ran: said once for all of them, for none, or for each."""

MISSED_MAX = 100
"""With "all", so many are said at most."""

PROMPT_CHARACTERS_MAX = 10_000

LATE_MS = 60_000
"""With "skip": what is not later than this was not missed. A lost worker's tick is taken over within its lease."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@value
class Passed:
    """What one tick comes to."""

    due: tuple[int, ...]
    """The times for which the prompt is said now."""
    missed_from: int | None
    """The first of those that are passed over, if any are."""
    next_at: int


@value
class Schedule:
    """The definition. Kept in the store, so that every process agrees about it."""

    name: str
    conversation: str
    prompt: str
    cron: str | None = None
    zone: str = "UTC"
    every_ms: int | None = None
    missed: Missed = "once"
    missed_max: int = MISSED_MAX
    enabled: bool = True
    by: Literal["file", "operator"] = "operator"
    """Who put it there. What is of the settings file goes with it."""

    @property
    def key(self) -> str:
        """Of its lane."""
        return key_of(self.name)

    @property
    def times(self) -> Times:
        """InvalidSchedule: they cannot be read, or not on this machine."""
        if (self.cron is None) == (self.every_ms is None):
            raise InvalidSchedule('give either cron, like "0 9 * * mon-fri", or every, like "15m"')
        return cron(self.cron, self.zone) if self.cron is not None else every(self.every_ms or 0)

    def check(self) -> None:
        """InvalidSchedule says what to change."""
        if not _NAME.fullmatch(self.name):
            raise InvalidSchedule(
                f'"{self.name[:70]}" is no name for a schedule: up to 64 of a-z, 0-9, _ and -, a letter or digit first'
            )
        if not self.prompt.strip() or "\0" in self.prompt or len(self.prompt) > PROMPT_CHARACTERS_MAX:
            raise InvalidSchedule(
                "the prompt is what the agent is told: not empty, without NUL characters, "
                f"and at most {PROMPT_CHARACTERS_MAX} characters long"
            )
        channel, _, room = self.conversation.partition("/")
        if not channel or not room or len(self.conversation) > CONVERSATION_BYTES_MAX or "\0" in self.conversation:
            raise InvalidSchedule(
                f'"{self.conversation[:70]}" is no conversation; write CHANNEL/ROOM, such as web/alice'
            )
        if not 1 <= self.missed_max <= 10_000:
            raise InvalidSchedule("missed_max is a number from 1 to 10000")
        _ = self.times

    def keeps_time_with(self, other: Schedule) -> bool:
        mine, others = ((each.cron, each.zone, each.every_ms, each.enabled) for each in (self, other))
        return mine == others

    def next_after(self, now: int) -> int | None:
        """None: it is switched off."""
        return self.times.next_after(now) if self.enabled else None

    def passed(self, first: int, now: int) -> Passed:
        """`first` has come, and perhaps others after it."""
        times = self.times
        if self.missed == "skip" and now - first > LATE_MS:
            return Passed((), first, times.next_after(now))
        due, following = [first], times.next_after(first)
        most = self.missed_max if self.missed == "all" else 1
        while following <= now and len(due) < most:
            due.append(following)
            following = times.next_after(following)
        if following <= now:
            return Passed(tuple(due), following, times.next_after(now))
        return Passed(tuple(due), None, following)

    def message(self, at: int) -> Message:
        """What is said for the due time `at`: under an id that makes it impossible to say it twice."""
        channel, sender = channel_of(self.conversation), self.key
        origin_id = f"{sender}/{_written(at)}"
        return Message(channel, origin_id, self.conversation, sender, self.prompt, sent_at=at, role="schedule")


def key_of(name: str) -> str:
    return f"schedule/{name}"


def _written(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
