"""The verb over schedules: listed, added, fired, paused and removed, and refused with the next step."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_cli import URL, call, folder, json_of  # noqa: F401 - a fixture of every test here

from turnlane.backends import open_backend
from turnlane.model.policy import Policy
from turnlane.model.schedule import Schedule


def only() -> Any:
    [schedule] = json_of("schedules")["schedules"]
    return schedule


def test_without_a_store_the_next_step_is_named() -> None:
    listed = call("schedules")
    assert (listed.exit_code, "start `turnlane run` here" in listed.stderr) == (1, True)


def test_a_schedule_is_added_listed_changed_and_removed() -> None:
    """D5"""
    when = ("--cron", "0 17 * * fri", "--zone", "Asia/Tokyo")
    added = call("schedules", "add", "report", "web/alice", "the report", *when)
    assert added.stdout.startswith("set: report (0 17 * * fri Asia/Tokyo) in web/alice: the report\nnext at 2")
    assert "no worker is running; `turnlane run` goes on with it" in added.stderr
    heading, row = call("schedules").stdout.splitlines()
    assert heading.split() == ["NAME", "WHEN", "CONVERSATION", "STATE", "NEXT", "LAST", "BY", "PROMPT"]
    assert re.fullmatch(
        r"report +0 17 \* \* fri Asia/Tokyo +web/alice +waiting +(in \S+|now) +- +operator +the report", row
    )
    json_of("schedules", "add", "report", "web/alice", "a better one", "--every", "1m30s", "--missed", "all")
    changed = only()
    assert (changed["prompt"], changed["every_ms"], changed["cron"]) == ("a better one", 90_000, None)
    assert (changed["missed"], changed["agent"], changed["by"]) == ("all", "echo", "operator")
    assert call("schedules", "remove", "report").stdout == "removed: report (every 1m30s) in web/alice: a better one\n"
    assert call("schedules").stdout.startswith("no schedules; `turnlane schedules add")


def test_a_schedule_is_fired_now_also_while_it_is_paused() -> None:
    call("schedules", "add", "pulse", "web/alice", "still there?", "--every", "1h")
    paused = call("schedules", "pause", "pulse")
    assert "`turnlane schedules resume pulse` lets it go on" in paused.stderr
    assert (only()["state"], only()["next_at"]) == ("paused", None)
    assert call("schedules", "fire", "pulse").stdout.startswith("said now: pulse (every 1h) in web/alice")
    assert only()["fired_at"] is not None
    shown = call("show", "web/alice").stdout
    assert "schedule/pulse  still there?  (of the schedule)" in shown
    assert "next at 2" in call("schedules", "resume", "pulse").stdout
    assert only()["state"] == "waiting"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["fire", "puls"], 1, "no schedule 'puls'; did you mean 'pulse'?"),
        (["remove", "other"], 1, "no schedule 'other'; `turnlane schedules` lists them"),
        (["pause", "other"], 1, "no schedule 'other'"),
        (["resume", "other"], 1, "no schedule 'other'"),
        (["add", "x", "web/a", "hi"], 2, "give either cron"),
        (["add", "x", "web/a", "hi", "--every", "5"], 2, "'5' is no duration; write it with its unit"),
        (["add", "x", "web/a", "hi", "--every", "5ms"], 2, "once a second at most"),
        (["add", "x", "web/a", "hi", "--cron", "* 25 * * *"], 2, 'the hour "25" is out of range'),
        (["add", "x", "web/a", "hi", "--cron", "@daily", "--zone", "Berlin"], 2, 'no time zone "Berlin"'),
        (["add", "x", "web/a", " ", "--every", "5m"], 2, "the prompt is what the agent is told"),
        (["add", "x", "wep/a", "hi", "--every", "5m"], 1, "no channel 'wep' in the settings; did you mean 'web'?"),
        (["add", "x", "alice", "hi", "--every", "5m"], 2, "'alice' is no conversation; write CHANNEL/ROOM"),
        (["add", "Not A Name", "web/a", "hi", "--every", "5m"], 2, "is no name for a schedule"),
        (["add", "x", "web/a", "hi", "--every", "5m", "--missed-max", "0"], 2, "missed_max is a number from 1"),
        (["remove", "kept"], 2, "'kept' is kept in the settings file; remove it there, or pause it"),
        (["add", "kept", "web/a", "hi", "--every", "5m"], 2, "'kept' is kept in the settings file; change it there"),
    ],
)
def test_what_cannot_be_done_names_the_next_step_and_changes_nothing(
    folder: Path,  # noqa: F811 - the fixture
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    asyncio.run(_kept_in_the_file())
    call("schedules", "add", "pulse", "web/alice", "still there?", "--every", "1h")
    before = json_of("schedules")
    refused = call("schedules", *arguments)
    assert (refused.exit_code, says in refused.stderr) == (code, True), refused.stderr
    assert json_of("schedules") == before


async def _kept_in_the_file() -> None:
    backend = open_backend(URL)
    await backend.open()
    await backend.schedule(Schedule("kept", "web/alice", "beat", every_ms=3_600_000, by="file"), Policy())
    await backend.close()
