"""When a schedule is due: a table of cases, and what holds for every expression at every moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlane.errors import InvalidSchedule
from turnlane.model.cron import cron, every

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def shown(moment: int, zone: str) -> str:
    return datetime.fromtimestamp(moment / 1000, cron("* * * * *", zone).zone).strftime("%Y-%m-%d %H:%M %z")


def due(text: str, zone: str, after: str, count: int) -> list[str]:
    moment, times = ms(after), []
    for _ in range(count):
        moment = cron(text, zone).next_after(moment)
        times.append(shown(moment, zone))
    return times


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:30+00:00", ["2026-01-01 00:01 +0000", "2026-01-01 00:02 +0000"]),
        ("*/15 * * * *", "2026-01-01 00:50+00:00", ["2026-01-01 01:00 +0000", "2026-01-01 01:15 +0000"]),
        ("5/20 8 * * *", "2026-01-01 08:10+00:00", ["2026-01-01 08:25 +0000", "2026-01-01 08:45 +0000"]),
        ("0 9 * * mon-fri", "2026-01-02 09:00+00:00", ["2026-01-05 09:00 +0000", "2026-01-06 09:00 +0000"]),
        ("0 0 * * 5-7", "2026-01-02 00:00+00:00", ["2026-01-03 00:00 +0000", "2026-01-04 00:00 +0000"]),
        ("0 0 1 JAN,jul *", "2026-01-01 00:00+00:00", ["2026-07-01 00:00 +0000", "2027-01-01 00:00 +0000"]),
        ("0 0 13 * fri", "2026-03-01 00:00+00:00", ["2026-03-06 00:00 +0000", "2026-03-13 00:00 +0000"]),
        ("0 0 */10 * fri", "2026-05-01 00:00+00:00", ["2026-07-31 00:00 +0000", "2026-08-21 00:00 +0000"]),
        ("0 0 31 * *", "2026-01-31 00:00+00:00", ["2026-03-31 00:00 +0000", "2026-05-31 00:00 +0000"]),
        ("0 0 29 feb *", "2096-02-29 00:00+00:00", ["2104-02-29 00:00 +0000", "2108-02-29 00:00 +0000"]),
        ("@hourly", "2026-01-01 00:00+00:00", ["2026-01-01 01:00 +0000", "2026-01-01 02:00 +0000"]),
        ("@weekly", "2026-01-01 00:00+00:00", ["2026-01-04 00:00 +0000", "2026-01-11 00:00 +0000"]),
        ("@Yearly", "2026-01-01 00:00+00:00", ["2027-01-01 00:00 +0000", "2028-01-01 00:00 +0000"]),
    ],
)
def test_an_expression_is_due_when_cron_says(text: str, after: str, expected: list[str]) -> None:
    assert due(text, "UTC", after, len(expected)) == expected


def test_a_time_that_the_clocks_skip_is_due_at_the_first_moment_after_the_gap() -> None:
    days = due("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00+00:00", 2)
    assert days == ["2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"]


def test_a_time_that_comes_twice_is_due_once() -> None:
    days = due("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00+00:00", 2)
    assert days == ["2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"]


def test_what_is_due_every_hour_does_not_fall_silent_while_the_clocks_are_turned_back() -> None:
    hours = due("0,30 * * * *", "Europe/Berlin", "2026-10-25 00:00+00:00", 4)
    assert hours == [
        "2026-10-25 02:30 +0200",
        "2026-10-25 02:00 +0100",
        "2026-10-25 02:30 +0100",
        "2026-10-25 03:00 +0100",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("* * * *", "has not five fields but 4"),
        ("0 0 9 * * mon", "has not five fields but 6"),
        ("", "has not five fields but 0"),
        ("61 * * * *", 'the minute "61" is out of range; use 0 to 59'),
        ("* 24 * * *", 'the hour "24"'),
        ("* * 0 * *", 'the day of month "0"'),
        ("* * * foo *", 'the month "foo" is out of range; use 1 to 12 or jan to dec'),
        ("* * * * mon-noon", 'the day of week "mon-noon"'),
        ("*/0 * * * *", "needs a step of at least 1"),
        ("*/" + "9" * 5000 + " * * * *", "the minute"),
        ("50-10 * * * *", "begins after it ends; write it as two: 50-59,0-10"),
        ("1,,2 * * * *", 'the minute "" is no number'),
        ("*-5 * * * *", "is no number"),
        ("0 0 30 feb *", "this time never comes"),
        ("@reboot", '"@reboot" is not known; use one of @hourly'),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_name_of_its_field(text: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        cron(text)
    assert says in str(refused.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "", "../../etc/passwd"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(InvalidSchedule, match=r"no time zone .* use a name like"):
        cron("* * * * *", zone)


def test_every_so_often_is_counted_from_1970_so_that_all_machines_agree() -> None:
    quarter = every(900_000)
    assert shown(quarter.next_after(ms("2026-01-01 10:00:01+00:00")), "UTC") == "2026-01-01 10:15 +0000"
    assert quarter.next_after(ms("2026-01-01 10:15+00:00")) == ms("2026-01-01 10:30+00:00")
    with pytest.raises(InvalidSchedule, match="at least 1s"):
        every(999)


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    spread = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(st.sampled_from(["*", str(least), f"{least}-{most}"]), st.integers(1, most)).map(
        lambda pair: f"{pair[0]}/{pair[1]}"
    )
    one = st.one_of(number.map(str), spread, stepped)
    return st.one_of(st.just("*"), st.just("*"), st.lists(one, min_size=1, max_size=2).map(",".join))


EXPRESSIONS = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)).map(" ".join)
# Around the days on which clocks are turned, and any others.
MOMENTS = st.one_of(
    st.integers(ms("2026-03-27 00:00+00:00"), ms("2026-04-06 00:00+00:00")),
    st.integers(ms("2026-10-23 00:00+00:00"), ms("2026-11-03 00:00+00:00")),
    st.integers(0, ms("2080-01-01 00:00+00:00")),
)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS)
def test_the_next_time_is_later_and_nothing_that_matches_lies_between(text: str, zone: str, moment: int) -> None:
    times = cron(text, zone)
    following = times.next_after(moment)
    assert following > moment
    hour = text.split()[1]
    # By brute force, over at most two days of minutes before it: whoever the wall matches is due, or comes twice.
    start = max(moment // 60_000 + 1, following // 60_000 - 2 * 24 * 60)
    for minute in range(start, following // 60_000):
        wall = datetime.fromtimestamp(minute * 60, times.zone)
        assert not matches(text, wall) or (wall.fold and hour != "*"), (text, wall)
    wall = datetime.fromtimestamp(following / 1000, times.zone)
    assert matches(text, wall) or any(matches(text, skipped) for skipped in skipped_before(wall))


def matches(text: str, wall: datetime) -> bool:
    """Read naively, field by field."""
    minute, hour, day, month, weekday = text.split()
    by_date, by_weekday = holds(day, wall.day, 1, 31), holds(weekday, wall.isoweekday() % 7, 0, 7)
    if not day.startswith("*") and not weekday.startswith("*"):
        on_day = by_date or by_weekday
    else:
        on_day = by_date and by_weekday
    return (
        on_day
        and holds(minute, wall.minute, 0, 59)
        and holds(hour, wall.hour, 0, 23)
        and holds(month, wall.month, 1, 12)
    )


def holds(field: str, number: int, least: int, most: int) -> bool:
    if most == 7 and number == 0 and holds(field, 7, 0, 7):
        return True
    for part in field.split(","):
        numbers, _, step = part.partition("/")
        low, _, high = numbers.partition("-")
        first = least if low == "*" else int(low)
        last = int(high) if high else most if low == "*" or step else first
        if first <= number <= last and (number - first) % int(step or 1) == 0:
            return True
    return False


def skipped_before(wall: datetime) -> list[datetime]:
    """What the clock did not show, if it was put forward at this very moment."""
    before = (wall.astimezone(UTC) - timedelta(minutes=1)).astimezone(wall.tzinfo)
    gap = round((wall.replace(tzinfo=None) - before.replace(tzinfo=None)).total_seconds() / 60)
    return [before.replace(tzinfo=None) + timedelta(minutes=ahead) for ahead in range(1, gap)]
