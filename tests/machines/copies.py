"""What tests of copies have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from turnlane.backends.base import Arrival, Backend, open_backend
from turnlane.backends.copying import JOURNAL, Compared, Copyable, Sum, Watcher, copy, summed
from turnlane.model.message import Message
from turnlane.model.policy import Policy

NOBODY_IS_ALIVE = 10**15
AT_ONCE = Policy(debounce_ms=0)

Opens = Callable[[str], Awaitable[Backend]]


def store_at(url: str) -> Copyable:
    backend = open_backend(url)
    assert isinstance(backend, Copyable)
    return backend


async def copied(
    source: str, target: str, *, now: int = NOBODY_IS_ALIVE, watcher: Watcher | None = None
) -> list[Compared]:
    return await asyncio.to_thread(copy, store_at(source), store_at(target), now=now, watcher=watcher)


async def moved(source: str, target: str, opens: Opens) -> Backend:
    """Another process on the copy, which is equal."""
    assert all(table.equal for table in await copied(source, target))
    return await opens(target)


async def sums(url: str) -> dict[str, Sum]:
    """But of the journal, in which every copy is noted."""
    found = await asyncio.to_thread(summed, store_at(url))
    return {table: total for table, total in found.items() if table != JOURNAL}


def said(origin_id: str, conversation: str = "site/alice", text: str = "hello", sent_at: int | None = None) -> Arrival:
    return Arrival(Message("site", origin_id, conversation, "alice", text, sent_at=sent_at), AT_ONCE)
