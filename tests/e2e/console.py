"""An operator before the console: a world that fails on demand, and the hands that press its buttons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.e2e.browser import Browser, Page
from tests.e2e.site import SECRET, Site, eventually

from turnlane.testing.outside import Outside, ask
from turnlane.testing.processes import Turnlane

LANES = 'attempts = 2\nbackoff = { first = "1h", most = "1h" }\non_unknown = "hold"'


@dataclass
class World(Outside):
    """What is said decides what becomes of it: the first word of a message, and of what is answered to it."""

    well: bool = False
    """From then on nothing fails any more."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    cause: str = "out of order"
    receipt: str = "r-1"
    session: str = "s-1"

    async def _answer(self, path: str, headers: Mapping[str, str], value: Any) -> tuple[int, object]:
        if path == "/turns":
            return await self._think(value["turn"])
        status = await self._receive(headers, value)
        return status, {"receipt": self.receipt} if status < 300 else {"error": self.cause}

    async def _think(self, turn: Mapping[str, Any]) -> tuple[int, object]:
        text = " + ".join(message["text"] for message in turn["messages"])
        match text.partition(" ")[0]:
            case "fails" if not self.well:
                return 500, {"error": self.cause}
            case "impossible" if not self.well:
                return 400, {"error": self.cause}
            case "slow":
                await self.go_on.wait()
            case "asks" if not turn["answers"]:
                return 200, {"ask": {"text": text, "options": ["yes", "no"]}}
        given = "".join(f" ({answer['text']})" for answer in turn["answers"])
        usage = {"input_tokens": 1200, "output_tokens": 80}
        return 200, {"text": f"re: {text}{given}", "session": self.session, "usage": usage, "model": "m-1"}

    async def receives(self, reply: Any) -> int:
        if "unwanted" in reply.text and not self.well:
            return 410
        if "later" in reply.text and not self.well:
            return 503
        if "cut" in reply.text and not self.well:
            raise ConnectionResetError
        return 200

    def __post_init__(self) -> None:
        self.receive = self.receives


@dataclass
class Console:
    """The page, and the server behind it."""

    page: Page
    browser: Browser
    site: Site
    process: Turnlane
    url: str

    @classmethod
    async def opened(cls, browser: Browser, site: Site, process: Turnlane, *, before: str = "") -> Console:
        url = await process.ready()
        page = await browser.open(f"{url}console", before=before)
        await page.until("document.querySelectorAll('#nav a').length > 0")
        return cls(page, browser, site, process, url)

    # Looking

    async def go(self, section: str, *rest: str) -> None:
        """Open a section anew, and wait until it is there."""
        place = "#/" + "/".join([section, *(quote(each, safe="") for each in rest)])
        await self.page.run(
            f"document.querySelector('#main > *')?.setAttribute('data-old', ''), location.hash = {json.dumps(place)},"
            " window.dispatchEvent(new Event('hashchange')), null"
        )
        await self.page.until(f"document.querySelector('#main > .{section}:not([data-old])') !== null")

    async def story(self, name: str) -> None:
        await self.go("conversation", f"site/{name}")
        await self.page.until("document.querySelectorAll('.story > li').length > 0")

    async def shows(self, text: str) -> None:
        await self.page.until(f"document.querySelector('#main').innerText.includes({json.dumps(text)})")

    # Pressing

    async def press(self, act: str, *, row: str = "", **fields: str | bool) -> None:
        """Press it, say yes, and wait until the page has told what came of it. `row`: in that which holds this text."""
        await self.begin(act, row=row)
        await self.fill(**fields)
        await self.page.run("document.querySelector('#told').replaceChildren(), null")
        await self.page.click("#confirm button[type=submit]")
        await self.page.until("!document.querySelector('#confirm').open")
        await self.page.until("document.querySelector('#told').childElementCount > 0")
        assert await self.page.texts("#told .bad") == []

    async def begin(self, act: str, *, row: str = "") -> None:
        """Press it, and see what is asked."""
        button = (
            f"[...document.querySelectorAll('#main [data-act]')].find((each) => each.dataset.act === {json.dumps(act)}"
            f" && (each.closest('tr') ?? document.body).textContent.includes({json.dumps(row)}))"
        )
        await self.page.until(f"({button} ?? {{disabled: true}}).disabled === false")
        await self.page.run(f"{button}.focus(), {button}.click(), null")
        await self.page.until("document.querySelector('#confirm').open")

    async def fill(self, **fields: str | bool) -> None:
        for name, value in fields.items():
            how = "checked" if isinstance(value, bool) else "value"
            await self.page.run(f"document.querySelector('#field-{name}').{how} = {json.dumps(value)}, null")

    async def enabled(self, act: str) -> bool:
        return bool(await self.page.run(f"!document.querySelector('[data-act=\"{act}\"]').disabled"))

    # Asking the API what has come of it

    async def api(self, path: str) -> Any:
        return await self.site.api(self.process, path)

    async def told(self, name: str) -> Any:
        """The story of a conversation."""
        return await self.api(f"conversations/site%2F{quote(quote(name, safe=''), safe='')}")

    async def lane(self, name: str, kind: str = "turn") -> Any:
        story = await self.told(name)
        return next((lane for lane in story["lanes"] if lane["kind"] == kind), None)

    async def comes_to(self, name: str, condition: Callable[[Any], bool]) -> Any:
        """The story, once it is like this."""
        seen: list[Any] = []

        async def holds() -> bool:
            seen[:] = [await self.told(name)]
            return condition(seen[0])

        try:
            await eventually(holds)
        except TimeoutError:
            raise AssertionError(f"{name} never came to this; its story is {json.dumps(seen[0], indent=1)}") from None
        return seen[0]

    async def says(self, name: str, text: str, *, sender: str = "alice", state: str | None = None) -> None:
        """Somebody writes; and with a state, wait until the lane has come to it."""
        said = {"id": f"{name}/{text}"[:400], "conversation": name, "text": text, "sender": sender}
        answer = await ask(f"{self.url}channels/site", [said], secret=SECRET)
        assert (answer.status, answer.json["accepted"]) == (202, 1), answer
        if state is not None:
            await self.comes_to(name, lambda story: state_of(story) == state)


def state_of(story: Any, kind: str = "turn") -> str | None:
    return next((lane["state"] for lane in story["lanes"] if lane["kind"] == kind), None)


def outcomes(story: Any) -> list[str]:
    return [turn["outcome"] for turn in story["turns"]]


def deliveries(story: Any) -> list[tuple[str, str]]:
    return [(each["text"], each["state"]) for each in story["deliveries"]]


def written_down(console: Console) -> set[str]:
    """The last word of each change that the server told of."""
    acted = [line["action"] for line in console.process.lines if line.get("event") == "operator.acted"]
    return {action.rpartition("/")[2] for action in acted}
