"""The chat page in a real browser: typed, reloaded, cut off, and answered once."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.e2e.browser import PROGRAM, Browser, Page
from tests.e2e.site import Site

from turnlane.model.notice import FULL, PAUSED, STOPPED, status
from turnlane.testing.outside import Call, Outside, ask
from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

WEB = '[channels.web]\nkind = "web"\n'
CONNECTED = "document.querySelector('#connection').dataset.state === 'connected'"
LOST = "document.querySelector('#connection').dataset.state === 'lost'"
LONG_BEFORE_SILENCE_IS_NOTICED = 20
ANSWERING = "!document.querySelector('#answering').hidden"


async def start(
    site: Site,
    verb: str = "run",
    *,
    debounce: str = "300ms",
    command: Sequence[str] | None = None,
    web: str = "",
    lanes: str = "",
    port: int = 0,
) -> Turnlane:
    """On a port that stays the same over restarts, as the page comes back to where it was served from."""
    site.configure(debounce=debounce, lanes=f'backoff = {{ first = "10ms" }}\n{lanes}', command=command)
    with (site.folder / "turnlane.toml").open("a") as settings:
        settings.write(WEB + web)
    process = await site.begin(verb, "--listen", f"127.0.0.1:{port or free_port()}")
    await process.ready()
    return process


def free_port() -> int:
    """Below those that the system hands out by itself, so that nobody is given it while the server is away."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port
    raise AssertionError("no port is free below 32000")


async def opened(browser: Browser, process: Turnlane) -> Page:
    page = await browser.open(await process.ready())
    await page.until(CONNECTED)
    return page


async def say(page: Page, *lines: str) -> None:
    for line in lines:
        await page.type(line)
        await page.press("Enter")


async def shows(page: Page, *lines: str) -> None:
    """These and no others, in this order."""
    said = "[...document.querySelectorAll('.words')].map((each) => each.textContent)"
    await page.until(f"JSON.stringify({said}) === JSON.stringify({json.dumps(lines)})")


def gate(outside: Outside) -> asyncio.Event:
    """The agent answers once this is set."""
    opened = asyncio.Event()

    async def respond(call: Call) -> str:
        await opened.wait()
        return " + ".join(call.texts)

    outside.respond = respond
    return opened


async def test_three_lines_typed_quickly_give_one_answer(site: Site, outside: Outside, browser: Browser) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site, debounce="1s"))
    await say(page, "hi", "one more thing", "sorry, I meant Tuesday")
    await page.until(ANSWERING)
    answered.set()
    await shows(page, "hi", "one more thing", "sorry, I meant Tuesday", "hi + one more thing + sorry, I meant Tuesday")
    await page.until(f"!({ANSWERING})")
    assert len(outside.calls) == 1


async def test_who_is_typing_is_waited_for(site: Site, outside: Outside, browser: Browser) -> None:
    page = await opened(browser, await start(site, debounce="3s"))
    await say(page, "hello")
    for letter in "and then":
        await page.type(letter)
        await asyncio.sleep(0.6)  # waits: as a person does between two letters; all of it takes longer than the window
    assert outside.calls == []
    await page.press("Enter")
    await shows(page, "hello", "and then", "hello + and then")


async def test_an_answer_by_hand_is_marked_and_ends_the_waiting(site: Site, outside: Outside, browser: Browser) -> None:
    gate(outside)
    process = await start(site)
    page = await opened(browser, process)
    await say(page, "help")
    await page.until(ANSWERING)
    (lane,) = (await site.api(process, "lanes"))["lanes"]
    said = await ask(f"{await process.ready()}api/conversations/{lane['conversation']}/say", {"text": "Anna here"})
    assert said.status == 200
    await shows(page, "help", "Anna here")
    await page.until(f"!({ANSWERING})")
    assert any("by a person" in about for about in await page.texts(".about"))
    await page.reload()
    await page.until(CONNECTED)
    await shows(page, "help", "Anna here")
    await page.until(f"!({ANSWERING})")


