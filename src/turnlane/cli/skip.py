"""`turnlane skip`: give up what a conversation is stuck in, so that the rest goes on."""

from __future__ import annotations

from turnlane.cli.steering import steers
from turnlane.flow import steer
from turnlane.flow.steer import Steered
from turnlane.model.lane import Kind


@steers(steer.skip, outbox="Give up the reply that is being sent or waits for its next attempt.")
def command(steered: Steered) -> str:
    """Give up the turn of CONVERSATION that runs or waits for its next attempt. It is kept as a dead letter."""
    is_reply = steered.lane.kind is Kind.OUT
    if not steered.done:
        return f"no {'reply' if is_reply else 'turn'} was begun that could be skipped"
    return f"skipped, and kept in `turnlane {'outbox --state failed' if is_reply else 'deadletters'}`"
