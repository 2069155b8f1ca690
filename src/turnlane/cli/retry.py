"""`turnlane retry`: let what waits for its next attempt start now."""

from __future__ import annotations

from turnlane.cli.steering import steers
from turnlane.flow import steer
from turnlane.flow.steer import Steered


@steers(steer.retry, outbox="Send the reply now that waits for its next attempt.")
def command(steered: Steered) -> str:
    """Start the turn of CONVERSATION now that waits for its next attempt."""
    return "the wait before the next attempt is over" if steered.done else "nothing waits for a retry"
