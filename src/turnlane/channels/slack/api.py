"""How Slack's Web API is called: once, with the workspace's own token, and with an answer for every ending."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from turnlane.channels.loose import Loose
from turnlane.channels.slack.options import ANY_WORKSPACE
from turnlane.clock import Clock
from turnlane.outgoing import Answer, Lost, NotReached

CONNECT_SECONDS_MAX = 10.0
IDENTITY_SECONDS_MAX = 2.0
"""Slack wants its events taken within three seconds, and this may be asked on the way."""
IDENTITY_AGAIN_SECONDS = 30.0

QUIET = logging.getLogger("turnlane.channels.slack.sdk")
"""For the SDK: what it says holds addresses with tickets in them, and we say what matters ourselves."""
QUIET.setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Said:
    """Slack answered. `ok` decides, not the status: an error comes with 200, too."""

    status: int
    headers: Mapping[str, str]
    data: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return self.status == 200 and self.data.get("ok") is True

    @property
    def error(self) -> str:
        error = self.data.get("error")
        return error if isinstance(error, str) and error else f"HTTP {self.status}"

    @property
    def is_limit(self) -> bool:
        return self.status == 429 or self.error in {"ratelimited", "rate_limited"}

    def retry_after(self, now: int) -> float | None:
        return Answer(self.status, self.headers, b"").retry_after(now)

    def text(self, name: str) -> str | None:
        found = self.data.get(name)
        return found if isinstance(found, str) else None

    def inner(self, name: str) -> Loose:
        return Loose(self.data.get(name))


Asked = Said | NotReached | Lost


def cause(asked: Asked) -> str:
    """For operators: why there is no good answer. Holds nothing secret."""
    match asked:
        case Said():
            needed = asked.text("needed")
            return f"Slack says {asked.error}" + (f" (needed: {needed})" if needed else "")
        case NotReached(why):
            return f"Slack cannot be reached: {why}"
        case Lost(why):
            return f"Slack did not answer: {why}"


class Api:
    """The calls of one app in its workspaces. Retries nothing."""

    def __init__(self, tokens: Mapping[str, str], *, base_url: str, timeout: float, clock: Clock) -> None:
        self._tokens = tokens
        self._base_url = base_url
        self._timeout = timeout
        self._clock = clock
        self._clients: dict[str, AsyncWebClient] = {}
        self._session: aiohttp.ClientSession | None = None
        self._bots: dict[str, str] = {}
        self._ask_again: dict[str, float] = {}

    @property
    def is_in_one_workspace(self) -> bool:
        return len(self._tokens) == 1

    def knows(self, team: str) -> bool:
        return team in self._tokens or ANY_WORKSPACE in self._tokens

    def token(self, team: str) -> str:
        return self._tokens.get(team) or self._tokens.get(ANY_WORKSPACE) or next(iter(self._tokens.values()))

    @property
    def teams(self) -> Iterator[str]:
        return iter(self._tokens)

    async def write(self, team: str, method: str, **arguments: object) -> Asked:
        """A call that takes JSON."""
        return await self._ask(self.token(team), method, json=_given(arguments))

    async def read(self, team: str, method: str, **arguments: str | int | None) -> Asked:
        """A call that takes a form, as those do that only look."""
        return await self._ask(self.token(team), method, data=_given(arguments))

    def retry_after(self, asked: Asked) -> float | None:
        """In how many seconds Slack wants to be asked again, if it said so."""
        return asked.retry_after(self._clock.now()) if isinstance(asked, Said) else None

    async def connection_url(self, app_token: str) -> Asked:
        return await self._ask(app_token, "apps.connections.open", data={})

    async def bot_user(self, team: str) -> str | None:
        """Who we are there. None: Slack cannot be asked just now."""
        if team not in self._bots and self._clock.monotonic() >= self._ask_again.get(team, 0.0):
            try:
                async with asyncio.timeout(IDENTITY_SECONDS_MAX):
                    asked = await self.read(team, "auth.test")
            except TimeoutError:
                asked = Lost("too slow")
            if isinstance(asked, Said) and asked.ok and (user := asked.text("user_id")):
                self._bots[team] = user
            else:
                self._ask_again[team] = self._clock.monotonic() + IDENTITY_AGAIN_SECONDS
        return self._bots.get(team)

    async def close(self) -> None:
        session, self._session = self._session, None
        self._clients.clear()
        if session is not None:
            await session.close()

    async def _ask(self, token: str, method: str, **body: Any) -> Asked:
        try:
            return _said(await self._client(token).api_call(method, **body))
        except SlackApiError as error:
            return _said(error.response)
        # Before a connection stands, nothing can have left.
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return NotReached(f"{type(error).__name__}: {error}")
        # ValueError, AttributeError: the SDK stumbles over an answer that is no JSON, or not in UTF-8.
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError) as error:
            return Lost(f"{type(error).__name__}: {error}".rstrip(": "))

    def _client(self, token: str) -> AsyncWebClient:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=self._timeout, sock_connect=min(CONNECT_SECONDS_MAX, self._timeout)
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if token not in self._clients:
            self._clients[token] = AsyncWebClient(
                token, base_url=self._base_url, session=self._session, logger=QUIET, retry_handlers=[]
            )
        return self._clients[token]


def _said(response: Any) -> Said:
    """Of the SDK's response, or of the bare one that it hands on where it could not read the body."""
    status = int(response.status_code if hasattr(response, "status_code") else response.status)
    headers = {str(name).lower(): str(text) for name, text in (response.headers or {}).items()}
    data = getattr(response, "data", None)
    return Said(status, headers, data if isinstance(data, dict) else {})


def _given(arguments: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if value is not None}
