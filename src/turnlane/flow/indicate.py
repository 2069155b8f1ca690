"""Let people see that somebody is at work on their answer, where the platform can show that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from turnlane.channels.base import Channel, IndicatingChannel
from turnlane.clock import Clock
from turnlane.flow.run_turn import cause_of, was_cancelled
from turnlane.flow.slot import Slot
from turnlane.model.event import Event
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of

LOOK_SECONDS = 0.25
INDICATE_SECONDS_MAX = 5.0
"""A platform that takes longer to show it is not waited for."""
AT_ONCE_MAX = 20
"""Indications on their way at one time; what is more is shown with a later look."""

Run = tuple[str, int]


class Indicator:
    """Looks at the turns that run here. An answer never waits for this, and never fails by it."""

    def __init__(
        self,
        *,
        channels: Mapping[str, Channel],
        slots: Sequence[Slot],
        clock: Clock,
        emit: Callable[[Event], None],
    ) -> None:
        self._channels = {name: each for name, each in channels.items() if isinstance(each, IndicatingChannel)}
        self._slots = slots
        self._clock = clock
        self._emit = emit
        self._again_at: dict[Run, float] = {}
        self._on_their_way: set[asyncio.Task[None]] = set()
        self._failing: set[str] = set()

    async def run(self) -> None:
        """For ever; where no channel can show anything, without a look."""
        if not self._channels:
            await asyncio.Event().wait()
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self.look()
        finally:
            for task in self._on_their_way:
                task.cancel()

    def look(self) -> None:
        running = {(lease.key, lease.epoch): lease for lease in self._running()}
        self._again_at = {run: at for run, at in self._again_at.items() if run in running}
        now = self._clock.monotonic()
        for run, lease in running.items():
            if now >= self._again_at.get(run, 0.0) and len(self._on_their_way) < AT_ONCE_MAX:
                channel = self._channels[channel_of(lease.key)]
                self._again_at[run] = now + channel.indicated_seconds
                task = asyncio.create_task(self._indicate(channel, lease), name="turnlane-indication")
                self._on_their_way.add(task)
                task.add_done_callback(self._on_their_way.discard)

    def _running(self) -> Iterable[Lease]:
        """Those that wait for a person are not at work."""
        for slot in self._slots:
            lease = slot.lease
            if lease is None or not slot.is_running or slot.waits_for_a_person:
                continue
            if lease.messages and channel_of(lease.key) in self._channels:
                yield lease

    async def _indicate(self, channel: IndicatingChannel, lease: Lease) -> None:
        try:
            async with asyncio.timeout(INDICATE_SECONDS_MAX):
                await channel.indicate(lease.key, lease.messages[-1].origin_id)
        except Exception as error:  # noqa: BLE001 - a channel's own bug or trouble: the answer does not depend on it
            self._tell_once(channel.name, lease, cause_of(error))
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            self._tell_once(channel.name, lease, "something that it waited for was cancelled")
        else:
            self._failing.discard(channel.name)

    def _tell_once(self, channel: str, lease: Lease, cause: str) -> None:
        """Each time it begins to fail, not for each turn."""
        if channel not in self._failing:
            self._failing.add(channel)
            self._emit(Event("indication.failed", self._clock.now(), lease.key, {"turn": lease.number, "cause": cause}))
