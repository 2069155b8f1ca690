"""`/api/alerts`: what needs an operator now, and what did a while ago."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.query import Query


class AlertsApi:
    """As this process sees it. Those behind one port add up what they count, so they see the same."""

    def __init__(self, bot: Bot) -> None:
        self._alerts = bot.alerts

    def routes(self) -> list[BaseRoute]:
        return [Route("/alerts", self.alerts)]

    async def alerts(self, request: Request) -> Response:
        Query(request)
        return json_answer({"alerts": self._alerts.raised, "recent": list(self._alerts.recent)})
