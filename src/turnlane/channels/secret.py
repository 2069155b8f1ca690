"""A secret shared with another service: it shows who calls us, and signs what we send."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hmac import compare_digest

from standardwebhooks import Webhook as Signer

from turnlane.errors import InvalidBody, InvalidSettings, Unauthorized

REPLAY_SECONDS_MAX = 300


class Secret:
    """Checks and signs. The secret itself never appears in an error or a repr.

    Either of two proofs is enough: `Authorization: Bearer <secret>`, or the three headers of Standard Webhooks.
    """

    def __init__(self, secret: str) -> None:
        # It travels in a header, where anything else would arrive as something else.
        if not secret or not all("!" <= character <= "~" for character in secret):
            raise InvalidSettings("the secret must be one or more printable ASCII characters without spaces")
        self._bearer = secret.encode()
        self._signer = Signer(_key(secret))

    def check(self, headers: Mapping[str, str], body: bytes, now: int) -> None:
        """Raise Unauthorized unless the request proves that its sender knows the secret."""
        if self._bears_it(headers.get("authorization", "")):
            return
        if "webhook-signature" not in headers:
            raise Unauthorized("the secret is missing or wrong; send `Authorization: Bearer <secret>` or sign the body")
        self._check_signature(headers, body, now)

    def sign(self, message_id: str, body: bytes, now: int) -> dict[str, str]:
        """The headers of Standard Webhooks for this body."""
        seconds = now // 1000
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": self._signature(message_id, seconds, body.decode()),
        }

    def _bears_it(self, authorization: str) -> bool:
        return compare_digest(_bytes(_credentials(authorization)), self._bearer)

    def _check_signature(self, headers: Mapping[str, str], body: bytes, now: int) -> None:
        # Only the package's signing is used: its `verify` reads the machine's clock and breaks on malformed headers.
        seconds = _fresh(headers.get("webhook-timestamp", ""), now)
        try:
            expected = self._signature(headers.get("webhook-id", ""), seconds, body.decode())
        except UnicodeError:
            raise InvalidBody("the body is not UTF-8, so its signature cannot be checked; send JSON in UTF-8") from None
        given = headers["webhook-signature"].split(" ")
        if not any(compare_digest(_bytes(signature), expected.encode()) for signature in given):
            raise Unauthorized("no signature fits; sign the exact bytes of the body with the channel's secret")

    def _signature(self, message_id: str, seconds: int, text: str) -> str:
        return self._signer.sign(message_id, datetime.fromtimestamp(seconds, UTC), text)


class SharedWord:
    """A word that the other side shows with each request, wherever it has a place for one. Never in a repr."""

    def __init__(self, word: str) -> None:
        self._word = word.encode()

    def check(self, *places: str) -> None:
        """Raise Unauthorized unless it stands in one of these: a parameter, a header, with or without `Bearer`."""
        shown = [_bytes(place) for place in places] + [_bytes(_credentials(place)) for place in places]
        if not any(compare_digest(each, self._word) for each in shown):
            raise Unauthorized("the secret is missing or wrong; send the one that the settings of the channel name")


def _credentials(header: str) -> str:
    scheme, _, credentials = header.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _key(secret: str) -> bytes:
    if not secret.startswith("whsec_"):
        return secret.encode()
    encoded = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise InvalidSettings("a secret that begins with whsec_ must go on in base64; copy it again from its source")
    return key


def _fresh(timestamp: str, now: int) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,10}", timestamp):
        raise Unauthorized("webhook-timestamp is missing or not a number of seconds since 1970")
    seconds = int(timestamp)
    if abs(seconds - now // 1000) > REPLAY_SECONDS_MAX:
        raise Unauthorized(f"webhook-timestamp is more than {REPLAY_SECONDS_MAX} s from our time; check both clocks")
    return seconds


def _bytes(header: str) -> bytes:
    return header.encode(errors="surrogatepass")
