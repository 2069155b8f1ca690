"""The chat page at `/`, and what it reads: the history of a visitor's conversations, and new replies as they leave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.channels.web import Previews, Web
from turnlane.clock import Clock
from turnlane.errors import NotFound
from turnlane.http.access import Access, Guard
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.query import CURSOR_MAX, Query, whole_number
from turnlane.http.stream import Passing, Row, Streams, cursor_of
from turnlane.model.delivery import delivery_id
from turnlane.model.lane import Kind
from turnlane.model.message import Message, conversation_key
from turnlane.model.view import DeliveryView, Story

HISTORY_MAX = 200
REPLIES_AT_ONCE = 20
"""Read and held at once for one stream; replies can be long."""

WATCHED_MAX = 20
"""Conversations that one stream may carry; each is looked up at every look."""

ASSETS = {
    "chat.css": "text/css",
    **dict.fromkeys(("chat.js", "store.js", "theme.js", "view.js", "wire.js"), "text/javascript"),
}

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
            Route("/channels/{name}/stream", self.watch, middleware=own_site),
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
        name, token = request.path_params["name"], request.path_params["token"]
        key = self._conversation(name, token)
        story = await self._bot.backend.story(key, limit=HISTORY_MAX)
        if story is None:
            return json_answer({"lines": [], "after": 0})
        visible = _visible(story.deliveries)
        # By time; where the clock is too coarse, an answer stands after the last message of its turn, before the next.
        asked_until = {turn.number: turn.last for turn in story.turns}
        latest = max((message.seq for message in story.messages), default=0)
        said = [
            ((message.accepted_at, message.seq, 0), _said(message, token, state))
            for message, state in _states(story)
            if message.role == "person"
        ]
        replied = [
            ((each.queued_at, asked_until.get(each.turn or 0, latest), each.seq), _replied(each, token))
            for each in visible
        ]
        lines = sorted([*said, *replied], key=lambda line: line[0])
        return json_answer({"lines": [line for _, line in lines], "after": visible[-1].seq if visible else 0})

    async def stream(self, request: Request) -> Response:
        """Replies after the cursor, each once it has left; and before that, what there is of the next one."""
        after = cursor_of(request, Query(request, "after")) or 0
        name, token = request.path_params["name"], request.path_params["token"]
        key = self._conversation(name, token)

        async def read(after: int) -> Sequence[Row]:
            deliveries = await self._bot.backend.deliveries(key, after=after, limit=REPLIES_AT_ONCE)
            return [Row(each.seq, "reply", _replied(each, token)) for each in _visible(deliveries)]

        return self._streams.answer(request, read, after, beside=partial(self._previews, name, {token: key}))

    async def watch(self, request: Request) -> Response:
        """Replies of several conversations in one stream, as a browser keeps few connections to one server."""
        name = request.path_params["name"]
        places = _places(Query(request, "watch").text("watch") or "")
        keys = {token: self._conversation(name, token) for token in places}

        async def read(_: int) -> Sequence[Row]:
            rows = []
            for token, key in keys.items():
                deliveries = await self._bot.backend.deliveries(key, after=places[token], limit=REPLIES_AT_ONCE)
                for delivery in _visible(deliveries):
                    places[token] = delivery.seq
                    line = _replied(delivery, token) | {"conversation": token, "seq": delivery.seq}
                    # Only grows, as a cursor must. Whoever reconnects says again where it is in each conversation.
                    rows.append(Row(sum(places.values()), "reply", line))
            return rows

        return self._streams.answer(request, read, 0, looks=len(keys), beside=partial(self._previews, name, keys))

    @contextmanager
    def _previews(self, name: str, keys: Mapping[str, str]) -> Iterator[_Growing]:
        channel = self._bot.channels[name]
        assert isinstance(channel, Web)
        with channel.previews.watched(keys.values()) as moved:
            yield _Growing(channel.previews, keys, self._bot.clock, moved)

    def _conversation(self, name: str, token: str) -> str:
        if not self._is_served(name) or not _TOKEN.fullmatch(token):
            raise NotFound("no such conversation of a web channel; open / to begin one")
        return conversation_key(name, token)

    def _is_served(self, name: str) -> bool:
        channel = self._bot.channels.get(name)
        return isinstance(channel, Web) and (channel.secured or self._access.on_loopback)


GIVEN_UP = ("dead_letter", "dropped")


class _Growing:
    """What there is of answers that are still being made, for one stream: each state of them once."""

    def __init__(self, previews: Previews, keys: Mapping[str, str], clock: Clock, moved: asyncio.Event) -> None:
        self.moved = moved
        moved.set()  # what there is when the reader comes is news
        self._previews = previews
        self._keys = keys
        self._clock = clock
        self._told: dict[str, tuple[int, str]] = {}

    def news(self) -> list[Passing]:
        rows = []
        for token, key in self._keys.items():
            before, present = self._told.pop(token, None), self._previews.of(key)
            if before is not None and (present is None or present[0] != before[0]):
                rows.append(self._row(token, key, before[0], None))
            if present is not None:
                self._told[token] = present
                if present != before:
                    rows.append(self._row(token, key, *present))
        return rows

    def _row(self, token: str, key: str, turn: int, text: str | None) -> Passing:
        """Under the id of the reply that will take its place. Without a text: it is over."""
        line = {"from": "bot", "id": delivery_id(key, turn, 1), "text": text, "at": self._clock.now(), "partial": True}
        return Passing("preview", line | {"conversation": token})


def _read(file: str) -> str:
    return (files("turnlane.http") / "chat" / file).read_text(encoding="utf-8")


def _places(watched: str) -> dict[str, int]:
    """`TOKEN:7,TOKEN:0` as the place up to which each conversation is known."""
    pairs = [each.partition(":") for each in watched.split(",")]
    if not watched or len(pairs) > WATCHED_MAX:
        raise HTTPException(400, f"query parameter 'watch': name 1 to {WATCHED_MAX} conversations, as TOKEN:7,TOKEN:0")
    return {token: whole_number("watch", place, lowest=0, highest=CURSOR_MAX) for token, _, place in pairs}


def _visible(deliveries: Sequence[DeliveryView]) -> list[DeliveryView]:
    """Those that left. Nothing after one that still waits, so that the reader's cursor never passes it."""
    queued = next((place for place, delivery in enumerate(deliveries) if delivery.state == "queued"), len(deliveries))
    return [delivery for delivery in deliveries[:queued] if delivery.state == "sent"]


