"""`/api/transcripts`: sessions of Claude Code beside the conversations of other channels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from typing import get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.errors import NotFound
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.query import Query, name_in, written_after
from turnlane.model.usage import DAY_MS, Price, day_of_date
from turnlane.settings import prices_of, transcripts_file_of
from turnlane.transcripts import Transcripts, open_transcripts
from turnlane.transcripts.entry import EntryKind
from turnlane.transcripts.store import is_kept
from turnlane.transcripts.views import Wanted, priced

TRANSCRIPTS = "/transcripts/"
CURSOR_CHARACTERS_MAX = 30
"""Two numbers that fit any store."""

Opens = Callable[[], Transcripts | None]
"""None: nobody keeps any."""


class TranscriptsApi:
    def __init__(self, bot: Bot, opens: Opens | None = None) -> None:
        self._bot = bot
        self._opens = opens or self._opened_beside_backend

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/transcripts", self.sessions),
            Route("/transcripts/search", self.search),
            Route(TRANSCRIPTS + "{session:path}", self.session),
        ]

    async def sessions(self, request: Request) -> Response:
        query = Query(request, "project", "since", "until", "limit")
        async with self._open() as store:
            found = (
                await store.sessions(
                    project=query.stored("project"),
                    since=_begin(query.date("since")),
                    until=_end(query.date("until")),
                    limit=query.limit(),
                )
                if store is not None
                else []
            )
        return json_answer({"sessions": [priced(session, self._prices) for session in found]})

    async def session(self, request: Request) -> Response:
        """One session and a page of its entries."""
        query = Query(request, "after", "limit")
        after, limit = _cursor(query.text("after")), query.limit()
        async with self._open() as store:
            if store is None:
                raise NotFound("there are no transcripts yet; `turnlane transcripts import` takes them in")
            view = await store.session(name_in(written_after(request, TRANSCRIPTS)))
            entries, following = await store.entries(view.session, after=after, limit=limit)
            prompts = await store.prompts(view.session)
        cursor = None if following is None else "-".join(map(str, following))
        seen = {"session": priced(view, self._prices), "entries": entries, "next": cursor, "prompts": prompts}
        return json_answer(seen)

    async def search(self, request: Request) -> Response:
        query = Query(request, "q", "project", "since", "until", "tool", "kind", "session", "limit")
        wanted = Wanted(
            query.stored("q") or "",
            query.stored("project"),
            _begin(query.date("since")),
            _end(query.date("until")),
            query.stored("tool"),
            query.word("kind", get_args(EntryKind)),
            query.stored("session"),
        )
        limit = query.limit()
        async with self._open() as store:
            return json_answer({"hits": [] if store is None else await store.search(wanted, limit=limit)})

    @property
    def _prices(self) -> dict[str, Price]:
        return prices_of(self._bot.live.settings)

    def _opened_beside_backend(self) -> Transcripts | None:
        settings = self._bot.live.settings
        where = (settings.backend, transcripts_file_of(settings))
        return open_transcripts(*where) if is_kept(*where) else None

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Transcripts | None]:
        """For one request: they come seldom, and a file may appear, or be replaced, at any time."""
        store = self._opens()
        try:
            yield store
        finally:
            if store is not None:
                await store.close()


def _begin(day: date | None) -> int | None:
    return None if day is None else day_of_date(day) * DAY_MS


def _end(day: date | None) -> int | None:
    return None if day is None else (day_of_date(day) + 1) * DAY_MS


def _cursor(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    at, _, number = given.partition("-")
    if not (at + number).isascii() or not (at.isdigit() and number.isdigit()) or len(given) > CURSOR_CHARACTERS_MAX:
        raise HTTPException(400, "query parameter 'after': use what `next` said")
    return int(at), int(number)
