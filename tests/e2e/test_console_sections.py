"""The other sections of the console, on every store: what they show, and that each button does what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import pytest
from tests.e2e.browser import PROGRAM, Browser
from tests.e2e.console import LANES, Console, World, deliveries, outcomes, state_of, written_down
from tests.e2e.site import SECRET, Site, eventually
from tests.transcripts.written import SESSION, answered, said, text

from turnlane.testing.outside import ask
from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

BUDGET = "\n[budgets.day]\ntokens = 100000\n"
ALERT = {"alert": "DeadLetters", "severity": "critical", "since": "2026-11-16T03:00:00Z", "value": 3, "threshold": 1}
LOCK = {
    "conversation": "site/old",
    "kind": "turn",
    "worker": "w",
    "epoch": 1,
    "since": "2026-11-16T03:00:00Z",
    "worker_alive_until": "2126-01-01T00:00:00Z",
}
SAYS_SO = """
const fetched = window.fetch;
const said = %s;
const answered = async (path) => new Response(JSON.stringify(said[path]));
window.fetch = (path, how) => path in said ? answered(path) : fetched(path, how);
"""
"""Answers these in the server's place."""


@pytest.fixture
async def outside() -> AsyncIterator[World]:
    world = World()
    async with world:
        yield world


@pytest.fixture
async def console(site: Site, browser: Browser, store: str) -> Console:
    site.configure(top=f'backend = "{store}"', lanes=LANES + BUDGET, lease=10)
    return await Console.opened(browser, site, await site.start())


async def test_each_button_of_the_sections_does_what_it_says(console: Console, outside: World) -> None:
    await decides_about_dead_letters(console, outside)
    await decides_about_the_outbox(console, outside)
    await keeps_schedules(console)
    await changes_settings(console)
    await renews_a_session(console)
    await shows_who_holds_what(console, outside)
    await shows_what_is_wrong(console)
    await shows_what_was_used(console)
    await shows_transcripts(console)
    await shows_trouble_and_offers_nothing_to_who_may_only_look(console)
    pressed = {"retry", "drop", "resend", "schedules", "fire", "pause", "resume", "remove", "lanes.max_batch", "renew"}
    assert pressed <= written_down(console)


async def decides_about_dead_letters(console: Console, outside: World) -> None:
    for name in ("ann", "bob"):
        await console.says(name, "impossible", state="idle")
    await console.go("deadletters")
    await console.shows("out of order")
    await console.press("drop", row="site/bob")
    outside.well = True
    await console.press("requeue", row="site/ann")
    await console.comes_to("ann", lambda story: outcomes(story) == ["retried", "answered"])
    outside.well = False
    assert outcomes(await console.told("bob")) == ["dropped"]
    assert (await console.api("deadletters"))["dead_letters"] == []
    await console.shows("No dead letters.")


async def decides_about_the_outbox(console: Console, outside: World) -> None:
    for name in ("cleo", "dora"):
        await console.says(name, "unwanted", state="idle")
        await console.comes_to(name, lambda story: deliveries(story) == [("re: unwanted", "failed")])
    await console.go("outbox", "failed")
    await console.press("drop", row="site/dora")
    await console.comes_to("dora", lambda story: deliveries(story) == [("re: unwanted", "dropped")])
    outside.well = True
    await console.press("resend", row="site/cleo")
    await console.comes_to("cleo", lambda story: deliveries(story) == [("re: unwanted", "sent")])
    outside.well = False
    await held(console, "eve")
    await console.go("outbox", "queued")
    await console.shows("held")
    outside.well = True
    await console.press("resend", row="site/eve")
    await console.comes_to("eve", lambda story: deliveries(story) == [("re: cut", "sent")])
    outside.well = False
    await held(console, "fay")
    await console.press("drop", row="site/fay")
    await console.comes_to("fay", lambda story: deliveries(story) == [("re: cut", "dropped")])
    await console.go("outbox", "dropped")
    await console.shows("site/fay")


