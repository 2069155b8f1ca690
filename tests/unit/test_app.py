"""The bot connects the parts: channels, agents, a store and a worker, started and ended together."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx2
import pytest

from turnlane import Bot, Message, Reply, Terminal, Turn, Webhook
from turnlane.agents.echo import Echo
from turnlane.backends import open_backend
from turnlane.channels.base import Heard, Receive
from turnlane.errors import BackendError, BackendUnavailable, InvalidSettings, NotFound
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.event import EVENTS, Event
from turnlane.model.lane import Kind
from turnlane.model.limits import Limits, Pauses
from turnlane.model.schedule import Schedule
from turnlane.settings import Settings, load

QUICK = {"TURNLANE_LANES_DEBOUNCE": "0s", "TURNLANE_LANES_MAX_WAIT": "0s"}


class Desk:
    """A channel inside the process."""

    def __init__(self, name: str = "desk") -> None:
        self.name = name
        self.sent: list[str] = []
        self.closed = 0

    async def send(self, delivery: Delivery) -> SendResult:
        self.sent.append(delivery.text)
        return Sent()

    async def close(self) -> None:
        self.closed += 1


class Radio(Desk):
    """A channel that fetches by itself."""

    def __init__(self, *texts: str, fails: Exception | None = None) -> None:
        super().__init__("radio")
        self.texts = texts
        self.fails = fails

    async def listen(self, receive: Receive) -> None:
        for number, text in enumerate(self.texts):
            await receive(Heard([Message("radio", f"m-{number}", "radio/alice", "alice", text)]))
        if self.fails:
            raise self.fails


def settings_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "turnlane.toml"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def quick_lanes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TURNLANE_BACKEND", "TURNLANE_LISTEN"):
        monkeypatch.delenv(name, raising=False)


def quick_settings() -> Settings:
    return load(None, QUICK)


async def until_it_ends(bot: Bot) -> None:
    async with asyncio.timeout(20), bot.running():
        await bot._stopping.wait()


async def test_twelve_lines_are_a_bot() -> None:
    """Each line that is typed is a message; the bot ends when there are no more and all are answered."""
    typed, printed = io.StringIO("hello\n"), io.StringIO()
    bot = Bot(Terminal(source=typed, sink=printed), backend="memory://", settings=quick_settings())

    @bot.reply
    async def answer(turn: Turn) -> str:
        return f"You said: {turn.text}"

    await until_it_ends(bot)
    assert printed.getvalue() == "You said: hello\n"


async def test_what_was_said_before_a_restart_is_answered_after_it(tmp_path: Path) -> None:
    """A13, through the front door."""
    backend = f"sqlite:///{tmp_path}/hello.db"
    first = Bot(Desk(), backend=backend, settings=quick_settings())
    first.reply(lambda turn: "never runs")
    async with first.running(work=False):
        received = await first.receive([Message("desk", "m-1", "desk/alice", "alice", "hello")])
        assert (received.accepted, received.duplicates) == (1, 0)
    desk = Desk()
    second = Bot(desk, backend=backend, settings=quick_settings())
    second.reply(lambda turn: Reply(f"re: {turn.text}"))
    async with second.running():
        await answered(second)
    assert desk.sent == ["re: hello"]


async def test_a_bot_without_anything_to_answer_with_says_so() -> None:
    bot = Bot(Desk(), backend="memory://")
    with pytest.raises(InvalidSettings, match=r"decorate a function with @bot\.reply"):
        async with bot.running():
            pass


def test_a_bot_has_one_reply_function() -> None:
    bot = Bot(Desk(), backend="memory://")
    bot.reply(lambda turn: "one")
    with pytest.raises(InvalidSettings, match="remove one of them"):
        bot.reply(lambda turn: "two")


def test_two_channels_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="a name of its own"):
        Bot(Desk(), Desk(), backend="memory://")


async def test_a_message_for_a_channel_that_is_not_there_is_refused_and_not_stored() -> None:
    bot = Bot(Desk(), backend="memory://")
    bot.reply(lambda turn: "ok")
    async with bot.running(work=False):
        with pytest.raises(NotFound, match="known: desk"):
            await bot.receive([Message("dsek", "m-1", "dsek/alice", "alice", "hello")])
        assert await bot.backend.lanes() == []


async def test_everything_is_closed_at_the_end_also_when_a_part_failed() -> None:
    desk, radio = Desk(), Radio(fails=OSError("no reception"))
    bot = Bot(desk, radio, backend="memory://")
    bot.reply(lambda turn: "ok")
    with pytest.raises(OSError, match="no reception"):
        await until_it_ends(bot)
    assert (desk.closed, radio.closed) == (1, 1)


async def test_a_worker_that_cannot_go_on_ends_the_bot_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a bot would only look alive."""
    desk = Desk()
    bot = Bot(desk, backend="memory://")
    bot.reply(lambda turn: "ok")

    async def damaged(*_: object) -> None:
        raise BackendError("the file is damaged; restore a backup")

    monkeypatch.setattr(bot.backend, "join", damaged)
    with pytest.raises(BackendError, match="restore a backup"):
        await until_it_ends(bot)
    assert desk.closed == 1


