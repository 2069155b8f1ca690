"""Find one message in the store, and tell what became of it."""

from __future__ import annotations

from turnlane.backends.base import Backend
from turnlane.errors import NotFound
from turnlane.model import explanation
from turnlane.model.explanation import Explanation
from turnlane.model.lane import Kind
from turnlane.model.view import Story

ROWS_FIRST = 1_000
"""Of each sort, from the newest back; a message further back is looked for in ever more of them."""

RUNNING_MAX = 10_000
"""So many running turns are counted to see which limit is reached."""


async def explain(backend: Backend, channel: str, origin_id: str, *, now: int) -> Explanation:
    """Raises NotFound for a message that was never stored, or whose history is no longer kept."""
    place = await backend.place_of(channel, origin_id)
    if place is None:
        raise NotFound(
            f"no message {channel}:{origin_id}; messages are known by CHANNEL:ID, as in message.accepted events"
        )
    return await explain_at(backend, *place, now=now)


async def explain_at(backend: Backend, conversation: str, seq: int, *, now: int) -> Explanation:
    story = await _story_back_to(backend, conversation, seq)
    if story is None:
        raise NotFound(f"no conversation {conversation!r}; `turnlane lanes` lists them")
    live = sum(worker.live and worker.alive_until >= now for worker in await backend.workers())
    explained = explanation.explain(story, seq, workers_live=live, pauses=backend.limits.pauses)
    if explained is None:
        raise NotFound(f"message {seq} of {conversation} is not there: not yet said, or older than what is kept")
    [lane] = (lane for lane in story.lanes if lane.kind is Kind.TURN)
    waits_for_worker = explained.waits is not None and explained.waits.reason == "worker"
    if live and waits_for_worker and explained.outcome is None and lane.state == "ready":
        running = await backend.lanes(kind=Kind.TURN, state="running", limit=RUNNING_MAX)
        return explanation.beside(explained, lane, running, backend.limits)
    return explained


async def _story_back_to(backend: Backend, conversation: str, seq: int) -> Story | None:
    limit = ROWS_FIRST
    while True:
        story = await backend.story(conversation, limit=limit)
        if story is None or len(story.messages) < limit or story.messages[0].seq <= seq:
            return story
        limit *= 10
