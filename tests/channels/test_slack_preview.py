"""An answer in Slack that is seen while it grows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.channels.slack_service import (
    BOT,
    ROOM,
    SIGNING_SECRET,
    TEAM,
    TOKEN,
    USER,
    Mode,
    SlackService,
    callback,
    limited,
    message_event,
    signed,
    slack_service,
)

from turnlane.channels.base import Hook
from turnlane.channels.slack import previews, slack
from turnlane.channels.slack.channel import Slack
from turnlane.channels.slack.options import Options
from turnlane.clock import SystemClock
from turnlane.model.delivery import Delivery, NotSent, Sent, Unknown, delivery_id

THREAD = "1700000000.000100"
KEY = f"slack/{TEAM}.{ROOM}/{THREAD}"


@pytest.fixture
async def service() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        service.messages[ROOM].append({"type": "message", "user": USER, "text": "hi", "ts": THREAD})
        yield service


def made(service: SlackService, **options: Any) -> Slack:
    given = {"tokens": {"": TOKEN}, "base_url": service.url, "signing_secret": SIGNING_SECRET, **options}
    return slack("slack", Options(**given))


@pytest.fixture
async def channel(service: SlackService) -> AsyncIterator[Slack]:
    channel = made(service)
    yield channel
    await channel.close()


@pytest.fixture
async def native(service: SlackService) -> AsyncIterator[Slack]:
    """A channel that streams, and has heard who asks."""
    channel = made(service, streaming="native")
    body = json.dumps(callback(message_event(f"<@{BOT}> hi"))).encode()
    await channel.hear(Hook(body, signed(body, at=SystemClock().now() // 1000)))
    yield channel
    await channel.close()


def reply(text: str, *, turn: int = 1, part: int = 1) -> Delivery:
    return Delivery(delivery_id(KEY, turn, part), KEY, text, turn=turn, part=part)


async def test_a_preview_is_edited_and_becomes_the_answer(channel: Slack, service: SlackService) -> None:
    for text in ("one", "one two", "one two"):
        await channel.show(KEY, 1, text)
    assert service.texts() == ["one two"]
    await channel.show(KEY, 1, None)
    result = await channel.send(reply("one two three"))
    message = service.messages[ROOM][-1]
    assert result == Sent(message["ts"])
    assert service.texts() == ["one two three"]
    assert message["metadata"]["event_type"] == "turnlane_delivery"
    assert message["thread_ts"] == THREAD
    assert len(service.of("chat.update")) == 2


async def test_the_other_parts_follow_as_messages_of_their_own(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    await channel.send(reply("one."))
    await channel.send(reply("two.", part=2))
    assert service.texts() == ["one.", "two."]


async def test_a_preview_that_somebody_deleted_is_no_hindrance(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    service.messages[ROOM].pop()
    await channel.show(KEY, 1, None)
    assert isinstance(await channel.send(reply("one.")), Sent)
    assert service.texts() == ["one."]


async def test_what_comes_to_nothing_is_taken_away(
    channel: Slack, service: SlackService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "KEPT_SECONDS", 0.01)
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    await service.until(lambda: service.texts() == [])


async def test_what_waits_is_taken_away_when_the_process_ends(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    await channel.close()
    assert service.texts() == []


async def test_run_again_a_turn_goes_on_with_its_preview(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "first try")
    await channel.show(KEY, 1, None)
    await channel.show(KEY, 1, None)
    await channel.show(KEY, 1, "second")
    assert service.texts() == ["second"]


async def test_the_preview_of_a_turn_that_is_past_goes_with_the_next(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    await channel.show(KEY, 2, "two")
    assert service.texts() == ["two"]


async def test_what_a_lost_process_left_is_found_and_taken_away(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    await channel.send(reply("an answer of before", turn=0))
    other = made(service)
    await other.show(KEY, 1, None)
    await other.close()
    assert service.texts() == ["an answer of before"]


async def test_an_edit_with_an_unknown_end_is_looked_up_and_never_taken_away(
    channel: Slack, service: SlackService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "KEPT_SECONDS", 0.01)
    await channel.show(KEY, 1, "one")
    service.next["chat.update"].append(Mode(cut=True, done=True))
    delivery = replace(reply("one."), queued_at=SystemClock().now())
    assert isinstance(await channel.send(delivery), Unknown)
    assert await channel.look_up(delivery) == Sent(service.messages[ROOM][-1]["ts"])
    assert service.texts() == ["one."]


async def test_an_answer_with_an_unknown_end_outlives_the_next_preview(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    service.next["chat.update"].append(Mode(cut=True, done=True))
    assert isinstance(await channel.send(reply("one.")), Unknown)
    await channel.show(KEY, 2, "two")
    assert service.texts() == ["one.", "two"]


async def test_the_preview_of_a_process_that_died_while_it_sent_becomes_the_answer(service: SlackService) -> None:
    lost, other = made(service), made(service)
    await lost.show(KEY, 1, "one")
    delivery = replace(reply("one."), queued_at=SystemClock().now())
    assert isinstance(await other.look_up(delivery), NotSent)
    assert isinstance(await other.send(delivery), Sent)
    assert service.texts() == ["one."]
    await lost._api.close()
    await other.close()


async def test_an_edit_that_slack_did_not_take_is_tried_again(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    service.next["chat.update"].append(limited())
    assert isinstance(await channel.send(reply("one.")), NotSent)
    assert isinstance(await channel.send(reply("one.")), Sent)
    assert service.texts() == ["one."]


async def test_told_to_be_quiet_previews_are_left_out_and_nothing_fails(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "one")
    service.next["chat.update"].append(limited(60))
    for text in ("one two", "one two three"):
        await channel.show(KEY, 1, text)
    assert len(service.of("chat.update")) == 1
    assert isinstance(await channel.send(reply("one two three four")), Sent)


async def test_a_preview_that_slack_refuses_is_told(channel: Slack, service: SlackService) -> None:
    service.next["chat.postMessage"].append(Mode("not_in_channel"))
    with pytest.raises(ConnectionError, match="not_in_channel"):
        await channel.show(KEY, 1, "one")


async def test_of_a_long_answer_the_beginning_is_shown(channel: Slack, service: SlackService) -> None:
    await channel.show(KEY, 1, "word " * 20_000)
    assert len(service.texts()[0]) <= 4_000


@pytest.mark.parametrize("error", ["edit_window_closed", None])
async def test_a_preview_that_cannot_become_the_answer_makes_way_for_it(
    service: SlackService, error: str | None
) -> None:
    channel = made(service, text_max=20_000)
    if error is not None:
        service.always["chat.update"] = Mode(error)
    answer = " ".join(["word"] * 1_600)
    await channel.show(KEY, 1, answer)
    assert len(service.texts()[0]) <= 4_000
    assert isinstance(await channel.send(reply(answer)), Sent)
    assert service.texts() == [answer]
    await channel.close()


async def test_shown_nothing_means_nothing(service: SlackService) -> None:
    channel = made(service, streaming="off")
    await channel.show(KEY, 1, "one")
    await channel.show(KEY, 1, None)
    await channel.close()
    assert not service.calls


# Slack's own streams


async def test_a_stream_grows_by_what_is_new_and_ends_as_the_answer(native: Slack, service: SlackService) -> None:
    for text in ("one", "one two"):
        await native.show(KEY, 1, text)
    await native.show(KEY, 1, None)
    result = await native.send(reply("one two three"))
    message = service.messages[ROOM][-1]
    assert result == Sent(message["ts"])
    assert message["text"] == "one two three"
    assert message["metadata"]["event_type"] == "turnlane_delivery"
    (start,) = service.of("chat.startStream")
    assert (start.args["recipient_user_id"], start.args["recipient_team_id"]) == (USER, TEAM)
    assert [call.args["markdown_text"] for call in service.of("chat.appendStream")] == [" two"]
    assert [call.args["markdown_text"] for call in service.of("chat.stopStream")] == [" three"]


async def test_a_stream_rings_nobodys_bell(native: Slack, service: SlackService) -> None:
    await native.show(KEY, 1, "<!channel> and <@U1")
    await native.show(KEY, 1, "<!channel> and <@U1> <!DOCTYPE>")
    assert isinstance(await native.send(reply("<!channel> and <@U1> <!DOCTYPE> <!here>")), Sent)
    assert service.texts() == ["<\u200b!channel> and <\u200b@U1> <!DOCTYPE> <\u200b!here>"]


@pytest.mark.parametrize("shown", [["one"], ["one", "something else"]])
async def test_a_stream_that_did_not_simply_grow_is_stopped_and_edited(
    native: Slack, service: SlackService, shown: list[str]
) -> None:
    for text in shown:
        await native.show(KEY, 1, text)
    assert isinstance(await native.send(reply("two")), Sent)
    assert service.texts() == ["two"]
    assert len(service.of("chat.stopStream")) == 1


@pytest.mark.parametrize("lost", [Mode(cut=True), Mode(cut=True, done=True)])
async def test_an_addition_that_may_be_lost_is_neither_lost_nor_doubled(
    native: Slack, service: SlackService, lost: Mode
) -> None:
    await native.show(KEY, 1, "one")
    service.next["chat.appendStream"].append(lost)
    with pytest.raises(ConnectionError):
        await native.show(KEY, 1, "one two")
    assert isinstance(await native.send(reply("one two three")), Sent)
    assert service.texts() == ["one two three"]


async def test_a_stream_that_slack_has_ended_goes_on_as_an_edit(native: Slack, service: SlackService) -> None:
    await native.show(KEY, 1, "one")
    service.end_streams()
    await native.show(KEY, 1, "one two")
    assert service.texts() == ["one two"]
    assert isinstance(await native.send(reply("one two three")), Sent)
    await native.show(KEY, 2, "four")
    service.end_streams()
    assert isinstance(await native.send(reply("four five", turn=2)), Sent)
    assert service.texts() == ["one two three", "four five"]


async def test_the_end_of_a_stream_with_an_unknown_outcome_is_told_again_whole(
    native: Slack, service: SlackService
) -> None:
    await native.show(KEY, 1, "one")
    service.next["chat.stopStream"].append(Mode(cut=True, done=True))
    assert isinstance(await native.send(reply("one two")), Unknown)
    assert isinstance(await native.send(reply("one two")), Sent)
    assert service.texts() == ["one two"]


async def test_where_slack_takes_no_streams_the_answer_is_edited(native: Slack, service: SlackService) -> None:
    service.always["chat.startStream"] = Mode("not_allowed")
    for turn in (1, 2):
        await native.show(KEY, turn, "one")
        assert isinstance(await native.send(reply("one two", turn=turn)), Sent)
    assert service.texts() == ["one two", "one two"]
    assert len(service.of("chat.startStream")) == 1


async def test_told_to_be_quiet_no_stream_begins(native: Slack, service: SlackService) -> None:
    service.next["chat.startStream"].append(limited(60))
    await native.show(KEY, 1, "one")
    await native.show(KEY, 1, "one two")
    assert service.texts() == []


async def test_a_stream_that_comes_to_nothing_is_stopped_and_taken_away(native: Slack, service: SlackService) -> None:
    await native.show(KEY, 1, "one")
    await native.show(KEY, 1, None)
    await native.close()
    assert service.texts() == []
    assert len(service.of("chat.stopStream")) == 1


async def test_where_nobody_knows_for_whom_the_stream_would_be_it_is_an_edit(
    native: Slack, service: SlackService
) -> None:
    other = f"slack/{TEAM}.{ROOM}/1699999999.000001"
    await native.show(other, 1, "one")
    await native.show(f"slack/{TEAM}.D0001", 1, "one")
    assert not service.of("chat.startStream")
    assert len(service.of("chat.postMessage")) == 2
