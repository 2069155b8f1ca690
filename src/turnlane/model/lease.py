"""The right to run one lane for a while, with what there is to run."""

from __future__ import annotations

from turnlane.model.delivery import Delivery
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.question import Answer
from turnlane.model.session import Session
from turnlane.model.value import value


@value
class Lease:
    """Held by one worker under one epoch; every write made by its right names both."""

    kind: Kind
    key: str
    """The conversation."""
    worker: str
    epoch: int
    number: int
    """Of the turn; on an out lane, of the delivery."""
    attempt: int
    failures: int
    first: int
    last: int
    """The batch: sequence numbers `first` to `last`."""
    policy: Policy
    claimed_at: int
    messages: tuple[Message, ...] = ()
    """The batch of a turn lane."""
    delivery: Delivery | None = None
    """The batch of an out lane: always one delivery."""
    session: Session | None = None
    answers: tuple[Answer, ...] = ()
    """To what earlier runs of this turn asked, in order."""
    heard: tuple[Message, ...] = ()
    """What others said in the agent's place, and has to be known to answer the batch."""
    moved_from: str | None = None
    """The machine that holds what the session's handle stands for, if it is another one than this worker's."""

    user: str = ""
    """Whom the turn is for."""

    @property
    def took_over(self) -> bool:
        """An earlier holder was lost in the middle of this very batch."""
        return self.attempt - self.failures > 1

    @property
    def in_doubt(self) -> bool:
        """An out lane: an earlier sending of this delivery may have arrived, and nobody knows. Its worker was lost or
        stopped in the middle of it, or no answer came."""
        return self.took_over
