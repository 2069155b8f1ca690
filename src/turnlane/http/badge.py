"""What a browser shows once somebody has logged in: a role and an end, sealed with the token that let them in."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Literal

Role = Literal["viewer", "operator"]
"""A viewer sees everything and changes nothing."""

LASTS_SECONDS = 12 * 60 * 60
"""A shift. Nobody keeps a list of badges, so this is also how long one that was stolen is good for."""


class Badges:
    """Made and checked with nothing but the tokens: every process with the same ones takes a badge, after any restart.

    Each role's key comes from its own token. So another token ends that role's badges, and a viewer who looks at their
    own badge learns nothing that helps to guess the operator's token.
    """

    def __init__(self, tokens: Mapping[Role, bytes]) -> None:
        self._keys = {role: hmac.digest(token, b"turnlane badge", "sha256") for role, token in tokens.items()}

    def issue(self, role: Role, *, nonce: str, now: int) -> str:
        """`role.end.nonce.seal`; the nonce makes two that end at the same moment two."""
        said = f"{role}.{now + LASTS_SECONDS * 1000}.{nonce}"
        return f"{said}.{self._sealed(role, 'badge', said)}"

    def role_of(self, badge: str, *, now: int) -> Role | None:
        """None for what was not issued here, was changed, or is over."""
        said, _, seal = badge.rpartition(".")
        name, _, rest = said.partition(".")
        role = next((each for each in self._keys if each == name), None)
        if role is None or not hmac.compare_digest(seal.encode(), self._sealed(role, "badge", said).encode()):
            return None
        return role if now < int(rest.partition(".")[0]) else None

    def csrf_of(self, badge: str) -> str:
        """What a page of ours has to send along to change something: only who may read our answers can know it."""
        role = next(each for each in self._keys if badge.startswith(f"{each}."))
        return self._sealed(role, "csrf", badge)

    def _sealed(self, role: Role, purpose: str, said: str) -> str:
        return hmac.digest(self._keys[role], f"{purpose}\n{said}".encode(), "sha256").hex()
