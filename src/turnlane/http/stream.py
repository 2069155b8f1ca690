"""Server-sent events: what happened, as it happens, from any cursor on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from turnlane.backends.base import Backend
from turnlane.errors import BackendError
from turnlane.http.answer import PRIVATE, RETRY_AFTER_SECONDS
from turnlane.http.base import Bot
from turnlane.http.query import CURSOR_MAX, Query, whole_number
from turnlane.http.wire import to_json
from turnlane.model.view import StoredEvent

STREAMS_MAX = 1000
"""Open at the same time in one process."""
ROWS_MAX = 200
"""Read and held at once for one stream; a slow reader is waited for, not buffered for."""
LOOK_AGAIN_SECONDS = 1.0
"""A wake-up is only a hint; this bounds what a lost one costs."""
LOOKS_PER_SECOND_MAX = 2000
"""Of all streams together, so that those who watch never take the store from those who work."""
HEARTBEAT_SECONDS = 15.0
RECONNECT_MS = 1000

log = logging.getLogger("turnlane.http")


@dataclass(frozen=True, slots=True)
class Row:
    """One server-sent event. Whoever reconnects names the last `cursor` it saw."""

    cursor: int
    name: str
    data: object

    def __bytes__(self) -> bytes:
        return b"id: %d\n%s" % (self.cursor, bytes(Passing(self.name, self.data)))


@dataclass(frozen=True, slots=True)
class Passing:
    """One that is not in the store: whoever missed it does not ask for it again."""

    name: str
    data: object

    def __bytes__(self) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (self.name.encode(), to_json(self.data))


class Told(Protocol):
    """One or more server-sent events, as they are written."""

    @property
    def cursor(self) -> int:
        """Of the last of them."""

    def __bytes__(self) -> bytes: ...


Read = Callable[[int], Awaitable[Sequence[Told]]]
"""At most `ROWS_MAX` rows after that cursor, in order."""


class Beside(Protocol):
    """What a stream tells beside what is in the store."""

    moved: asyncio.Event

    def news(self) -> Sequence[Passing]:
        """What is otherwise than when this was last asked."""


Opened = AbstractContextManager[Beside | None]


class Streams:
    """All open streams of this process: they share one wait on the backend, and all end when the server stops."""

    def __init__(self, backend: Backend, on_number: Callable[[int], None] = lambda number: None) -> None:
        self._backend = backend
        self._on_number = on_number
        """Told how many are open, whenever that changes."""
        self._change: asyncio.Task[bool] | None = None
        self._open = 0
        self._looks = 0
        self._closed = False

    def answer(
        self,
        request: Request,
        read: Read,
        after: int,
        *,
        looks: int = 1,
        beside: Callable[[], Opened] = nullcontext,
    ) -> Response:
        """Everything after the cursor, and then what comes, until the reader leaves or the server stops.

        `looks`: how often one read asks the store. `beside`: opened for as long as the stream is.
        """
        if self._open >= STREAMS_MAX:
            raise HTTPException(
                503, f"{STREAMS_MAX} streams are open; try again later", {"retry-after": str(RETRY_AFTER_SECONDS)}
            )
        # Said to proxies too: nginx buffers answers unless told not to.
        headers = {**PRIVATE, "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=_StreamAnswer.media_type)
        return _StreamAnswer(self._follow(read, after, looks, beside), headers=headers)

    def close(self) -> None:
        """End every stream now. Readers come back with their cursor."""
        self._closed = True
        if self._change is not None:
            self._change.cancel()

    async def _follow(
        self, read: Read, after: int, looks: int, beside: Callable[[], Opened]
    ) -> AsyncGenerator[bytes, None]:
        self._open += 1
        self._looks += looks
        self._on_number(self._open)
        try:
            yield b"retry: %d\n\n" % RECONNECT_MS
            with beside() as passing:
                async with aclosing(self._chunks(read, after, passing)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except BackendError as error:
            # Ended, not failed: a browser reconnects after an end, and gives up for good after an error status.
            log.warning("a stream ended because the store could not be read: %s", error)
        finally:
            self._open -= 1
            self._looks -= looks
            self._on_number(self._open)

    async def _chunks(self, read: Read, after: int, beside: Beside | None) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        spoke = loop.time()
        while not self._closed:
            # Asked for before reading, so that nothing can be committed unnoticed between the two.
            change = self._next_change()
            rows = await read(after)
            if rows:
                after = rows[-1].cursor
                yield b"".join(map(bytes, rows))
                spoke = loop.time()
            elif loop.time() - spoke >= HEARTBEAT_SECONDS:
                yield b": still here\n\n"
                spoke = loop.time()
            if not rows:
                async for news in self._until(change, beside):
                    yield news
                    spoke = loop.time()
            await asyncio.sleep(self._looks / LOOKS_PER_SECOND_MAX)

    def _next_change(self) -> asyncio.Task[bool]:
        if self._change is None or self._change.done():
            self._change = asyncio.create_task(self._backend.changed(LOOK_AGAIN_SECONDS))
        return self._change

    @staticmethod
    async def _until(change: asyncio.Task[bool], beside: Beside | None) -> AsyncGenerator[bytes, None]:
        """Wait for the store; meanwhile, what moves beside it. Told once in any case, however busy the store is."""
        while True:
            if beside is not None and beside.moved.is_set():
                beside.moved.clear()
                if news := beside.news():
                    yield b"".join(map(bytes, news))
            if change.done():
                break
            moved = [] if beside is None else [asyncio.create_task(beside.moved.wait())]
            try:
                # Not awaited itself: a reader that leaves must not cancel the wait of all others.
                await asyncio.wait([change, *moved], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in moved:
                    each.cancel()
        if not change.cancelled():
            change.result()


class _StreamAnswer(StreamingResponse):
    """Ends its generator with the request, rather than whenever it is collected."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(chunks, headers=headers)
        self._chunks = chunks

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._chunks):
            await super().stream_response(send)


class EventStream:
    """`/api/events`: the facts that are in the store."""

    def __init__(self, bot: Bot, streams: Streams) -> None:
        self._backend = bot.backend
        self._streams = streams

    async def events(self, request: Request) -> Response:
        """From the cursor on; without one, what happens from now on. `after=0`: everything that is kept."""
        query = Query(request, "after")
        after = cursor_of(request, query)
        if after is None:
            latest = await self._backend.events(after=-1)
            after = latest[-1].cursor if latest else 0
        return self._streams.answer(request, self._read, after)

    async def _read(self, after: int) -> Sequence[Row]:
        return [_row(stored) for stored in await self._backend.events(after=after, limit=ROWS_MAX)]


def _row(stored: StoredEvent) -> Row:
    return Row(stored.cursor, stored.event.name, stored.event)


def cursor_of(request: Request, query: Query) -> int | None:
    """Where the reader was. `Last-Event-ID` wins: on reconnecting a browser repeats the old query beside it."""
    seen = request.headers.get("last-event-id")
    if seen is not None:
        return whole_number("Last-Event-ID", seen, lowest=0, highest=CURSOR_MAX)
    if query.text("after") is None:
        return None
    return query.number("after", default=0, lowest=0, highest=CURSOR_MAX)
