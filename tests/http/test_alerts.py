"""B9, C7: a running bot tells by itself that something is wrong, wherever an operator looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.channels.loopback import Request, answers, loopback
from tests.http.conftest import SmallBot, eventually

from turnlane import Bot, Turn, Webhook
from turnlane.backends.base import open_backend
from turnlane.channels.secret import Secret
from turnlane.errors import BackendUnavailable
from turnlane.http.listen import bind
from turnlane.model.alert import Alert, Thresholds
from turnlane.model.event import Event
from turnlane.model.policy import Backoff
from turnlane.observe import alert_hook, watcher
from turnlane.observe.alert_hook import WAITING_MAX, AlertHook
from turnlane.observe.alerts import Change
from turnlane.settings import load
from turnlane.testing.doubles import VirtualClock

QUICK = {
    "TURNLANE_LANES_DEBOUNCE": "0s",
    "TURNLANE_LANES_MAX_WAIT": "0s",
    "TURNLANE_ALERTS_LOCK_HELD": "50ms",
    "TURNLANE_ALERTS_SAMPLES_MIN": "5",
    "TURNLANE_DRAIN": "1s",
}
PATIENCE_SECONDS = 40.0


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watcher, "REST", 1)


class Page:
    """What an operator sees of a running bot."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.AsyncClient(base_url=url, timeout=20)

    async def raised(self) -> dict[str, dict[str, Any]]:
        answer = await self._client.get("/api/alerts")
        assert answer.status_code == 200
        assert set(answer.json()) == {"alerts", "recent"}
        return {each["alert"]: each for each in answer.json()["alerts"]}

    async def shows(self, alert: str) -> dict[str, Any]:
        async def is_there() -> bool:
            return alert in await self.raised()

        await eventually(is_there, PATIENCE_SECONDS)
        return (await self.raised())[alert]

    async def post(self, json: object, secret: str) -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return (await self._client.post("/channels/site", json=json, headers=headers)).status_code

    async def metrics(self) -> str:
        return (await self._client.get("/metrics")).text

    async def close(self) -> None:
        await self._client.aclose()


async def test_a_running_bot_tells_of_a_refused_hook_a_stuck_lock_and_a_broken_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9, C7: on a real store; each is an event, and on the page of alerts."""
    bot = Bot(Webhook("site", secret="right"), backend=f"sqlite:///{tmp_path}/bot.db", settings=load(None, QUICK))
    facts: list[Event] = []
    bot.subscribe(facts.extend)
    stuck = asyncio.Event()

    @bot.reply
    async def answer(turn: Turn) -> None:
        await stuck.wait()

    listening = bind("127.0.0.1:0")
    page = Page(f"http://127.0.0.1:{listening.getsockname()[1]}")
    async with asyncio.timeout(3 * PATIENCE_SECONDS), bot.running(sockets=[listening]):
        assert await page.raised() == {}
        assert await page.post({"id": "m-1", "conversation": "alice", "text": "hi"}, "wrong") == 401
        refused = await page.shows("hook_errors")
        assert (refused["severity"], refused["value"], refused["threshold"]) == ("info", 1, 0)
        assert set(refused) == {"alert", "severity", "since", "value", "threshold", "text", "next_step"}
        assert await page.post({"id": "m-1", "conversation": "alice", "text": "hi"}, "right") == 202
        held = await page.shows("lock_held")
        assert held["severity"] == "warning"
        await _break(bot, monkeypatch)
        broken = await page.shows("store_errors")
        assert (broken["severity"], broken["threshold"]) == ("critical", 0.1)
        monkeypatch.undo()
        stuck.set()
        assert 'turnlane_store_errors_total{verb="read"}' in await page.metrics()
        await page.close()
    raised = [event.facts["alert"] for event in facts if event.name == "alert.raised"]
    assert raised[:2] == ["hook_errors", "lock_held"]
    assert "store_errors" in raised
    assert len(raised) == len(set(raised)), "each is told once"
    assert await _stored(f"sqlite:///{tmp_path}/bot.db") >= {"hook_errors", "lock_held"}


async def _break(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be read any more."""

    async def fail(view: Callable[[object], object]) -> object:
        raise BackendUnavailable("the disk is gone")

    monkeypatch.setattr(bot.backend._reader, "read", fail)  # type: ignore[attr-defined]


async def _stored(url: str) -> set[object]:
    backend = open_backend(url)
    await backend.open()
    try:
        return {each.event.facts["alert"] for each in await backend.events() if each.event.name == "alert.raised"}
    finally:
        await backend.close()


async def test_the_page_shows_what_is_raised_and_what_was(bot: SmallBot, client: httpx2.AsyncClient) -> None:
    bot.alerts.begin(0, [("turnlane_hook_errors_total", {}, 0.0)])
    bot.alerts.look(1_000, [("turnlane_hook_errors_total", {}, 2.0)])
    raised = {
        "alert": "hook_errors",
        "severity": "info",
        "since": "1970-01-01T00:00:01.000Z",
        "value": 2.0,
        "threshold": 0.0,
        "text": "2 web hooks were refused or could not be read in the last 5 minutes",
        "next_step": "the log has hook.refused and hook.aside with their causes; compare secrets and shapes",
    }
    assert (await client.get("/api/alerts")).json() == {"alerts": [raised], "recent": []}
    bot.alerts.thresholds = Thresholds(off=("hook_errors",))
    bot.alerts.look(2_000, [])
    del raised["next_step"]
    over = {**raised, "cleared_at": "1970-01-01T00:00:02.000Z"}
    assert (await client.get("/api/alerts")).json() == {"alerts": [], "recent": [over]}
    assert (await client.get("/api/alerts?limit=1")).status_code == 400


