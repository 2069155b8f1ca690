"""`turnlane settings`: what is in force and where it came from, changed for every process while it runs."""

from __future__ import annotations

import asyncio

import click

from turnlane.cli import common
from turnlane.cli.table import Column, echo_table
from turnlane.errors import InvalidSettings
from turnlane.live_settings import LiveSettings, Setting
from turnlane.settings import Settings

COLUMNS = [Column("NAME"), Column("VALUE"), Column("FROM"), Column("STORED")]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """Change settings while everything runs. Alone it lists them; NAME is written as in the list."""


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are read only when a process starts.")
@common.as_json
@common.reads_store
def list_them(given: common.Given, every: bool, as_json: bool) -> None:
    """List what can change: its value, and where that came from."""
    found = [setting for setting in asyncio.run(_all(given.load())) if every or setting.changeable or setting.stored]
    if as_json:
        common.echo_json({"settings": found})
        return
    echo_table(COLUMNS, map(_row, found), nothing="no settings")
    for setting in found:
        if setting.ignored:
            click.echo(f"{setting.name}: what is stored is not in force here: {setting.ignored}", err=True)


@command.command("set")
@click.argument("name")
@click.argument("value")
@common.as_json
@common.reads_store
def set_one(given: common.Given, name: str, value: str, as_json: bool) -> None:
    """Store VALUE for every process, which goes on with it within a second.

    It is written as in turnlane.toml, without quotes; `null` lifts a limit.
    """
    _change(given.load(), name, value, as_json=as_json)


@command.command("unset")
@click.argument("name")
@common.as_json
@common.reads_store
def unset_one(given: common.Given, name: str, as_json: bool) -> None:
    """Store it no longer: file or default say again what holds."""
    _change(given.load(), name, None, as_json=as_json)


def _change(settings: Settings, name: str, value: str | None, *, as_json: bool) -> None:
    if not all(map(common.is_utf8, (name, value or ""))):
        raise InvalidSettings("the value is not valid UTF-8; set the terminal to UTF-8 and type it again")

    async def changed() -> Setting:
        async with common.opened(settings) as backend:
            setting = await LiveSettings(backend, settings).change(name, value, by="command line")
            await common.acted(backend, settings, name)
            return setting

    setting = asyncio.run(changed())
    if as_json:
        common.echo_json(setting)
        return
    click.echo(f"{name} = {_shown(setting.value)} ({setting.source})")
    if setting.ignored:
        click.echo(f"it is stored, but not in force here: {setting.ignored}", err=True)


async def _all(settings: Settings) -> list[Setting]:
    async with common.opened(settings) as backend:
        live = LiveSettings(backend, settings)
        await live.look()
        return live.all()


def _row(setting: Setting) -> tuple[object, ...]:
    return setting.name, _shown(setting.value), setting.source, "" if setting.stored is None else setting.stored


def _shown(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "null"
    return value
