"""Settings that change while everything runs: what the store holds, over the file, in force in every process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Protocol

from turnlane.backends.base import Backend
from turnlane.errors import BackendUnavailable, InvalidSettings, NotFound
from turnlane.model.event import Fact
from turnlane.settings import Plain, Settings, Source, changeable, describe, variable_for, with_stored

LOOK_SECONDS = 0.5
"""How often a process asks the store, so that a change is in force everywhere within a second."""
VALUE_CHARACTERS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its value here, and where that came from."""

    name: str
    value: Plain
    source: Source
    changeable: bool
    """While everything runs; others are read when a process starts."""
    stored: str | None = None
    """What the store holds for it, in force or not."""
    ignored: str | None = None
    """Why what is stored is not in force in this process."""


class Say(Protocol):
    def __call__(self, name: str, **facts: Fact) -> None: ...


def _tell_nobody(name: str, **facts: Fact) -> None:
    """Whoever changes one setting and ends has nobody to tell."""


async def _nothing_to_do(settings: Settings) -> None:
    """Nor anything to go on with."""


class LiveSettings:
    """What is in force in one process: the settings that it was started with, and what the store holds over them.

    What is stored but does not fit here is left out and said, never a reason not to start.
    """

    def __init__(
        self,
        backend: Backend,
        base: Settings,
        apply: Callable[[Settings], Awaitable[None]] = _nothing_to_do,
        say: Say = _tell_nobody,
    ) -> None:
        self._backend = backend
        self._base = base
        self._go_on_with = apply
        self._say = say
        self._stored: Mapping[str, str] = {}
        self._ignored: Mapping[str, str] = {}
        self.settings = base
        self._looking = asyncio.Lock()
        """What was read earlier must not be brought into force later."""

    async def follow(self) -> None:
        """For ever. A store that is out of reach is asked again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except BackendUnavailable:
                continue  # whoever works with it says so

    async def look(self) -> Settings:
        """Bring into force what is stored now."""
        async with self._looking:
            await self._look()
        return self.settings

    async def _look(self) -> None:
        stored = dict(await self._backend.configuration())
        if stored != self._stored:
            names = sorted({name for name, _ in stored.items() ^ self._stored.items()})
            self.settings, self._ignored = _over(self._base, stored)
            await self._go_on_with(self.settings)
            self._stored = stored  # only now: if the store fails meanwhile, all of it is done again
            self._say("settings.applied", settings=", ".join(names))
            for name in names:
                if name in self._ignored:
                    self._say("settings.ignored", setting=name, cause=self._ignored[name])

    async def change(self, name: str, value: str | None, *, by: str) -> Setting:
        """Store the value for all processes, or with None what is stored no longer. It is in force here on return.

        NotFound: there is no such setting. InvalidSettings: it cannot change, or not to this. Nothing is stored then.
        """
        stored = dict(await self._backend.configuration())
        if value is None:
            self._check_name(name, [*changeable(self._base), *stored])
            stored.pop(name, None)
        else:
            self._check_name(name, changeable(self._base))
            stored[name] = _checked(name, value)
        await self.look()
        _, ignored = _over(self._base, stored)
        if newly := [cause for each, cause in ignored.items() if each == name or each not in self._ignored]:
            raise InvalidSettings("\n".join(newly))
        await self._backend.configure(name, value, by=by)
        await self.look()
        return self.one(name)

    def _check_name(self, name: str, known: list[str]) -> None:
        if name in known:
            return
        if any(each.key == name for each in describe(self._base)):
            raise InvalidSettings(f"{name} is read when a process starts; set it in the file, then start again")
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`turnlane settings` lists them"
        if self._base.read_from is not None and not self._base.read_from.file_name:
            hint += f"{'' if close else '.'} No settings file was read; --config names one"
        raise NotFound(f"no setting {name[:100]!r} can change at run time; {hint}")

    def one(self, name: str) -> Setting:
        found = {setting.name: setting for setting in self.all()}
        if name in found:
            return found[name]
        if name.startswith("routes.") and (general := found.get("lanes." + name.split(".", 2)[-1])):
            # A route that says nothing of its own is as [lanes] says.
            return replace(general, name=name, stored=None, ignored=None)
        return Setting(name, None, "default", changeable=False)

    def all(self) -> list[Setting]:
        """Every setting of this process, secrets masked; and what is stored for others."""
        can_change = set(changeable(self._base))
        described = {each.key: each for each in describe(self.settings)}
        here = [
            Setting(name, each.value, each.source, name in can_change, self._stored.get(name), self._why_not(name))
            for name, each in described.items()
        ]
        elsewhere = [
            Setting(name, None, "default", name in can_change, text, self._why_not(name))
            for name, text in self._stored.items()
            if name not in described
        ]
        return [*here, *elsewhere]

    def _why_not(self, name: str) -> str | None:
        if name not in self._stored:
            return None
        match self.settings.sources.get(name):
            case "environment":
                return f"{variable_for(name)} is stronger"
            case "command line":
                return "the command line is stronger"
        return self._ignored.get(name)


def _checked(name: str, value: str) -> str:
    if len(value) > VALUE_CHARACTERS_MAX:
        raise InvalidSettings(f"{name}: has {len(value)} characters; {VALUE_CHARACTERS_MAX} is the most")
    if not value.isprintable() and any(character < " " and character not in "\n\t" for character in value):
        raise InvalidSettings(f"{name}: holds control characters; leave them out")
    return value


def _over(base: Settings, stored: Mapping[str, str]) -> tuple[Settings, Mapping[str, str]]:
    """The settings with all that fits, and of the rest why it does not."""
    known = set(changeable(base))
    fits = {name: text for name, text in stored.items() if name in known}
    ignored = {name: "there is no such setting in this process" for name in stored if name not in known}
    try:
        return with_stored(base, fits) if fits else base, ignored
    except InvalidSettings:
        settings, left_out = _one_by_one(base, fits)
    return settings, ignored | left_out


def _one_by_one(base: Settings, stored: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """As many as fit together; one that needs another is tried again after it."""
    settings, kept = base, dict[str, str]()
    while True:
        left_out: dict[str, str] = {}
        before = len(kept)
        for name in [name for name in stored if name not in kept]:
            try:
                settings = with_stored(base, {**kept, name: stored[name]})
                kept[name] = stored[name]
            except InvalidSettings as error:
                left_out[name] = str(error)
        if len(kept) == before:
            return settings, left_out