def _states(story: Story) -> list[tuple[Message, str]]:
    """Each message, and whether it still waits for an answer (is kept for later, if the agent is silent), was given up
    on, or is done with."""
    lane = next(lane for lane in story.lanes if lane.kind is Kind.TURN)
    given_up = [range(turn.first, turn.last + 1) for turn in story.turns if turn.outcome in GIVEN_UP]

    def state(message: Message) -> str:
        if message.seq in story.outcomes:
            return "done"
        if message.seq > lane.done_seq:
            return "kept" if lane.state == "paused" else "waiting"
        return "given_up" if any(message.seq in turn for turn in given_up) else "done"

    return [(message, state(message)) for message in story.messages]


def _said(message: Message, token: str, state: str) -> dict[str, object]:
    return {
        "from": "visitor",
        "id": _own_id(message.origin_id, token),
        "text": message.text,
        "at": message.accepted_at,
        "state": state,
    }


def _replied(delivery: DeliveryView, token: str) -> dict[str, object]:
    return {
        "from": "bot",
        "id": delivery.id,
        "text": delivery.text,
        "at": delivery.queued_at,
        "kind": delivery.kind,
        "options": delivery.options,
        "in_reply_to": [_own_id(origin_id, token) for origin_id in delivery.in_reply_to],
    }


def _own_id(origin_id: str, token: str) -> str:
    """The id that the page gave: the channel puts the visitor's token before it."""
    return origin_id.removeprefix(f"{token}/")
