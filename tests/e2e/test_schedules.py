"""D5: real processes on one file, a schedule every second, and kill -9 for whoever holds it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from datetime import datetime
from pathlib import Path

from tests.e2e.site import Site

import turnlane
from turnlane.testing.outside import Outside
from turnlane.testing.processes import Turnlane

SCHEDULE = """
[[schedules]]
name = "pulse"
conversation = "site/alice"
prompt = "beat"
every = "1s"
missed = "all"
"""
LEASE_SECONDS = 3
SLACK_SECONDS = 4
"""For a machine that is busy with other things."""

HOLDER = """
import asyncio
from turnlane.backends import open_backend
from turnlane.model.lane import Kind

async def hold():
    backend = open_backend("sqlite:///turnlane.db")
    await backend.open()
    await backend.join("doomed", 3_000)
    (lease,) = await backend.claim("doomed", Kind.TICK, wait=True)
    print(lease.epoch, flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


def configure(site: Site) -> None:
    site.configure(lease=LEASE_SECONDS)
    file = site.folder / "turnlane.toml"
    file.write_text(file.read_text() + SCHEDULE)


def said(site: Site) -> list[tuple[float, float]]:
    """Of each prompt: when it was due, and how late it was stored, in seconds."""
    rows = site.rows("SELECT origin_id, sent_at, accepted_at FROM message WHERE role = 'schedule' ORDER BY seq")
    for origin_id, due, _ in rows:
        named = datetime.fromisoformat(origin_id.removeprefix("schedule/pulse/"))
        assert named.timestamp() * 1000 == due
    return [(due / 1000, (at - due) / 1000) for _, due, at in rows]


def assert_each_due_time_was_said_once(site: Site) -> None:
    dues = [due for due, _ in said(site)]
    assert dues == [dues[0] + n for n in range(len(dues))]
    assert max(late for _, late in said(site)) < LEASE_SECONDS * 4 / 3 + SLACK_SECONDS


async def test_whoever_holds_a_due_schedule_is_killed_and_every_due_time_is_said_once(
    site: Site, outside: Outside
) -> None:
    configure(site)
    first = await site.begin("worker")
    await first.said("schedule.set")
    first.kill()
    await first.ended()
    holder = await _holding(site.folder)
    survivor = await site.start()
    before = len(said(site))
    holder.kill()
    await holder.wait()
    await survivor.said("tick.lost")
    await survivor.said("schedule.fired", times=5)
    assert len(said(site)) >= before + 5
    assert_each_due_time_was_said_once(site)
    await outside.until(lambda: bool(outside.replies))


async def _holding(folder: Path) -> asyncio.subprocess.Process:
    source = str(Path(turnlane.__file__).parents[1])
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, cwd=folder, env={"PYTHONPATH": source}, stdin=DEVNULL, stdout=PIPE
    )
    assert holder.stdout is not None
    assert await asyncio.wait_for(holder.stdout.readline(), 30)
    return holder


async def test_processes_are_killed_again_and_again_and_every_due_time_is_said_once(
    site: Site, outside: Outside
) -> None:
    configure(site)
    pair = [await site.start(), await site.start()]
    for _ in range(3):
        seen = len(said(site))
        await site.comes_true(lambda seen=seen: len(said(site)) >= seen + 2)  # type: ignore[misc]  # bound now
        latest = max(pair, key=_last_fired)
        latest.kill()
        await latest.ended()
        await latest.start()
    seen = len(said(site))
    await site.comes_true(lambda: len(said(site)) >= seen + 3)
    assert_each_due_time_was_said_once(site)
    listed = (await site.api(pair[0], "schedules"))["schedules"]
    assert [(each["name"], each["by"]) for each in listed] == [("pulse", "file")]


def _last_fired(process: Turnlane) -> str:
    return max((line["time"] for line in process.lines if line.get("event") == "schedule.fired"), default="")
