"""Slack's signature: that a request is from Slack, about these very bytes, and not an old one sent again."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256

from turnlane.errors import Unauthorized

REPLAY_SECONDS_MAX = 300


class Signature:
    def __init__(self, signing_secret: str) -> None:
        self._key = signing_secret.encode()

    def check(self, headers: Mapping[str, str], body: bytes, now: int) -> None:
        """Raises Unauthorized unless Slack signed this body within the last minutes."""
        timestamp = headers.get("x-slack-request-timestamp", "")
        if not re.fullmatch(r"[1-9][0-9]{0,10}", timestamp):
            raise Unauthorized("x-slack-request-timestamp is missing or no number; only Slack itself may post here")
        if abs(int(timestamp) - now // 1000) > REPLAY_SECONDS_MAX:
            raise Unauthorized(
                f"the request was signed more than {REPLAY_SECONDS_MAX} s ago or ahead; look at this machine's clock"
            )
        expected = b"v0=" + hmac.new(self._key, f"v0:{timestamp}:".encode() + body, sha256).hexdigest().encode()
        given = headers.get("x-slack-signature", "").encode(errors="replace")
        if not hmac.compare_digest(given, expected):
            raise Unauthorized(
                "the signature does not fit; compare signing_secret with the one in Slack's app settings"
            )
