"""`POST /channels/{name}`: what a platform tells us. Stored first, answered then."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.channels.base import HandshakingChannel, Heard, Hook, HookChannel, Received
from turnlane.errors import InvalidBody, NotFound
from turnlane.http.access import Access
from turnlane.http.answer import json_answer, status_of
from turnlane.http.base import Bot
from turnlane.model.event import Event, Fact

BODY_BYTES_MAX = 10 * 1024 * 1024
BODY_SECONDS_MAX = 30.0
"""For the whole body, so that a caller who trickles cannot hold a connection and its memory for ever."""
CAUSE_CHARACTERS_MAX = 200
NOTHING = Received()


class WebHooks:
    """The door for platforms. Whatever is refused here has left nothing in the store."""

    def __init__(self, bot: Bot, access: Access, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._bot = bot
        self._access = access
        self._body_bytes_max = body_bytes_max

    def routes(self) -> list[BaseRoute]:
        """Each web hook has its own secret, and checks the site itself where it has none."""
        paths = ["/channels/{name}", *self._bot.paths]
        return [
            route
            for path in paths
            for route in (
                Route(path, self.receive, methods=["POST"]),
                Route(path, self.shake_hands, methods=["GET"]),
            )
        ]

    def _name(self, request: Request) -> str:
        name: str = request.path_params.get("name") or self._bot.paths[request.url.path]
        return name

    async def receive(self, request: Request) -> Response:
        name = self._name(request)
        try:
            received, answer = await self._take_in(name, request)
        # Whatever it was, the operator hears of it; who asked is answered by the application's handlers.
        except Exception as error:
            self._emit("hook.refused", name, status=status_of(error), cause=_cause(error))
            raise
        # Reports of typing come every second or two while somebody types; as facts they would drown all others.
        status = 202 if answer is None else 200
        if received != NOTHING:
            self._emit("hook.received", name, status=status, accepted=received.accepted, duplicates=received.duplicates)
        return json_answer(received, 202) if answer is None else Response(answer, media_type="text/plain")

    async def shake_hands(self, request: Request) -> Response:
        """Some platforms ask before they post."""
        name = self._name(request)
        try:
            channel = self._channel(name, request)
            if not isinstance(channel, HandshakingChannel):
                raise HTTPException(405, "this channel is posted to", {"allow": "POST"})
            return Response(channel.handshake(dict(request.query_params)), media_type="text/plain")
        # As above.
        except Exception as error:
            self._emit("hook.refused", name, status=status_of(error), cause=_cause(error))
            raise

    async def _take_in(self, name: str, request: Request) -> tuple[Received, str | None]:
        tracer = self._bot.tracer
        since = 0 if tracer is None else self._bot.clock.now()
        channel = self._channel(name, request)
        heard = await read(channel, request, await read_body(request, self._body_bytes_max))
        if tracer is None:
            return await self._bot.hear(name, heard), heard.answer
        with tracer.hearing(name, heard.messages, since=since, traceparent=request.headers.get("traceparent")):
            return await self._bot.hear(name, heard), heard.answer

    def _channel(self, name: str, request: Request) -> HookChannel:
        channel = self._bot.channels.get(name)
        if not isinstance(channel, HookChannel):
            raise NotFound("no channel of this name takes web hooks; turnlane.toml names them under [channels]")
        if channel.secured:
            return channel
        if not self._access.on_loopback:
            raise NotFound("this channel has no secret, so it is served on loopback only; set its `secret`")
        self._access.own_site_only(request)
        return channel

    def _emit(self, event: str, name: str, **facts: Fact) -> None:
        # A name that is not ours is the caller's text: it belongs in no log and no label.
        channel = name if name in self._bot.channels else None
        self._bot.emit(Event(event, self._bot.clock.now(), facts={"channel": channel, **facts}))


async def read(channel: HookChannel, request: Request, body: bytes) -> Heard:
    try:
        return await channel.hear(Hook(body, dict(request.headers), dict(request.query_params)))
    except RecursionError as error:
        raise InvalidBody("the body is nested too deeply; send a flat object or a list of them") from error


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body, refused at the first sign that it is too long: by its declared length, or while it arrives."""
    if _declared_length(request) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise _too_large(bytes_max)
    except TimeoutError as error:
        raise HTTPException(408, f"the body took longer than {BODY_SECONDS_MAX:.0f} s; send it again") from error
    return bytes(body)


def _declared_length(request: Request) -> int:
    """0 if there is none that can be believed; the body is counted in any case."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isascii() and declared.isdigit() else 0


def _too_large(bytes_max: int) -> HTTPException:
    return HTTPException(413, f"the body is longer than {bytes_max} bytes; send fewer messages at once")


def _cause(error: Exception) -> str:
    said = str(error.detail if isinstance(error, HTTPException) else error)
    # An error that nobody foresaw may quote anything, a message's text too.
    return said[:CAUSE_CHARACTERS_MAX] if said and status_of(error) != 500 else type(error).__name__
