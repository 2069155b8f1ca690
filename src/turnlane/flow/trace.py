"""What follows a message on its way, if anybody wants to: told of each step, here and in every other process."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from turnlane.backends.base import Acceptance, Verdict
from turnlane.channels.base import Status
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.turn import Outcome
from turnlane.model.view import DeliveryView


class Tracer(Protocol):
    """Nothing here may fail for ordinary reasons, or wait: an answer never depends on who watches it."""

    def hearing(
        self, channel: str, messages: Sequence[Message], *, since: int, traceparent: str | None
    ) -> AbstractContextManager[None]:
        """While a web hook that brought these is taken in. `since`: when it came; `traceparent`: what its sender says
        of its own trace."""

    async def storing(
        self, messages: Sequence[Message], accepting: Awaitable[Sequence[Acceptance]]
    ) -> Sequence[Acceptance]:
        """Await it, and say what becomes of the messages."""

    def running(self, lease: Lease) -> AbstractContextManager[None]:
        """While a turn is run or a delivery sent, to the end of its commit."""

    def committed(self, lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        """How it ended. Never told of a run whose lease was lost before."""

    def reported(self, delivery: DeliveryView, status: Status) -> None:
        """What a platform tells of a delivery later."""

    def close(self) -> None:
        """Hand over what is left, before the process ends. Takes a few seconds at most, and the loop must be over."""
