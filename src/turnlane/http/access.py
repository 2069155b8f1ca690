"""Who may ask: the operator and viewers by their tokens, and on loopback no page of another site."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnlane.clock import Clock
from turnlane.errors import InvalidSettings, Unauthorized
from turnlane.http.attempts import Attempts
from turnlane.http.badge import Badges, Role
from turnlane.http.listen import is_loopback
from turnlane.model.event import Event, Fact
from turnlane.model.value import value

Check = Callable[[Request], None]
By = Literal["loopback", "operator", "viewer", "console"]
"""Nobody had to say who they are; a token in the request; or a badge, which a login gave."""

COOKIE = "turnlane-badge"
CSRF = "x-turnlane-csrf"
LOGIN = "/console/login"
FROM_ANOTHER_SITE = "pages of other sites may not ask here; open the page from this server itself"
READING = frozenset({"GET", "HEAD"})
"""Whatever else is asked may change something."""


@value
class Caller:
    """Who asks, and by what right."""

    role: Role
    by: By
    badge: str | None = None


AT_THIS_MACHINE = Caller("operator", "loopback")


class Access:
    """The rules for one listening address and its tokens. `proxies`: so many stand before us, and name who asks."""

    def __init__(
        self,
        *,
        listen_host: str,
        operator_token: str | None,
        viewer_token: str | None = None,
        proxies: int = 0,
        clock: Clock,
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.listen_host = listen_host
        self.on_loopback = is_loopback(listen_host)
        given: dict[Role, str | None] = {"operator": operator_token, "viewer": viewer_token}
        self._tokens: dict[Role, bytes] = {role: token.encode() for role, token in given.items() if token}
        if not self.on_loopback and "operator" not in self._tokens:
            raise InvalidSettings(
                f"{listen_host} can be reached from outside; set operator_token, or listen on 127.0.0.1"
            )
        self.badges = Badges(self._tokens)
        self._proxies = proxies
        self._attempts = Attempts(clock)
        self._clock = clock
        self._emit = emit

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are: the person at this machine is the operator."""
        return not self._tokens

    def known_only(self, request: Request) -> None:
        """Raises Unauthorized without a right token or badge, and a 403 if this caller may not change things so."""
        caller = self._caller(request)
        if request.method not in READING:
            self._let_change(request, caller)
        request.state.caller = caller

    def page_only(self, request: Request) -> None:
        """The same for a page: who has to log in first is sent to where they can, and from there back here."""
        try:
            self.known_only(request)
        except Unauthorized as error:
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            raise HTTPException(303, "log in first", {"location": f"{LOGIN}?to={quote(wanted)}"}) from error

    def role_by_token(self, request: Request, token: bytes, *, way: str) -> Role:
        """Raises Unauthorized for a wrong one, and a 429 after too many of these."""
        address = self.address_of(request)
        self._attempts.check(address)
        # Each is compared, in a time that says nothing about how much of it was right.
        roles = [role for role, right in self._tokens.items() if hmac.compare_digest(token, right)]
        if not roles:
            self._attempts.failed(address)
            self.tell("login.refused", request, way=way)
            raise Unauthorized("this token is not right; operator_token and viewer_token are those of turnlane.toml")
        return roles[0]

    def address_of(self, request: Request) -> str:
        """Of who asks. What a stranger writes into X-Forwarded-For stands left of what our own proxies add to it."""
        peer = request.client.host if request.client is not None else "unknown"
        if not self._proxies:
            return peer
        hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        try:
            return str(ip_address(hops[-self._proxies].strip()))
        except (IndexError, ValueError):
            return peer

    def tell(self, event: str, request: Request, **facts: Fact) -> None:
        self._emit(Event(event, self._clock.now(), None, {"from": self.address_of(request), **facts}))

    def _caller(self, request: Request) -> Caller:
        if self.is_open:
            return AT_THIS_MACHINE
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            # Compared as the bytes that came: headers are decoded as Latin-1, whatever the caller meant.
            role = self.role_by_token(request, given.strip().encode("latin-1"), way="header")
            return Caller(role, role)
        badge = request.cookies.get(COOKIE, "")
        by_badge = self.badges.role_of(badge, now=self._clock.now())
        if by_badge is None:
            raise Unauthorized(f"send the operator token as `Authorization: Bearer …`, or log in at {LOGIN}")
        return Caller(by_badge, "console", badge)

    def _let_change(self, request: Request, caller: Caller) -> None:
        if caller.role != "operator":
            raise HTTPException(403, "a viewer sees everything and changes nothing; use the operator token for this")
        if caller.badge is None:
            return
        # The browser shows the badge by itself, whoever's page makes it ask; so the page must show that it is ours.
        self.same_origin_only(request)
        given = request.headers.get(CSRF, "").encode("latin-1")
        if not hmac.compare_digest(given, self.badges.csrf_of(caller.badge).encode()):
            raise HTTPException(403, "send `csrf` of GET /api/me as the header X-Turnlane-CSRF, or reload the page")

    def same_origin_only(self, request: Request) -> None:
        """Refuse what a page of another site makes a browser ask, on whatever address we listen."""
        if _is_from_another_site(request):
            raise HTTPException(403, FROM_ANOTHER_SITE)

    def own_site_only(self, request: Request) -> None:
        """Refuse what a page of another site makes the browser of the person at this machine ask.

        On loopback there may be no secret, so the name in Host must be this machine's (a foreign name that resolves to
        127.0.0.1 is a rebinding), and the asking page must be ours.
        """
        if not self.on_loopback:
            return
        if not self._is_ours(_hostname(request.headers.get("host", ""))):
            raise HTTPException(403, "this address is for this machine only; use 127.0.0.1 or localhost as the host")
        self.same_origin_only(request)

    def _is_ours(self, hostname: str) -> bool:
        return is_loopback(hostname) or hostname == self.listen_host.lower()


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_from_another_site(request: Request) -> bool:
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
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
