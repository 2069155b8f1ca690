"""A service that behaves like Slack, on loopback: it remembers, limits, breaks, and speaks over sockets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

TEAM, BOT, ROOM, USER = "T0001", "U0BOT", "C0001", "U0001"
TOKEN, APP_TOKEN, SIGNING_SECRET = "xoxb-1-secret-of-the-bot", "xapp-1-secret-of-the-app", "signing-secret-of-slack"
SCOPES = "chat:write,channels:history,reactions:write"
SECONDS_MAX = 30.0

Message = dict[str, Any]
Args = Mapping[str, Any]


@dataclass(frozen=True)
class Mode:
    """What becomes of one call."""

    error: str | None = None
    status: int = 200
    retry_after: str | None = None
    done: bool = False
    """Carried out all the same."""
    cut: bool = False
    hang: bool = False
    body: str | None = None
    """Said instead of JSON."""


OK = Mode()


def limited(seconds: int = 1) -> Mode:
    return Mode("ratelimited", 429, str(seconds))


@dataclass(frozen=True)
class Call:
    method: str
    args: Args
    token: str
    at: float


@dataclass
class SlackService:
    url: str = ""
    """Of the Web API."""
    teams: dict[str, str] = field(default_factory=lambda: {TOKEN: TEAM})
    calls: list[Call] = field(default_factory=list)
    messages: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    """By room, in the order of their time."""
    reactions: list[tuple[str, str, str]] = field(default_factory=list)
    statuses: list[tuple[str, str, str]] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    acks: list[str] = field(default_factory=list)
    connections: int = 0
    next: dict[str, deque[Mode]] = field(default_factory=lambda: defaultdict(deque))
    """By method, for the calls to come; after them all is well."""
    always: dict[str, Mode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self._sockets: list[web.WebSocketResponse] = []
        self._happened = asyncio.Event()
        self._streams: set[str] = set()

    # What a test looks at

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    def texts(self, room: str = ROOM) -> list[str]:
        """What the bot said there."""
        return [message["text"] for message in self.messages[room] if message.get("bot_id")]

    async def until(self, condition: Callable[[], bool], within: float = SECONDS_MAX) -> None:
        """Looked at whenever something happens here."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    await self._happened.wait()
        except TimeoutError:
            seen = [(call.method, call.args.get("text")) for call in self.calls[-10:]]
            raise AssertionError(f"it did not come to this within {within:g} s; last: {seen}, {self.acks}") from None

    def note(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    # What people do

    def ts(self) -> str:
        return f"{int(time.time())}.{next(self._numbers):06d}"

    def said(self, text: str, *, room: str = ROOM, thread: str | None = None, user: str = USER) -> Message:
        """A message of a person, as it stands in the room."""
        message = {"type": "message", "user": user, "text": text, "ts": self.ts()}
        if thread is not None:
            message["thread_ts"] = thread
        self.messages[room].append(message)
        return message

    async def push(self, envelope: Mapping[str, Any], *, kind: str = "events_api", socket: int = -1) -> str:
        """Tell it over one of the sockets that are open, as soon as there is one."""
        await self.until(lambda: any(not each.closed for each in self._sockets))
        told = [each for each in self._sockets if not each.closed][socket]
        envelope_id = f"envelope-{next(self._numbers)}"
        await told.send_json(
            {"envelope_id": envelope_id, "type": kind, "accepts_response_payload": False, "payload": envelope}
        )
        return envelope_id

    async def acknowledged(self, envelope_id: str) -> None:
        await self.until(lambda: envelope_id in self.acks)

    def end_streams(self) -> None:
        """As Slack does by itself after some minutes."""
        self._streams.clear()

    async def disconnect(self, reason: str) -> None:
        for socket in self._sockets:
            if not socket.closed:
                await socket.send_json({"type": "disconnect", "reason": reason})

    async def drop(self) -> None:
        """The sockets are gone without a word."""
        for socket in self._sockets:
            if socket._req is not None and socket._req.transport is not None:
                socket._req.transport.abort()

    # What it answers

    async def answer(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        body = await request.read()
        is_json = request.content_type == "application/json"
        args: dict[str, Any] = json.loads(body) if is_json else {**request.query, **dict(await request.post())}
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.calls.append(Call(method, args, token, time.monotonic()))
        mode = self.next[method].popleft() if self.next[method] else self.always.get(method, OK)
        is_well = mode == OK or mode.done
        done = self._do(method, args, token) if is_well else {"ok": False, "error": mode.error}
        self.note()
        if mode.hang:
            await asyncio.Event().wait()
        if mode.cut:
            assert request.transport is not None
            request.transport.abort()
        if mode.body is not None:
            return web.Response(text=mode.body, status=mode.status, content_type="text/html")
        headers = {"retry-after": mode.retry_after} if mode.retry_after else {"x-oauth-scopes": SCOPES}
        said = done if mode.error is None else {"ok": False, "error": mode.error}
        return web.json_response(said, status=mode.status, headers=headers)

    def _do(self, method: str, args: Args, token: str) -> dict[str, Any]:
        if token not in {*self.teams, APP_TOKEN}:
            return {"ok": False, "error": "invalid_auth"}
        verb = getattr(self, "_" + method.replace(".", "_"), None)
        return {"ok": False, "error": "unknown_method"} if verb is None else {"ok": True, **verb(args, token)}

    def _auth_test(self, args: Args, token: str) -> dict[str, Any]:
        return {"team": "Acme", "team_id": self.teams[token], "user": "helper", "user_id": BOT, "bot_id": "B0001"}

    def _apps_connections_open(self, args: Args, token: str) -> dict[str, Any]:
        return {"url": f"{self.url.replace('http', 'ws', 1).removesuffix('api/')}link?ticket=a-ticket"}

    def _chat_postMessage(self, args: Args, token: str) -> dict[str, Any]:
        message = {
            "type": "message",
            "user": BOT,
            "bot_id": "B0001",
            "ts": self.ts(),
            **{name: args[name] for name in ("text", "thread_ts", "blocks", "metadata") if name in args},
        }
        self.messages[args["channel"]].append(message)
        return {"channel": args["channel"], "ts": message["ts"], "message": message}

    def _chat_update(self, args: Args, token: str) -> dict[str, Any]:
        message = self._found(args)
        if message is None:
            return {"ok": False, "error": "message_not_found"}
        if len(args.get("text", "")) > 4_000:
            return {"ok": False, "error": "msg_too_long"}
        message.update({name: args[name] for name in ("text", "blocks", "metadata") if name in args})
        return {"channel": args["channel"], "ts": args["ts"]}

    def _chat_delete(self, args: Args, token: str) -> dict[str, Any]:
        message = self._found(args)
        if message is None:
            return {"ok": False, "error": "message_not_found"}
        self.messages[args["channel"]].remove(message)
        return {"ts": args["ts"]}

    def _chat_startStream(self, args: Args, token: str) -> dict[str, Any]:
        if not (args.get("thread_ts") and args.get("recipient_team_id") and args.get("recipient_user_id")):
            return {"ok": False, "error": "invalid_arguments"}
        posted = self._chat_postMessage({**args, "text": args.get("markdown_text", "")}, token)
        self._streams.add(posted["ts"])
        return {"ts": posted["ts"]}

    def _chat_appendStream(self, args: Args, token: str) -> dict[str, Any]:
        message = self._found(args)
        if message is None or args["ts"] not in self._streams:
            return {"ok": False, "error": "message_not_in_streaming_state"}
        message["text"] += args.get("markdown_text", "")
        return {"ts": args["ts"]}

    def _chat_stopStream(self, args: Args, token: str) -> dict[str, Any]:
        done = self._chat_appendStream(args, token)
        self._streams.discard(args["ts"])
        if (message := self._found(args)) is not None and "metadata" in args:
            message["metadata"] = args["metadata"]
        return done

    def _conversations_replies(self, args: Args, token: str) -> dict[str, Any]:
        about = args["ts"]
        known = self.messages[args["channel"]]
        if not any(message["ts"] == about for message in known) and not any(m.get("thread_ts") == about for m in known):
            return {"ok": False, "error": "thread_not_found"}
        thread = [m for m in known if m["ts"] == about or m.get("thread_ts") == about]
        parent = [m for m in thread if m["ts"] == about]
        return _page(args, [m for m in _within(args, thread) if m not in parent], first=parent)

    def _conversations_history(self, args: Args, token: str) -> dict[str, Any]:
        room = [m for m in self.messages[args["channel"]] if m.get("thread_ts") in (None, m["ts"])]
        return _page(args, _within(args, room)[::-1])

    def _reactions_add(self, args: Args, token: str) -> dict[str, Any]:
        self.reactions.append((args["channel"], args["timestamp"], args["name"]))
        return {}

    def _assistant_threads_setStatus(self, args: Args, token: str) -> dict[str, Any]:
        self.statuses.append((args["channel_id"], args["thread_ts"], args["status"]))
        return {}

    def _users_info(self, args: Args, token: str) -> dict[str, Any]:
        user = self.users.get(args["user"])
        return {"ok": False, "error": "user_not_found"} if user is None else {"user": user}

    def _files_info(self, args: Args, token: str) -> dict[str, Any]:
        file = self.files.get(args["file"])
        return {"ok": False, "error": "file_not_found"} if file is None else {"file": file}

    def _found(self, args: Args) -> Message | None:
        return next((message for message in self.messages[args["channel"]] if message["ts"] == args["ts"]), None)

    async def give_file(self, request: web.Request) -> web.Response:
        """To whom shows a token; others are sent to log in."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.teams:
            return web.Response(status=302, headers={"location": "/sign-in"})
        return web.Response(body=b"a picture", content_type="image/png")

    async def link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        self.connections += 1
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0001"}})
        self.note()
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                self.acks.append(json.loads(frame.data)["envelope_id"])
                self.note()
        return socket


def _within(args: Args, messages: list[Message]) -> list[Message]:
    inclusive = args.get("inclusive") in (True, "true", "1")
    oldest, latest = float(args.get("oldest") or 0), float(args.get("latest") or 1e12)
    return [
        message
        for message in messages
        if oldest < float(message["ts"]) < latest or (inclusive and float(message["ts"]) in (oldest, latest))
    ]


def _page(args: Args, messages: list[Message], first: list[Message] | None = None) -> dict[str, Any]:
    shown = [
        message if args.get("include_all_metadata") else {k: v for k, v in message.items() if k != "metadata"}
        for message in messages
    ]
    at, limit = int(args.get("cursor") or 0), int(args.get("limit") or 100)
    more = at + limit < len(shown)
    return {
        "messages": [*(first or []), *shown[at : at + limit]],
        "has_more": more,
        "response_metadata": {"next_cursor": str(at + limit) if more else ""},
    }


@asynccontextmanager
async def slack_service() -> AsyncIterator[SlackService]:
    service = SlackService()
    app = web.Application(client_max_size=10_000_000)
    app.router.add_route("*", "/api/{method}", service.answer)
    app.router.add_get("/link", service.link)
    app.router.add_get("/files-pri/{name}", service.give_file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    service.url = f"http://127.0.0.1:{port}/api/"
    try:
        yield service
    finally:
        await runner.cleanup()


# What Slack sends


def callback(event: Mapping[str, Any], *, team: str = TEAM, bot: str = BOT) -> dict[str, Any]:
    return {
        "token": "verification-token-of-old",
        "type": "event_callback",
        "team_id": team,
        "api_app_id": "A0001",
        "event": dict(event),
        "event_id": "Ev0001",
        "event_time": 1_700_000_000,
        "authorizations": [{"enterprise_id": None, "team_id": team, "user_id": bot, "is_bot": True}],
    }


def message_event(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """In a room, unless told otherwise. None leaves a field out."""
    event = {
        "type": "message",
        "channel": ROOM,
        "channel_type": "channel",
        "user": USER,
        "text": text,
        "ts": "1700000000.000100",
        "client_msg_id": "5d1d7c4e-0000-4000-8000-000000000001",
        **fields,
    }
    event.setdefault("event_ts", event["ts"])
    return {name: part for name, part in event.items() if part is not None}


def signed(body: bytes, *, at: int, secret: str = SIGNING_SECRET, form: bool = False) -> dict[str, str]:
    """The headers that Slack sends with it."""
    digest = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/x-www-form-urlencoded" if form else "application/json",
        "x-slack-request-timestamp": str(at),
        "x-slack-signature": f"v0={digest}",
    }


def pressed(message: Mapping[str, Any], number: int, *, user: str = USER, room: str = ROOM) -> dict[str, Any]:
    """What Slack tells when somebody presses a button of this message."""
    (actions,) = [block for block in message["blocks"] if block["type"] == "actions"]
    button = actions["elements"][number]
    return {
        "type": "block_actions",
        "team": {"id": TEAM, "domain": "acme"},
        "user": {"id": user, "team_id": TEAM},
        "api_app_id": "A0001",
        "token": "verification-token-of-old",
        "container": {"type": "message", "message_ts": message["ts"], "channel_id": room},
        "channel": {"id": room, "name": "general"},
        "message": dict(message),
        "response_url": "https://hooks.slack.com/actions/secret",
        "trigger_id": "1.2.secret",
        "actions": [{**button, "block_id": "b", "action_ts": "1700000100.000200"}],
    }
