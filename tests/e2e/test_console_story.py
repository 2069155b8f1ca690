"""A conversation's story in the console, on every store: what it shows, and that each button does what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from tests.e2e.browser import PROGRAM, Browser
from tests.e2e.console import LANES, Console, World, deliveries, outcomes, state_of, written_down
from tests.e2e.site import SECRET, Site
from tests.e2e.test_login import OPERATOR, is_at, log_in, started

from turnlane.testing.outside import ask

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")


@pytest.fixture
async def outside() -> AsyncIterator[World]:
    world = World()
    async with world:
        yield world


@pytest.fixture
async def console(site: Site, browser: Browser, store: str) -> Console:
    site.configure(top=f'backend = "{store}"', lanes=LANES, lease=10)
    return await Console.opened(browser, site, await site.start())


async def test_each_button_of_a_story_does_what_it_says(console: Console, outside: World) -> None:
    await pauses_for_a_while_and_resumes(console)
    await refuses_in_the_servers_words(console)
    await answers_by_hand(console, outside)
    await answers_a_question(console)
    await retries_what_failed(console)
    await skips_what_runs(console, outside)
    await stops_what_waits(console)
    await begins_a_new_session_and_behaves_otherwise(console)
    await decides_about_deliveries(console, outside)
    await steers_the_outbox(console, outside)
    pressed = {"pause", "resume", "say", "answer", "retry", "skip", "stop", "renew", "policy", "resend", "drop"}
    assert pressed <= written_down(console)


async def pauses_for_a_while_and_resumes(console: Console) -> None:
    await console.says("ann", "hello", state="idle")
    await console.story("ann")
    await console.shows("re: hello")
    assert not await console.enabled("resume")
    await console.press("pause", **{"for": "2h"})
    lane = await console.lane("ann")
    assert (lane["state"], lane["paused_until"] is not None) == ("paused", True)
    await console.says("ann", "anybody?")
    await console.shows("The agent is silent until")
    await console.shows("anybody?")
    await console.press("resume")
    await console.comes_to("ann", lambda story: outcomes(story) == ["answered", "answered"])
    await console.shows("re: anybody?")
    await console.shows("1,280 tokens")
    marks = "[...document.querySelectorAll('.alone .event')].map((each) => each.textContent).join()"
    await console.page.until(f"{marks} === 'paused,resumed'")


async def refuses_in_the_servers_words(console: Console) -> None:
    await console.begin("pause")
    await console.fill(**{"for": "soon"})
    await console.page.press("Enter")
    await console.page.until(
        "document.querySelector('#confirm .trouble').textContent.includes('for must be a duration')"
    )
    await console.page.press("Escape")
    await console.page.until("!document.querySelector('#confirm').open")
    assert await console.page.run("document.activeElement.dataset.act") == "pause"
    assert (await console.lane("ann"))["state"] == "idle"


async def answers_by_hand(console: Console, outside: World) -> None:
    await console.says("bob", "help", state="idle")
    await console.story("bob")
    await console.page.run("document.querySelector('#by-hand').focus(), null")
    await console.page.type("Anna here")
    await console.says("bob", "more", state="idle")
    await console.shows("re: more")
    typed = "[document.activeElement.id, document.activeElement.value]"
    assert await console.page.run(typed) == ["by-hand", "Anna here"]  # what came meanwhile took nothing away
    await console.press("say")
    story = await console.comes_to("bob", lambda story: ("Anna here", "sent") in deliveries(story))
    assert state_of(story) == "paused"
    assert await console.page.run("document.querySelector('#by-hand').value") == ""
    await console.shows("operator · by hand")
    await console.page.click("#takes-over")
    await console.press("resume")
    await console.page.run("document.querySelector('#by-hand').focus(), null")
    await console.page.type("and still here")
    await console.press("say")
    story = await console.comes_to("bob", lambda story: ("and still here", "sent") in deliveries(story))
    assert state_of(story) != "paused"
    assert "and still here" in [reply.text for reply in outside.replies]


async def answers_a_question(console: Console) -> None:
    await console.says("cleo", "asks to deploy", state="waiting")
    await console.story("cleo")
    await console.shows("waits for the answer to its question")
    await console.press("answer no")
    await console.comes_to("cleo", lambda story: ("re: asks to deploy (no)", "sent") in deliveries(story))
    await console.shows("answered no by operator")
    await console.says("cleo", "asks when", state="waiting")
    await console.press("answer", text="on Monday")
    await console.comes_to("cleo", lambda story: ("re: asks when (on Monday)", "sent") in deliveries(story))


async def retries_what_failed(console: Console) -> None:
    await console.says("dora", "fails", state="waiting")
    await console.story("dora")
    await console.shows("out of order")
    await console.press("retry")
    story = await console.comes_to("dora", lambda story: outcomes(story) == ["dead_letter"])
    assert story["turns"][0]["attempt"] == 2
    await console.shows("given up on")


async def skips_what_runs(console: Console, outside: World) -> None:
    await console.says("eve", "slow", state="running")
    await console.story("eve")
    await console.shows("Turn 1 runs on")
    await console.press("skip")
    await console.comes_to("eve", lambda story: outcomes(story) == ["dead_letter"])
    outside.go_on.set()


async def stops_what_waits(console: Console) -> None:
    await console.says("fay", "fails", state="waiting")
    await console.story("fay")
    await console.press("stop")
    story = await console.comes_to("fay", lambda story: state_of(story) == "idle")
    assert story["lanes"][0]["pending"] == 0
    await console.shows("nothing waits")


async def begins_a_new_session_and_behaves_otherwise(console: Console) -> None:
    await console.story("ann")
    assert (await console.told("ann"))["sessions"] != {}
    await console.press("renew")
    assert (await console.told("ann"))["sessions"] == {}
    await console.press("policy", on_busy="reject")
    assert (await console.lane("ann"))["on_busy"] == "reject"
    await console.press("policy", on_busy="")
    assert (await console.lane("ann"))["on_busy"] is None


async def decides_about_deliveries(console: Console, outside: World) -> None:
    await console.says("gus", "unwanted", state="idle")
    await console.comes_to("gus", lambda story: deliveries(story) == [("re: unwanted", "failed")])
    await console.story("gus")
    await console.press("drop")
    await console.comes_to("gus", lambda story: deliveries(story) == [("re: unwanted", "dropped")])
    outside.well = True
    await console.press("resend")
    await console.comes_to("gus", lambda story: deliveries(story) == [("re: unwanted", "sent")])
    await console.shows("receipt r-1")
    outside.well = False
    await console.says("hal", "cut", state="idle")
    await console.comes_to("hal", lambda story: state_of(story, "out") == "waiting")
    await console.story("hal")
    await console.press("outbox-retry")
    await console.comes_to("hal", lambda story: state_of(story, "out") == "parked")
    await console.shows("it may have arrived, and nobody can tell")
    outside.well = True
    await console.press("resend")
    await console.comes_to("hal", lambda story: deliveries(story) == [("re: cut", "sent")])
    outside.well = False


async def steers_the_outbox(console: Console, outside: World) -> None:
    await console.says("ida", "later 1", state="idle")
    await console.comes_to("ida", lambda story: state_of(story, "out") == "waiting")
    await console.story("ida")
    await console.press("outbox-skip")
    await console.comes_to("ida", lambda story: deliveries(story) == [("re: later 1", "failed")])
    await console.press("outbox-pause", **{"for": ""})
    await console.says("ida", "later 2", state="idle")
    await console.shows("Sending is paused until somebody resumes it; 1 delivery waiting.")
    await console.press("outbox-resume")
    await console.comes_to("ida", lambda story: state_of(story, "out") == "waiting")
    outside.well = True
    await console.press("outbox-retry")
    await console.comes_to("ida", lambda story: deliveries(story)[1] == ("re: later 2", "sent"))
    outside.well = False


async def test_whoever_has_logged_in_presses_buttons_too(site: Site, browser: Browser) -> None:
    process = await started(site)
    url = await process.ready()
    page = await browser.open(f"{url}console#/conversation/site%2Falice")
    await log_in(page, OPERATOR)
    await page.until(is_at("/console#/conversation/site%2Falice"))
    console = Console(page, browser, site, process, url)
    await console.press("pause", **{"for": ""})
    await console.shows("silent until somebody resumes it")
    await process.said("operator.acted", by="console")


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_long_story_is_told_from_its_end_and_what_is_read_stays_in_place(console: Console) -> None:
    said = [{"id": f"m{number}", "conversation": "zoe", "text": f"word {number}"} for number in range(130)]
    assert (await ask(f"{console.url}channels/site", said, secret=SECRET)).status == 202
    await console.comes_to("zoe", lambda story: state_of(story) == "idle" and len(story["turns"]) == 3)
    await console.story("zoe")
    words = "[...document.querySelectorAll('.theirs .words')].map((each) => each.textContent)"
    assert (await console.page.run(words))[0] == "word 30"
    assert await console.page.run("document.querySelector('#main').scrollTop > 0")
    await console.page.run("document.querySelector('#main').scrollTop = 0, null")
    place = "[...document.querySelectorAll('.theirs .words')].find((each) => each.textContent === 'word 60')"
    top = f"Math.round({place}.getBoundingClientRect().top)"
    before = await console.page.run(top)
    await console.page.click(".older")
    await console.page.until(f"{words}[0] === 'word 0'")
    await console.page.until(f"Math.abs({top} - {before}) < 3")
    assert await console.page.run("document.querySelector('.older').hidden")


def lane(kind: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "state": "idle", "pending": 0, "done_seq": 0, "claim_seq": 0, "number": 0, **more}


def at(second: int) -> str:
    return f"2026-11-16T03:00:{second:02}.000Z"


def turn(number: int, first: int, last: int, outcome: str) -> dict[str, object]:
    return {"number": number, "first": first, "last": last, "outcome": outcome, "started_at": at(last)}


def message(seq: int, text: str, role: str = "person") -> dict[str, object]:
    return {"seq": seq, "text": text, "role": role, "sender": "x", "accepted_at": at(seq)}


def delivery(seq: int, text: str, *, turn: int | None, kind: str = "reply", state: str = "sent") -> dict[str, object]:
    return {"id": f"d{seq}", "seq": seq, "text": text, "turn": turn, "kind": kind, "state": state, "queued_at": at(40)}


STORY: dict[str, object] = {
    "lanes": [
        lane("turn", state="running", number=4, done_seq=5, claim_seq=6, claimed_at=at(9), owner="w"),
        lane("out", state="parked", pending=2, done_seq=3, claim_seq=4, number=4),
    ],
    "messages": [
        *(message(1, "superseded"), message(2, "and answered"), message(3, "given up"), message(4, "/status")),
        *(message(5, "by hand", "operator"), message(6, "runs now"), message(7, "waits")),
    ],
    "turns": [turn(1, 1, 1, "superseded"), turn(2, 1, 2, "answered"), turn(3, 3, 3, "dead_letter")],
    "attempts": [
        {"kind": "turn", "number": 4, "attempt": 1, "at": at(8), "result": "lost"},
        {"kind": "out", "number": 4, "attempt": 1, "at": at(41), "result": "retried"},
    ],
    "deliveries": [
        *(delivery(1, "an answer", turn=2), delivery(2, "by hand", turn=None, kind="operator")),
        *(delivery(3, "sure?", turn=4, kind="question"), delivery(4, "held", turn=2, state="queued")),
        delivery(5, "behind it", turn=2, state="queued"),
    ],
    "questions": [{"turn": 4, "asked_at": at(9), "answer": None, "question": {"text": "sure?", "options": []}}],
    "outcomes": {"4": "command", "5": "heard"},
    "sessions": {},
}
TOLD = """
import("/console/story.js").then(({ timeline }) => timeline(%s).map((each) => each.kind !== "turn"
  ? [each.kind, (each.message ?? each.delivery).text, each.outcome ?? each.delivery.sender]
  : [each.number, each.state, each.messages.map(({ text }) => text), each.attempts.map(({ result }) => result),
     each.deliveries.map(({ text, held }) => [text, held]),
     each.questions.map(({ open, delivery }) => [open, delivery.id])]
))
"""


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_everything_stands_in_the_turn_it_belongs_to(console: Console) -> None:
    assert await console.page.run(TOLD % json.dumps(STORY)) == [
        [1, "superseded", [], [], [], []],
        [
            2,
            "answered",
            ["superseded", "and answered"],
            [],
            [["an answer", False], ["held", True], ["behind it", False]],
            [],
        ],
        [3, "dead_letter", ["given up"], [], [], []],
        ["message", "/status", "command"],
        [4, "running", ["runs now"], ["lost"], [], [[True, "d3"]]],
        [None, "waits", ["waits"], [], [], []],
        ["delivery", "by hand", "x"],
    ]
