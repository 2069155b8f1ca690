"""Who did what: each change that an operator makes over the API is written down in the store."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnlane.errors import BackendError
from turnlane.http.access import READING, Access, Caller
from turnlane.http.base import Bot
from turnlane.model.event import ACTION_CHARACTERS_MAX, Event, Fact

log = logging.getLogger("turnlane.http")


class Audit:
    """Middleware, behind the guard. What was refused or failed is no act."""

    def __init__(self, app: ASGIApp, bot: Bot, access: Access) -> None:
        self._app = app
        self._bot = bot
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                await self._write_down(Request(scope), message["status"])
            await send(message)

        await self._app(scope, receive, answer)

    async def _write_down(self, request: Request, status: int) -> None:
        """After the act and before the answer. It has happened, so a store that fails now does not make it undone."""
        caller: Caller = request.state.caller
        conversation: str | None = getattr(request.state, "conversation", None)
        action = f"{request.method} {_path_as_written(request)}"[:ACTION_CHARACTERS_MAX]
        address = self._access.address_of(request)
        facts: dict[str, Fact] = {"action": action, "by": caller.by, "from": address, "status": status}
        try:
            await self._bot.backend.note("operator.acted", conversation, **facts)
        except BackendError as error:
            log.warning("what an operator did could not be written down in the store: %s", error)
            self._bot.emit(Event("operator.acted", self._bot.clock.now(), conversation, facts))


def concerns(request: Request, conversation: str) -> None:
    """Says which conversation it is that a request changes."""
    request.state.conversation = conversation


def _path_as_written(request: Request) -> str:
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0]
