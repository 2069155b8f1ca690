"""Lines as Claude Code writes them."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from turnlane.transcripts import Transcripts
from turnlane.transcripts.entry import Entry

SESSION = "5d7c1f1e-0000-4000-8000-000000000001"
RECORDED = Path(__file__).parent / "recorded"
HOUR_MS = 3_600_000
FIRST_AT = 1_794_700_800_000
"""2026-11-15T00:00:00Z."""

_numbers = count(1)


def said(text: object, **more: Any) -> bytes:
    """By the person."""
    return line("user", {"role": "user", "content": text}, **more)


def answered(*blocks: dict[str, Any], id: str | None = None, output: int = 17, **more: Any) -> bytes:
    message = {
        "id": id or f"msg_{next(_numbers):020}",
        "role": "assistant",
        "model": more.pop("model", "claude-opus-5-5"),
        "content": list(blocks),
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 30,
            "output_tokens": output,
        },
    }
    return line("assistant", message, **more)


def text(of: str) -> dict[str, Any]:
    return {"type": "text", "text": of}


def thinking(of: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": of, "signature": "c2ln"}


def tool_use(name: str, id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def tool_result(id: str, content: object, *, is_error: bool = False) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}]


def line(type: str, message: object = None, *, hour: float = 0, **more: Any) -> bytes:
    minutes = round(hour * 60)
    fields = {
        "parentUuid": None,
        "isSidechain": False,
        "type": type,
        "message": message,
        "uuid": f"00000000-0000-4000-8000-{next(_numbers):012}",
        "timestamp": f"2026-11-15T{minutes // 60:02}:{minutes % 60:02}:00.000Z",
        "cwd": "/home/user/proj",
        "sessionId": SESSION,
        "version": "2.1.325",
        "gitBranch": "main",
    }
    return json.dumps({**fields, **more}).encode() + b"\n"


def write(path: Path, data: bytes) -> int:
    """Anew. Returns how many bytes that are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_bytes().splitlines()]


async def all_entries(store: Transcripts, session: str = SESSION) -> list[Entry]:
    found, after = await store.entries(session, limit=7)
    while after is not None:
        more, after = await store.entries(session, after=after, limit=7)
        found += more
    return found


async def texts(store: Transcripts, session: str = SESSION) -> list[str]:
    return [entry.text for entry in await all_entries(store, session)]
