"""Rows as tuples, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from turnlane.backends.sql.database import Connection, Row
from turnlane.model.delivery import Delivery, DeliveryState
from turnlane.model.event import Fact
from turnlane.model.lane import NOTHING_RARE, Kind, Lane, Rare
from turnlane.model.message import Attachment, Message, channel_of
from turnlane.model.person import Person
from turnlane.model.places import Places, beyond, count
from turnlane.model.policy import Policy, Queue
from turnlane.model.question import Answer, Question, QuestionView
from turnlane.model.session import Session
from turnlane.model.usage import Account, Spent, Usage
from turnlane.model.view import AttemptView, Busy, DeliveryView, TurnView

NOTHING = -1
"""Written as NULL by the statements that are run for every message. Nothing that is stored can be this number."""

NOTHING_ASIDE, NOTHING_RARE_HERE = "[[],", ",null]"
"""How the column `more` begins and ends where a lane has neither."""

POLICIES_KEPT_MAX = 1000
"""How many policy objects are known by their id."""

_encode = msgspec.json.Encoder().encode
_policy = msgspec.json.Decoder(Policy).decode
_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode
_strings = msgspec.json.Decoder(tuple[str, ...]).decode
_more = msgspec.json.Decoder(tuple[Places, int | None, bool, str, int | None, str, Rare | None]).decode
noted_from_text = msgspec.json.Decoder(list[list[Fact]]).decode


def to_text(value: object) -> str:
    return _encode(value).decode()


@dataclass(slots=True, eq=False)
class StoredLane(Lane):
    """A lane that knows its row."""

    id: int = 0
    sessions: dict[str, Session] | None = None
    """By agent, once read: nobody but the holder of the lane's lease writes them."""
    shared: frozenset[str] = frozenset()
    """Agents whose session here is another lane's too."""
    steady: Row = ()
    """What seldom changes, as it is in the file."""
    used_at: int = 0
    """When this process last touched it."""
    version: int | None = 0
    """Of its row, where a store can tell."""


class Policies:
    """The numbers of policies, as the file knows them. Policies are few: each is read, written and decoded once.

    A number never changes its meaning, so what was learned stays true whatever other processes do.
    """

    def __init__(self, connection: Connection, sql: Mapping[str, str]) -> None:
        self._execute = connection.execute
        self._sql = sql
        self._policies: dict[int, Policy] = {}
        self._numbers: dict[Policy, int] = {}
        self._same: dict[int, tuple[Policy, int]] = {}
        self.queues: set[Queue] = set()
        """Of all policies that this process has met."""
        self.rated = False
        """Whether one of them lets an account send only so often."""

    def policy(self, number: int) -> Policy:
        if number not in self._policies:
            self._learn()
        return self._policies[number]

    def number(self, policy: Policy) -> int:
        known = self._same.get(id(policy))
        if known is not None:
            return known[1]
        number = self._numbers.get(policy)
        if number is None:
            number = self._execute(self._sql["insert_policy"], (to_text(policy),)).fetchone()[0]
        self._remember(policy, number)
        return number

    def _remember(self, policy: Policy, number: int) -> None:
        if len(self._same) >= POLICIES_KEPT_MAX:
            self._same.clear()
        self._note(policy)
        # Hashing a policy is slow next to looking at its id; keeping the object keeps the id from being given away.
        self._same[id(policy)] = (policy, number)

    def _note(self, policy: Policy) -> None:
        self.queues.add(policy.queue)
        self.rated = self.rated or policy.send_every_ms > 0

    def forget_numbers(self) -> None:
        """A transaction was undone, and a number that it had given out with it."""
        self._numbers.clear()
        self._same.clear()
        self._policies.clear()

    def _learn(self) -> None:
        for number, text in self._execute(self._sql["policies"], (max(self._policies, default=0),)):
            policy = _policy(text)
            self._policies[number] = policy
            self._note(policy)
            self._numbers.setdefault(policy, number)


KINDS = tuple(Kind)


def lane_from(row: Row, policies: Policies) -> StoredLane:
    id_, kind, key, next_seq, done_seq, claim_seq, number, attempt, first_at, ready_at, due_at = row[:11]
    owner, epoch, claimed_at, policy_number, failures, retry_at, paused, parked, _, more = row[11:21]
    policy = policies.policy(policy_number)
    aside, late_seq, renewed, user, under, runs_for, rare = _more(more)
    lane = StoredLane(
        KINDS[kind],
        key,
        policy,
        next_seq,
        done_seq,
        claim_seq,
        number,
        attempt,
        failures,
        first_at,
        ready_at,
        retry_at,
        due_at,
        bool(paused),
        bool(parked),
        owner,
        epoch,
        claimed_at,
        aside,
        late_seq,
        user,
        None if under is None else policies.policy(under),
        runs_for,
        renewed,
        NOTHING_RARE if rare is None else rare,
        id_,
    )
    lane.steady = steady_part(lane)
    return lane


