"""The reference pages name everything that can be set or typed, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from turnlane.cli.main import VERBS, Verbs, exit_code_of
from turnlane.cli.main import turnlane as command
from turnlane.errors import BackendError, BackendUnavailable, InvalidSettings, NotFound, SchemaMismatch
from turnlane.settings import (
    AGENT_KINDS,
    CHANNEL_KINDS,
    Backoff,
    Duration,
    Lanes,
    Retention,
    Settings,
    Table,
    keys,
    variables,
)

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SETTINGS = (REFERENCE / "settings.md").read_text("utf-8")
CLI = (REFERENCE / "cli.md").read_text("utf-8")
WRITTEN_BY_OTHERS = {"simulate", "bench"}


def section(page: str, heading: str) -> str:
    """From the heading to the next one."""
    _, found, rest = page.partition(f"\n{heading}\n")
    assert found, f"no section {heading!r}"
    return re.split(r"\n##+ ", rest)[0]


def rows(text: str) -> dict[str, str]:
    return {key: row for row, key in re.findall(r"^(\| `(\w+)` \|.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("## The process", Settings),
        ("## [lanes]", Lanes),
        ("### [lanes.backoff]", Backoff),
        ("## [retention]", Retention),
        *[(f'### kind = "{name}"', kind) for name, kind in {**CHANNEL_KINDS, **AGENT_KINDS}.items()],
    ],
)
def test_every_key_has_its_row(heading: str, table: type[Table]) -> None:
    assert sorted(rows(section(SETTINGS, heading))) == sorted(keys(table))


def test_every_default_is_the_documented_one() -> None:
    for heading, table in [
        ("## The process", Settings()),
        ("## [lanes]", Lanes()),
        ("### [lanes.backoff]", Backoff()),
        ("## [retention]", Retention()),
    ]:
        for key, row in rows(section(SETTINGS, heading)).items():
            value = getattr(table, key)
            shown = f'"{value}"' if isinstance(value, str | Duration) else json.dumps(value)
            assert row.split(" | ")[1] == ("none" if value is None else f"`{shown}`"), key


def test_every_variable_is_documented_and_no_other() -> None:
    assert set(re.findall(r"`(TURNLANE_\w+[A-Z])`", SETTINGS)) == set(variables())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_documented(verb: str) -> None:
    text = section(CLI, f"### {verb}")
    if verb in WRITTEN_BY_OTHERS:
        return
    common = section(CLI, "## Common options")
    for option in options_of(verb):
        assert f"`{option}" in text + common, option


def options_of(verb: str) -> set[str]:
    assert isinstance(command, Verbs)
    found = command.get_command(click.Context(command), verb)
    assert found is not None
    commands = [found, *(found.commands.values() if isinstance(found, click.Group) else [])]
    parameters = [parameter for each in commands for parameter in each.params if isinstance(parameter, click.Option)]
    return {name for parameter in parameters for name in [*parameter.opts, *parameter.secondary_opts]}


def test_every_error_has_a_documented_exit_code() -> None:
    codes = set(map(int, re.findall(r"^\| (\d+) \|", section(CLI, "## Exit codes"), re.MULTILINE)))
    assert codes == {0, 1, 2, 3, 4, 5, 130, 141}
    assert exit_code_of(NotFound()) == 1
    assert exit_code_of(InvalidSettings()) == 2
    assert exit_code_of(BackendUnavailable()) == 3
    assert exit_code_of(SchemaMismatch()) == exit_code_of(BackendError()) == 4
