"""The application that is served, and the server that runs it inside our own loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import Mount, Route, Router

from turnlane.errors import TurnlaneError
from turnlane.http import answer
from turnlane.http.access import Access, Guard
from turnlane.http.alerts import AlertsApi
from turnlane.http.api import Api
from turnlane.http.audit import Audit
from turnlane.http.base import Bot
from turnlane.http.console import ConsolePage
from turnlane.http.health import Health
from turnlane.http.lanes_stream import LaneStream
from turnlane.http.login import Login
from turnlane.http.page import ChatPage
from turnlane.http.people import People
from turnlane.http.stream import EventStream, Streams
from turnlane.http.transcripts import Opens, TranscriptsApi
from turnlane.http.webhooks import BODY_BYTES_MAX, WebHooks
from turnlane.observe.metrics import Metrics

FINISH_SECONDS_MAX = 10
"""How long a request that is being answered may take to end once the server stops."""


def create_app(
    bot: Bot,
    *,
    listen_host: str,
    metrics: Metrics | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    transcripts: Opens | None = None,
) -> Starlette:
    """Everything that is served for one bot. Raises InvalidSettings if it would be open to others without a token.

    `metrics` is the listener that counts this process's events; without it `/metrics` shows the store alone.
    `transcripts`: if they are not beside the backend.
    """
    access = Access(
        listen_host=listen_host,
        operator_token=bot.operator_token,
        viewer_token=bot.viewer_token,
        proxies=bot.proxies,
        clock=bot.clock,
        emit=bot.emit,
    )
    login = Login(bot, access)
    metrics = Metrics(bot.channels) if metrics is None else metrics
    streams = Streams(bot.backend, on_number=metrics.note_streams)
    hooks = WebHooks(bot, access, body_bytes_max=body_bytes_max)
    health = Health(bot, metrics)
    page = ChatPage(bot, access, streams)
    api = [
        Route("/me", login.me),
        Route("/events", EventStream(bot, streams).events),
        Route("/lanes/stream", LaneStream(bot, streams).lanes),
        *Api(bot).routes(),
        *AlertsApi(bot).routes(),
        *TranscriptsApi(bot, transcripts).routes(),
    ]
    known = Middleware(Guard, checks=[access.own_site_only, access.known_only])
    audit = Middleware(Audit, bot=bot, access=access)
    app = Starlette(
        routes=[
            Route("/healthz", health.healthz),
            Route("/readyz", health.readyz),
            Route("/metrics", health.metrics, middleware=[known]),
            *hooks.routes(),
            Route("/update-user", People(bot, access).update, methods=["POST"]),
            Mount("/api", Router(api, redirect_slashes=False), middleware=[known, audit]),
            *login.routes(),
            *ConsolePage(access).routes(),
            *page.routes(),
        ],
        exception_handlers={
            HTTPException: answer.on_http_exception,
            TurnlaneError: answer.on_turnlane_error,
            ClientDisconnect: answer.on_disconnect,
            Exception: answer.on_anything_else,
        },
    )
    # A path is served or it is not; a redirect would repeat whatever name the caller gave as Host.
    app.router.redirect_slashes = False
    app.state.streams = streams
    return app


async def serve(
    app: Starlette,
    sockets: Sequence[socket.socket],
    *,
    stop: asyncio.Event,
    ready: Callable[[], None] | None = None,
) -> None:
    """Answer on the bound sockets until `stop` is set; then end streams, finish what is being answered, and return.

    Signals are left to whoever runs the loop. The sockets are closed in the end.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
    server = _Server(config, ready)
    stopping = asyncio.create_task(_stop_with(stop, server, app.state.streams))
    try:
        await server.serve(list(sockets))
    finally:
        stopping.cancel()
        app.state.streams.close()


async def _stop_with(stop: asyncio.Event, server: uvicorn.Server, streams: Streams) -> None:
    await stop.wait()
    server.should_exit = True
    streams.close()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None:
            self._ready()
