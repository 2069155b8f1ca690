"""The few functions behind which the HTTP client hides: send a body, or get one, and say what is certain about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from turnlane.errors import InvalidSettings

if TYPE_CHECKING:
    import ssl

    import httpx2

ANSWER_BYTES_MAX = 10_000_000
CONNECT_SECONDS_MAX = 10.0
KEPT_CONNECTIONS_MAX = 100
RETRY_AFTER_SECONDS_MAX = 86_400.0
EXCERPT_CHARACTERS_MAX = 200
LINES = "application/x-ndjson"
"""The type of an answer that comes piece by piece, one JSON value a line."""

Heard = Callable[[bytes], None]

trace_headers: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=MappingProxyType({}))
"""What to say to the operator's own services, so that they go on with the trace of what is done here. Platforms and
strangers are told nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The other side answered: the status is certain, whatever became of the body."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    complete: bool = True
    """False: the body was cut, too slow, or longer than `ANSWER_BYTES_MAX`; what came of it is here."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        """For operators: the status and the beginning of the body, on one line."""
        excerpt = " ".join(self.body[: EXCERPT_CHARACTERS_MAX * 4].decode(errors="replace").split())
        return f"{self.status}: {excerpt[:EXCERPT_CHARACTERS_MAX]}" if excerpt else str(self.status)

    def retry_after(self, now: int) -> float | None:
        """Seconds to wait from `now` (milliseconds), if the other side named them, as a number or as a date."""
        value = self.headers.get("retry-after", "").strip()
        seconds = float(value) if value.isascii() and value.isdigit() else _seconds_until(value, now)
        return None if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class NotReached:
    """Proven not sent: not one byte of the request left (refused, no such host, connect time-out)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Unknown: the request may have arrived, but no answer came back (a cut, a time-out)."""

    cause: str


Posted = Answer | NotReached | Lost


class Outgoing:
    """Asks other services over kept connections. Follows no redirects, retries nothing, keeps no cookies."""

    def __init__(self) -> None:
        # One client for each request under way: a shared one looks at all its connections for each of them.
        self._idle: list[httpx2.AsyncClient] = []
        self._tls: ssl.SSLContext | None = None

    async def post(
        self, url: str, *, body: bytes, headers: Mapping[str, str], timeout: float, heard: Heard | None = None
    ) -> Posted:
        """Send the JSON body once, and answer within `timeout` seconds.

        `heard` is told what comes of a good answer in lines (`LINES`), as it comes.
        """
        return await self._ask("POST", url, body, {"content-type": "application/json", **headers}, timeout, heard)

    async def put(self, url: str, *, body: bytes, headers: Mapping[str, str], timeout: float) -> Posted:
        """As `post`, for what says PUT instead."""
        return await self._ask("PUT", url, body, {"content-type": "application/json", **headers}, timeout)

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout: float,
        at: str | None = None,
        bytes_max: int | None = None,
    ) -> Posted:
        """Ask once, and answer within `timeout` seconds.

        `at`: connect to this address of the host and to no other, whatever its name stands for by then.
        """
        return await self._ask("GET", url, None, headers, timeout, at=at, bytes_max=bytes_max)

    async def _ask(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        heard: Heard | None = None,
        *,
        at: str | None = None,
        bytes_max: int | None = None,
    ) -> Posted:
        client = self._idle.pop() if self._idle else self._opened()
        request = _Request(client, method, url, body, headers, heard, at, bytes_max or ANSWER_BYTES_MAX)
        try:
            async with asyncio.timeout(timeout):
                await request.perform()
        except TimeoutError:
            return request.ended(f"no answer within {timeout:g} s")
        except _request_errors() as error:
            return request.ended(f"{type(error).__name__}: {error}")
        finally:
            await self._let_go(client)
        return request.ended("the connection was closed")

    async def _let_go(self, client: httpx2.AsyncClient) -> None:
        if len(self._idle) < KEPT_CONNECTIONS_MAX:
            self._idle.append(client)
        else:
            await client.aclose()

    async def close(self) -> None:
        """Let the connections go. May be called twice; a later post opens new ones."""
        while self._idle:
            await self._idle.pop().aclose()

    def _opened(self) -> httpx2.AsyncClient:
        import httpx2

        # Making a context reads all certificates; one serves every client.
        self._tls = self._tls or httpx2.create_ssl_context()
        return httpx2.AsyncClient(
            verify=self._tls,
            # The time-out of the whole call is asyncio's; how many calls run at once is the callers' to limit.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
            # A cookie set in one conversation must not come back in another one's.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )


class _Request:
    """One request on its way: knows at any moment whether it may have left and what came back."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        heard: Heard | None,
        at: str | None,
        bytes_max: int,
    ) -> None:
        extensions: dict[str, object] = {"trace": self._trace}
        if at is not None:
            parts = urlsplit(url)
            # Its own connection: another name may have the same address, and was not what the certificate was for.
            headers = {**headers, "host": parts.netloc.rpartition("@")[2], "connection": "close"}
            extensions["sni_hostname"] = parts.hostname
            url = parts._replace(netloc=_netloc(at, parts.port)).geturl()
        self._stream = client.stream(
            method,
            url,
            content=body,
            # Compressed answers could not be bounded while they are read.
            headers={"accept-encoding": "identity", **headers},
            extensions=extensions,
        )
        self._heard = heard
        self._bytes_max = bytes_max
        self._may_have_left = False
        self._response: httpx2.Response | None = None
        self._body = bytearray()
        self._complete = False

    async def perform(self) -> None:
        async with self._stream as self._response:
            in_lines = self._response.is_success and self._response.headers.get("content-type", "").startswith(LINES)
            await self._read(self._response.aiter_raw(), self._heard if in_lines else None)

    async def _read(self, chunks: AsyncIterator[bytes], heard: Heard | None) -> None:
        async for chunk in chunks:
            self._body += chunk[: self._bytes_max - len(self._body) + 1]
            if heard is not None:
                heard(chunk)
            if len(self._body) > self._bytes_max:
                del self._body[self._bytes_max :]
                return
        self._complete = True

    async def _trace(self, event: str, info: object) -> None:
        # Everything before this event is finding the host, connecting and TLS: none of it carries the request.
        if event.endswith("send_request_headers.started"):
            self._may_have_left = True

    def ended(self, cause: str) -> Posted:
        if self._response is not None:
            headers = {name.lower(): value for name, value in self._response.headers.items()}
            return Answer(self._response.status_code, headers, bytes(self._body), self._complete)
        return Lost(cause) if self._may_have_left else NotReached(cause)


def checked_url(url: str, *, setting: str) -> str:
    """The URL itself, if it can be asked; else InvalidSettings, which does not repeat it: it may hold a key."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise InvalidSettings(f"{setting} is not a URL to ask; write it like http://127.0.0.1:9000/path")
    return url


def _netloc(address: str, port: int | None) -> str:
    host = f"[{address}]" if ":" in address else address
    return host if port is None else f"{host}:{port}"


def _request_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL, OSError)


def _seconds_until(date: str, now: int) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(now / 1000, UTC)).total_seconds()
