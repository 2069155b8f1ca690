"""Who a token is in Slack, and what it may do there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnlane.channels.slack.api import Api, Asked, Said
from turnlane.channels.slack.options import Options
from turnlane.clock import SystemClock

SECONDS_MAX = 5.0

SCOPES: Mapping[str, str] = {
    "chat:write": "nothing can be sent",
    "app_mentions:read": "mentions are not heard",
    "channels:history": "public rooms are not heard, and nothing can be looked up there",
    "groups:history": "private rooms are not heard, and nothing can be looked up there",
    "im:history": "direct messages are not heard, and nothing can be looked up there",
    "mpim:history": "groups are not heard, and nothing can be looked up there",
    "reactions:read": "a reaction answers no question",
    "files:read": "files cannot be fetched",
    "users:read": "people have no names",
}
"""What a bot needs, and what is missed without it."""


@dataclass(frozen=True, slots=True)
class Rights:
    workspace: str
    bot: str
    missing: Mapping[str, str]
    """Scopes, and what is missed without them. Empty where Slack does not tell."""


async def rights_of(options: Options) -> dict[str, Rights | Asked]:
    """By the name under which each token stands: its rights, or what Slack said instead."""
    api = Api(options.tokens, base_url=options.base_url, timeout=SECONDS_MAX, clock=SystemClock())
    try:
        return {team: await _rights(api, team, options) for team in options.tokens}
    finally:
        await api.close()


async def socket_trouble(options: Options) -> Asked | None:
    """What Slack said, if no socket can be opened. None: it can, or none is wanted."""
    if options.app_token is None:
        return None
    api = Api(options.tokens, base_url=options.base_url, timeout=SECONDS_MAX, clock=SystemClock())
    try:
        asked = await api.connection_url(options.app_token)
    finally:
        await api.close()
    return None if isinstance(asked, Said) and asked.ok else asked


async def _rights(api: Api, team: str, options: Options) -> Rights | Asked:
    asked = await api.read(team, "auth.test")
    if not isinstance(asked, Said) or not asked.ok:
        return asked
    wanted = dict(SCOPES)
    if options.receipt is not None:
        wanted["reactions:write"] = "no receipt is given"
    told = asked.headers.get("x-oauth-scopes")
    has = set(wanted) if told is None else {scope.strip() for scope in told.split(",")}
    missing = {scope: missed for scope, missed in wanted.items() if scope not in has}
    workspace = f"{asked.text('team') or 'a workspace'} ({asked.text('team_id') or '?'})"
    return Rights(workspace, asked.text("user") or "?", missing)
