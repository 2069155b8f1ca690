"""What a worker does with a schedule that is due, and what an operator does to schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches

from turnlane.backends.base import Backend
from turnlane.errors import InvalidSchedule, NotFound
from turnlane.flow.receive import PolicyFor
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.policy import Policy
from turnlane.model.schedule import Schedule, key_of
from turnlane.model.turn import Fired, Outcome, Released, Stage
from turnlane.model.view import ScheduleView

TICK_SECONDS_MAX = 60.0


async def tick(lease: Lease, stage: Stage) -> Outcome:
    """The store knows what is due: to say it is the commit itself, so there is nothing to do before."""
    return Fired()


def tick_seconds_max(lease: Lease) -> float:
    return TICK_SECONDS_MAX


def late_tick(lease: Lease) -> Outcome:
    return Released()


async def keep(backend: Backend, of_the_file: Sequence[Schedule], policy_for: PolicyFor) -> None:
    """Bring the store to what the settings say: theirs are there and no others of a file; all follow today's routes."""
    wanted = {schedule.name: schedule for schedule in of_the_file}
    for view in await backend.schedules():
        if view.by == "file" and view.name not in wanted:
            await backend.unschedule(view.name)
        elif view.by == "operator":
            wanted.setdefault(view.name, definition(view))
    for schedule in wanted.values():
        try:
            policy = policy_for(channel_of(schedule.conversation))
        except NotFound:
            if schedule.by == "file":
                raise
            continue  # its channel is served elsewhere, or was removed: whoever reads the list sees it
        await backend.schedule(schedule, policy)


def definition(view: ScheduleView) -> Schedule:
    return Schedule(**{each.name: getattr(view, each.name) for each in fields(Schedule)})


async def add(backend: Backend, schedule: Schedule, policy: Policy) -> ScheduleView:
    """Add it, or change the one of this name, unless that is kept in the settings file."""
    await _refuse_if_of_the_file(backend, schedule.name, "change it there")
    await backend.schedule(schedule, policy)
    return await one(backend, schedule.name)


async def remove(backend: Backend, name: str) -> ScheduleView:
    """Returns it as it was."""
    view = await one(backend, name)
    await _refuse_if_of_the_file(backend, name, "remove it there, or pause it")
    await backend.unschedule(name)
    return view


async def fire(backend: Backend, name: str, at: int) -> ScheduleView:
    """Say its prompt now, whenever it is due next."""
    if await backend.fire(name, at) is None:
        raise await _unknown(backend, name)
    return await one(backend, name)


async def pause(backend: Backend, name: str) -> ScheduleView:
    await one(backend, name)
    await backend.pause(key_of(name), Kind.TICK)
    return await one(backend, name)


async def resume(backend: Backend, name: str) -> ScheduleView:
    """Let it go on, whether it was paused, parked or both. What passed meanwhile is not said."""
    await one(backend, name)
    await backend.resume(key_of(name), Kind.TICK)
    await backend.unpark(key_of(name), Kind.TICK)
    return await one(backend, name)


async def one(backend: Backend, name: str) -> ScheduleView:
    for view in await backend.schedules():
        if view.name == name:
            return view
    raise await _unknown(backend, name)


async def _refuse_if_of_the_file(backend: Backend, name: str, advice: str) -> None:
    if any(view.name == name and view.by == "file" for view in await backend.schedules()):
        raise InvalidSchedule(f"the schedule {name!r} is kept in the settings file; {advice}")


async def _unknown(backend: Backend, name: str) -> NotFound:
    names = [view.name for view in await backend.schedules()]
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`turnlane schedules` lists them"
    return NotFound(f"no schedule {name[:70]!r}; {hint}")
