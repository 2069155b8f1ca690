"""What this process remembers of the store from its last transactions, so that a busy lane is not read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from turnlane.backends.rows import WorkerRow
from turnlane.backends.sql.codec import Policies, StoredLane
from turnlane.backends.sql.database import Connection
from turnlane.model.delivery import Delivery
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Queue, tenant_of

LANES_MAX = 10_000
MESSAGES_MAX = 10_000
MESSAGE_CHARACTERS_MAX = 4_000
"""A longer message is read again when its turn comes."""
UNKNOWN = 0
"""As the time before which nothing is due: anything may be due now."""
NEVER = 1 << 62

Place = tuple[Kind, str]
Queues = Callable[[Kind], Iterable[tuple[Queue, int]]]


class Believed:
    """Believed while a store can tell that nobody else has written since, or finds out in time.

    Messages and deliveries stay: once stored, one never changes.
    """

    is_alone = True
    """Nobody else wrote between the last two transactions of this process, as far as the store can tell."""

    def __init__(self, connection: Connection, sql: Mapping[str, str], idle_after_ms: int) -> None:
        self._connection = connection
        self._sql = sql
        self._idle_after_ms = idle_after_ms
        self._sweep_at = 0
        self.lanes: dict[Place, StoredLane] = {}
        self.messages: dict[tuple[int, int], Message] = {}
        """By lane and place: those that wait for their turn."""
        self.deliveries: dict[tuple[int, int], Delivery] = {}
        """Likewise."""
        self.workers: dict[str, WorkerRow | None] = {}
        self._holds: dict[str, int] | None = None
        self._nothing_due_before: dict[Kind, int] = {}
        self._only_queues: dict[Kind, Queue] = {}

    def check(self) -> None:
        """Called as a transaction begins. What another process may have changed is forgotten."""
        raise NotImplementedError

    def clear(self) -> None:
        """A transaction was undone: nothing that it told may be believed."""
        self.forget_what_changes()
        self.messages.clear()
        self.deliveries.clear()

    def forget_what_changes(self) -> None:
        self.lanes.clear()
        self.forget_all_but_lanes()

    def forget_all_but_lanes(self) -> None:
        self.workers.clear()
        self._holds = None
        self._nothing_due_before.clear()
        self._only_queues.clear()

    def keep(self, lanes: Collection[StoredLane], now: int) -> None:
        """Called after the commit, with the lanes that it touched."""
        known, keep_due = self.lanes, self.keep_due
        for lane in lanes:
            lane.used_at = now
            known[lane.kind, lane.key] = lane
            keep_due(lane)
        said = max(len(self.messages), len(self.deliveries))
        if now >= self._sweep_at or len(self.lanes) > LANES_MAX or said > MESSAGES_MAX:
            self.sweep(now)

    def sweep(self, now: int) -> None:
        """An idle conversation costs nothing: what was not used for a while goes."""
        if len(self.lanes) > LANES_MAX:
            self.lanes.clear()
        if len(self.messages) > MESSAGES_MAX:
            self.messages.clear()
        if len(self.deliveries) > MESSAGES_MAX:
            self.deliveries.clear()
        old = now - self._idle_after_ms
        self.messages = {place: message for place, message in self.messages.items() if message.accepted_at > old}
        self.deliveries = {place: delivery for place, delivery in self.deliveries.items() if delivery.queued_at > old}
        for place in [place for place, lane in self.lanes.items() if lane.used_at <= old]:
            del self.lanes[place]
        self._sweep_at = now + self._idle_after_ms // 4

    def holds(self) -> dict[str, int]:
        """Accounts that nobody may send for, and until when."""
        if self._holds is None:
            self._holds = dict(self._connection.execute(self._sql["holds"]).fetchall())
        return self._holds

    # When to look for due lanes

    def nothing_due_before(self, kind: Kind) -> int:
        """No lane of this kind is due in the file before this time."""
        return self._nothing_due_before.get(kind, UNKNOWN)

    def only_queue(self, kind: Kind, policies: Policies) -> Queue | None:
        """The one in which all lanes are due: the file had no other, and this process writes into no other.

        It is so wherever there is one channel and one agent, and saves two probes in every transaction.
        """
        queue = self._only_queues.get(kind)
        return queue if queue in policies.queues and len(policies.queues) == 1 else None

    def learn_queues(self, kind: Kind, queues: Collection[Queue]) -> None:
        if len(queues) == 1:
            [self._only_queues[kind]] = queues

    def keep_due(self, lane: StoredLane) -> None:
        """The lane is as this process left it."""
        if lane.due_at is not None and lane.due_at < self.nothing_due_before(lane.kind):
            self._nothing_due_before[lane.kind] = lane.due_at

    def learn_due(self, kind: Kind, at: int | None) -> None:
        self._nothing_due_before[kind] = NEVER if at is None else at

    def next_due(self, kinds: Iterable[Kind], now: int, queues: Queues) -> int | None:
        """When one of these kinds is due next. `queues`, which asks the store, is called only for what is not known."""
        kinds = list(kinds)
        for kind in kinds:
            if self.nothing_due_before(kind) <= now:
                held = self.holds() if kind is Kind.OUT else {}
                dues = [max(due_at, held.get(tenant_of(queue), 0)) for queue, due_at in queues(kind)]
                self.learn_due(kind, min(dues, default=None))
        return min((self.nothing_due_before(kind) for kind in kinds), default=None)
