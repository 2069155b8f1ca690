"""What agents write looks right on each platform, rings no bells, and is never changed where it is code."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.channels.markup import plain, slack_mrkdwn, whatsapp
from turnlane.channels.markup.characters import units

Show = Callable[[str], str]

TABLE = """
| Item | Price |
|:-----|------:|
| Tea `x` | **3** |
| 漢字 |
""".strip()
ALIGNED = """
Item  | Price
------+------
Tea x | 3
漢字
""".strip()


@pytest.mark.parametrize(
    ("text", "slack", "whats_app", "nothing"),
    [
        ("Hello, world.", "Hello, world.", "Hello, world.", "Hello, world."),
        ("**bold**", "*bold*", "*bold*", "bold"),
        ("__bold__", "*bold*", "*bold*", "bold"),
        ("*it*", "_it_", "_it_", "it"),
        ("_it_", "_it_", "_it_", "it"),
        ("***both***", "*_both_*", "*_both_*", "both"),
        ("**bold *and* it**", "*bold _and_ it*", "*bold _and_ it*", "bold and it"),
        ("~~gone~~", "~gone~", "~gone~", "gone"),
        ("un**believ**able", "un\u200b*believ*\u200bable", "un*believ*able", "unbelievable"),
        ("snake_case_name 2*3*4 a * b * c", *["snake_case_name 2*3*4 a * b * c"] * 3),
        ("**open", "**open", "**open", "**open"),
        ("**a _b** c_", "*a _b* c_", "*a _b* c_", "a _b c_"),
        ("~5 or ~10 minutes", *["~5 or ~10 minutes"] * 3),
        ("`a_b_c`", "`a_b_c`", "`a_b_c`", "a_b_c"),
        ("`` a ` b ``", "`a ` b`", "`a ` b`", "a ` b"),
        ("a ` b", "a ` b", "a ` b", "a ` b"),
        (r"\*no\*", "*no*", "*no*", "*no*"),
        ("# Title", "*Title*", "*Title*", "Title"),
        ("## About **C#** #", "*About C#*", "*About C#*", "About C#"),
        ("#hashtag", "#hashtag", "#hashtag", "#hashtag"),
        ("- a\n  * b\n+ c", "• a\n  • b\n• c", "- a\n  - b\n- c", "- a\n  - b\n- c"),
        ("1. a\n2) b", "1. a\n2) b", "1. a\n2) b", "1. a\n2) b"),
        ("- [ ] a\n- [x] b", "☐ a\n☑ b", "☐ a\n☑ b", "☐ a\n☑ b"),
        ("> a **b**\n>> c\n>", "> a *b*\n> c\n>", "> a *b*\n> c\n>", "> a b\n> c\n>"),
        ("> - a", "> • a", "> - a", "> - a"),
        ("---", "———", "———", "———"),
        ("* * *", "———", "———", "———"),
        ("[a](https://x.y/z)", "<https://x.y/z|a>", "a (https://x.y/z)", "a (https://x.y/z)"),
        ('[a](https://x.y/z "t")', "<https://x.y/z|a>", "a (https://x.y/z)", "a (https://x.y/z)"),
        ("[a](<https://x.y/(z>)", "<https://x.y/(z|a>", "a (https://x.y/(z)", "a (https://x.y/(z)"),
        ("[a](https://x.y/z_(b))", "<https://x.y/z_(b)|a>", "a (https://x.y/z_(b))", "a (https://x.y/z_(b))"),
        ("[**a** & b](https://x.y)", "<https://x.y|a &amp; b>", "a & b (https://x.y)", "a & b (https://x.y)"),
        ("[a](mailto:b@c.de)", "<mailto:b@c.de|a>", "a (b@c.de)", "a (b@c.de)"),
        ("[https://x.y](https://x.y)", "<https://x.y>", "https://x.y", "https://x.y"),
        ("[a](/there)", "a (/there)", "a (/there)", "a (/there)"),
        ("![cat](https://x.y/c.png)", "<https://x.y/c.png|cat>", "cat (https://x.y/c.png)", "cat (https://x.y/c.png)"),
        ("![](https://x.y/c.png)", "<https://x.y/c.png>", "https://x.y/c.png", "https://x.y/c.png"),
        ("<https://x.y/a_b_c>", "<https://x.y/a_b_c>", "https://x.y/a_b_c", "https://x.y/a_b_c"),
        ("<a.b@c.de>", "a.b@c.de", "a.b@c.de", "a.b@c.de"),
        ("https://x.y/_a_?b=*c*&d", "https://x.y/_a_?b=*c*&amp;d", *["https://x.y/_a_?b=*c*&d"] * 2),
        ("**https://x.y/a_b**", "*https://x.y/a_b*", "*https://x.y/a_b*", "https://x.y/a_b"),
        ("a<br>b", "a\nb", "a\nb", "a\nb"),
        ("a\\\nb  \nc", "a\nb\nc", "a\nb\nc", "a\nb\nc"),
        ("AT&T &amp; &lt;b&gt; 1 < 2", "AT&amp;T &amp; &lt;b&gt; 1 &lt; 2", *["AT&T & <b> 1 < 2"] * 2),
        (TABLE, f"```\n{ALIGNED}\n```", f"```\n{ALIGNED}\n```", ALIGNED),
        ("| a | b |\n| c | d |", "```\na | b\nc | d\n```", "```\na | b\nc | d\n```", "a | b\nc | d"),
        ("this | or that", "this | or that", "this | or that", "this | or that"),
        ("```py\n**a** <b>\n```", "```\n**a** &lt;b&gt;\n```", "```\n**a** <b>\n```", "**a** <b>"),
        ("a\n~~~\n# b\n~~~\nc", "a\n```\n# b\n```\nc", "a\n```\n# b\n```\nc", "a\n# b\nc"),
        ("- a\n  ```\n    b\n  ```", "• a\n```\n  b\n```", "- a\n```\n  b\n```", "- a\n  b"),
        ("> ```\n> a\n> ```\nb", "```\na\n```\nb", "```\na\n```\nb", "a\nb"),
        ("```\nnobody closes", "```\nnobody closes\n```", "```\nnobody closes\n```", "nobody closes"),
        ("\ud83e\uded6 \ud83e", "🫖 �", "🫖 �", "🫖 �"),
        ("", "", "", ""),
        ("[]()", "[]()", "[]()", "[]()"),
    ],
)
def test_it_is_shown_as(text: str, slack: str, whats_app: str, nothing: str) -> None:
    assert (slack_mrkdwn(text), whatsapp(text), plain(text)) == (slack, whats_app, nothing)


@pytest.mark.parametrize(
    "text",
    [
        "<!channel>",
        "<!here|here>",
        "<@U012345>",
        "<#C012345>",
        "<!subteam^S1>",
        "&lt;!channel&gt;",
        "&#60;!channel&#62;",
        "\\<!channel\\>",
        "[x](!channel)",
        "[x](<!channel>)",
        "[x](@U012345)",
        "[a](https://x.y|z><!channel)",
        "[a](https://x.y/&gt;&lt;!channel&gt;)",
        "[a><!channel>](https://x.y)",
        "<https://x.y|a><!channel>",
        "`<!channel>`",
        "```\n<!channel>\n```",
        "| <!channel> | a |\n|---|---|",
        "# <!channel>",
        "<mailto:a|<!channel>",
    ],
)
def test_nobody_is_mentioned_by_what_an_agent_says(text: str) -> None:
    assert not re.search(r"<[!@#]", slack_mrkdwn(text))


ANYTHING = st.text() | st.text(st.sampled_from("`~*_[]()<>&!#|-+>\\ \n\t1.:abé\ud800\udc00"), max_size=120)


@given(ANYTHING)
def test_whatever_is_said_is_shown_and_grows_little(text: str) -> None:
    for show in (slack_mrkdwn, whatsapp, plain):
        shown = show(text)
        shown.encode()
        assert bool(shown.strip()) == bool(text.strip())
        assert units(shown) <= 12 * units(text) + 300


@given(ANYTHING)
def test_slack_sees_no_mark_of_its_own_but_ours(text: str) -> None:
    shown = slack_mrkdwn(text)
    assert not re.search(r"<(?!https?://|mailto:|tel:)", shown, re.IGNORECASE)
    assert not re.search(r"&(?!amp;|lt;|gt;)", shown)


@given(st.text(st.sampled_from("`*_<>&[]()~# ab"), max_size=60).filter(lambda code: "``" not in code))
def test_code_is_never_translated(code: str) -> None:
    for show, escaped in ((slack_mrkdwn, True), (whatsapp, False), (plain, False)):
        expected = code.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") if escaped else code
        assert expected in show(f"````\n{code}\n````")
        inline = expected.strip(" `").strip()
        assert inline in show(f"say ```` {code} ```` now")


@given(st.text(st.characters(exclude_characters="\\`*_~[]!<>&|#>-+\r", exclude_categories=["Cs"]), max_size=80))
def test_text_without_markup_stays_as_it_is(text: str) -> None:
    text = re.sub(
        r"\d[.)]|[ \t\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+(?=\n|$)", "", text
    )
    if text.strip():
        assert whatsapp(text) == plain(text) == slack_mrkdwn(text)
        assert solid(plain(text)) == solid(text)


def solid(text: str) -> str:
    return "".join(text.split())
