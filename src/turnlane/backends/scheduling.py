"""The verbs of schedules: each is a lane with one tick, which is due at its next time."""

from __future__ import annotations

from dataclasses import replace

from turnlane.backends.base import Acceptance, Verdict
from turnlane.backends.steering import By, Steering
from turnlane.errors import InvalidSchedule
from turnlane.model.command import Command
from turnlane.model.lane import TICK, TURN, Lane
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.schedule import Schedule, key_of


class Scheduling(Steering):
    """The definition is in `Rare` of the lane; its policy is the one that the prompt stamps on its conversation."""

    def _accept(self, message: Message, policy: Policy, command: Command | None) -> Acceptance:
        raise NotImplementedError

    def schedule(self, schedule: Schedule, policy: Policy) -> bool:
        schedule.check()
        next_at = schedule.next_after(self._now)
        lane = self._lane(TICK, schedule.key, policy)
        before = lane.rare.schedule
        # If the clock stood wrong when it was armed, it may be armed for a time that is far away.
        too_late = lane.ready_at is not None and next_at is not None and lane.ready_at > next_at
        if before == schedule and lane.policy == policy and not too_late:
            return False
        lane.stamp(policy)
        lane.rare = replace(lane.rare, schedule=schedule)
        if before is None or not before.keeps_time_with(schedule) or too_late:
            lane.arm(next_at, self._now)
        self._rows.save_lane(lane)
        self._note("schedule.set", schedule.conversation, schedule.name, schedule.by, lane.ready_at)
        return True

    def unschedule(self, name: str) -> bool:
        lane, schedule = self._scheduled(name)
        if lane is None or schedule is None:
            return False
        lane.rare = replace(lane.rare, schedule=None, fired_at=None, paused_until=None)
        lane.paused = lane.parked = False
        lane.arm(None, self._now)
        self._rows.save_lane(lane)
        self._note("schedule.removed", schedule.conversation, name)
        return True

    def fire(self, name: str, at: int) -> Acceptance | None:
        lane, schedule = self._scheduled(name)
        if lane is None or schedule is None:
            return None
        acceptance = self._say_on_time(lane, schedule, at)
        self._rows.save_lane(lane)
        return acceptance

    def _scheduled(self, name: str) -> tuple[Lane | None, Schedule | None]:
        lane = self._rows.lane(TICK, key_of(name))
        return lane, None if lane is None else lane.rare.schedule

    def _resume(self, lane: Lane, *, by: By) -> None:
        self._pass_over_the_pause(lane)
        super()._resume(lane, by=by)

    def _pass_over_the_pause(self, lane: Lane) -> None:
        """What was due meanwhile was not missed: nobody wanted it."""
        schedule = lane.rare.schedule
        if schedule is not None and lane.paused and lane.owner is None:
            lane.arm(schedule.next_after(self._now), self._now)

    # Of a tick

    def _tick(self, lane: Lane) -> Verdict:
        """All that is due is said, and the next tick is armed, with the commit that ends this one."""
        schedule, first = lane.rare.schedule, lane.ready_at
        assert schedule is not None and first is not None
        try:
            passed = schedule.passed(first, self._now)
        except InvalidSchedule as error:
            # It could be read where it was stored, but this machine does not know its time zone.
            self._note_attempt(lane, "parked", cause=str(error))
            lane.park(self._now)
            return "parked"
        for at in passed.due:
            self._say_on_time(lane, schedule, at)
        if passed.missed_from is not None:
            self._note("schedule.missed", schedule.conversation, schedule.name, passed.missed_from, self._now)
        self._keep_attempt(lane, "fired")
        lane.arm(passed.next_at, self._now)
        lane.let_go(self._now)
        return "fired"

    def _say_on_time(self, lane: Lane, schedule: Schedule, at: int) -> Acceptance:
        turns = self._rows.lane(TURN, schedule.conversation)
        if turns is not None and turns.late_seq is not None:
            # What stands behind those who came late would be refused with them.
            self._refuse_late(turns)
        acceptance = self._accept(schedule.message(at), lane.policy, None)
        turns = self._rows.lane(TURN, schedule.conversation)
        if acceptance.verdict == "accepted" and turns is not None and turns.has_open_batch:
            turns.wait_for_the_turn()
            self._rows.save_lane(turns)
        if acceptance.verdict != "duplicate":
            lane.rare = replace(lane.rare, fired_at=self._now)
            self._note("schedule.fired", schedule.conversation, schedule.name, at, acceptance.seq)
        return acceptance
