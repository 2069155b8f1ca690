"""What a request asks for: query parameters and keys of conversations, checked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import TypeVar
from urllib.parse import quote, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from turnlane.errors import NotFound

T = TypeVar("T", bound=str)

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
CURSOR_MAX = 2**63 - 1
NUL = "\0"
"""Nothing that is stored is named with one, and not every store can even be asked for it."""


class Query:
    """The query of one request. Each refusal is a 400 that names the parameter and what it may be."""

    def __init__(self, request: Request, *known: str) -> None:
        self._given = request.query_params
        for name in self._given:
            if name not in known:
                raise _refusal(name, f"there is no such parameter{_suggestion(name, known)}")
            if len(self._given.getlist(name)) > 1:
                raise _refusal(name, "it is given more than once; give it once")

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def stored(self, name: str) -> str | None:
        """A text that the store is asked for."""
        given = self._given.get(name)
        if given is not None and NUL in given:
            raise _refusal(name, "it contains a NUL character; leave it out")
        return given

    def word(self, name: str, words: Sequence[T]) -> T | None:
        given = self._given.get(name)
        if given is None:
            return None
        for word in words:
            if given == word:
                return word
        raise _refusal(name, f"use one of {', '.join(words)}")

    def words(self, name: str, words: Sequence[T]) -> list[T]:
        """Several of them, with commas between them."""
        given = self._given.get(name)
        wanted = [] if given is None else given.split(",")
        if not set(wanted).issubset(words):
            raise _refusal(name, f"use one or more of {','.join(words)}, with commas between them")
        return [word for word in words if word in wanted]

    def date(self, name: str) -> date | None:
        given = self._given.get(name)
        try:
            return None if given is None else datetime.strptime(given, "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError as error:
            raise _refusal(name, "use a day, such as 2026-11-01") from error

    def number(self, name: str, *, default: int, lowest: int, highest: int) -> int:
        given = self._given.get(name)
        return default if given is None else whole_number(name, given, lowest=lowest, highest=highest)

    def limit(self) -> int:
        return self.number("limit", default=LIMIT_DEFAULT, lowest=1, highest=LIMIT_MAX)


def whole_number(name: str, given: str, *, lowest: int, highest: int) -> int:
    digits = given.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and lowest <= int(given) <= highest:
        return int(given)
    raise _refusal(name, f"use a whole number from {lowest} to {highest}")


def _refusal(name: str, what: str) -> HTTPException:
    return HTTPException(400, f"query parameter {name[:50]!r}: {what}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(known)}" if known else "; this path takes none"


def written_after(request: Request, prefix: str) -> str:
    """The rest of the path as it was written. The server has decoded `path`, where an encoded slash looks like any."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0].partition(prefix)[2]


def name_in(written: str) -> str:
    """What a part of a path names."""
    name = unquote(written)
    if NUL in name:
        raise NotFound("nothing is named with a NUL character; leave %00 out of the path")
    return name


def conversation_key_in(written: str) -> str:
    """The key that stands in a path, exactly as the store knows it.

    A key is percent-encoded already, so it is written in the path as it is: `/api/conversations/site/a%2Fb`. A client
    that encodes the whole key once more, as one part of the path, is understood too: `site%2Fa%252Fb`.
    """
    parts = (written if "/" in written else unquote(written)).split("/")
    return "/".join(quote(unquote(part), safe="") for part in parts)
