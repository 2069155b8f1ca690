"""A durable conversation runtime for AI agents: one lane per conversation, one turn at a time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from turnlane.agents.command import Command
    from turnlane.agents.echo import Echo
    from turnlane.agents.http import Http
    from turnlane.app import Bot
    from turnlane.channels.terminal import Terminal
    from turnlane.channels.web import Web
    from turnlane.channels.webhook import Webhook
    from turnlane.errors import TurnlaneError
    from turnlane.model.message import Attachment, Message
    from turnlane.model.question import Answer
    from turnlane.model.turn import Reply, Turn
    from turnlane.model.usage import Usage

__all__ = [
    "Answer",
    "Attachment",
    "Bot",
    "Command",
    "Echo",
    "Http",
    "Message",
    "Reply",
    "Terminal",
    "Turn",
    "TurnlaneError",
    "Usage",
    "Web",
    "Webhook",
]

# Imported when first used: a hook command starts at every event of a person at a keyboard, and pays for no server.
_HOMES = {
    "Answer": "turnlane.model.question",
    "Attachment": "turnlane.model.message",
    "Bot": "turnlane.app",
    "Command": "turnlane.agents.command",
    "Echo": "turnlane.agents.echo",
    "Http": "turnlane.agents.http",
    "Message": "turnlane.model.message",
    "Reply": "turnlane.model.turn",
    "Terminal": "turnlane.channels.terminal",
    "Turn": "turnlane.model.turn",
    "TurnlaneError": "turnlane.errors",
    "Usage": "turnlane.model.usage",
    "Web": "turnlane.channels.web",
    "Webhook": "turnlane.channels.webhook",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnlane' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
