"""The oracle: what must be true of every conversation, kept by hand in plain lists.

It shares values with the product (messages, leases, outcomes) but none of its decisions. Where the product counts with
sequence numbers, the oracle moves messages from one list to the next. It is told each call together with the answer
that the store gave, says so if that answer cannot be right, and goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

from turnlane.backends.base import Acceptance, Arrival, Verdict
from turnlane.backends.steering import SKIPPED
from turnlane.backends.taking_over import TAKEN_OVER
from turnlane.model import notice
from turnlane.model.command import Command
from turnlane.model.delivery import (
    Delivery,
    DeliveryState,
    Reported,
    delivery_id,
    dropped_id,
    notice_id,
    operator_id,
    question_id,
)
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.notice import BUSY, FULL
from turnlane.model.policy import OnBusy, Policy
from turnlane.model.question import Answer, Question, QuestionView
from turnlane.model.schedule import Schedule
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
from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.view import AttemptView, DeliveryView, LaneView, TurnView


def _views(key: str, batch: Batch) -> list[QuestionView]:
    return [
        QuestionView(key, batch.number, number, asked.question, asked.at, asked.answer, asked.answered_at)
        for number, asked in enumerate(batch.questions, 1)
    ]


class Violation(AssertionError):
    """Something happened that never may, or did not happen that must."""


def require(holds: bool, promise: str, *details: object) -> None:
    if not holds:
        raise Violation(" | ".join([promise, *map(str, details)]))


def require_same(actual: object, expected: object, promise: str, *details: object) -> None:
    if actual != expected:
        raise Violation(" | ".join([promise, difference(actual, expected), *map(str, details)]))


def difference(actual: object, expected: object) -> str:
    """Only the fields that differ, where both are values of the same kind."""
    if type(actual) is not type(expected) or not is_dataclass(actual):
        return f"is {actual!r}, expected {expected!r}"
    names = [field.name for field in fields(actual)]
    pairs = [(name, getattr(actual, name), getattr(expected, name)) for name in names]
    return ", ".join(f"{name} is {is_!r}, expected {should!r}" for name, is_, should in pairs if is_ != should)


NEVER = 1 << 60

NOUNS = {Kind.TURN: "turn", Kind.OUT: "delivery", Kind.TICK: "tick"}
PERIODS_MS = {"* * * * *": 60_000, "@hourly": 3_600_000}
"""Of the expressions that the simulation knows."""


@dataclass(slots=True)
class Asked:
    question: Question
    at: int
    answer: Answer | None = None
    answered_at: int | None = None

    @property
    def expires_at(self) -> int | None:
        return self.question.expires_at


@dataclass(slots=True)
class Batch:
    """Messages (or one delivery) taken together, until they have their outcome."""

    number: int
    items: tuple[Message, ...] | tuple[Delivery] = field(repr=False)
    failures: int = 0
    lost: int = 0
    """With their worker; the first sending without an answer counts, too."""
    again_at: int = 0
    """Not to be run again before."""
    questions: list[Asked] = field(default_factory=list)

    @property
    def open_question(self) -> Asked | None:
        return self.questions[-1] if self.questions and self.questions[-1].answer is None else None

    @property
    def awaits_answer(self) -> bool:
        return self.open_question is not None and self.again_at == self._time_over

    @property
    def _time_over(self) -> int:
        """Of the open question."""
        asked = self.open_question
        return NEVER if asked is None or asked.expires_at is None else asked.expires_at

    def wait(self, now: int) -> None:
        """To be run again: at once, or with the answer to what it asks."""
        self.again_at = now if self.open_question is None else self._time_over


@dataclass(slots=True)
class Holder:
    worker: str
    epoch: int
    since: int
    agent: str
    """The one that runs: a message that arrives meanwhile may name another, for the next turn."""
    policy: Policy
    user: str
    """As they were when it was claimed."""
    renewed: bool = False
    """Told meanwhile that the next turn starts a new session."""
    steered: bool = False
    """What was said meanwhile may have been handed into the run, now or before the policy changed."""


@dataclass(slots=True, repr=False)
class Account:
    """What the oracle knows of one lane."""

    kind: Kind
    key: str
    policy: Policy
    waiting: list[Message | Delivery] = field(default_factory=list)
    """In no batch yet, in order of arrival."""
    quiet_at: int = 0
    """When what waits may open a batch: quiet long enough, waited long enough, or enough of it."""
    late: list[Message] = field(default_factory=list)
    """Of those that wait: what came while a turn was open, and is to be refused."""
    batch: Batch | None = None
    holder: Holder | None = None
    former: Holder | None = None
    arrived: int = 0
    opened: int = 0
    user: str = ""
    epoch: int = 0
    paused: bool = False
    paused_until: int | None = None
    parked: bool = False
    shown_under: int | None = None
    """Of an outbox: the epoch of the turn whose holder holds it too, to show what there is of the answer."""
    gone: bool = False
    """A turn lane: nothing can be sent to its conversation, until somebody writes there."""
    on_busy: OnBusy | None = None
    """Told by an operator, whatever the route says."""
    on_busy_of_route: OnBusy | None = None
    """What the route said last since then."""
    heard: list[Message] = field(default_factory=list)
    """Not to be answered, and not told to the agent yet."""
    left_from: int | None = None
    """The earliest time since the last claim at which somebody may have left it to the machine of its session."""
    put_off: int = 0
    """The last message that was put off with a word about it."""
    left_by: int | None = None
    """The latest time at which somebody must have done so, while it could start ever since."""

    def __repr__(self) -> str:
        waiting = [item.seq for item in self.waiting]
        return (
            f"{self.kind.name} lane of {self.key}: waiting {waiting} until {self.quiet_at}, {self.holder}, "
            f"{self.batch}, epoch {self.epoch}, paused {self.paused} until {self.paused_until}, parked {self.parked}, "
            f"{self.policy}"
        )

    @property
    def pending(self) -> int:
        return len(self.waiting) + (len(self.batch.items) if self.batch else 0)

    @property
    def attempts(self) -> int:
        """Runs of the open batch that were started and not taken back without blame."""
        if self.batch is None:
            return 0
        return self.batch.failures + self.batch.lost + (1 if self.holder else 0)

    @property
    def claimable(self) -> bool:
        """Now, or by itself at some time."""
        waits_for_ever = self.batch is not None and self.batch.again_at == NEVER
        paused_for_good = self.paused and self.paused_until is None
        return self.pending > 0 and not (self.holder or paused_for_good or self.parked or waits_for_ever)

    @property
    def startable_at(self) -> int:
        ready_at = self.batch.again_at if self.batch else self.quiet_at
        return max(ready_at, self.paused_until) if self.paused and self.paused_until is not None else ready_at

    def is_paused(self, now: int) -> bool:
        return self.paused and not (self.paused_until is not None and self.paused_until <= now)

    def pause(self, until: int | None) -> None:
        self.paused, self.paused_until = True, until

    def resume(self) -> None:
        self.paused, self.paused_until = False, None

    @property
    def told(self) -> tuple[Message, ...]:
        """Of what was heard: what belongs before the first message that still waits."""
        return tuple(message for message in self.heard if not self.waiting or message.seq < self.waiting[0].seq)

    @property
    def most(self) -> int:
        if self.kind is not Kind.TURN or self.policy.on_busy == "queue":
            return 1
        return self.policy.max_batch

    def follow(self, policy: Policy) -> None:
        self.policy = policy
        if self.holder is not None and policy.on_busy == "steer":
            self.holder.steered = True

    def gather(self, item: Message | Delivery, policy: Policy, now: int) -> None:
        self.follow(policy)
        self.arrived += 1
        self.waiting.append(item)
        self.show_no_more()
        self.user = item.sender if isinstance(item, Message) else ""
        if self.kind is Kind.OUT:
            self.quiet_at = max(now, self.quiet_at) if len(self.waiting) > 1 else now
        elif len(self.waiting) >= self.most:
            self.quiet_at = now
        else:
            first = self.waiting[0]
            assert isinstance(first, Message)
            self.quiet_at = min(now + policy.debounce_ms, first.accepted_at + policy.max_wait_ms)

    def show_no_more(self) -> None:
        if self.shown_under is not None:
            self.holder, self.former, self.shown_under = None, self.holder, None

    def heed(self, policy: Policy) -> Policy:
        """The policy of a message, but for what an operator has said about this conversation."""
        if self.on_busy is None:
            return policy
        self.on_busy_of_route = policy.on_busy
        return replace(policy, on_busy=self.on_busy)

    def judge_lateness(self, message: Message) -> None:
        if self.policy.on_busy != "reject":
            self.late = []
        elif self.batch is not None and message.role != "schedule":
            self.late.append(message)

    def wait_again(self, now: int) -> None:
        """The batch goes back to the head of those that wait, as if it had never been taken."""
        assert self.batch is not None
        newcomers = bool(self.waiting)
        self.late = []
        self.waiting = [*self.batch.items, *self.waiting]
        first = self.waiting[0]
        assert isinstance(first, Message)
        # Quiet since the last one that came; if nothing came, there is nothing to be quiet for.
        quiet_at = self.quiet_at if newcomers else now
        self.quiet_at = min(quiet_at, first.accepted_at + self.policy.max_wait_ms)
        if len(self.waiting) >= self.most:
            self.quiet_at = min(self.quiet_at, now)

    def open_batch(self) -> None:
        # A delivery is known by its place in the outbox, a turn by its number.
        self.opened = self.opened + 1 if self.kind is Kind.TURN else self.waiting[0].seq
        taken, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
        self.batch = Batch(self.opened, tuple(taken))  # type: ignore[arg-type]  # one lane holds one kind of items


@dataclass(slots=True)
class Bucket:
    """An account's leave to send: it fills with time, up to a burst, and each sending takes its share."""

    every_ms: int
    burst: int
    at: int
    level_ms: int

    def take(self, now: int) -> None:
        self.level_ms = min(self.burst * self.every_ms, self.level_ms + now - self.at) - self.every_ms
        self.at = now

    @property
    def free_at(self) -> int:
        return self.at + self.every_ms - self.level_ms


