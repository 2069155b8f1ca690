"""The verbs by which a turn asks the person, and is answered."""

from __future__ import annotations

from turnlane.backends.record import Record
from turnlane.model.delivery import Delivery, question_id
from turnlane.model.lane import OUT, TURN, Lane
from turnlane.model.lease import Lease
from turnlane.model.question import TIMED_OUT, Answer, Question, QuestionView, chosen


class Asking(Record):
    """One question of a turn is open at a time; the lane knows its number and its time (`Rare`)."""

    # Asking

    def ask(self, lease: Lease, number: int, question: Question) -> Answer | None:
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last):
            return None
        self._ask(lane, lease, number, question)
        self._rows.save_lane(lane)
        return self._rows.question(lane, number).answer

    def _ask(self, lane: Lane, lease: Lease, number: int, question: Question) -> None:
        """Once, however often the turn is run from the top."""
        asked = lane.rare.asked
        if number > asked + 1 or (number > asked and lane.rare.asking and not lane.is_unanswered_by(self._now)):
            raise ValueError(f"question {number} is asked before question {asked} has its answer")
        self._expire_question(lane)
        if number > asked:
            view = QuestionView(lane.key, lane.number, number, question, self._now)
            self._rows.add_question(lane, view)
            self._queue_question(lane, lease, view)

    def _queue_question(self, lane: Lane, lease: Lease, asked: QuestionView) -> None:
        id_ = question_id(lane.key, asked.turn, asked.number)
        out = self._lane(OUT, lane.key, lane.policy)
        lane.ask(asked.question.expires_at, out.arrive(lane.policy, self._now))
        delivery = Delivery(
            id_,
            lane.key,
            asked.question.text,
            "question",
            turn=lane.number,
            in_reply_to=tuple(message.origin_id for message in lease.messages),
            seq=lane.rare.asked_seq,
            queued_at=self._now,
            options=asked.question.options,
        )
        self._rows.add_delivery(out, delivery)
        self._rows.save_lane(out)
        self._note("question.asked", lane.key, lane.number, asked.number, id_, asked.question.expires_at)
        self._fail_if_gone(lane, out)

    # Answering

    def answer(self, conversation: str, text: str, by: str) -> bool:
        lane = self._rows.lane(TURN, conversation)
        if lane is None:
            return False
        self._expire_question(lane)
        was_open = lane.rare.asking
        if was_open:
            self._answer_question(lane, text, by)
        self._rows.save_lane(lane)
        return was_open

    def _question_may_be_known(self, lane: Lane) -> bool:
        """Whoever cannot have seen it yet talks about something else, however much it sounds like an answer."""
        out = self._rows.lane(OUT, lane.key)
        return out is None or out.may_have_left(lane.rare.asked_seq)

    def _answer_question(self, lane: Lane, text: str, by: str) -> None:
        options = self._rows.question(lane, lane.rare.asked).question.options
        self._close_question(lane, Answer(chosen(text, options), by))

    def _expire_question(self, lane: Lane) -> None:
        if lane.is_unanswered_by(self._now):
            self._close_question(lane, TIMED_OUT)
