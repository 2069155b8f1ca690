"""How a lane behaves: when it is ready, what a batch holds, how often and how soon it is tried again."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from turnlane.model.value import value

OnBusy = Literal["collect", "queue", "interrupt", "steer", "rollback", "reject"]
"""What a message does that arrives while a turn runs: docs/explanation/busy.md draws each."""

OnFull = Literal["store", "reject", "drop_oldest"]
"""What happens to a message that finds more than `max_pending` waiting."""

Ack = Literal["commit", "claim"]

OnUnknown = Literal["resend", "hold"]
OnAsk = Literal["set_aside", "hold"]
"""What becomes of a delivery that may have arrived, where the platform cannot tell whether it has."""


Priority = Literal[0, 1, 2]
"""The lower, the sooner: as long as something more urgent is ready, nothing else starts."""
URGENT: Priority = 0
NORMAL: Priority = 1
LATER: Priority = 2

Queue = str
"""Lanes that wait in one line: of one priority, one tenant and one agent. Sorted, the more urgent come first."""


def priority_of(queue: Queue) -> int:
    return int(queue[0])


def tenant_of(queue: Queue) -> str:
    return queue[2:].rpartition("\n")[0]


def agent_of(queue: Queue) -> str:
    return queue.rpartition("\n")[2]


@value
class Backoff:
    """Waiting times that grow: first, first x factor, ... at most `most`."""

    first_ms: int = 1_000
    factor: float = 2.0
    most_ms: int = 300_000

    def delay_ms(self, failures: int) -> int:
        """How long to wait after that many failures in a row (at least one)."""
        # The exponent is bounded so that a thousandth failure does not overflow a float.
        grown = self.first_ms * self.factor ** min(failures - 1, 64)
        return int(min(self.most_ms, grown))


@value
class Policy:
    """Stamped on the lane by every accept, so that any worker can decide without the settings of another."""

    agent: str = "echo"
    tenant: str = ""
    """Who shares the workers with others, and is served in turn with them: a channel."""
    priority: Priority = NORMAL
    on_busy: OnBusy = "collect"
    debounce_ms: int = 3_000
    max_wait_ms: int = 15_000
    max_batch: int = 50
    max_pending: int = 100
    """Past it the operator is told, and `on_full` says what becomes of the messages."""
    on_full: OnFull = "store"
    turn_deadline_ms: int = 600_000
    attempts: int = 3
    takeovers: int = 10
    ack: Ack = "commit"
    backoff: Backoff = field(default_factory=Backoff)
    deliver_for_ms: int = 86_400_000
    on_unknown: OnUnknown = "resend"
    send_every_ms: int = 0
    """The rate of the account, which all workers share: one sending in this time. 0: as fast as they can."""
    send_burst: int = 1
    """How many may leave at once after a while in which nothing did."""
    send_pause_ms: int = 0
    """Between two sendings of one conversation."""
    on_ask: OnAsk = "set_aside"
    """Whether a turn that waits for an answer keeps its slot."""
    session_wait_ms: int = 30_000
    """How long others leave a lane to the machine that holds its session, while a worker lives there."""
    takeover_ms: int = 3_600_000
    """How long the agent is silent once somebody of the business spoke. 0: it goes on."""

    @property
    def queue(self) -> Queue:
        return f"{self.priority}\n{self.tenant}\n{self.agent}"

    @property
    def batch_max(self) -> int:
        return 1 if self.on_busy == "queue" else self.max_batch

    def ready_at(self, first: int, latest: int, waiting: int) -> int:
        """When a gathering lane is ready: quiet for the debounce, or max wait since the first, or a full batch."""
        if waiting >= self.batch_max:
            return latest
        return min(latest + self.debounce_ms, first + self.max_wait_ms)

    def sends_again_at(self, free_at: int, now: int) -> int:
        """When the account is free again if it sends now; `free_at`: when it became free.

        Not sending saves up, but no more than a burst. (Known elsewhere as the generic cell rate algorithm.)
        """
        return max(free_at, now - (self.send_burst - 1) * self.send_every_ms) + self.send_every_ms

    def failures_used_up(self, failures: int) -> bool:
        return failures >= (1 if self.ack == "claim" else self.attempts)
