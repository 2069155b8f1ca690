"""What each verb does to the rows: the decisions of the contract, once, for every backend that can hold rows still.

A backend opens a transaction of its own, hands its rows in, and calls the verbs here; what they return is true as soon
as the backend has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from turnlane.backends.asking import Asking
from turnlane.backends.base import Acceptance, Arrival, Verdict
from turnlane.backends.record import NOUNS
from turnlane.backends.rows import Rows, WorkerRow
from turnlane.backends.scheduling import Scheduling
from turnlane.backends.serving import Serving, Taker
from turnlane.backends.taking_over import TakingOver
from turnlane.errors import WorkerLost
from turnlane.model.command import Command
from turnlane.model.delivery import Delivery, delivery_id, dropped_id, question_id
from turnlane.model.lane import NOTHING_RARE, OUT, TICK, TURN, Lane
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits
from turnlane.model.message import Message, channel_of
from turnlane.model.notice import (
    CLOSED,
    DROPPED,
    FULL,
    NEW,
    NOTHING_TO_STOP,
    PAUSED,
    RESUMED,
    STOPPED,
    TOO_FAST,
    status,
    usage,
)
from turnlane.model.person import Person
from turnlane.model.policy import Policy
from turnlane.model.session import Session
from turnlane.model.turn import (
    Asks,
    Delivered,
    Fired,
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
from turnlane.model.usage import NO_USAGE, Account, amounts, day_of

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
    "fired": "fired",
}


class Transaction(Scheduling, TakingOver, Asking):
    """The verbs over one open transaction's rows, all at the same moment `now`."""

    def __init__(self, rows: Rows, now: int, limits: Limits = NO_LIMITS) -> None:
        super().__init__(rows, now)
        self._limits = limits
        self._serving = Serving(rows, now, limits, self.noted)

    # Workers

    def join(self, worker: str, term_ms: int, machine: str = "") -> None:
        if self._rows.worker(worker) is not None:
            raise WorkerLost(f"the worker id {worker} was used before; join under a fresh one")
        self._rows.save_worker(WorkerRow(worker, True, self._now + term_ms, machine))
        self._note("worker.joined", None, worker, machine)

    def renew(self, worker: str, term_ms: int, held: Sequence[Lease]) -> bool:
        row = self._rows.worker(worker)
        if row is None or not row.live:
            return False
        self._rows.save_worker(replace(row, alive_until=self._now + term_ms))
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

    # Settings

    def configure(self, name: str, value: str | None, by: str) -> bool:
        if self._rows.setting(name) == value:
            return False
        self._rows.save_setting(name, value)
        self._note("settings.changed", None, name, value, by)
        return True

    # Accept

    def accept(self, arrivals: Sequence[Arrival]) -> list[Acceptance]:
        return [
            self._accept(arrival.message, arrival.policy, arrival.command, arrival.too_fast) for arrival in arrivals
        ]

    def _accept(
        self, message: Message, policy: Policy, command: Command | None = None, too_fast: bool = False
    ) -> Acceptance:
        seen = self._rows.origin(message.channel, message.origin_id)
        if seen is not None:
            self._note("message.duplicate", message.conversation, message.id)
            return Acceptance("duplicate", seen)
        lane = self._lane(TURN, message.conversation, policy)
        if command is not None:
            return self._obey(lane, message, self._stamped(lane, policy), command, too_fast)
        if lane.rare is not NOTHING_RARE or message.role != "person" or message.answers is not None:
            policy = lane.stamped(policy) if message.role == "schedule" else self._stamped(lane, policy)
            accepted = self._accept_otherwise(lane, message, policy, too_fast)
            if accepted is not None:
                return accepted
        if too_fast or (policy.on_full == "reject" and lane.pending >= policy.max_pending):
            return self._refuse_at_the_door(lane, message, policy, TOO_FAST if too_fast else FULL)
        if message.sender != lane.user:
            lane.speaks(message.sender)
        seq = lane.arrive(policy, self._now)
        if policy.on_busy == "reject" or lane.late_seq is not None:
            lane.note_late()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        pending = lane.pending if lane.aside else seq - lane.done_seq
        self.noted.append(("message.accepted", lane.key, message.id, seq, pending))
        if pending > policy.max_pending:
            self._overflow(lane, pending, policy)
        return Acceptance("accepted", seq)

    def _stamped(self, lane: Lane, policy: Policy) -> Policy:
        """As this conversation follows it."""
        if lane.rare is NOTHING_RARE:
            return policy
        lane.rare = replace(lane.rare, gone=None)  # whoever writes can be reached again, for all we know
        return lane.stamped(policy)

    def _accept_otherwise(self, lane: Lane, message: Message, policy: Policy, too_fast: bool) -> Acceptance | None:
        """What is not to be answered: others speak, or the person answers. None: it is a message like any other."""
        if message.role == "schedule":
            return None
        if message.role != "person":
            return self._hear(lane, message, policy.takeover_ms)
        if lane.rare.asking or message.answers is not None:
            return self._take_as_answer(lane, message, too_fast)
        return None

    def _take_as_answer(self, lane: Lane, message: Message, too_fast: bool) -> Acceptance | None:
        """What the person says once a turn may have asked them is the answer. A button's is never anything else."""
        self._expire_question(lane)
        asked = lane.rare.asking
        if message.answers is not None:
            asked = asked and message.answers == question_id(lane.key, lane.number, lane.rare.asked)
            if too_fast and not asked:
                return None  # each is told so, and anybody can make them up: they are bounded like messages
        elif not asked or not self._question_may_be_known(lane):
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

    def _obey(
        self, lane: Lane, message: Message, policy: Policy, command: Command, too_fast: bool = False
    ) -> Acceptance:
        # Each is answered, so they are bounded like messages. But whoever set too much going may always stop it.
        if too_fast and not (command == "stop" and lane.pending):
            return self._refuse_at_the_door(lane, message, policy, TOO_FAST)
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
                self._begin_anew(lane)
                return NEW
            case "pause":
                self._pause(lane, by="command")
                return PAUSED
            case "resume":
                self._resume(lane, by="command")
                return RESUMED
            case "status":
                return self._status(lane)
            case "usage":
                return usage(self._rows.session(lane, lane.policy.agent))

    def _status(self, lane: Lane) -> str:
        if lane.is_hollow:
            return status("ending", lane.waiting)
        if lane.rare.asking and not lane.is_unanswered_by(self._now):
            return status("asking", lane.waiting)
        if lane.owner is not None:
            return status("working", lane.waiting, self._now - (lane.claimed_at or self._now))
        if lane.parked:
            return status("parked", lane.pending)
        if lane.is_paused(self._now):
            return status("paused", lane.pending)
        if lane.has_open_batch:
            return status("retrying", lane.pending, (lane.retry_at or self._now) - self._now)
        return status("nothing", lane.pending)

    def _refuse_at_the_door(self, lane: Lane, message: Message, policy: Policy, why: str) -> Acceptance:
        seq = lane.arrive_settled()
        self._rows.save_lane(lane)
        self._rows.add_message(lane, message.stored(seq, self._now))
        self._refuse(lane, [seq], why, policy)
        return Acceptance("rejected", seq)

    def _overflow(self, lane: Lane, pending: int, policy: Policy) -> None:
        if pending == policy.max_pending + 1:
            self._note("lane.full", lane.key, pending, policy.max_pending)
        if policy.on_full == "drop_oldest":
            self._drop_oldest(lane, policy)

    def _drop_oldest(self, lane: Lane, policy: Policy) -> None:
        oldest, *rest = islice(lane.waiting_places, 2)
        if rest and lane.may_have_handed_in:
            # What is in the agent's hands is answered with the turn. Only the newcomer cannot be there.
            oldest, first_at = lane.next_seq, lane.first_at
        else:
            first_at = self._rows.messages_at(lane, rest)[0].accepted_at if rest else None
        self._rows.settle_messages(lane, oldest, oldest, "dropped")
        lane.drop(oldest, first_at)
        self._note("message.dropped", lane.key, oldest, lane.pending)
        # One notice for all that are dropped in a row.
        if self._rows.message_outcome(lane, oldest - 1) != "dropped":
            why = FULL if oldest == lane.next_seq else DROPPED
            self._give_notice(dropped_id(lane.key, oldest), lane.key, why, policy)

    # Claim

    def take(self, taker: Taker) -> Taker:
        return self._serving.take(taker)

    def serve(self, *, to_all: bool = True) -> None:
        self._serving.serve(to_all=to_all)

    @property
    def starts_turns(self) -> bool:
        return any(taker.kind is TURN and taker.leases for taker in self._serving.takers)

    # Commit

    def commit(self, lease: Lease, outcome: Outcome, take_next: bool) -> tuple[Verdict, Taker | None]:
        """The taker, if there is to be one, holds the next lease once `serve` is done."""
        taker = Taker(lease.worker, lease.kind, 1, [], []) if take_next else None
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last):
            verdict = self._already(lane, lease)
            self._hear_the_end(lane, lease)
        else:
            verdict = self._end(lane, lease, outcome, taker)
            self._rows.save_lane(lane)
        if taker is not None:
            self._serving.takers.append(taker)
        return verdict, taker

    def _hear_the_end(self, lane: Lane | None, lease: Lease) -> None:
        if lane is not None and lane.is_hollow and (lane.owner, lane.epoch) == (lease.worker, lease.epoch):
            self._let_go(lane)
            self._hide(lane)

    def _already(self, lane: Lane | None, lease: Lease) -> Verdict:
        """The lease is not valid any more. If that is because of this very commit, repeat its answer."""
        verdict = None if lane is None else self._earlier_verdict(lane, lease)
        if verdict is None:
            place = lease.first if lease.kind is OUT else lease.number
            self._note(f"{NOUNS[lease.kind]}.fenced", lease.key, place, lease.epoch, lease.worker)
        return verdict or "fenced"

    def _earlier_verdict(self, lane: Lane, lease: Lease) -> Verdict | None:
        if lane.kind is OUT:
            settled = self._rows.settled_delivery(lane, lease.first)
            if settled is not None and settled[1] == lease.epoch:
                return "sent" if settled[0] == "sent" else "failed"
        elif lane.kind is TURN:
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
            steered = () if outcome.through is None else self._steer(lane, outcome.through)
            return self._answer(lane, lease, outcome.reply, steered)
        if isinstance(outcome, Delivered):
            return self._settle(lane, lease, outcome.receipt, taker)
        if lane.kind is TICK:
            return self._tick(lane) if isinstance(outcome, Fired) else self._release(lane, lease)
        self._hide(lane)
        match outcome:
            case Fired():
                raise ValueError(f"only a schedule fires, and {lane.key} is held to be run or sent")
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

    # Of a turn

    def _answer(self, lane: Lane, lease: Lease, reply: Reply, steered: Sequence[Message]) -> Verdict:
        messages = (*lease.messages, *steered) if steered else lease.messages
        deliveries = self._queue_deliveries(lane, messages, reply)
        self._save_session(lane, lease, reply)
        self._record_turn(lane, "answered", lease.policy.agent, reply=reply)
        if reply.usage is not NO_USAGE:
            self._spend(lane, lease, reply)
        key, number, attempt, epoch, owner = lane.key, lane.number, lane.attempt, lane.epoch, lane.owner
        read, wrote, took = reply.usage.input_tokens, reply.usage.output_tokens, self._now - lease.claimed_at
        self.noted.append(("turn.answered", key, number, attempt, epoch, owner, deliveries, read, wrote, took))
        if lease.heard:
            lane.forget_heard(lease.heard[-1].seq)
        if lane.late_seq is None:
            lane.complete(self._now)
        else:
            self._complete(lane)
        return "answered"

    def _steer(self, lane: Lane, through: int) -> Sequence[Message]:
        """The messages that joined the turn while it ran."""
        if through == lane.claim_seq:
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

    def _queue_deliveries(self, lane: Lane, messages: Sequence[Message], reply: Reply) -> int:
        parts = reply.parts
        if not parts:
            self._hide(lane)
            return 0
        out = self._lane(OUT, lane.key, lane.policy)
        key, number, now, of = lane.key, lane.number, self._now, len(parts)
        in_reply_to = tuple([message.origin_id for message in messages])
        for part, text in enumerate(parts, 1):
            seq, id_ = out.arrive(lane.policy, now), delivery_id(key, number, part)
            delivery = Delivery(id_, key, text, "reply", number, part, of, in_reply_to, seq, now)
            self._rows.add_delivery(out, delivery)
        self._rows.save_lane(out)
        if lane.rare is not NOTHING_RARE:
            self._fail_if_gone(lane, out)
        return of

    def _save_session(self, lane: Lane, lease: Lease, reply: Reply) -> None:
        if reply.session is None or lane.renewed:
            return
        # The lease's copy is the stored one: nobody else can have written it meanwhile.
        before = lease.session or Session(reply.session)
        after = before.after_turn(reply.session, reply.usage, self._now, anew=reply.began_anew is not None)
        if reply.local:
            after = self._bound(lane, lease, after)
        continues = lease.session is not None and before.handle == after.handle and before.machine == after.machine
        self._rows.save_session(lane, lease.policy.agent, after, continues=continues)
        if before.handle != after.handle or lease.session is None or reply.began_anew is not None:
            self._note_session(lane, lease, reply)

    def _note_session(self, lane: Lane, lease: Lease, reply: Reply) -> None:
        dropped = 0 if lease.session is None else lease.session.usage.tokens
        why = reply.began_anew or ("first" if lease.session is None else "the agent began another")
        self._note("session.began", lane.key, lane.number, lease.policy.agent, why, dropped)

    def _spend(self, lane: Lane, lease: Lease, reply: Reply) -> None:
        if any(amounts(reply.usage)):
            channel, user = channel_of(lane.key), lane.runs_for_whom
            account = Account(day_of(self._now), channel, user, lease.policy.agent, reply.model or "")
            self._rows.spend(account, reply.usage)

    def _bound(self, lane: Lane, lease: Lease, session: Session) -> Session:
        """To the machine of whoever ran the turn."""
        worker = self._rows.worker(lease.worker)
        if not lane.rare.local:
            lane.rare = replace(lane.rare, local=True)
        return session if worker is None else replace(session, machine=worker.machine)

    def _set_aside_to_ask(self, lane: Lane, lease: Lease, outcome: Asks) -> Verdict:
        self._ask(lane, lease, outcome.number, outcome.question)
        self._note_attempt(lane, "asked")
        lane.await_answer(self._now)
        return "asked"

    def _supersede(self, lane: Lane, lease: Lease, outcome: Superseded) -> Verdict:
        self._record_superseded(lane, lease.policy.agent, outcome)
        if outcome.set_aside:
            self._complete(lane)
        else:
            lane.dissolve(lease.messages[0].accepted_at, self._now)
        return "superseded"

    def refuse_late(self, lease: Lease) -> int:
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is None or not lane.held_by(lease.worker, lease.epoch, lease.last):
            return 0
        return self._refuse_late(lane)

    # Of a delivery

    def _settle(self, lane: Lane, lease: Lease, receipt: str | None, taker: Taker | None) -> Verdict:
        self._rows.settle_delivery(lane, "sent", receipt=receipt)
        delivery = lease.delivery
        assert delivery is not None
        id_, turn, waited = delivery.id, delivery.turn, self._now - delivery.queued_at
        self.noted.append(("delivery.sent", lane.key, id_, lane.claim_seq, turn, lane.attempt, receipt, waited))
        self._go_on(lane, taker)
        return "sent"

    def _go_on(self, lane: Lane, taker: Taker | None) -> None:
        """The same lease may take the next delivery, so that a long answer leaves without a claim for each part."""
        if taker is not None and lane.next_seq > lane.claim_seq and self._may_go_on(lane, lane.policy):
            lane.advance()
            taker.lanes.append(lane)
        else:
            lane.complete(self._now, lane.policy.send_pause_ms)

    def _may_go_on(self, lane: Lane, policy: Policy) -> bool:
        """Not if the account is held, or rests; nor if it has a rate: another may be more urgent, so all queue."""
        pauses = self._limits.pauses
        if lane.paused or not lane.waiting or (pauses is not None and pauses.stop(OUT, policy.queue)):
            return False
        if policy.send_every_ms or policy.send_pause_ms:
            return False
        return self._rows.holds().get(policy.tenant, 0) <= self._now

    def _lose_touch(self, out: Lane, cause: str) -> None:
        """The turn lane remembers it: there it costs nothing to ask where something is said, or somebody writes."""
        lane = self._rows.lane(TURN, out.key)
        if lane is not None:
            lane.rare = replace(lane.rare, gone=cause)
            self._rows.save_lane(lane)
        self._note("conversation.gone", out.key, cause, self._fail_what_waits(out, cause))

    # Of either

    def _retry(self, lane: Lane, lease: Lease, outcome: RetryLater) -> Verdict:
        if self._used_up(lane, lease, outcome):
            return self._give_up(lane, outcome.cause, lease)
        self._note_attempt(lane, "retried", cause=outcome.cause, retry_at=outcome.at)
        lane.retry(outcome.at, self._now, counts=outcome.counts, in_doubt=outcome.in_doubt)
        if outcome.holds_account and lane.kind is OUT:
            self._hold(lane.policy.tenant, outcome.at)
        if outcome.notice is not None and lane.kind is TURN:
            self._tell_once(lane, outcome.notice)
        return "retried"

    # People

    def save_person(self, person: Person) -> Person:
        # Times grow with the commits, whatever the clock does: by them others find out who was changed.
        at = max(self._now, self._rows.newest_person() + 1)
        known = self._rows.person(person.channel, person.user)
        saved = replace(person, version=1 if known is None else known.version + 1, changed_at=at)
        self._rows.save_person(saved)
        return saved

    def _tell_once(self, lane: Lane, notice: str) -> None:
        if lane.rare.told < lane.claim_seq:
            lane.rare = replace(lane.rare, told=lane.claim_seq)
            self._say(lane.key, notice, lane.claim_seq, lane.policy)

    def _hold(self, account: str, until: int) -> None:
        if until > max(self._rows.holds().get(account, 0), self._now):
            self._rows.save_hold(account, until)
            self._note("account.held", None, account, until)

    def _used_up(self, lane: Lane, lease: Lease, outcome: RetryLater) -> bool:
        if lane.kind is TURN:
            return outcome.counts and lane.policy.failures_used_up(lane.failures + 1)
        return lease.delivery is not None and outcome.at - lease.delivery.queued_at > lane.policy.deliver_for_ms

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

    def give_back(self, lease: Lease) -> None:
        """The claim was called off before its answer arrived: as if it had never been made."""
        lane = self._rows.lane(lease.kind, lease.key)
        if lane is not None and lane.held_by(lease.worker, lease.epoch, lease.last):
            self._note_attempt(lane, "released", cause="the claim was called off")
            lane.call_off(self._now)
            self._rows.save_lane(lane)
        else:
            self._hear_the_end(lane, lease)

    def _park(self, lane: Lane, cause: str) -> Verdict:
        self._note_attempt(lane, "parked", cause=cause)
        lane.park(self._now)
        return "parked"

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
        may_show = out.rare.shows == lease.epoch and not out.paused
        if may_show and lane.policy.send_every_ms:
            self._serving.count_one(lane.policy)
        return may_show

    def _may_be_seen(self, lane: Lane) -> bool:
        """Not by somebody who is gone, nor where the platform asked for patience, or has taken its share by now."""
        return lane.rare.gone is None and self._rows.holds().get(lane.policy.tenant, 0) <= self._now

    def _may_claim(self, worker: str) -> bool:
        row = self._rows.worker(worker)
        return row is not None and row.live and row.alive_until > self._now

    # Housekeeping

    def forget(self, what: str, keys: Sequence[Sequence[object]]) -> None:
        self._rows.forget(what, keys)


def _outboxes_first(lane: Lane) -> bool:
    """The end of a turn may say something, which changes its outbox: first that is judged as its holder left it."""
    return lane.kind is not OUT
