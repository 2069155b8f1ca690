"""The chat on a page of another site, in a real browser: attached, streamed, reloaded, and kept from everybody else."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import struct
import sys
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.e2e.browser import PROGRAM, Browser, Page
from tests.e2e.site import Site, eventually
from tests.e2e.test_web_chat import CONNECTED, Teller, free_port, gate, shows, start

from turnlane.testing.outside import Outside
from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

SECRET = "a-secret-of-the-sites-server"
PAGE = """<!doctype html>
<html lang="en"><head><title>A shop</title><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/style.css"></head>
<body><h1>Fine teapots</h1><p>Made by hand since 1911.</p>
<script src="{server}embed.js" {attributes} async></script>
</body></html>"""
# A page that does its worst to whatever is put into it.
STYLE = """* { all: revert; font: 3px cursive !important; color: lime !important; }
button, iframe, div, span { display: none !important; position: static !important; }
body { max-width: 40rem; margin: 3rem auto; font: 18px Georgia, serif !important; color: #222 !important; }
h1, p { font: inherit !important; color: inherit !important; } h1 { font-size: 2rem !important; }"""


def policy(server: str) -> str:
    ours = server.rstrip("/")
    return (
        f"default-src 'none'; script-src {ours}; frame-src {ours}; style-src 'self'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


@asynccontextmanager
async def shop(server: str, attributes: str = 'data-title="Help"') -> AsyncIterator[str]:
    """A site of somebody else's, under a name that is not ours, and a strict policy. Gives its address."""
    pages = {
        "/": ("text/html; charset=utf-8", PAGE.format(server=server, attributes=attributes)),
        "/style.css": ("text/css", STYLE),
    }

    connections: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
        kind, text = pages.get(path, ("text/plain", ""))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(text.encode())}\r\n"
        head += f"Content-Security-Policy: {policy(server)}\r\nConnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # a browser opens connections that it may never need
        finally:
            connections.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{listening.sockets[0].getsockname()[1]}/"
    finally:
        listening.close()
        for task in (waiting := list(connections)):
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def sites(address: str) -> str:
    return f"sites = [{json.dumps(address.rstrip('/'))}]\n"


@asynccontextmanager
async def embedded(
    site: Site, *, attributes: str = 'data-title="Help"', web: str = "", command: Sequence[str] | None = None
) -> AsyncIterator[tuple[Turnlane, str]]:
    """A server, and a shop whose pages have its chat in them."""
    port = free_port()
    async with shop(f"http://127.0.0.1:{port}/", attributes) as address:
        server = await start(site, web=sites(address) + web, command=command, port=port)
        yield server, address


async def frame_of(browser: Browser, page: Page) -> Page:
    frame = await browser.frame(page, "/embed")
    await frame.until("document.readyState === 'complete'")
    return frame


async def opened(browser: Browser, address: str, *, apart: bool = False) -> tuple[Page, Page]:
    """The shop's page with its chat open, and the chat."""
    page = await browser.open(address, apart=apart)
    await page.until("'Turnlane' in window")
    frame = await frame_of(browser, page)
    await page.run("Turnlane.open()")
    await frame.until(CONNECTED)
    return page, frame


async def say(page: Page, *lines: str) -> None:
    for line in lines:
        await page.type(line)
        await page.press("Enter")


