"""The board of the console in a real browser, on every store: lanes appear, move, and are right after any cut."""

from __future__ import annotations

import json

import pytest
from tests.e2e.browser import PROGRAM, Browser, Page
from tests.e2e.site import Site
from tests.e2e.test_web_chat import free_port, gate

from turnlane.testing.outside import Outside, ask
from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

LIVE = "document.querySelector('#connection').dataset.state === 'live'"
GONE = "document.querySelector('#connection').dataset.state === 'gone'"
MARKUP = "<img src=x onerror=window.hurt=1>"


async def opened(browser: Browser, process: Turnlane, place: str = "") -> Page:
    page = await browser.open(f"{await process.ready()}console{place}")
    await page.until(LIVE)
    return page


async def shows(page: Page, **states: str) -> None:
    """These lanes of the site, in these states, and no others."""
    lanes = sorted([f"site/{name}", state] for name, state in states.items())
    shown = "JSON.stringify(Object.entries(window.turnlane.lanes()).sort())"
    await page.until(f"{shown} === JSON.stringify({json.dumps(lanes)})")


async def test_lanes_appear_and_move_and_a_cut_loses_nothing(
    site: Site, outside: Outside, browser: Browser, store: str
) -> None:
    may_answer = gate(outside)
    port = str(free_port())
    site.configure(top=f'backend = "{store}"', debounce="2s", lease=5, lanes='backoff = { first = "10ms" }')
    process = await site.begin("run", "--listen", f"127.0.0.1:{port}")
    page = await opened(browser, process)
    await page.until("document.querySelector('.note').textContent.startsWith('No conversation yet')")
    await site.post(process, "m1", conversation="alice")
    await shows(page, alice="gathering")
    await shows(page, alice="running")
    process.kill()
    await process.ended()
    await page.until(GONE)
    may_answer.set()
    await process.start()
    await site.post(process, "m2", conversation="bob")
    await ask(f"{await process.ready()}api/conversations/site%2Fbob/pause", {})
    await page.until(LIVE)
    await shows(page, alice="idle", bob="paused")
    await ask(f"{await process.ready()}api/conversations/site%2Fbob/resume", {})
    await shows(page, alice="idle", bob="idle")
    told = await site.api(process, "lanes")
    assert {lane["conversation"]: lane["state"] for lane in told["lanes"]} == {"site/alice": "idle", "site/bob": "idle"}
    # Nothing was drawn twice, and the first run that was lost with its process is to be seen.
    assert await page.run("window.turnlane.marks('site/alice')") == ["message", "crashed", "sent"]


async def shown(page: Page) -> list[str]:
    return await page.texts("tbody tr th")


async def test_lanes_are_filtered_by_hand_and_by_address_and_names_are_only_text(site: Site, browser: Browser) -> None:
    site.configure(agent='kind = "echo"')
    process = await site.start()
    for name in ("alice", "alina", "bob", MARKUP):
        await site.post(process, f"m-{name[:5]}", conversation=name)
    await ask(f"{await process.ready()}api/conversations/site%2Fbob/pause", {})
    page = await opened(browser, process, "#/lanes?view=table&order=name")
    await page.until("document.querySelectorAll('tbody tr').length === 4")
    assert sorted(await shown(page)) == sorted(["site · alice", "site · alina", "site · bob", f"site · {MARKUP}"])
    assert not await page.run("'hurt' in window")
    await page.press("/")
    await page.type("ali")
    await page.until("location.hash === '#/lanes?q=ali&order=name&view=table'")
    await page.until("document.querySelectorAll('tbody tr').length === 2")
    await page.reload()
    await page.until("document.querySelectorAll('tbody tr').length === 2")
    assert await shown(page) == ["site · alice", "site · alina"]
    await page.run("document.querySelector('input').value = ''")
    await page.run("document.querySelector('input').dispatchEvent(new Event('input'))")
    await page.click(".chip[data-state=paused]")
    await page.until("document.querySelectorAll('tbody tr').length === 1")
    assert await shown(page) == ["site · bob"]
    assert "state=paused" in await page.run("location.hash")


async def test_the_board_is_steered_by_keys(site: Site, browser: Browser) -> None:
    site.configure(agent='kind = "echo"')
    process = await site.start()
    for name in ("alice", "bob", "carol"):
        await site.post(process, f"m-{name}", conversation=name)
    page = await opened(browser, process, "#/lanes?order=name")
    await page.until("window.turnlane.board.rows.length === 3")
    focused = "document.querySelector('.card:not([hidden]) b')?.textContent"
    moves = (("ArrowDown", "alice"), ("ArrowDown", "bob"), ("End", "carol"), ("ArrowUp", "bob"), ("Home", "alice"))
    for key, name in moves:
        await page.press(key)
        await page.until(f"{focused} === 'site · {name}'")
    await page.press("+")
    assert await page.run("window.turnlane.board.span") == 40_000
    await page.press(" ")
    assert not await page.run("window.turnlane.board.isLive")
    await page.press("t")
    await page.until("!document.querySelector('table').closest('[hidden]')")
    await page.press("t")
    await page.press("?")
    await page.until("document.querySelector('dialog[open] dl') !== null")
    await page.press("Escape")
    await page.until("document.querySelector('dialog[open]') === null")
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.until("location.hash === '#/conversation/site%2Fbob'")


async def test_the_board_fits_a_phone_and_is_drawn_light_and_dark(site: Site, browser: Browser) -> None:
    site.configure(agent='kind = "echo"')
    process = await site.start()
    await site.post(process, "m1")
    page = await opened(browser, process)
    paper = "document.querySelector('canvas').getContext('2d').getImageData(4, 600, 1, 1).data[0]"
    for scheme, is_so in (("light", f"{paper} > 200"), ("dark", f"{paper} < 60")):
        await page.becomes(390, 844, scheme=scheme, phone=True)
        await page.until("window.turnlane.board.rows.length === 1 && window.turnlane.board.width <= 390")
        await page.until(is_so)
        assert await page.run("document.documentElement.scrollWidth") <= 390
