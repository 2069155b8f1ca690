"""What backends on an SQL database have in common beyond the verbs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from turnlane.backends.grouped import GroupedBackend
from turnlane.backends.sql.views import SqlViews
from turnlane.backends.transaction import Transaction
from turnlane.event_loop import happens

LOOK_SECONDS = 0.1
"""How often `changed` looks for the writes of other processes."""

FORGET_ROWS = 500
"""How many old rows go in one transaction, so that nobody waits long for it."""


class SqlBackend(GroupedBackend):
    async def forget(self, *, messages_before: int, events_before: int, origins_before: int) -> int:
        gone = 0
        for noun in ("message", "turn", "attempt"):
            gone += await self._forget(f"{noun}s", noun, messages_before, (-1, -1))
        gone += await self._forget("questions", "question", messages_before, (-1, -1))
        gone += await self._forget("deliveries", "delivery", messages_before, (-1, -1))
        gone += await self._forget("origins", "origin", origins_before, ("", ""))
        gone += await self._forget("events", "event", events_before, (-1, -1))
        gone += await self._forget("workers", "worker", events_before, ("", -1))
        return gone

    async def _forget(self, plural: str, noun: str, before: int, start: tuple[Any, Any]) -> int:
        """Look for old rows without a lock, then delete them by their keys, a few at a time."""
        gone, after = 0, start
        look = partial(SqlViews.page, name=f"old_{plural}", before=before, limit=FORGET_ROWS)
        while rows := await self._read(partial(look, after=after)):
            await self._call(Transaction.forget, (noun, rows))
            gone, after = gone + len(rows), (rows[-1][0], rows[-1][1])
        return gone

    async def changed(self, within: float) -> bool:
        # Taken before the first wait, so that nothing that happens from now on is missed.
        here = self._change
        before = await self._version()
        try:
            async with asyncio.timeout(within):
                while not await happens(here, within=LOOK_SECONDS) and await self._version() == before:
                    pass
        except TimeoutError:
            return False
        return True

    async def _version(self) -> int:
        return await self._read(lambda views: views.version())
