"""Settings shown to people: every effective value, where it came from, and no secret."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec.structs import fields

from turnlane.settings.shape import SECTIONS, keys
from turnlane.settings.tables import Settings, Source, Table
from turnlane.settings.values import Address, AlertNames, Duration, Hosts, Origins, Rate, Secret, Url, Words

KEY_CHARACTERS_MIN = 16
"""A parameter of a URL that is so long may be a key."""

Plain = str | bool | int | float | list[str] | dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """One effective value, in the form that the file would have it, and where it came from."""

    key: str
    value: Plain
    source: Source


def describe(settings: Settings) -> list[Described]:
    """Every effective value, secrets masked."""
    found: dict[str, object] = {}
    for path in SECTIONS:
        table: Any = settings
        for part in path:
            table = getattr(table, part)
        found |= _values_of(table, path)
    for group in ("channels", "agents"):
        for name, table in getattr(settings, group).items():
            found |= _values_of(table, (group, name))
    for name, price in settings.prices.items():
        found |= _values_of(price, ("prices", name))
    for route in settings.routes:
        name = route.channel
        if f"routes.{name}.channel" in found:
            continue  # of two for one channel, the first counts
        found |= {f"routes.{name}.channel": name, f"routes.{name}.agent": route.agent}
        overridden = _values_of(route.lanes, ("routes", name))
        overridden |= _values_of(route.lanes.backoff, ("routes", name, "backoff"))
        found |= {key: value for key, value in overridden.items() if key in settings.sources}
    for number, table in enumerate(settings.schedules, start=1):
        found |= _values_of(table, ("schedules", str(number)))
    found["backend"] = without_password(settings.backend)
    return [Described(key, _plain(value), settings.sources.get(key, "default")) for key, value in found.items()]


def secrets_in(settings: Settings) -> frozenset[str]:
    """The values themselves, so that whoever writes something down can leave them out."""
    return frozenset([*_secrets_in(settings), *_secrets_in(Url(settings.backend))])


def _secrets_in(value: object) -> Iterator[str]:
    match value:
        case Secret():
            yield value.reveal()
        case Url():
            yield from _keys_in(value)
        case Table():
            yield from _secrets_in([getattr(value, each.name) for each in fields(value)])
        case Mapping():
            yield from _secrets_in(list(value.values()))
        case list() | tuple():
            for each in value:
                yield from _secrets_in(each)


def _keys_in(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    if parts.password:
        yield from {parts.password, unquote(parts.password)}
    yield from (value for _, value in parse_qsl(parts.query) if len(value) >= KEY_CHARACTERS_MIN)


def without_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", url)


def _values_of(table: Table, path: tuple[str, ...]) -> dict[str, object]:
    return {".".join((*path, key)): getattr(table, key) for key in keys(type(table))}


def _plain(value: Any) -> Plain:
    match value:
        case Duration() | Secret() | Address() | Rate():
            return str(value)
        case Url():
            return re.sub(r"\?.*", "?***", without_password(value))
        case AlertNames() | Hosts() | Origins() | Words():
            return list(value)
        case dict():
            return {key: str(each) for key, each in value.items()}
    return value  # type: ignore[no-any-return]
