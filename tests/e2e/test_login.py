"""The login in a real browser: in, back to where one wanted to go, and what pages of other sites get out of it."""

from __future__ import annotations

import pytest
from tests.e2e.browser import PROGRAM, Browser, Page
from tests.e2e.site import Site

from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

OPERATOR, VIEWER = "0f-the-0perator", "0f-a-viewer"
PAUSE = "/api/conversations/site%2Falice/pause"
IS_LOGIN = "location.pathname === '/console/login' && document.activeElement?.id === 'token'"
CHANGES = f"""fetch('/api/me').then((answer) => answer.json())
    .then(({{ csrf }}) => fetch('{PAUSE}', {{ method: 'POST', headers: {{ 'x-turnlane-csrf': csrf }} }}))
    .then((answer) => answer.status)"""


def is_at(place: str) -> str:
    return f"location.pathname + location.hash === '{place}' && document.querySelectorAll('#nav a').length > 0"


async def log_in(page: Page, token: str) -> None:
    await page.until(IS_LOGIN)
    await page.type(token)
    await page.press("Enter")


async def started(site: Site, *more: str) -> Turnlane:
    top = [f'operator_token = "{OPERATOR}"', f'viewer_token = "{VIEWER}"', *more]
    site.configure(top="\n".join(top), lease=10)
    process = await site.start()
    await site.post(process, "m1")
    return process


async def test_an_operator_logs_in_acts_and_leaves(site: Site, browser: Browser, store: str) -> None:
    process = await started(site, f'backend = "{store}"')
    url = await process.ready()
    page = await browser.open(f"{url}console#/outbox")
    await log_in(page, "guessed")
    await page.until("document.getElementById('trouble').textContent.includes('not right')")
    await log_in(page, OPERATOR)
    await page.until(is_at("/console#/outbox"))
    assert await page.run("document.cookie") == ""
    assert await page.run(f"fetch('{PAUSE}', {{ method: 'POST' }}).then((answer) => answer.status)") == 403
    assert await page.run(CHANGES) == 200
    await from_another_site(browser, url)
    await page.until("!document.getElementById('leave').hidden")
    await page.click("#leave")
    await page.until("location.pathname === '/console/login'")
    assert await page.run("fetch('/api/me').then((answer) => answer.status)") == 401
    await process.said("operator.acted")
    assert not any(word in line for line in map(str, process.lines) for word in (OPERATOR, "guessed", "operator.1"))


async def from_another_site(browser: Browser, url: str) -> None:
    """Another name is another site, for which the browser does not show the badge. A link leads in all the same."""
    page = await browser.open(f"{url.replace('127.0.0.1', 'localhost')}healthz")
    asks = f"fetch('{url}api/lanes', {{ mode: 'no-cors', credentials: 'include' }}).then((answer) => answer.type)"
    assert await page.run(asks) == "opaque"
    await page.run(f"location.assign('{url}console#/locks')")
    await page.until(is_at("/console#/locks"))


async def test_a_viewer_looks_and_changes_nothing(site: Site, browser: Browser) -> None:
    page = await browser.open(f"{await (await started(site)).ready()}console")
    await log_in(page, VIEWER)
    await page.until(is_at("/console"))
    await page.until("document.body.dataset.role === 'viewer'")
    assert await page.run("fetch('/api/lanes').then((answer) => answer.status)") == 200
    assert await page.run(CHANGES) == 403
