"""What several verbs do alike: end a batch, say something outside any turn, write down what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnlane.backends.base import Verdict
from turnlane.backends.rows import Rows
from turnlane.model.delivery import Delivery, notice_id, question_id
from turnlane.model.event import Fact, Noted
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane
from turnlane.model.lease import Lease
from turnlane.model.notice import BUSY, FULL, TOO_FAST
from turnlane.model.policy import Policy
from turnlane.model.question import TIMED_OUT, Answer
from turnlane.model.turn import Reply, Superseded, TurnOutcome
from turnlane.model.usage import NO_USAGE
from turnlane.model.view import AttemptView, TurnView

CAUSES = {FULL: "full", BUSY: "busy", TOO_FAST: "flood"}
"""Why a message was refused, by what its sender is told."""
NOUNS = {TURN: "turn", OUT: "delivery", TICK: "tick"}


class Record:
    """The rows of one open transaction, all at the same moment `now`, and what is written down about them."""

    def __init__(self, rows: Rows, now: int) -> None:
        self._rows = rows
        self._now = now
        self.noted: list[Noted] = []

    # Lanes

    def _lane(self, kind: Kind, key: str, policy: Policy) -> Lane:
        return self._rows.lane(kind, key) or self._rows.add_lane(kind, key, policy)

    def _let_go(self, lane: Lane) -> None:
        """Of a lane whose batch was ended by somebody else: what was said since may start from now on."""
        if lane.kind is TURN:
            self._note("lane.freed", lane.key, lane.epoch, lane.owner)
        lane.let_go(self._now)
        self._rows.save_lane(lane)

    def _complete(self, lane: Lane, *, still_runs: bool = False) -> None:
        """The turn is over, whatever came of it; `still_runs`: though its holder does not know yet."""
        if lane.late_seq is not None:
            self._refuse_late(lane)
        if still_runs:
            lane.end(self._now)
        else:
            lane.complete(self._now)

    def _give_up(self, lane: Lane, cause: str, lease: Lease | None = None, *, still_runs: bool = False) -> Verdict:
        """The batch gets its outcome without an answer, is kept, and the lane goes on."""
        if lane.kind is TURN:
            agent = (lease or lane).policy.agent
            self._record_turn(lane, "dead_letter", agent, cause=cause)
            self._note("turn.dead_lettered", lane.key, lane.number, lane.attempt, cause)
        else:
            self._rows.settle_delivery(lane, "failed", cause=cause)
            self._note("delivery.failed", lane.key, lane.claim_seq, lane.attempt, cause)
            self._ask_nobody(lane, lane.claim_seq)
        self._complete(lane, still_runs=still_runs)
        self._rows.save_lane(lane)
        return "dead_letter" if lane.kind is TURN else "failed"

    # What is said outside any turn

    def _refuse_late(self, lane: Lane) -> int:
        late = lane.refuse_late()
        if late:
            self._refuse(lane, late, BUSY, lane.policy)
            self._rows.save_lane(lane)
        return len(late)

    def _refuse(self, lane: Lane, places: Sequence[int], why: str, policy: Policy) -> None:
        first, last = places[0], places[-1]
        self._rows.settle_messages(lane, first, last, "refused")
        self._note("message.refused", lane.key, first, last, CAUSES[why])
        # One notice for all that are refused in a row.
        if self._rows.message_outcome(lane, first - 1) != "refused":
            self._say(lane.key, why, last, policy)

    def _say(self, conversation: str, text: str, about: int, policy: Policy) -> None:
        """A notice, about a message of the conversation: stored with what it tells of, so it is never said too soon."""
        self._give_notice(notice_id(conversation, about), conversation, text, policy)

    def _give_notice(self, id_: str, conversation: str, text: str, policy: Policy) -> None:
        self._append(Delivery(id_, conversation, text, "notice", queued_at=self._now), policy)

    def _append(self, delivery: Delivery, policy: Policy) -> None:
        out = self._lane(OUT, delivery.conversation, policy)
        self._rows.add_delivery(out, replace(delivery, seq=out.arrive(policy, self._now)))
        self._rows.save_lane(out)
        lane = self._rows.lane(TURN, delivery.conversation)
        if lane is not None:
            self._fail_if_gone(lane, out)

    def _hide(self, lane: Lane) -> None:
        """The turn's holder lets go of it, and so of the outbox if it held that to show the answer."""
        out = self._rows.lane(OUT, lane.key) if lane.kind is TURN else None
        if out is not None and out.rare.shows is not None:
            self._let_go(out)

    # Who cannot be reached

    def _fail_if_gone(self, lane: Lane, out: Lane) -> None:
        """What is said in a conversation that nothing can be sent to fails at once, in sight."""
        if lane.rare.gone is not None:
            self._fail_what_waits(out, lane.rare.gone)

    def _fail_what_waits(self, out: Lane, cause: str) -> int:
        places = list(out.waiting_places)
        for place in places:
            self._rows.close_delivery(out, place, "failed", cause)
            self._note("delivery.failed", out.key, place, 0, cause)
            self._ask_nobody(out, place)
        if places:
            out.withdraw(places[0], places[-1], self._now)
            self._rows.save_lane(out)
        return len(places)

    # Questions that end without an answer

    def _ask_nobody(self, out: Lane, place: int) -> None:
        """This is never said. If a turn waits with it, nobody answers: what is said next is about other things."""
        lane = self._rows.lane(TURN, out.key)
        if lane is None or not lane.rare.asking:
            return
        unsaid = self._rows.delivery(out, place)
        if unsaid is not None and unsaid.id == question_id(lane.key, lane.number, lane.rare.asked):
            self._close_question(lane, TIMED_OUT)
            self._rows.save_lane(lane)

    def _close_question(self, lane: Lane, answer: Answer) -> None:
        self._rows.answer_question(lane, lane.rare.asked, answer, self._now)
        self._note("question.answered", lane.key, lane.number, lane.rare.asked, answer.by)
        lane.answer(self._now)

    # Facts

    def _record_turn(
        self, lane: Lane, outcome: TurnOutcome, agent: str, *, reply: Reply | None = None, cause: str | None = None
    ) -> None:
        turn = TurnView(
            lane.key,
            lane.number,
            lane.done_seq + 1,
            lane.claim_seq,
            outcome,
            lane.attempt,
            lane.epoch,
            lane.owner,
            agent,
            lane.claimed_at or self._now,
            self._now,
            cause,
            reply.session if reply else None,
            reply.usage if reply else NO_USAGE,
        )
        self._rows.add_turn(lane, turn)

    def _record_superseded(self, lane: Lane, agent: str, how: Superseded) -> None:
        self._record_turn(lane, "superseded", agent, cause=how.cause)
        who = (lane.attempt, lane.epoch, lane.owner)
        self._note("turn.superseded", lane.key, lane.number, *who, how.set_aside, how.cause)

    def _note(self, name: str, conversation: str | None, *facts: Fact) -> None:
        """To be written down, its facts in the order of `EVENTS`. It becomes an event only for whoever asks."""
        self.noted.append((name, conversation, *facts))

    def _keep_attempt(self, lane: Lane, result: str, cause: str | None = None) -> None:
        self._rows.add_attempt(
            lane,
            AttemptView(
                conversation=lane.key,
                kind=lane.kind,
                number=lane.number,
                attempt=lane.attempt,
                epoch=lane.epoch,
                worker=lane.owner,
                result=result,
                at=self._now,
                cause=cause,
            ),
        )

    def _note_attempt(self, lane: Lane, result: str, *, cause: str | None = None, retry_at: int | None = None) -> None:
        """A run ended without an outcome: keep who, when and why."""
        self._keep_attempt(lane, result, cause)
        if result == "parked":
            self._note("lane.parked", lane.key, lane.kind.name.lower(), cause)
            return
        noun, place = NOUNS[lane.kind], lane.claim_seq if lane.kind is OUT else lane.number
        why = () if retry_at is None else (cause, retry_at)
        self._note(f"{noun}.{result}", lane.key, place, lane.attempt, lane.epoch, lane.owner, *why)
