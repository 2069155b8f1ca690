"""Blocks of code between fences, as they stand in a text."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPENING_CHARACTERS_MAX = 200
"""A longer line opens nothing: it could not be repeated in every piece."""

_FENCE = re.compile(
    r"""^(?P<before>(?:[ \t]*+(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t])))*+[ \t]*+)  # quotes, list items, indentation
    (?P<mark>`{3,}+|~{3,}+)
    (?P<info>[^\n]*+)$""",
    re.MULTILINE | re.VERBOSE,
)
_UNQUOTED = re.compile(r"^(?![ \t]*+>)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """One block. Its places: the opening line begins, the code begins, the code ends, the closing line ends."""

    start: int
    code_start: int
    code_end: int
    end: int
    prefix: str
    """What stands before each of its lines: quotes and indentation."""
    mark: str
    info: str

    @property
    def opening(self) -> str:
        return f"{self.prefix}{self.mark}{self.info}\n"

    @property
    def closing(self) -> str:
        return f"\n{self.prefix}{self.mark}"


def fences(text: str) -> list[Fence]:
    """In order. One that nobody closed goes on to the end, or to the end of the quote that it is in."""
    found: list[Fence] = []
    if "```" not in text and "~~~" not in text:
        return found
    at = 0
    while (opening := _opening(text, at)) is not None:
        found.append(_fence(text, opening))
        at = found[-1].end
    return found


def _opening(text: str, at: int) -> re.Match[str] | None:
    for line in _FENCE.finditer(text, at):
        inline = line["mark"][0] == "`" and "`" in line["info"]
        if not inline and line.end() - line.start() <= OPENING_CHARACTERS_MAX:
            return line
    return None


def _fence(text: str, opening: re.Match[str]) -> Fence:
    before, mark = opening["before"], opening["mark"]
    code_start = min(opening.end() + 1, len(text))
    quoted = ">" in before
    unquoted = _UNQUOTED.search(text, code_start) if quoted else None
    code_end = end = len(text) if unquoted is None else max(unquoted.start() - 1, code_start)
    for line in _FENCE.finditer(text, code_start, end):
        if _closes(line, mark):
            code_end, end = line.start(), line.end()
            break
    prefix = re.sub(r"[^>\t]", " ", before)  # the item of a list begins once
    return Fence(opening.start(), code_start, code_end, end, prefix, mark, opening["info"].rstrip())


def _closes(line: re.Match[str], mark: str) -> bool:
    is_item = bool(line["before"].strip(" \t>"))
    return line["mark"].startswith(mark) and not line["info"].strip() and not is_item
