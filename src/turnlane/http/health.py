"""`/healthz`, `/readyz` and `/metrics`: whether the process is up, whether it can work, and its numbers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from turnlane.errors import BackendError
from turnlane.http.answer import PRIVATE, RETRY_AFTER_SECONDS, json_answer
from turnlane.http.base import Bot
from turnlane.observe.gauges import store_now
from turnlane.observe.metrics import Metrics

READY_SECONDS_MAX = 5.0

T = TypeVar("T")

log = logging.getLogger("turnlane.http")


class Health:
    """Asked by machines: load balancers, orchestrators, Prometheus."""

    def __init__(self, bot: Bot, metrics: Metrics) -> None:
        self._bot = bot
        self._metrics = metrics

    async def healthz(self, request: Request) -> Response:
        """The process answers. Says nothing about the store: restarting would not mend that."""
        return json_answer({"status": "up"})

    async def readyz(self, request: Request) -> Response:
        if await self._ask(self._bot.backend.events(after=-1)) is None:
            raise HTTPException(
                503,
                "the store does not answer; `turnlane doctor` says why",
                {"retry-after": str(RETRY_AFTER_SECONDS)},
            )
        return json_answer({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        store = await self._ask(store_now(self._bot.backend))
        text = self._metrics.render(store, now=self._bot.clock.now())
        return Response(text, headers=PRIVATE, media_type=self._metrics.media_type)

    async def _ask(self, question: Awaitable[T]) -> T | None:
        """The store's answer; None if there is none in time."""
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                return await question
        except (BackendError, TimeoutError) as error:
            log.warning("the store does not answer: %s", str(error) or "it took too long")
            return None
