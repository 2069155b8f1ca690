"""A conversation's story in the console, on every store: what it shows, and that each button does what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.browser import PROGRAM, Browser
from tests.e2e.console import LANES, Console, World, deliveries, outcomes, state_of
from tests.e2e.site import Site

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")


@pytest.fixture(params=["sqlite", "postgres", "nats"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue(request.param))


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
