"""What is known of a person, at hand: from this process, else from the store, else nothing but their name there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from turnlane.backends.base import Backend
from turnlane.channels.base import Channel, ProfileChannel
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable
from turnlane.model.event import Event, Fact
from turnlane.model.person import Person
from turnlane.people.cache import Cache

CACHED_SECONDS = 12 * 3600.0
CACHED_MOST = 1_000
LOOK_SECONDS = 1.0
"""How often a process asks whether somebody was changed elsewhere."""
WAITING_MAX = 10_000
"""People whose platform is to be asked about them; whoever comes later is asked about with a later message."""

Place = tuple[str, str]


class Profiles:
    """`of` never fails and never asks a platform: that is done beside, by `follow`, which runs for ever."""

    def __init__(
        self,
        *,
        backend: Backend,
        clock: Clock,
        channels: Mapping[str, Channel],
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.cache: Cache[Place, Person] = Cache(clock, most=CACHED_MOST, seconds=CACHED_SECONDS)
        self._backend = backend
        self._clock = clock
        self._channels = channels
        self._emit = emit
        self._cursor = -1
        self._to_enrich: dict[Place, None] = {}
        self._wanted = asyncio.Event()
        self._fails = False

    async def of(self, channel: str, user: str) -> Person:
        """B7: cache, else store, else minimal."""
        known = self.cache.get((channel, user))
        if known is not None:
            return known
        try:
            stored = await self._backend.person(channel, user)
        except BackendUnavailable as error:
            self.cache.failed += 1
            self._say_once(str(error))
            return Person(channel, user)
        self._fails = False
        person = stored or Person(channel, user)
        self.cache.put(person.place, person)
        if person.enriched_at is None:
            self._enrich_later(person.place)
        return person

    async def update(self, user: str, *, channel: str | None = None, enrich: bool = False) -> int:
        """Let every process read them anew; `enrich`: after their platform was asked. Returns in how many channels."""
        updated = 0
        for name in self._channels if channel is None else [channel]:
            stored = await self._backend.person(name, user)
            if stored is None and channel is None and self.cache.peek((name, user)) is None:
                continue
            saved = await self._backend.save_person(stored or Person(name, user))
            self.cache.drop(saved.place)
            updated += 1
            if enrich:
                self._enrich_later(saved.place)
        return updated

    def _enrich_later(self, place: Place) -> None:
        if isinstance(self._channels.get(place[0]), ProfileChannel) and len(self._to_enrich) < WAITING_MAX:
            self._to_enrich[place] = None
            self._wanted.set()

    # Beside

    async def follow(self) -> None:
        """Hear of what others change, and ask platforms about people, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            tasks.create_task(self._enrich_all())

    async def _hear(self) -> None:
        while True:
            with suppress(BackendUnavailable):  # whoever works with it says so
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Take in what was changed since, wherever."""
        heard_before = self._cursor >= 0
        changed, self._cursor = await self._backend.changed_people(self._cursor)
        for person in changed:
            known = self.cache.peek(person.place)
            if known is not None and known.version < person.version:
                self.cache.put(person.place, person)
        if heard_before:  # else something may have changed before the first look
            self.cache.confirm()

    async def _enrich_all(self) -> None:
        while True:
            await self._wanted.wait()
            while self._to_enrich:
                await self.enrich(next(iter(self._to_enrich)))
            self._wanted.clear()

    async def enrich(self, place: Place) -> None:
        """Ask the platform, and store what it says."""
        self._to_enrich.pop(place, None)
        channel = self._channels.get(place[0])
        if not isinstance(channel, ProfileChannel):
            return
        try:
            found = await channel.profile(place[1])
            stored = await self._backend.person(*place) or Person(*place)
            known = replace(found or stored, enriched_at=self._clock.now())
            self.cache.put(place, await self._backend.save_person(known))
            self._say("profile.enriched", *place, found=found is not None)
        except Exception as error:  # noqa: BLE001 - somebody else's service: without it there is less to know, that is all
            self._say("profile.unenriched", *place, cause=f"{type(error).__name__}: {error}")

    def _say_once(self, cause: str) -> None:
        """Each time it begins to fail, not for each message."""
        if not self._fails:
            self._fails = True
            self._emit(Event("profile.fallback", self._clock.now(), None, {"cause": cause}))

    def _say(self, name: str, channel: str, user: str, **facts: Fact) -> None:
        self._emit(Event(name, self._clock.now(), None, {"channel": channel, "user": user, **facts}))
