"""What each verb does to the rows: the decisions of the contract, once, for every backend that can hold rows still.

A backend opens a transaction of its own, hands its rows in, and calls the verbs here; what they return is true as soon
as the backend has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from turnlane.backends.base import Acceptance, Arrival, Verdict
from turnlane.backends.rows import Rows, WorkerRow
from turnlane.backends.serving import Serving, Taker
from turnlane.errors import WorkerLost
from turnlane.model.command import Command
from turnlane.model.delivery import Delivery, delivery_id, notice_id, operator_id, question_id
from turnlane.model.event import Fact, Noted
from turnlane.model.lane import NOTHING_RARE, OUT, TURN, Kind, Lane
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits
from turnlane.model.message import Message
from turnlane.model.notice import BUSY, CLOSED, FULL, NEW, NOTHING_TO_STOP, PAUSED, RESUMED, STOPPED, status, usage
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.question import TIMED_OUT, Answer, Question, QuestionView, chosen
from turnlane.model.session import Session
from turnlane.model.turn import (
    Asks,
    Delivered,
    GaveUp,
    Outcome,
    Parked,
    Released,
    Replied,
    Reply,
    RetryLater,
    Superseded,
    TurnOutcome,
)
from turnlane.model.usage import NO_USAGE
from turnlane.model.view import AttemptView, TurnView

SKIPPED = "skipped by an operator"
DROPPED = "dropped by an operator"
TAKEN_OVER = Superseded(set_aside=False, cause="taken over by a person")

By = Literal["operator", "command", "business", "time"]
"""Who paused or resumed a lane."""

_OUTCOME_VERDICTS: dict[TurnOutcome, Verdict] = {
    "answered": "answered",
    "dead_letter": "dead_letter",
    "superseded": "superseded",
    "retried": "dead_letter",
    "dropped": "dead_letter",
}
_ATTEMPT_VERDICTS: dict[str, Verdict] = {
    "retried": "retried",
    "released": "released",
    "asked": "asked",
    "parked": "parked",
}


class Transaction:
    """The verbs over one open transaction's rows, all at the same moment `now`."""

    def __init__(self, rows: Rows, now: int, limits: Limits = NO_LIMITS) -> None:
        self._rows = rows
        self._now = now
        self.noted: list[Noted] = []
        self._serving = Serving(rows, now, limits, self.noted)

    # Workers

    def join(self, worker: str, term_ms: int) -> None:
        if self._rows.worker(worker) is not None:
            raise WorkerLost(f"the worker id {worker} was used before; join under a fresh one")
        self._rows.save_worker(WorkerRow(worker, True, self._now + term_ms))
        self._note("worker.joined", None, worker)

    def renew(self, worker: str, term_ms: int, held: Sequence[Lease]) -> bool:
        row = self._rows.worker(worker)
        if row is None or not row.live:
            return False
        self._rows.save_worker(WorkerRow(worker, True, self._now + term_ms))
        known = {(lease.kind, lease.key, lease.epoch) for lease in held}
        for lane in self._rows.lanes_of(worker):
            claimed_long_ago = lane.claimed_at is not None and lane.claimed_at < self._now - term_ms
            if claimed_long_ago and lane.held_under not in known:
                self._give_back(lane, cause="the answer to its claim was lost")
                self._hide(lane)
        return True

    def leave(self, worker: str) -> None:
        row = self._rows.worker(worker)
        if row is None or not row.live:
            return
        self._rows.save_worker(replace(row, live=False))
        for lane in sorted(self._rows.lanes_of(worker), key=_outboxes_first):
            self._release(lane)
        self._note("worker.left", None, worker)

    def reap(self) -> int:
        for row in self._rows.lapsed_workers(self._now):
            self._rows.save_worker(replace(row, live=False))
            self._note("worker.lost", None, row.id)
        lanes = sorted(self._rows.lanes_of_the_dead(), key=_outboxes_first)
        for lane in lanes:
            self._take_back(lane)
        return len(lanes)

    def _take_back(self, lane: Lane) -> None:
        if lane.is_hollow:
            self._let_go(lane)
        elif lane.takeovers_used_up and not (lane.rare.asking and lane.policy.ack == "commit"):
            self._give_up(lane, f"its worker was lost {lane.takeovers} times")
        else:
            self._note_attempt(lane, "lost", cause="its worker was lost")
            lane.orphan(self._now)
            self._rows.save_lane(lane)

    def _let_go(self, lane: Lane) -> None:
        """Of a lane whose batch was ended by somebody else: what was said since may start from now on."""
        lane.let_go(self._now)
        self._rows.save_lane(lane)

    # Accept

    def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        return [self._accept(arrival.message, arrival.policy, arrival.command) for arrival in arrivals]

    def _accept(self, message: Message, policy: Policy, command: Command | None) -> Acceptance:
        seen = self._rows.origin(message.channel, message.origin_id)
        if seen is not None:
            self._note("message.duplicate", message.conversation, message.id)
            return Acceptance("duplicate", seen)
        lane = self._lane(TURN, message.conversation, policy)
        if lane.rare is not NOTHING_RARE:
            lane.rare = replace(lane.rare, gone=None)  # whoever writes can be reached again, for all we know
            policy = lane.stamped(policy)
        if command is not None:
            return self._obey(lane, message, policy, command)
        if message.role != "person":
            return self._hear(lane, message, policy.takeover_ms)
        if lane.rare.asking or message.answers is not None:
            answered = self._take_as_answer(lane, message)
            if answered is not None:
                return answered
        if policy.on_full == "reject" and lane.pending >= policy.max_pending:
            return self._refuse_at_the_door(lane, message, policy)
        seq = lane.arrive(policy, self._now)
        lane.user = message.sender
        if policy.on_busy == "reject" or lane.late_seq is not None:
            lane.note_late()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        pending = lane.pending
        self._note("message.accepted", lane.key, message.id, seq, pending)
        if pending > policy.max_pending:
            self._overflow(lane, pending, policy)
        return Acceptance("accepted", seq)

    def _take_as_answer(self, lane: Lane, message: Message) -> Acceptance | None:
        """While a turn asks, what the person says is the answer. A button's answer is never anything else."""
        self._expire_question(lane)
        asked = lane.rare.asking and message.role == "person"
        if message.answers is not None:
            asked = asked and message.answers == question_id(lane.key, lane.number, lane.rare.asked)
        elif not asked:
            return None
        seq = lane.arrive_settled()
        self._rows.add_message(lane, message.stored(seq, self._now))
        self._rows.settle_messages(lane, seq, seq, "answer")
        self._note("message.accepted", lane.key, message.id, seq, lane.pending)
        if asked:
            self._answer_question(lane, message.text, message.sender)
        else:
            self._say(lane.key, CLOSED, seq, lane.policy)
        self._rows.save_lane(lane)
        return Acceptance("accepted", seq)

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

    def _answer_question(self, lane: Lane, text: str, by: str) -> None:
        options = self._rows.question(lane, lane.rare.asked).question.options
        self._close_question(lane, Answer(chosen(text, options), by))

    def _expire_question(self, lane: Lane) -> None:
        if lane.is_unanswered_by(self._now):
            self._close_question(lane, TIMED_OUT)

    def _close_question(self, lane: Lane, answer: Answer) -> None:
        self._rows.answer_question(lane, lane.rare.asked, answer, self._now)
        self._note("question.answered", lane.key, lane.number, lane.rare.asked, answer.by)
        lane.answer(self._now)

    def _obey(self, lane: Lane, message: Message, policy: Policy, command: Command) -> Acceptance:
        said = self._do(lane, command)
        seq = lane.arrive_settled()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        self._rows.settle_messages(lane, seq, seq, "command")
        self._note("command.obeyed", lane.key, command, message.id, seq)
        self._say(lane.key, said, seq, policy)
        return Acceptance("accepted", seq)

    def _do(self, lane: Lane, command: Command) -> str:
        """Returns what the person is told."""
        match command:
            case "stop":
                return STOPPED if self._stop(lane) else NOTHING_TO_STOP
            case "new":
                self._rows.drop_sessions(lane)
                lane.renew()
                return NEW
            case "pause":
                self._pause(lane, by="command")
                return PAUSED
            case "resume":
                self._resume(lane, by="command")
                return RESUMED
            case "status":
                since = None if lane.owner is None else self._now - (lane.claimed_at or self._now)
                halted = "parked" if lane.parked else "paused" if lane.is_paused(self._now) else None
                return status(running_ms=since, waiting=lane.waiting, halted=halted)
            case "usage":
                return usage(self._rows.session(lane, lane.policy.agent))

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
        lane.stop(self._now)
        self._rows.save_lane(lane)
        return True

    # Others who answer

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
        return True

    # Refusing

    def _refuse_at_the_door(self, lane: Lane, message: Message, policy: Policy) -> Acceptance:
        seq = lane.arrive_settled()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        self._refuse(lane, [seq], FULL, policy)
        return Acceptance("rejected", seq)

    def _refuse(self, lane: Lane, places: Sequence[int], why: str, policy: Policy) -> None:
        first, last = places[0], places[-1]
        self._rows.settle_messages(lane, first, last, "refused")
        self._note("message.refused", lane.key, first, last, "full" if why is FULL else "busy")
        # One notice for all that are refused in a row.
        if self._rows.message_outcome(lane, first - 1) != "refused":
            self._say(lane.key, why, last, policy)

    def _overflow(self, lane: Lane, pending: int, policy: Policy) -> None:
        if pending == policy.max_pending + 1:
            self._note("lane.full", lane.key, pending, policy.max_pending)
        if policy.on_full == "drop_oldest":
            self._drop_oldest(lane)

    def _drop_oldest(self, lane: Lane) -> None:
        oldest, *rest = islice(lane.waiting_places, 2)
        first_at = self._rows.messages_at(lane, rest)[0].accepted_at if rest else None
        self._rows.settle_messages(lane, oldest, oldest, "dropped")
        lane.drop(oldest, first_at)
        self._note("message.dropped", lane.key, oldest, lane.pending)

    def _say(self, conversation: str, text: str, about: int, policy: Policy) -> None:
        """A notice, about a message of the conversation: stored with what it tells of, so it is never said too soon."""
        self._append(
            Delivery(notice_id(conversation, about), conversation, text, "notice", queued_at=self._now), policy
        )

    def _append(self, delivery: Delivery, policy: Policy) -> None:
        out = self._lane(OUT, delivery.conversation, policy)
        self._rows.add_delivery(out, replace(delivery, seq=out.arrive(policy, self._now)))
        self._rows.save_lane(out)
        lane = self._rows.lane(TURN, delivery.conversation)
        if lane is not None:
            self._fail_if_gone(lane, out)

    def _lane(self, kind: Kind, key: str, policy: Policy) -> Lane:
        return self._rows.lane(kind, key) or self._rows.add_lane(kind, key, policy)

    # Claim

    def take(self, taker: Taker) -> Taker:
        return self._serving.take(taker)

    def serve(self) -> None:
        self._serving.serve()

    # Commit

    def commit(self, lease: Lease, outcome: Outcome, take_next: bool) -> tuple[Verdict, Taker | None]:
        """The taker, if there is to be one, holds the next lease once `serve` is done."""
        taker = Taker(lease.worker, lease.kind, 1) if take_next else None
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last):
            verdict = self._already(lane, lease)
            self._hear_the_end(lane, lease)
        else:
            verdict = self._end(lane, lease, outcome, taker)
            self._rows.save_lane(lane)
        if taker is not None:
            self._serving.take(taker)
        return verdict, taker

    def _hear_the_end(self, lane: Lane | None, lease: Lease) -> None:
        if lane is not None and lane.is_hollow and (lane.owner, lane.epoch) == (lease.worker, lease.epoch):
            self._let_go(lane)
            self._hide(lane)

    def _already(self, lane: Lane | None, lease: Lease) -> Verdict:
        """The lease is not valid any more. If that is because of this very commit, repeat its answer."""
        verdict = None if lane is None else self._earlier_verdict(lane, lease)
        if verdict is None:
            name = "turn.fenced" if lease.kind is TURN else "delivery.fenced"
            place = lease.number if lease.kind is TURN else lease.first
            self._note(name, lease.key, place, lease.epoch, lease.worker)
        return verdict or "fenced"

    def _earlier_verdict(self, lane: Lane, lease: Lease) -> Verdict | None:
        if lane.kind is OUT:
            settled = self._rows.settled_delivery(lane, lease.first)
            if settled is not None and settled[1] == lease.epoch:
                return "sent" if settled[0] == "sent" else "failed"
        else:
            turn = self._rows.turn(lane, lease.number)
            if turn is not None and (turn.epoch, turn.worker) == (lease.epoch, lease.worker):
                return _OUTCOME_VERDICTS[turn.outcome]
        attempt = self._rows.attempt(lane, lease.epoch)
        if attempt is not None and attempt.worker == lease.worker and attempt.number == lease.number:
            return _ATTEMPT_VERDICTS.get(attempt.result)
        return None

    def _end(self, lane: Lane, lease: Lease, outcome: Outcome, taker: Taker | None) -> Verdict:
        # The two ordinary ends first: a match over all of them takes a while.
        if isinstance(outcome, Replied):
            return self._answer(lane, lease, outcome.reply, self._steer(lane, outcome.through))
        if isinstance(outcome, Delivered):
            return self._settle(lane, lease, outcome.receipt, taker)
        self._hide(lane)
        match outcome:
            case RetryLater():
                return self._retry(lane, lease, outcome)
            case GaveUp(cause, gone):
                verdict = self._give_up(lane, cause, lease)
                if gone and lane.kind is OUT:
                    self._lose_touch(lane, cause)
                return verdict
            case Released():
                return self._release(lane, lease)
            case Superseded():
                return self._supersede(lane, lease, outcome)
            case Asks():
                return self._set_aside_to_ask(lane, lease, outcome)
            case Parked(cause):
                return self._park(lane, cause)

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
            lane.ask(question.expires_at)
            view = QuestionView(lane.key, lane.number, number, question, self._now)
            self._rows.add_question(lane, view)
            self._queue_question(lane, lease, view)

    def _queue_question(self, lane: Lane, lease: Lease, asked: QuestionView) -> None:
        id_ = question_id(lane.key, asked.turn, asked.number)
        out = self._lane(OUT, lane.key, lane.policy)
        delivery = Delivery(
            id_,
            lane.key,
            asked.question.text,
            "question",
            turn=lane.number,
            in_reply_to=tuple(message.origin_id for message in lease.messages),
            seq=out.arrive(lane.policy, self._now),
            queued_at=self._now,
            options=asked.question.options,
        )
        self._rows.add_delivery(out, delivery)
        self._rows.save_lane(out)
        self._note("question.asked", lane.key, lane.number, asked.number, id_, asked.question.expires_at)
        self._fail_if_gone(lane, out)

    def _set_aside_to_ask(self, lane: Lane, lease: Lease, outcome: Asks) -> Verdict:
        self._ask(lane, lease, outcome.number, outcome.question)
        self._note_attempt(lane, "asked")
        lane.await_answer(self._now)
        return "asked"

    def _steer(self, lane: Lane, through: int | None) -> Sequence[Message]:
        """The messages that joined the turn while it ran."""
        if through is None or through == lane.claim_seq:
            return ()
        if not lane.claim_seq < through <= lane.next_seq:
            raise ValueError(f"the turn covers messages up to {through}, but {lane.next_seq} is the last one stored")
        places = list(lane.waiting_places)
        waiting = self._rows.messages_at(lane, places)
        steered = [message for message in waiting if message.seq <= through]
        if steered:
            rest = waiting[len(steered) :]
            lane.widen(steered[-1].seq, rest[0].accepted_at if rest else None)
        return steered

    def _supersede(self, lane: Lane, lease: Lease, outcome: Superseded) -> Verdict:
        self._record_superseded(lane, lease.policy.agent, outcome)
        if outcome.set_aside:
            self._complete(lane)
        else:
            lane.dissolve(lease.messages[0].accepted_at, self._now)
        return "superseded"

    def _record_superseded(self, lane: Lane, agent: str, how: Superseded) -> None:
        self._record_turn(lane, "superseded", agent, cause=how.cause)
        who = (lane.attempt, lane.epoch, lane.owner)
        self._note("turn.superseded", lane.key, lane.number, *who, how.set_aside, how.cause)

    def refuse_late(self, lease: Lease) -> int:
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last):
            return 0
        return self._refuse_late(lane)

    def _refuse_late(self, lane: Lane) -> int:
        late = lane.refuse_late()
        if late:
            self._refuse(lane, late, BUSY, lane.policy)
            self._rows.save_lane(lane)
        return len(late)

    # Showing what there is of an answer

    def hold_outbox(self, lease: Lease) -> bool:
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last) or not self._may_claim(lease.worker):
            return False
        if not self._may_be_seen(lane):
            return False
        out = self._lane(OUT, lane.key, lane.policy)
        if out.owner is None and not (out.pending or out.paused or out.parked):
            out.show(lease.worker, lease.epoch, self._now)
            self._rows.save_lane(out)
        return out.rare.shows == lease.epoch and not out.paused

    def _may_be_seen(self, lane: Lane) -> bool:
        """Not by somebody who is gone, nor where the platform counts what is sent, or asked for patience."""
        held_until = self._rows.holds().get(lane.policy.tenant, 0)
        return lane.rare.gone is None and not lane.policy.send_every_ms and held_until <= self._now

    def _may_claim(self, worker: str) -> bool:
        row = self._rows.worker(worker)
        return row is not None and row.live and row.alive_until > self._now

    def _hide(self, lane: Lane) -> None:
        """The turn's holder lets go of it, and so of the outbox if it held that to show the answer."""
        out = self._rows.lane(OUT, lane.key) if lane.kind is TURN else None
        if out is not None and out.rare.shows is not None:
            self._let_go(out)

    def _complete(self, lane: Lane, *, still_runs: bool = False) -> None:
        """The turn is over, whatever came of it; `still_runs`: though its holder does not know yet."""
        if lane.late_seq is not None:
            self._refuse_late(lane)
        if still_runs:
            lane.end(self._now)
        else:
            lane.complete(self._now)

    def _answer(self, lane: Lane, lease: Lease, reply: Reply, steered: Sequence[Message]) -> Verdict:
        deliveries = self._queue_deliveries(lane, (*lease.messages, *steered), reply)
        self._save_session(lane, lease, reply)
        self._record_turn(lane, "answered", lease.policy.agent, reply=reply)
        who = (lane.attempt, lane.epoch, lane.owner)
        spent = (reply.usage.input_tokens, reply.usage.output_tokens)
        took = self._now - lease.claimed_at
        self._note("turn.answered", lane.key, lane.number, *who, deliveries, *spent, took)
        if lease.heard:
            lane.forget_heard(lease.heard[-1].seq)
        self._complete(lane)
        return "answered"

    def _queue_deliveries(self, lane: Lane, messages: Sequence[Message], reply: Reply) -> int:
        parts = reply.parts
        if not parts:
            self._hide(lane)
            return 0
        out = self._lane(OUT, lane.key, lane.policy)
        in_reply_to = tuple([message.origin_id for message in messages])
        for part, text in enumerate(parts, 1):
            seq = out.arrive(lane.policy, self._now)
            id_ = delivery_id(lane.key, lane.number, part)
            place = (lane.number, part, len(parts))
            delivery = Delivery(id_, lane.key, text, "reply", *place, in_reply_to, seq, self._now)
            self._rows.add_delivery(out, delivery)
        self._rows.save_lane(out)
        if lane.rare is not NOTHING_RARE:
            self._fail_if_gone(lane, out)
        return len(parts)

    def _fail_if_gone(self, lane: Lane, out: Lane) -> None:
        """What is said in a conversation that nothing can be sent to fails at once, in sight."""
        if lane.rare.gone is not None:
            self._fail_what_waits(out, lane.rare.gone)

    def _lose_touch(self, out: Lane, cause: str) -> None:
        """The turn lane remembers it: there it costs nothing to ask where something is said, or somebody writes."""
        lane = self._rows.lane(TURN, out.key)
        if lane is not None:
            lane.rare = replace(lane.rare, gone=cause)
            self._rows.save_lane(lane)
        self._note("conversation.gone", out.key, cause, self._fail_what_waits(out, cause))

    def _fail_what_waits(self, out: Lane, cause: str) -> int:
        places = list(out.waiting_places)
        for place in places:
            self._rows.close_delivery(out, place, "failed", cause)
            self._note("delivery.failed", out.key, place, 0, cause)
        if places:
            out.withdraw(places[0], places[-1], self._now)
            self._rows.save_lane(out)
        return len(places)

    def _save_session(self, lane: Lane, lease: Lease, reply: Reply) -> None:
        if reply.session is None or lane.renewed:
            return
        # The lease's copy is the stored one: nobody else can have written it meanwhile.
        before = lease.session or Session(reply.session)
        self._rows.save_session(lane, lease.policy.agent, before.after_turn(reply.session, reply.usage, self._now))

    def _settle(self, lane: Lane, lease: Lease, receipt: str | None, taker: Taker | None) -> Verdict:
        self._rows.settle_delivery(lane, "sent", receipt=receipt)
        delivery = lease.delivery
        assert delivery is not None
        waited = self._now - delivery.queued_at
        place = (delivery.id, lane.claim_seq, delivery.turn)
        self._note("delivery.sent", lane.key, *place, lane.attempt, receipt, waited)
        self._go_on(lane, taker)
        return "sent"

    def _go_on(self, lane: Lane, taker: Taker | None) -> None:
        """The same lease may take the next delivery, so that a long answer leaves without a claim for each part."""
        if taker is not None and lane.waiting and not lane.paused and self._may_go_on(lane.policy):
            lane.advance()
            taker.lanes.append(lane)
        else:
            lane.complete(self._now)

    def _may_go_on(self, policy: Policy) -> bool:
        """Not if the account is held; nor if it has a rate: another conversation may be more urgent, so all queue."""
        return not policy.send_every_ms and self._rows.holds().get(policy.tenant, 0) <= self._now

    def _retry(self, lane: Lane, lease: Lease, outcome: RetryLater) -> Verdict:
        if self._used_up(lane, lease, outcome):
            return self._give_up(lane, outcome.cause, lease)
        self._note_attempt(lane, "retried", cause=outcome.cause, retry_at=outcome.at)
        lane.retry(outcome.at, self._now, counts=outcome.counts, in_doubt=outcome.in_doubt)
        if outcome.holds_account and lane.kind is OUT:
            self._hold(lane.policy.tenant, outcome.at)
        return "retried"

    def _hold(self, account: str, until: int) -> None:
        if until > max(self._rows.holds().get(account, 0), self._now):
            self._rows.save_hold(account, until)
            self._note("account.held", None, account, until)

    def _used_up(self, lane: Lane, lease: Lease, outcome: RetryLater) -> bool:
        if lane.kind is TURN:
            return outcome.counts and lane.policy.failures_used_up(lane.failures + 1)
        return lease.delivery is not None and outcome.at - lease.delivery.queued_at > lane.policy.deliver_for_ms

    def give_back(self, lease: Lease) -> None:
        """The claim was called off before its answer arrived: as if it had never been made."""
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is not None and lane.held_by(lease.worker, lease.epoch, lease.last):
            self._note_attempt(lane, "released", cause="the claim was called off")
            lane.call_off(self._now)
            self._rows.save_lane(lane)
        else:
            self._hear_the_end(lane, lease)

    def _release(self, lane: Lane, lease: Lease | None = None) -> Verdict:
        if not lane.is_hollow and lane.kind is TURN and lane.policy.ack == "claim":
            return self._give_up(lane, 'it was stopped in the middle, and ack = "claim" never runs a turn twice', lease)
        self._give_back(lane)
        return "released"

    def _give_back(self, lane: Lane, cause: str | None = None) -> None:
        if lane.is_hollow:
            self._let_go(lane)
            return
        self._note_attempt(lane, "released", cause=cause)
        lane.release(self._now)
        self._rows.save_lane(lane)

    def _park(self, lane: Lane, cause: str) -> Verdict:
        self._note_attempt(lane, "parked", cause=cause)
        lane.park(self._now)
        return "parked"

    def _give_up(self, lane: Lane, cause: str, lease: Lease | None = None, *, still_runs: bool = False) -> Verdict:
        """The batch gets its outcome without an answer, is kept, and the lane goes on."""
        if lane.kind is TURN:
            agent = (lease or lane).policy.agent
            self._record_turn(lane, "dead_letter", agent, cause=cause)
            self._note("turn.dead_lettered", lane.key, lane.number, lane.attempt, cause)
        else:
            self._rows.settle_delivery(lane, "failed", cause=cause)
            self._note("delivery.failed", lane.key, lane.claim_seq, lane.attempt, cause)
        self._complete(lane, still_runs=still_runs)
        self._rows.save_lane(lane)
        return "dead_letter" if lane.kind is TURN else "failed"

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

    # Steering

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
        if lane is None or lane.owner is not None or not lane.has_open_batch:
            return False
        lane.hurry(self._now)
        self._rows.save_lane(lane)
        self._note("lane.hurried", conversation, kind.name.lower())
        return True

    def skip(self, conversation: str, kind: Kind) -> bool:
        lane = self._rows.lane(kind, conversation)
        if lane is None or not lane.has_open_batch:
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
        lane.user = messages[-1].sender
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
        return True

    def _dead_letter(self, lane: Lane, number: int) -> TurnView | None:
        turn = self._rows.turn(lane, number)
        return turn if turn is not None and turn.outcome == "dead_letter" else None

    def forget(self, what: str, keys: Sequence[Sequence[object]]) -> None:
        self._rows.forget(what, keys)

    # Facts

    def _note(self, name: str, conversation: str | None, *facts: Fact) -> None:
        """To be written down, its facts in the order of `EVENTS`. It becomes an event only for whoever asks."""
        self.noted.append((name, conversation, *facts))

    def _note_attempt(self, lane: Lane, result: str, *, cause: str | None = None, retry_at: int | None = None) -> None:
        """A run ended without an outcome: keep who, when and why."""
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
        if result == "parked":
            self._note("lane.parked", lane.key, lane.kind.name.lower(), cause)
            return
        noun, place = ("turn", lane.number) if lane.kind is TURN else ("delivery", lane.claim_seq)
        why = () if retry_at is None else (cause, retry_at)
        self._note(f"{noun}.{result}", lane.key, place, lane.attempt, lane.epoch, lane.owner, *why)


def _outboxes_first(lane: Lane) -> bool:
    """The end of a turn may say something, which changes its outbox: first that is judged as its holder left it."""
    return lane.kind is not OUT