async def test_enter_sends_and_shift_enter_breaks_the_line(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.type("first")
    await page.press("Enter", "Shift")
    await page.type("second")
    await page.press("Enter")
    await shows(page, "first\nsecond", "first\nsecond")


async def test_a_reload_in_the_middle_keeps_everything(site: Site, outside: Outside, browser: Browser) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site))
    await say(page, "are you there?")
    await outside.until(lambda: len(outside.calls) == 1)
    await page.type("half a thou")
    await page.reload()
    await page.until(ANSWERING)
    assert await page.run("document.querySelector('#text').value") == "half a thou"
    answered.set()
    await shows(page, "are you there?", "are you there?")
    await page.reload()
    await shows(page, "are you there?", "are you there?")
    assert len(outside.calls) == 1


async def test_a_server_that_is_killed_and_started_again_answers_everything_once(
    site: Site, outside: Outside, browser: Browser
) -> None:
    answered = gate(outside)
    server = await start(site)
    page = await opened(browser, server)
    await say(page, "before")
    await outside.until(lambda: len(outside.calls) == 1)
    server.kill()
    await server.ended()
    await page.until(LOST)
    await say(page, "meanwhile", "and more")
    await page.until("document.querySelector('.line:last-child .about').textContent.endsWith('kept, will be sent')")
    answered.set()
    await server.start()
    await server.ready()
    await page.until(CONNECTED)
    await page.until("document.querySelectorAll('.line.bot').length > 0")
    await page.until(f"!({ANSWERING}) && !document.querySelector('[data-state=sending], [data-state=waiting]')")
    await site.all_settled()
    assert site.rows("SELECT text FROM message ORDER BY seq") == [("before",), ("meanwhile",), ("and more",)]
    answers = [words.split(" + ") for words in await page.texts(".line.bot .words")]
    assert [text for answer in answers for text in answer] == ["before", "meanwhile", "and more"]


async def test_a_line_whose_receipt_was_lost_is_sent_again_and_stored_once(
    site: Site, outside: Outside, browser: Browser
) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site))
    await page.run(
        """{
            const real = window.fetch;
            window.posts = 0;
            window.fetch = async (...request) => {
                const answer = await real(...request);
                if (request[1]?.method === "POST" && ++window.posts === 1) throw new TypeError("cut");
                return answer;
            };
        }"""
    )
    await say(page, "once")
    await page.until("window.posts === 2")
    answered.set()
    await shows(page, "once", "once")
    assert site.rows("SELECT text FROM message") == [("once",)]


