"""The agent that needs nothing: it says what was said."""

from __future__ import annotations

from turnlane.model.turn import Reply, Turn


class Echo:
    async def respond(self, turn: Turn) -> Reply:
        return Reply(f"You said: {turn.text}")

    async def close(self) -> None:
        """Nothing is held."""