async def held(console: Console, name: str) -> None:
    """A reply that was cut twice, so that nobody can tell whether it arrived."""
    await console.says(name, "cut", state="idle")
    await console.comes_to(name, lambda story: state_of(story, "out") == "waiting")
    await ask(f"{console.url}api/conversations/site%2F{name}/retry", {"outbox": True})
    await console.comes_to(name, lambda story: state_of(story, "out") == "parked")


async def keeps_schedules(console: Console) -> None:
    await console.go("schedules")
    await console.shows("No schedules.")
    fields = {"name": "pulse", "conversation": "site/gus", "prompt": "Any news?"}
    await console.begin("add")
    await console.fill(**fields, cron="never")
    await console.page.click("#confirm button[type=submit]")
    await console.page.until("document.querySelector('#confirm .trouble').textContent.includes('has not five fields')")
    await console.page.press("Escape")
    assert await schedules(console) == []
    await console.press("add", **fields, every="2h")
    assert await schedules(console) == [("pulse", "waiting")]
    await console.press("fire", row="pulse")
    await console.comes_to("gus", lambda story: ("re: Any news?", "sent") in deliveries(story))
    await console.press("pause", row="pulse")
    assert await schedules(console) == [("pulse", "paused")]
    await console.press("resume", row="pulse")
    assert await schedules(console) == [("pulse", "waiting")]
    await console.press("remove", row="pulse")
    assert await schedules(console) == []


async def schedules(console: Console) -> list[tuple[str, str]]:
    return [(each["name"], each["state"]) for each in (await console.api("schedules"))["schedules"]]


async def changes_settings(console: Console) -> None:
    await console.go("settings")
    await console.begin("change", row="lanes.max_batch")
    await console.fill(value="many")
    await console.page.press("Enter")
    await console.page.until("document.querySelector('#confirm .trouble').textContent.includes('max_batch')")
    await console.page.press("Escape")
    assert await setting(console, "lanes.max_batch") == (50, "default")
    await console.press("change", row="lanes.max_batch", value="7")
    assert await setting(console, "lanes.max_batch") == (7, "stored")
    await console.press("unset", row="lanes.max_batch")
    assert await setting(console, "lanes.max_batch") == (50, "default")


async def setting(console: Console, name: str) -> tuple[Any, str]:
    (found,) = [each for each in (await console.api("settings"))["settings"] if each["name"] == name]
    return found["value"], found["source"]


async def renews_a_session(console: Console) -> None:
    await console.go("sessions")
    await console.press("renew", row="site/ann")
    assert (await console.told("ann"))["sessions"] == {}


async def shows_who_holds_what(console: Console, outside: World) -> None:
    await console.says("hal", "slow", state="running")
    await console.go("locks")
    await console.shows("site/hal")
    (lock,) = (await console.api("locks"))["locks"]
    await console.shows(lock["worker"])
    await console.go("workers")
    await console.shows(lock["worker"])
    await console.shows("live")
    outside.go_on.set()
    await console.go("locks")
    await console.shows("Nothing is held.")


async def shows_what_is_wrong(console: Console) -> None:
    raised = (await console.api("alerts"))["alerts"]
    await console.go("alerts")
    await console.page.until("document.querySelector('.table').offsetHeight > 0")
    assert await console.page.run("document.querySelector('.trouble').textContent") == ""
    for alert in raised:
        await console.shows(alert["next_step"])


async def shows_what_was_used(console: Console) -> None:
    (used,) = (await console.api("usage?by=day"))["usage"]
    await console.go("usage", "7")
    await console.shows(f"{used['input_tokens']:,}")
    await console.shows("budgets.day.tokens")
    assert await console.page.run("document.querySelectorAll('.plot g').length") == 3 * 7
    by_user = "[...document.querySelectorAll('table')].find((each) => each.caption.textContent === 'By user')"
    await console.page.run(f"{by_user}.querySelector('th button').click(), null")
    names = await console.page.run(f"[...{by_user}.querySelectorAll('td:first-child')].map((each) => each.textContent)")
    assert names == sorted(names)
    assert await console.page.run(f"{by_user}.querySelector('th').ariaSort") == "ascending"


