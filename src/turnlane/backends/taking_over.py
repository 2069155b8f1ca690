"""The verbs by which people answer in the agent's place, and let it wait for them."""

from __future__ import annotations

from turnlane.backends.base import Acceptance
from turnlane.backends.steering import By, Steering
from turnlane.model.delivery import Delivery, operator_id
from turnlane.model.lane import TURN, Lane
from turnlane.model.message import Message
from turnlane.model.turn import (
    Superseded,
)

TAKEN_OVER = Superseded(set_aside=False, cause="taken over by a person")


class TakingOver(Steering):
    """What they say is kept for the agent, and answered by nobody."""

    def say(self, message: Message, takes_over: bool) -> Acceptance | None:
        lane = self._rows.lane(TURN, message.conversation)
        if lane is None:
            return None
        seen = self._rows.origin(message.channel, message.origin_id)
        if seen is not None:
            self._note("message.duplicate", message.conversation, message.id)
            return Acceptance("duplicate", seen)
        said = operator_id(lane.key, message.origin_id)
        self._append(Delivery(said, lane.key, message.text, "operator", queued_at=self._now), lane.policy)
        return self._hear(lane, message, lane.policy.takeover_ms if takes_over else 0)

    def _hear(self, lane: Lane, message: Message, takeover_ms: int) -> Acceptance:
        """Kept for the agent, and answered by nobody."""
        if takeover_ms:
            self._take_over(lane, self._now + takeover_ms, "operator" if message.role == "operator" else "business")
        seq = lane.hear()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        self._rows.settle_messages(lane, seq, seq, "heard")
        self._note("message.heard", lane.key, message.id, seq, message.role)
        return Acceptance("accepted", seq)

    def _take_over(self, lane: Lane, until: int, by: By) -> None:
        """The turn that is open ends here, whoever runs it: two answers would be the worst of all."""
        if lane.has_open_batch:
            self._record_superseded(lane, lane.policy.agent, TAKEN_OVER)
            first = self._rows.messages_at(lane, [lane.done_seq + 1])[0]
            lane.dissolve(first.accepted_at, self._now, still_runs=lane.owner is not None)
        self._leave_to_others(lane)
        if not lane.is_paused(self._now):
            self._pause(lane, by=by, until=until)
        elif lane.rare.paused_until is not None:
            self._pause(lane, by=by, until=max(until, lane.rare.paused_until))

    def _leave_to_others(self, lane: Lane) -> None:
        """The agent returns for the last message that waits; all before it are only told, so that one turn is enough
        however long others talk."""
        *earlier, last = [*lane.waiting_places] or [0]
        if earlier:
            self._rows.settle_messages(lane, earlier[0], earlier[-1], "heard")
            lane.leave_to_others(earlier, self._rows.messages_at(lane, [last])[0].accepted_at)

    def typing(self, conversation: str) -> bool:
        lane = self._rows.lane(TURN, conversation)
        if lane is None or not lane.wait_for_more(self._now):
            return False
        self._rows.save_lane(lane)
        self._note("lane.typing", lane.key, lane.ready_at)
        return True