async def test_a_line_that_the_server_cannot_store_is_not_said_to_be_under_way(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.run(
        """{
            window.real = window.fetch;
            const full = { status: 507, title: "the disk is full" };
            window.fetch = async (...request) =>
                request[1]?.method === "POST" ? new Response(JSON.stringify(full), full) : window.real(...request);
        }"""
    )
    await say(page, "keep this")
    await page.until("document.querySelector('.about').textContent.endsWith('kept, will be sent')")
    assert await page.run(CONNECTED)
    await page.run("{ window.fetch = window.real; }")
    await shows(page, "keep this", "keep this")


async def test_a_line_that_the_server_refuses_stays_and_can_be_edited(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.run("document.querySelector('#text').value = 'nul: \\0'")
    await say(page, "!")
    await page.until("document.querySelector('.line')?.dataset.state === 'refused'")
    await page.reload()
    await page.until("document.querySelector('.line')?.dataset.state === 'refused'")
    await page.click(".about button")
    await shows(page)
    assert await page.run("document.querySelector('#text').value") == "nul: \0!"


async def test_an_empty_answer_says_that_it_is_one(site: Site, outside: Outside, browser: Browser) -> None:
    async def say_nothing(call: Call) -> str:
        return ""

    outside.respond = say_nothing
    page = await opened(browser, await start(site))
    await say(page, "hello?")
    await page.until("document.querySelector('.line.bot .about')?.textContent.endsWith('an empty answer') === true")
    assert await page.texts(".snippet") == ["An empty answer"]


async def test_a_message_that_is_given_up_on_does_not_wait_for_ever(
    site: Site, outside: Outside, browser: Browser
) -> None:
    async def fail(call: Call) -> str:
        raise ConnectionAbortedError

    outside.respond = fail
    server = await start(site)
    page = await opened(browser, server)
    await say(page, "poison")
    await server.said("turn.dead_lettered")
    await page.reload()
    await page.until("document.querySelector('.line').dataset.state === 'given_up'")
    assert not await page.run(ANSWERING)


# Answers that grow ---------------------------------------------------------------------------------------------------


class Teller:
    """An agent that tells an answer in three pieces, and goes on when it is told to. It is a program of its own."""

    PROGRAM = """
import json, os, sys, time
turn = json.load(sys.stdin)["turn"]
server, text = os.getppid(), "You said: " + " + ".join(message["text"] for message in turn["messages"])
for step in range(3):
    print(json.dumps({"piece": text[len(text) * step // 3 : len(text) * (step + 1) // 3]}), flush=True)
    while not os.path.exists(f"go-{step}") and os.getppid() == server:
        time.sleep(0.01)
print(json.dumps({"text": text}))
"""

    def __init__(self, folder: Path, *texts: str) -> None:
        self._folder = folder
        self._step = 0
        self.text = "You said: " + " + ".join(texts)

    @property
    def so_far(self) -> str:
        return self.text[: len(self.text) * (self._step + 1) // 3]

    def goes_on(self) -> None:
        (self._folder / f"go-{self._step}").touch()
        self._step += 1

    def ends(self) -> None:
        for step in range(3):
            (self._folder / f"go-{step}").touch()


async def telling(site: Site, browser: Browser, *lines: str) -> tuple[Page, Turnlane, Teller]:
    server = await start(site, debounce="1s", command=[sys.executable, "-c", Teller.PROGRAM])
    page = await opened(browser, server)
    await say(page, *lines)
    return page, server, Teller(site.folder, *lines)


async def shows_growing(page: Page, *lines: str) -> None:
    await shows(page, *lines)
    await page.until("document.querySelector('.line:last-child').classList.contains('partial')")
    assert not await page.run(ANSWERING)


IS_WHOLE = "document.querySelectorAll('.line').length > 0 && document.querySelectorAll('.partial').length === 0"


async def test_three_lines_typed_quickly_give_one_answer_that_is_seen_growing(site: Site, browser: Browser) -> None:
    lines = ("hi", "one more thing", "sorry, I meant Tuesday")
    page, _, teller = await telling(site, browser, *lines)
    for _ in range(3):
        await shows_growing(page, *lines, teller.so_far)
        teller.goes_on()
    await shows(page, *lines, teller.text)
    await page.until(IS_WHOLE)
    assert [(number, outcome) for _, number, outcome, _ in site.turns()] == [(1, "answered")]


async def test_after_a_reload_in_the_middle_the_answer_goes_on_growing(site: Site, browser: Browser) -> None:
    page, _, teller = await telling(site, browser, "tell me everything")
    await shows_growing(page, "tell me everything", teller.so_far)
    await page.reload()
    await shows_growing(page, "tell me everything", teller.so_far)
    teller.goes_on()
    await shows_growing(page, "tell me everything", teller.so_far)
    teller.ends()
    await shows(page, "tell me everything", teller.text)
    await page.until(IS_WHOLE)
    await page.reload()
    await shows(page, "tell me everything", teller.text)


async def test_a_server_killed_while_an_answer_grows_gives_it_once_after_the_restart(
    site: Site, browser: Browser
) -> None:
    page, server, teller = await telling(site, browser, "tell me everything")
    await shows_growing(page, "tell me everything", teller.so_far)
    teller.goes_on()
    await shows_growing(page, "tell me everything", teller.so_far)
    server.kill()
    await server.ended()
    await page.until(LOST)
    (site.folder / "go-0").unlink()
    again = Teller(site.folder, "tell me everything")
    await server.start()
    await server.ready()
    await page.until(CONNECTED)
    await shows_growing(page, "tell me everything", again.so_far)  # from the beginning: nobody remembers the other one
    again.ends()
    await shows(page, "tell me everything", again.text)
    await page.until(IS_WHOLE)
    await site.all_settled()
    assert site.rows("SELECT text, state FROM delivery") == [(again.text, "sent")]
    await page.reload()
    await shows(page, "tell me everything", again.text)


BACKLOG = """
window.drawn = 0;
const { replaceChildren } = Element.prototype;
Element.prototype.replaceChildren = function (...children) {
  if (this.className === "words") window.drawn += 1;
  return replaceChildren.apply(this, children);
};
const real = window.fetch;
window.fetch = async (address, ...more) => {
  const [, conversation] = /watch=([^:]+)/.exec(address) ?? [];
  if (!conversation) return real(address, ...more);
  const line = { conversation, from: "bot", id: "1", at: "2026-11-15T09:16:20Z", partial: true };
  const piece = (_, place) => ({ ...line, text: `${place}` });
  const all = Array.from({ length: 500 }, piece);
  const events = all.map((data) => `event: preview\\ndata: ${JSON.stringify(data)}\\n\\n`);
  const body = new Blob([events.join("")]).stream();
  return new Response(new ReadableStream({ async start(out) { for await (const part of body) out.enqueue(part); } }));
};
"""


async def test_of_many_pieces_that_come_at_once_the_last_is_drawn(site: Site, browser: Browser) -> None:
    page = await browser.open(await (await start(site)).ready(), before=BACKLOG)
    await shows(page, "499")
    assert await page.run("window.drawn") < 50


async def test_what_was_seen_of_a_stopped_answer_disappears(site: Site, browser: Browser) -> None:
    page, _, teller = await telling(site, browser, "tell me everything")
    await shows_growing(page, "tell me everything", teller.so_far)
    await say(page, "/stop")
    await shows(page, "tell me everything", "/stop", STOPPED)
    await page.until(IS_WHOLE)


ASKING = """
import json, sys
turn = json.load(sys.stdin)["turn"]
if not turn["answers"]:
    print(json.dumps({"ask": {"text": "Deploy now?", "options": ["yes", "no"]}}))
else:
    print(json.dumps({"text": f"You said {turn['answers'][0]['text']}."}))
"""
OPTIONS = "[...document.querySelectorAll('.options button')].map((each) => each.textContent).join()"


async def test_a_question_has_buttons_until_it_is_answered(site: Site, browser: Browser) -> None:
    server = await start(site, command=[sys.executable, "-c", ASKING])
    page = await opened(browser, server)
    await say(page, "deploy")
    await page.until(f"{OPTIONS} === 'yes,no'")
    await page.until(f"!({ANSWERING})")  # it is the person's turn
    await page.run("document.querySelector('.options button').focus()")
    server.kill()
    await server.ended()
    await page.until(LOST)
    await server.start()
    await server.ready()
    await page.until(CONNECTED)
    assert await page.run("document.activeElement.textContent") == "yes"
    await page.reload()
    await page.until(f"{OPTIONS} === 'yes,no'")
    await page.run("document.querySelector('.options button').focus()")
    await page.press("Enter")
    await shows(page, "deploy", "Deploy now?", "yes", "You said yes.")
    assert await page.run("document.activeElement.id") == "text"
    await page.until(f"{OPTIONS} === ''")
    await page.until(f"!({ANSWERING})")


ASKING_ONCE = ASKING.replace('"no"]', '"no"], "timeout": 1').replace("[0]['text']", "[0]['timed_out']")


async def test_a_question_that_nobody_answered_in_time_has_no_buttons_any_more(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site, command=[sys.executable, "-c", ASKING_ONCE]))
    await say(page, "deploy")
    await page.until(f"{OPTIONS} === 'yes,no'")
    await shows(page, "deploy", "Deploy now?", "You said True.")
    await page.until(f"{OPTIONS} === ''")
    await page.reload()
    await shows(page, "deploy", "Deploy now?", "You said True.")
    assert await page.run(OPTIONS) == ""


ASKING_STILL = status("asking", 0)


async def test_a_command_leaves_the_buttons_of_a_question(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site, command=[sys.executable, "-c", ASKING]))
    await say(page, "deploy")
    await page.until(f"{OPTIONS} === 'yes,no'")
    await say(page, "/status")
    await shows(page, "deploy", "Deploy now?", "/status", ASKING_STILL)
    await page.until(f"{OPTIONS} === 'yes,no'")
    await page.until(f"!({ANSWERING}) && !document.querySelector('.answering')")
    await say(page, "/pause")
    await shows(page, "deploy", "Deploy now?", "/status", ASKING_STILL, "/pause", PAUSED)
    await page.until(f"{OPTIONS} === 'yes,no'")
    await say(page, "yes")
    await page.until(f"{OPTIONS} === ''")


# What ends without an answer ------------------------------------------------------------------------------------------

PATIENT = "window.setInterval = () => 0"
"""The page would look again some day, and is not to depend on it."""


async def test_nothing_is_waited_for_once_a_command_was_obeyed(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await browser.open(await server.ready(), before=PATIENT)
    await page.until(CONNECTED)
    await say(page, "/usage")
    await page.until("document.querySelectorAll('.line[data-kind=notice]').length === 1")
    await page.until(f"!({ANSWERING}) && !document.querySelector('.answering')")


async def test_nobody_is_seen_at_work_while_the_lane_is_paused(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await browser.open(await server.ready(), before=PATIENT)
    await page.until(CONNECTED)
    await say(page, "hello")
    await shows(page, "hello", "hello")
    (lane,) = (await site.api(server, "lanes"))["lanes"]
    paused = await ask(f"{await server.ready()}api/conversations/{lane['conversation'].replace('/', '%2F')}/pause", {})
    assert paused.status == 200
    await say(page, "anybody?")
    await page.until("document.querySelector('.line:last-child').dataset.state === 'kept'")
    assert not await page.run(ANSWERING)


async def test_what_was_not_taken_says_so_and_can_be_sent_again(site: Site, outside: Outside, browser: Browser) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site, lanes='max_pending = 1\non_full = "reject"'))
    await say(page, "one")
    await outside.until(lambda: len(outside.calls) == 1)
    await say(page, "two", "three")
    await page.until("document.querySelectorAll('.line[data-state=refused]').length === 2")
    assert [about for about in await page.texts(".line.visitor .about") if "not taken" in about]
    answered.set()
    await page.until(f"document.querySelectorAll('.line[data-kind=reply]').length === 1 && !({ANSWERING})")
    await page.reload()
    await page.until("document.querySelectorAll('.line[data-state=refused]').length === 2")
    await page.click(".line:nth-last-child(1 of [data-state=refused]) .about button")
    await shows(page, "one", "two", FULL, "three", "one", "three", "three")


async def test_what_was_stopped_is_marked_as_set_aside(site: Site, outside: Outside, browser: Browser) -> None:
    gate(outside)
    page = await opened(browser, await start(site))
    await say(page, "one")
    await outside.until(lambda: len(outside.calls) == 1)
    await say(page, "/stop")
    await shows(page, "one", "/stop", STOPPED)
    await page.until("document.querySelector('.line').dataset.state === 'set_aside'")
    await page.until(f"!({ANSWERING})")


STOP = "!document.querySelector('#stop').hidden"


async def test_an_answer_is_stopped_by_a_button(site: Site, outside: Outside, browser: Browser) -> None:
    gate(outside)
    page = await opened(browser, await start(site))
    await say(page, "one")
    await outside.until(lambda: len(outside.calls) == 1)
    await page.until(STOP)
    await page.type("but first")
    await page.until(f"!({STOP}) && !document.querySelector('#send').disabled")
    await page.run("{ const text = document.querySelector('#text'); text.select(); document.execCommand('delete'); }")
    await page.until(STOP)
    await page.run("document.querySelector('#stop').focus()")
    await page.press("Enter")
    await shows(page, "one", "/stop", STOPPED)
    await page.until(f"!({STOP}) && !({ANSWERING}) && document.activeElement.id === 'text'")


async def test_without_the_command_there_is_no_button_to_stop(site: Site, outside: Outside, browser: Browser) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site, web="[commands]\nenabled = false\n"))
    await page.run("{ const real = setTimeout; window.setTimeout = (act, _, ...more) => real(act, 0, ...more); }")
    await say(page, "one")
    await outside.until(lambda: len(outside.calls) == 1)
    await page.until(ANSWERING)
    assert not await page.run(f"new Promise((done) => setTimeout(() => done({STOP}), 0))")
    answered.set()
    await shows(page, "one", "one")


