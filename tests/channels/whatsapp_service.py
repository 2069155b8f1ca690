"""Meta, Whapi and Wati in one small server on loopback: they take what is sent, or do what the test says instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.channels.loopback import Behaviour, Loopback, Request, accepts_then_cuts, answers, loopback

from turnlane.model.message import Attachment


def json_answer(status: int, value: object, **headers: str) -> Behaviour:
    return answers(status, json.dumps(value).encode(), content_type="application/json", **headers)


def meta_error(code: int, message: str = "why", status: int = 400, **headers: str) -> Behaviour:
    return json_answer(status, {"error": {"message": message, "type": "OAuthException", "code": code}}, **headers)


def whapi_error(status: int, message: str = "why", **headers: str) -> Behaviour:
    return json_answer(status, {"error": {"code": status, "message": message}}, **headers)


@dataclass(frozen=True)
class Taken:
    """A message that the platform has, and will show."""

    to: str
    text: str
    delivery: str | None
    request: Request


@dataclass
class Service:
    next: list[Behaviour] = field(default_factory=list)
    """What is done with the next sendings instead of taking them."""
    after: list[Behaviour] = field(default_factory=list)
    """What is done with the next sendings once they were taken: an answer that is cut, say."""
    every: int = 0
    """If set: each so many-th sending meets the storm, again and again."""
    storm: Behaviour = accepts_then_cuts
    known: dict[str, object] = field(default_factory=dict)
    """What is answered to a GET of a path: bytes as they are, anything else as JSON."""
    asked: list[Request] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)
    indicated: list[Request] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self._happened = asyncio.Event()

    async def until(self, condition: Callable[[], bool], within: float = 60.0) -> None:
        try:
            async with asyncio.timeout(within):
                while not condition():
                    await self._happened.wait()
        except TimeoutError:
            texts = [each.text[:60] for each in self.taken]
            raise AssertionError(f"not within {within:g} s; taken {texts}, refused {len(self.refused)}") from None

    async def behave(self, request: Request, writer: asyncio.StreamWriter) -> None:
        method, target, _ = request.line.split()
        path = urlsplit(target).path.removeprefix("/here")
        if method == "GET":
            self.asked.append(request)
            found = self.known.get(path)
            answer = (
                answers(200, found) if isinstance(found, bytes) else json_answer(404 if found is None else 200, found)
            )
            await answer(request, writer)
        elif method == "PUT" or (method == "POST" and b'"typing_indicator"' in request.body):
            self.indicated.append(request)
            await json_answer(200, {"success": True})(request, writer)
        elif self.next or self._is_in_the_storm:
            self.refused.append(request)
            await (self.next.pop(0) if self.next else self.storm)(request, writer)
        else:
            await self._take(path, target, request, writer)
        self._happened.set()
        self._happened = asyncio.Event()

    @property
    def _is_in_the_storm(self) -> bool:
        return bool(self.every) and (len(self.taken) + len(self.refused)) % self.every == 1

    async def _take(self, path: str, target: str, request: Request, writer: asyncio.StreamWriter) -> None:
        number = len(self.taken) + 1
        self.taken.append(_taken(path, target, request))
        answer = {"messages": [{"id": f"wamid.out{number}"}], "sent": True, "result": True}
        answer["message"] = {"id": f"out{number}"}
        await (self.after.pop(0) if self.after else json_answer(200, answer))(request, writer)

    def texts(self, to: str) -> list[str]:
        return [each.text for each in self.taken if each.to == to]


def _taken(path: str, target: str, request: Request) -> Taken:
    if path.startswith("/api/v1/sendSessionMessage/"):
        asked = parse_qs(urlsplit(target).query)
        delivery = asked["localMessageId"][0].partition(".")[0]
        return Taken(unquote(path.rpartition("/")[2]), asked["messageText"][0], delivery, request)
    said: dict[str, Any] = request.json
    if path == "/messages/text":
        return Taken(said["to"], said["body"], None, request)
    text = said["text"]["body"] if "text" in said else said["interactive"]["body"]["text"]
    delivery = said["biz_opaque_callback_data"].partition(" ")[0]
    return Taken(said.get("to") or said["recipient"], text, delivery, request)


def unmarked(files: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """Without the mark in their addresses, which is made with the token."""
    return tuple(replace(file, url=file.url.partition("#")[0]) for file in files)


@asynccontextmanager
async def whatsapp_service() -> AsyncIterator[Service]:
    service = Service()
    server: Loopback
    async with loopback(service.behave) as server:
        service.url = server.url
        yield service
