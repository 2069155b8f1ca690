"""`/console/login` and `/console/logout`: a token for a badge, which the browser keeps and no script can read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from turnlane.errors import Unauthorized, UnsupportedMediaType
from turnlane.http.access import COOKIE, LOGIN, Access, Caller, Guard
from turnlane.http.answer import json_answer
from turnlane.http.badge import LASTS_SECONDS, Role
from turnlane.http.base import Bot
from turnlane.http.page import PAGE_HEADERS
from turnlane.http.query import Query
from turnlane.http.webhooks import read_body

HOME = "/console"
LOGOUT = "/console/logout"
FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 10_000
TO_CHARACTERS_MAX = 2_000
OWN_PLACE = re.compile(r"/console(?:[/?#][!-\[\]-~]*)?")
"""The console and what is below it, in plain ASCII without a backslash, which some browsers take for a slash."""

LOGIN_HEADERS = PAGE_HEADERS | {
    "cache-control": "no-store",
    "content-security-policy": PAGE_HEADERS["content-security-policy"].replace(
        "form-action 'none'", "form-action 'self'"
    ),
    # With no-referrer a browser calls the origin of a form `null`, and it could not be told from another site's.
    "referrer-policy": "same-origin",
}


class Login:
    """The page is a plain form: it works without its script."""

    def __init__(self, bot: Bot, access: Access) -> None:
        self._clock = bot.clock
        self._access = access

    def routes(self) -> list[BaseRoute]:
        own_site = [Middleware(Guard, checks=[self._access.own_site_only])]
        same_origin = [Middleware(Guard, checks=[self._access.own_site_only, self._access.same_origin_only])]
        return [
            Route(LOGIN, self.page, middleware=own_site),
            Route(LOGIN, self.enter, methods=["POST"], middleware=same_origin),
            Route(LOGOUT, self.leave, methods=["POST"], middleware=same_origin),
        ]

    async def page(self, request: Request) -> Response:
        to = own_place(Query(request, "to").text("to"))
        if self._is_in(request):
            return RedirectResponse(to, 303, LOGIN_HEADERS)
        return _page(to)

    async def enter(self, request: Request) -> Response:
        form = await _form(request)
        to = own_place(form.get("to"))
        if self._access.is_open:
            return RedirectResponse(to, 303, LOGIN_HEADERS)
        try:
            role = self._access.role_by_token(request, form.get("token", "").strip().encode(), way="form")
        except Unauthorized:
            return _page(to, "This token is not right.", 401)
        except HTTPException as refused:
            return _page(to, f"{refused.detail}.", refused.status_code, refused.headers)
        self._access.tell("login.accepted", request, role=role)
        return self._let_in(request, role, to)

    async def leave(self, request: Request) -> Response:
        """The browser forgets its badge. It needs nothing but to come from a page of ours, also when all is over."""
        answer = RedirectResponse(LOGIN, 303, LOGIN_HEADERS)
        answer.delete_cookie(COOKIE, path="/", secure=is_https(request), httponly=True, samesite="strict")
        return answer

    async def me(self, request: Request) -> Response:
        """Who asks, and what a page must send along with what it changes."""
        Query(request)
        caller: Caller = request.state.caller
        csrf = None if caller.badge is None else self._access.badges.csrf_of(caller.badge)
        return json_answer({"role": caller.role, "csrf": csrf, "open": self._access.is_open})

    def _is_in(self, request: Request) -> bool:
        if self._access.is_open:
            return True
        return self._access.badges.role_of(request.cookies.get(COOKIE, ""), now=self._clock.now()) is not None

    def _let_in(self, request: Request, role: Role, to: str) -> Response:
        answer = RedirectResponse(to, 303, LOGIN_HEADERS)
        badge = self._access.badges.issue(role, nonce=self._clock.token(), now=self._clock.now())
        answer.set_cookie(
            COOKIE,
            badge,
            max_age=LASTS_SECONDS,
            path="/",
            secure=is_https(request),
            httponly=True,
            samesite="strict",
        )
        return answer


def own_place(wanted: str | None) -> str:
    """Where to go after the login: a place of the console, and never anywhere else."""
    if wanted is None or len(wanted) > TO_CHARACTERS_MAX or OWN_PLACE.fullmatch(wanted) is None:
        return HOME
    return HOME if wanted.startswith((LOGIN, LOGOUT)) else wanted


def is_https(request: Request) -> bool:
    """As the browser sees it. A caller who says so falsely gets a badge that their own browser does not keep."""
    said = (request.url.scheme, request.headers.get("x-forwarded-proto", ""), request.headers.get("origin", ""))
    return any(each.lower().startswith("https") for each in said)


async def _form(request: Request) -> dict[str, str]:
    """The last value of each name. Read without a library: it has two fields."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise UnsupportedMediaType(f"send the token as a form, with content type {FORM}")
    body = await read_body(request, FORM_BYTES_MAX)
    fields = parse_qs(body.decode("latin-1"), encoding="utf-8", errors="replace")
    return {name: values[-1] for name, values in fields.items()}


def _page(to: str, trouble: str = "", status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = (files("turnlane.http") / "console" / "login.html").read_text(encoding="utf-8")
    for name, said in {"to": to, "trouble": trouble}.items():
        text = text.replace(f"{{{{{name}}}}}", escape(said))
    return Response(text, status, LOGIN_HEADERS | dict(headers or {}), "text/html")