async def test_two_conversations_do_not_mix_and_what_comes_elsewhere_is_marked(
    site: Site, outside: Outside, browser: Browser
) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site))
    await say(page, "apples")
    await outside.until(lambda: len(outside.calls) == 1)
    await page.press("k", "Control")
    await shows(page)
    await say(page, "pears")
    await outside.until(lambda: len(outside.calls) == 2)
    answered.set()
    await shows(page, "pears", "pears")
    await page.until("document.querySelectorAll('li.unread').length === 1 && document.title.startsWith('(1) ')")
    assert await page.texts(".unread strong") == ["apples"]
    await page.click(".unread button")
    await shows(page, "apples", "apples")
    await page.until("document.querySelectorAll('li.unread').length === 0")
    assert len({call.conversation for call in outside.calls}) == 2
    await page.reload()
    await shows(page, "apples", "apples")


async def test_two_tabs_of_one_browser_show_the_same(site: Site, outside: Outside, browser: Browser) -> None:
    answered = gate(outside)
    server = await start(site)
    one, other = await opened(browser, server), await opened(browser, server)
    await one.call("Page.bringToFront")
    await say(one, "said in one tab")
    await shows(other, "said in one tab")
    answered.set()
    await shows(one, "said in one tab", "said in one tab")
    await shows(other, "said in one tab", "said in one tab")
    assert len(outside.calls) == 1


