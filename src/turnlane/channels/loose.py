"""JSON of somebody else's, of which we read what we know and trip over nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from turnlane.channels.base import Aside
from turnlane.errors import InvalidBody

ASIDE_CHARACTERS_MAX = 4_000


class Loose:
    """One object. What is not there, or is of another kind than was expected, reads as nothing."""

    def __init__(self, value: object) -> None:
        self.raw: Mapping[str, object] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def text(self, *names: str) -> str:
        """The first of these that says something. A number is taken as it is written."""
        for name in names:
            value = self.raw.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = str(value)
            if isinstance(value, str) and value.strip():
                return value.replace("\0", "")
        return ""

    def whole(self, name: str) -> int | None:
        """A number that can be counted with, also if it is written as a text."""
        digits = self.text(name).partition(".")[0]
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None

    def flag(self, name: str) -> bool:
        return self.raw.get(name) is True

    def inner(self, *names: str) -> Loose:
        """The first of these that is an object with something in it."""
        return next((found for name in names if (found := Loose(self.raw.get(name)))), Loose(None))

    def each(self, name: str) -> Iterator[Loose]:
        """The objects of a list; what else is in it is left out."""
        value = self.raw.get(name)
        yield from (Loose(item) for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))

    def aside(self, why: str) -> Aside:
        return Aside(why, msgspec.json.encode(self.raw).decode()[:ASIDE_CHARACTERS_MAX])


def loosely(body: bytes) -> object:
    """The JSON that a body holds, whatever it is; InvalidBody if it holds none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidBody("the body is not JSON in UTF-8; send it as it was made") from None
