"""Socket Mode: what was stored is acknowledged, nothing else is, and whoever was cut off comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from tests.channels.slack_service import (
    APP_TOKEN,
    BOT,
    ROOM,
    TEAM,
    TOKEN,
    Mode,
    SlackService,
    callback,
    limited,
    message_event,
    slack_service,
)

from turnlane.channels.base import Heard, Received
from turnlane.channels.slack import socket
from turnlane.channels.slack.channel import Slack
from turnlane.channels.slack.options import Options
from turnlane.errors import BackendUnavailable


@dataclass
class Store:
    """Takes everything once, unless told otherwise."""

    heard: list[Heard] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fails: list[Exception] = field(default_factory=list)
    waiting: int = 0
    on_change: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.open.set()

    async def receive(self, heard: Heard) -> Received:
        self.waiting += 1
        self.on_change()
        await self.open.wait()
        self.waiting -= 1
        if self.fails:
            raise self.fails.pop(0)
        self.heard.append(heard)
        fresh = {message.origin_id for message in heard.messages} - self.known
        self.known |= fresh
        if fresh and heard.when_stored is not None:
            heard.when_stored()
        return Received(accepted=len(fresh), duplicates=len(heard.messages) - len(fresh))

    @property
    def texts(self) -> list[str]:
        return [message.text for heard in self.heard for message in heard.messages]


@pytest.fixture
async def service() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        yield service


@asynccontextmanager
async def listening(service: SlackService, **options: Any) -> AsyncIterator[Store]:
    given = {"tokens": {"": TOKEN}, "app_token": APP_TOKEN, "base_url": service.url, **options}
    channel = Slack("slack", Options(**given), ping_seconds=0.2)
    store = Store(on_change=service.note)
    task = asyncio.create_task(channel.listen(store.receive))
    try:
        yield store
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await channel.close()


def mention(number: int = 1, text: str = "hello") -> dict[str, Any]:
    return callback(message_event(f"<@{BOT}> {text}", ts=f"1700000000.{number:06d}"))


async def test_what_was_stored_is_acknowledged(service: SlackService) -> None:
    async with listening(service) as store:
        await service.acknowledged(await service.push(mention()))
    assert store.texts == ["hello"]
    (opened,) = service.of("apps.connections.open")
    assert opened.token == APP_TOKEN
    assert not service.of("auth.test")


async def test_nothing_is_acknowledged_before_it_is_stored(service: SlackService) -> None:
    async with listening(service) as store:
        store.open.clear()
        envelope = await service.push(mention())
        await service.until(lambda: store.waiting == 1)
        assert service.acks == []
        store.open.set()
        await service.acknowledged(envelope)


async def test_what_could_not_be_stored_is_left_to_slack_to_tell_again(service: SlackService) -> None:
    async with listening(service) as store:
        store.fails = [BackendUnavailable("the disk is full"), RuntimeError("a mistake")]
        lost = [await service.push(mention()), await service.push(mention())]
        told_again = await service.push(mention())
        await service.acknowledged(told_again)
    assert not set(lost) & set(service.acks)
    assert store.texts == ["hello"]


async def test_what_is_ignored_is_acknowledged_too(service: SlackService) -> None:
    async with listening(service) as store:
        for payload, kind in (
            (callback(message_event(bot_id="B1")), "events_api"),
            ({"type": "something_new"}, "events_api"),
            ({"command": "/x", "team_id": TEAM}, "slash_commands"),
            ({"type": "view_submission"}, "interactive"),
        ):
            await service.acknowledged(await service.push(payload, kind=kind))
    assert len(store.heard) == 4
    assert store.texts == []


async def test_many_are_stored_at_once_but_not_all(service: SlackService) -> None:
    async with listening(service) as store:
        store.open.clear()
        envelopes = [await service.push(mention(number)) for number in range(1, socket.ENVELOPES_AT_ONCE + 11)]
        await service.until(lambda: store.waiting == socket.ENVELOPES_AT_ONCE)
        store.open.set()
        for envelope in envelopes:
            await service.acknowledged(envelope)
    assert len(store.texts) == len(envelopes)
    assert [heard.messages[0].origin_id for heard in store.heard] == sorted(store.known)


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_told_to_go_it_connects_again(service: SlackService, reason: str) -> None:
    async with listening(service) as store:
        await service.acknowledged(await service.push(mention(1, "before")))
        await service.disconnect(reason)
        await service.until(lambda: service.connections == 2)
        await service.acknowledged(await service.push(mention(2, "after")))
    assert store.texts == ["before", "after"]


async def test_cut_off_without_a_word_it_connects_again(service: SlackService) -> None:
    async with listening(service) as store:
        await service.acknowledged(await service.push(mention(1, "before")))
        await service.drop()
        await service.until(lambda: service.connections == 2)
        await service.acknowledged(await service.push(mention(2, "after")))
    assert store.texts == ["before", "after"]


async def test_told_to_go_while_it_stores_the_event_is_told_again_and_stored_once(service: SlackService) -> None:
    async with listening(service) as store:
        store.open.clear()
        await service.push(mention())
        await service.until(lambda: store.waiting == 1)
        await service.drop()
        store.open.set()
        await service.until(lambda: service.connections == 2)
        await service.acknowledged(await service.push(mention()))
    assert len(store.known) == 1


async def test_it_waits_longer_each_time_that_slack_gives_it_no_socket(
    service: SlackService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "PAUSE_SECONDS_FIRST", 0.02)
    service.next["apps.connections.open"].extend(
        [Mode("internal_error"), Mode("invalid_auth"), Mode(cut=True), Mode(status=503, body="no"), limited(0)]
    )
    with caplog.at_level(logging.INFO):
        async with listening(service):
            await service.acknowledged(await service.push(mention()))
    calls = service.of("apps.connections.open")
    pauses = [later.at - call.at for call, later in pairwise(calls)]
    assert len(pauses) == 5
    assert pauses[4] > pauses[0]
    assert "invalid_auth" in caplog.text
    assert "turnlane doctor" in caplog.text
    assert APP_TOKEN not in caplog.text
    assert "a-ticket" not in caplog.text


async def test_what_was_stored_is_marked_once(service: SlackService) -> None:
    async with listening(service, receipt="eyes"):
        for _ in range(2):
            await service.acknowledged(await service.push(mention()))
        await service.until(lambda: len(service.reactions) == 1)
        await service.acknowledged(await service.push(mention()))
    assert service.reactions == [(ROOM, "1700000000.000001", "eyes")]


async def test_without_an_app_token_there_is_nothing_to_listen_to(service: SlackService) -> None:
    channel = Slack("slack", Options(tokens={"": TOKEN}, signing_secret="s", base_url=service.url))
    await channel.listen(Store().receive)
    assert not service.calls


async def test_ended_in_the_middle_it_leaves_nothing_behind(service: SlackService) -> None:
    async with listening(service) as store:
        store.open.clear()
        await service.push(mention())
        await service.until(lambda: store.waiting == 1)
    assert service.acks == []
    assert [task for task in asyncio.all_tasks() if "listener" in repr(task.get_coro())] == []
