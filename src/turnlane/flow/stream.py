"""Show what there is of an answer while its turn still runs. What is said is not here: that comes with the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from turnlane.agents.answer import kind_of
from turnlane.backends.base import Backend
from turnlane.channels.base import Channel, StreamingChannel
from turnlane.errors import BackendUnavailable
from turnlane.flow.run_turn import cause_of, was_cancelled
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of

SHOW_SECONDS = 0.1
"""How often, at most, an answer that grows is shown anew."""

LOOK_SECONDS = 0.5
"""How soon to ask again where something else is being sent first."""

SHOW_SECONDS_MAX = 5.0
"""A channel that takes longer to show something, or to take it away, is not waited for."""

SHOWN_CHARACTERS_MAX = 100_000
"""Of a longer answer only the beginning is shown; it is said in full."""


class Streams:
    """Makes the stream of a run, once an agent shows something in a channel that can."""

    def __init__(
        self,
        *,
        backend: Backend,
        channels: Mapping[str, Channel],
        is_ours: Callable[[Lease], bool],
        on_failure: Callable[[Lease, str], None],
    ) -> None:
        self.backend = backend
        self.is_ours = is_ours
        self.on_failure = on_failure
        self._channels = {name: each for name, each in channels.items() if isinstance(each, StreamingChannel)}

    def can_show(self, channel: str) -> bool:
        return channel in self._channels

    def begin(self, lease: Lease) -> Stream:
        return Stream(self, self._channels[channel_of(lease.key)], lease)

    async def clean_up(self, lease: Lease) -> None:
        """Take away what an earlier run of the turn has left, if its process ended before it could."""
        if lease.kind is Kind.TURN and self.can_show(channel_of(lease.key)):
            stream = self.begin(lease)
            stream.shown = True
            await stream.end()


class Stream:
    """What is seen of one run before its commit: the latest of what the agent showed, as often as is worth looking.

    Each time the store is asked first, so that nobody shows anything of a turn that it lost, or before something that
    is still to be sent. A preview that cannot be shown is told once, and fails nothing.
    """

    def __init__(self, streams: Streams, channel: StreamingChannel, lease: Lease) -> None:
        self.shown = False
        """Something of it may have been seen."""
        self._streams = streams
        self._channel = channel
        self._lease = lease
        self._text = ""
        self._fresh = asyncio.Event()
        self._speaking = asyncio.Lock()
        self._failed = False
        self._every: float = getattr(channel, "show_seconds", SHOW_SECONDS)
        self._task = asyncio.create_task(self._follow(), name="turnlane-stream")

    def show(self, text: str) -> None:
        self._text = text
        self._fresh.set()

    async def end(self) -> None:
        """Show nothing more, and take away what is seen; done when this returns, still under the lease."""
        async with self._speaking:
            self.drop()
            if self.shown:
                await self._put(None)

    def drop(self) -> None:
        self._task.cancel()

    async def _follow(self) -> None:
        while not self._failed:
            await self._fresh.wait()
            self._fresh.clear()
            async with self._speaking:
                if may_show := await self._may_show():
                    self.shown = True
                    await self._put(self._text)
                else:
                    self._fresh.set()
            await asyncio.sleep(self._every if may_show else LOOK_SECONDS)

    async def _may_show(self) -> bool:
        try:
            held = await self._streams.backend.hold_outbox(self._lease)
        except BackendUnavailable:
            return False  # the keeper notices; whether there is something to see is of no account then
        # Asked last, as before every sending: a worker that was stopped for a while must not speak for a turn it lost.
        return held and self._streams.is_ours(self._lease)

    async def _put(self, text: str | None) -> None:
        try:
            async with asyncio.timeout(SHOW_SECONDS_MAX):
                shown = None if text is None else _showable(text)
                await self._channel.show(self._lease.key, self._lease.number, shown)
        except Exception as error:  # noqa: BLE001 - a channel's own bug or trouble: the answer does not depend on it
            self._fail(cause_of(error))
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            self._fail("something that it waited for was cancelled")

    def _fail(self, cause: str) -> None:
        if not self._failed:
            self._failed = True
            self._streams.on_failure(self._lease, cause)


def _showable(text: str) -> str:
    """Nobody has checked it yet."""
    if not isinstance(text, str):
        raise TypeError(f"what is shown is {kind_of(text)}; show text")
    return text[:SHOWN_CHARACTERS_MAX].replace("\0", "\ufffd").encode(errors="replace").decode()
