"""D7: two machines with files of their own on one store, and an agent whose memory is one of those files."""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from tests.e2e.site import Site

from turnlane.testing.outside import Outside
from turnlane.testing.processes import Turnlane

AGENT = """
import json, pathlib, sys
turn = json.load(sys.stdin)["turn"]
here = pathlib.Path.cwd().name
session = turn["session"] if turn["moved_from"] is None else None
file = pathlib.Path(session or f"transcript-{turn['number']}.txt")
lines = file.read_text().splitlines() if session else []
lines += [message["text"] for message in turn["messages"]]
file.write_text("\\n".join(lines) + "\\n")
anew = f", as {turn['moved_from']} has the rest" if turn["moved_from"] else ""
print(json.dumps({"text": f"{here} knows {' '.join(lines)}{anew}", "session": file.name}))
"""


async def machine(name: str, folder: Path, outside: Outside, stack: AsyncExitStack) -> tuple[Site, Turnlane]:
    home = folder / name
    home.mkdir(exist_ok=True)
    site = Site(home, outside, stack)
    top = f'backend = "sqlite:///{folder}/shared.db"\nmachine = "{name}"'
    site.configure(top=top, lanes='session_wait = "60s"', lease=3, command=[sys.executable, "-c", AGENT])
    settings = home / "turnlane.toml"
    settings.write_text(settings.read_text() + 'sessions = "local"\n')
    return site, await site.start()


async def said(outside: Outside, times: int) -> str:
    await outside.until(lambda: len(outside.replies) == times)
    return outside.replies[-1].text


async def test_a_conversation_stays_with_the_machine_that_holds_its_session_until_that_is_gone(
    tmp_path: Path, outside: Outside
) -> None:
    async with AsyncExitStack() as stack:
        _, north = await machine("north", tmp_path, outside, stack)
        site, south = await machine("south", tmp_path, outside, stack)
        await site.post(north, "m1")
        first = await said(outside, 1)
        home, away = (north, south) if first.startswith("north") else (south, north)
        at_home, elsewhere = ("north", "south") if home is north else ("south", "north")
        assert first == f"{at_home} knows m1"
        for number, process in enumerate((away, home, away), start=2):
            await site.post(process, f"m{number}")
            assert (await said(outside, number)).startswith(f"{at_home} knows m1 m2")
        home.kill()
        await site.post(away, "m5")
        await away.said("session.moved", machine=at_home, to=elsewhere)
        assert await said(outside, 5) == f"{elsewhere} knows m5, as {at_home} has the rest"
        await home.start()
        await site.post(home, "m6")
        assert await said(outside, 6) == f"{elsewhere} knows m5 m6"
        listed = (await site.api(home, "workers"))["workers"]
        assert {each["machine"] for each in listed if each["live"]} == {"north", "south"}, json.dumps(listed)
