"""`turnlane resume`: let a conversation go on that was paused or parked."""

from __future__ import annotations

from turnlane.cli.steering import steers
from turnlane.flow import steer
from turnlane.flow.steer import Steered


@steers(steer.resume, outbox="Let what is sent go on, instead of turns.")
def command(steered: Steered) -> str:
    """Let CONVERSATION go on, whether it was paused or parked. What failed before starts with its attempts anew."""
    return "resumed"
