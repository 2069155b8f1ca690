"""`turnlane doctor`: checks everything it can, and names the next step for each finding."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass

import click

from turnlane.cli import checks, common
from turnlane.cli.checks import Finding
from turnlane.cli.table import one_line
from turnlane.errors import InvalidSettings
from turnlane.settings import Described, Settings, describe

COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` answers."""

    ok: bool
    findings: list[Finding]
    settings: list[Described]


@click.command()
@common.as_json
@common.runs
def command(given: common.Given, as_json: bool) -> None:
    """Check machine, settings, store, port, channels and agents, and say what to do. Exits with 1 if one is broken."""
    report = asyncio.run(_examine(given))
    if as_json:
        common.echo_json(report)
    else:
        _tell(report)
    if not report.ok:
        click.get_current_context().exit(1)


async def _examine(given: common.Given) -> Report:
    findings = list(checks.machine())
    described: list[Described] = []
    try:
        settings = given.load()
    except InvalidSettings as error:
        findings += [
            Finding("settings", "broken", line, "change it, then ask again") for line in str(error).splitlines()
        ]
    else:
        described = describe(settings)
        findings += _settings(given, described)
        findings += await _surroundings(settings)
    return Report(all(finding.status != "broken" for finding in findings), findings, described)


def _settings(given: common.Given, described: Iterable[Described]) -> Iterable[Finding]:
    yield Finding("settings", "ok", f"read from {given.file}" if given.file else "no file, all defaults")
    yield from checks.foreign_variables(os.environ)
    for each in described:
        if each.source != "default":
            yield Finding("settings", "ok", f"{each.key} = {each.value} ({each.source})")


async def _surroundings(settings: Settings) -> list[Finding]:
    return [
        *[finding async for finding in checks.store(settings)],
        *[finding async for finding in checks.port(settings)],
        *[finding async for finding in checks.channels(settings)],
        *[finding async for finding in checks.agents(settings)],
    ]


def _tell(report: Report) -> None:
    names = max(len(finding.check) for finding in report.findings)
    for finding in report.findings:
        status = click.style(f"{finding.status:7}", fg=COLOURS[finding.status])
        click.echo(f"{status}  {finding.check:{names}}  {one_line(finding.text)}")
        if finding.next:
            click.echo(f"{'':7}  {'':{names}}  -> {finding.next}")
    counted = [sum(finding.status == status for finding in report.findings) for status in ("broken", "warning")]
    click.echo(f"\n{counted[0]} broken, {counted[1]} to look at")
