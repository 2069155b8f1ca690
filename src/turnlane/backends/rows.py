"""All that a store has to offer so that the verbs can be decided over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnlane.model.delivery import Delivery, DeliveryState
from turnlane.model.lane import Kind, Lane
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.person import Person
from turnlane.model.policy import Policy, Queue
from turnlane.model.question import Answer, QuestionView
from turnlane.model.session import Session
from turnlane.model.usage import Account, Usage
from turnlane.model.view import AttemptView, DeliveryView, TurnView


@dataclass(slots=True)
class WorkerRow:
    id: str
    live: bool
    alive_until: int
    machine: str = ""


Batch = tuple[Sequence[Message], Delivery | None, Session | None]
"""What a claimed lane holds. Of a turn lane: the batch and the message after it if there is one; and the session."""


class Rows(Protocol):
    """The rows of one open transaction. Reads see the transaction's own writes."""

    def lane(self, kind: Kind, key: str) -> Lane | None: ...
    def add_lane(self, kind: Kind, key: str, policy: Policy) -> Lane: ...
    def save_lane(self, lane: Lane) -> None: ...
    def due_queues(self, kind: Kind, now: int) -> Sequence[Queue]:
        """Where a lane may be due now. More than that does no harm."""

    def due_lanes(self, kind: Kind, queue: Queue, now: int, limit: int) -> Iterator[Lane]:
        """Lanes of the queue with `due_at <= now`, longest due first."""

    def running(self, kind: Kind) -> Iterable[tuple[Queue, str]]:
        """Of each lane that is held now: its queue and its user."""

    def served(self, kind: Kind) -> Mapping[str, int]:
        """When each tenant was last served while others waited: the greater, the later."""

    def save_served(self, kind: Kind, tenant: str, number: int) -> None: ...
    def holds(self) -> Mapping[str, int]:
        """Accounts that nobody may send for, and until when. Times of the past say how long an account has been free.

        It stays true while the transaction goes on.
        """

    def save_hold(self, account: str, until: int) -> None: ...

    def lanes_of(self, worker: str) -> Sequence[Lane]: ...
    def lanes_of_the_dead(self) -> Sequence[Lane]:
        """Lanes whose owner is dead, or unknown to the store."""

    def origin(self, channel: str, origin_id: str) -> int | None:
        """The place of the message that came under this id, if any did."""

    def add_message(self, lane: Lane, message: Message) -> None:
        """Store it, and remember its channel and origin id."""

    def move_message(self, lane: Lane, message: Message, to: int) -> None:
        """Give it another place in its lane; its id is remembered for that one."""

    def messages_at(self, lane: Lane, places: Sequence[int]) -> Sequence[Message]:
        """Those of them that are still kept, which all are that have no outcome."""

    def settle_messages(self, lane: Lane, first: int, last: int, outcome: MessageOutcome) -> None:
        """Those of them that have no outcome of their own yet."""

    def message_outcome(self, lane: Lane, seq: int) -> MessageOutcome | None:
        """That of its own, if it has one."""

    def add_question(self, lane: Lane, question: QuestionView) -> None: ...
    def question(self, lane: Lane, number: int) -> QuestionView:
        """Of the lane's open turn."""

    def answer_question(self, lane: Lane, number: int, answer: Answer, at: int) -> None: ...
    def add_delivery(self, lane: Lane, delivery: Delivery) -> None: ...
    def settle_delivery(
        self, lane: Lane, state: DeliveryState, *, receipt: str | None = None, cause: str | None = None
    ) -> None:
        """Of the lane's open batch."""

    def settled_delivery(self, lane: Lane, seq: int) -> tuple[DeliveryState, int] | None:
        """State and epoch of a delivery that is settled."""

    def delivery(self, lane: Lane, seq: int) -> DeliveryView | None: ...
    def move_delivery(self, lane: Lane, seq: int, to: int) -> None:
        """Queue one that is settled anew, in another place."""

    def close_delivery(self, lane: Lane, seq: int, state: DeliveryState, cause: str | None) -> None:
        """Settle one that nobody sends."""

    def add_turn(self, lane: Lane, turn: TurnView) -> None: ...
    def turn(self, lane: Lane, number: int) -> TurnView | None: ...
    def amend_turn(self, lane: Lane, turn: TurnView) -> None:
        """Another outcome for a turn that is recorded."""

    def spend(self, account: Account, usage: Usage) -> None:
        """One more turn of this account."""

    def add_attempt(self, lane: Lane, attempt: AttemptView) -> None: ...
    def attempt(self, lane: Lane, epoch: int) -> AttemptView | None: ...
    def save_session(self, lane: Lane, agent: str, session: Session, *, continues: bool) -> None:
        """`continues`: under the handle that is stored for this lane and agent."""

    def session(self, lane: Lane, agent: str) -> Session | None: ...
    def drop_sessions(self, lane: Lane) -> None: ...
    def session_is_busy(self, lane: Lane) -> bool:
        """Whether another lane runs now under the session that this one would resume."""

    def batches(self, lanes: Sequence[Lane]) -> Sequence[Batch]: ...
    def worker(self, worker: str) -> WorkerRow | None: ...
    def save_worker(self, worker: WorkerRow) -> None: ...
    def lapsed_workers(self, now: int) -> Sequence[WorkerRow]: ...
    def setting(self, name: str) -> str | None: ...
    def save_setting(self, name: str, value: str | None) -> None:
        """None: it is not stored any longer."""

    def person(self, channel: str, user: str) -> Person | None: ...
    def newest_person(self) -> int:
        """When somebody was last stored; 0: nobody needs to know. No other does so until this transaction ends."""

    def save_person(self, person: Person) -> None: ...

    def machine_is_live(self, machine: str, now: int) -> bool:
        """Whether a worker of that machine is live, and its term not over."""

    def forget(self, what: str, keys: Sequence[Sequence[object]]) -> None:
        """Delete rows that nothing refers to any more."""
