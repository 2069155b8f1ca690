"""One conversation as it stands: its lanes, and the rows that belong to them.

It is stored as a log, one subject of the stream. Each record says what one transaction added, and how the lanes stand
afterwards; so the last record is enough to go on with an idle conversation, those since `open_from` with any, and all
of them tell its story.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from turnlane.backends.nats.codec import (
    ATTEMPT,
    DELIVERY,
    MESSAGE,
    QUESTION,
    SESSION,
    TURN_OVER,
    Policies,
    copied,
    lane_from,
    lane_to,
)
from turnlane.model.delivery import UNSETTLED, Delivery, Settled
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.question import Answer, QuestionView
from turnlane.model.session import Session
from turnlane.model.view import AttemptView, DeliveryView, LaneView, Story, TurnView, held_until

Record = dict[str, Any]

ROWS_KEPT_MAX = 200
"""Of a conversation that goes on and on, so many are kept at hand before what is over is let go."""


@dataclass(slots=True, eq=False)
class Conversation:
    key: str
    seq: int = 0
    """Of its last record in the stream; 0 as long as there is none."""
    whole: bool = True
    """All of its rows are here. Otherwise those that are open, and perhaps others."""
    lanes: dict[Kind, Lane] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    """Agents whose session here may be another conversation's too."""
    dead: dict[int, int] = field(default_factory=dict)
    """Dead letters: the number of each turn, and the sequence of the record from which on it can be read."""
    failed: dict[int, int] = field(default_factory=dict)
    """Deliveries that failed: their places, and as above."""
    messages: dict[int, Message] = field(default_factory=dict)
    outgoing: dict[int, Delivery] = field(default_factory=dict)
    settled: dict[int, Settled] = field(default_factory=dict)
    turns: dict[int, TurnView] = field(default_factory=dict)
    attempts: dict[tuple[Kind, int], AttemptView] = field(default_factory=dict)
    outcomes: dict[int, MessageOutcome] = field(default_factory=dict)
    questions: dict[tuple[int, int], QuestionView] = field(default_factory=dict)
    stored: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of messages ("m"), deliveries ("d") and questions ("q", by turn): the sequence of their record."""
    batch: str = ""
    """The name of the transaction that wrote the last record."""
    used_at: int = 0
    born: int = 0
    """The sequence of its first record: who was heard of first is served first, where lanes are due at one moment."""

    def fork(self) -> Conversation:
        """To be changed by a transaction, which may come to nothing."""
        # Written out: the library's copy takes three times as long, and every call needs one.
        return Conversation(
            self.key,
            self.seq,
            self.whole,
            {kind: copied(lane) for kind, lane in self.lanes.items()},
            self.sessions.copy(),
            self.shared,
            self.dead.copy(),
            self.failed.copy(),
            self.messages.copy(),
            self.outgoing.copy(),
            self.settled.copy(),
            self.turns.copy(),
            self.attempts.copy(),
            self.outcomes.copy(),
            self.questions.copy(),
            self.stored.copy(),
            self.batch,
            self.used_at,
            self.born,
        )

    @property
    def rows(self) -> int:
        return len(self.messages) + len(self.outgoing) + len(self.turns) + len(self.attempts) + len(self.outcomes)

    # Where what is open begins

    def open_from(self) -> int:
        """The first record that is needed to go on. 0: the next one, or none."""
        return min(self._open_records(), default=0)

    def _open_records(self) -> Iterator[int]:
        stored, turn, out = self.stored, self.lanes.get(TURN), self.lanes.get(OUT)
        if turn is not None:
            if turn.pending and (seq := self._first_message(turn)):
                yield seq
            if turn.rare.heard and (seq := stored.get(("m", turn.rare.heard[0][0]))):
                yield seq
            if turn.rare.asked and (seq := stored.get(("q", turn.number))):
                yield seq
        if out is not None and out.pending and (seq := stored.get(("d", out.next_place))):
            yield seq
        if self.dead or self.failed:
            yield from (seq for seq in (*self.dead.values(), *self.failed.values()) if seq)

    def _first_message(self, lane: Lane) -> int | None:
        place = lane.batch_places[0] if lane.has_open_batch else next(lane.waiting_places)
        return self.stored.get(("m", place))

    # The log

    def state(self, policies: Policies) -> Record:
        """How it stands, for the end of a record."""
        record: Record = {"l": [lane_to(lane, policies) for lane in self.lanes.values()]}
        if self.sessions:
            record["s"] = {agent: SESSION.pack(session) for agent, session in self.sessions.items()}
        if self.shared:
            record["h"] = sorted(self.shared)
        if self.dead:
            record["d"] = list(self.dead.items())
        if self.failed:
            record["x"] = list(self.failed.items())
        if open_from := self.open_from():
            record["f"] = open_from
        if self.born:
            record["c"] = self.born
        return record

    def apply(self, record: Record, seq: int, policies: Policies) -> None:
        """The next record of the log."""
        if "r" in record:
            self._add_rows(record["r"], seq, record["at"])
        if "l" in record:
            lanes = [lane_from(each, self.key, policies) for each in record["l"]]
            self.lanes = {lane.kind: lane for lane in lanes}
            self.sessions = {agent: SESSION.unpack(each) for agent, each in record.get("s", {}).items()}
            self.shared = frozenset(record.get("h", ()))
            self.dead = {number: of or seq for number, of in record.get("d", ())}
            self.failed = {place: of or seq for place, of in record.get("x", ())}
            self.batch = record.get("b", "")
            self.born = record.get("c", seq)
        self.seq = seq

    def _add_rows(self, rows: Mapping[str, Any], seq: int, at: int) -> None:
        key = self.key
        for packed in rows.get("m", ()):
            message = MESSAGE.unpack(packed, conversation=key)
            self.messages[message.seq] = message
            self.stored["m", message.seq] = seq
        for packed in rows.get("d", ()):
            delivery = DELIVERY.unpack(packed, conversation=key)
            self.outgoing[delivery.seq] = delivery
            self.stored["d", delivery.seq] = seq
        for place, *settled in rows.get("z", ()):
            self.settled[place] = tuple(settled)
        for packed in rows.get("t", ()):
            turn = TURN_OVER.unpack(packed, conversation=key)
            self.turns[turn.number] = turn
        for packed in rows.get("a", ()):
            attempt = ATTEMPT.unpack(packed, conversation=key)
            self.attempts[attempt.kind, attempt.epoch] = attempt
        for first, last, outcome in rows.get("o", ()):
            for place in range(first, last + 1):
                self.outcomes.setdefault(place, outcome)
        for packed in rows.get("q", ()):
            asked = QUESTION.unpack(packed, conversation=key)
            self.questions[asked.turn, asked.number] = asked
            self.stored.setdefault(("q", asked.turn), seq)
        for gone in rows.get("-m", ()):
            self.messages.pop(gone, None)
        for gone in rows.get("-d", ()):
            self.outgoing.pop(gone, None)
            self.settled.pop(gone, None)

    def written_as(self, seq: int, added: list[tuple[str, int]]) -> None:
        """Its changes are stored now, in the record of this sequence."""
        self.seq = seq
        self.born = self.born or seq
        for place in added:
            if place[0] == "q":
                self.stored.setdefault(place, seq)
            else:
                self.stored[place] = seq
        for where in (self.dead, self.failed):
            for each, of in where.items():
                if not of:
                    where[each] = seq

    def let_go(self) -> None:
        """Of what is over, and can be read again."""
        self.whole = False
        turn, out = self.lanes.get(TURN), self.lanes.get(OUT)
        done, sent = turn.done_seq if turn else 0, out.done_seq if out else 0
        heard = {place for first, last in (turn.rare.heard if turn else ()) for place in range(first, last + 1)}
        kept = {seq: message for seq, message in self.messages.items() if seq > done or seq in heard}
        self.messages = kept
        self.outgoing = {seq: delivery for seq, delivery in self.outgoing.items() if seq > sent}
        self.settled = {seq: settled for seq, settled in self.settled.items() if seq > sent}
        self.turns, self.attempts = {}, {}
        self.outcomes = {seq: outcome for seq, outcome in self.outcomes.items() if seq > done}
        asked = turn.number if turn else 0
        self.questions = {place: question for place, question in self.questions.items() if place[0] >= asked}
        self.stored = {
            place: seq
            for place, seq in self.stored.items()
            if (place[0] == "m" and place[1] in self.messages)
            or (place[0] == "d" and place[1] in self.outgoing)
            or (place[0] == "q" and place[1] >= asked)
        }

    # What is seen

    def delivery_view(self, delivery: Delivery) -> DeliveryView:
        return DeliveryView.of(delivery, self.settled.get(delivery.seq, UNSETTLED))

    def deliveries(self) -> list[DeliveryView]:
        return [self.delivery_view(delivery) for _, delivery in sorted(self.outgoing.items())]

    def messages_of(self, turn: TurnView) -> tuple[Message, ...]:
        places = range(turn.first, turn.last + 1)
        return tuple(self.messages[seq] for seq in places if seq not in self.outcomes and seq in self.messages)

    def story(self, limit: int, now: int, holds: Mapping[str, int]) -> Story:
        lanes = [self.lanes[kind] for kind in (TURN, OUT, TICK) if kind in self.lanes]
        return Story(
            conversation=self.key,
            lanes=tuple(LaneView.of(lane, now) for lane in lanes),
            messages=tuple(message for _, message in sorted(self.messages.items()))[-limit:],
            turns=tuple(turn for _, turn in sorted(self.turns.items()))[-limit:],
            attempts=tuple(sorted(self.attempts.values(), key=attrgetter("order"))[-limit:]),
            deliveries=tuple(self.deliveries()[-limit:]),
            sessions=dict(self.sessions),
            outcomes=dict(sorted(self.outcomes.items())[-limit:]),
            questions=tuple(question for _, question in sorted(self.questions.items()))[-limit:],
            held_until=held_until(lanes, holds, now),
        )

    def answered(self, place: tuple[int, int], answer: Answer, at: int) -> QuestionView:
        asked = self.questions[place] = replace(self.questions[place], answer=answer, answered_at=at)
        return asked
