"""Secrets, taken out of whatever is about to be written down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
SECRET_CHARACTERS_MIN = 6
"""What is shorter is found in ordinary words, and protects nothing."""

_NAMED = (
    r"(?:[\w.-]*(?:password|passwd|passkey|secret|token|signature|credential)|(?:[\w.-]*[_.-])?(?:pwd|sig|auth)"
    r"|[\w.-]*(?:api|access|private|signing|encryption|account)[_-]?key)"
)
"""Names of what is private: of a parameter, a header, a field."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), shown)
    for pattern, shown in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
        # Headers, as they are printed: `Authorization: Bearer …`, `'authorization': 'Bearer …'`, `(b'Cookie', b'…')`.
        (
            r"((?:proxy-)?authorization|(?:set-)?cookie)(['\"]?\s*[:=,]\s*(?:b?['\"])?)(?:(bearer|basic|digest|token)\s+)?"
            r"[^\s'\",;)}\]]+",
            rf"\1\2{MASK}",
        ),
        (r"\b(bearer|basic)(\s+)(?=\S*[\d=])[A-Za-z0-9._~+/=-]{6,}", rf"\1\2{MASK}"),
        # A URL with a password, or with a key among its parameters.
        (r"(\w://[^\s/@:'\"]*):[^\s/@'\"]+@", rf"\1:{MASK}@"),
        (rf"([?&;](?:{_NAMED}|key|code)=)[^&\s'\"<>#;]+", rf"\1{MASK}"),
        # Fields of JSON, and of what Python prints.
        (rf"((?<![\w.-]){_NAMED}['\"]?\s*[:=]\s*b?)(['\"])(?:\\.|(?!\2).)*\2", rf"\1\2{MASK}\2"),
        (rf"((?<![\w.-]){_NAMED}=)[^\s'\",;&)}}\]]+", rf"\1{MASK}"),
    )
) + tuple(
    # Keys that are known by how they begin; here letters count.
    (re.compile(pattern), MASK)
    for pattern in (
        r"\bsk-[A-Za-z0-9_-]{16,}",
        r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
        r"\bxapp-[A-Za-z0-9-]{10,}",
        r"\bwhsec_[A-Za-z0-9+/=_-]{16,}",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}",
        r"\bAKIA[0-9A-Z]{16}\b",
        r"\bEAA[A-Za-z0-9]{30,}",
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    )
)
_HINTS = (
    *("auth", "cookie", "bearer", "basic", "://", "passw", "passkey", "pwd", "secret", "token", "sig", "credential"),
    *("key", "code=", "sk-", "xox", "xapp-", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "akia", "eaa", "eyj"),
)
"""Without any of these, in small letters, nothing above is found: most lines are looked at once and are done."""


class Redactor:
    """Knows the secrets of the settings by their values, and those of others by how they look."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SECRET_CHARACTERS_MIN for form in _forms(secret)}
        # The longest first, as one may be the beginning of another.
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASK)
        if _is_suspicious(text):
            for pattern, shown in _PATTERNS:
                text = pattern.sub(shown, text)
        return text

    def finds(self, text: str) -> bool:
        """Whether anything in it may have to be taken out; much quicker than to do it."""
        return any(form in text for form in self._forms) or _is_suspicious(text)


def _is_suspicious(text: str) -> bool:
    small = text.lower()
    return any(hint in small for hint in _HINTS)


def _forms(secret: str) -> set[str]:
    """As it is, in a URL, in JSON, and in what Python prints."""
    return {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
