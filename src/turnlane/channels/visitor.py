"""Who a visitor is, where the site around the chat says so and signs it."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import unquote

from turnlane.clock import Clock
from turnlane.errors import Unauthorized

HEADER = "turnlane-visitor"
"""`VISITOR|SIGNATURE` or `VISITOR|EXPIRES|SIGNATURE`, the visitor percent-encoded. What stands before the last `|` is
what was signed. In a header, so that it is in no address, no log and no list of pages visited."""
VISITOR_BYTES_MAX = 256
EXPIRES_DIGITS_MAX = 12


class Visitors:
    """Checks signatures: HMAC-SHA256 in hexadecimal of the visitor, or of `visitor|seconds since 1970`, by a secret
    that the server of the site shares with us. The secret never leaves; what it says of a visitor opens theirs alone.
    """

    def __init__(self, secret: str, clock: Clock) -> None:
        self._key = secret.encode()
        self._clock = clock

    def proven(self, header: str) -> str:
        """The visitor that the header names. Raises Unauthorized unless it proves it, and is still good."""
        signed, _, signature = header.rpartition("|")
        named, _, expires = signed.partition("|")
        visitor = unquote(named)
        # A `|` inside would let one visitor's name be read as another one's with a time.
        if not visitor or "|" in visitor or not visitor.isprintable() or len(visitor.encode()) > VISITOR_BYTES_MAX:
            raise Unauthorized("the visitor is missing or cannot be read; reload the page")
        right = self._mac(f"{visitor}|{expires}" if expires else visitor)
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode()):
            raise Unauthorized("the signature of the visitor does not fit; reload the page")
        if expires and not self._is_good_until(expires):
            raise Unauthorized("the signature of the visitor is too old; reload the page")
        return visitor

    def token(self, visitor: str) -> str:
        """Of their conversation: the same on every device, and found out by nobody. It is no signature of anything."""
        return self._mac(f"conversation|{visitor}")

    def _is_good_until(self, expires: str) -> bool:
        is_time = expires.isascii() and expires.isdigit() and len(expires) <= EXPIRES_DIGITS_MAX
        return is_time and self._clock.now() < int(expires) * 1_000

    def _mac(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