async def test_a_second_stop_stops_at_once() -> None:
    """A12: the first lets the running turn finish, the second gives it back."""
    asked, cancelled = asyncio.Event(), asyncio.Event()
    bot = Bot(Radio("think for ever"), backend="memory://", settings=quick_settings())

    @bot.reply
    async def answer(turn: Turn) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    facts: list[Event] = []
    bot.subscribe(facts.extend)
    running = asyncio.create_task(until_it_ends(bot))
    await asyncio.wait_for(asked.wait(), 10)
    bot.stop()
    assert [dict(event.facts) for event in facts if event.name == "server.draining"] == [{"seconds": 30.0}]
    await asyncio.sleep(0)
    assert not cancelled.is_set()
    bot.stop()
    await asyncio.wait_for(running, 10)
    assert cancelled.is_set()


async def test_a_served_bot_says_where_and_stores_before_it_answers(tmp_path: Path) -> None:
    """C2 and B8: what the server tells has the documented names and particulars, too."""
    hooks = load(None, {**QUICK, "TURNLANE_LISTEN": "127.0.0.1:0"})
    bot = Bot(Webhook("site"), Desk(), backend="memory://", settings=hooks)
    bot.reply(lambda turn: None)
    facts: list[Event] = []
    bot.subscribe(facts.extend)
    async with bot.running():
        (ready,) = [event for event in facts if event.name == "server.ready"]
        async with httpx2.AsyncClient(base_url=str(ready.facts["url"])) as client:
            body = {"id": "m-1", "conversation": "alice", "sender": "alice", "text": "hello"}
            stored = await client.post("/channels/site", json=body)
            refused = await client.post("/channels/nowhere", json=body)
        await answered(bot)
        bot.stop()
    assert (stored.status_code, stored.json()) == (202, {"accepted": 1, "duplicates": 0, "rejected": 0})
    assert refused.status_code == 404
    told = {event.name for event in facts}
    assert {"server.ready", "server.draining", "hook.received", "hook.refused", "turn.answered"} <= told
    wrong = [event.name for event in facts if set(event.facts) != documented(event.name)]
    assert wrong == []


async def test_a_route_decides_which_agent_answers_and_how(tmp_path: Path) -> None:
    path = settings_file(
        tmp_path,
        """
        backend = "memory://"
        [channels.web]
        kind = "web"
        [channels.site]
        kind = "webhook"
        [agents.loud]
        kind = "echo"
        [agents.quiet]
        kind = "echo"
        [[routes]]
        channel = "site"
        agent = "quiet"
        debounce = "7s"
        [[routes]]
        channel = "web"
        agent = "loud"
        """,
    )
    bot = Bot.from_settings(load(path, {}))
    async with bot.running(serve=False, work=False):
        for channel in ("web", "site"):
            await bot.receive([Message(channel, "m-1", f"{channel}/alice", "alice", "hello")])
        lanes = {lane.conversation: lane for lane in await bot.backend.lanes()}
    assert {key: lane.agent for key, lane in lanes.items()} == {"web/alice": "loud", "site/alice": "quiet"}
    site, now = lanes["site/alice"], bot.clock.now()
    assert now + 5_000 < (site.ready_at or 0) <= now + 7_000