async def shows_transcripts(console: Console) -> None:
    await console.go("transcripts")
    await console.shows("No transcripts.")
    await take_in(console.site, said("Where is the harbour?"), answered(text("By the sea.")))
    await console.go("transcripts")
    await console.shows("Where is the harbour?")
    await console.page.run("document.querySelector('#find').value = 'sea', null")
    await console.page.click("[data-act=search]")
    await console.page.until("document.querySelector('mark')?.textContent === 'sea'")
    await console.go("transcripts", SESSION)
    await console.shows("By the sea.")


async def take_in(site: Site, *lines: bytes) -> None:
    folder = site.folder / "projects" / "-home-user-proj"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{SESSION}.jsonl").write_bytes(b"".join(lines))
    async with Turnlane("transcripts", "import", str(folder), folder=site.folder) as command:
        assert await command.ended() == 0, command.last_words


async def shows_trouble_and_offers_nothing_to_who_may_only_look(console: Console) -> None:
    alert = {**ALERT, "text": "3 dead <b data-xss>letters</b>", "next_step": "look at <i data-xss>them</i>"}
    over = {**ALERT, "text": "over now", "cleared_at": "2026-11-16T03:05:00Z"}
    said = {
        "/api/me": {"role": "viewer", "csrf": None, "open": True},
        "/api/alerts": {"alerts": [alert], "recent": [over]},
        "/api/locks": {"locks": [LOCK, {**LOCK, "conversation": "site/new", "since": "2126-01-01T00:00:00Z"}]},
    }
    before = SAYS_SO % json.dumps(said)
    other = await Console.opened(console.browser, console.site, console.process, before=before)
    await other.story("ann")
    await other.shows("re: impossible")
    assert await other.page.run("document.querySelectorAll('[data-act=pause]').length") == 1
    assert (
        await other.page.run("[...document.querySelectorAll('#main [data-act]:not(:disabled):not(.older)')].length")
        == 0
    )
    await other.go("alerts")
    for seen in ("critical", alert["text"], alert["next_step"], "3 of 1", "over now"):
        await other.shows(str(seen))
    await other.go("locks")
    marks = "[...document.querySelectorAll('tbody tr')].map((each) => each.lastChild.textContent).join()"
    await other.page.until(f"{marks} === 'over 5 min,fine'")
    await other.go("settings")
    await other.shows("lanes.max_batch")
    assert await other.page.run("[...document.querySelectorAll('#main [data-act]:not(:disabled)')].length") == 0


# Markup in whatever others wrote

