"""The channel that is a Slack app: threads, direct messages, buttons, and answers that are seen as they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlane.channels.slack.options import Options
from turnlane.clock import Clock
from turnlane.errors import InvalidSettings

if TYPE_CHECKING:
    from turnlane.channels.slack.channel import Slack


def slack(name: str, options: Options, *, clock: Clock | None = None) -> Slack:
    try:
        from turnlane.channels.slack.channel import Slack
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"a channel of kind slack needs the package {error.name}; pip install 'turnlane[slack]'"
        ) from error
    return Slack(name, options, clock=clock)
