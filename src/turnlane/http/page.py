"""The chat page at `/`, and what it reads: the history of one visitor's conversation, and new replies as they leave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.channels.web import Web
from turnlane.errors import NotFound
from turnlane.http.access import Access, Guard
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.query import Query
from turnlane.http.stream import Row, Streams, cursor_of
from turnlane.model.message import Message, conversation_key
from turnlane.model.view import DeliveryView

HISTORY_MAX = 200
REPLIES_AT_ONCE = 20
"""Read and held at once for one stream; replies can be long."""

ASSETS = {"chat.css": "text/css", "chat.js": "text/javascript"}

PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


class ChatPage:
    """Whoever knows a conversation's token may read it; there is no other key to it."""

    def __init__(self, bot: Bot, access: Access, streams: Streams) -> None:
        self._bot = bot
        self._access = access
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        own_site = [Middleware(Guard, checks=[self._access.own_site_only])]
        return [
            Route("/", self.index, middleware=own_site),
            Route("/chat/{file}", self.asset, middleware=own_site),
            Route("/channels/{name}/{token}/history", self.history, middleware=own_site),
            Route("/channels/{name}/{token}/stream", self.stream, middleware=own_site),
        ]

    async def index(self, request: Request) -> Response:
        """The page for the first web channel."""
        name = next((name for name in self._bot.channels if self._is_served(name)), None)
        if name is None:
            raise NotFound(
                'no chat page is served here: it needs [channels.web] with kind = "web" in turnlane.toml, '
                "and a loopback address to listen on unless that channel is public"
            )
        text = _read("index.html").replace("{{channel}}", escape(name))
        return Response(text, headers=PAGE_HEADERS, media_type="text/html")

    async def asset(self, request: Request) -> Response:
        file = request.path_params["file"]
        if file not in ASSETS:
            raise HTTPException(404)
        return Response(_read(file), headers=PAGE_HEADERS, media_type=ASSETS[file])

    async def history(self, request: Request) -> Response:
        """What was said on both sides, oldest first, and the cursor from which to follow."""
        Query(request)
        key = self._conversation(request)
        story = await self._bot.backend.story(key, limit=HISTORY_MAX)
        if story is None:
            return json_answer({"lines": [], "after": 0})
        visible = _visible(story.deliveries)
        # By time; where the clock is too coarse, an answer stands after the last message of its turn, before the next.
        asked_until = {turn.number: turn.last for turn in story.turns}
        said = [((message.accepted_at, message.seq, 0), _said(message)) for message in story.messages]
        replied = [((each.queued_at, asked_until.get(each.turn or 0, 0), each.seq), _replied(each)) for each in visible]
        lines = sorted([*said, *replied], key=lambda line: line[0])
        return json_answer({"lines": [line for _, line in lines], "after": visible[-1].seq if visible else 0})

    async def stream(self, request: Request) -> Response:
        """Replies after the cursor, each once it has left."""
        after = cursor_of(request, Query(request, "after")) or 0
        key = self._conversation(request)

        async def read(after: int) -> Sequence[Row]:
            deliveries = await self._bot.backend.deliveries(key, after=after, limit=REPLIES_AT_ONCE)
            return [Row(delivery.seq, "reply", _replied(delivery)) for delivery in _visible(deliveries)]

        return self._streams.answer(request, read, after)

    def _conversation(self, request: Request) -> str:
        name, token = request.path_params["name"], request.path_params["token"]
        if not self._is_served(name) or not _TOKEN.fullmatch(token):
            raise NotFound("no such conversation of a web channel; open / to begin one")
        return conversation_key(name, token)

    def _is_served(self, name: str) -> bool:
        channel = self._bot.channels.get(name)
        return isinstance(channel, Web) and (channel.secured or self._access.on_loopback)


def _read(file: str) -> str:
    return (files("turnlane.http") / "chat" / file).read_text(encoding="utf-8")


def _visible(deliveries: Sequence[DeliveryView]) -> list[DeliveryView]:
    """Those that left. Nothing after one that still waits, so that the reader's cursor never passes it."""
    queued = next((place for place, delivery in enumerate(deliveries) if delivery.state == "queued"), len(deliveries))
    return [delivery for delivery in deliveries[:queued] if delivery.state == "sent"]


def _said(message: Message) -> dict[str, object]:
    # The channel puts the visitor's token before the page's own id.
    return {
        "from": "visitor",
        "id": message.origin_id.partition("/")[2],
        "text": message.text,
        "at": message.accepted_at,
    }


def _replied(delivery: DeliveryView) -> dict[str, object]:
    return {"from": "bot", "id": delivery.id, "text": delivery.text, "at": delivery.queued_at, "kind": delivery.kind}
