"""What an agent is: one call that answers a turn."""

from __future__ import annotations

from typing import Protocol

from turnlane.model.turn import Reply, Turn


class Agent(Protocol):
    """Answers turns. It may be called again for the same `turn.id` after a crash or a failure."""

    async def respond(self, turn: Turn) -> Reply:
        """Answer, or raise an AgentError; any other exception counts as AgentFailed.

        Cancelled when the lease is lost, the deadline passes or the worker stops: whatever the call started must be
        gone when it returns.
        """

    async def close(self) -> None:
        """Let connections go. May be called twice."""