def moving_columns(lane: StoredLane) -> Row:
    """What nearly every transition changes, and at last the row's id."""
    return (
        lane.next_seq,
        lane.done_seq,
        lane.claim_seq,
        lane.number,
        lane.attempt,
        NOTHING if lane.first_at is None else lane.first_at,
        NOTHING if lane.ready_at is None else lane.ready_at,
        NOTHING if lane.due_at is None else lane.due_at,
        NOTHING if lane.owner is None else lane.owner,
        lane.epoch,
        NOTHING if lane.claimed_at is None else lane.claimed_at,
        lane.id,
    )


def steady_part(lane: StoredLane) -> Row:
    """What seldom changes: writing it each time would cost as much as the rest."""
    return (
        lane.policy,
        lane.failures,
        lane.retry_at,
        lane.paused,
        lane.parked,
        lane.aside,
        lane.late_seq,
        lane.renewed,
        lane.user,
        lane.runs_under,
        lane.runs_for,
        lane.rare,
    )


def steady_columns(lane: StoredLane, policies: Policies) -> Row:
    under = None if lane.runs_under is None else policies.number(lane.runs_under)
    rare = None if lane.rare is NOTHING_RARE or lane.rare == NOTHING_RARE else lane.rare
    more = (lane.aside, lane.late_seq, lane.renewed, lane.user, under, lane.runs_for, rare)
    steady = (policies.number(lane.policy), lane.failures, lane.retry_at, lane.paused, lane.parked)
    return (*steady, lane.policy.queue, to_text(more))


def runs_as(policy: int, more: str, policies: Policies) -> tuple[Queue, str]:
    """Of a lane that is held: the queue and the user that it was claimed for."""
    _, _, _, user, under, runs_for, _ = _more(more)
    return (policies.policy(policy).queue, user) if under is None else (policies.policy(under).queue, runs_for)


def busy_from(row: Row, policies: Policies, now: int) -> Busy:
    key, epoch, next_seq, claim_seq, done_seq, policy, paused, more = row
    waiting, has_asked, is_paused = next_seq - claim_seq, False, bool(paused)
    if not more.startswith(NOTHING_ASIDE) or not more.endswith(NOTHING_RARE_HERE):
        aside, *_, rare = _more(more)
        before = claim_seq if rare is None else max(claim_seq, rare.unsaid)
        waiting = next_seq - before - count(beyond(aside, before))
        if rare is not None:
            has_asked = rare.asked > 0
            is_paused = is_paused and (rare.paused_until is None or rare.paused_until > now)
    return Busy(key, epoch, waiting, policies.policy(policy).on_busy, claim_seq == done_seq, has_asked, is_paused)


ORDINARY = (0, None, False, False)
"""As `failures`, `retry_at`, `paused` and `parked` nearly always are where a lane is new."""


def is_ordinary(lane: StoredLane) -> bool:
    return (lane.failures, lane.retry_at, lane.paused, lane.parked) == ORDINARY


def ordinary_lane_row(lane: StoredLane, policies: Policies) -> Row:
    number, _, _, _, _, queue, more = steady_columns(lane, policies)
    return (lane.id, int(lane.kind), lane.key, *moving_columns(lane)[:-1], number, queue, more)


def new_lane_row(lane: StoredLane, policies: Policies) -> Row:
    return (lane.id, lane.kind, lane.key, *moving_columns(lane)[:-1], *steady_columns(lane, policies))


def message_row(lane: int, message: Message) -> Row:
    return (
        lane,
        message.seq,
        message.accepted_at,
        message.origin_id,
        message.sender,
        NOTHING if message.sent_at is None else message.sent_at,
        message.text,
        to_text(message.attachments) if message.attachments else NOTHING,
    )


def message_from(row: Row, conversation: str) -> Message:
    _, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role = row
    return Message(
        channel_of(conversation),
        origin_id,
        conversation,
        sender,
        text,
        _attachments(attachments) if attachments else (),
        sent_at,
        seq,
        accepted_at,
        role or "person",
    )


def delivery_row(lane: int, delivery: Delivery) -> Row:
    return (
        lane,
        delivery.seq,
        delivery.id,
        delivery.kind,
        delivery.turn,
        delivery.part,
        delivery.parts,
        delivery.text,
        to_text(delivery.in_reply_to),
        delivery.queued_at,
    )


def question_row(lane: int, asked: QuestionView) -> Row:
    question = asked.question
    options = to_text(question.options)
    return (lane, asked.turn, asked.number, question.text, options, asked.asked_at, question.expires_at)


def question_from(row: Row, conversation: str) -> QuestionView:
    _, turn, number, text, options, asked_at, expires_at, answer, by, answered_at = row
    question = Question(text, _strings(options), expires_at)
    answered = None if answered_at is None else Answer(answer, by)
    return QuestionView(conversation, turn, number, question, asked_at, answered, answered_at)


