"""The operator's console at `/console`: files, which ask `/api` for everything they show."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.http.access import Access, Guard
from turnlane.http.page import PAGE_HEADERS

ASSETS = {"css": "text/css", "js": "text/javascript"}
MEDIA_TYPES = {"html": "text/html", **ASSETS}


class ConsolePage:
    """Its files hold nothing that is anybody's: what is shown comes from `/api`, which is guarded by itself."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[BaseRoute]:
        own_site = [Middleware(Guard, checks=[self._access.own_site_only])]
        known = [Middleware(Guard, checks=[self._access.own_site_only, self._access.page_only])]
        return [
            Route("/console", self.index, middleware=known),
            Route("/console/{file:path}", self.asset, middleware=own_site),
        ]

    async def index(self, request: Request) -> Response:
        return _answer("index.html")

    async def asset(self, request: Request) -> Response:
        if request.path_params["file"] not in assets():
            raise HTTPException(404)
        return _answer(request.path_params["file"])


@cache
def assets() -> frozenset[str]:
    """The files that are served, by their paths below `/console/`."""
    root = files("turnlane.http") / "console"
    inside = {f"views/{each.name}" for each in (root / "views").iterdir()}
    return frozenset(name for name in inside | {each.name for each in root.iterdir()} if _ending(name) in ASSETS)


def _answer(file: str) -> Response:
    text = (files("turnlane.http") / "console" / file).read_text(encoding="utf-8")
    return Response(text, headers=PAGE_HEADERS, media_type=MEDIA_TYPES[_ending(file)])


def _ending(name: str) -> str:
    return name.rpartition(".")[2]
