"""`POST /update-user`: what is known of somebody has changed elsewhere."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from turnlane.channels.incoming import check_name, decode_json
from turnlane.channels.secret import Secret
from turnlane.errors import InvalidMessage, NotFound
from turnlane.http.access import Access
from turnlane.http.answer import json_answer
from turnlane.http.base import Bot
from turnlane.http.webhooks import read_body
from turnlane.model.message import SENDER_BYTES_MAX

BODY_BYTES_MAX = 10_000
ENRICHMENT = "enrichment"


class _Update(Struct, forbid_unknown_fields=True, rename={"user_id": "userId"}):
    user_id: str
    changes: list[str] = []
    channel: str | None = None


_UPDATE = msgspec.json.Decoder(_Update)


class People:
    def __init__(self, bot: Bot, access: Access) -> None:
        self._bot = bot
        self._access = access

    async def update(self, request: Request) -> Response:
        """B2. Without a secret it is for this machine alone."""
        body = await read_body(request, BODY_BYTES_MAX)
        self._check(request, body)
        update = decode_json(_UPDATE, request.headers, body)
        check_name("userId", update.user_id, SENDER_BYTES_MAX)
        if unknown := set(update.changes) - {ENRICHMENT}:
            raise InvalidMessage(f"changes: {sorted(unknown)[0]!r} is not known; use {ENRICHMENT!r}, or leave it out")
        if update.channel is not None and update.channel not in self._bot.channels:
            raise NotFound(f"no channel is named {update.channel!r}; known: {', '.join(self._bot.channels)}")
        enrich = ENRICHMENT in update.changes
        updated = await self._bot.people.update(update.user_id, channel=update.channel, enrich=enrich)
        return json_answer({"updated": updated})

    def _check(self, request: Request, body: bytes) -> None:
        secret = self._bot.update_user_secret
        if secret is not None:
            Secret(secret).check(request.headers, body, self._bot.clock.now())
        elif not self._access.on_loopback:
            raise NotFound("this is for this machine alone; set update_user_secret to let others use it")
        else:
            self._access.own_site_only(request)
