"""Cut answers into what one message of the platform holds, before they are committed: each piece leaves by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from turnlane.channels.base import Channel, SplittingChannel
from turnlane.model.turn import Reply


class Splitter:
    """Asks the channel. One that takes whatever it is given is not asked."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = {name: each for name, each in channels.items() if isinstance(each, SplittingChannel)}

    def split(self, reply: Reply, channel: str) -> Reply:
        splitting = self._channels.get(channel)
        if splitting is None or reply.text is None:
            return reply
        parts = [piece for part in reply.parts for piece in splitting.parts(part)]
        return reply if len(parts) == len(reply.parts) else replace(reply, text=parts)

    def fits(self, text: str, channel: str) -> bool:
        """Whether it is one message there."""
        splitting = self._channels.get(channel)
        return splitting is None or len(splitting.parts(text)) == 1
