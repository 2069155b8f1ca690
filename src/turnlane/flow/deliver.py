"""Carry one delivery out, if it is still ours to say, and judge how the sending ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from turnlane.channels.base import Channel
from turnlane.clock import Clock
from turnlane.flow.run_turn import backoff_ms, cause_of, was_cancelled
from turnlane.model.delivery import NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.turn import Delivered, GaveUp, Outcome, Parked, Released, RetryLater

SEND_SECONDS_MAX = 60.0
"""A sending that takes longer has an unknown outcome."""


async def deliver(
    lease: Lease, *, channels: Mapping[str, Channel], clock: Clock, may_speak: Callable[[Lease], bool]
) -> Outcome:
    """Send the delivery of an out lane. The batch of an out lane is one delivery, so nothing can overtake it."""
    channel = channels.get(channel_of(lease.key))
    if channel is None:
        name = channel_of(lease.key)
        return Parked(f"no channel is named {name!r} here; add it to the settings, then unpark the lane")
    # Asked last, right before the effect: a worker that was stopped for a while must not speak for a lane it lost.
    if not may_speak(lease):
        return Released()
    return _judge(await _send(channel, lease), lease, clock)


async def _send(channel: Channel, lease: Lease) -> SendResult:
    assert lease.delivery is not None
    try:
        return await channel.send(lease.delivery)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a channel's own bug: it may or may not have been sent
        return Unknown(cause_of(error))
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        return Unknown("something that it waited for was cancelled")


def send_seconds_max(lease: Lease) -> float:
    return SEND_SECONDS_MAX


def late_delivery(lease: Lease, *, clock: Clock) -> Outcome:
    """What a sending comes to that was stopped at its deadline."""
    return _judge(Unknown(f"sending took longer than {SEND_SECONDS_MAX:g} s and was stopped"), lease, clock)


def _judge(result: SendResult, lease: Lease, clock: Clock) -> Outcome:
    match result:
        case Sent(receipt):
            return Delivered(receipt)
        case NotSent(cause, retry_after) if retry_after is not None:
            return RetryLater(at=clock.now() + int(retry_after * 1000), cause=cause)
        case NotSent(cause) | Unknown(cause):
            # The same delivery id goes out again, so a receiver that did get it recognises the second.
            return RetryLater(at=clock.now() + backoff_ms(lease, clock), cause=cause)
        case Refused(cause):
            return GaveUp(cause)
