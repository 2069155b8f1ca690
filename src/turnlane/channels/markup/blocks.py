"""The lines of Markdown: headings, lists, quotes, tables and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from turnlane.channels.markup.characters import columns, encodable
from turnlane.channels.markup.fences import Fence, fences
from turnlane.channels.markup.inline import PLAIN, Flavour, inline

RULE = "———"
TABLE_GROWTH_MAX = 2
"""A table that would grow by more, once its columns are aligned, is not aligned."""
TABLE_CHARACTERS_FREE = 200

_QUOTE = re.compile(r"(?:[ \t]*+>)++[ \t]?")
_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]++(.*)")
_RULE = re.compile(r"[ ]{0,3}([-*_])(?:[ \t]*+\1){2,}+[ \t]*+$")
_ITEM = re.compile(r"([ \t]*+)([-*+]|\d{1,9}[.)])[ \t]++(?:\[([ xX])\][ \t]++)?")
_PIPE = re.compile(r"(?<!\\)\|")
_BELOW_HEADER = re.compile(r":?-++:?")


def render(text: str, flavour: Flavour) -> str:
    """Never fails, and never makes nothing out of something."""
    text = encodable(text)
    written = "\n".join(_blocks(text, flavour))
    return written if written.strip() else flavour.escape(text)


def _blocks(text: str, flavour: Flavour) -> Iterator[str]:
    at = 0
    for fence in fences(text):
        if at < fence.start:
            yield from _prose(text[at : fence.start].removesuffix("\n"), flavour)
        yield from _code(_code_of(fence, text), flavour)
        at = fence.end + 1
    if at <= len(text):
        yield from _prose(text[at:], flavour)


def _code_of(fence: Fence, text: str) -> str:
    """Without the quotes and the indentation that the fence itself has."""
    code = text[fence.code_start : fence.code_end].removesuffix("\n")
    if not fence.prefix:
        return code
    prefix = re.compile(rf"(?:[ \t]*+>[ ]?){{0,{fence.prefix.count('>')}}}[ ]{{0,{fence.prefix.count(' ')}}}")
    return "\n".join(prefix.sub("", line, count=1) for line in code.split("\n"))


def _code(code: str, flavour: Flavour) -> Iterator[str]:
    if flavour.fence:
        yield flavour.fence
    yield flavour.escape(code)
    if flavour.fence:
        yield flavour.fence


def _prose(text: str, flavour: Flavour) -> Iterator[str]:
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if length := _table_length(lines, at):
            yield from _code(_table(lines[at : at + length]), flavour)
            at += length
        else:
            yield _line(lines[at], flavour)
            at += 1


def _line(line: str, flavour: Flavour) -> str:
    line = line.rstrip()
    if not line:
        return ""
    if quote := _QUOTE.match(line):
        return f"> {_line(line[quote.end() :], flavour)}".rstrip()
    if _RULE.match(line):
        return RULE
    if heading := _HEADING.match(line):
        return _heading(heading[1], flavour)
    if item := _ITEM.match(line):
        return _item(item, line[item.end() :], flavour)
    return inline(line.removesuffix("\\"), flavour)


def _heading(text: str, flavour: Flavour) -> str:
    shown = text.rstrip("#")
    shown = (shown if shown[-1:].isspace() or not shown else text).strip()
    written = inline(shown, replace(flavour, bold=""))
    return f"{flavour.bold}{written}{flavour.bold}" if written else ""


def _item(item: re.Match[str], text: str, flavour: Flavour) -> str:
    indentation, sign, tick = item.groups()
    bullet = f"{sign} " if sign[0].isdigit() else flavour.bullet
    if tick is not None:
        bullet = "☐ " if tick == " " else "☑ "
    return indentation + bullet + inline(text.removesuffix("\\"), flavour)


def _table_length(lines: Sequence[str], at: int) -> int:
    """How many lines from here are one table. The rest of a table that was cut has no header any more."""
    first, second = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
    has_header = "|" in first and _is_below_header(second) and len(_cells(first)) == len(_cells(second))
    if not has_header and not (_is_framed(first) and _is_framed(second)):
        return 0
    return next((end for end in range(at + 2, len(lines)) if "|" not in lines[end]), len(lines)) - at


def _is_framed(line: str) -> bool:
    line = line.strip()
    return len(line) > 1 and line[0] == line[-1] == "|"


def _is_below_header(line: str) -> bool:
    return "-" in line and all(_BELOW_HEADER.fullmatch(cell) for cell in _cells(line))


def _cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip() for cell in _PIPE.split(line)]


def _table(lines: Sequence[str]) -> str:
    """Its columns aligned, for letters of equal width, or just apart where alignment would take too much room."""
    below = [_is_below_header(line) for line in lines]
    rows = [
        [] if rule else [" ".join(inline(cell, PLAIN).split()) for cell in _cells(line)]
        for line, rule in zip(lines, below, strict=True)
    ]
    widths: list[int] = []
    for row in rows:
        widths += [0] * (len(row) - len(widths))
        widths[: len(row)] = [max(width, columns(cell)) for width, cell in zip(widths, row, strict=False)]
    source = sum(map(len, lines))
    if (sum(widths) + 3 * len(widths)) * len(rows) > TABLE_GROWTH_MAX * source + TABLE_CHARACTERS_FREE:
        widths = [0] * len(widths)
    return "\n".join(_row(row, widths) if row else "-+-".join("-" * width for width in widths) for row in rows)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=False)]
    return " | ".join(padded).rstrip()
