"""Store first: what a channel read becomes messages of the store, each with the policy of its lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnlane.backends.base import Arrival, Backend
from turnlane.channels.base import Received
from turnlane.flow.trace import Tracer
from turnlane.model.command import NO_COMMANDS, Commands, command_in
from turnlane.model.message import Message
from turnlane.model.policy import Policy

PolicyFor = Callable[[str], Policy]
"""The policy for a channel's messages."""

ONE: Mapping[str, Received] = {
    "accepted": Received(accepted=1),
    "duplicate": Received(duplicates=1),
    "rejected": Received(rejected=1),
}


TooFast = Callable[[Message], bool]
"""Whether its sender says more than they may; counts the message, if not."""


async def receive(
    messages: Sequence[Message],
    *,
    backend: Backend,
    policy_for: PolicyFor,
    commands: Commands = NO_COMMANDS,
    too_fast: TooFast | None = None,
    tracer: Tracer | None = None,
) -> Received:
    """Store the messages. When this returns they are ours, and the platform may be told so."""
    if not messages:
        return Received()
    arrivals = [
        Arrival(
            message,
            policy_for(message.channel),
            command_in(message.text, commands),
            too_fast is not None and too_fast(message),
        )
        for message in messages
    ]
    accepting = backend.accept(arrivals)
    acceptances = await (accepting if tracer is None else tracer.storing(messages, accepting))
    if len(acceptances) == 1:
        return ONE[acceptances[0].verdict]
    verdicts = [acceptance.verdict for acceptance in acceptances]
    return Received(verdicts.count("accepted"), verdicts.count("duplicate"), verdicts.count("rejected"))
