"""A real browser without a window, driven over a pipe by the few DevTools commands that a person's hands need."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.e2e.site import eventually

from turnlane.testing.processes import SECONDS_MAX

ANSWER_BYTES_MAX = 64 * 2**20
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # needs rights that a container has not; only our own pages are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--lang=en-GB",
)
GONE = re.compile("navigated or closed|context was destroyed|Cannot find context")
KEYS = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40, "Delete": 46, "F2": 113}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class PageLeft(AssertionError):
    """The page went elsewhere before it could answer."""


class Browser:
    """`async with Browser(folder) as browser:` — with a profile of its own, which ends with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[Any] = []
        """What went wrong inside the pages: uncaught errors, and what their security policy refused."""

    async def __aenter__(self) -> Browser:
        assert PROGRAM is not None, "there is no Chromium here; skip the test"
        # DevTools reads from 3 and writes to 4, whatever those are for everybody else.
        command = ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2', PROGRAM, *OPTIONS]
        self._process: Process = await asyncio.create_subprocess_exec(
            *command,
            f"--user-data-dir={self._folder}",
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=ANSWER_BYTES_MAX,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reader

    async def open(self, url: str, *, before: str = "", apart: bool = False) -> Page:
        """A new tab; `before` runs in each page of it before the page's own scripts. `apart`: as on another device."""
        where = await self.call("Target.createBrowserContext") if apart else {}
        target = await self.call("Target.createTarget", url="about:blank", **where)
        page = await self._attached(target["targetId"])
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        await page.go(url)
        return page

    async def frame(self, page: Page, path: str) -> Page:
        """What another site's page has in it, at that path. It is a page of its own, in a process of its own."""
        found: list[str] = []

        async def is_there() -> bool:
            tree = await self.call("Target.getTargets")
            context = (await page.call("Target.getTargetInfo"))["targetInfo"].get("browserContextId")
            here = [each for each in tree["targetInfos"] if each.get("browserContextId") == context]
            found[:] = [each["targetId"] for each in here if each["type"] == "iframe" and path in each["url"]]
            return bool(found)

        await eventually(is_there)
        return await self._attached(found[-1])

    async def _attached(self, target: str) -> Page:
        session = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, session["sessionId"])
        for domain in ("Runtime", "Log", "Page"):
            await page.call(f"{domain}.enable")
        return page

    async def call(self, method: str, session: str | None = None, **arguments: object) -> Any:
        number = len(self._calls)
        self._calls[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": arguments} | ({"sessionId": session} if session else {})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\0")
        async with asyncio.timeout(SECONDS_MAX):
            answer = await self._calls[number]
        if "error" in answer and GONE.search(answer["error"]["message"]):
            raise PageLeft(method, answer["error"])
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                heard = json.loads((await self._process.stdout.readuntil(b"\0"))[:-1])
                if "id" in heard:
                    self._calls[heard["id"]].set_result(heard)
                elif is_complaint(heard):
                    self.complaints.append(heard["params"])


def is_complaint(heard: Mapping[str, Any]) -> bool:
    if heard["method"] == "Log.entryAdded":
        return heard["params"]["entry"]["source"] in {"security", "violation", "javascript"}
    return bool(heard["method"] == "Runtime.exceptionThrown")


class Page:
    """One tab, and the person before it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    async def call(self, method: str, **arguments: object) -> Any:
        return await self._browser.call(method, self._session, **arguments)

    # Looking

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def reload(self) -> None:
        await self.run("window.isOld = true")
        await self.call("Page.reload")
        await self.until("document.readyState === 'complete' && !window.isOld")

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Looked at again and again: the page knows nothing of who watches it."""

        async def holds() -> bool:
            try:
                answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
            except PageLeft:
                return False
            return answer["result"].get("value") is True

        try:
            await eventually(holds)
        except TimeoutError:
            seen = await self.run("document.body.innerText")
            raise AssertionError(f"it never came to {script}; the page says:\n{seen}") from None

    async def texts(self, selector: str) -> list[str]:
        found: list[str] = await self.run(
            f"[...document.querySelectorAll({selector!r})].map((each) => each.textContent)"
        )
        return found

    async def buttons(self) -> list[str]:
        """What a screen reader calls them, wherever they are."""
        tree = await self.call("Accessibility.getFullAXTree")
        found = [each for each in tree["nodes"] if each.get("role", {}).get("value") == "button"]
        return [each["name"]["value"] for each in found if not each["ignored"]]

    # Touching

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, *modifiers: str) -> None:
        event: Mapping[str, object] = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": KEYS.get(key) or ord(key.upper()),
            "modifiers": sum(MODIFIERS[modifier] for modifier in modifiers),
            **({"text": "\r"} if key == "Enter" else {}),
        }
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def click(self, selector: str) -> None:
        await self.run(f"document.querySelector({selector!r}).click()")

    async def tap(self, x: int, y: int) -> None:
        for what in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    async def choose(self, selector: str, *files: Path) -> None:
        """As in the window that asks for files."""
        root = (await self.call("DOM.getDocument"))["root"]["nodeId"]
        field = await self.call("DOM.querySelector", nodeId=root, selector=selector)
        await self.call("DOM.setFileInputFiles", nodeId=field["nodeId"], files=[str(file) for file in files])

    # Showing

    async def becomes(self, width: int, height: int, *, scheme: str = "light", phone: bool = False) -> None:
        """A screen of this size, in `light` or `dark`."""
        scale = 2 if phone else 1
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        await self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])
