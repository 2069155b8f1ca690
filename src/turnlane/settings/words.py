"""How problems are put: what was expected, what was given, and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from turnlane.settings.values import Address, AlertNames, Duration, Hosts, Origins, Rate, Secret, Url, UrlPath, Words

_EXPECTED: Mapping[object, str] = {
    Duration: 'a duration with its unit, like "250ms", "3s" or "1m30s"',
    Secret: "a text that is not empty",
    Rate: 'a rate like "1/s", "20/m" or "500/h", at most 1000 in a second',
    UrlPath: 'a path like "/hooks/wati", which does not begin like one of ours',
    Url: 'a URL like "http://127.0.0.1:9000/turns"',
    Address: 'HOST:PORT like "127.0.0.1:8484"',
    str: "a text",
    bool: "true or false",
    dict[str, Secret]: "a table of texts",
    dict[str, Any]: "a table",
    Hosts: 'a list of hosts like ["files.slack.com", "*.example.com", "10.0.0.5:9000"]',
    Origins: 'a list of sites like ["https://www.example.com"], without a path',
    AlertNames: 'a list of alerts like ["hook_errors"]; docs/how-to/alerts.md names them',
    Words: 'a list like ["whisper", "{file}"]',
}


def decode(kind: type, value: object) -> object:
    if kind in {Duration, Rate, Secret, Url, UrlPath, Address, AlertNames, Hosts, Origins, Words}:
        return kind.parse(value)
    raise NotImplementedError(kind)


def _one_kind(kind: Any) -> Any:
    """The type without its `| None`."""
    if get_origin(kind) in {Union, UnionType}:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return kind


def expected(kind: Any) -> str:
    kind = _one_kind(kind)
    if get_origin(kind) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kind))
    if get_origin(kind) is Annotated:
        return str(kind.__metadata__[0].description)
    return _EXPECTED[kind]


def choices_of(kind: Any) -> Sequence[str]:
    kind = _one_kind(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def holds_secret(kind: Any) -> bool:
    """A URL may carry a key, too."""
    return _one_kind(kind) in {Secret, dict[str, Secret], Url}


def shown(value: object, *, secret: bool = False) -> str:
    if secret:
        return "another text" if isinstance(value, str) and value else shown(value) if not value else "something else"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def quoted(names: Mapping[str, Any]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def or_rather(name: str, known: Iterable[str], form: str = "{}", *, cutoff: float = 0.6) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean '{form.format(close[0])}'?" if close else ""