def settled_row(lane: StoredLane, state: DeliveryState, at: int, receipt: str | None, cause: str | None) -> Row:
    return (
        lane.id,
        lane.claim_seq,
        state,
        at,
        lane.attempt,
        lane.held_epoch,
        NOTHING if receipt is None else receipt,
        NOTHING if cause is None else cause,
    )


def delivery_from(row: Row, conversation: str) -> Delivery:
    _, seq, id_, kind, turn, part, parts, text, in_reply_to, queued_at = row[:10]
    said = Delivery(id_, conversation, text, kind, turn, part, parts, _strings(in_reply_to), seq, queued_at)
    return said if row[16] is None else replace(said, options=_strings(row[16]))


def delivery_view_from(row: Row) -> DeliveryView:
    (
        _,
        seq,
        id_,
        kind,
        turn,
        part,
        parts,
        text,
        in_reply_to,
        queued_at,
        state,
        settled_at,
        attempt,
        _,
        receipt,
        cause,
        options,
        key,
    ) = row
    return DeliveryView(
        id=id_,
        conversation=key,
        seq=seq,
        kind=kind,
        turn=turn,
        part=part,
        parts=parts,
        text=text,
        in_reply_to=_strings(in_reply_to),
        state=state,
        queued_at=queued_at,
        settled_at=settled_at,
        attempt=attempt,
        receipt=receipt,
        cause=cause,
        options=() if options is None else _strings(options),
    )


def turn_row(lane: int, turn: TurnView) -> Row:
    used = turn.usage
    return (
        lane,
        turn.number,
        turn.first,
        turn.last,
        turn.outcome,
        turn.attempt,
        turn.epoch,
        turn.worker,
        turn.agent,
        turn.started_at,
        turn.ended_at,
        NOTHING if turn.cause is None else turn.cause,
        NOTHING if turn.session is None else turn.session,
        used.input_tokens,
        used.output_tokens,
        used.cached_tokens,
        used.reasoning_tokens,
        used.cost,
    )


def turn_from(row: Row, conversation: str) -> TurnView:
    number, first, last, outcome, attempt, epoch, worker, agent, started_at, ended_at, cause, session = row[1:13]
    return TurnView(
        conversation=conversation,
        number=number,
        first=first,
        last=last,
        outcome=outcome,
        attempt=attempt,
        epoch=epoch,
        worker=worker,
        agent=agent,
        started_at=started_at,
        ended_at=ended_at,
        cause=cause,
        session=session,
        usage=Usage(*row[13:18]),
    )


def attempt_row(lane: int, attempt: AttemptView) -> Row:
    return (
        lane,
        attempt.epoch,
        attempt.number,
        attempt.attempt,
        attempt.worker,
        attempt.result,
        attempt.at,
        attempt.cause,
    )


def attempt_from(row: Row, kind: Kind, conversation: str) -> AttemptView:
    _, epoch, number, attempt, worker, result, at, cause = row
    return AttemptView(conversation, kind, number, attempt, epoch, worker, result, at, cause)


def new_session_row(lane: int, agent: str, session: Session, *, shared: bool) -> Row:
    return (
        lane,
        agent,
        session.handle,
        session.turns,
        *usage_columns(session.usage)[:4],
        session.updated_at,
        shared,
        session.machine,
        session.usage.cost,
    )


def lone_session_row(lane: int, agent: str, session: Session) -> Row:
    """Of one that no other lane has, on no machine alone."""
    used = session.usage
    tokens = (used.input_tokens, used.output_tokens, used.cached_tokens, used.reasoning_tokens)
    return (lane, agent, session.handle, session.turns, *tokens, session.updated_at, used.cost)


def continued_session_row(lane: int, agent: str, session: Session) -> Row:
    used = session.usage
    return (
        session.turns,
        used.input_tokens,
        used.output_tokens,
        used.cached_tokens,
        used.reasoning_tokens,
        used.cost,
        session.updated_at,
        lane,
        agent,
    )


def session_from(row: Row) -> Session:
    return Session(row[2], row[3], Usage(row[4], row[5], row[6], row[7], row[11]), row[8], row[10])


def usage_columns(usage: Usage) -> Row:
    return (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens, usage.cost)


def person_row(person: Person) -> Row:
    known = (person.name, person.user_name, to_text(person.labels), person.chat_id, person.enriched_at)
    return (person.channel, person.user, *known, person.version, person.changed_at)


def person_from(row: Row) -> Person:
    channel, user, name, user_name, labels, *rest = row
    return Person(channel, user, name, user_name, _strings(labels), *rest)


def spent_row(spent: Spent) -> Row:
    return (*spent.account, spent.turns, *usage_columns(spent.usage))


def spent_from(row: Row) -> Spent:
    return Spent(Account(*row[:5]), row[5], Usage(*row[6:11]))
