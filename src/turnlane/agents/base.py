"""What an agent is: one call that answers a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from turnlane.model.message import Message
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


SessionState = Literal["alive", "empty", "gone"]


@runtime_checkable
class RememberingAgent(Agent, Protocol):
    """An agent that can tell what has become of a session without running a turn."""

    async def examine(self, session: str) -> SessionState:
        """`empty`: it is there, and nothing was ever said in it. Raises AgentError if that cannot be told just now."""


@runtime_checkable
class SteerableAgent(Agent, Protocol):
    """An agent that can be told more while it works."""

    async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
        """Hand what was said meanwhile into the run of this turn. False: it cannot take it; it waits for the next."""
