"""What Claude Code has written down of a session, read to learn how far a turn came that ran before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnlane.agents.claude_code.lines import TokenCounts
from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.value import value

UNFINISHED = {None, "tool_use", "pause_turn"}
"""Why the model stopped where more was to come."""
SYNTHETIC = "<synthetic>"
CUT_SHORT = ".cut-short"


class _Message(Struct):
    id: str = ""
    model: str = ""
    content: str | list[dict[str, Any]] = ""
    stop_reason: str | None = None
    usage: TokenCounts | None = None


class _Entry(Struct, rename={"is_aside": "isSidechain", "is_error": "isApiErrorMessage"}):
    type: str = ""
    uuid: str = ""
    is_aside: bool = False
    is_error: bool = False
    timestamp: str = ""
    message: _Message | None = None


_ENTRY = msgspec.json.Decoder(_Entry)


@value
class Answer:
    """What the model answered, and what that took."""

    texts: Sequence[str]
    usage: Usage
    model: str | None


@value
class _Said:
    """A part of the conversation itself: one block of a message, or what a person or a tool said."""

    uuid: str
    message: _Message
    timestamp: str
    is_answer: bool
    """The model said it, rather than the program in its place."""
    is_aside: bool
    """By or to a subagent."""

    @property
    def is_final(self) -> bool:
        return self.is_answer and self.message.stop_reason not in UNFINISHED

    @property
    def text(self) -> str:
        content = self.message.content
        if isinstance(content, str):
            return content
        return "".join(block.get("text", "") for block in content if block.get("type") == "text")


class Transcript:
    """A session as it stands in its file. Lines that cannot be read, or are of no account, are passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = path.read_bytes()
        self._said = [said for said in _read(self._bytes) if not said.is_aside]

    def knows(self, uuid: str) -> bool:
        """The program runs no message twice under one id, also one that came to nothing."""
        return uuid.encode() in self._bytes

    def answer_to(self, uuid: str) -> Answer | None:
        """What was answered to this message, if the answer is whole."""
        since = self._since(uuid)
        texts: dict[str, str] = {}
        for said in since:
            if said.is_final:
                texts[said.message.id] = texts.get(said.message.id, "") + said.text
        if not texts:
            return None
        model = [said.message.model for said in since if said.is_answer][-1]
        return Answer(tuple(texts.values()), _spent([*since, *self._said_by_subagents(since[0].timestamp)]), model)

    @property
    def cut_short_after(self) -> str | None:
        """The end of the last whole answer, if a turn stands behind it that came to nothing."""
        finals = [number for number, said in enumerate(self._said) if said.is_final]
        if not finals or finals[-1] == len(self._said) - 1:
            return None
        return self._said[finals[-1]].uuid

    def set_aside(self) -> None:
        """Let the session begin once more under its id. The file stays, under another name."""
        self._path.replace(self._path.with_name(self._path.name + CUT_SHORT))

    def _said_by_subagents(self, since: str) -> Iterator[_Said]:
        """They keep files of their own. It was the session's last turn, so all that they said since was for it."""
        for path in self._path.with_suffix("").glob("subagents/agent-*.jsonl"):
            yield from (said for said in _read(path.read_bytes()) if said.timestamp >= since)

    def _since(self, uuid: str) -> Sequence[_Said]:
        places = [number for number, said in enumerate(self._said) if said.uuid == uuid]
        return self._said[places[-1] + 1 :] if places else ()


def transcript_of(session: str, *, config: Path, folder: Path) -> Transcript | None:
    """Where the program keeps it if it runs in this folder; else anywhere, as it finds a session from any folder, too.

    In this order, as there may be thousands of them, one for each conversation.
    """
    projects, name = config / "projects", f"{session}.jsonl"
    here = projects / re.sub(r"[^A-Za-z0-9]", "-", str(folder)) / name
    for path in chain([here] if here.is_file() else [], projects.glob(f"*/{name}")):
        if path.stat().st_size:
            return Transcript(path)
    return None


def _spent(all_said: Sequence[_Said]) -> Usage:
    """One message is several lines, each with the usage of the whole."""
    counted = {said.message.id: said.message.usage for said in all_said if said.is_answer}
    return sum((counts.usage for counts in counted.values() if counts), NO_USAGE)


def _read(data: bytes) -> Iterator[_Said]:
    for line in data.splitlines():
        try:
            entry = _ENTRY.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # torn by a crash, or of a form that we do not know
        if entry.type in {"user", "assistant"} and entry.message is not None:
            is_answer = entry.type == "assistant" and not entry.is_error and entry.message.model != SYNTHETIC
            yield _Said(entry.uuid, entry.message, entry.timestamp, is_answer, entry.is_aside)
