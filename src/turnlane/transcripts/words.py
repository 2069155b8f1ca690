"""What somebody looks for: words, "phrases", beginnings*, and -not; and where in a text it stands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from turnlane.model.value import value

SNIPPET_CHARACTERS = 160
HIT = ("«", "»")
"""Around what was looked for, in a snippet."""
TERMS_MAX = 32

_TERM = re.compile(r'(-(?!-))?(?:"([^"]*)"?|(\S+))')
_WORD = re.compile(r"[^\W_]+")


@value
class Term:
    """Words that stand beside each other."""

    words: Sequence[str]
    is_beginning: bool
    """Of the last word."""
    is_unwanted: bool


def terms_of(typed: str) -> list[Term]:
    """Whatever was typed, also what is no query at all. What holds no letter and no digit says nothing."""
    found = []
    for minus, phrase, word in _TERM.findall(typed):
        words = words_in(phrase or word)
        if words:
            found.append(Term(tuple(words), word.endswith("*"), bool(minus)))
    return found[:TERMS_MAX]


def words_in(text: str) -> list[str]:
    """Letters and digits that stand together; an accent belongs to its letter, however it is written."""
    return _WORD.findall(text if text.isascii() else unicodedata.normalize("NFC", text))


def folded(text: str) -> str:
    """Without accents and case."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFD", text)
    return "".join(character for character in apart if not unicodedata.combining(character)).lower()


def snippet(text: str, terms: Sequence[Term]) -> str:
    """The part of the text around the first hit, on one line, with every hit in it marked."""
    hits = list(_hits(text, [term for term in terms if not term.is_unwanted]))
    first = hits[0][0] if hits else 0
    begin = max(0, first - SNIPPET_CHARACTERS // 3)
    end = begin + SNIPPET_CHARACTERS
    parts, place = [], begin
    for start, stop in hits:
        if place <= start and stop <= end:
            parts += [text[place:start], HIT[0], text[start:stop], HIT[1]]
            place = stop
    cut = "".join([*parts, text[place:end]])
    return ("…" if begin else "") + " ".join(cut.split()) + ("…" if end < len(text) else "")


def _hits(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Places in their order; where two begin together, only one."""
    places = [(match.start(), match.end(), folded(match[0])) for match in _WORD.finditer(text)]
    words = [word for _, _, word in places]
    wanted = [([folded(word) for word in term.words], term.is_beginning) for term in terms]
    past = 0
    for number in range(len(words)):
        for phrase, is_beginning in wanted:
            size = len(phrase)
            if number >= past and _is_at(phrase, words[number : number + size], is_beginning=is_beginning):
                yield places[number][0], places[number + size - 1][1]
                past = number + size
                break


def _is_at(wanted: Sequence[str], words: Sequence[str], *, is_beginning: bool) -> bool:
    if is_beginning and len(words) == len(wanted):
        return words[:-1] == wanted[:-1] and words[-1].startswith(wanted[-1])
    return words == wanted
