"""A message in Slack that grows: by edits, or as one of Slack's own streams."""

from __future__ import annotations

import re

from turnlane.channels.markup import slack_mrkdwn
from turnlane.channels.slack.api import Api, Asked, Said
from turnlane.channels.slack.place import Place
from turnlane.channels.slack.sending import contents, marks
from turnlane.model.delivery import Delivery

OVER = "message_not_in_streaming_state"
"""Slack ends a stream by itself after some minutes."""

_MENTION = re.compile(r"<(?=@[UW]|#C|!(?:here|channel|everyone|subteam))")


class Edited:
    """Every change tells all of it, so it may be told again."""

    def __init__(self, api: Api, place: Place, ts: str) -> None:
        self.ts = ts
        self._api = api
        self._place = place

    async def grow(self, text: str) -> Asked:
        return await self._call("chat.update", text=slack_mrkdwn(text))

    async def complete(self, delivery: Delivery) -> Asked:
        """Make it the answer."""
        return await self._call("chat.update", **contents(delivery))

    async def take_away(self) -> None:
        await self._call("chat.delete")

    async def _call(self, method: str, **arguments: object) -> Asked:
        return await self._api.write(self._place.team, method, channel=self._place.room, ts=self.ts, **arguments)


class Streamed(Edited):
    """A stream is told what is new. What does not simply grow, and what Slack has ended, goes on as an edit."""

    def __init__(self, api: Api, place: Place, ts: str, text: str) -> None:
        super().__init__(api, place, ts)
        self._told: str | None = text
        """None: an addition was lost, or not; the whole must be told."""
        self._is_open = True

    async def grow(self, text: str) -> Asked:
        more = self._more(text)
        if more is None:
            await self._stop()
            return await super().grow(text)
        asked = await self._call("chat.appendStream", markdown_text=more)
        if self._is_over(asked):
            return await super().grow(text)
        self._told = text if isinstance(asked, Said) and asked.ok else None
        return asked

    async def complete(self, delivery: Delivery) -> Asked:
        more = self._more(delivery.text)
        if more is None:
            await self._stop()
            return await super().complete(delivery)
        asked = await self._call("chat.stopStream", markdown_text=more or None, metadata=marks(delivery))
        return await super().complete(delivery) if self._is_over(asked) else asked

    async def take_away(self) -> None:
        await self._stop()
        await super().take_away()

    def _more(self, text: str) -> str | None:
        """What it has to be given yet. None: it does not simply grow."""
        if not self._is_open or self._told is None:
            return None
        told, wanted = unmentioning(self._told), unmentioning(text)
        return wanted[len(told) :] if wanted.startswith(told) else None

    async def _stop(self) -> None:
        if self._is_open:
            asked = await self._call("chat.stopStream")
            self._is_open = not (self._is_over(asked) or (isinstance(asked, Said) and asked.ok))

    def _is_over(self, asked: Asked) -> bool:
        if isinstance(asked, Said) and asked.error == OVER:
            self._is_open = False
            return True
        return False


def unmentioning(text: str) -> str:
    """Streams take Markdown as it is, and in it Slack's own marks: no text of an agent rings anybody's bell."""
    return _MENTION.sub("<\u200b", text)