async def test_what_is_half_written_in_one_tab_outlives_what_another_one_sends(site: Site, browser: Browser) -> None:
    server = await start(site)
    one, other = await opened(browser, server), await opened(browser, server)
    await other.type("half a thou")
    await one.call("Page.bringToFront")
    await say(one, "said in one tab")
    await shows(other, "said in one tab", "said in one tab")
    await other.reload()
    await other.until("document.querySelector('#text').value === 'half a thou'")


HIDDEN = """
const { setInterval: real } = window;
window.setInterval = (act) => real(act, 500); // it looks every few seconds; nobody waits for that here
Object.defineProperty(document, "hidden", { get: () => !window.isSeen });
"""
AS_MANY_AS_A_BROWSER_CONNECTS = 6


async def test_tabs_that_nobody_sees_leave_the_connections_to_who_does(site: Site, browser: Browser) -> None:
    server = await start(site)
    hidden = []
    for _ in range(AS_MANY_AS_A_BROWSER_CONNECTS):
        hidden.append(await browser.open(await server.ready(), before=HIDDEN))
        await hidden[-1].until("performance.getEntriesByName(location.origin + '/chat/wire.js').length === 1")
    page = await opened(browser, server)
    await page.call("Page.bringToFront")
    await say(page, "is there room?")
    await shows(page, "is there room?", "is there room?")


