"""A receiver of replies that accepts the first one and never says so, but can be asked what it has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.channels.loopback import Behaviour, Request, accepts_then_cuts, answers


@dataclass
class Receiver:
    """Shows every reply that reaches it."""

    first: Behaviour = accepts_then_cuts
    """What it does with the first one."""
    shown: list[Request] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    """The deliveries that it was asked about."""

    async def behave(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.line.startswith("GET"):
            await self._tell(request, writer)
            return
        self.shown.append(request)
        await (self.first if len(self.shown) == 1 else answers(200))(request, writer)

    async def _tell(self, request: Request, writer: asyncio.StreamWriter) -> None:
        (key,) = parse_qs(urlsplit(request.line.split()[1]).query)["delivery"]
        self.questions.append(key)
        known = {"sent": any(key == each.headers["idempotency-key"] for each in self.shown), "receipt": "shown"}
        await answers(200, json.dumps(known).encode())(request, writer)

    def texts(self, who: str) -> list[str]:
        return [each.json["text"] for each in self.shown if each.json["conversation"] == who]
