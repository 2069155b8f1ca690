"""What an operator does to a lane: hold it, let it go on, and decide about what it has begun."""

from __future__ import annotations

from turnlane.backends.base import Backend
from turnlane.channels.incoming import check_name, check_text
from turnlane.errors import InvalidMessage, NotFound
from turnlane.model.delivery import DeliveryState, operator_id
from turnlane.model.lane import Kind
from turnlane.model.message import ORIGIN_ID_BYTES_MAX, SENDER_BYTES_MAX, Message, channel_of
from turnlane.model.policy import OnBusy
from turnlane.model.value import value
from turnlane.model.view import LaneView


@value
class Steered:
    lane: LaneView
    """As it is now."""
    done: bool = True
    """False: there was nothing to do, and nothing was changed."""


@value
class Said:
    """An answer by hand."""

    delivery: str
    """Its id in the outbox."""
    lane: LaneView
    """Of the conversation's turns, as it is now."""
    done: bool = True
    """False: it was said before under the same id, and nothing was changed."""
    state: DeliveryState | None = None
    """Of the delivery. It has failed already if nothing can be sent to this person; None: it is forgotten."""
    cause: str | None = None
    """Why it failed."""


async def say(
    backend: Backend, conversation: str, text: str, *, id: str, sender: str = "operator", takes_over: bool = True
) -> Said:
    """Answer the person by hand. The agent is told with its next turn, and is silent for a while if this takes over."""
    check_text("text", text)
    if not text.strip():
        raise InvalidMessage("text is empty; give it at least one character")
    check_name("id", id, ORIGIN_ID_BYTES_MAX)
    check_name("sender", sender, SENDER_BYTES_MAX)
    # Under a name of its own, so that it is never taken for a message of the platform.
    origin_id = f"operator/{conversation}/{id}"
    message = Message(channel_of(conversation), origin_id, conversation, sender, text, role="operator")
    acceptance = await backend.say(message, takes_over=takes_over)
    if acceptance is None:
        raise NotFound(f"no conversation {conversation!r} to answer in; `turnlane lanes` lists them")
    id_ = operator_id(conversation, origin_id)
    said, lane = await backend.delivery(id_), await lane_of(backend, conversation, Kind.TURN)
    state, cause = (None, None) if said is None else (said.state, said.cause)
    return Said(id_, lane, acceptance.verdict == "accepted", state, cause)


async def pause(backend: Backend, conversation: str, kind: Kind = Kind.TURN, *, until: int | None = None) -> Steered:
    """Start nothing more in this lane, until then if a time is given; what runs goes on, and what arrives is kept."""
    await backend.pause(conversation, kind, until=until)
    return Steered(await lane_of(backend, conversation, kind))


async def resume(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> Steered:
    """Let the lane go on, whether it was paused, parked or both."""
    await backend.resume(conversation, kind)
    await backend.unpark(conversation, kind)
    return Steered(await lane_of(backend, conversation, kind))


async def stop(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> Steered:
    """Set aside all that was said and not answered, also what runs. An outbox has nothing of that sort."""
    if kind is not Kind.TURN:
        raise InvalidMessage(
            "an outbox cannot be stopped, only turns; skip gives up what is being sent, pause holds it"
        )
    done = await backend.stop(conversation)
    return Steered(await lane_of(backend, conversation, kind), done)


async def answer(backend: Backend, conversation: str, text: str) -> Steered:
    """Answer the question that a turn of the conversation waits with."""
    done = await backend.answer(conversation, text)
    return Steered(await lane_of(backend, conversation, Kind.TURN), done)


async def renew(backend: Backend, conversation: str) -> Steered:
    """Let the next turn begin a session of its own."""
    done = await backend.renew_session(conversation)
    return Steered(await lane_of(backend, conversation, Kind.TURN), done)


async def retry(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> Steered:
    """Let the turn (or delivery) start now that waits for its next attempt."""
    done = await backend.retry(conversation, kind)
    return Steered(await lane_of(backend, conversation, kind), done)


async def skip(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> Steered:
    """Give up the turn (or delivery) that runs or waits for its next attempt; what is behind it goes on."""
    done = await backend.skip(conversation, kind)
    return Steered(await lane_of(backend, conversation, kind), done)


async def behave(backend: Backend, conversation: str, on_busy: OnBusy | None) -> Steered:
    """What becomes of messages that come while a turn runs, in this conversation alone. None: as its route says."""
    await backend.behave(conversation, on_busy)
    return Steered(await lane_of(backend, conversation, Kind.TURN))


async def lane_of(backend: Backend, conversation: str, kind: Kind) -> LaneView:
    story = await backend.story(conversation, limit=1)
    if story is None:
        raise NotFound(f"no conversation {conversation!r}; `turnlane lanes` lists them")
    lane = next((lane for lane in story.lanes if lane.kind is kind), None)
    if lane is None:
        raise NotFound(
            f"nothing was sent in {conversation} yet, so it has no outbox; without `outbox` you steer its turns"
        )
    return lane
