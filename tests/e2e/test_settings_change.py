"""D3, D8: what is set in one process is in force in another within a second, through the store alone."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from tests.e2e.site import SECRET, Site

from turnlane.testing.outside import Outside, ask
from turnlane.testing.processes import Turnlane

IN_FORCE_SECONDS_MAX = 1.0
SLACK_SECONDS = 1.0
"""For a machine that is busy with other things."""


async def command(site: Site, *arguments: str) -> str:
    async with Turnlane("settings", *arguments, folder=site.folder) as process:
        assert await process.ended() == 0, process.last_words
    return process.last_words


async def put(process: Turnlane, name: str, value: object) -> Any:
    answer = await ask(f"{await process.ready()}api/settings/{name}", {"value": value}, method="PUT")
    assert answer.status == 200, answer
    return answer.json


async def in_force(site: Site, *processes: Turnlane, times: int) -> None:
    """The latest change, in each of them, soon enough after it was stored."""
    [(stored_at,)] = site.rows("SELECT max(at) FROM journal WHERE facts LIKE '%settings.changed%'")
    for process in processes:
        line = await process.said("settings.applied", times=times)
        late = datetime.fromisoformat(line["time"]).timestamp() - stored_at / 1000
        assert late < IN_FORCE_SECONDS_MAX + SLACK_SECONDS


async def test_a_pause_set_from_the_command_line_holds_in_every_process_and_nothing_is_lost(
    site: Site, outside: Outside
) -> None:
    site.configure(lease=5)
    pair = [await site.start(), await site.start()]
    assert "channels.site.paused = true (stored)" in await command(site, "set", "channels.site.paused", "true")
    await in_force(site, *pair, times=1)
    for place, process in enumerate(pair):
        await site.post(process, f"m{place}", conversation=f"user-{place}")
    assert [lane["state"] for lane in (await site.api(pair[0], "lanes"))["lanes"]] == ["ready", "ready"]
    assert not [line for process in pair for line in process.lines if line.get("level") == "debug"]
    await asyncio.sleep(0.5)  # waits: long enough for a worker that does not know of the pause to begin
    assert outside.calls == []
    await command(site, "unset", "channels.site.paused")
    await in_force(site, *pair, times=2)
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    await command(site, "set", "logs.level", "debug")
    await in_force(site, *pair, times=3)
    await site.post(pair[0], "m3")
    await pair[0].said("message.accepted", message="site:m3")


async def test_what_one_process_is_told_by_the_api_holds_for_messages_of_the_other(
    site: Site, outside: Outside
) -> None:
    site.configure(lease=5)
    here, there = await site.start(), await site.start()
    assert (await put(here, "lanes.max_batch", 2))["source"] == "stored"
    await put(here, "routes.site.debounce", "9m")
    await in_force(site, there, times=1)
    settings = {each["name"]: each for each in (await site.api(there, "settings"))["settings"]}
    assert (settings["routes.site.debounce"]["value"], settings["lanes.max_batch"]["value"]) == ("9m", 2)
    await site.post(there, "m1")
    assert [lane["state"] for lane in (await site.api(there, "lanes"))["lanes"]] == ["gathering"]
    await site.post(there, "m2")
    await outside.until(lambda: len(outside.replies) == 1)
    assert outside.calls[0].texts == ["m1", "m2"]


async def test_a_setting_outlives_all_processes(site: Site, outside: Outside) -> None:
    site.configure(lease=5)
    first = await site.start()
    await put(first, "paused", True)
    await site.post(first, "m1")
    first.kill()
    await first.ended()
    again = await site.start()
    await again.said("settings.applied", settings="paused")
    assert outside.calls == []
    await put(again, "paused", False)
    await outside.until(lambda: len(outside.replies) == 1)


async def test_who_types_is_waited_for_whichever_process_hears_of_it(site: Site, outside: Outside) -> None:
    site.configure(lease=5, debounce="1s")
    here, there = await site.start(), await site.start()
    await site.post(here, "m1")
    for _ in range(3):
        await asyncio.sleep(0.6)  # waits: as long as a person thinks, which is shorter than the quiet window
        report = {"conversation": "alice", "typing": True}
        assert (await ask(f"{await there.ready()}channels/site", report, secret=SECRET)).status == 202
    await outside.until(lambda: len(outside.calls) == 1)
    await site.all_settled()
    [(accepted_at,)] = site.rows("SELECT accepted_at FROM message")
    [(started_at,)] = site.rows("SELECT started_at FROM turn")
    assert started_at - accepted_at > 2_000