async def test_who_watches_does_not_end_what_is_watched(
    bot: SmallBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watching = watcher.Watcher(bot.alerts, backend=bot.backend, metrics=bot.metrics, clock=bot.clock)
    looks: list[int] = []

    def fail(*_: object) -> None:
        looks.append(1)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(bot.alerts, "look", fail)
    following = asyncio.create_task(watching.follow())
    await eventually(lambda: len(looks) > 2, PATIENCE_SECONDS)
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()
    assert "a mistake of ours" in caplog.text


async def test_a_store_that_is_away_is_told_of_without_it(bot: SmallBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written down, so whoever listens here is told."""
    clock, said = VirtualClock(), list[Event]()

    async def away() -> None:
        raise BackendUnavailable("away")

    monkeypatch.setattr(bot.backend, "counts", away)
    watching = watcher.Watcher(bot.alerts, backend=bot.backend, metrics=bot.metrics, clock=clock, emit=said.append)
    for _ in range(3):
        await watching.look()
        clock.advance(5_000)
    assert [(event.name, event.facts["alert"]) for event in said] == [("alert.raised", "store_down")]
    assert [each.event.name for each in await bot.backend.events()] == ["worker.joined"]
    monkeypatch.undo()
    for _ in range(20):
        await watching.look()
        clock.advance(5_000)
    assert [each.event.name for each in await bot.backend.events()] == ["worker.joined", "alert.cleared"]


@pytest.mark.parametrize(
    ("alert", "how", "is_written"),
    [
        ("store_errors", "raised", False),
        ("store_down", "raised", False),
        ("store_errors", "cleared", True),
        ("overdue", "raised", True),
    ],
)
async def test_a_store_in_trouble_is_not_asked_to_write_that_down(
    bot: SmallBot, monkeypatch: pytest.MonkeyPatch, alert: Any, how: Any, is_written: bool
) -> None:
    said = list[Event]()
    watching = watcher.Watcher(bot.alerts, backend=bot.backend, metrics=bot.metrics, clock=bot.clock, emit=said.append)
    change = Change(how, replace(RAISED.alert, alert=alert), 1)
    monkeypatch.setattr(bot.alerts, "look", lambda *_: [change])
    await watching.look()
    written = [each.event.name for each in await bot.backend.events() if each.event.name.startswith("alert.")]
    assert (written, [event.name for event in said]) == (
        ([f"alert.{how}"], []) if is_written else ([], [f"alert.{how}"])
    )


# The web hook

RAISED = Change(
    "raised", Alert("store_down", "critical", 61_000, 0.0, 1.0, "the store does not answer", "start it"), 72_000
)


async def _told(hook: AlertHook, done: Callable[[], Awaitable[bool] | bool]) -> None:
    running = asyncio.create_task(hook.run())
    await eventually(done, PATIENCE_SECONDS)
    running.cancel()
    await asyncio.wait([running])
    await hook.close()


async def test_a_web_hook_is_told_signed_and_with_an_id_that_stays() -> None:
    clock = VirtualClock()
    async with loopback(answers(200)) as server:
        hook = AlertHook(server.url, secret="whsec_c2VjcmV0LXNlY3JldA==", machine="north", clock=clock)
        hook.tell(RAISED)
        await _told(hook, lambda: len(server.requests) == 1)
    (request,) = server.requests
    assert request.json == {
        "id": "store_down/1970-01-01T00:01Z/north/token-1/raised",
        "alert": "store_down",
        "state": "raised",
        "severity": "critical",
        "since": "1970-01-01T00:01:01.000Z",
        "at": "1970-01-01T00:01:12.000Z",
        "value": 0.0,
        "threshold": 1.0,
        "text": "the store does not answer",
        "next_step": "start it",
        "machine": "north",
        "process": "token-1",
    }
    assert request.headers["webhook-id"] == request.headers["idempotency-key"] == request.json["id"]
    headers = {name: value for name, value in request.headers.items() if name.startswith("webhook-")}
    Secret("whsec_c2VjcmV0LXNlY3JldA==").check(headers, request.body, clock.now())


async def test_what_is_not_taken_is_told_again_under_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_hook, "AGAIN", Backoff(first_ms=1, factor=1, most_ms=1))
    said: list[Event] = []

    async def later(request: Request, writer: asyncio.StreamWriter) -> None:
        is_first = len(server.requests) == 1
        await (answers(503, b"later") if is_first else answers(200))(request, writer)

    async with loopback(later) as server:
        hook = AlertHook(server.url, secret=None, machine="north", clock=VirtualClock(), emit=said.append)
        hook.tell(RAISED)
        await _told(hook, lambda: len(server.requests) == 2)
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert [(event.name, event.facts["alert"], event.facts["cause"]) for event in said] == [
        ("alert.untold", "store_down", "the web hook answered 503: later")
    ]


async def test_a_web_hook_that_takes_nothing_is_left_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_hook, "AGAIN", Backoff(first_ms=1, factor=1, most_ms=1))
    said: list[Event] = []
    async with loopback(answers(410, b"gone")) as server:
        hook = AlertHook(server.url, secret=None, machine="north", clock=VirtualClock(), emit=said.append)
        hook.tell(RAISED)
        await _told(hook, lambda: len(said) == 2)
    assert len(server.requests) == alert_hook.TRIES_MAX
    assert str(said[1].facts["cause"]).startswith("given up after 10 tries")


async def test_what_waits_to_be_told_is_bounded() -> None:
    said: list[Event] = []
    hook = AlertHook("http://127.0.0.1:1/", secret=None, machine="north", clock=VirtualClock(), emit=said.append)
    for _ in range(WAITING_MAX + 3):
        hook.tell(RAISED)
    assert [event.name for event in said] == ["alert.untold"] * 3
    await hook.close()
