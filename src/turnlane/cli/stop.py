"""`turnlane stop`: set aside all that was said in a conversation and not answered."""

from __future__ import annotations

from turnlane.cli.steering import steers
from turnlane.flow import steer
from turnlane.flow.steer import Steered


@steers(steer.stop)
def command(steered: Steered) -> str:
    """Set aside all that was said in CONVERSATION and not answered, also a turn that runs. What is said next is new."""
    return "stopped, what was not answered is set aside" if steered.done else "there was nothing to stop"
