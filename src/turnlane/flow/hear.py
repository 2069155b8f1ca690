"""Take in what a platform told: messages are stored, and all the rest goes where it belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from turnlane.backends.base import Backend
from turnlane.channels.base import Heard, Reaction, Received, Status
from turnlane.clock import Clock
from turnlane.flow.trace import Tracer
from turnlane.model.event import Event
from turnlane.model.message import Message
from turnlane.model.question import meant_by_sign
from turnlane.model.view import DeliveryView

LATEST = 50
"""Of a conversation's deliveries: what a platform tells is about one of these."""
ECHO_MS_MAX = 600_000
"""How long after we said something its echo may come."""
ASIDE_CHARACTERS_MAX = 4_000

OUR_OWN = "an echo of what we said"
NO_ANSWER = "a reaction that answers no question"
NOT_TO_US = "said in a room, and not to us"


async def hear(
    channel: str,
    heard: Heard,
    *,
    backend: Backend,
    receive: Callable[[Sequence[Message]], Awaitable[Received]],
    emit: Callable[[Event], None],
    clock: Clock,
    tracer: Tracer | None = None,
) -> Received:
    """Returns once all of it is durable; repeated after a failure, it changes nothing that was taken in before."""
    ignored = list(heard.ignored)
    messages = list(heard.messages)
    if heard.overheard or any(message.role == "business" for message in messages):
        messages = await _to_us(heard, ignored, backend, clock)
    for reaction in heard.reactions:
        answer = await _answer_by(reaction, channel, backend)
        if answer is None:
            ignored.append(NO_ANSWER)
        else:
            messages.append(answer)
    received = await receive(messages)
    if received.accepted and heard.when_stored is not None:
        heard.when_stored()
    for conversation in heard.typing:
        await backend.typing(conversation)
    for status in heard.statuses:
        await _tie(status, backend, tracer)
    for aside in heard.asides:
        await backend.note("hook.aside", channel=channel, why=aside.why, body=_storable(aside.body))
    for why, count in Counter(ignored).items():
        emit(Event("hook.ignored", clock.now(), None, {"channel": channel, "why": why, "count": count}))
    return received


async def _to_us(heard: Heard, ignored: list[str], backend: Backend, clock: Clock) -> list[Message]:
    """Without echoes of what we said ourselves, and with what was overheard where we are in the conversation."""
    messages = []
    for message in heard.messages:
        if message.role == "business" and await _is_ours(message, backend, clock):
            ignored.append(OUR_OWN)
        else:
            messages.append(message)
    begun = {message.conversation for message in messages}
    for message in heard.overheard:
        if message.conversation in begun or await backend.story(message.conversation, limit=1) is not None:
            messages.append(message)
        else:
            ignored.append(NOT_TO_US)
    return messages


async def _is_ours(message: Message, backend: Backend, clock: Clock) -> bool:
    """By the id that the platform gave it; or, as that may not be known yet, by its words."""
    since = clock.now() - ECHO_MS_MAX
    return any(
        delivery.receipt == message.origin_id or (delivery.queued_at >= since and _sound_alike(delivery, message))
        for delivery in await _latest(message.conversation, backend)
        if delivery.state in {"queued", "sent"}
    )


def _sound_alike(delivery: DeliveryView, message: Message) -> bool:
    """The platform has translated the marks of the text, so only letters and digits count, if there are any."""
    said, echoed = (text.strip() for text in (delivery.text, message.text))
    spelled = "".join(filter(str.isalnum, said))
    return said == echoed or (spelled != "" and spelled == "".join(filter(str.isalnum, echoed)))


async def _answer_by(reaction: Reaction, channel: str, backend: Backend) -> Message | None:
    for delivery in await _latest(reaction.conversation, backend):
        if delivery.receipt == reaction.receipt and delivery.kind == "question":
            option = meant_by_sign(reaction.sign, delivery.options)
            said = (channel, reaction.origin_id, reaction.conversation, reaction.sender)
            return None if option is None else Message(*said, option, answers=delivery.id)
    return None


async def _tie(status: Status, backend: Backend, tracer: Tracer | None) -> None:
    for delivery in reversed(await _latest(status.conversation, backend)):
        if delivery.id == status.delivery or (delivery.receipt is not None and delivery.receipt == status.receipt):
            await backend.report(
                status.conversation, delivery.seq, status.state, receipt=status.receipt, cause=status.cause
            )
            if tracer is not None:
                tracer.reported(delivery, status)
            return


async def _latest(conversation: str, backend: Backend) -> Sequence[DeliveryView]:
    story = await backend.story(conversation, limit=LATEST)
    return () if story is None else story.deliveries


def _storable(text: str) -> str:
    return text[:ASIDE_CHARACTERS_MAX].replace("\0", "\ufffd").encode(errors="replace").decode()