@dataclass(slots=True)
class Ending:
    """How a lease ended, to know what a repeated or late commit under it may be told."""

    verdict: Verdict
    by_commit: bool


@dataclass(slots=True)
class WorkerAccount:
    alive_until: int
    machine: str = ""
    dead: bool = False


class Oracle:
    """An account of everything that was told to, and answered by, one store."""

    def __init__(
        self, *, sessions_are_shared: bool = False, sessions_are_local: bool = False, limits: Limits = NO_LIMITS
    ) -> None:
        self.limits = limits
        self.sessions_are_local = sessions_are_local
        """Agents keep some sessions on their machines: who leaves which lane to whom is then judged by itself."""
        self.latest_now = 0
        self.sessions_are_shared = sessions_are_shared
        """Agents give several conversations one handle: who has to wait for whom is then the store's to choose."""
        self.accounts: dict[tuple[Kind, str], Account] = {}
        self.workers: dict[str, WorkerAccount] = {}
        self.origins: dict[tuple[str, str], int] = {}
        self.messages: dict[str, list[Message]] = {}
        self.turns: dict[str, list[TurnView]] = {}
        self.session_began: dict[tuple[str, str], int] = {}
        """With which turn, by conversation and agent."""
        self.spent: dict[tuple[int, str, str, str, str], tuple[int, Usage]] = {}
        """How many turns, and what they used, by day, channel, user, agent and model."""
        self.attempts: dict[str, list[AttemptView]] = {}
        self.deliveries: dict[str, list[DeliveryView]] = {}
        self.outcomes: dict[tuple[str, int], MessageOutcome] = {}
        """Of messages that are in no turn."""
        self.sessions: dict[tuple[str, str], Session] = {}
        self.endings: dict[tuple[Kind, str, int, int], Ending] = {}
        self.sessions_until: dict[str, int] = {}
        """The last turn whose session was given up by command."""
        self.holds: Counter[str] = Counter()
        """Accounts for which nothing is sent, and until when."""
        self.buckets: dict[str, Bucket] = {}
        """Of accounts that have a rate and have sent something."""
        self.passed_over: Counter[tuple[Kind, str, str]] = Counter()
        """How often a tenant that was just as urgent had to let another one go first, since it was last served."""
        self.resent: set[str] = set()
        """Deliveries that an operator has put at the end of their outbox."""
        self.questions: dict[str, list[QuestionView]] = {}
        self.schedules: dict[str, Schedule] = {}
        """By the key of their lane."""
        self.fired_at: dict[str, int] = {}
        self.events: Counter[str] = Counter()
        """How many facts of each name must have been written down."""

    # Workers

    def joined(self, worker: str, term_ms: int, now: int, machine: str) -> None:
        self.workers[worker] = WorkerAccount(now + term_ms, machine)
        self.events["worker.joined"] += 1

    def renewed(self, worker: str, term_ms: int, held: Sequence[Lease], now: int, *, answer: bool) -> None:
        account = self.workers[worker]
        require(answer is not account.dead, "I11 dead is final, and only the dead are told so", worker, answer)
        if account.dead:
            return
        account.alive_until = now + term_ms
        named = {(lease.kind, lease.key, lease.epoch) for lease in held}
        for lane, holder in self._held_by(worker):
            if lane.shown_under is not None:
                continue  # comes and goes with its turn
            if holder.since < now - term_ms and (lane.kind, lane.key, holder.epoch) not in named:
                if lane.batch is None:
                    self._heard_the_end(lane, holder.epoch)
                else:
                    self._given_back(lane, now, by_commit=False)

    def left(self, worker: str, now: int) -> None:
        account = self.workers[worker]
        if account.dead:
            return
        account.dead = True
        self.events["worker.left"] += 1
        for lane, holder in self._held_by(worker):
            if lane.batch is None:
                self._heard_the_end(lane, holder.epoch)
            else:
                self._stopped(lane, now, by_commit=False)

    def reaped(self, now: int, *, answer: int) -> None:
        for account in self.workers.values():
            if not account.dead and account.alive_until < now:
                account.dead = True
                self.events["worker.lost"] += 1
        orphans = [lane for lane in self._accounts() if lane.holder and self.workers[lane.holder.worker].dead]
        require_same(answer, len(orphans), "reap says how many lanes it took back")
        for lane in sorted(orphans, key=lambda lane: lane.kind is not Kind.OUT):
            if lane.batch is None and lane.holder is not None:
                self._heard_the_end(lane, lane.holder.epoch)
            else:
                self._lost(lane, now)

    def may_claim(self, worker: str, now: int) -> bool:
        account = self.workers[worker]
        return not account.dead and account.alive_until > now

    def _accounts(self) -> list[Account]:
        """Outboxes first: what a turn's end says comes after what was there before."""
        return sorted(self.accounts.values(), key=lambda lane: lane.kind is not Kind.OUT)

    def _held_by(self, worker: str) -> list[tuple[Account, Holder]]:
        return [(lane, lane.holder) for lane in self._accounts() if lane.holder and lane.holder.worker == worker]

    # Accept

    def accepted(self, arrivals: Sequence[Arrival], now: int, *, answer: Sequence[Acceptance]) -> None:
        expected = [self._accept(arrival, now) for arrival in arrivals]
        require_same(
            list(answer), expected, "I10 a message is accepted once, under the next number of its conversation"
        )

    def _accept(self, arrival: Arrival, now: int) -> Acceptance:
        message, key = arrival.message, arrival.message.conversation
        known = self.origins.get((message.channel, message.origin_id))
        if known is not None:
            self.events["message.duplicate"] += 1
            return Acceptance("duplicate", known)
        lane = self._account(Kind.TURN, key, arrival.policy)
        arrival = replace(arrival, policy=lane.heed(arrival.policy))
        if message.role != "schedule":
            lane.gone = False
        stored = replace(message, seq=lane.arrived + 1, accepted_at=now, answers=None)
        self.origins[message.channel, message.origin_id] = stored.seq
        self.messages.setdefault(key, []).append(stored)
        stops_something = arrival.command == "stop" and lane.pending > 0
        if arrival.command is not None and arrival.too_fast and not stops_something:
            lane.arrived += 1
            self._refused([stored], notice.TOO_FAST, arrival.policy, now)
            return Acceptance("rejected", stored.seq)
        if arrival.command is not None:
            self._obeyed(lane, stored, arrival.command, arrival.policy, now)
            return Acceptance("accepted", stored.seq)
        if message.role in {"business", "operator"}:
            self._heard(lane, stored, arrival.policy.takeover_ms, now)
            return Acceptance("accepted", stored.seq)
        if message.role == "person" and self._heard_as_answer(lane, stored, message.answers, arrival.too_fast, now):
            return Acceptance("accepted", stored.seq)
        is_full = arrival.policy.on_full == "reject" and lane.pending >= arrival.policy.max_pending
        if arrival.too_fast or is_full:
            lane.arrived += 1
            self._refused([stored], notice.TOO_FAST if arrival.too_fast else FULL, arrival.policy, now)
            return Acceptance("rejected", stored.seq)
        lane.gather(stored, arrival.policy, now)
        lane.judge_lateness(stored)
        self.events["message.accepted"] += 1
        self._overflowed(lane, arrival.policy, now)
        return Acceptance("accepted", stored.seq)

    # Questions

    def _heard_as_answer(self, lane: Account, message: Message, pressed: str | None, too_fast: bool, now: int) -> bool:
        """`pressed`: the question whose button it was."""
        self._noticed_the_time(lane, now)
        asked = lane.batch.open_question if lane.batch is not None else None
        if pressed is not None and lane.batch is not None and asked is not None:
            place = (lane.key, lane.batch.number, len(lane.batch.questions))
            asked = asked if pressed == question_id(*place) else None
        if pressed is None and (asked is None or not self._may_have_been_asked(lane)):
            return False
        if pressed is not None and asked is None and too_fast:
            return False
        lane.arrived += 1
        self.outcomes[lane.key, message.seq] = "answer"
        self.events["message.accepted"] += 1
        if asked is None:
            self._notice(lane.key, notice.CLOSED, message.seq, lane.policy, now)
        else:
            self._answer(lane, asked, self._meant(message.text, asked.question.options), message.sender, now)
        return True

    def _may_have_been_asked(self, lane: Account) -> bool:
        """Not while the question lies in the outbox and is in nobody's hands, nor was when somebody was lost."""
        assert lane.batch is not None
        asked = question_id(lane.key, lane.batch.number, len(lane.batch.questions))
        out = self.accounts[Kind.OUT, lane.key]
        if any(item.id == asked for item in out.waiting):
            return False
        is_next = out.batch is not None and out.batch.items[0].id == asked
        return not is_next or out.holder is not None or (out.batch is not None and out.batch.lost > 0)

    @staticmethod
    def _meant(text: str, options: Sequence[str]) -> str:
        """The simulation's people write an option, its number, or something else."""
        for number, option in enumerate(options, 1):
            if text in {option, option.upper(), str(number)}:
                return option
        return text

    def _noticed_the_time(self, lane: Account, now: int) -> None:
        asked = lane.batch.open_question if lane.batch is not None else None
        if asked is not None and asked.expires_at is not None and asked.expires_at <= now:
            self._answer(lane, asked, None, None, now)

    def _answer(self, lane: Account, asked: Asked, text: str | None, by: str | None, now: int) -> None:
        assert lane.batch is not None
        asked.answer, asked.answered_at = Answer(text, by), now
        self.events["question.answered"] += 1
        if lane.holder is None:
            lane.batch.again_at = now

    def answered_by_operator(self, key: str, text: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((Kind.TURN, key))
        asked = None
        if lane is not None:
            self._noticed_the_time(lane, now)
            asked = lane.batch.open_question if lane.batch is not None else None
        require_same(answer, asked is not None, "only an open question is answered")
        if lane is not None and asked is not None:
            self._answer(lane, asked, self._meant(text, asked.question.options), "operator", now)

    def asked(self, lease: Lease, number: int, question: Question, now: int, *, answer: Answer | None) -> None:
        lane = self.accounts[lease.kind, lease.key]
        if (lease.kind, lease.key, lease.epoch, lease.number) in self.endings:
            require_same(answer, None, "I3 who is fenced asks nothing", lease)
            return
        self._ask(lane, number, question, now)
        assert lane.batch is not None
        require_same(answer, lane.batch.questions[number - 1].answer, "a question is asked once, and keeps its answer")

    def _ask(self, lane: Account, number: int, question: Question, now: int) -> None:
        assert lane.batch is not None
        self._noticed_the_time(lane, now)
        if number <= len(lane.batch.questions):
            return
        require_same(number, len(lane.batch.questions) + 1, "the simulation asks one question after the other")
        lane.batch.questions.append(Asked(question, now))
        self.events["question.asked"] += 1
        out = self._account(Kind.OUT, lane.key, lane.policy)
        delivery = Delivery(
            id=question_id(lane.key, lane.batch.number, number),
            conversation=lane.key,
            text=question.text,
            kind="question",
            turn=lane.batch.number,
            in_reply_to=tuple(item.origin_id for item in lane.batch.items if isinstance(item, Message)),
            seq=out.arrived + 1,
            queued_at=now,
            options=question.options,
        )
        self._gather_delivery(out, delivery, lane.policy, now)

    def questions_of(self, key: str) -> list[QuestionView]:
        """Of all turns, as they stand."""
        lane = self.accounts.get((Kind.TURN, key))
        now_open = [] if lane is None or lane.batch is None else _views(lane.key, lane.batch)
        return [*self.questions.get(key, []), *now_open]

    def _obeyed(self, lane: Account, message: Message, command: Command, policy: Policy, now: int) -> None:
        said = self._done_as_told(lane, command, now)
        lane.arrived += 1
        self.outcomes[lane.key, message.seq] = "command"
        self.events["command.obeyed"] += 1
        self._notice(lane.key, said, message.seq, policy, now)

    def _done_as_told(self, lane: Account, command: Command, now: int) -> str:
        match command:
            case "stop":
                return notice.STOPPED if self._stop(lane, now) else notice.NOTHING_TO_STOP
            case "new":
                self._renewed(lane, now)
                return notice.NEW
            case "pause":
                lane.pause(None)
                self.events["lane.paused"] += 1
                return notice.PAUSED
            case "resume":
                lane.resume()
                self.events["lane.resumed"] += 1
                return notice.RESUMED
            case "status":
                return self._status(lane, now)
            case "usage":
                return notice.usage(self.sessions.get((lane.key, lane.policy.agent)))

    def _status(self, lane: Account, now: int) -> str:
        asked = lane.batch.open_question if lane.batch else None
        asks = asked is not None and (asked.expires_at is None or asked.expires_at > now)
        if lane.holder is not None or asks:
            since = now - lane.holder.since if lane.holder else 0
            doing: notice.Doing = "asking" if asks else "working" if lane.batch else "ending"
            return notice.status(doing, len(lane.waiting), since)
        halted: notice.Doing | None = "parked" if lane.parked else "paused" if lane.is_paused(now) else None
        if lane.batch is not None and halted is None:
            return notice.status("retrying", lane.pending, lane.batch.again_at - now)
        return notice.status(halted or "nothing", lane.pending)

    def stopped(self, key: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((Kind.TURN, key))
        require_same(answer, lane is not None and self._stop(lane, now), "what was said and not answered is stopped")

    def _stop(self, lane: Account, now: int) -> bool:
        if not lane.pending:
            return False
        self.events["lane.stopped"] += 1
        if lane.batch is not None:
            self._record(lane, "superseded", now, cause="stopped")
            self.events["turn.superseded"] += 1
            if lane.holder is not None:
                self._let_go(lane, "superseded", by_commit=False)
                lane.holder = lane.former  # until it has let go, nothing of this lane starts
            lane.batch = None
        self.outcomes.update({(lane.key, item.seq): "superseded" for item in lane.waiting})
        lane.waiting, lane.late = [], []
        return True

    # Others who answer

    def said(self, message: Message, now: int, *, takes_over: bool, answer: Acceptance | None) -> None:
        lane = self.accounts.get((Kind.TURN, message.conversation))
        known = self.origins.get((message.channel, message.origin_id))
        if lane is None:
            require_same(answer, None, "nobody answers where nobody spoke")
        elif known is not None:
            require_same(answer, Acceptance("duplicate", known), "an answer by hand is given once")
            self.events["message.duplicate"] += 1
        else:
            stored = replace(message, seq=lane.arrived + 1, accepted_at=now)
            require_same(answer, Acceptance("accepted", stored.seq), "an answer by hand is kept for the agent")
            self.origins[message.channel, message.origin_id] = stored.seq
            self.messages[lane.key].append(stored)
            out = self._account(Kind.OUT, lane.key, lane.policy)
            id_ = operator_id(lane.key, message.origin_id)
            delivery = Delivery(id_, lane.key, message.text, "operator", seq=out.arrived + 1, queued_at=now)
            self._gather_delivery(out, delivery, lane.policy, now)
            self._heard(lane, stored, lane.policy.takeover_ms if takes_over else 0, now)

    def _heard(self, lane: Account, message: Message, takeover_ms: int, now: int) -> None:
        if takeover_ms:
            self._taken_over(lane, now)
            self._paused_at_least(lane, now + takeover_ms, now)
        lane.arrived += 1
        lane.heard.append(message)
        self.outcomes[lane.key, message.seq] = "heard"
        self.events["message.heard"] += 1

    def _taken_over(self, lane: Account, now: int) -> None:
        """No turn goes on, and of all that waits only the last is still for the agent to answer."""
        if lane.batch is not None:
            self._record(lane, "superseded", now, cause=TAKEN_OVER.cause)
            self.events["turn.superseded"] += 1
            if lane.holder is not None:
                self._let_go(lane, "superseded", by_commit=False)
                lane.holder = lane.former  # as with a stop
            lane.wait_again(now)
            lane.batch = None
        while len(lane.waiting) > 1:
            message = lane.waiting.pop(0)
            assert isinstance(message, Message)
            lane.heard.append(message)
            self.outcomes[lane.key, message.seq] = "heard"
        lane.heard.sort(key=lambda message: message.seq)

    def _paused_at_least(self, lane: Account, until: int, now: int) -> None:
        if lane.is_paused(now) and lane.paused_until is None:
            return
        later = lane.paused_until if lane.is_paused(now) else None
        lane.pause(max(until, later or 0))
        self.events["lane.paused"] += 1

    def typed(self, key: str, now: int, *, answer: bool) -> None:
        """Whoever is typing is waited for, but not longer than max wait."""
        lane = self.accounts.get((Kind.TURN, key))
        quiet_at = 0
        if lane is not None and lane.claimable and not lane.is_paused(now) and lane.batch is None:
            first = lane.waiting[0]
            assert isinstance(first, Message)
            if lane.quiet_at > now and len(lane.waiting) < lane.most:
                quiet_at = min(now + lane.policy.debounce_ms, first.accepted_at + lane.policy.max_wait_ms)
        waits = lane is not None and quiet_at > lane.quiet_at
        require_same(answer, waits, "who is typing is waited for, within max wait", lane)
        if lane is not None and waits:
            lane.quiet_at = quiet_at
            self.events["lane.typing"] += 1

    def _refused(self, messages: Sequence[Message], why: str, policy: Policy, now: int) -> None:
        key, first = messages[0].conversation, messages[0].seq
        self.outcomes.update({(key, message.seq): "refused" for message in messages})
        self.events["message.refused"] += 1
        if self.outcomes.get((key, first - 1)) != "refused":
            self._notice(key, why, messages[-1].seq, policy, now)

    def _notice(self, key: str, text: str, about: int, policy: Policy, now: int) -> None:
        self._give_notice(notice_id(key, about), key, text, policy, now)

    def _give_notice(self, id_: str, key: str, text: str, policy: Policy, now: int) -> None:
        out = self._account(Kind.OUT, key, policy)
        self._gather_delivery(out, Delivery(id_, key, text, "notice", seq=out.arrived + 1, queued_at=now), policy, now)

    def _overflowed(self, lane: Account, policy: Policy, now: int) -> None:
        if lane.pending <= policy.max_pending:
            return
        self.events["lane.full"] += lane.pending == policy.max_pending + 1
        if policy.on_full == "drop_oldest":
            in_hand = lane.batch is not None and lane.holder is not None and lane.holder.steered
            oldest = lane.waiting.pop(-1 if in_hand else 0)
            lane.late = [message for message in lane.late if message is not oldest]
            self.outcomes[lane.key, oldest.seq] = "dropped"
            self.events["message.dropped"] += 1
            if self.outcomes.get((lane.key, oldest.seq - 1)) != "dropped":
                said = notice.FULL if oldest.seq == lane.arrived else notice.DROPPED
                self._give_notice(dropped_id(lane.key, oldest.seq), lane.key, said, policy, now)

    def _account(self, kind: Kind, key: str, policy: Policy) -> Account:
        return self.accounts.setdefault((kind, key), Account(kind, key, policy))

    # Claim

    def claimed(
        self, worker: str, kind: Kind, most: int, now: int, *, before: Sequence[LaneView], answer: Sequence[Lease]
    ) -> None:
        """`before` is what the store showed of these lanes before the claim."""
        for lease in answer:
            self._may_start(self.accounts[kind, lease.key], now)
            require(not self._is_paused(self.accounts[kind, lease.key]), "nothing is begun while it is paused", lease)
        allowed = most if self.may_claim(worker, now) else 0
        due = sorted(view.due_at or 0 for view in before if self.shown_as_ready(view, now))
        if self.sessions_are_shared and kind is Kind.TURN:
            require(len(answer) <= min(allowed, len(due)), "nobody gets more than is ready", answer)
        elif self.sessions_are_local and kind is Kind.TURN:
            self._left_to_their_machines(worker, before, answer, now, most=allowed)
        else:
            self._taken_in_turn(kind, before, answer, now, most=allowed)
        for lease in answer:
            self._session_is_free(lease)
            self._claimed(lease, worker, kind, now)

    def _taken_in_turn(
        self, kind: Kind, before: Sequence[LaneView], answer: Sequence[Lease], now: int, *, most: int
    ) -> None:
        """The most urgent first, then of whoever runs least; and nobody is passed over twice by the same tenant."""
        held = [
            (lane.holder.policy, lane.holder.user) for lane in self._accounts() if lane.kind is kind and lane.holder
        ]
        due = {view.conversation: view.due_at or 0 for view in before if self.shown_as_ready(view, now)}
        for lease in answer:
            running = Counter(policy.tenant for policy, _ in held)
            ranks = {key: self._rank(kind, key, running) for key in due if self._has_room(kind, key, held, now)}
            require(lease.key in ranks, "no limit is exceeded", lease, self.limits)
            require_same(
                ranks[lease.key], min(ranks.values()), "the most urgent first, then fair between tenants", lease
            )
            mine = self.accounts[kind, lease.key]
            line = [due[key] for key in ranks if self.accounts[kind, key].policy.queue == mine.policy.queue]
            require_same(due.pop(lease.key), min(line), "longest due first in its queue", lease)
            passed = {self.accounts[kind, key].policy.tenant for key in due if ranks.get(key) == ranks[lease.key]}
            self._served_before(kind, mine.policy.tenant, passed - {mine.policy.tenant})
            held.append((mine.policy, mine.user))
            self._spend(mine, now)
        left = [key for key in due if self._has_room(kind, key, held, now)]
        require(not left or len(answer) == most, "a live worker gets what is ready, a dead one nothing", left, answer)

    def _left_to_their_machines(
        self, worker: str, before: Sequence[LaneView], answer: Sequence[Lease], now: int, *, most: int
    ) -> None:
        """A lane waits for the machine of its session while somebody lives there, so long and no longer."""
        self.latest_now = max(self.latest_now, now)
        ready = [view.conversation for view in before if self.shown_as_ready(view, now)]
        taken = {lease.key for lease in answer}
        require(taken.issubset(ready) and len(taken) <= most, "nobody gets more than is ready", answer, ready)
        held = [
            (lane.holder.policy, lane.holder.user)
            for lane in self._accounts()
            if lane.kind is Kind.TURN and lane.holder
        ]
        held += [(self.accounts[Kind.TURN, key].policy, self.accounts[Kind.TURN, key].user) for key in taken]
        for key in ready if most else ():
            lane = self.accounts[Kind.TURN, key]
            is_elsewhere, wait_ms = self._lives_elsewhere(lane, worker, now), lane.policy.session_wait_ms
            saw_all = len(taken) < most and self._has_room(Kind.TURN, key, held, now)
            if key in taken:
                waited = lane.left_from is not None and lane.left_from + wait_ms <= now
                require(not is_elsewhere or waited, "a session stays on its machine while that lives", key, worker)
            elif saw_all:
                waited = lane.left_by is not None and lane.left_by + wait_ms <= now
                require(is_elsewhere and not waited, "no lane waits for a machine longer than it must", key, worker)
            if key not in taken and is_elsewhere:
                lane.left_from = now if lane.left_from is None else min(lane.left_from, now)
                if saw_all and lane.left_by is None:
                    lane.left_by = self.latest_now

    def _lives_elsewhere(self, lane: Account, worker: str, now: int) -> bool:
        session = self.sessions.get((lane.key, lane.policy.agent))
        if session is None or session.machine is None or not lane.policy.session_wait_ms:
            return False
        machines = {row.machine for name, row in self.workers.items() if self.may_claim(name, now)}
        return session.machine != self.workers[worker].machine and session.machine in machines

    def wait_anew(self, now: int) -> None:
        """Whoever cannot start now, or could not for a while, waits for a machine anew."""
        for lane in self.accounts.values():
            if lane.left_by is None or lane.left_from is None:
                continue
            # It may have been left at the earlier time, by a clock that went back.
            if not lane.claimable or lane.startable_at > min(now, lane.left_from, lane.left_by):
                lane.left_by = None

    def check_limits(self) -> None:
        """Counted from the leases, after every step."""
        turns = [(lane.key, lane.holder) for lane in self._accounts() if lane.kind is Kind.TURN and lane.holder]
        policies = [holder.policy for _, holder in turns]
        counts = (
            (len(turns), self.limits.all),
            (max(Counter(policy.tenant for policy in policies).values(), default=0), self.limits.per_channel),
            (max(Counter(policy.agent for policy in policies).values(), default=0), self.limits.per_agent),
            (
                max(Counter((holder.policy.tenant, holder.user) for _, holder in turns).values(), default=0),
                self.limits.per_user,
            ),
        )
        require(all(limit is None or count <= limit for count, limit in counts), "no limit is exceeded", counts, turns)

    def _spend(self, lane: Account, now: int) -> None:
        if lane.kind is Kind.OUT:
            self._count_one(lane.policy, now)

    def _count_one(self, policy: Policy, now: int) -> None:
        if policy.send_every_ms:
            full = Bucket(policy.send_every_ms, policy.send_burst, now, policy.send_burst * policy.send_every_ms)
            self.buckets.setdefault(policy.tenant, full).take(now)

    def _has_room(self, kind: Kind, key: str, held: Sequence[tuple[Policy, str]], now: int) -> bool:
        """Whether one more of this lane may run beside those that are held, within the limits or the account's rate."""
        lane, limits = self.accounts[kind, key], self.limits
        if self._is_paused(lane):
            return False
        if kind is not Kind.TURN:
            return self._held_until(lane) <= now
        channel = [(policy, user) for policy, user in held if policy.tenant == lane.policy.tenant]
        counts = (
            (len(held), limits.all),
            (len(channel), limits.per_channel),
            (sum(policy.agent == lane.policy.agent for policy, _ in held), limits.per_agent),
            (sum(user == lane.user for _, user in channel), limits.per_user),
        )
        return all(limit is None or count < limit for count, limit in counts)

    def _is_paused(self, lane: Account) -> bool:
        """By an operator, along with others: all there is, its channel, or, of a turn, its agent."""
        pauses = self.limits.pauses
        if pauses is None:
            return False
        agents = pauses.agents if lane.kind is Kind.TURN else frozenset()
        return pauses.all or lane.policy.tenant in pauses.channels or lane.policy.agent in agents

    def _rank(self, kind: Kind, key: str, running: Counter[str]) -> tuple[int, int]:
        policy = self.accounts[kind, key].policy
        return policy.priority, running[policy.tenant]

    def _served_before(self, kind: Kind, tenant: str, others: set[str]) -> None:
        for other in others:
            self.passed_over[kind, other, tenant] += 1
            times = self.passed_over[kind, other, tenant]
            require(times <= 1, "a tenant waits for one turn of another at most", other, tenant, times)
        for place in [place for place in self.passed_over if place[:2] == (kind, tenant)]:
            del self.passed_over[place]

    def _session_is_free(self, lease: Lease) -> None:
        if lease.session is None:
            return
        for (key, agent), session in self.sessions.items():
            lane = self.accounts[Kind.TURN, key]
            runs = lane.holder is not None and lane.policy.agent == agent == lease.policy.agent
            same = key != lease.key and session.handle == lease.session.handle
            require(not (runs and same), "two conversations never run one session at the same time", lease, lane)

    def _may_start(self, lane: Account, now: int) -> None:
        require(lane.holder is None, "I2 one lease at a time", lane)
        require(lane.claimable, "nothing is claimed of a lane that is empty, paused or parked", lane)
        require(self._held_until(lane) <= now, "nothing is sent for an account while it is held", now, lane)
        require(lane.startable_at <= now, "I7 no batch starts before its quiet window or its back-off ends", now, lane)

    def shown_as_ready(self, view: LaneView, now: int) -> bool:
        lane = self.accounts[view.kind, view.conversation]
        starts = max(view.due_at or 0, lane.startable_at, self._held_until(lane))
        return view.due_at is not None and lane.claimable and starts <= now

    def _held_until(self, lane: Account) -> int:
        return self._free_at(lane.policy.tenant) if lane.kind is Kind.OUT else 0

    def _free_at(self, tenant: str) -> int:
        bucket = self.buckets.get(tenant)
        return max(self.holds[tenant], bucket.free_at if bucket else 0)

    def _claimed(self, lease: Lease, worker: str, kind: Kind, now: int) -> None:
        lane = self.accounts[kind, lease.key]
        lane.epoch += 1
        self._noticed_the_time(lane, now)
        if lane.paused:
            lane.resume()
            self.events["lane.resumed"] += 1
        lane.holder = Holder(worker, lane.epoch, now, lane.policy.agent, lane.policy, lane.user)
        lane.follow(lane.policy)
        lane.left_from = lane.left_by = None
        if lane.batch is None:
            lane.open_batch()
        self._started(lane, lease)

    def went_on(self, lease: Lease | None, lane: Account) -> None:
        """The same lease took the next delivery of its out lane, without a claim."""
        lane.open_batch()
        self._started(lane, lease)

    def _started(self, lane: Account, lease: Lease | None) -> None:
        require_same(lease, self._lease(lane), "I2, I5, I6, I8: a lease holds the next or the same batch, counted")
        if lane.kind is not Kind.TICK:
            self.events[f"{NOUNS[lane.kind]}.started"] += 1
        if lease is not None and lease.moved_from is not None:
            self.events["session.moved"] += 1

    def _lease(self, lane: Account) -> Lease:
        assert lane.batch is not None and lane.holder is not None
        items = lane.batch.items
        delivery = items[0] if isinstance(items[0], Delivery) else None
        session = None if delivery else self.sessions.get((lane.key, lane.policy.agent))
        is_here = session is None or session.machine in (None, self.workers[lane.holder.worker].machine)
        return Lease(
            kind=lane.kind,
            key=lane.key,
            worker=lane.holder.worker,
            epoch=lane.holder.epoch,
            number=lane.batch.number,
            attempt=lane.attempts,
            failures=lane.batch.failures,
            first=items[0].seq,
            last=items[-1].seq,
            policy=lane.policy,
            claimed_at=lane.holder.since,
            messages=tuple(item for item in items if isinstance(item, Message) and lane.kind is Kind.TURN),
            delivery=delivery,
            session=session,
            answers=tuple(asked.answer for asked in lane.batch.questions if asked.answer is not None),
            heard=lane.told,
            moved_from=None if is_here or session is None else session.machine,
            user=lane.user,
        )

    # Commit

    def committed(
        self, lease: Lease, outcome: Outcome, now: int, *, answer: Verdict, take_next: bool = False
    ) -> Account | None:
        """Returns the lane if the same lease now has to go on with its next delivery."""
        lane = self.accounts[lease.kind, lease.key]
        ending = self.endings.get((lease.kind, lease.key, lease.epoch, lease.number))
        if ending is None:
            require(lane.holder is not None and lane.holder.epoch == lease.epoch, "the simulation lost a lease", lease)
            expected = self._end(lane, lease, outcome, now)
            require_same(answer, expected, "a commit under a valid lease does what it says", outcome)
            return self._goes_on(lane, now) if take_next and expected == "sent" else None
        self._heard_the_end(lane, lease.epoch)
        if answer == "fenced":
            self.events[f"{NOUNS[lease.kind]}.fenced"] += 1
        if ending.by_commit:
            require_same(answer, ending.verdict, "a repeated commit answers what it answered the first time")
        else:
            require(answer in {"fenced", ending.verdict}, "I3 a stale lease changes nothing", lease, outcome, answer)
        return None

    def _heard_the_end(self, lane: Account, epoch: int) -> None:
        """Of a batch that somebody else ended: its holder has stopped, and the next one may start."""
        if lane.batch is None and lane.holder is not None and lane.holder.epoch == epoch:
            lane.shown_under = None
            lane.holder, lane.former = None, lane.holder
            self.events["lane.freed"] += lane.kind is Kind.TURN

    def outbox_held(self, lease: Lease, now: int, *, answer: bool) -> None:
        """Who runs a turn may show what there is of the answer, as long as nothing else is to be said."""
        turn = self.accounts[Kind.TURN, lease.key]
        runs = turn.batch is not None and turn.holder is not None and turn.holder.epoch == lease.epoch
        free = self._free_at(turn.policy.tenant) <= now and not turn.gone
        may = runs and self.may_claim(lease.worker, now) and free
        if not may:
            require(not answer, "nobody stale shows anything, nor while the account is held", lease)
            return
        out = self._account(Kind.OUT, lease.key, turn.policy)
        if out.holder is None and not (out.pending or out.paused or out.parked):
            out.epoch += 1
            out.holder = Holder(lease.worker, out.epoch, now, out.policy.agent, out.policy, out.user)
            out.shown_under = lease.epoch
        may_show = out.shown_under == lease.epoch and not out.paused
        require_same(answer, may_show, "an answer is shown while nothing else is to be said", lease, out)
        if may_show:
            self._count_one(turn.policy, now)

    def end_what_is_shown(self) -> None:
        """After every step: whoever has let go of its turn shows nothing of it any more."""
        for out in self._accounts():
            if out.shown_under is not None:
                turn = self.accounts[Kind.TURN, out.key]
                if turn.holder is None or turn.holder.epoch != out.shown_under:
                    out.show_no_more()

    def _goes_on(self, lane: Account, now: int) -> Account | None:
        if not lane.waiting or lane.paused or self._is_paused(lane):
            return None
        if lane.policy.send_every_ms or lane.policy.send_pause_ms or self._held_until(lane) > now:
            return None
        assert lane.holder is None and lane.former is not None
        lane.holder = replace(lane.former, agent=lane.policy.agent)
        return lane

    def _end(self, lane: Account, lease: Lease, outcome: Outcome, now: int) -> Verdict:
        match outcome:
            case Replied(reply, through):
                lane.heard = [message for message in lane.heard if message not in lease.heard]
                return self._answered(lane, self._steered_into(lane, lease, through), reply, now)
            case Delivered(receipt):
                return self._settled(lane, "sent", now, by_commit=True, receipt=receipt)
            case Fired():
                return self._fired(lane, now)
            case RetryLater() if self._used_up(lane, outcome):
                return self._given_up(lane, now, by_commit=True, cause=outcome.cause)
            case RetryLater():
                return self._retried(lane, outcome, now)
            case GaveUp(cause, gone):
                verdict = self._given_up(lane, now, by_commit=True, cause=cause)
                if gone and lane.kind is Kind.OUT:
                    self._lost_touch(lane, now)
                return verdict
            case Released():
                return self._stopped(lane, now, by_commit=True)
            case Superseded(set_aside):
                return self._superseded(lane, now, set_aside=set_aside, cause=outcome.cause)
            case Asks(number, question):
                return self._asked_and_set_aside(lane, number, question, now)
            case Parked():
                return self._parked(lane, now)

    def _asked_and_set_aside(self, lane: Account, number: int, question: Question, now: int) -> Verdict:
        assert lane.batch is not None
        self._ask(lane, number, question, now)
        self._note_attempt(lane, "asked", now)
        lane.batch.wait(now)
        return self._let_go(lane, "asked", by_commit=True)

    def _steered_into(self, lane: Account, lease: Lease, through: int | None) -> tuple[Message, ...]:
        """What was handed into the run leaves those that wait, and is answered with the batch."""
        assert lane.batch is not None
        taken = [item for item in lane.waiting if isinstance(item, Message) and item.seq <= (through or 0)]
        lane.waiting = lane.waiting[len(taken) :]
        lane.late = [message for message in lane.late if message not in taken]
        together = (*lease.messages, *taken)
        lane.batch.items = together
        return together

    def _superseded(self, lane: Account, now: int, *, set_aside: bool, cause: str) -> Verdict:
        assert lane.batch is not None
        self._record(lane, "superseded", now, cause=cause)
        self.events["turn.superseded"] += 1
        if not set_aside:
            lane.wait_again(now)
        return self._done(lane, "superseded", now, by_commit=True)

    def _answered(self, lane: Account, messages: tuple[Message, ...], reply: Reply, now: int) -> Verdict:
        for part, text in enumerate(reply.parts, 1):
            self._queue(lane, messages, text, part, len(reply.parts), now)
        assert lane.holder is not None
        if reply.session is not None and not lane.holder.renewed:
            self._spent(lane, reply.session, reply, now)
        self._record(lane, "answered", now, reply=reply)
        self.events["turn.answered"] += 1
        return self._done(lane, "answered", now, by_commit=True)

    def _queue(self, lane: Account, messages: tuple[Message, ...], text: str, part: int, parts: int, now: int) -> None:
        out = self._account(Kind.OUT, lane.key, lane.policy)
        assert lane.batch is not None
        delivery = Delivery(
            id=delivery_id(lane.key, lane.batch.number, part),
            conversation=lane.key,
            text=text,
            turn=lane.batch.number,
            part=part,
            parts=parts,
            in_reply_to=tuple(message.origin_id for message in messages),
            seq=out.arrived + 1,
            queued_at=now,
        )
        self._gather_delivery(out, delivery, lane.policy, now)

    def _gather_delivery(self, out: Account, delivery: Delivery, policy: Policy, now: int) -> None:
        out.gather(delivery, policy, now)
        stored = asdict(delivery)
        del stored["resent"]  # a mark on one sending, never stored
        self.deliveries.setdefault(out.key, []).append(DeliveryView(**stored, state="queued"))
        if self.accounts[Kind.TURN, out.key].gone:
            self._fail_what_waits(out, now)

    def _lost_touch(self, out: Account, now: int) -> None:
        self.accounts[Kind.TURN, out.key].gone = True
        self.events["conversation.gone"] += 1
        self._fail_what_waits(out, now)

    def _fail_what_waits(self, out: Account, now: int) -> None:
        for item in out.waiting:
            self._amend_delivery(out.key, item.seq, state="failed", settled_at=now)
            self.events["delivery.failed"] += 1
        out.waiting = []

    def delivery_at(self, key: str, seq: int) -> DeliveryView | None:
        return next((view for view in self.deliveries.get(key, []) if view.seq == seq), None)

    def _amend_delivery(self, key: str, seq: int, **changes: Any) -> None:
        self.deliveries[key] = [replace(view, **changes) if view.seq == seq else view for view in self.deliveries[key]]
        view = self.delivery_at(key, seq)
        if view is not None and view.state in {"failed", "dropped"}:
            self._asked_nobody(key, view.id, changes.get("settled_at"))

    def _asked_nobody(self, key: str, id_: str, now: int | None) -> None:
        """A question that will not be said is answered by nobody."""
        lane = self.accounts[Kind.TURN, key]
        if lane.batch is None or lane.batch.open_question is None or now is None:
            return
        if id_ == question_id(key, lane.batch.number, len(lane.batch.questions)):
            self._answer(lane, lane.batch.open_question, None, None, now)

    def _spent(self, lane: Account, handle: str, reply: Reply, now: int) -> None:
        assert lane.holder is not None
        name = (lane.key, lane.holder.agent)
        before = self.sessions.get(name)
        if before is None or before.handle != handle or reply.began_anew is not None:
            before = Session(handle)
            self.events["session.began"] += 1
            self.session_began[name] = lane.opened
        machine = self.workers[lane.holder.worker].machine if reply.local else None
        self.sessions[name] = Session(handle, before.turns + 1, before.usage + reply.usage, now, machine)

    def _used_up(self, lane: Account, outcome: RetryLater) -> bool:
        assert lane.batch is not None
        head = lane.batch.items[0]
        if isinstance(head, Delivery):
            return outcome.at > head.queued_at + lane.policy.deliver_for_ms
        allowed = 1 if lane.policy.ack == "claim" else lane.policy.attempts
        return outcome.counts and lane.batch.failures + 1 >= allowed

    def _retried(self, lane: Account, outcome: RetryLater, now: int) -> Verdict:
        assert lane.batch is not None
        self._note_attempt(lane, "retried", now)
        if outcome.in_doubt and not lane.batch.lost:
            lane.batch.lost = 1
        else:
            lane.batch.failures += outcome.counts
        lane.batch.again_at = outcome.at
        if outcome.holds_account and outcome.at > max(self._held_until(lane), now):
            self._hold(lane.policy, outcome.at)
        last = lane.batch.items[-1].seq
        if outcome.notice is not None and lane.put_off < last:
            lane.put_off = last
            self._notice(lane.key, outcome.notice, last, lane.policy, now)
        return self._let_go(lane, "retried", by_commit=True)

    def _hold(self, policy: Policy, until: int) -> None:
        self.holds[policy.tenant] = until
        self.events["account.held"] += 1
        if policy.send_every_ms:
            # Whoever was told to slow down does not begin with a burst.
            self.buckets[policy.tenant] = Bucket(policy.send_every_ms, policy.send_burst, until, policy.send_every_ms)

    def _stopped(self, lane: Account, now: int, *, by_commit: bool) -> Verdict:
        """Given back in the middle: harmless, unless the policy says that nothing may run twice."""
        if lane.kind is Kind.TURN and lane.policy.ack == "claim":
            return self._given_up(lane, now, by_commit=by_commit)
        return self._given_back(lane, now, by_commit=by_commit)

    def _given_back(self, lane: Account, now: int, *, by_commit: bool) -> Verdict:
        assert lane.batch is not None
        self._note_attempt(lane, "released", now)
        if lane.kind is Kind.OUT and not lane.batch.lost:
            lane.batch.lost = 1
        lane.batch.wait(now)
        return self._let_go(lane, "released", by_commit=by_commit)

    def _lost(self, lane: Account, now: int) -> None:
        assert lane.batch is not None
        once = lane.kind is Kind.TURN and lane.policy.ack == "claim"
        waited = lane.batch.open_question is not None and not once  # for a person, which costs nothing
        spare = lane.kind is Kind.TICK or lane.batch.lost < (0 if once else lane.policy.takeovers)
        if not waited and not spare:
            self._given_up(lane, now, by_commit=False)
            return
        self._note_attempt(lane, "lost", now)
        lane.batch.lost += not waited
        lane.batch.wait(now)
        self._let_go(lane, "fenced", by_commit=False)

    def _parked(self, lane: Account, now: int) -> Verdict:
        self._note_attempt(lane, "parked", now)
        lane.parked = True
        return self._let_go(lane, "parked", by_commit=True)

    def _given_up(self, lane: Account, now: int, *, by_commit: bool, cause: str | None = None) -> Verdict:
        if lane.kind is Kind.OUT:
            return self._settled(lane, "failed", now, by_commit=by_commit)
        self._record(lane, "dead_letter", now, cause=cause)
        self.events["turn.dead_lettered"] += 1
        return self._done(lane, "dead_letter", now, by_commit=by_commit)

    def _settled(
        self, lane: Account, state: DeliveryState, now: int, *, by_commit: bool, receipt: str | None = None
    ) -> Verdict:
        assert lane.batch is not None
        settled = {"state": state, "settled_at": now, "attempt": lane.attempts, "receipt": receipt}
        self._amend_delivery(lane.key, lane.batch.items[0].seq, **settled)
        self.events[f"delivery.{state}"] += 1
        if state == "sent" and lane.policy.send_pause_ms:
            lane.quiet_at = now + lane.policy.send_pause_ms
        return self._done(lane, "sent" if state == "sent" else "failed", now, by_commit=by_commit)

    def _done(self, lane: Account, verdict: Verdict, now: int, *, by_commit: bool) -> Verdict:
        self._let_go(lane, verdict, by_commit=by_commit)
        lane.batch = None
        self._refuse_the_late(lane, now)
        return verdict

    def refused_late(self, lease: Lease, now: int, *, answer: int) -> None:
        """The holder looked for those who came while its turn runs."""
        lane = self.accounts[lease.kind, lease.key]
        holds = lane.holder is not None and lane.holder.epoch == lease.epoch
        require_same(answer, self._refuse_the_late(lane, now) if holds else 0, "the holder refuses who came late")

    def _refuse_the_late(self, lane: Account, now: int) -> int:
        late, lane.late = lane.late, []
        if late:
            lane.waiting = [item for item in lane.waiting if item not in late]
            self._refused(late, BUSY, lane.policy, now)
        return len(late)

    def _let_go(self, lane: Account, verdict: Verdict, *, by_commit: bool) -> Verdict:
        assert lane.batch is not None and lane.holder is not None
        self.endings[lane.kind, lane.key, lane.holder.epoch, lane.batch.number] = Ending(verdict, by_commit)
        if lane.holder.renewed and verdict in {"retried", "released", "fenced", "asked", "parked"}:
            # The turn runs again, and starts a session that is kept.
            self.sessions_until[lane.key] = lane.batch.number - 1
        lane.holder, lane.former = None, lane.holder
        return verdict

    def _record(
        self, lane: Account, outcome: TurnOutcome, now: int, *, reply: Reply | None = None, cause: str | None = None
    ) -> None:
        assert lane.batch is not None
        holder = lane.holder or Holder("", lane.epoch, now, lane.policy.agent, lane.policy, lane.user)
        turn = TurnView(
            conversation=lane.key,
            number=lane.batch.number,
            first=lane.batch.items[0].seq,
            last=lane.batch.items[-1].seq,
            outcome=outcome,
            attempt=lane.attempts,
            epoch=holder.epoch,
            worker=holder.worker or None,
            agent=lane.policy.agent if cause in {"stopped", SKIPPED, TAKEN_OVER.cause} else holder.agent,
            started_at=holder.since,
            ended_at=now,
            cause=cause,
            session=reply.session if reply else None,
            usage=reply.usage if reply else NO_USAGE,
        )
        self.turns.setdefault(lane.key, []).append(turn)
        self.questions.setdefault(lane.key, []).extend(_views(lane.key, lane.batch))
        lane.batch.questions = []
        if reply is not None and reply.usage != NO_USAGE:
            account = (now // 86_400_000, lane.key.partition("/")[0], holder.user, holder.agent, reply.model or "")
            turns, usage = self.spent.get(account, (0, NO_USAGE))
            self.spent[account] = (turns + 1, usage + reply.usage)

    def _note_attempt(self, lane: Account, result: str, now: int) -> None:
        assert lane.batch is not None and lane.holder is not None
        view = AttemptView(
            conversation=lane.key,
            kind=lane.kind,
            number=lane.batch.number,
            attempt=lane.attempts,
            epoch=lane.holder.epoch,
            worker=lane.holder.worker,
            result=result,
            at=now,
        )
        self.attempts.setdefault(lane.key, []).append(view)
        self.events["lane.parked" if result == "parked" else f"{NOUNS[lane.kind]}.{result}"] += 1

    # Schedules

    def scheduled(self, schedule: Schedule, policy: Policy, now: int, *, answer: bool) -> None:
        lane = self._account(Kind.TICK, schedule.key, policy)
        before, next_at = self.schedules.get(lane.key), self._next_time(schedule, now)
        armed = self._tick_of(lane)
        too_late = armed is not None and next_at is not None and (armed.sent_at or 0) > next_at
        changes = too_late or (before, lane.policy) != (schedule, policy)
        require_same(answer, changes, "a schedule is changed by another definition only", before, schedule)
        if not changes:
            return
        self.schedules[lane.key], lane.policy = schedule, policy
        self.events["schedule.set"] += 1
        if before is None or too_late or self._clockwork(before) != self._clockwork(schedule):
            self._arm(lane, next_at)

    @staticmethod
    def _clockwork(schedule: Schedule) -> tuple[object, ...]:
        return schedule.cron, schedule.every_ms, schedule.zone, schedule.enabled

    @staticmethod
    def _period(schedule: Schedule) -> int:
        return schedule.every_ms or PERIODS_MS[schedule.cron or ""]

    def _next_time(self, schedule: Schedule, now: int) -> int | None:
        period = self._period(schedule)
        return now - now % period + period if schedule.enabled else None

    @staticmethod
    def _tick_of(lane: Account) -> Message | None:
        """The one that is waited for, or held. Its `sent_at` is the due time."""
        items = [*(lane.batch.items if lane.batch else ()), *lane.waiting]
        return items[0] if items and isinstance(items[0], Message) else None

    def _arm(self, lane: Account, at: int | None) -> None:
        if lane.batch is not None and lane.holder is not None:
            self._let_go(lane, "fenced", by_commit=False)
            lane.holder = lane.former  # as with a stop
        lane.batch, lane.waiting = None, []
        if at is not None:
            lane.arrived += 1
            lane.waiting = [Message("", "", lane.key, "", "", sent_at=at, seq=lane.arrived)]
            lane.quiet_at = at

    def _scheduled(self, name: str) -> tuple[Account | None, Schedule | None]:
        key = f"schedule/{name}"
        return self.accounts.get((Kind.TICK, key)), self.schedules.get(key)

    def unscheduled(self, name: str, *, answer: bool) -> None:
        lane, schedule = self._scheduled(name)
        require_same(answer, schedule is not None, "only what is scheduled is removed", name)
        if lane is None or schedule is None:
            return
        del self.schedules[lane.key]
        self._arm(lane, None)
        lane.resume()
        lane.parked = False
        self.fired_at.pop(lane.key, None)
        self.events["schedule.removed"] += 1

    def schedule_resumed(self, name: str, now: int, *, answer: bool) -> None:
        lane, schedule = self._scheduled(name)
        if lane is not None and schedule is not None and lane.paused and lane.holder is None:
            self._arm(lane, self._next_time(schedule, now))
        self.resumed(Kind.TICK, f"schedule/{name}", answer=answer)

    def fired_by_hand(self, name: str, at: int, now: int, *, answer: Acceptance | None) -> None:
        lane, schedule = self._scheduled(name)
        expected = None if lane is None or schedule is None else self._say_for(lane, schedule, at, now)
        require_same(answer, expected, "a schedule is fired once for each time", name, at)

    def _fired(self, lane: Account, now: int) -> Verdict:
        """Every time that has come is said, or passed over as the schedule wants; and the one after is waited for."""
        schedule, tick = self.schedules[lane.key], self._tick_of(lane)
        assert tick is not None and tick.sent_at is not None
        period = self._period(schedule)
        came = list(range(tick.sent_at, max(now, tick.sent_at) + 1, period))
        most = {"once": 1, "skip": 1 if now - came[0] <= 60_000 else 0, "all": schedule.missed_max}
        said = came[: most[schedule.missed]]
        for at in said:
            self._say_for(lane, schedule, at, now)
        self.events["schedule.missed"] += said != came
        self._let_go(lane, "fired", by_commit=True)
        lane.batch = None
        self._arm(lane, came[-1] + period)
        return "fired"

    def _say_for(self, lane: Account, schedule: Schedule, at: int, now: int) -> Acceptance:
        second, ms = divmod(at, 1000)
        id_ = f"{lane.key}/{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"
        channel = schedule.conversation.partition("/")[0]
        said = (schedule.conversation, lane.key, schedule.prompt)
        message = Message(channel, id_, *said, sent_at=at, role="schedule")
        if (Kind.TURN, schedule.conversation) in self.accounts:
            self._refuse_the_late(self.accounts[Kind.TURN, schedule.conversation], now)
        acceptance = self._accept(Arrival(message, lane.policy), now)
        if acceptance.verdict != "duplicate":
            self.fired_at[lane.key] = now
            self.events["schedule.fired"] += 1
        return acceptance

    # Steering

    def session_renewed(self, key: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((Kind.TURN, key))
        known = lane is not None and (key, lane.policy.agent) in self.sessions
        if lane is not None and lane.batch is not None and lane.holder is not None:
            known = known or not lane.holder.renewed
        require_same(answer, known, "only a session that there is, or that the present turn leaves, can be forgotten")
        if lane is not None and known:
            self._renewed(lane, now)
            self.events["session.forgotten"] += 1

    def _renewed(self, lane: Account, now: int) -> None:
        self.sessions = {place: session for place, session in self.sessions.items() if place[0] != lane.key}
        self.sessions_until[lane.key] = lane.opened
        lane.heard = []
        if lane.holder is not None:
            lane.holder.renewed = True
        elif lane.batch is not None:
            self.sessions_until[lane.key] = lane.opened - 1
            if lane.put_off == lane.batch.items[-1].seq and lane.batch.open_question is None:
                lane.batch.again_at = now

    def hurried(self, kind: Kind, key: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((kind, key))
        batch = lane.batch if lane is not None and lane.holder is None else None
        waits = lane is not None and batch is not None and (lane.parked or not batch.awaits_answer)
        require_same(answer, waits, "only a batch that waits for its next attempt is hurried")
        if batch is not None and waits:
            batch.again_at = now
            self.events["lane.hurried"] += 1

    def skipped(self, kind: Kind, key: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((kind, key))
        require_same(answer, lane is not None and lane.batch is not None, "only an open batch is skipped")
        if lane is None or lane.batch is None:
            return
        if lane.holder is not None:
            self._given_up(lane, now, by_commit=False, cause=SKIPPED)
            lane.holder = lane.former  # as with a stop
            return
        if kind is Kind.OUT:
            settled = {"state": "failed", "settled_at": now, "attempt": lane.attempts}
            self._amend_delivery(key, lane.batch.items[0].seq, **settled)
            self.events["delivery.failed"] += 1
        else:
            self._record(lane, "dead_letter", now, cause=SKIPPED)
            self.events["turn.dead_lettered"] += 1
        lane.batch = None
        lane.left_by = None  # what comes next has not waited yet
        self._refuse_the_late(lane, now)

    def told(self, key: str, on_busy: OnBusy | None, *, answer: bool) -> None:
        lane = self.accounts.get((Kind.TURN, key))
        require_same(answer, lane is not None, "only a conversation that exists is told how to behave")
        if lane is None:
            return
        route = lane.on_busy_of_route or lane.policy.on_busy
        lane.on_busy, lane.on_busy_of_route = (on_busy, route) if on_busy else (None, None)
        lane.follow(replace(lane.policy, on_busy=on_busy or route))
        if lane.policy.on_busy != "reject":
            lane.late = []
        self.events["lane.told"] += 1

    # What failed

    @property
    def dead_letters(self) -> list[TurnView]:
        return [turn for turns in self.turns.values() for turn in turns if turn.outcome == "dead_letter"]

    def messages_of(self, turn: TurnView) -> list[Message]:
        inside = [message for message in self.messages[turn.conversation] if turn.first <= message.seq <= turn.last]
        return [message for message in inside if (turn.conversation, message.seq) not in self.outcomes]

    def requeued(self, key: str, number: int, now: int, *, answer: int) -> None:
        """Its messages leave their places and stand behind all that waits, to be run again."""
        turn = self._dead_letter(key, number)
        moved = [] if turn is None else self.messages_of(turn)
        require_same(answer, len(moved), "only a dead letter is run again, and all of its messages", key, number)
        if turn is None:
            return
        lane = self.accounts[Kind.TURN, key]
        self._refuse_the_late(lane, now)
        if not lane.waiting:
            lane.quiet_at = now
        for message in moved:
            lane.arrived += 1
            again = replace(message, seq=lane.arrived)
            lane.waiting.append(again)
            lane.user = message.sender
            self.messages[key].remove(message)
            self.messages[key].append(again)
            self.origins[message.channel, message.origin_id] = again.seq
        self._amend(turn, "retried")
        self.events["deadletter.retried"] += 1

    def dropped(self, key: str, number: int, *, answer: bool) -> None:
        turn = self._dead_letter(key, number)
        require_same(answer, turn is not None, "only a dead letter is dropped", key, number)
        if turn is not None:
            self._amend(turn, "dropped")
            self.events["deadletter.dropped"] += 1

    def _dead_letter(self, key: str, number: int) -> TurnView | None:
        named = (turn for turn in self.dead_letters if (turn.conversation, turn.number) == (key, number))
        return next(named, None)

    def _amend(self, turn: TurnView, outcome: TurnOutcome) -> None:
        turns = self.turns[turn.conversation]
        turns[turns.index(turn)] = replace(turn, outcome=outcome)

    def sent_again(self, key: str, place: int, now: int, *, answer: bool) -> None:
        lane, view = self.accounts.get((Kind.OUT, key)), self.delivery_at(key, place)
        given_up = view is not None and view.state in {"failed", "dropped"}
        held = lane is not None and lane.parked and self._is_next(lane, place)
        require_same(answer, given_up or held, "what was given up on is sent again, and what is held", view, lane)
        if lane is None or view is None or not answer:
            return
        if held:
            self.unparked(Kind.OUT, key, now, answer=True)
            return
        self.accounts[Kind.TURN, key].gone = False
        self.deliveries[key].remove(view)
        names = ("id", "conversation", "text", "kind", "turn", "part", "parts", "in_reply_to", "options")
        said = Delivery(**{name: getattr(view, name) for name in names}, seq=lane.arrived + 1, queued_at=now)
        self._gather_delivery(lane, said, lane.policy, now)
        self.resent.add(view.id)
        for kind, of, epoch, number in list(self.endings):
            if (kind, of, number) == (Kind.OUT, key, place):
                # How it ended then went with it: whoever asks late may be told so, or is a stranger.
                self.endings[kind, of, epoch, number].by_commit = False
        self.events["outbox.resent"] += 1

    def reported(self, key: str, place: int, state: Reported, receipt: str | None, now: int, *, answer: bool) -> None:
        lane, view = self.accounts.get((Kind.OUT, key)), self.delivery_at(key, place)
        is_tried = lane is not None and lane.batch is not None and lane.holder is None
        in_doubt = is_tried and lane is not None and lane.batch is not None and lane.batch.items[0].seq == place
        arrived = in_doubt and view is not None and view.state == "queued" and state != "failed"
        told_more = view is not None and view.state == "sent" and state != "sent"
        require_same(answer, arrived or told_more, "a platform tells more of what it has, or has it after all", view)
        if lane is None or not answer:
            return
        if arrived:
            self._arrived_after_all(lane, receipt, now)
        elif state == "failed":
            self._amend_delivery(key, place, state="failed", settled_at=now)
            self.events["delivery.failed"] += 1
            for (kind, of, _, number), ending in self.endings.items():
                if (kind, of, number) == (Kind.OUT, key, place) and ending.verdict == "sent":
                    # Whoever asks late hears what became of it.
                    ending.verdict, ending.by_commit = "failed", False
        else:
            self.events["delivery.reported"] += 1

    def _arrived_after_all(self, lane: Account, receipt: str | None, now: int) -> None:
        assert lane.batch is not None
        settled = {"state": "sent", "settled_at": now, "attempt": lane.attempts, "receipt": receipt}
        self._amend_delivery(lane.key, lane.batch.items[0].seq, **settled)
        self.events["delivery.sent"] += 1
        if lane.parked:
            self.unparked(Kind.OUT, lane.key, now, answer=True)
        lane.batch = None

    @staticmethod
    def _is_next(lane: Account, place: int) -> bool:
        head = lane.batch.items[0] if lane.batch else lane.waiting[0] if lane.waiting else None
        return head is not None and head.seq == place

    def delivery_dropped(self, key: str, place: int, now: int, *, answer: bool) -> None:
        view = self.delivery_at(key, place)
        open_ = view is not None and view.state in {"queued", "failed"}
        require_same(answer, open_, "what was not sent can be dropped, once", key, place)
        if not open_:
            return
        lane = self.accounts[Kind.OUT, key]
        if lane.batch is not None and lane.batch.items[0].seq == place:
            self._dropped_at_the_head(lane, now)
        lane.waiting = [item for item in lane.waiting if item.seq != place]
        self._amend_delivery(key, place, state="dropped", settled_at=now)
        self.events["outbox.dropped"] += 1

    def _dropped_at_the_head(self, lane: Account, now: int) -> None:
        assert lane.batch is not None
        self._amend_delivery(lane.key, lane.batch.items[0].seq, attempt=lane.attempts)
        if lane.parked:
            self.unparked(Kind.OUT, lane.key, now, answer=True)
        if lane.holder is not None:
            self._let_go(lane, "failed", by_commit=False)
            lane.holder = lane.former  # as with a stop
        lane.batch = None

    def paused(self, kind: Kind, key: str, until: int | None, *, answer: bool) -> None:
        self._steered("lane.paused", kind, key, answer)
        if answer:
            self.accounts[kind, key].pause(until)

    def resumed(self, kind: Kind, key: str, *, answer: bool) -> None:
        self._steered("lane.resumed", kind, key, answer)
        if answer:
            self.accounts[kind, key].resume()

    def _steered(self, event: str, kind: Kind, key: str, answer: bool) -> None:
        require_same(answer, (kind, key) in self.accounts, "only a lane that exists is paused or resumed")
        self.events[event] += answer

    def unparked(self, kind: Kind, key: str, now: int, *, answer: bool) -> None:
        lane = self.accounts.get((kind, key))
        require_same(answer, lane is not None and lane.parked, "only a parked lane is unparked")
        if lane is None or not lane.parked:
            return
        lane.parked = False
        self.events["lane.unparked"] += 1
        if lane.batch is not None:
            lane.batch.failures = lane.batch.lost = 0
            lane.batch.again_at = now
