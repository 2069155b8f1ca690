"""What people did is reported late and put together; much of it at once; and nothing of it is lost by a stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.channels.loopback import answers, loopback, nobody_listens
from tests.flow.world import AT_ONCE, Desk

from turnlane.app import Bot
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.turn import GaveUp, Replied, Reply, Turn
from turnlane.model.usage import Usage
from turnlane.people.activity import AT_ONCE_TOKENS, GATHERED_MAX, QUIET_MS, Activity, Report
from turnlane.people.report import ReportHook
from turnlane.settings import load
from turnlane.testing.doubles import VirtualClock


class Diary:
    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.trouble: str | None = None
        self.closed = False

    async def send(self, report: Report) -> str | None:
        if self.trouble is None:
            self.reports.append(report)
        return self.trouble

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def activity(diary: Diary, clock: VirtualClock, said: list[Event]) -> Activity:
    return Activity(diary, clock=clock, emit=said.append)


def answered(activity: Activity, user: str, tokens: int) -> None:
    lease = Lease(Kind.TURN, f"site/{user}", "w", 1, 1, 1, 0, 1, 1, AT_ONCE, 0, user=user)
    activity.note(lease, Replied(Reply("hi", usage=Usage(tokens))), "answered")


async def test_each_answer_starts_the_quiet_time_anew_and_adds_to_the_report(
    activity: Activity, diary: Diary, clock: VirtualClock
) -> None:
    """B6"""
    for _ in range(3):
        answered(activity, "alice", 100)
        clock.advance(QUIET_MS - 1)
        await activity.tell_due()
    assert diary.reports == []
    clock.advance(1)
    await activity.tell_due()
    [report] = diary.reports
    assert (report.user, report.turns, report.usage.tokens) == ("alice", 3, 300)
    await activity.tell_due()
    assert len(diary.reports) == 1


async def test_much_is_told_at_once_with_all_that_was_gathered(
    activity: Activity, diary: Diary, clock: VirtualClock
) -> None:
    answered(activity, "alice", 100)
    answered(activity, "bob", 100)
    answered(activity, "alice", AT_ONCE_TOKENS + 1)
    await activity.tell_due()
    [report] = diary.reports
    assert (report.user, report.turns, report.usage.tokens) == ("alice", 2, AT_ONCE_TOKENS + 101)


async def test_what_was_not_answered_or_taken_is_not_told(activity: Activity, diary: Diary) -> None:
    lease = Lease(Kind.TURN, "site/alice", "w", 1, 1, 1, 0, 1, 1, AT_ONCE, 0, user="alice")
    activity.note(lease, GaveUp("no"), "dead_letter")
    activity.note(lease, Replied(Reply("hi", usage=Usage(9_999))), "fenced")
    await activity.close()
    assert diary.reports == []


async def test_what_cannot_be_told_is_told_with_the_next(
    activity: Activity, diary: Diary, clock: VirtualClock, said: list[Event]
) -> None:
    diary.trouble = "the service is down"
    answered(activity, "alice", 5_000)
    await activity.tell_due()
    diary.trouble = None
    answered(activity, "alice", 10)
    clock.advance(QUIET_MS)
    await activity.tell_due()
    assert [report.usage.tokens for report in diary.reports] == [5_010]
    assert [(event.name, event.facts["cause"]) for event in said] == [("activity.untold", "the service is down")]


async def test_a_stop_tells_the_rest_first(activity: Activity, diary: Diary) -> None:
    answered(activity, "alice", 1)
    answered(activity, "bob", 2)
    await activity.close()
    assert [report.user for report in diary.reports] == ["alice", "bob"]
    assert diary.closed


async def test_what_is_gathered_is_bounded(activity: Activity, diary: Diary) -> None:
    for number in range(GATHERED_MAX + 1):
        answered(activity, f"user-{number}", 1)
    await activity.tell_due()
    assert [report.user for report in diary.reports] == ["user-0"]


async def test_a_web_hook_is_told_in_json_with_the_secret() -> None:
    report = Report("site", "alice", "site/alice", 2, Usage(100, 20, 50, 5, 1_500_000), 0)
    async with loopback(answers(200)) as server:
        hook = ReportHook(server.url, secret="sesame")
        assert await hook.send(report) is None
        assert await hook.send(report) is None
        await hook.close()
    first, second = server.requests
    assert first.json == {
        "channel": "site",
        "user": "alice",
        "conversation": "site/alice",
        "turns": 2,
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 50,
        "reasoning_tokens": 5,
        "cost": 1.5,
        "last_active_at": "1970-01-01T00:00:00.000Z",
    }
    assert first.headers["authorization"] == "Bearer sesame"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


@asynccontextmanager
async def hook_to(url: str) -> AsyncIterator[ReportHook]:
    hook = ReportHook(url, secret=None)
    yield hook
    await hook.close()


async def test_a_web_hook_that_refuses_or_is_not_there_is_said() -> None:
    report = Report("site", "alice", "site/alice", 1, Usage(1), 0)
    async with loopback(answers(500, b"no")) as server, hook_to(server.url) as hook:
        assert await hook.send(report) == "the web hook answered 500: no"
    async with hook_to(nobody_listens()) as hook:
        refused = await hook.send(report)
    assert refused is not None
    assert refused.startswith("the web hook gave no answer")


async def test_a_bot_that_stops_has_reported_what_people_did() -> None:
    desk = Desk()
    async with loopback(answers(200)) as server:
        bot = Bot(desk, settings=load(None, {"TURNLANE_ACTIVITY_URL": server.url, "TURNLANE_BACKEND": "memory://"}))

        @bot.reply
        async def answer(turn: Turn) -> Reply:
            return Reply("yes", usage=Usage(5, 2))

        async with bot.running(serve=False):
            await bot.receive([Message("desk", f"m-{number}", "desk/alice", "alice", "hi") for number in (1, 2)])
            await desk.has(1)
            assert server.requests == []
    [told] = server.requests
    assert (told.json["user"], told.json["turns"], told.json["input_tokens"]) == ("alice", 1, 5)
