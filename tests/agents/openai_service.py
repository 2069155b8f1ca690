"""A service that behaves like OpenAI's, on loopback: it remembers, locks, charges, and fails as it is told."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "sk-test"
MODEL = "gpt-test"
SNAPSHOT = "gpt-test-2026-11-01"
SECONDS_MAX = 60.0

Item = dict[str, Any]


@dataclass(frozen=True)
class Mode:
    """What the next run of the model does."""

    status: int = 200
    code: str | None = None
    message: str = "as the test says"
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Hang up after so many events."""
    completes: bool = True
    """Whether the run goes on to its end when nobody listens any more."""
    hold: asyncio.Event | None = None
    """It thinks until this is set."""
    ends: str = "completed"
    reason: str | None = None
    says: str | None = None
    calls: str | None = None


@dataclass
class Conversation:
    id: str
    metadata: dict[str, str]
    items: list[Item] = field(default_factory=list)
    is_locked: bool = False


class Hangup(Exception):
    """Ends the connection in the middle of an answer."""


class OpenAIService:
    """`async with serving() as service`: `service.url` is the base_url of an agent."""

    def __init__(self) -> None:
        self.url = ""
        self.conversations: dict[str, Conversation] = {}
        self.responses: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        """Of every run that was asked for."""
        self.paid: list[dict[str, Any]] = []
        """The usage of every run that the model finished."""
        self.hung_up = 0
        """How often somebody who was being answered did not wait for the end."""
        self.modes: deque[Mode] = deque()
        self._numbers = 0
        self._happened = asyncio.Event()
        self._runs: set[asyncio.Task[None]] = set()

    def next(self, *modes: Mode) -> None:
        self.modes.extend(modes)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                await self._happened.wait()

    def count(self, request: str) -> int:
        return sum(each.startswith(request) for each in self.requests)

    async def close(self) -> None:
        for run in self._runs:
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)

    # The endpoints

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models/{id}", self._served(self.model)),
                Route("/v1/conversations", self._served(self.create), methods=["POST"]),
                Route("/v1/conversations/{id}", self._served(self.retrieve)),
                Route("/v1/conversations/{id}/items", self._served(self.items)),
                Route("/v1/conversations/{id}/items", self._served(self.add_items), methods=["POST"]),
                Route("/v1/responses", self._served(self.respond), methods=["POST"]),
                Route("/v1/responses/{id}", self._served(self.response)),
                Route("/v1/chat/completions", self._served(self.complete), methods=["POST"]),
            ]
        )

    def _served(self, endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            self.requests.append(f"{request.method} {request.url.path}")
            self._note()
            if request.headers.get("authorization") != f"Bearer {KEY}":
                return refused(401, "invalid_api_key", f"Incorrect API key provided: {KEY[:4]}…")
            answer: Response = await endpoint(request)
            return answer

        return serve

    async def model(self, request: Request) -> Response:
        if request.path_params["id"] != MODEL:
            return refused(404, "model_not_found", "The model does not exist")
        return JSONResponse({"id": MODEL, "object": "model", "created": 0, "owned_by": "test"})

    async def create(self, request: Request) -> Response:
        made = Conversation(self._id("conv"), (await request.json()).get("metadata") or {})
        self.conversations[made.id] = made
        return JSONResponse(shown(made))

    async def retrieve(self, request: Request) -> Response:
        found = self.conversations.get(request.path_params["id"])
        return JSONResponse(shown(found)) if found else missing(request.path_params["id"])

    async def items(self, request: Request) -> Response:
        found = self.conversations.get(request.path_params["id"])
        if found is None:
            return missing(request.path_params["id"])
        listed = found.items[::-1] if request.query_params.get("order", "desc") == "desc" else list(found.items)
        if after := request.query_params.get("after"):
            listed = listed[[item["id"] for item in listed].index(after) + 1 :]
        page = listed[: int(request.query_params.get("limit", 20))]
        ids = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return JSONResponse({"object": "list", "data": page, "has_more": len(listed) > len(page), **ids})

    async def add_items(self, request: Request) -> Response:
        added = [{"id": self._id("item"), **item} for item in (await request.json())["items"]]
        self.conversations[request.path_params["id"]].items += added
        return JSONResponse({"object": "list", "data": added, "has_more": False, "first_id": "", "last_id": ""})

    async def response(self, request: Request) -> Response:
        found = self.responses.get(request.path_params["id"])
        return JSONResponse(found) if found else refused(404, None, "Response not found")

    async def respond(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self._note()
        if body["model"] != MODEL:
            return refused(404, "model_not_found", "The model does not exist", "model")
        conversation = self.conversations.get(body["conversation"])
        if conversation is None:
            return missing(body["conversation"])
        if conversation.is_locked:
            return refused(400, "conversation_locked", "Another process is currently operating on it", "conversation")
        if unanswered(conversation.items + body["input"]):
            return refused(400, None, "No tool output found for function call call_1.", "input")
        mode = self.modes.popleft() if self.modes else Mode()
        if mode.status != 200:
            return refused(mode.status, mode.code, mode.message, mode.param, mode.headers)
        conversation.is_locked = True
        run = Run(self, conversation, body, mode)
        task = asyncio.create_task(run.think())
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return StreamingResponse(run.streamed(task), media_type="text/event-stream")

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        mode = self.modes.popleft() if self.modes else Mode()
        self._note()
        if mode.status != 200:
            return refused(mode.status, mode.code, mode.message, mode.param, mode.headers)
        return StreamingResponse(self._chunks(body, mode), media_type="text/event-stream")

    async def _chunks(self, body: dict[str, Any], mode: Mode) -> AsyncIterator[bytes]:
        said = [text_of(message) for message in body["messages"]]
        words = (mode.says or f"heard {' | '.join(said)}").split(" ")
        for number, word in enumerate(words):
            if mode.cut_after == number:
                raise Hangup
            yield chunk({"content": word if number == 0 else f" {word}"})
        if mode.hold is not None:
            await mode.hold.wait()
        if not mode.completes:
            try:
                await asyncio.Event().wait()
            finally:
                self.note_hang_up()
        yield chunk({}, finish=mode.reason or "stop")
        if body.get("stream_options", {}).get("include_usage"):
            usage = {
                "prompt_tokens": sum(len(text.split()) for text in said),
                "completion_tokens": len(words),
                "total_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            }
            self.paid.append(usage)
            yield chunk(None, usage=usage)
        yield b"data: [DONE]\n\n"

    def note_hang_up(self) -> None:
        self.hung_up += 1
        self._note()

    def _note(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    def _id(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}_{self._numbers:048x}"


class Run:
    """One run of the model over a conversation, which goes on whether or not somebody listens."""

    def __init__(self, service: OpenAIService, conversation: Conversation, body: dict[str, Any], mode: Mode) -> None:
        self.service = service
        self.conversation = conversation
        self.body = body
        self.mode = mode
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.id = service._id("resp")
        service.responses[self.id] = self._shown("in_progress")

    async def think(self) -> None:
        try:
            self._tell("response.created", response=self.service.responses[self.id])
            item = self._item()
            if item["type"] == "message":
                for number, word in enumerate(self._words()):
                    delta = word if number == 0 else f" {word}"
                    where = {"item_id": item["id"], "output_index": 0, "content_index": 0, "logprobs": []}
                    self._tell("response.output_text.delta", delta=delta, **where)
            if self.mode.hold is not None:
                await self.mode.hold.wait()
            if not self.mode.completes:
                await asyncio.Event().wait()  # until it is cancelled, once nobody listens
            self._end(item)
        finally:
            self.conversation.is_locked = False
            self.events.put_nowait(None)
            self.service._note()

    def _end(self, item: Item) -> None:
        if self.mode.ends != "failed":
            added = [
                {"id": self.service._id("msg"), "type": "message", "status": "completed", **as_parts(each)}
                if "role" in each
                else each
                for each in self.body["input"]
            ]
            self.conversation.items += [*added, item]
        heard = " ".join(text_of(each) for each in self.conversation.items if each.get("role") != "assistant")
        usage = {
            "input_tokens": len(heard.split()),
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
            "output_tokens": len(text_of(item).split()),
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 0,
        }
        self.service.paid.append(usage)
        done = self._shown(self.mode.ends, [item], usage)
        self.service.responses[self.id] = done
        self._tell(f"response.{self.mode.ends}", response=done)

    async def streamed(self, task: asyncio.Task[None]) -> AsyncIterator[bytes]:
        sent = 0
        try:
            while (event := await self.events.get()) is not None:
                if sent == self.mode.cut_after:
                    if self.mode.completes:
                        await asyncio.wait([task])
                    raise Hangup
                sent += 1
                yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        except asyncio.CancelledError:
            self.service.note_hang_up()
            raise
        finally:
            if not self.mode.completes:
                task.cancel()

    def _words(self) -> list[str]:
        said = [text_of(each) for each in [*self.conversation.items, *self.body["input"]] if each.get("role") == "user"]
        return (self.mode.says or f"heard {' | '.join(said)}").split(" ")

    def _item(self) -> Item:
        if self.mode.calls:
            call = {"type": "function_call", "call_id": "call_1", "name": self.mode.calls, "arguments": "{}"}
            return {"id": self.service._id("fc"), **call, "status": "completed"}
        text = {"type": "output_text", "text": " ".join(self._words()), "annotations": []}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        return {"id": self.service._id("msg"), **message}

    def _shown(self, status: str, output: Iterable[Item] = (), usage: object = None) -> dict[str, Any]:
        error = {"code": self.mode.code, "message": self.mode.message} if status == "failed" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "model": SNAPSHOT,
            "output": list(output),
            "usage": usage,
            "error": error,
            "incomplete_details": {"reason": self.mode.reason} if status == "incomplete" else None,
            "metadata": self.body.get("metadata"),
            "conversation": {"id": self.conversation.id},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def _tell(self, kind: str, **facts: object) -> None:
        self.events.put_nowait({"type": kind, "sequence_number": 0, **facts})


def shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": 0,
        "metadata": conversation.metadata,
    }


def refused(
    status: int, code: str | None, message: str, param: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": param}
    return JSONResponse({"error": error}, status, headers)


def missing(conversation: str) -> Response:
    return refused(404, None, f"Conversation with id '{conversation}' not found.")


def unanswered(items: Iterable[Item]) -> bool:
    items = list(items)
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"}
    return bool(calls - {item["call_id"] for item in items if item.get("type") == "function_call_output"})


def text_of(item: Item) -> str:
    content = item.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part["text"] if "text" in part else f"<{part['type']}>" for part in content)


def as_parts(item: Item) -> Item:
    content = item["content"]
    return {**item, "content": [{"type": "input_text", "text": content}] if isinstance(content, str) else content}


def chunk(delta: object, *, finish: str | None = None, usage: object = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    value = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": SNAPSHOT,
        "choices": choices,
        "usage": usage,
    }
    return f"data: {json.dumps(value)}\n\n".encode()


@asynccontextmanager
async def serving() -> AsyncIterator[OpenAIService]:
    service = OpenAIService()
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    service.url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
    config = uvicorn.Config(service.app(), lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    # Without its own handling of signals, which belong to whoever runs the tests.
    task = asyncio.create_task(server._serve([bound]))
    try:
        yield service
    finally:
        await service.close()
        server.should_exit = True
        await task
