"""What the chat page shows in a real browser: Markdown that is safe, files, the past, and somebody at work."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.browser import PROGRAM, Browser, Page
from tests.e2e.site import Site
from tests.e2e.test_embedded_chat import picture
from tests.e2e.test_web_chat import ANSWERING, CONNECTED, LOST, gate, opened, say, shows, start

from turnlane.testing.outside import Outside, ask

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path; install it to try the page")

# Markdown -------------------------------------------------------------------------------------------------------------

RENDERED = """
async (texts) => {
  const { rendered } = await import("/chat/markdown.js");
  return texts.map((text) => {
    const place = document.createElement("div");
    place.append(rendered(text));
    return place.innerHTML;
  });
}
"""
MARKDOWN = {
    "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
    "# Title\n## Less": "<h3>Title</h3><h4>Less</h4>",
    "**bold** *it* _it_ __bold__ ~~no~~ ***both***": (
        "<p><strong>bold</strong> <em>it</em> <em>it</em> <strong>bold</strong> <del>no</del> "
        "<strong><em>both</em></strong></p>"
    ),
    "2 * 3 * 4, snake_case_name, a ** b": "<p>2 * 3 * 4, snake_case_name, a ** b</p>",
    "**a *b* c** and `**code**`": "<p><strong>a <em>b</em> c</strong> and <code>**code**</code></p>",
    "- a\n- b\n  - c\n\nend": "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul><p>end</p>",
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "```py\na < b:\n    **c**\n```\nend": '<pre><code data-language="py">a &lt; b:\n    **c**</code></pre><p>end</p>',
    "```\nnot ended **yet": "<pre><code>not ended **yet</code></pre>",
    "> said\n> so": "<blockquote><p>said\nso</p></blockquote>",
    "a | b\n--|--:\n1 | 2": (
        '<div class="table"><table><thead><tr><th>a</th><th data-side="end">b</th></tr></thead>'
        '<tbody><tr><td>1</td><td data-side="end">2</td></tr></tbody></table></div>'
    ),
    "a | b\n--|--\n1 | more than a narrow column holds": (
        '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
        '<tbody><tr><td>1</td><td data-long="">more than a narrow column holds</td></tr></tbody></table></div>'
    ),
    "***\n": "<hr>",
    r"\*not\* <b>html</b> &amp;": "<p>*not* &lt;b&gt;html&lt;/b&gt; &amp;amp;</p>",
    "see https://a.example/x_(y). ok": (
        '<p>see <a href="https://a.example/x_(y)" target="_blank" rel="noopener noreferrer nofollow">'
        "https://a.example/x_(y)</a>. ok</p>"
    ),
    "![a cat](https://a.example/cat.png)": (
        '<p><a href="https://a.example/cat.png" target="_blank" rel="noopener noreferrer nofollow">a cat</a></p>'
    ),
}

ATTACKS = [
    "<script>hacked = 1</script>",
    "<img src=x onerror=hacked=1>",
    "<svg onload=hacked=1>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "[click](javascript:hacked=1)",
    "[click](JaVaScRiPt:hacked=1)",
    "[click](java\tscript:hacked=1)",
    "[click](&#106;avascript:hacked=1)",
    "[click](\\u0001javascript:hacked=1)",
    "[click]( javascript:hacked=1)",
    "[click](data:text/html,<script>hacked=1</script>)",
    "[click](data:text/html;base64,PHNjcmlwdD5oYWNrZWQ9MTwvc2NyaXB0Pg==)",
    "[click](vbscript:hacked=1)",
    "[click](blob:http://x/y)",
    "[click](file:///etc/passwd)",
    "[click](//evil.example/x)",
    "[click](/api/lanes)",
    "<javascript:hacked=1>",
    '<https://x/"onmouseover=hacked=1>',
    "![x](javascript:hacked=1)",
    '![x" onerror="hacked=1](https://x/y)',
    '[x](https://x/" onclick="hacked=1)',
    '[x](https://x/y "title" onclick="hacked=1")',
    "`<img src=x onerror=hacked=1>`",
    '```"><img src=x onerror=hacked=1>\nx\n```',
    "| <img src=x onerror=hacked=1> |\n|---|\n| <script>hacked=1</script> |",
    "**<b onclick=hacked=1>**",
    "# <style>body{display:none}</style>",
    "[a](https://x/[b](javascript:hacked=1))",
    "https://x/'onclick='hacked=1",
    "{{constructor.constructor('hacked=1')()}}",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=hacked=1>",
]

# Puts it together anew, a few thousand times, and looks at all that comes out.
FUZZ = """
async (attacks) => {
  const { rendered } = await import("/chat/markdown.js");
  const marks = ["**", "*", "_", "__", "`", "```", "~~~", "- ", "1. ", "> ", "# ", "|", "\\n", "\\n\\n", "---|---\\n",
    "[", "](", ")", "https://x.example/", "javascript:", "<", ">", "\\\\", "!", "~~", "    ", " ", '"',
    "\\t", "\\r\\n", "&lt;", "\\u202e", "\\ud83d"];
  const elements = new Set(
    "P H3 H4 H5 H6 HR UL OL LI BLOCKQUOTE PRE CODE DIV TABLE THEAD TBODY TR TH TD A STRONG EM DEL".split(" "));
  const attributes = new Set("href target rel start class data-side data-long data-language".split(" "));
  let seed = 7;
  const chance = () => ((seed = Math.imul(seed, 1664525) + 1013904223) >>> 8) / 2 ** 24;
  const pick = (list) => list[Math.floor(chance() * list.length)];
  const wrong = [];
  const look = (text, words) => {
    const place = document.createElement("div");
    place.append(rendered(text));
    document.body.append(place);
    const all = [...place.querySelectorAll("*")];
    let seen = place.textContent;
    for (const each of all) {
      if (!elements.has(each.tagName)) wrong.push([text, each.tagName]);
      for (const { name } of each.attributes) if (!attributes.has(name)) wrong.push([text, name]);
      if (each.href && !/^(https?|mailto|tel):/.test(each.href)) wrong.push([text, each.href]);
      seen += ` ${each.href ?? ""} ${each.dataset.language ?? ""}`;
    }
    for (const word of words) if (!seen.includes(word)) wrong.push([text, word]);
    place.remove();
  };
  for (const attack of attacks) look(attack, []);
  for (let round = 0; round < 4000; round += 1) {
    const words = [];
    const parts = Array.from({ length: 12 }, (_, place) => {
      if (place % 3) return pick(marks);
      words.push(`w${round}x${place}z`);
      return words.at(-1);
    });
    look(parts.join(""), words);
    look(parts.join("") + pick(attacks) + pick(marks) + pick(attacks), words);
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
  return { wrong: wrong.slice(0, 3), hacked: String(window.hacked) };
}
"""


async def test_markdown_becomes_what_it_means(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    found = await page.run(f"({RENDERED})({json.dumps(list(MARKDOWN))})")
    assert dict(zip(MARKDOWN, found, strict=True)) == MARKDOWN


async def test_nothing_that_is_written_becomes_more_than_words_and_none_are_lost(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    assert await page.run(f"({FUZZ})({json.dumps(ATTACKS)})") == {"wrong": [], "hacked": "undefined"}
    await say(page, "\n\n".join(ATTACKS))
    await page.until("document.querySelectorAll('.line.bot').length === 1")
    assert await page.run("document.querySelectorAll('.words img, .words script, .words iframe').length") == 0
    assert await page.run("String(window.hacked)") == "undefined"


async def test_much_markdown_is_shown_at_once(site: Site, browser: Browser) -> None:
    """The worst that each form can be given, and the page does not hang."""
    page = await opened(browser, await start(site))
    worst = [mark * 20_000 for mark in ("*", "_", "`", "[", "![", "> ", "- ", "|", "~~", "**a", "_a ", "`a", "h", "<")]
    begun = (
        f"const begun = performance.now(); await ({RENDERED})({json.dumps(worst)}); return performance.now() - begun"
    )
    assert await page.run(f"(async () => {{ {begun} }})()") < 10_000


# Files ----------------------------------------------------------------------------------------------------------------

TRAY = "[...document.querySelectorAll('#tray li')].map((each) => each.textContent).join()"
STORED = "SELECT attachments FROM message ORDER BY seq"


async def test_files_are_chosen_shown_and_saved_and_never_opened(site: Site, browser: Browser, tmp_path: Path) -> None:
    drawing = (
        b'<svg xmlns="http://www.w3.org/2000/svg" onload="parent.hacked = 1"><script>parent.hacked = 1</script></svg>'
    )
    (tmp_path / "drawing.svg").write_bytes(drawing)
    (tmp_path / "page.html").write_bytes(b"<script>parent.hacked = 1</script>")
    (tmp_path / "dot.png").write_bytes(picture(8, 8))
    page = await opened(browser, await start(site))
    await page.choose("#file", *(tmp_path / name for name in ("drawing.svg", "page.html", "dot.png")))
    await page.until("document.querySelectorAll('#tray li').length === 3")
    await page.click("#tray li:nth-child(2) button")
    await page.until("document.querySelectorAll('#tray li').length === 2")
    await page.choose("#file", tmp_path / "page.html")
    await page.until("document.querySelectorAll('#tray li').length === 3")
    await page.click("#send")
    await page.until("document.querySelectorAll('.line .chip').length === 2")
    await page.until("document.querySelector('.line .picture img')?.naturalWidth === 8")
    await page.until("document.querySelector('.line.visitor').dataset.state !== 'sending'")
    (files,) = (json.loads(text) for (text,) in site.rows(STORED))
    assert [(file["name"], file["media_type"], file["size"]) for file in files] == [
        ("drawing.svg", "image/svg+xml", len(drawing)),
        ("dot.png", "image/png", len(picture(8, 8))),
        ("page.html", "text/html", 34),
    ]
    await page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    await page.click(".chip")
    await site.comes_true((tmp_path / "saved" / "drawing.svg").exists)
    await page.click(".picture")
    await page.until("document.querySelector('#viewer').open")
    await page.press("Escape")
    await page.until("!document.querySelector('#viewer').open")
    assert await page.run("String(window.hacked)") == "undefined"
    await page.reload()
    await page.until("document.querySelector('.line .picture img')?.naturalWidth === 8")


async def test_a_picture_that_is_too_large_becomes_smaller_and_other_files_are_refused(
    site: Site, browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "large.png").write_bytes(picture(900, 700, noise=True))
    (tmp_path / "large.bin").write_bytes(bytes(700_001))
    (tmp_path / "empty.txt").touch()
    page = await opened(browser, await start(site, web="file_bytes_max = 200000\nfiles_max = 1\n"))
    await page.choose("#file", tmp_path / "large.bin")
    await page.until("document.querySelector('#trouble').textContent.includes('large.bin is too large (700 kB)')")
    await page.choose("#file", tmp_path / "empty.txt")
    await page.until("document.querySelector('#trouble').textContent === 'empty.txt is empty.'")
    assert await page.run("document.querySelector('#send').disabled")
    await page.choose("#file", tmp_path / "large.png")
    await page.until(f"{TRAY}.startsWith('large.jpg')")
    assert await page.run("document.querySelector('#trouble').hidden")
    await page.choose("#file", tmp_path / "empty.txt")
    await page.until("document.querySelector('#trouble').textContent === 'empty.txt: a message may have 1 file.'")
    await page.click("#send")
    await site.comes_true(lambda: bool(site.rows(STORED)))
    (files,) = (json.loads(text) for (text,) in site.rows(STORED))
    assert {file["media_type"] for file in files} == {"image/jpeg"}
    assert 0 < sum(file["size"] for file in files) <= 200_000


def handed_in(event: str, name: str) -> str:
    """A file that is pasted or dropped."""
    return f"""{{
        const data = new DataTransfer();
        data.items.add(new File(["hello"], "{name}", {{ type: "text/plain" }}));
        const options = {{ bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data }};
        const kind = "{event}" === "paste" ? ClipboardEvent : DragEvent;
        document.querySelector("#text").dispatchEvent(new kind("{event}", options));
    }}"""


async def test_files_are_dropped_and_pasted_and_stay_with_their_conversation(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.run(handed_in("dragover", "dropped.txt"))
    assert await page.run("'dropping' in document.body.dataset")
    await page.run(handed_in("drop", "dropped.txt"))
    await page.run(handed_in("paste", "pasted.txt"))
    await page.until(f"{TRAY} === 'dropped.txt5 B×,pasted.txt5 B×'")
    assert not await page.run("'dropping' in document.body.dataset")
    await say(page, "see these")
    await shows(page, "see these", "see these")
    await page.run(handed_in("paste", "later.txt"))
    await page.until(f"{TRAY} === 'later.txt5 B×'")
    await page.press("k", "Control")
    await page.until(f"{TRAY} === ''")
    await page.press("ArrowDown", "Alt")
    await page.until(f"{TRAY} === 'later.txt5 B×'")


async def test_a_file_that_was_sent_while_the_server_was_away_outlives_a_reload(site: Site, browser: Browser) -> None:
    server = await start(site)
    page = await opened(browser, server)
    server.kill()
    await server.ended()
    await page.until(LOST)
    await page.run(handed_in("paste", "kept.txt"))
    await page.until(f"{TRAY} === 'kept.txt5 B×'")
    await say(page, "kept")
    await page.until("document.querySelectorAll('.line .chip').length === 1")
    await server.start()
    await server.ready()
    await page.until(CONNECTED)
    await shows(page, "kept", "kept")
    await page.reload()
    await page.until("document.querySelectorAll('.line .chip:enabled').length === 1")
    (files,) = (json.loads(text) for (text,) in site.rows(STORED))
    assert files[0]["url"] == f"data:text/plain;base64,{b64encode(b'hello').decode()}"
    assert await page.run("Object.keys(localStorage).filter((name) => name.includes('.files.')).length") == 0


# The past -------------------------------------------------------------------------------------------------------------


async def test_older_lines_come_when_one_scrolls_up_and_what_was_read_stays_in_place(
    site: Site, outside: Outside, browser: Browser
) -> None:
    gate(outside)  # nobody answers
    server = await start(site)
    page = await opened(browser, server)
    token = await page.run("JSON.parse(localStorage.getItem('turnlane.web.conversations'))[0].token")
    for number in range(130):
        said = {"id": f"old-{number}", "conversation": token, "text": f"line {number}"}
        assert (await ask(f"{await server.ready()}channels/web", said)).status == 202
    await page.reload()
    await page.until("document.querySelectorAll('.line').length === 50")
    assert (await page.texts(".words"))[0] == "line 80"
    where = (
        "document.querySelectorAll('.line')[document.querySelectorAll('.line').length - 50].getBoundingClientRect().top"
    )
    # Somebody scrolls up, and before the browser tells that, another tab has changed something.
    elsewhere = "window.dispatchEvent(new StorageEvent('storage', {key: 'turnlane.web.conversations'}))"
    await page.run(f"document.querySelector('#scroll').scrollTop = 0; {elsewhere}")
    await page.until("document.querySelectorAll('.line').length === 100")
    await page.until(f"{where} >= -10 && {where} < 300")
    await page.run("document.querySelector('#scroll').scrollTop = 0")
    await page.until("document.querySelectorAll('.line').length === 130")
    assert await page.texts(".words") == [f"line {number}" for number in range(130)]
    await page.reload()
    await page.until("document.querySelectorAll('.line').length === 50")


# Somebody at work -----------------------------------------------------------------------------------------------------


async def test_the_dots_show_while_a_turn_runs_in_another_process_whoever_began_it(
    site: Site, outside: Outside, browser: Browser
) -> None:
    """The page is connected to a process that runs no turns, and what is answered was not said there."""
    answered = gate(outside)
    server = await start(site, "serve")
    await site.begin("worker")
    page = await opened(browser, server)
    token = await page.run("JSON.parse(localStorage.getItem('turnlane.web.conversations'))[0].token")
    said = {"id": "1", "conversation": token, "text": "from elsewhere"}
    assert (await ask(f"{await server.ready()}channels/web", said)).status == 202
    await page.until(ANSWERING)
    await outside.until(lambda: len(outside.calls) == 1)
    answered.set()
    await shows(page, "from elsewhere", "from elsewhere")
    await page.until(f"!({ANSWERING})")


async def test_code_is_copied(site: Site, browser: Browser) -> None:
    page: Page = await opened(browser, await start(site))
    await say(page, "```\nrm -i *\n```")
    await page.until("document.querySelectorAll('.copy').length === 1")
    await page.run("{ window.copied = null; navigator.clipboard.writeText = async (text) => (window.copied = text); }")
    await page.click(".copy")
    await page.until("window.copied === 'rm -i *' && document.querySelector('.copy').textContent === 'Copied'")


# For everybody --------------------------------------------------------------------------------------------------------

HEARD = "document.querySelector('#heard').textContent"


async def test_whoever_listens_hears_what_is_new_and_nothing_that_is_only_shown(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await say(page, "**apples**")
    await shows(page, "**apples**", "apples")
    assert await page.run(HEARD) == "apples"
    await page.press("k", "Control")
    await say(page, "pears")
    await shows(page, "pears", "pears")
    assert await page.run(HEARD) == "pears"
    await page.press("ArrowDown", "Alt")
    await shows(page, "**apples**", "apples")
    assert await page.run(HEARD) == "pears"
    tree = await page.call("Accessibility.getFullAXTree")
    alive = [node["role"]["value"] for node in tree["nodes"] if is_live(node) and node["role"]["value"] != "status"]
    assert alive == ["log"]
    assert await page.texts(".line .unseen") == ["You: ", "Reply: "]


def is_live(node: Mapping[str, Any]) -> bool:
    return any(each["name"] == "live" and not node["ignored"] for each in node.get("properties", ()))


async def test_words_run_the_way_they_were_written(site: Site, browser: Browser) -> None:
    page = await opened(browser, await start(site))
    await page.type("مرحبا, hello.")
    assert await page.run("getComputedStyle(document.querySelector('#text')).direction") == "rtl"
    await page.press("Enter")
    await page.until("document.querySelectorAll('.line.bot').length === 1")
    directions = "[...document.querySelectorAll('.words')].map((each) => getComputedStyle(each).direction).join()"
    assert await page.run(directions) == "rtl,rtl"
    await say(page, "hello")
    await page.until(f"{directions} === 'rtl,rtl,ltr,ltr'")


A_DAY_BEHIND = """
const Real = Date;
Date = class extends Real {
  constructor(...given) { given.length ? super(...given) : super(Date.now()); }
  static now() { return Real.now() - 86_400_000; }
};
"""


async def test_each_day_stands_above_its_lines_also_where_a_clock_is_wrong(site: Site, browser: Browser) -> None:
    page = await browser.open(await (await start(site)).ready(), before=A_DAY_BEHIND)
    await page.until(CONNECTED)
    for line in ("one", "two", "three"):
        await say(page, line)
        await page.until(f"[...document.querySelectorAll('.line.bot .words')].at(-1)?.textContent === '{line}'")
    kinds = await page.run("[...document.querySelectorAll('#lines > li')].map((row) => row.classList[0]).join(' ')")
    assert kinds.startswith("day line ")
    assert "day day" not in kinds
    assert kinds.endswith(" line")


async def test_the_field_grows_with_what_is_written_where_the_browser_does_not_do_so(
    site: Site, browser: Browser
) -> None:
    old = """
        CSS.supports = () => false;
        const sheet = new CSSStyleSheet();
        sheet.replaceSync("textarea { field-sizing: fixed !important }");
        document.adoptedStyleSheets.push(sheet);
    """
    page = await browser.open(await (await start(site)).ready(), before=old)
    await page.until(CONNECTED)
    height = "document.querySelector('#text').clientHeight"
    low = await page.run(height)
    await page.type("word " * 60)
    assert await page.run(height) > 1.4 * low
    await page.press("Enter")
    assert await page.run(height) == low
