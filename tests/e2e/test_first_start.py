"""The first minute: no settings, an empty folder, a page that answers, and an answer that survives a kill -9."""

from __future__ import annotations

import time
from typing import Any

from tests.e2e.site import Site, eventually

from turnlane.testing.outside import ask

TOKEN = "a-visitor-of-the-chat-page"


async def test_with_no_settings_at_all_the_page_is_served_at_once(site: Site) -> None:
    """Within 2 s on a warm machine; the bound here is for a loaded one, and the figure is in the output."""
    await (await site.start()).ready()  # warms the machine up
    began = time.monotonic()
    process = await site.start()
    page = await ask(await process.ready())
    took = time.monotonic() - began
    print(f"`turnlane run` served / {took:.2f} s after the command")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<html" in page.body
    assert took < 20


async def test_killed_in_the_middle_the_page_shows_the_answer_once_after_a_restart(site: Site) -> None:
    process = await site.start()
    said = {"id": "1", "conversation": TOKEN, "text": "are you there?"}
    assert (await ask(f"{await process.ready()}channels/web", said)).status == 202
    process.kill()
    await process.ended()
    await process.start()
    url = f"{await process.ready()}channels/web/{TOKEN}/history"

    async def lines() -> list[tuple[str, Any]]:
        return [(line["from"], line["text"]) for line in (await ask(url)).json["lines"]]

    async def answered() -> bool:
        return len(await lines()) > 1

    await eventually(answered)
    await site.all_settled()
    assert [who for who, _ in await lines()] == ["visitor", "bot"]
