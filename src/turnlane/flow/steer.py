"""What an operator does to a lane: hold it, and let it go on."""

from __future__ import annotations

from turnlane.backends.base import Backend
from turnlane.errors import NotFound
from turnlane.model.lane import Kind
from turnlane.model.view import LaneView


async def pause(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> LaneView:
    """Start nothing more in this lane; what runs goes on, and what arrives is kept. Returns the lane as it is now."""
    await backend.pause(conversation, kind)
    return await _lane(backend, conversation, kind)


async def resume(backend: Backend, conversation: str, kind: Kind = Kind.TURN) -> LaneView:
    """Let the lane go on, whether it was paused, parked or both. Returns the lane as it is now."""
    await backend.resume(conversation, kind)
    await backend.unpark(conversation, kind)
    return await _lane(backend, conversation, kind)


async def _lane(backend: Backend, conversation: str, kind: Kind) -> LaneView:
    story = await backend.story(conversation, limit=1)
    if story is None:
        raise NotFound(f"no conversation {conversation!r}; `turnlane lanes` lists them")
    lane = next((lane for lane in story.lanes if lane.kind is kind), None)
    if lane is None:
        raise NotFound(f"nothing was sent in {conversation} yet, so it has no outbox to hold")
    return lane
