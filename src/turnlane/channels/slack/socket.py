"""Socket Mode: the SDK's client, connected again and again, that acknowledges what was stored and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from turnlane.channels.slack.api import QUIET, Api, Said, cause
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable

ENVELOPES_AT_ONCE = 50
PING_SECONDS = 5.0
CONNECT_SECONDS_MAX = 15.0
PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 30.0
STEADY_SECONDS = 30.0
"""A connection that lasted so long was a good one."""

logger = logging.getLogger("turnlane.channels.slack")

Take = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Store what a payload says. Raises BackendUnavailable, and then Slack tells it again."""


class Socket:
    def __init__(
        self, channel: str, app_token: str, api: Api, *, clock: Clock, ping_seconds: float = PING_SECONDS
    ) -> None:
        self._channel = channel
        self._app_token = app_token
        self._api = api
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._places = asyncio.Semaphore(ENVELOPES_AT_ONCE)
        self._running: set[asyncio.Task[object]] = set()

    async def listen(self, take: Take) -> None:
        """Until cancelled."""
        pause = 0.0
        try:
            while True:
                began = self._clock.monotonic()
                over = await self._connection(take)
                lasted = self._clock.monotonic() - began
                pause = 0.0 if lasted >= STEADY_SECONDS else min(pause * 2 or PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX)
                logger.info("channel %s: %s; connecting again in %.1f s", self._channel, over, pause)
                await asyncio.sleep(pause * (0.5 + self._clock.random()))
        finally:
            await self._let_go()

    async def _connection(self, take: Take) -> str:
        """From one connection to its end. Returns why it ended."""
        asked = await self._api.connection_url(self._app_token)
        url = asked.text("url") if isinstance(asked, Said) and asked.ok else None
        if url is None:
            why = f"Slack gives us no socket: {cause(asked)}"
            logger.warning("channel %s: %s; look at app_token with `turnlane doctor`", self._channel, why)
            if isinstance(asked, Said) and (after := asked.retry_after(self._clock.now())):
                await asyncio.sleep(after)
            return why
        client = _Client(self._app_token, logger=QUIET, ping_interval=self._ping_seconds)
        client.wss_uri = url
        client.socket_mode_request_listeners.append(self._listener(take))
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await client.connect()  # type: ignore[no-untyped-call]
            await client.over.wait()
            return "the socket ended"
        except TimeoutError:
            return "the socket could not be opened"
        finally:
            await client.close()  # type: ignore[no-untyped-call]

    def _listener(self, take: Take) -> Callable[[AsyncBaseSocketModeClient, SocketModeRequest], Awaitable[None]]:
        async def listener(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                async with self._places:
                    await take(request.payload)
                await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
            except (BackendUnavailable, ConnectionError) as error:
                # Not acknowledged, so Slack tells it again; what was stored by then is known as a duplicate.
                logger.warning("channel %s: an event is left to Slack to tell again: %s", self._channel, error)
            # A mistake of ours must be seen, and must not be acknowledged; the SDK would keep it to itself.
            except Exception:
                logger.exception("channel %s: an event could not be taken in", self._channel)
            finally:
                self._running.discard(task)

        return listener

    async def _let_go(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Client(SocketModeClient):
    """The SDK's client, except that whoever listens decides when to connect again, and how soon."""

    def __init__(self, app_token: str, *, logger: logging.Logger, ping_interval: float) -> None:
        super().__init__(app_token, logger=logger, ping_interval=ping_interval)
        self.over = asyncio.Event()

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        """Called when Slack announces the end of this connection, and when it is lost."""
        self.over.set()
