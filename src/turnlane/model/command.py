"""Chat commands: what a person can tell the lane itself, without the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Command = Literal["stop", "new", "status", "usage", "pause", "resume"]

Commands = Mapping[str, Command]
"""By the word that a person writes, in lower case."""

NO_COMMANDS: Commands = {}


def command_in(text: str, commands: Commands) -> Command | None:
    """A command stands alone: a message that only begins like one is for the agent."""
    return commands.get(text.strip().casefold()) if commands else None
