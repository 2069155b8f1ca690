"""How the body of a request becomes values, with one clear error for each way it can be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from turnlane.errors import InvalidBody, InvalidMessage, UnsupportedMediaType

TEXT_BYTES_MAX = 1_000_000
REPORTS_MAX = 1_000
"""Of typing, in one request."""
ERROR_CHARACTERS_MAX = 300

Value = TypeVar("Value")


def decode_json(decoder: msgspec.json.Decoder[Value], headers: Mapping[str, str], body: bytes) -> Value:
    """The value in the body; else UnsupportedMediaType, InvalidBody (not JSON) or InvalidMessage (the wrong shape)."""
    require_json(headers)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidMessage(_short(f"the message has the wrong shape: {error}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidBody(_short(f"the body is not JSON in UTF-8: {error}")) from None
    except RecursionError:
        raise InvalidBody("the body is nested too deeply; send a flat object or a list of them") from None


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody is typing, or not any more."""

    conversation: str
    typing: bool


def typing_in(body: bytes) -> Sequence[str]:
    """The conversations in which, by this body, somebody is typing. InvalidMessage if it says so in the wrong way."""
    try:
        reports = [msgspec.convert(item, _Report) for item in _items(body) if _is_report(item)]
    except msgspec.ValidationError as error:
        raise InvalidMessage(_short(f"the report of typing has the wrong shape: {error}")) from None
    if len(reports) > REPORTS_MAX:
        raise InvalidMessage(f"there are more than {REPORTS_MAX} reports of typing; send fewer at once")
    return list(dict.fromkeys(report.conversation for report in reports if report.typing))


def without_typing(body: bytes) -> bytes:
    """The same body without reports of typing. Almost always there are none, and it stays as it is."""
    items = _items(body)
    said = [item for item in items if not _is_report(item)]
    return body if len(said) == len(items) else msgspec.json.encode(said)


def _items(body: bytes) -> Sequence[object]:
    if b'"typing"' not in body:
        return ()
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()  # whoever reads the messages in it says what is wrong
    return value if isinstance(value, list) else [value]


def _is_report(item: object) -> bool:
    return isinstance(item, dict) and "typing" in item


def check_name(field: str, value: str, bytes_max: int) -> None:
    """Refuse what cannot name a thing: nothing, a NUL, too many bytes."""
    if not value:
        raise InvalidMessage(f"{field} is empty; give it at least one character")
    check_text(field, value, bytes_max)


def check_text(field: str, value: str, bytes_max: int = TEXT_BYTES_MAX) -> None:
    """Refuse what no backend could store: a NUL, too many bytes."""
    if "\0" in value:
        raise InvalidMessage(f"{field} contains a NUL character; leave it out")
    if len(value) > bytes_max or len(value.encode()) > bytes_max:
        raise InvalidMessage(f"{field} is longer than {bytes_max} bytes; shorten it")


def check_answers(delivery: str | None, bytes_max: int) -> None:
    """Refuse an empty one: it would be the answer to no question, and the agent would never see it."""
    if delivery == "":
        raise InvalidMessage("answers is empty; name the question's delivery, or leave it out")
    check_text("answers", delivery or "", bytes_max)


def require_json(headers: Mapping[str, str]) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("the body must be JSON; send it with `Content-Type: application/json`")


def _short(text: str) -> str:
    # The name of an unknown field is part of the text, and may be as long as the body.
    return text if len(text) <= ERROR_CHARACTERS_MAX else text[:ERROR_CHARACTERS_MAX] + "…"
