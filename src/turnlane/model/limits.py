"""How many turns may run at the same time in the whole fleet, counted from the leases held; and what is paused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from turnlane.model.lane import TURN, Kind
from turnlane.model.policy import Queue, agent_of, tenant_of
from turnlane.model.value import value


@value
class Pauses:
    """What starts nothing new until it goes on. Messages are accepted meanwhile, and what runs goes on to its end."""

    all: bool = False
    channels: frozenset[str] = frozenset()
    """Neither turns nor sendings of theirs, and no schedule speaks there."""
    agents: frozenset[str] = frozenset()

    def setting(self, kind: Kind, channel: str, agent: str) -> str | None:
        """The name of the setting that holds such a lane up."""
        held = (
            ("paused", self.all),
            (f"channels.{channel}.paused", channel in self.channels),
            (f"agents.{agent}.paused", kind is TURN and agent in self.agents),
        )
        return next((name for name, is_set in held if is_set), None)

    def stop(self, kind: Kind, queue: Queue) -> bool:
        """Asked in every claim: the same, in short."""
        return self.all or tenant_of(queue) in self.channels or (kind is TURN and agent_of(queue) in self.agents)


@value
class Limits:
    """None: no limit. A channel is what the policy calls a tenant."""

    all: int | None = None
    per_channel: int | None = None
    per_agent: int | None = None
    per_user: int | None = None
    pauses: Pauses | None = None


NO_LIMITS = Limits()


@dataclass(slots=True)
class Running:
    """The turns (or sendings) that are held now."""

    all: int = 0
    tenants: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    users: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By tenant and name: the same name elsewhere is somebody else."""

    @classmethod
    def of(cls, held: Iterable[tuple[Queue, str]]) -> Running:
        running = cls()
        for queue, user in held:
            running.add(queue, user)
        return running

    def add(self, queue: Queue, user: str) -> None:
        tenant = tenant_of(queue)
        self.all += 1
        self.tenants[tenant] += 1
        self.agents[agent_of(queue)] += 1
        self.users[tenant, user] += 1

    def leave_room(self, queue: Queue, limits: Limits) -> bool:
        """Whether one more of this queue may start, whoever it is for."""
        return (
            _below(self.all, limits.all)
            and _below(self.tenants[tenant_of(queue)], limits.per_channel)
            and _below(self.agents[agent_of(queue)], limits.per_agent)
        )

    def leave_room_for(self, queue: Queue, user: str, limits: Limits) -> bool:
        return _below(self.users[tenant_of(queue), user], limits.per_user)


def _below(count: int, limit: int | None) -> bool:
    return limit is None or count < limit