def picture(width: int, height: int, *, noise: bool = False) -> bytes:
    """A PNG."""
    state, rows = 1, bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            state = state * 1_103_515_245 + 12_345 & 0x7FFFFFFF
            rows += struct.pack(
                "BBB", *((state >> 16 & 255,) * 3 if noise else (x * 255 // width, y * 255 // height, 140))
            )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Says what it got, in three pieces.
SEEING = Teller.PROGRAM.replace(
    "\nfor step",
    '\ntext += "".join(f" with {file[\'name\']}" for m in turn["messages"] for file in m["attachments"])\nfor step',
)


async def test_on_a_foreign_page_a_file_is_attached_the_answer_grows_and_a_reload_shows_it_once(
    site: Site, browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "teapot.png").write_bytes(picture(64, 48))
    async with embedded(site, command=[sys.executable, "-c", SEEING]) as (server, address):
        page, frame = await opened(browser, address)
        await frame.choose("#file", tmp_path / "teapot.png")
        await frame.until("document.querySelectorAll('#tray li').length === 1")
        await say(page, "Is this a teapot?")
        teller = Teller(site.folder, "Is this a teapot?")
        teller.text += " with teapot.png"
        await shows(frame, "Is this a teapot?", teller.so_far)
        await frame.until("document.querySelector('.line .picture img').naturalWidth === 64")
        teller.goes_on()
        await shows(frame, "Is this a teapot?", teller.so_far)
        await page.reload()
        frame = await frame_of(browser, page)
        await shows(frame, "Is this a teapot?", teller.so_far)
        await page.run("Turnlane.open()")
        await frame.until("document.querySelector('.line .picture img').naturalWidth === 64")
        teller.ends()
        await shows(frame, "Is this a teapot?", teller.text)
        await page.reload()
        frame = await frame_of(browser, page)
        await shows(frame, "Is this a teapot?", teller.text)
        await site.all_settled()
        assert "base64" not in json.dumps(server.lines)
    assert [(number, outcome) for _, number, outcome, _ in site.turns()] == [(1, "answered")]
    assert site.rows("SELECT count(*) FROM message") == [(1,)]
    assert site.rows("SELECT text, state FROM delivery") == [(teller.text, "sent")]


NEW_NAMES = "Object.getOwnPropertyNames(window).filter((name) => ![...pristine, 'pristine', '0'].includes(name)).join()"


async def test_it_is_opened_and_closed_by_button_key_and_script_and_leaves_one_name(
    site: Site, browser: Browser
) -> None:
    async with embedded(site) as (_, address):
        page = await browser.open(address, before="window.pristine = Object.getOwnPropertyNames(window)")
        await page.becomes(1000, 700)
        await page.until("'Turnlane' in window")
        assert await page.buttons() == ["Open Help"]
        assert await page.run(NEW_NAMES) == "Turnlane"
        await page.tap(1000 - 48, 700 - 48)
        frame = await frame_of(browser, page)
        await frame.until(CONNECTED)
        await frame.until("document.activeElement.id === 'text'")
        assert (await page.buttons())[-1] == "Close Help"
        await page.press("Escape")
        await eventually(lambda: is_called(page, "Open Help"))
        await page.run("Turnlane.open()")
        await eventually(lambda: is_called(page, "Close Help"))
        await page.run("Turnlane.close()")
        await eventually(lambda: is_called(page, "Open Help"))
        assert await page.run("document.activeElement.tagName") == "TURNLANE-CHAT"
        assert await page.run("document.cookie + localStorage.length + sessionStorage.length") == "00"


async def is_called(page: Page, name: str) -> bool:
    return name in await page.buttons()


async def test_what_comes_while_it_is_closed_is_counted_on_the_button(
    site: Site, outside: Outside, browser: Browser
) -> None:
    answered = gate(outside)
    async with embedded(site) as (_, address):
        page, frame = await opened(browser, address)
        await frame.run("addEventListener('message', ({ data }) => { window.isClosed = data.turnlane === 'closed' })")
        await say(page, "call me back")
        await outside.until(lambda: len(outside.calls) == 1)
        await page.run("Turnlane.close()")
        await frame.until("window.isClosed")  # an answer that is there before is one that was looked at
        answered.set()
        await eventually(lambda: is_called(page, "Open Help, 1 unread"))
        await page.reload()
        await eventually(lambda: is_called(page, "Open Help, 1 unread"))
        await page.run("Turnlane.open()")
        await eventually(lambda: is_called(page, "Close Help"))
        await page.run("Turnlane.close()")
        await eventually(lambda: is_called(page, "Open Help"))


async def test_a_page_that_nobody_chats_on_asks_for_nothing(site: Site, browser: Browser) -> None:
    async with embedded(site) as (_, address):
        page = await browser.open(address)
        frame = await frame_of(browser, page)
        await frame.until("document.querySelector('#title').textContent === 'Help'")
        asked = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/channels/')).length"
        assert await frame.run(asked) == 0
        await page.run("Turnlane.open()")
        await frame.until(CONNECTED)
        await frame.until(f"{asked} > 0")


async def test_a_site_that_is_not_named_cannot_have_it(site: Site, browser: Browser) -> None:
    server = await start(site, web='sites = ["https://www.example.com"]\n')
    async with shop(await server.ready()) as address:
        page = await browser.open(address)
        await page.until("'Turnlane' in window")

        async def is_refused() -> bool:
            return any("frame-ancestors" in json.dumps(each) for each in browser.complaints)

        await eventually(is_refused)
        browser.complaints.clear()
        frame = await browser.frame(page, "/embed")
        assert await frame.run("document.querySelector('#text')") is None


async def test_a_foreign_pages_script_can_neither_post_nor_read(site: Site, browser: Browser) -> None:
    """Not even that of a site which may have the frame; nor can it reach into it."""
    async with embedded(site) as (server, address):
        page, _ = await opened(browser, address)
        await page.call("Page.setBypassCSP", enabled=True)
        await page.reload()
        base = f"{await server.ready()}channels/web"
        line = json.dumps({"id": "1", "conversation": "0123456789abcdef", "text": "as if"})

        async def tried(path: str, options: str) -> object:
            return await page.run(
                f"fetch('{base}{path}', {options}).then((answer) => answer.type, (error) => error.name)"
            )

        assert (
            await tried("", f"{{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: '{line}'}}")
            == "TypeError"
        )
        assert await tried("", f"{{method: 'POST', body: '{line}', mode: 'no-cors'}}") == "opaque"
        assert await tried("/0123456789abcdef/history", "{}") == "TypeError"
        assert await tried("/0123456789abcdef/history", "{mode: 'no-cors'}") in {"opaque", "TypeError"}
        assert await page.run("frames.length + document.querySelectorAll('iframe').length") == 0
        reach = "const own = document.body.appendChild(document.createElement('iframe')); own.src = '%s';"
        reach += "new Promise((resolve) => own.onload = () => resolve(own.contentDocument === null))"
        assert await page.run(f"{{ {reach % (base + '/../../embed?channel=web')} }}") is True
        assert site.rows("SELECT count(*) FROM message") == [(0,)]
        browser.complaints.clear()


def signed(visitor: str, secret: str = SECRET) -> str:
    signature = hmac.new(secret.encode(), visitor.encode(), "sha256").hexdigest()
    return f'data-visitor="{visitor}" data-signature="{signature}"'


SIGNED = f'visitors = "signed"\nvisitor_secret = "{SECRET}"\n'


async def test_a_signed_visitor_finds_the_conversation_on_another_device(site: Site, browser: Browser) -> None:
    async with embedded(site, attributes=signed("customer-42"), web=SIGNED) as (server, address):
        page, frame = await opened(browser, address)
        _, elsewhere = await opened(browser, address, apart=True)
        await page.call("Page.bringToFront")
        await say(page, "hello")
        await shows(frame, "hello", "hello")
        await shows(elsewhere, "hello", "hello")
        asked = await frame.run("performance.getEntriesByType('resource').map((each) => each.name).join()")
        assert "customer-42" not in asked
        kept = b"".join(file.read_bytes() for file in site.folder.glob("turnlane.db*"))
        told = kept.decode("latin-1") + json.dumps(server.lines) + asked
        assert not [secret for secret in (SECRET, *re.findall("[0-9a-f]{64}", signed("customer-42"))) if secret in told]
    assert site.rows("SELECT DISTINCT sender FROM message") == [("customer-42",)]


@pytest.mark.parametrize("attributes", ["", signed("customer-42", "a-secret-that-somebody-made-up")])
async def test_a_visitor_whom_nobody_signed_is_refused_and_nothing_is_stored(
    site: Site, browser: Browser, attributes: str
) -> None:
    async with embedded(site, attributes=attributes, web=SIGNED) as (_, address):
        page = await browser.open(address)
        frame = await frame_of(browser, page)
        await page.run("Turnlane.open()")
        await frame.until("document.querySelector('#connection').dataset.state === 'refused'")
        await frame.until("document.activeElement.id === 'text'")
        await say(page, "let me in")
        await frame.until("document.querySelector('.line')?.dataset.state === 'refused'")
        assert site.rows("SELECT count(*) FROM message") == [(0,)]


# As a browser that allows a frame no storage does.
WITHOUT_STORAGE = """
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
}
"""


async def test_it_works_where_nothing_can_be_kept(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await browser.open(f"{await server.ready()}embed?channel=web", before=WITHOUT_STORAGE)
    await page.until(CONNECTED)
    await say(page, "hello")
    await shows(page, "hello", "hello")
    await say(page, "again")
    await shows(page, "hello", "hello", "again", "again")


@pytest.mark.parametrize(
    ("colour", "head", "ink"),
    [
        ("#1a4fd0", "rgb(26, 79, 208)", "rgb(255, 255, 255)"),
        ("#ffcc00", "rgb(255, 204, 0)", "rgb(16, 21, 19)"),
        ("red; } * { display: none", "rgb(31, 122, 92)", "rgb(255, 255, 255)"),
    ],
)
async def test_it_takes_the_colour_and_the_side_that_it_is_given_and_nothing_more(
    site: Site, browser: Browser, colour: str, head: str, ink: str
) -> None:
    look = f'data-title="<b>Help</b>" data-colour="{colour}" data-position="left"'
    async with embedded(site, attributes=look) as (_, address):
        page = await browser.open(address)
        await page.becomes(1000, 700)
        await page.until("'Turnlane' in window")
        frame = await frame_of(browser, page)
        await page.tap(48, 700 - 48)
        await frame.until(CONNECTED)
        style = "getComputedStyle(document.querySelector('header'))"
        await frame.until(f"{style}.backgroundColor === '{head}' && {style}.color === '{ink}'")
        assert await frame.texts("#title") == ["<b>Help</b>"]


async def test_on_a_phone_it_fills_the_screen_and_can_be_closed(site: Site, browser: Browser) -> None:
    async with embedded(site) as (_, address):
        page = await browser.open(address)
        await page.becomes(390, 780, phone=True)
        await page.until("'Turnlane' in window")
        frame = await frame_of(browser, page)
        await page.run("Turnlane.open()")
        await frame.until("innerWidth === 390 && innerHeight === 780")
        await frame.click("#close")
        await eventually(lambda: is_called(page, "Open Help"))
