"""The mark on the address of a file that a platform itself has named, in the part of it that is never sent.

Whoever writes to another channel may name any address. Only for a marked one is a token shown, and nobody can make the
mark who does not know the token.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

MARK_CHARACTERS = 32


def marked(url: str, token: str) -> str:
    return f"{url}#{_mark(url, token)}"


def unmarked(url: str, token: str) -> str | None:
    """The address as it was before it was marked with this token; None: it was not."""
    address, _, mark = url.rpartition("#")
    is_ours = hmac.compare_digest(mark.encode(errors="replace"), _mark(address, token).encode())
    return address if is_ours else None


def _mark(url: str, token: str) -> str:
    return hmac.new(token.encode(), url.encode(errors="replace"), sha256).hexdigest()[:MARK_CHARACTERS]
