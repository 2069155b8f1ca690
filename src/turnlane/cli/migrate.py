"""`turnlane migrate`: brings the store to the schema that this version needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import click

from turnlane.backends import open_backend
from turnlane.cli import common
from turnlane.settings import Settings, without_password


@runtime_checkable
class Versioned(Protocol):
    """A backend that knows schemas."""

    async def schema_version(self) -> int:
        """The version of the store as it is; 0 if there is none yet."""


@dataclass(frozen=True, slots=True)
class Migrated:
    backend: str
    before: int | None
    after: int | None


@click.command()
@common.as_json
@common.reads_store
def command(given: common.Given, as_json: bool) -> None:
    """Bring the store to this version's schema, or make a new one. Safe to run again, and while others run."""
    migrated = asyncio.run(_migrate(given.load()))
    if as_json:
        common.echo_json(migrated)
    elif migrated.before == migrated.after:
        click.echo(f"{migrated.backend}: schema {migrated.after} is current")
    else:
        click.echo(f"{migrated.backend}: migrated from schema {migrated.before} to {migrated.after}")


async def _migrate(settings: Settings) -> Migrated:
    before = await schema_version(settings.backend)
    async with common.opened(settings, create=True):
        pass
    return Migrated(without_password(settings.backend), before, await schema_version(settings.backend))


async def schema_version(url: str) -> int | None:
    backend = open_backend(url)
    return await backend.schema_version() if isinstance(backend, Versioned) else None
