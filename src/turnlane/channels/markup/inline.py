"""What stands within a line of Markdown: emphasis, code, links, entities."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape

_ENTITY_FORM = r"&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
_SPECIAL = re.compile(
    r"""\\(?P<escaped>[!-/:-@\[-`{-~])
    | (?P<ticks>`++)
    | !?\[(?P<label>(?:[^\[\]\n\\]++|\\.|\[[^\[\]\n]*+\])*+)\]
      \([ \t]*+(?:<(?P<pointed>[^<>\n]*+)>|(?P<target>[^\s()<>]*+(?:\([^\s()]*+\)[^\s()<>]*+)*+))
      (?:[ \t]++(?:"[^"\n]*+"|'[^'\n]*+'))?+[ \t]*+\)
    | <(?P<auto>(?:https?://|mailto:)[^\s<>]++|[\w.+-]++@[\w-]++(?:\.[\w-]++)++)>
    | (?P<url>https?://[^\s<>]++)
    | (?P<break><br[ ]*+/?>)
    | (?P<entity>"""
    + _ENTITY_FORM
    + r""")
    | (?P<mark>\*++|_++|~++)""",
    re.VERBOSE,
)
_ENTITY = re.compile(_ENTITY_FORM)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_TICKS = re.compile(r"`++")
_ENDS_NO_URL = "*_~.,;:!?'\")]"
_BETWEEN_LETTERS = frozenset({"**", "***", "~~"})
"""Marks that also count in the middle of a word. The others are part of names and sums there."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """How a platform writes what Markdown means. Nothing (""): it cannot show that."""

    bold: str
    italic: str
    strike: str
    code: str
    fence: str
    bullet: str
    escape: Callable[[str], str]
    """What a text must look like to be shown as it is."""
    link: Callable[[str, str], str]
    """Of the text, not escaped, and the URL."""
    letter_joint: str = ""
    """Must stand between a mark and a letter outside of it; else the mark would not count."""

    def marks(self, mark: str) -> tuple[str, str] | None:
        match mark:
            case "*" | "_":
                return self.italic, self.italic
            case "**" | "__":
                return self.bold, self.bold
            case "***" | "___":
                return self.bold + self.italic, self.italic + self.bold
            case "~" | "~~":
                return self.strike, self.strike
        return None


def inline(text: str, flavour: Flavour) -> str:
    """One line, or a part of one, as the platform writes it."""
    return "".join(_Line(text, flavour).written())


class _Line:
    def __init__(self, text: str, flavour: Flavour) -> None:
        self._text = text
        self._flavour = flavour
        self._out: list[str] = []
        self._open: list[tuple[str, int, str]] = []
        """Marks that wait for their second half, their places in what is written, and what stands before them."""
        self._waiting: Counter[str] = Counter()
        self._closing_ticks = _pairs_of_ticks(text)

    def written(self) -> list[str]:
        at = 0
        while (special := _SPECIAL.search(self._text, at)) is not None:
            self._out.append(self._flavour.escape(self._text[at : special.start()]))
            at = self._take(special)
        self._out.append(self._flavour.escape(self._text[at:]))
        return self._out

    def _take(self, special: re.Match[str]) -> int:
        """Write it, and say where the text goes on."""
        flavour, write = self._flavour, self._out.append
        match special.lastgroup:
            case "ticks":
                return self._take_code(special)
            case "url":
                url = special["url"].rstrip(_ENDS_NO_URL)
                write(flavour.escape(url))
                return special.start() + len(url)
            case "mark":
                self._take_mark(special)
            case "label" | "pointed" | "target":
                url = special["target"] if special["pointed"] is None else special["pointed"]
                label = " ".join(inline(special["label"], PLAIN).split())
                write(flavour.link(label, _unescaped(url)))
            case "auto":
                write(flavour.link("", special["auto"]))
            case "break":
                write("\n")
            case "entity":
                write(flavour.escape(unescape(special["entity"])))
            case _:
                write(flavour.escape(special["escaped"]))
        return special.end()

    def _take_code(self, ticks: re.Match[str]) -> int:
        closing = self._closing_ticks.get(ticks.start())
        if closing is None:
            self._out.append(ticks[0])
            return ticks.end()
        code = self._text[ticks.end() : closing]
        if code[:1] == code[-1:] == " " and code.strip():
            code = code[1:-1]
        self._out.append(f"{self._flavour.code}{self._flavour.escape(code)}{self._flavour.code}")
        return closing + len(ticks[0])

    def _take_mark(self, special: re.Match[str]) -> None:
        mark = special[0]
        before, after = self._text[special.start() - 1 : special.start()], self._text[special.end() : special.end() + 1]
        anywhere = mark in _BETWEEN_LETTERS
        self._out.append(mark)
        if self._waiting[mark] and before.strip() and (anywhere or not after.isalnum()):
            self._close(mark, after)
        elif after.strip() and (anywhere or not before.isalnum()):
            self._open.append((mark, len(self._out) - 1, before))
            self._waiting[mark] += 1

    def _close(self, mark: str, after: str) -> None:
        """Both halves are known: what was opened between them and not closed is just text."""
        opened, place, before = self._taken_back()
        while opened != mark:
            opened, place, before = self._taken_back()
        if (marks := self._flavour.marks(mark)) is None:
            return
        joint = self._flavour.letter_joint
        self._out[place] = (joint if before.isalnum() else "") + marks[0]
        self._out[-1] = marks[1] + (joint if after.isalnum() else "")

    def _taken_back(self) -> tuple[str, int, str]:
        latest = self._open.pop()
        self._waiting[latest[0]] -= 1
        return latest


def _pairs_of_ticks(text: str) -> dict[int, int]:
    """For each run of back ticks, where the next equally long one begins."""
    pairs, seen = {}, dict[int, int]()
    for run in reversed(list(_TICKS.finditer(text))):
        length = run.end() - run.start()
        if length in seen:
            pairs[run.start()] = seen[length]
        seen[length] = run.start()
    return pairs


def _unescaped(url: str) -> str:
    return _ESCAPED.sub(r"\1", _ENTITY.sub(lambda entity: unescape(entity[0]), url))


def as_it_is(text: str) -> str:
    return text


def text_and_url(text: str, url: str) -> str:
    """A link for a platform that has none."""
    url = url.removeprefix("mailto:")
    return f"{text} ({url})" if text and url and text != url else text or url


PLAIN = Flavour("", "", "", "", "", "- ", as_it_is, text_and_url)
