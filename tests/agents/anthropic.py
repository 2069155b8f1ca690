"""The Anthropic Messages API, played on loopback: what it says is written in what it is asked.

The last text of the person may hold: `ERR:529` (that status), `HOLD` (half of the answer, the rest when released),
`CUT` (half of the answer, then the connection ends, once), `TOOL:Bash:{"command": "true"}` (that tool is used first).
Every answer tells all that the person said in the context it was given, so that a test sees what was remembered.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from types import TracebackType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnlane.testing.processes import SECONDS_MAX

INPUT_TOKENS, CACHE_WRITE_TOKENS, CACHE_READ_TOKENS, OUTPUT_TOKENS = 100, 20, 30, 17
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}

Body = Mapping[str, Any]
Block = dict[str, Any]


class Anthropic:
    """`async with Anthropic() as api:` and `ANTHROPIC_BASE_URL=api.url`. Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Body] = []
        """The body of every request for a message, in the order they came."""
        self.answered = 0
        self.url = ""
        self.failing_with: int | None = None
        """This status to everybody, whatever is asked."""
        self._released = asyncio.Event()
        self._happened = asyncio.Event()
        self._ids = count(1)
        self._cut = False

    async def __aenter__(self) -> Anthropic:
        bound = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        app = Starlette(routes=[Route("/v1/messages", self._messages, methods=["POST"])])
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=1)
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([bound]))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._released.set()
        self._server.should_exit = True
        await self._serving

    def release(self) -> None:
        """Let go on what is held, and hold nothing any more."""
        self._released.set()

    def hold_again(self) -> None:
        self._released.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looked at whenever a request comes or is answered."""
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                await self._happened.wait()

    @property
    def heard(self) -> list[str]:
        """What the person said, in the context of the last request."""
        return said_by_the_person(self.asked[-1]["messages"])

    def _note(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self._note()
        last = (said_by_the_person(body["messages"]) or [""])[-1]
        status = self.failing_with or int((re.search(r"ERR:(\d+)", last) or [0, 0])[1])
        if status:
            error = {"type": ERROR_TYPES.get(status, "api_error"), "message": f"fake {status}"}
            return JSONResponse({"type": "error", "error": error}, status_code=status)
        events = self._events(body, last)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(self, body: Body, last: str) -> AsyncIterator[str]:
        blocks = _blocks(body, last)
        uses_tool = blocks[-1]["type"] == "tool_use"
        yield _event("message_start", message=self._head(body))
        for index, block in enumerate(blocks):
            yield _event("content_block_start", index=index, content_block=_empty(block))
            first, second = _halves(block)
            yield _event("content_block_delta", index=index, delta=first)
            if not uses_tool and "HOLD" in last:
                await self._released.wait()
            if not uses_tool and "CUT" in last and not self._cut:
                self._cut = True
                raise ConnectionError("cut, as it was asked to be")
            yield _event("content_block_delta", index=index, delta=second)
            yield _event("content_block_stop", index=index)
        stopped = {"stop_reason": "tool_use" if uses_tool else "end_turn", "stop_sequence": None}
        yield _event("message_delta", delta=stopped, usage={"output_tokens": OUTPUT_TOKENS})
        self.answered += 1
        self._note()
        yield _event("message_stop")

    def _head(self, body: Body) -> dict[str, object]:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "cache_creation_input_tokens": CACHE_WRITE_TOKENS,
            "cache_read_input_tokens": CACHE_READ_TOKENS,
            "output_tokens": 1,
        }
        message = {"id": f"msg_{next(self._ids)}", "type": "message", "role": "assistant", "model": body["model"]}
        return {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for whoever runs the tests."""
        yield


def said_by_the_person(messages: Sequence[Body]) -> list[str]:
    """Without what the program adds for the model; what was said during a tool is wrapped in a sentence of its own."""
    plain = []
    for message in messages:
        for text in _texts(message["content"]):
            if message["role"] == "user":
                plain.append(re.sub(r"<system-reminder>.*?</system-reminder>", "", text, flags=re.DOTALL).strip())
            elif steered := re.search(r"while you were working:\n(.*?)\n\nThis is how", text, re.DOTALL):
                plain.append(steered[1])
    return [text for text in plain if text]


def _texts(content: str | Sequence[Block]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block["type"] == "text"]


def _blocks(body: Body, last: str) -> list[Block]:
    if results := _results(body["messages"]):
        return [{"type": "text", "text": f"The tool said: {_result(results[-1])}"}]
    if tool := re.search(r"TOOL:(\w+):(\{.*\})", last):
        use = {"type": "tool_use", "id": f"toolu_{len(body['messages'])}", "name": tool[1]}
        return [{"type": "text", "text": "I look."}, {**use, "input": json.loads(tool[2])}]
    return [{"type": "text", "text": f"I heard {json.dumps(said_by_the_person(body['messages']), ensure_ascii=False)}"}]


def _results(messages: Sequence[Body]) -> list[Block]:
    """Of the tools that were used last; the person may have said something since."""
    since = takewhile(lambda message: message["role"] != "assistant", reversed(messages))
    blocks = (block for message in since if not isinstance(message["content"], str) for block in message["content"])
    return [block for block in blocks if block["type"] == "tool_result"]


def _result(block: Block) -> str:
    content = block.get("content")
    return content if isinstance(content, str) else json.dumps(content)


def _empty(block: Block) -> Block:
    return {**block, "input": {}} if block["type"] == "tool_use" else {**block, "text": ""}


def _halves(block: Block) -> tuple[Block, Block]:
    kind, key, text = ("text_delta", "text", block.get("text", ""))
    if block["type"] == "tool_use":
        kind, key, text = "input_json_delta", "partial_json", json.dumps(block["input"])
    middle = len(text) // 2
    return {"type": kind, key: text[:middle]}, {"type": kind, key: text[middle:]}


def _event(name: str, **values: object) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **values})}\n\n"