async def test_a_tab_that_nobody_sees_still_counts_what_is_unread(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await browser.open(await server.ready(), before=HIDDEN)
    await page.until(CONNECTED)
    await say(page, "hello")
    await page.until("document.title.startsWith('(1) ')")
    await page.run("{ window.isSeen = true; document.dispatchEvent(new Event('visibilitychange')); }")
    await page.until("!document.title.startsWith('(')")
    await shows(page, "hello", "hello")


# What one tab writes reaches the others a moment later. This one is always that moment late: it sees the list as it was
# at first, and lines to be sent only once they were.
LATE = """
let list = null;
const { getItem } = Storage.prototype;
Storage.prototype.getItem = function (name) {
  if (name.endsWith('.unsent')) return null;
  if (!name.endsWith('.conversations')) return getItem.call(this, name);
  return (list ??= getItem.call(this, name));
};
"""


async def test_a_tab_that_learns_late_what_another_wrote_shows_it_still(
    site: Site, outside: Outside, browser: Browser
) -> None:
    gate(outside)
    server = await start(site)
    one = await opened(browser, server)
    other = await browser.open(await server.ready(), before=LATE)
    await other.until(CONNECTED)
    await one.call("Page.bringToFront")
    await say(one, "said in one tab")
    await shows(other, "said in one tab")


async def test_the_page_goes_on_when_the_store_was_emptied(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await opened(browser, server)
    await say(page, "one")
    await shows(page, "one", "one")
    server.kill()
    await server.ended()
    for file in site.folder.glob("turnlane.db*"):
        file.unlink()
    await page.until(LOST)
    await server.start()
    await server.ready()
    await shows(page)
    await say(page, "two")
    await shows(page, "two", "two")


async def test_the_list_is_worked_by_keyboard(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await say(page, "older")
    await shows(page, "older", "older")
    await page.press("k", "Control")
    await say(page, "newer")
    await shows(page, "newer", "newer")
    await page.run("document.querySelector('#conversations [aria-current]').focus()")
    await page.press("ArrowDown")
    await page.press("F2")
    await page.type("Fruit")
    await page.press("Enter")
    assert await page.texts("#conversations strong") == ["newer", "Fruit"]
    await shows(page, "older", "older")
    await page.run("document.querySelector('#conversations [aria-current]').focus()")
    await page.press("Delete")
    assert await page.texts("#conversations strong") == ["newer"]
    assert await page.run("document.activeElement.closest('#conversations') !== null")  # and not nowhere
    await page.click("#removed button")
    assert await page.texts("#conversations strong") == ["newer", "Fruit"]
    await shows(page, "older", "older")


async def test_a_name_goes_to_the_conversation_for_which_it_was_written(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await say(page, "older")
    await shows(page, "older", "older")
    await page.press("k", "Control")
    await say(page, "newer")
    await shows(page, "newer", "newer")
    await page.press("F2")
    await page.type("Fruit")
    await page.press("Enter")
    assert await page.run("document.querySelector('#text').value") == ""  # the key has done what it was for
    await page.press("F2")
    await page.type("Bread")
    await page.press("ArrowDown", "Alt")
    await shows(page, "older", "older")
    assert await page.texts("#conversations strong") == ["Bread", "older"]
    await page.press("F2")
    await page.press("k", "Control")
    assert await page.texts("#conversations strong") == ["New conversation", "Bread", "older"]


async def test_an_answer_in_a_deleted_conversation_disturbs_nobody(
    site: Site, outside: Outside, browser: Browser
) -> None:
    answered = gate(outside)
    page = await opened(browser, await start(site))
    await say(page, "older")
    await page.until(ANSWERING)
    await page.press("k", "Control")
    await say(page, "newer")
    await page.until(ANSWERING)
    await page.click("#remove")
    answered.set()
    await shows(page, "older", "older")
    await site.all_settled()
    await page.click("#removed button")
    await shows(page, "newer", "newer")  # and the browser has nothing to complain of


MANY = """
const token = (place) => `conversation-${String(place).padStart(3, "0")}`;
const all = Array.from({ length: 60 }, (_, place) => ({
  token: token(place), name: `${place}`, first: "", last: null,
  after: 0, seen: 0, unread: 0, pending: [], begun: 60 - place,
}));
localStorage.setItem("turnlane.web.conversations", JSON.stringify(all));
"""


async def test_the_open_conversation_is_in_sight_however_long_the_list(site: Site, browser: Browser) -> None:
    page = await browser.open(await (await start(site)).ready(), before=MANY)
    await page.until(CONNECTED)
    place = "document.querySelector('[aria-current]').getBoundingClientRect()"
    for _ in range(30):
        await page.press("ArrowDown", "Alt")
    assert await page.texts("[aria-current] strong") == ["30"]
    await page.until(f"{place}.top > 0 && {place}.bottom < innerHeight")


async def test_a_lost_network_is_seen_at_once_and_what_is_said_meanwhile_is_sent_once(
    site: Site, outside: Outside, browser: Browser
) -> None:
    page = await opened(browser, await start(site))

    async def network(*, is_there: bool) -> None:
        rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await page.call("Network.emulateNetworkConditions", offline=not is_there, **rates)

    await page.call("Network.enable")
    await network(is_there=False)
    async with asyncio.timeout(LONG_BEFORE_SILENCE_IS_NOTICED):
        await page.until(LOST)
    await say(page, "hello?")
    await page.until("document.querySelector('.about').textContent.endsWith('kept, will be sent')")
    await network(is_there=True)
    await shows(page, "hello?", "hello?")
    assert len(outside.calls) == 1


async def test_on_a_phone_the_list_is_a_drawer(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.becomes(390, 780, phone=True)
    visible = "getComputedStyle(document.querySelector('#side')).visibility"
    await page.until(f"{visible} === 'hidden'")
    await page.click("#drawer")
    await page.until(f"{visible} === 'visible' && document.activeElement.closest('#conversations') !== null")
    await page.press("Escape")
    await page.until(f"{visible} === 'hidden' && document.activeElement.id === 'text'")


async def test_light_and_dark_follow_the_system_until_somebody_chooses(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await page.run(paper)
    await page.becomes(1000, 700, scheme="dark")
    dark = await page.run(paper)
    assert light != dark
    await page.click("#theme")
    assert await page.run(paper) == light
    await page.reload()
    assert await page.run(paper) == light
    await page.click("#theme")
    assert await page.run(paper) == dark
