"""What an operator decides about what was given up on: try it again, or keep it no longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from turnlane.backends.base import Backend
from turnlane.errors import NotFound
from turnlane.flow.steer import Steered, lane_of
from turnlane.model.lane import Kind
from turnlane.model.view import DeadLetter, DeliveryView

ROWS_MAX = 1_000_000


async def dead_letter(backend: Backend, conversation: str, number: int) -> DeadLetter:
    """Raises NotFound for what is no dead letter, and says what it is instead."""
    for letter in await backend.dead_letters(conversation=conversation, limit=ROWS_MAX):
        if letter.turn.number == number:
            return letter
    raise await _no_dead_letter(backend, conversation, number)


async def retry_dead_letter(backend: Backend, conversation: str, number: int) -> Steered:
    """Its messages are run again, as a new turn, after what already waits in the conversation."""
    if not await backend.retry_dead_letter(conversation, number):
        raise await _no_dead_letter(backend, conversation, number)
    return Steered(await lane_of(backend, conversation, Kind.TURN))


async def drop_dead_letter(backend: Backend, conversation: str, number: int) -> Steered:
    """It is not listed any longer, and is forgotten in time like any other turn."""
    if not await backend.drop_dead_letter(conversation, number):
        raise await _no_dead_letter(backend, conversation, number)
    return Steered(await lane_of(backend, conversation, Kind.TURN))


async def delivery(backend: Backend, id: str) -> DeliveryView:
    found = await backend.delivery(id)
    if found is None:
        raise NotFound(f"no delivery {id!r}; `turnlane outbox` lists them, by --state")
    return found


async def resend(backend: Backend, id: str) -> DeliveryView:
    """Send it again under the same id, after what already waits; or let it go, if it is held. Answers it as it is."""
    refused = await _refused(backend, backend.resend, id)
    if refused is None:
        return await delivery(backend, id)
    if refused.state == "sent":
        raise NotFound(f"delivery {id} was sent; only what failed, was dropped or is held can be sent again")
    outbox = f"{refused.conversation} --outbox"
    raise NotFound(
        f"delivery {id} waits to be sent already; `turnlane retry {outbox}` ends the wait for a next attempt, "
        f"`turnlane resume {outbox}` a pause"
    )


async def drop(backend: Backend, id: str) -> DeliveryView:
    """It is not sent, and on no list; what is behind it goes on. Answers it as it is then."""
    refused = await _refused(backend, backend.drop, id)
    if refused is not None:
        raise NotFound(f"delivery {id} was {refused.state}; only what waits or failed can be dropped")
    return await delivery(backend, id)


async def _refused(backend: Backend, decide: Callable[[str, int], Awaitable[bool]], id: str) -> DeliveryView | None:
    """The delivery about which nothing can be decided, as it is; None once it is done.

    Somebody else may decide at the same time, and whatever is sent again gets another place.
    """
    found, before = await delivery(backend, id), None
    while found != before:
        if await decide(found.conversation, found.seq):
            return None
        found, before = await delivery(backend, id), found
    return found


async def _no_dead_letter(backend: Backend, conversation: str, number: int) -> NotFound:
    story = await backend.story(conversation, limit=ROWS_MAX)
    outcomes = {turn.number: turn.outcome for turn in story.turns} if story is not None else {}
    was = f"; that turn was {outcomes[number]}" if number in outcomes else ""
    return NotFound(f"no dead letter {conversation}#{number}{was}; `turnlane deadletters` lists them")
