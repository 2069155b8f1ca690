"""Looks through what was said in Slack, for what we once marked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from turnlane.channels.base import AskLater
from turnlane.channels.loose import Loose
from turnlane.channels.slack.api import Api, Said, cause
from turnlane.channels.slack.place import Place
from turnlane.channels.slack.sending import MAY_BE_DONE, NOT_TAKEN, TO_MEND

PAGE = 200
PAGES_MAX = 10
CLOCKS_APART_MS_MAX = 300_000
"""What Slack's clock and ours may differ by."""


class CannotTell(Exception):
    """Slack answers, but not this: no right to look, nothing there any more, or far too much."""


async def since(api: Api, place: Place, at: int) -> AsyncIterator[Mapping[str, Any]]:
    """Every message of the thread, or of the room outside threads, since then.

    Raises AskLater if Slack cannot be asked just now, and CannotTell.
    """
    oldest = f"{max(at - CLOCKS_APART_MS_MAX, 0) / 1000:.6f}"
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await _page(api, place, oldest=oldest, cursor=cursor, limit=PAGE)
        for message in page.each("messages"):
            yield message.raw
        cursor = page.inner("response_metadata").text("next_cursor")
        if not cursor:
            return
    raise CannotTell(f"there are more than {PAGES_MAX * PAGE} messages to look through")


async def message_at(api: Api, place: Place, ts: str) -> Mapping[str, Any] | None:
    """One message, in a thread or not. Raises as `since` does."""
    for where in (Place(place.team, place.room, ts), Place(place.team, place.room)):
        try:
            page = await _page(api, where, oldest=ts, latest=ts, inclusive="true", limit=10)
        except CannotTell:
            continue  # a message that has no thread is found in the room, and the other way round
        for message in page.each("messages"):
            if message.text("ts") == ts:
                return message.raw
    return None


async def _page(api: Api, place: Place, **arguments: str | int | None) -> Loose:
    method = "conversations.replies" if place.thread else "conversations.history"
    asked = await api.read(
        place.team, method, channel=place.room, ts=place.thread, include_all_metadata="true", **arguments
    )
    if isinstance(asked, Said) and asked.ok:
        return Loose(asked.data)
    if not isinstance(asked, Said) or _is_passing(asked):
        raise AskLater(cause(asked), retry_after=api.retry_after(asked))
    raise CannotTell(cause(asked))


def _is_passing(said: Said) -> bool:
    """Whether the same question may be answered later."""
    is_trouble = said.is_limit or said.status >= 500 or not said.data
    # Without the scope to look, nobody ever will; with any other trouble of the token nothing can be sent either.
    return is_trouble or said.error in (TO_MEND | NOT_TAKEN | MAY_BE_DONE) - {"missing_scope"}
