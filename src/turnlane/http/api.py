"""What the operator sees: lanes, conversations, turns, outbox, dead letters, locks and workers."""

from __future__ import annotations

from typing import get_args
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.errors import NotFound
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.query import Query, conversation_key_in, written_after
from turnlane.model.delivery import DeliveryState
from turnlane.model.lane import Kind, LaneState
from turnlane.model.view import Story

KINDS = [kind.name.lower() for kind in Kind]
CONVERSATIONS = "/conversations/"
TURNS = "/turns"


class Api:
    """Reading only. Every list takes `limit`; the answers are documented in docs/reference/http.md."""

    def __init__(self, bot: Bot) -> None:
        self._backend = bot.backend

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/lanes", self.lanes),
            Route(CONVERSATIONS + "{key:path}", self.conversation),
            Route("/outbox", self.outbox),
            Route("/deadletters", self.dead_letters),
            Route("/locks", self.locks),
            Route("/workers", self.workers),
            Route("/counts", self.counts),
        ]

    async def lanes(self, request: Request) -> Response:
        query = Query(request, "kind", "state", "channel", "limit")
        lanes = await self._backend.lanes(
            kind=Kind[(query.word("kind", KINDS) or "turn").upper()],
            state=query.word("state", get_args(LaneState)),
            channel=query.text("channel"),
            limit=query.limit(),
        )
        return json_answer({"lanes": lanes})

    async def conversation(self, request: Request) -> Response:
        """The whole story, or with `/turns` after the key its turns. Only the path as written tells which."""
        limit = Query(request, "limit").limit()
        written = written_after(request, CONVERSATIONS)
        if asks_for_turns(written):
            story = await self._story(conversation_key_in(written.removesuffix(TURNS)), limit)
            return json_answer({"turns": story.turns})
        return json_answer(await self._story(conversation_key_in(written), limit))

    async def _story(self, key: str, limit: int) -> Story:
        story = await self._backend.story(key, limit=limit)
        if story is None:
            raise NotFound(f"no conversation {key!r}; GET /api/lanes lists them, keys are written CHANNEL/ROOM")
        return story

    async def outbox(self, request: Request) -> Response:
        query = Query(request, "state", "limit")
        state: DeliveryState = query.word("state", get_args(DeliveryState)) or "queued"
        return json_answer({"deliveries": await self._backend.outbox(state=state, limit=query.limit())})

    async def dead_letters(self, request: Request) -> Response:
        query = Query(request, "conversation", "limit")
        letters = await self._backend.dead_letters(conversation=query.text("conversation"), limit=query.limit())
        return json_answer({"dead_letters": letters})

    async def locks(self, request: Request) -> Response:
        Query(request)
        return json_answer({"locks": await self._backend.locks()})

    async def workers(self, request: Request) -> Response:
        Query(request)
        return json_answer({"workers": await self._backend.workers()})

    async def counts(self, request: Request) -> Response:
        Query(request)
        return json_answer(await self._backend.counts())


def asks_for_turns(written: str) -> bool:
    """`site/turns` is a conversation, for what stands before the word must be a key: a channel and a room."""
    return written.endswith(TURNS) and "/" in unquote(written.removesuffix(TURNS))
