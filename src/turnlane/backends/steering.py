"""The verbs by which operators steer a lane, and decide about what failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from turnlane.backends.record import Record
from turnlane.model.delivery import Reported
from turnlane.model.event import FACTS, Fact
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane
from turnlane.model.policy import OnBusy
from turnlane.model.turn import Superseded
from turnlane.model.view import DeliveryView, TurnView

SKIPPED = "skipped by an operator"
DROPPED = "dropped by an operator"
By = Literal["operator", "command", "business", "time"]
"""Who paused or resumed a lane."""


class Steering(Record):
    """None of them waits for whoever holds the lane: that is fenced."""

    # Lanes

    def stop(self, conversation: str) -> bool:
        lane = self._rows.lane(TURN, conversation)
        return lane is not None and self._stop(lane)

    def _stop(self, lane: Lane) -> bool:
        if not lane.pending:
            return False
        if lane.has_open_batch:
            self._record_superseded(lane, lane.policy.agent, Superseded(set_aside=True, cause="stopped"))
        if lane.waiting:
            self._rows.settle_messages(lane, lane.claim_seq + 1, lane.next_seq, "superseded")
        self._note("lane.stopped", lane.key, lane.pending)
        lane.stop(self._now)
        self._rows.save_lane(lane)
        return True

    def pause(self, conversation: str, kind: Kind, until: int | None) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is not None:
            self._pause(lane, by="operator", until=until)
        return lane is not None

    def _pause(self, lane: Lane, *, by: By, until: int | None = None) -> None:
        lane.pause(self._now, until)
        self._rows.save_lane(lane)
        self._note("lane.paused", lane.key, lane.kind.name.lower(), by, until)

    def resume(self, conversation: str, kind: Kind) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is not None:
            self._resume(lane, by="operator")
        return lane is not None

    def _resume(self, lane: Lane, *, by: By) -> None:
        lane.resume(self._now)
        self._rows.save_lane(lane)
        self._note("lane.resumed", lane.key, lane.kind.name.lower(), by)

    def unpark(self, conversation: str, kind: Kind) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is None or not lane.parked:
            return False
        lane.unpark(self._now)
        self._rows.save_lane(lane)
        self._note("lane.unparked", conversation, kind.name.lower())
        return True

    def retry(self, conversation: str, kind: Kind) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is None or lane.owner is not None or not lane.has_open_batch or lane.awaits_answer:
            return False
        lane.hurry(self._now)
        self._rows.save_lane(lane)
        self._note("lane.hurried", conversation, kind.name.lower())
        return True

    def renew_session(self, conversation: str) -> bool:
        lane = self._rows.lane(TURN, conversation)
        if lane is None:
            return False
        # As the chat command does: also what the very first turn would leave is not kept.
        may_leave_one = lane.owner is not None and lane.has_open_batch and not lane.renewed
        if not may_leave_one and self._rows.session(lane, lane.policy.agent) is None:
            return False
        self._begin_anew(lane)
        self._note("session.forgotten", conversation, "operator")
        return True

    def _begin_anew(self, lane: Lane) -> None:
        self._rows.drop_sessions(lane)
        lane.renew(self._now)
        self._rows.save_lane(lane)

    def skip(self, conversation: str, kind: Kind) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is None or not lane.has_open_batch or kind is TICK:
            return False
        self._give_up(lane, SKIPPED, still_runs=lane.owner is not None)
        return True

    def behave(self, conversation: str, on_busy: OnBusy | None) -> bool:
        lane = self._rows.lane(TURN, conversation)
        if lane is None:
            return False
        lane.behave(on_busy)
        self._rows.save_lane(lane)
        self._note("lane.told", conversation, on_busy)
        return True

    # What failed

    def retry_dead_letter(self, conversation: str, number: int) -> int:
        lane = self._rows.lane(TURN, conversation)
        turn = None if lane is None else self._dead_letter(lane, number)
        if lane is None or turn is None:
            return 0
        if lane.late_seq is not None:
            # What stands behind those who came late would be refused with them.
            self._refuse_late(lane)
        kept = [place for place in range(turn.first, turn.last + 1) if self._rows.message_outcome(lane, place) is None]
        messages = self._rows.messages_at(lane, kept)
        first = lane.arrive_again(len(messages), messages[0].accepted_at, self._now)
        lane.speaks(messages[-1].sender)
        for place, message in enumerate(messages, first):
            self._rows.move_message(lane, message, place)
        self._rows.amend_turn(lane, replace(turn, outcome="retried"))
        self._rows.save_lane(lane)
        self._note("deadletter.retried", conversation, number, first, lane.next_seq)
        return len(messages)

    def drop_dead_letter(self, conversation: str, number: int) -> bool:
        lane = self._rows.lane(TURN, conversation)
        turn = None if lane is None else self._dead_letter(lane, number)
        if lane is None or turn is None:
            return False
        self._rows.amend_turn(lane, replace(turn, outcome="dropped"))
        self._note("deadletter.dropped", conversation, number)
        return True

    def _dead_letter(self, lane: Lane, number: int) -> TurnView | None:
        turn = self._rows.turn(lane, number)
        return turn if turn is not None and turn.outcome == "dead_letter" else None

    def resend(self, conversation: str, place: int) -> bool:
        lane = self._rows.lane(OUT, conversation)
        found = None if lane is None else self._rows.delivery(lane, place)
        if lane is None or found is None or found.state == "sent":
            return False
        if found.state == "queued":
            return place == lane.next_place and self.unpark(conversation, OUT)
        self._rows.move_delivery(lane, place, lane.arrive(lane.policy, self._now))
        self._rows.save_lane(lane)
        self._note("outbox.resent", conversation, found.id, lane.next_seq)
        self._try_again_to_reach(conversation)
        return True

    def _try_again_to_reach(self, conversation: str) -> None:
        lane = self._rows.lane(TURN, conversation)
        if lane is not None and lane.rare.gone is not None:
            lane.rare = replace(lane.rare, gone=None)
            self._rows.save_lane(lane)

    def report(self, conversation: str, place: int, state: Reported, receipt: str | None, cause: str | None) -> bool:
        lane = self._rows.lane(OUT, conversation)
        found = None if lane is None else self._rows.delivery(lane, place)
        if lane is None or found is None:
            return False
        if found.state == "queued":
            return self._find_it_sent(lane, found, state, receipt)
        if found.state != "sent" or state == "sent":
            return False
        if state == "failed":
            self._rows.close_delivery(lane, place, "failed", cause)
            self._note("delivery.failed", conversation, place, found.attempt, cause)
            self._ask_nobody(lane, place)
        else:
            self._note("delivery.reported", conversation, found.id, place, state)
        return True

    def _find_it_sent(self, lane: Lane, found: DeliveryView, state: Reported, receipt: str | None) -> bool:
        """It waits for its next attempt, in doubt whether the last one arrived. While somebody sends it, they know."""
        is_open = found.seq == lane.claim_seq and lane.has_open_batch and lane.owner is None
        if state == "failed" or not is_open:
            return False
        self._rows.settle_delivery(lane, "sent", receipt=receipt)
        place = (found.id, found.seq, found.turn)
        self._note("delivery.sent", lane.key, *place, lane.attempt, receipt, self._now - found.queued_at)
        self.unpark(lane.key, OUT)
        self._complete(lane)
        self._rows.save_lane(lane)
        return True

    def note(self, name: str, conversation: str | None, facts: Mapping[str, Fact]) -> None:
        self._note(name, conversation, *(facts[fact] for fact in FACTS[name]))

    def drop(self, conversation: str, place: int) -> bool:
        lane = self._rows.lane(OUT, conversation)
        found = None if lane is None else self._rows.delivery(lane, place)
        if lane is None or found is None or found.state in ("sent", "dropped"):
            return False
        if found.state == "failed":
            self._rows.close_delivery(lane, place, "dropped", found.cause)
        elif place == lane.claim_seq:
            self._rows.settle_delivery(lane, "dropped", cause=DROPPED)
            self.unpark(conversation, OUT)
            self._complete(lane, still_runs=lane.owner is not None)
        else:
            self._rows.close_delivery(lane, place, "dropped", DROPPED)
            lane.withdraw(place, place, self._now)
        self._rows.save_lane(lane)
        self._note("outbox.dropped", conversation, found.id, place)
        self._ask_nobody(lane, place)
        return True
