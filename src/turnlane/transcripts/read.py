"""Lines of a transcript, whatever they hold, become entries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from turnlane.model.usage import Usage
from turnlane.transcripts.entry import Counts, Entry, EntryKind, MessageUsage

TEXT_CHARACTERS_MAX = 100_000
"""Of what was said or thought."""
TOOL_CHARACTERS_MAX = 4_000
"""Of what a tool was given or has answered: most of a transcript, and seldom looked for."""
NAME_CHARACTERS_MAX = 1_000
TOKENS_MAX = 10**12
"""A count beyond it is nonsense, and would not fit the ledger."""
TIME_MAX = 253_402_300_800_000
"""The year 10000."""
SYNTHETIC = "<synthetic>"
ASIDE = "sidechain"
"""The agent of lines that say no more than that they are some sub-agent's."""
SAID = frozenset({"user", "assistant", "system", "summary"})

OF_NO_ACCOUNT = frozenset(
    {
        "ai-title",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attachment",
        "cost-state",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "progress",
        "queue-operation",
        "tools-used",
    }
)
"""Types of lines that we know, and pass over."""
BY_THE_PROGRAM = ("<task-notification>", "<local-command-", "<system-reminder>", "Caveat: The messages below were")
"""How texts begin that the program puts into a person's mouth, marked or not."""

_COMMAND = re.compile(r"<command-name>(.*?)</command-name>.*?(?:<command-args>(.*?)</command-args>|$)", re.DOTALL)

Fields = Mapping[str, Any]


class Reading:
    """Takes lines of one file in their order, and gathers what they say. Nothing in a line makes it raise."""

    def __init__(self, *, session: str | None, fallback: str, agent: str | None = None, at: int = 0) -> None:
        """Without `session` each line says whose it is, and one that does not belongs to `fallback`."""
        self._session = session
        self._last_session = fallback
        self._agent = agent
        self._at = at
        self.entries: list[Entry] = []
        self.usages: list[MessageUsage] = []
        self.counts = Counts()

    @property
    def at(self) -> int:
        return self._at

    def read(self, line: bytes) -> None:
        fields = decoded(line)
        if fields is None:
            is_bad = bool(line.strip(b"\0 \t\r\n"))
            self.counts += Counts(lines=1, bad=int(is_bad), bytes=len(line))
            return
        kind = _text(fields.get("type"))
        self.counts += Counts(lines=1, unknown=int(kind not in SAID | OF_NO_ACCOUNT), bytes=len(line))
        if kind in SAID:
            self._take(fields, line)

    def skip(self, size: int) -> None:
        """A line of so many bytes was too long to be looked at."""
        self.counts += Counts(lines=1, too_long=1, bytes=size)

    def _take(self, fields: Fields, line: bytes) -> None:
        self._at = _time(fields.get("timestamp")) or self._at
        self._last_session = self._session or _name(fields.get("sessionId")) or self._last_session
        message = _fields(fields.get("message"))
        uuid = _name(fields.get("uuid")) or blake2b(line, digest_size=16).hexdigest()
        self.entries += self._entries(fields, message, uuid)
        usage = self._usage(fields, message, uuid)
        if usage is not None:
            self.usages.append(usage)

    def _entries(self, fields: Fields, message: Fields, uuid: str) -> Iterator[Entry]:
        agent = self._agent or _name(fields.get("agentId")) or (ASIDE if fields.get("isSidechain") is True else None)
        parent = _name(fields.get("parentUuid")) or _name(fields.get("logicalParentUuid"))
        message_id, model = _name(message.get("id")), _name(message.get("model"))
        where = (_name(fields.get("cwd")), _name(fields.get("gitBranch")), _name(fields.get("version")))
        for number, (kind, text, tool, tool_id, is_error) in _blocks(fields, message):
            yield Entry(
                self._last_session,
                uuid,
                number,
                parent,
                self._at,
                kind,
                text,
                tool,
                tool_id,
                message_id,
                None if model == SYNTHETIC else model,
                agent,
                is_error,
                _name(fields.get("promptId")),
                *where,
            )

    def _usage(self, fields: Fields, message: Fields, uuid: str) -> MessageUsage | None:
        counted, model = message.get("usage"), _name(message.get("model"))
        if fields.get("type") != "assistant" or not isinstance(counted, dict) or model in (None, SYNTHETIC):
            return None
        id_ = _name(message.get("id")) or uuid
        return MessageUsage(id_, self._last_session, self._at, model or "", usage_of(counted))


def decoded(line: bytes) -> Fields | None:
    """The object that stands in the line; None if none does. Zeros around it are what a crash leaves of a file."""
    line = line.strip(b"\0 \t\r\n")
    if not line.startswith(b"{"):
        return None
    found: object
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Half a character, or a number that is none: the rest of the line is as good as any.
        try:
            found = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    except RecursionError:
        return None
    return found if isinstance(found, dict) else None