def documented(name: str) -> set[str]:
    return set(EVENTS[name].rpartition(". ")[2].split(", "))


async def answered(bot: Bot) -> None:
    async with asyncio.timeout(20):
        await bot._all_answered()


async def test_what_is_stored_meanwhile_is_in_force_without_a_restart() -> None:
    """D8: limits and pauses for the next claim, policies for the next message, commands and schedules too."""
    bot = Bot(Desk(), backend="memory://", agents={"echo": Echo()}, settings=quick_settings())
    applied = asyncio.Queue[Event]()

    def listen(events: Sequence[Event]) -> None:
        for event in events:
            if event.name == "settings.applied":
                applied.put_nowait(event)

    bot.subscribe(listen)
    async with asyncio.timeout(20), bot.running(work=False):
        await bot.backend.schedule(Schedule("pulse", "desk/alice", "beat", every_ms=3_600_000), bot.policy_for("desk"))
        await bot.backend.configure("paused", "true")
        await bot.backend.configure("limits.all", "3")
        await bot.backend.configure("lanes.attempts", "9")
        await bot.backend.configure("commands.stop", "/halt")
        await applied.get()
        assert bot.backend.limits == Limits(all=3, pauses=Pauses(all=True))
        assert bot.policy_for("desk").attempts == 9
        await bot.receive([Message("desk", "m-1", "desk/bob", "bob", "/halt")])
        story = await bot.backend.story("desk/bob")
        assert story is not None
        assert list(story.outcomes.values()) == ["command"]
        await bot.backend.configure("paused", None)
        await applied.get()
        assert bot.backend.limits == Limits(all=3)
        await bot.backend.fire("pulse", 1)
        await bot.backend.join("worker", 60_000)
        [lease] = await bot.backend.claim("worker", Kind.TURN)
        assert (lease.key, lease.policy.attempts) == ("desk/alice", 9)


async def test_a_stored_setting_that_does_not_fit_does_not_keep_a_bot_from_starting(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_backend(url)
    await store.open()
    await store.configure("lanes.attempts", "many")
    await store.configure("lanes.max_batch", "4")
    await store.close()
    bot = Bot(Desk(), backend=url, agents={"echo": Echo()}, settings=quick_settings())
    heard: list[Event] = []
    bot.subscribe(heard.extend)
    async with asyncio.timeout(20), bot.running():
        assert bot.settings.lanes.max_batch == 4
    assert [event.facts["setting"] for event in heard if event.name == "settings.ignored"] == ["lanes.attempts"]


async def test_a_store_that_goes_away_in_the_middle_of_a_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    bot = Bot(desk, backend="memory://", agents={"echo": Echo()}, settings=quick_settings())
    for verb in ("open", "configuration", "schedules"):
        monkeypatch.setattr(bot.backend, verb, failing_once(getattr(bot.backend, verb)))
    async with asyncio.timeout(20), bot.running():
        await bot.receive([Message("desk", "m-1", "desk/alice", "alice", "hello")])
        await answered(bot)
    assert desk.sent == ["You said: hello"]


async def test_a_bot_told_to_stop_while_it_waits_for_its_store_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    bot = Bot(desk, backend="memory://", agents={"echo": Echo()}, settings=quick_settings())

    async def never() -> None:
        bot.stop()
        await asyncio.Event().wait()

    monkeypatch.setattr(bot.backend, "open", never)
    async with asyncio.timeout(20), bot.running():
        assert bot._worker is None
    assert desk.closed == 1


def failing_once(verb: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    trouble = [BackendUnavailable("it was restarted in this very moment")]

    async def call(*arguments: object) -> object:
        if trouble:
            raise trouble.pop()
        return await verb(*arguments)

    return call
