"""Values of the model as JSON: times in RFC 3339 UTC, kinds of lanes by name, files without what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from turnlane.model.lane import Kind
from turnlane.model.message import Attachment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_NAMES = frozenset({"at", "since", "until"})
"""So is what ends in `_at` or `_until`."""

encode = msgspec.json.Encoder().encode


def to_json(value: object) -> bytes:
    return encode(plain(value))


def plain(value: object, name: str = "") -> Any:
    """Dataclasses as objects, enums as words, times as text; whatever else as it is."""
    if isinstance(value, Kind):
        return value.name.lower()
    if isinstance(value, int) and not isinstance(value, bool) and is_time(name):
        return rfc3339(value)
    if isinstance(value, Attachment):
        value = without_bytes(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def without_bytes(attachment: Attachment) -> Attachment:
    """A file that is in its URL is for the agent; whoever looks at the message wants to know what it is."""
    head, comma, _ = attachment.url.partition(",")
    return replace(attachment, url=f"{head}{comma}…") if head[:5].casefold() == "data:" else attachment


def is_time(name: str) -> bool:
    return name.endswith(("_at", "_until")) or name in TIME_NAMES


def rfc3339(milliseconds: int) -> str:
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
