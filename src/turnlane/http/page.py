"""The chat page at `/` and on pages of other sites, and what it reads: history, and replies as they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.backends.base import Backend
from turnlane.channels.web import Place, Previews, Web
from turnlane.clock import Clock
from turnlane.errors import InvalidMessage, NotFound
from turnlane.http.access import Access, Guard
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.history import history, is_at_work, last_of, replied, visible
from turnlane.http.query import CURSOR_MAX, Query, whole_number
from turnlane.http.stream import Opened, Passing, Row, Streams, cursor_of
from turnlane.model.delivery import delivery_id

REPLIES_AT_ONCE = 20
"""Read and held at once for one stream; replies can be long."""

WATCHED_MAX = 20
"""Conversations that one stream may carry; each is looked up at every look."""

AT_WORK_SECONDS = 0.9
"""How often, at most, one stream looks whether somebody is still at work on an answer."""
AT_REST_SECONDS = 2.0
"""And whether somebody begins to. A page knows by itself that it has said something."""

EMBEDDING = "embed.js"
"""The one file that pages of other sites load; it holds nothing that is anybody's."""
ASSETS = {
    "chat.css": "text/css",
    **dict.fromkeys(
        ("chat.js", "files.js", "host.js", "markdown.js", "store.js", "theme.js", "view.js", "wire.js"),
        "text/javascript",
    ),
}

PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class ChatPage:
    """Whoever knows a conversation's token, or is its signed visitor, may read it; there is no other key to it."""

    def __init__(self, bot: Bot, access: Access, streams: Streams) -> None:
        self._bot = bot
        self._access = access
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        own_site = [Middleware(Guard, checks=[self._access.own_site_only])]
        return [
            Route("/", self.index, middleware=own_site),
            # A page of another site may have this one in it, which is following a link; what it asks then is ours.
            Route("/embed", self.embedded, middleware=own_site),
            Route(f"/{EMBEDDING}", self.embedding),
            Route("/chat/{file}", self.asset, middleware=own_site),
            Route("/channels/{name}/stream", self.watch, middleware=own_site),
            Route("/channels/{name}/{token}/history", self.history, middleware=own_site),
            Route("/channels/{name}/{token}/stream", self.stream, middleware=own_site),
        ]

    async def index(self, request: Request) -> Response:
        """The page for the first web channel."""
        channel = next((self._web(name) for name in self._bot.channels if self._is_served(name)), None)
        if channel is None:
            raise NotFound(
                'no chat page is served here: it needs [channels.web] with kind = "web" in turnlane.toml, '
                "and a loopback address to listen on unless that channel is public"
            )
        return Response(self._page(channel, "whole"), headers=PAGE_HEADERS, media_type="text/html")

    async def embedded(self, request: Request) -> Response:
        """The page of one channel, for the pages of the sites that its settings name."""
        name = Query(request, "channel").text("channel") or ""
        if not self._is_served(name):
            raise NotFound("no web channel of this name is served here; turnlane.toml names them under [channels]")
        channel = self._web(name)
        policy = PAGE_HEADERS["content-security-policy"].replace(
            "frame-ancestors 'none'", " ".join(["frame-ancestors 'self'", *channel.look.sites])
        )
        headers = {"content-security-policy": policy, "cross-origin-resource-policy": "cross-origin"}
        return Response(self._page(channel, "embedded"), headers=PAGE_HEADERS | headers, media_type="text/html")

    def _page(self, channel: Web, form: str) -> str:
        """The page, which knows what it needs to from the attributes of its body."""
        commands = self._bot.live.settings.commands
        about = {
            "channel": channel.name,
            "form": form,
            "title": channel.look.title,
            "greeting": channel.look.greeting or "Say something.",
            "file_bytes_max": channel.file_bytes_max,
            "files_max": channel.files_max,
            "stop": commands.stop.strip() if commands.enabled else "",
        }
        text = _read("index.html")
        for name, value in about.items():
            text = text.replace(f"{{{{{name}}}}}", escape(str(value)))
        return text

    async def embedding(self, request: Request) -> Response:
        headers = PAGE_HEADERS | {"cache-control": "max-age=600", "cross-origin-resource-policy": "cross-origin"}
        return Response(_read(EMBEDDING), headers=headers, media_type="text/javascript")

    async def asset(self, request: Request) -> Response:
        file = request.path_params["file"]
        if file not in ASSETS:
            raise HTTPException(404)
        return Response(_read(file), headers=PAGE_HEADERS, media_type=ASSETS[file])

    async def history(self, request: Request) -> Response:
        """What was said on both sides, oldest first, and the cursor from which to follow."""
        query = Query(request, "before", "files")
        place = self._place(request, request.path_params["token"])
        with_files = query.word("files", ("yes", "no")) != "no"
        found = await history(self._bot.backend, place, before=query.text("before"), with_files=with_files)
        return json_answer(found)

    async def stream(self, request: Request) -> Response:
        """Replies after the cursor, each once it has left; and before that, what there is of the next one."""
        after = cursor_of(request, Query(request, "after")) or 0
        token = request.path_params["token"]
        places = {token: self._place(request, token)}
        at_work = _AtWork(self._bot.backend, places)

        async def read(after: int) -> Sequence[Row]:
            changes = await at_work.changes()
            replies = await self._replies(places[token], after)
            rows = [Row(seq, "reply", line) for seq, line in replies]
            return [*rows, *(Row(rows[-1].cursor if rows else after, "working", each) for each in changes)]

        return self._streams.answer(request, read, after, looks=2, beside=self._beside(request, places))

    async def watch(self, request: Request) -> Response:
        """Replies of several conversations in one stream, as a browser keeps few connections to one server."""
        known = _known(Query(request, "watch").text("watch") or "")
        places = {token: self._place(request, token) for token in known}
        at_work = _AtWork(self._bot.backend, places)

        async def read(_: int) -> Sequence[Row]:
            changes = await at_work.changes()
            rows = []
            for token, place in places.items():
                for seq, line in await self._replies(place, known[token]):
                    known[token] = seq
                    # Only grows, as a cursor must. Whoever reconnects says again where it is in each conversation.
                    rows.append(Row(sum(known.values()), "reply", line | {"conversation": token, "seq": seq}))
            return [*rows, *(Row(sum(known.values()), "working", each) for each in changes)]

        return self._streams.answer(request, read, 0, looks=2 * len(places), beside=self._beside(request, places))

    async def _replies(self, place: Place, after: int) -> list[tuple[int, dict[str, object]]]:
        deliveries = await self._bot.backend.deliveries(place.key, after=after, limit=REPLIES_AT_ONCE)
        return [(each.seq, replied(each, place.token)) for each in visible(deliveries)]

    def _beside(self, request: Request, places: Mapping[str, Place]) -> Callable[[], Opened]:
        return partial(self._previews, self._web(request.path_params["name"]), places)

    @contextmanager
    def _previews(self, channel: Web, places: Mapping[str, Place]) -> Iterator[_Growing]:
        keys = {token: place.key for token, place in places.items()}
        with channel.previews.watched(keys.values()) as moved:
            yield _Growing(channel.previews, keys, self._bot.clock, moved)

    def _place(self, request: Request, token: str) -> Place:
        """Raises NotFound for what is nobody's, and Unauthorized."""
        nobody = NotFound("no such conversation of a web channel; open / to begin one")
        name = request.path_params["name"]
        if not self._is_served(name):
            raise nobody
        try:
            return self._web(name).place(token, request.headers)
        except InvalidMessage:
            raise nobody from None

    def _web(self, name: str) -> Web:
        channel = self._bot.channels[name]
        assert isinstance(channel, Web)
        return channel

    def _is_served(self, name: str) -> bool:
        channel = self._bot.channels.get(name)
        return isinstance(channel, Web) and (channel.secured or self._access.on_loopback)


