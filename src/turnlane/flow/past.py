"""What an agent may ask about earlier turns, read from the conversation's own story."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnlane.backends.base import Backend
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.turn import Exchange
from turnlane.model.view import Story, TurnView

ROWS_PER_TURN = 20
"""Of how many messages and deliveries a turn of the past may consist, on average, to be seen in full."""
ATTEMPTS_SEEN = 50


async def past(lease: Lease, turns: int, *, backend: Backend) -> Sequence[Exchange]:
    """The latest exchanges under the lease's session, oldest first. One whose messages are not all kept is left out."""
    story = await backend.story(lease.key, limit=turns * ROWS_PER_TURN) if lease.session and turns > 0 else None
    if story is None or lease.session is None:
        return ()
    under_session = [
        turn
        for turn in story.turns
        if (turn.outcome, turn.agent, turn.session) == ("answered", lease.policy.agent, lease.session.handle)
    ]
    return list(_exchanges(story, under_session))[-turns:]


async def was_begun(lease: Lease, *, backend: Backend) -> bool:
    """Whether the store knows of an earlier run of the lease's turn."""
    story = await backend.story(lease.key, limit=ATTEMPTS_SEEN)
    attempts = story.attempts if story else ()
    return any((each.kind, each.number) == (Kind.TURN, lease.number) for each in attempts)


def _exchanges(story: Story, turns: Sequence[TurnView]) -> Iterator[Exchange]:
    kept_from = story.messages[0].seq if story.messages else 1
    # Of a message that several turns hold, the last one counts.
    turn_of = {seq: turn.number for turn in story.turns for seq in range(turn.first, turn.last + 1)}
    before = 0
    for turn in turns:
        if turn.first >= kept_from:
            yield Exchange(turn.number, _said(story, turn, turn_of, after=before), _answered(story, turn.number))
        before = turn.last


def _said(story: Story, turn: TurnView, turn_of: dict[int, int], *, after: int) -> Sequence[Message]:
    return [
        message
        for message in story.messages
        if after < message.seq <= turn.last
        and (
            story.outcomes.get(message.seq) == "heard"
            or (message.seq not in story.outcomes and turn_of.get(message.seq) == turn.number)
        )
    ]


def _answered(story: Story, number: int) -> Sequence[str]:
    return [each.text for each in story.deliveries if (each.turn, each.kind) == (number, "reply")]
