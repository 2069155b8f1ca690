"""Settings shown to people: every effective value, where it came from, and no secret."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from turnlane.settings.shape import SECTIONS, keys
from turnlane.settings.tables import Settings, Source, Table
from turnlane.settings.values import Address, AlertNames, Duration, Hosts, Origins, Rate, Secret, Url, Words

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