class _AtWork:
    """Where an answer is to be expected, for one stream: each change of it once. The store knows, whoever runs it."""

    def __init__(self, backend: Backend, places: Mapping[str, Place]) -> None:
        self._backend = backend
        self._places = places
        self._told = dict.fromkeys(places, False)
        self._again_at = 0.0

    async def changes(self) -> list[dict[str, object]]:
        """Asked before the replies are read: where there is none to be expected any more, it is among those."""
        now = asyncio.get_running_loop().time()
        if now < self._again_at:
            return []
        found: list[dict[str, object]] = []
        for token, place in self._places.items():
            story = await self._backend.story(place.key, limit=1)
            if story is not None and is_at_work(story) != self._told[token]:
                self._told[token] = is_at_work(story)
                found.append({"conversation": token, "working": self._told[token], "last": last_of(story)})
        self._again_at = now + (AT_WORK_SECONDS if any(self._told.values()) else AT_REST_SECONDS)
        return found


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


def _known(watched: str) -> dict[str, int]:
    """`TOKEN:7,TOKEN:0` as the place up to which each conversation is known."""
    pairs = [each.partition(":") for each in watched.split(",")]
    if not watched or len(pairs) > WATCHED_MAX:
        raise HTTPException(400, f"query parameter 'watch': name 1 to {WATCHED_MAX} conversations, as TOKEN:7,TOKEN:0")
    return {token: whole_number("watch", place, lowest=0, highest=CURSOR_MAX) for token, _, place in pairs}
