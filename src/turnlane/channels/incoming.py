"""How the body of a request becomes values, with one clear error for each way it can be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from turnlane.errors import InvalidBody, InvalidMessage, UnsupportedMediaType

TEXT_BYTES_MAX = 1_000_000
ERROR_CHARACTERS_MAX = 300

Value = TypeVar("Value")


def decode_json(decoder: msgspec.json.Decoder[Value], headers: Mapping[str, str], body: bytes) -> Value:
    """The value in the body; else UnsupportedMediaType, InvalidBody (not JSON) or InvalidMessage (the wrong shape)."""
    _require_json(headers)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidMessage(_short(f"the message has the wrong shape: {error}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidBody(_short(f"the body is not JSON in UTF-8: {error}")) from None
    except RecursionError:
        raise InvalidBody("the body is nested too deeply; send a flat object or a list of them") from None


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


def _require_json(headers: Mapping[str, str]) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("the body must be JSON; send it with `Content-Type: application/json`")


def _short(text: str) -> str:
    # The name of an unknown field is part of the text, and may be as long as the body.
    return text if len(text) <= ERROR_CHARACTERS_MAX else text[:ERROR_CHARACTERS_MAX] + "…"
