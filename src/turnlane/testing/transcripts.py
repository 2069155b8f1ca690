"""Transcripts in the shapes that Claude Code gives them, as many as are wanted: the same seed, the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

MODELS = ("claude-opus-5-5", "claude-sonnet-5", "claude-haiku-5")
TOOLS = ("Bash", "Read", "Edit", "Grep", "Write", "Agent")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
WORDS_KNOWN = 20_000
FILES_PER_PROJECT = 100
SUBAGENT_SHARE = 0.1
"""Of the files: they stand in a folder beside their session's."""


def make_projects(folder: Path, *, files: int, bytes_each: int, seed: int = 1) -> int:
    """Write so many files of about this size on average, some much longer. Returns how many bytes they have."""
    random, written, session = Random(seed), 0, Path()
    for number in range(files):
        project = folder / f"-home-user-project-{number // FILES_PER_PROJECT}"
        is_subagent = number > 0 and random.random() < SUBAGENT_SHARE
        if is_subagent:
            path = session.with_suffix("") / "subagents" / f"agent-{number:08x}.jsonl"
        else:
            path = session = project / f"{_uuid(random)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = min(int(random.lognormvariate(0, 1) * bytes_each / 1.65), 100 * bytes_each)
        written += path.write_bytes(_transcript(random, session.stem, size, number, is_subagent=is_subagent))
    return written


def _transcript(random: Random, session: str, size: int, number: int, *, is_subagent: bool) -> bytes:
    common = {
        "isSidechain": is_subagent,
        "userType": "external",
        "cwd": f"/home/user/project-{number // FILES_PER_PROJECT}",
        "sessionId": session,
        "version": "2.1.325",
        "gitBranch": random.choice(("main", "develop", "fix/colours")),
    }
    at = FIRST + timedelta(minutes=number * 20)
    lines: list[bytes] = []
    length, parent = 0, None
    while length < size or not lines:
        for fields in _turn(random):
            at += timedelta(seconds=random.random() * 20)
            stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            uuid = _uuid(random)
            named = {"parentUuid": parent, "uuid": uuid, "timestamp": stamp}
            lines.append(json.dumps({**named, **common, **fields}, ensure_ascii=False).encode() + b"\n")
            length += len(lines[-1])
            parent = uuid
    return b"".join(lines)


def _turn(random: Random) -> Iterator[dict[str, Any]]:
    """A question, what the program adds to it, some tools, and the answer."""
    prompt = {"promptId": _uuid(random)}
    yield {**prompt, "type": "user", "message": {"role": "user", "content": _prose(random, 30)}}
    yield {"type": "attachment", "attachment": {"type": "environment", "snapshot": {"text": _prose(random, 60)}}}
    for _ in range(random.randrange(6)):
        id_, tool = f"toolu_{random.getrandbits(80):020x}", random.choice(TOOLS)
        use = {"type": "tool_use", "id": id_, "name": tool, "input": {"command": _prose(random, 12)}}
        yield from _message(random, [{"type": "thinking", "thinking": _prose(random, 60), "signature": "x" * 300}, use])
        result = {"type": "tool_result", "tool_use_id": id_, "content": _prose(random, 300), "is_error": False}
        yield {**prompt, "type": "user", "message": {"role": "user", "content": [result]}, "toolUseResult": result}
    yield from _message(random, [{"type": "text", "text": _prose(random, 120)}])
    yield {"type": "last-prompt", "lastPrompt": "and so on"}


def _message(random: Random, blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line for each block, and each repeats what the whole has taken."""
    message = {
        "id": f"msg_{random.getrandbits(80):020x}",
        "role": "assistant",
        "model": random.choice(MODELS),
        "usage": {
            "input_tokens": random.randrange(1_000),
            "cache_creation_input_tokens": random.randrange(5_000),
            "cache_read_input_tokens": random.randrange(50_000),
            "output_tokens": random.randrange(2_000),
        },
    }
    for block in blocks:
        yield {"type": "assistant", "message": {**message, "content": [block]}}


def _prose(random: Random, words: int) -> str:
    """About so many words, the first ones of the language much more often than the others."""
    count = max(1, int(random.expovariate(1 / words)))
    return " ".join(f"word{int(random.paretovariate(0.7)) % WORDS_KNOWN}" for _ in range(count))


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))
