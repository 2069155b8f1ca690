"""A long answer leaves in pieces that fit, cut where a reader minds least, and nothing of it is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.channels.markup import fitting, plain, slack_mrkdwn, split, whatsapp
from turnlane.channels.markup.characters import divides_a_character, units

FAMILY = "👩🏽‍👩🏽‍👧🏽‍👦🏽"
LINK = "https://example.com/a/rather/long/path?with=a&query=too"


def at_most(limit: int) -> Callable[[str], bool]:
    return lambda piece: len(piece) <= limit


def solid(text: str) -> str:
    return "".join(text.split())


# Where it is cut


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("short", 10, ["short"]),
        ("one two\n\nthree four\n\nfive", 20, ["one two\n\nthree four", "five"]),
        ("one two\nthree four\nfive", 20, ["one two\nthree four", "five"]),
        ("- one\n  - two\n  - three", 14, ["- one\n  - two", "  - three"]),
        ("It is so. It was so. It will be.", 24, ["It is so. It was so.", "It will be."]),
        ("这是第一句。这是第二句。", 8, ["这是第一句。", "这是第二句。"]),
        ("Ask Mr. X or e.g. Y about it", 20, ["Ask Mr. X or e.g. Y", "about it"]),
        ("alpha beta gamma", 12, ["alpha beta", "gamma"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("10\u00a0000 euros", 9, ["10\u00a0000", "euros"]),
        ("a **bold thing** b", 13, ["a", "**bold", "thing** b"]),
        ("say **bold it** end", 16, ["say **bold it**", "end"]),
        ("well then **bold it**", 16, ["well then", "**bold it**"]),
        ("run it `with this` now", 17, ["run it", "`with this` now"]),
        (f"see {LINK} there", 60, [f"see {LINK}", "there"]),
        (f"please do see {LINK}", 60, ["please do see", LINK]),
        (f"now [the very page]({LINK}) ok", 77, [f"now [the very page]({LINK})", "ok"]),
        ("x" * 8 + "&amp;", 10, ["x" * 8, "&amp;"]),
        ("https://example.com/path", 10, ["https://ex", "ample.com/", "path"]),
        ("a" * 5 + FAMILY + "b", 12, ["a" * 5, FAMILY + "b"]),
        ("🇩🇪🇫🇷🇮🇹", 3, ["🇩🇪", "🇫🇷", "🇮🇹"]),
        ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"]),
        ("", 0, [""]),
        ("   \n ", 2, [""]),
        ("\n\n\nhello", 6, ["hello"]),
    ],
)
def test_it_is_cut(text: str, limit: int, pieces: list[str]) -> None:
    assert split(text, at_most(limit)) == pieces


def test_a_good_place_is_not_taken_if_hardly_anything_stands_before_it() -> None:
    text = "Summary\n\n" + "word " * 30
    first, *_ = split(text, at_most(100))
    assert len(first) > 50


def test_a_heading_stays_with_what_it_is_for() -> None:
    text = "# One\n\n" + "word " * 10 + "\n\n## Two\n\n" + "more " * 10
    assert split(text, at_most(len(text) - 20)) == [
        "# One\n\n" + "word " * 9 + "word",
        "## Two\n\n" + "more " * 9 + "more",
    ]


# Blocks of code


def test_code_that_fits_is_kept_whole() -> None:
    code = "```python\nfirst\n\nsecond\n```"
    assert split(f"Look here, it is this:\n\n{code}\n\nDone.", at_most(len(code))) == [
        "Look here, it is this:",
        code,
        "Done.",
    ]


def test_code_that_does_not_fit_is_closed_and_opened_again() -> None:
    text = "Look:\n~~~~sql title\n" + "".join(f"    select {number};\n" for number in range(6)) + "~~~~\nDone."
    assert split(text, at_most(58)) == [
        "Look:\n~~~~sql title\n    select 0;\n    select 1;\n~~~~",
        "~~~~sql title\n    select 2;\n    select 3;\n~~~~",
        "~~~~sql title\n    select 4;\n    select 5;\n~~~~\nDone.",
    ]


@pytest.mark.parametrize(
    ("before", "repeated"), [("> ", "> "), ("1. ", "   "), ("   ", "   "), ("> - ", ">   ")], ids=repr
)
def test_code_in_a_quote_or_a_list_stays_there(before: str, repeated: str) -> None:
    text = f"{before}```\n{repeated}{'x' * 30}\n{repeated}```"
    first, *others = split(text, at_most(30))
    codes = [first.removeprefix(before), *(each.removeprefix(repeated) for each in others)]
    codes = [re.sub(f"^```\n{repeated}(x+)\n{repeated}```$", r"\1", each) for each in codes]
    assert "".join(codes) == "x" * 30


def test_a_fence_inside_a_longer_one_is_code() -> None:
    text = "````md\n```\ninner\n```\n" + "more\n" * 20 + "````"
    pieces = split(text, at_most(60))
    assert all(piece.startswith("````md\n") and piece.endswith("\n````") for piece in pieces)


def test_code_that_nobody_closed_goes_on_to_the_end() -> None:
    pieces = split("```py\n" + "line\n" * 20, at_most(40))
    assert all(piece.startswith("```py\nline") for piece in pieces)
    assert all(piece.endswith("\n```") for piece in pieces[:-1])


def test_where_a_fence_leaves_no_room_the_code_goes_without() -> None:
    pieces = split("```python\none two three\n```", at_most(6))
    assert solid("".join(pieces)) == "```pythononetwothree```"
    assert all(len(piece) <= 6 for piece in pieces)


# What always holds

PROSE = st.text(st.sampled_from([*"ab .,\n\t([)]<>&;*_#-|:/é字", "\u0301", "🇩", "👩", "\u200d", "🏽"]), max_size=200)


@given(st.text(max_size=200) | PROSE, st.integers(1, 50))
def test_nothing_is_lost_and_every_piece_fits(text: str, limit: int) -> None:
    text = text.replace("`", "'").replace("~", "-")
    pieces = split(text, at_most(limit))
    assert all(len(piece) <= limit for piece in pieces)
    assert solid("".join(pieces)) == solid(text)
    assert pieces == split(text, at_most(limit))


@given(st.text(st.sampled_from([*"`~>- \nab1."]), max_size=200), st.integers(0, 50))
def test_whatever_stands_between_fences_every_piece_fits_and_it_ends(text: str, limit: int) -> None:
    pieces = split(text, at_most(limit))
    assert pieces
    assert limit < 1 or all(len(piece) <= limit for piece in pieces)


BLOCKS = st.lists(
    st.tuples(st.just("prose"), st.text(st.sampled_from("abc .\n"), min_size=1, max_size=60))
    | st.tuples(st.just("code"), st.text(st.sampled_from("xyz \n"), min_size=1, max_size=60)),
    max_size=6,
)


@given(BLOCKS, st.integers(30, 90))
def test_code_stays_code_and_prose_stays_prose(blocks: list[tuple[str, str]], limit: int) -> None:
    text = "\n".join(f"```py\n{body}\n```" if kind == "code" else body for kind, body in blocks)
    pieces = split(text, at_most(limit))
    assert all(len(piece) <= limit for piece in pieces)
    for wanted in ("code", "prose"):
        said = "".join(body for kind, body in blocks if kind == wanted)
        assert solid("".join(read(piece)[wanted] for piece in pieces)) == solid(said)


def read(piece: str) -> dict[str, str]:
    """What a reader of one piece alone takes for code, and for prose."""
    found, kind = {"code": "", "prose": ""}, "prose"
    for line in piece.split("\n"):
        if line in {"```py", "```"}:
            assert (kind == "prose") == (line == "```py"), "every fence is opened, and closed, in its own piece"
            kind = "code" if kind == "prose" else "prose"
        else:
            found[kind] += line
    assert kind == "prose"
    return found


@given(st.lists(st.sampled_from([FAMILY, "🇩🇪", "e\u0301", "नि", "क्ष", "각", "1\ufe0f\u20e3", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]), max_size=30))
def test_no_character_is_divided(characters: list[str]) -> None:
    pieces = split("".join(characters), at_most(12))
    places = [0]
    for piece in pieces:
        places.append(places[-1] + len(piece))
    ends = {0}
    for character in characters:
        ends.add(max(ends) + len(character))
    assert set(places) <= ends


def test_a_character_longer_than_a_piece_is_cut_all_the_same() -> None:
    assert split("a" + "\u0301" * 9, at_most(4)) == ["a\u0301\u0301\u0301", "\u0301" * 4, "\u0301" * 2]


@pytest.mark.parametrize("never", [0, 1])
def test_it_ends_though_nothing_fits(never: int) -> None:
    assert split("ab cd" * never, lambda piece: False) == (["a", "b", "c", "d"] if never else [""])


@given(PROSE, st.sets(st.integers(0, 50)))
def test_it_ends_whatever_fits(text: str, sizes: set[int]) -> None:
    """A translated piece may be longer than that of a longer piece; nothing that holds depends on it."""
    pieces = split(text, lambda piece: len(piece) in sizes)
    assert solid("".join(pieces)) == solid(text)


# The limits of platforms


def an_answer(characters: int) -> tuple[str, list[str]]:
    """Prose, lists and code of some length, and the lines of code that are in it."""
    code: list[str] = []
    blocks: list[str] = []
    number = 0
    while sum(map(len, blocks)) < characters:
        number += 1
        lines = [
            f"    total_{number} += price[{line}] * 1.19  # <{number}.{line}> & more" for line in range(number * 9)
        ]
        code += lines
        blocks.append(f"## Step {number}\n\n" + f"This is **important** in step {number}, see [docs]({LINK}). " * 9)
        blocks.append("- first\n- second\n  - `nested`")
        blocks.append("```python\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(blocks), code


@pytest.mark.parametrize(("limit", "show"), [(4_000, slack_mrkdwn), (4_096, whatsapp), (4_096, plain)])
def test_a_20000_character_answer_with_code_blocks_arrives_whole(limit: int, show: Callable[[str], str]) -> None:
    text, code = an_answer(20_000)
    pieces = split(text, fitting(limit, show))
    shown = [show(piece) for piece in pieces]
    assert 5 <= len(pieces) <= 12
    assert all(units(each) <= limit for each in shown)
    assert all(each.count("```") % 2 == 0 for each in shown)
    assert all(piece.count("](") == piece.count(LINK) for piece in pieces)
    told = [line for piece in pieces for line in piece.split("\n") if line.startswith("    total_")]
    assert told == code
    assert re.sub(r"```python|```|\s", "", "\n".join(pieces)) == re.sub(r"```python|```|\s", "", text)
    assert all(earlier and later for earlier, later in pairwise(shown))


def test_emoji_count_as_the_platform_counts_them() -> None:
    pieces = split("🫖" * 5_000, fitting(4_096, whatsapp))
    assert all(3_900 < units(piece) <= 4_096 for piece in pieces[:-1])


@pytest.mark.parametrize(
    "unit", [an_answer(5_000)[0] + "\n\n", "x", "字", "[", "`", "\u0301", "\n", "🇩🇪", "https://", "* "]
)
def test_a_megabyte_is_split_in_a_moment(unit: str) -> None:
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    began = time.process_time()
    split(text, at_most(4_000))
    assert time.process_time() - began < 10


def test_the_parts_of_a_flag_are_counted_from_where_a_piece_begins() -> None:
    assert not divides_a_character("🇩🇪🇫🇷", 2)
    assert divides_a_character("🇩🇪🇫🇷", 1)
    assert divides_a_character("🇩🇪🇫🇷", 2, start=1)
