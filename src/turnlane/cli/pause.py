"""`turnlane pause`: start nothing more in a conversation, and keep what is said meanwhile."""

from __future__ import annotations

from turnlane.cli.steering import steers
from turnlane.flow import steer
from turnlane.flow.steer import Steered
from turnlane.model.lane import Kind


@steers(
    steer.pause,
    outbox="Hold what is sent instead: turns go on, replies wait.",
    lasts="Resume by itself after this time, such as 30m or 2h.",
)
def command(steered: Steered) -> str:
    """Start no more turns in CONVERSATION until it is resumed. What is said meanwhile is kept."""
    return "nothing more is sent" if steered.lane.kind is Kind.OUT else "no more turns start"
