"""Where a character begins, as a reader sees it, and how long a text is for a platform."""

from __future__ import annotations

import re
from unicodedata import category, combining, east_asian_width

_JOINERS = frozenset("\u200c\u200d")
_SARA_AM = frozenset("\u0e33\u0eb3")
_VIRAMA = 9
_SURROGATES = re.compile("[\ud800-\udfff]")


def units(text: str) -> int:
    """Its length in UTF-16, as JavaScript and Java count: never less than the characters, whoever counts them."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def columns(text: str) -> int:
    """How wide it is where every letter is equally wide."""
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def encodable(text: str) -> str:
    """The same, with a replacement for halves of characters, which no platform could be sent."""
    if _SURROGATES.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def divides_a_character(text: str, at: int, *, start: int = 0) -> bool:
    """Whether what a reader sees as one character has a part on either side. One begins at `start`."""
    left, right = text[at - 1], text[at]
    if right < "\u0300":
        return left == "\r" and right == "\n"
    if category(right) in {"Mn", "Me", "Mc"} or right in _JOINERS or right in _SARA_AM or _is_emoji_suffix(right):
        return True
    if _is_flag_half(left) and _is_flag_half(right):
        return _flag_halves_before(text, at, start) % 2 == 1
    return left == "\u200d" or _is_one_letter(left, right)


def _is_emoji_suffix(character: str) -> bool:
    """A skin tone, or what spells the flag of a region."""
    return "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, at: int, start: int) -> int:
    first = at
    while first > start and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first


def _is_one_letter(left: str, right: str) -> bool:
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    if combining(left) == _VIRAMA:
        return category(right) == "Lo"
    if "\u1160" <= right <= "\u11ff" or "\ud7b0" <= right <= "\ud7fb":
        return True  # the vowel or the end of a Korean syllable
    leads = "\u1100" <= left <= "\u115f" or "\ua960" <= left <= "\ua97c"
    return leads and ("\u1100" <= right <= "\u115f" or "\ua960" <= right <= "\ua97c" or "\uac00" <= right <= "\ud7a3")
