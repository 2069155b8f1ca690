"""Who may ask: the operator by a token, and on loopback no page of another site."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnlane.errors import InvalidSettings, Unauthorized
from turnlane.http.listen import is_loopback

Check = Callable[[Request], None]


class Access:
    """The rules for one listening address and one operator token."""

    def __init__(self, *, listen_host: str, operator_token: str | None) -> None:
        self.listen_host = listen_host
        self.on_loopback = is_loopback(listen_host)
        self._token = operator_token.encode() if operator_token else None
        if not self.on_loopback and self._token is None:
            raise InvalidSettings(
                f"{listen_host} can be reached from outside; set operator_token, or listen on 127.0.0.1"
            )

    def operator_only(self, request: Request) -> None:
        """Raises Unauthorized without the operator's token. With no token set, loopback alone is enough."""
        if self._token is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Compared as the bytes that came: headers are decoded as Latin-1, whatever the caller meant.
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            raise Unauthorized("send the operator token as `Authorization: Bearer …`")

    def own_site_only(self, request: Request) -> None:
        """Refuse what a page of another site makes the browser of the person at this machine ask.

        On loopback there may be no secret, so the name in Host must be this machine's (a foreign name that resolves to
        127.0.0.1 is a rebinding), and the asking page must be ours.
        """
        if not self.on_loopback:
            return
        host = request.headers.get("host", "")
        if not self._is_ours(_hostname(host)):
            raise HTTPException(403, "this address is for this machine only; use 127.0.0.1 or localhost as the host")
        if _is_from_another_site(request, host):
            raise HTTPException(403, "pages of other sites may not ask here; open the page from this server itself")

    def _is_ours(self, hostname: str) -> bool:
        return is_loopback(hostname) or hostname == self.listen_host.lower()


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_from_another_site(request: Request, host: str) -> bool:
    origin = request.headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() != host.lower()
    # Without Origin it may still be an image or a script of another page. Following a link is no harm.
    site = request.headers.get("sec-fetch-site", "none")
    follows_link = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
    return site not in {"none", "same-origin"} and not follows_link


class Guard:
    """Middleware: every check must let the request pass."""

    def __init__(self, app: ASGIApp, checks: Sequence[Check]) -> None:
        self._app = app
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            for check in self._checks:
                check(request)
        await self._app(scope, receive, send)