NOTICED = "window.__pwned = 1"
CORPUS = [
    f"<script data-xss>{NOTICED}</script>",
    f"</script><script data-xss>{NOTICED}</script>",
    f'"><script data-xss>{NOTICED}</script>',
    f"<img data-xss src=x onerror={json.dumps(NOTICED)}>",
    f"'\"><img data-xss src=x onerror='{NOTICED}'>",
    f"<svg data-xss onload='{NOTICED}'></svg>",
    f"<svg data-xss><script>{NOTICED}</script></svg>",
    f"<math data-xss><mtext><table><mglyph><style><img src onerror='{NOTICED}'>",
    f"<iframe data-xss srcdoc='<script>parent.{NOTICED}</script>'></iframe>",
    f"<iframe data-xss src='javascript:parent.{NOTICED}'></iframe>",
    f"<a data-xss href='javascript:{NOTICED}'>press me</a>",
    f"javascript:{NOTICED}//",
    f"data:text/html,<script data-xss>{NOTICED}</script>",
    f"[press me](javascript:{NOTICED})",
    f"<details data-xss open ontoggle='{NOTICED}'>",
    f"<body data-xss onload='{NOTICED}'>",
    f"<input data-xss autofocus onfocus='{NOTICED}'>",
    f"<style data-xss>@import 'javascript:{NOTICED}'; body {{ display: none }}</style>",
    "<link data-xss rel=stylesheet href=//evil.example/x.css>",
    "<base data-xss href=//evil.example/>",
    "<meta data-xss http-equiv=refresh content='0;url=//evil.example'>",
    "<form data-xss action=//evil.example><button>go</button></form>",
    "</bdi></p></article></main></body></html><h1 data-xss>mine</h1>",
    "</template></textarea></title></noscript><b data-xss>mine</b>",
    "<!--><b data-xss>mine</b>-->",
    "<![CDATA[<b data-xss>mine</b>]]>",
    f"${{{NOTICED}}} {{{{{NOTICED}}}}} #{{{NOTICED}}} <%= {NOTICED} %>",
    "&lt;b data-xss&gt;mine&lt;/b&gt; &#60;b&#62; &amp;amp; &quot;",
    '\\u003cscript\\u003e \\x3cscript\\x3e \\"}],"__proto__":{"polluted":true}',
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200f\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\u0007bell \u001b[31mred\u001b[0m \u2028line \u2029paragraph \ufeffmark",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 z\u0351\u036b\u0343\u036a\u0302a\u0321 \uff1cscript\uff1e",
    "%3Cscript%3E %253Cscript%253E %00 %ZZ",
    "x" * 50_000,
    "<b data-xss>" * 2_000,
]
SHORT = [each for each in CORPUS if len(each) < 150]
PLANTED = {
    "lanes": [],
    "alerts": [],
    "deadletters": [CORPUS[0], f"site/fails {CORPUS[3]}"],
    "locks": [f"site/holds {CORPUS[3]}"],
    "workers": [CORPUS[3]],
    "schedules": [SHORT[1], f"site/{SHORT[0]}"],
    "usage": [SHORT[0]],
    "sessions": [CORPUS[5], *(f"site/{each}" for each in SHORT)],
    "settings": SHORT[:1],
    "outbox/failed": [CORPUS[5], f"site/u {CORPUS[0]}"],
    "outbox/sent": [CORPUS[0], CORPUS[3]],
    "transcripts": [SHORT[0]],
}
"""What must be seen in each section, by its address."""
FITS = "document.querySelector('#main').scrollWidth <= document.querySelector('#main').clientWidth"
MADE_OF_IT = (
    "document.querySelectorAll('[data-xss], #main script, #main img, #main iframe, #main math, #main style, #main link,"
    " #main base, #main meta, #main h1, #main [onload], #main [onerror], #main [href^=javascript]').length"
)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_whatever_others_wrote_is_shown_as_text(site: Site, browser: Browser, outside: World, store: str) -> None:
    outside.cause, outside.receipt, outside.session = CORPUS[3], CORPUS[0], CORPUS[5]
    site.configure(top=f'backend = "{store}"\nmachine = {json.dumps(CORPUS[3])}', lanes=LANES, lease=10)
    with (site.folder / "turnlane.toml").open("a") as settings:
        settings.write(f'\n[agents.other]\nkind = "command"\ncommand = {json.dumps(["echo", *SHORT[:4]])}\n')
        settings.write('\n[[routes]]\nchannel = "site"\nagent = "only"\n')
    console = await Console.opened(browser, site, await site.start())
    await console.page.becomes(390, 844, phone=True)
    await plant(console, outside)
    for section, texts in PLANTED.items():
        await shown_as_text(console, *section.split("/"), texts=texts)
    await shown_as_text(console, "transcripts", SESSION, texts=[each for each in SHORT if "\x1b" not in each])
    await shown_as_text(console, "conversation", "site/texts", texts=[*CORPUS, "file: " + CORPUS[4]])
    for name in SHORT:
        await shown_as_text(console, "conversation", await key_of(console, name), texts=[name])
    outside.go_on.set()
    await console.page.run("location.hash = '#/conversation/%ZZ', null")  # typed by hand, it is no address at all
    await console.shows("no conversation")
    await asks_about_it_as_text(console)
    await would_be_noticed(console)


async def plant(console: Console, outside: World) -> None:
    said_there: list[dict[str, Any]] = [
        {"id": f"t{place}", "conversation": "texts", "text": each, "sender": SHORT[place % len(SHORT)]}
        for place, each in enumerate(CORPUS)
    ]
    said_there[0]["attachments"] = [{"url": "https://files.example/x", "name": CORPUS[4], "media_type": CORPUS[5]}]
    named = [{"id": f"n{place}", "conversation": each, "text": "hello"} for place, each in enumerate(SHORT)]
    failing = [{"id": "f1", "conversation": f"fails {CORPUS[3]}", "text": f"impossible {CORPUS[0]}"}]
    asking = [{"id": "a1", "conversation": "asking", "text": f"asks {CORPUS[3]}"}]
    unwanted = [{"id": "u1", "conversation": f"u {CORPUS[0]}", "text": f"unwanted {CORPUS[5]}"}]
    slow = [{"id": "s1", "conversation": f"holds {CORPUS[3]}", "text": "slow"}]
    everything = [*said_there, *named, *failing, *asking, *unwanted, *slow]
    answer = await ask(f"{console.url}channels/site", everything, secret=SECRET)
    assert answer.status == 202, answer
    schedule = {"name": "pulse", "conversation": f"site/{SHORT[0]}", "prompt": SHORT[1], "every": "1d"}
    assert (await ask(f"{console.url}api/schedules", schedule)).status == 200
    told = {"text": CORPUS[3], "sender": CORPUS[5]}
    assert (await ask(f"{console.url}api/conversations/site%2Ftexts/say", told)).status == 200
    lines = [said(each, cwd=f"/home/{SHORT[0]}", gitBranch=SHORT[2]) for each in SHORT]
    await take_in(console.site, *lines, answered(text(CORPUS[3]), model=CORPUS[0]))
    await console.comes_to("asking", lambda story: state_of(story) == "waiting")
    await console.comes_to(f"u {CORPUS[0]}", lambda story: "failed" in [state for _, state in deliveries(story)])


async def key_of(console: Console, name: str) -> str:
    lanes = (await console.api("lanes?limit=1000"))["lanes"]
    (key,) = [each["conversation"] for each in lanes if unquote(each["conversation"]) == f"site/{name}"]
    return str(key)


async def shown_as_text(console: Console, section: str, *rest: str, texts: list[str] = []) -> None:  # noqa: B006
    await console.go(section, *rest)
    for each in texts:
        await console.page.until(f"document.querySelector('#main').textContent.includes({json.dumps(each)})")
    assert await console.page.run(MADE_OF_IT) == 0, section
    assert section == "lanes" or await console.page.run(FITS), f"{section} is wider than a phone"
    assert await console.page.run("window.__pwned === undefined && ({}).polluted === undefined"), section
    assert console.browser.complaints == [], section


async def asks_about_it_as_text(console: Console) -> None:
    """Confirmations and refusals repeat what others wrote."""
    await console.go("deadletters")
    await console.begin("requeue")
    assert CORPUS[3] in await console.page.run("document.querySelector('#confirm').textContent")
    await console.page.press("Escape")
    await console.story("asking")
    await console.begin("answer yes")
    assert CORPUS[3] in await console.page.run("document.querySelector('#confirm').textContent")
    assert await console.page.run("document.querySelectorAll('[data-xss]').length") == 0
    assert console.browser.complaints == []


async def would_be_noticed(console: Console) -> None:
    """The same put in as markup: else this test would prove nothing."""
    markup = json.dumps("".join(CORPUS[:6]))
    await console.page.run(f"document.querySelector('#main').innerHTML = {markup}, null")
    assert await console.page.run(MADE_OF_IT) >= 6

    async def complained() -> bool:
        return console.browser.complaints != []

    await eventually(complained)
    console.browser.complaints.clear()
