"""When a schedule is due: five fields of cron in a time zone, or every so often.

    minute  hour  day of month  month  day of week     each `*`, a number or name, a range, a list, or these with a step

Whoever asks, on whatever machine, is told the same times: they follow from the text and the time zone alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from turnlane.errors import InvalidSchedule
from turnlane.model.value import value

LOOK_DAYS = 8 * 366
"""Between two 29ths of February lie eight years at most. What does not come in that time never comes."""

TURNED_BACK_MOST = timedelta(hours=3)
"""No zone has ever turned its clocks back further at once, since there are computers."""

EVERY_MS_LEAST = 1_000

SHORTHANDS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(\*|\w{1,9})(?:-(\w{1,9}))?(?:/(\w{1,9}))?")


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five: what it is called, and which numbers and names it knows."""

    name: str
    least: int
    most: int
    names: Mapping[str, int]

    def read(self, text: str) -> frozenset[int]:
        return frozenset(number for part in text.split(",") for number in self._part(part))

    def _part(self, text: str) -> Sequence[int]:
        match = _PART.fullmatch(text)
        if match is None or (match[1] == "*" and match[2]):
            raise self._wrong(text, f"is no number, range, list or step; {self._expected}")
        first, last, step = match[1], match[2], match[3]
        low = self.least if first == "*" else self._number(first, text)
        # A single number is only itself, but with a step it is where the steps begin.
        high = self._number(last, text) if last else low if first != "*" and step is None else self.most
        if low > high:
            raise self._wrong(text, f"begins after it ends; write it as two: {first}-{self.most},{self.least}-{last}")
        return range(low, high + 1, 1 if step is None else self._step(step, text))

    def _number(self, word: str, text: str) -> int:
        number = self.names.get(word.lower())
        if number is None and word.isdecimal():
            number = int(word)
        if number is None or not self.least <= number <= self.most:
            raise self._wrong(text, f"is out of range; {self._expected}")
        return number

    def _step(self, word: str, text: str) -> int:
        if not word.isdecimal() or int(word) < 1:
            raise self._wrong(text, "needs a step of at least 1, like */15")
        return int(word)

    @property
    def _expected(self) -> str:
        names = f" or {next(iter(self.names))} to {list(self.names)[-1]}" if self.names else ""
        return f"use {self.least} to {self.most}{names}, *, a-b, a,b or */n"

    def _wrong(self, text: str, why: str) -> InvalidSchedule:
        return InvalidSchedule(f'the {self.name} "{text}" {why}')


MINUTE = Field("minute", 0, 59, {})
HOUR = Field("hour", 0, 23, {})
DAY = Field("day of month", 1, 31, {})
MONTH = Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY = Field("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)})
FIELDS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class Cron:
    """What `cron` has read."""

    minutes: Sequence[int]
    hours: Sequence[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both days are restricted: then, as in cron, either of them will do."""
    zone: ZoneInfo

    def next_after(self, moment_ms: int) -> int:
        """The first time that is strictly later.

        A time that the clocks skip is due at the first moment after the gap. One that comes twice is due when it first
        comes, or both times if every hour has one: whoever says "every ten minutes" does not mean an hour's silence.
        """
        later: list[int] = []
        for wall in self._walls(self._wall_before(moment_ms // 1000)):
            moments = self._moments(wall)
            later += [moment for moment in moments if moment * 1000 > moment_ms]
            if moments[0] * 1000 > moment_ms:
                return min(later) * 1000
        raise InvalidSchedule("this time never comes; check the day of month and the month")

    def _wall_before(self, seconds: int) -> datetime:
        """From where on the wall's clock everything lies that is still to come. What comes twice lies behind."""
        here = self._local(seconds).replace(tzinfo=None)
        reach = int(TURNED_BACK_MOST.total_seconds())
        ago, ahead = (self._local(seconds + away).utcoffset() for away in (-reach, reach))
        return here if ago == ahead else here - TURNED_BACK_MOST

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """What the clock on the wall shows at each due time, from that minute on."""
        start = start.replace(second=0, microsecond=0)
        for ahead in range(LOOK_DAYS + 1):
            day = start.date() + timedelta(days=ahead)
            if self._has_day(day):
                times = (time(hour, minute) for hour in self.hours for minute in self.minutes)
                yield from (wall for each in times if (wall := datetime.combine(day, each)) >= start)

    def _has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday

    def _moments(self, wall: datetime) -> Sequence[int]:
        """When the wall shows this, in seconds since 1970."""
        first, second = (self._seconds(wall, fold) for fold in (0, 1))
        if self._local(first).replace(tzinfo=None) != wall:
            return [self._end_of_gap(second, first)]
        return [first, second] if second > first and len(self.hours) == 24 else [first]

    def _end_of_gap(self, before: int, after: int) -> int:
        offset = self._local(after).utcoffset()
        while after - before > 1:
            middle = (before + after) // 2
            if self._local(middle).utcoffset() == offset:
                after = middle
            else:
                before = middle
        return after

    def _local(self, seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, self.zone)

    def _seconds(self, wall: datetime, fold: int) -> int:
        return int(wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC).timestamp())


@value
class Every:
    """Multiples of a length of time since 1970 in UTC, so that all machines agree without asking each other."""

    ms: int

    def next_after(self, moment_ms: int) -> int:
        return (moment_ms // self.ms + 1) * self.ms


Times = Cron | Every


@lru_cache(maxsize=1000)
def cron(text: str, zone: str = "UTC") -> Cron:
    """Read five fields, or a word like @daily. InvalidSchedule names the field that cannot be read."""
    words = SHORTHANDS.get(text.strip().lower(), text).split()
    if words and words[0].startswith("@"):
        raise InvalidSchedule(f'"{words[0]}" is not known; use one of {", ".join(SHORTHANDS)}, or five fields')
    if len(words) != len(FIELDS):
        wanted = ", ".join(field.name for field in FIELDS)
        raise InvalidSchedule(f'"{text}" has not five fields but {len(words)}: {wanted}; like "0 9 * * mon-fri"')
    minutes, hours, days, months, weekdays = (field.read(word) for field, word in zip(FIELDS, words, strict=True))
    read = Cron(
        sorted(minutes),
        sorted(hours),
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        not words[2].startswith("*") and not words[4].startswith("*"),
        _zone(zone),
    )
    read.next_after(0)
    return read


def every(ms: int) -> Every:
    if ms < EVERY_MS_LEAST:
        raise InvalidSchedule(f"a schedule is due once a second at most; give at least {EVERY_MS_LEAST // 1000}s")
    return Every(ms)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidSchedule(
            f'no time zone "{name}" on this machine; use a name like "Europe/Berlin" or "UTC", '
            "or install the package tzdata"
        ) from None
