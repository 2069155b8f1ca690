"""A text in pieces that each fit, cut where a reader minds least."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from turnlane.channels.markup.characters import divides_a_character
from turnlane.channels.markup.fences import Fence, fences

Fits = Callable[[str], bool]
Cut = tuple[int, int]
"""Where a piece ends, and where the next one begins: white space between them is left out."""

FIRST_GUESS = 1_024
PRECISION = 32
"""A piece is first looked for in steps of this part of it; exactly only if no good place is found so."""
CODE_CHARACTERS_MIN = 8
"""A fence that leaves room for fewer in a piece is no use."""

_SPACE = re.compile(r"\s*+")
_NEXT_LINE = re.compile(r"\n(?=([^\n]*+))")
# Each ends where a piece may end.
_PARAGRAPH = re.compile(r"(?=\n[ \t\r]*+\n)")
_LINE = re.compile(r"(?=\n)")
_SENTENCE = re.compile(r"(?<=[^\s.!?…\d]{2})[.!?…]++[)\]\"'»”’*_]{0,3}(?=\s)|[。！？]")
_WORD = re.compile(r"(?<=\S)(?=[^\S\u00a0\u2007\u202f])")
_WELCOME = (_PARAGRAPH, _LINE, _SENTENCE, _WORD)

_WHOLE = re.compile(
    r"""!?\[[^\[\]\n]*+\]\([^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+(?:[ ]+"[^"\n]*+")?\)  # a link or an image
    | <[^<>\s]++>
    | \b[a-z][a-z0-9+.-]{1,15}://[^\s<>]++
    | &\#?\w{1,31};""",
    re.VERBOSE | re.IGNORECASE,
)
_TOGETHER = re.compile(
    r"(?<!`)(`++)[^`\n]++\1|(?P<mark>\*{1,3}+|_{1,3}+|~~)(?=\S)(?:(?!(?P=mark)|\n).){1,300}+(?P=mark)|\[[^\[\]\n]{1,300}+\]"
)

_HEADING = re.compile(r"^#{1,6}[ \t][^\n]*+\n\s*+", re.MULTILINE)
"""With what separates it from the text that it belongs to."""


def split(text: str, fits: Fits) -> list[str]:
    """The text in pieces that each satisfy `fits`; itself, if that does.

    Cut between paragraphs, else lines, sentences, words, and last between any two characters as a reader sees them. A
    block of code that fits is kept whole; another is closed at the end of a piece and opened again in the next. A link
    is cut only if it is longer than a piece, wherever that is full. Nothing is lost: apart from the added fences, and
    white space at the cuts, the pieces are the text. There is always one, if only an empty one for white space.

    `fits` should take every shorter piece if it takes a long one; where it does not quite, pieces are smaller than they
    might be. A character that it refuses alone is a piece all the same.
    """
    if fits(text):
        return [text]
    return _Splitter(text, fits).pieces() or [""]


class _Spans:
    """Stretches of the text, in order, that are better not cut."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        ordered = list(spans)
        self._starts = [start for start, _ in ordered]
        self._ends = [end for _, end in ordered]

    def around(self, at: int) -> int | None:
        """Where the one begins that a cut at this place would divide."""
        place = bisect_left(self._starts, at) - 1
        return self._starts[place] if place >= 0 and at < self._ends[place] else None


class _Splitter:
    def __init__(self, text: str, fits: Fits) -> None:
        self._text = text
        self._fits = fits
        self._usual = FIRST_GUESS
        whole, self._fences = [], []
        for fence in fences(text):
            if fits(text[fence.start : fence.end]):
                whole.append(fence)
            elif fits(f"{fence.opening}{'x' * CODE_CHARACTERS_MIN}{fence.closing}"):
                self._fences.append(fence)
        self._starts = [fence.code_start for fence in self._fences]
        kept = [(fence.start, fence.end) for fence in whole]
        edges = [edge for fence in self._fences for edge in _edges(fence, text)]
        self._blocks = _Spans(sorted([*kept, *edges]))
        self._links = _Spans(match.span() for match in _WHOLE.finditer(text))
        self._marked = _Spans(match.span() for match in _TOGETHER.finditer(text))
        self._headings = _Spans((match.start(), match.end() + 1) for match in _HEADING.finditer(text))

    def pieces(self) -> list[str]:
        found, start = [], 0
        while start < len(self._text):
            end, following = self._cut(start)
            if self._text[start:end].strip():
                found.append(self._piece(start, end, following))
            start = following
        return found

    def _piece(self, start: int, end: int, following: int) -> str:
        body = self._text[start:end].rstrip()
        if (fence := self._inside(start)) is not None:
            in_a_line = start > fence.code_start and self._text[start - 1] != "\n"
            body = fence.opening + (fence.prefix if in_a_line else "") + body
        if (fence := self._inside(following)) is not None:
            body += fence.closing
        return body

    def _inside(self, at: int) -> Fence | None:
        place = bisect_right(self._starts, at) - 1
        return self._fences[place] if place >= 0 and at < self._fences[place].code_end else None

    def _cut(self, start: int) -> Cut:
        low, high = self._reach(start, PRECISION)
        self._usual = max(low, 1)
        middle = start + low // 2
        if low == len(self._text) - start:
            return len(self._text), len(self._text)
        if (cut := self._welcome(middle, start + low)) and self._fits(self._piece(start, *cut)):
            return cut
        if self._divided(start + low, self._blocks, self._links) is not None:
            low, _ = self._reach(start, None, low, high)  # it may just fit
        while low > 1:
            end = start + low
            cut = self._welcome(start + low // 2, end) or self._welcome(start, end) or self._forced(start, end)
            if self._fits(self._piece(start, *cut)):
                return cut
            low = low * 3 // 4
        return start + 1, start + 1

    def _reach(self, start: int, precision: int | None, low: int = 0, high: int | None = None) -> tuple[int, int]:
        """How many characters from here fit, and how many do not."""
        rest = len(self._text) - start
        high = rest + 1 if high is None else high
        size, step = self._usual, max(self._usual // 8, 1)
        while low < rest and (high > rest or high - low > 1 + (low // precision if precision else 0)):
            size = min(max(size, low + 1), high - 1)
            if self._fits(self._piece(start, start + size, start + size)):
                low = size
            else:
                high = size
            size, step = (low + step, step * 2) if high > rest else ((low + high) // 2, step)
        return low, high

    def _welcome(self, start: int, end: int) -> Cut | None:
        """The last good place for a cut behind `start`."""
        for pattern in _WELCOME:
            for cut in self._places(pattern, start, end):
                if self._divided(cut[1], self._blocks, self._links, self._marked, self._headings) is None:
                    return cut
        return None

    def _forced(self, start: int, end: int) -> Cut:
        """Where a cut does the least harm, if there is no good place."""
        for cut in self._places(_WORD, start, end):
            if self._divided(cut[1], self._blocks, self._links) is None:
                return cut
        for spared in ((self._blocks, self._links), (self._blocks,)):
            at = self._between_characters(start, end, *spared)
            if at > start:
                return at, at
        return end, end

    def _places(self, pattern: re.Pattern[str], start: int, end: int) -> Iterator[Cut]:
        """From the last to the first."""
        for match in reversed(list(pattern.finditer(self._text, start + 1, min(end + 2, len(self._text))))):
            if match.end() <= end:
                yield match.end(), self._behind_space(match.end())

    def _behind_space(self, at: int) -> int:
        """The next line with its indentation, or the next word."""
        space = _SPACE.match(self._text, at)
        assert space is not None
        line = self._text.rfind("\n", at, space.end())
        return space.end() if line < 0 else line + 1

    def _between_characters(self, start: int, at: int, *spared: _Spans) -> int:
        while at > start:
            if (whole := self._divided(at, *spared)) is not None:
                at = whole
            elif divides_a_character(self._text, at, start=start):
                at -= 1
            else:
                return at
        return start

    def _divided(self, at: int, *spared: _Spans) -> int | None:
        found = (spans.around(at) for spans in spared)
        return next((start for start in found if start is not None), None)


def _edges(fence: Fence, text: str) -> Iterator[tuple[int, int]]:
    """Between a fence and the code beside it there is no cut: nothing but fences would be left on one side.

    Nor within what stands before a line: it is no part of the code.
    """
    yield fence.start, fence.code_start + len(fence.prefix) + 1
    if fence.prefix:
        for line in _NEXT_LINE.finditer(text, fence.code_start, fence.code_end):
            yield line.end(), min(line.end() + len(fence.prefix), line.end(1)) + 1
    yield fence.code_end - 1, fence.end
