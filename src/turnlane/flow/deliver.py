"""Carry one delivery out, if it is still ours to say, and judge how the sending ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from turnlane.channels.base import AskLater, Channel, LookingChannel
from turnlane.clock import Clock
from turnlane.flow.run_turn import backoff_ms, cause_of, was_cancelled
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.turn import Delivered, GaveUp, Outcome, Parked, Released, RetryLater

SEND_SECONDS_MAX = 60.0
"""A sending that takes longer, with the look-up before it, has an unknown outcome."""


async def deliver(
    lease: Lease, _: object, *, channels: Mapping[str, Channel], clock: Clock, may_speak: Callable[[Lease], bool]
) -> Outcome:
    """Send the delivery of an out lane. The batch of an out lane is one delivery, so nothing can overtake it."""
    channel = channels.get(channel_of(lease.key))
    if channel is None:
        name = channel_of(lease.key)
        return Parked(
            f"no channel is named {name!r} here; add it to the settings, then `turnlane resume {lease.key} --outbox`"
        )
    assert lease.delivery is not None
    left = await _left_to_send(channel, lease, clock) if lease.in_doubt else lease.delivery
    if not isinstance(left, Delivery):
        return left
    # Asked last, right before the effect: a worker that was stopped for a while must not speak for a lane it lost.
    if not may_speak(lease):
        return Released()
    return _judge(await _send(channel, left), lease, clock)


async def _left_to_send(channel: Channel, lease: Lease, clock: Clock) -> Delivery | Outcome:
    """An earlier sending may have arrived. The channel is asked first; where it cannot tell, the policy decides."""
    delivery = lease.delivery
    assert delivery is not None
    match await _looked_up(channel, delivery):
        case Sent(receipt):
            return Delivered(receipt)
        case NotSent():
            return delivery
        case Unknown() as not_known_yet:
            return _judge(not_known_yet, lease, clock)
        case None if lease.policy.on_unknown == "hold":
            return Parked(
                f"it may have been sent before, and the channel {channel.name} cannot tell; look at `turnlane outbox` "
                f"and at the platform, then `turnlane resume {lease.key} --outbox` sends it"
            )
        case None:
            return replace(delivery, resent=True)


async def _looked_up(channel: Channel, delivery: Delivery) -> Sent | NotSent | Unknown | None:
    if not isinstance(channel, LookingChannel):
        return None
    try:
        return await channel.look_up(delivery)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a channel's own bug: asked again before anything is sent
        retry_after = error.retry_after if isinstance(error, AskLater) else None
        return Unknown(f"it may have been sent before, and looking it up failed; {cause_of(error)}", retry_after)
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        return Unknown("it may have been sent before, and looking it up was cancelled inside")


async def _send(channel: Channel, delivery: Delivery) -> SendResult:
    try:
        return await channel.send(delivery)
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
    what = "looking it up and sending it" if lease.in_doubt else "sending"
    return _judge(Unknown(f"{what} took longer than {SEND_SECONDS_MAX:g} s and was stopped"), lease, clock)


def _judge(result: SendResult, lease: Lease, clock: Clock) -> Outcome:
    match result:
        case Sent(receipt):
            return Delivered(receipt)
        # A time that is over when it is named (0, a past date) is none: asked again at once, nobody recovers.
        case NotSent(cause, retry_after, whole_account) if retry_after is not None and retry_after > 0:
            return RetryLater(at=clock.now() + int(retry_after * 1000), cause=cause, holds_account=whole_account)
        case NotSent(cause):
            return RetryLater(at=clock.now() + backoff_ms(lease, clock), cause=cause)
        case Unknown(cause, retry_after) if retry_after is not None and retry_after > 0:
            return RetryLater(at=clock.now() + int(retry_after * 1000), cause=cause, in_doubt=True)
        case Unknown(cause):
            # Not looked up at once: what was cut or too slow may still be on its way in, and would not be found yet.
            return RetryLater(at=clock.now() + backoff_ms(lease, clock), cause=cause, in_doubt=True)
        case Refused(cause, gone):
            return GaveUp(cause, gone)