def usage_of(counted: Fields) -> Usage:
    """What was read from or written to the cache is not in the API's `input_tokens`, but in ours."""
    read = _count(counted.get("cache_read_input_tokens"))
    plain = _count(counted.get("input_tokens")) + _count(counted.get("cache_creation_input_tokens"))
    thinking = _count(_fields(counted.get("output_tokens_details")).get("thinking_tokens"))
    return Usage(plain + read, _count(counted.get("output_tokens")), read, thinking)


_Block = tuple[EntryKind, str, str | None, str | None, bool]
"""Kind, text, tool, its id, whether it failed."""


def _blocks(fields: Fields, message: Fields) -> Iterator[tuple[int, _Block]]:
    match fields.get("type"):
        case "system":
            yield from _said_by_system(fields)
        case "summary":
            yield 0, ("summary", shortened(_text(fields.get("summary")), TEXT_CHARACTERS_MAX), None, None, False)
        case said_by:
            content = message.get("content")
            blocks = content if isinstance(content, list) else [content]
            for number, block in enumerate(blocks):
                found = _block({"type": "text", "text": block} if isinstance(block, str) else _fields(block))
                if found is not None:
                    yield number, _told_apart(found, fields, message, is_user=said_by == "user")


def _said_by_system(fields: Fields) -> Iterator[tuple[int, _Block]]:
    match fields.get("subtype"):
        case "compact_boundary":
            yield 0, ("compact", shortened(_text(fields.get("content")), TEXT_CHARACTERS_MAX), None, None, False)
        case "api_error":
            error = _fields(fields.get("error"))
            said = _text(error.get("formatted")) or _text(error.get("message"))
            yield 0, ("error", shortened(said, TOOL_CHARACTERS_MAX), None, None, True)


def _block(block: Fields) -> _Block | None:
    """As if the model had said it; what is neither said nor done is None."""
    kind = _text(block.get("type"))
    if kind == "text":
        text = shortened(_text(block.get("text")), TEXT_CHARACTERS_MAX)
        return ("assistant", text, None, None, False) if text.strip() else None
    if kind == "thinking":
        text = shortened(_text(block.get("thinking")), TEXT_CHARACTERS_MAX)
        return ("thinking", text, None, None, False) if text.strip() else None
    if kind.endswith("tool_use"):
        given = shortened(_given(block.get("input")), TOOL_CHARACTERS_MAX)
        return "tool_use", given, _name(block.get("name")), _name(block.get("id")), False
    if kind.endswith("tool_result"):
        answered = shortened(_answered(block.get("content")), TOOL_CHARACTERS_MAX)
        return "tool_result", answered, None, _name(block.get("tool_use_id")), block.get("is_error") is True
    return ("assistant", f"[{kind}]", None, None, False) if kind in {"image", "document"} else None


def _told_apart(block: _Block, fields: Fields, message: Fields, *, is_user: bool) -> _Block:
    """By whom it was really said."""
    kind, text, tool, tool_id, is_error = block
    if kind != "assistant":
        return block
    if not is_user:
        is_synthetic = fields.get("isApiErrorMessage") is True or message.get("model") == SYNTHETIC
        return ("error", text, tool, tool_id, True) if is_synthetic else block
    if fields.get("isCompactSummary") is True:
        return "summary", text, tool, tool_id, is_error
    is_program = fields.get("isMeta") is True or text.startswith(BY_THE_PROGRAM)
    return "meta" if is_program else "user", _as_typed(text), tool, tool_id, is_error


def _as_typed(text: str) -> str:
    """A command as the person has typed it: `/compact`."""
    command = _COMMAND.search(text) if text.startswith("<command-") else None
    return text if command is None else f"{command[1]} {command[2] or ''}".strip()


def _given(input_: object) -> str:
    """Names and values in lines, so that people can read it and words in it are found."""
    if isinstance(input_, dict):
        return "\n".join(f"{name}: {_plain(value)}" for name, value in input_.items())
    return "" if input_ is None else _plain(input_)


def _plain(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:  # nested more deeply than anybody reads
        return "…"


def _answered(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(
            _text(block.get("text")) or f"[{_text(block.get('type'))}]" for block in content if isinstance(block, dict)
        )
    return "" if content is None else _plain(content)


def shortened(text: str, characters_max: int) -> str:
    """With nothing in it that a database refuses."""
    left_out = len(text) - characters_max
    if left_out > 0:
        text = f"{text[:characters_max]}… [{left_out:,} more characters]"
    text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _fields(found: object) -> Fields:
    return found if isinstance(found, dict) else {}


def _name(found: object) -> str | None:
    if not isinstance(found, str) or not found or len(found) > NAME_CHARACTERS_MAX:
        return None
    return shortened(found, NAME_CHARACTERS_MAX)


def _count(found: object) -> int:
    return min(max(found, 0), TOKENS_MAX) if isinstance(found, int) else 0


def _time(found: object) -> int | None:
    try:
        moment = datetime.fromisoformat(found) if isinstance(found, str) else None
        if moment is None:
            return None
        at = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None
    return at if 0 < at < TIME_MAX else None
