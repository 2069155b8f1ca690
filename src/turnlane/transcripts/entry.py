"""What stands in a transcript, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from turnlane.model.usage import Usage
from turnlane.model.value import value

EntryKind = Literal["user", "assistant", "thinking", "tool_use", "tool_result", "compact", "summary", "meta", "error"]
"""Only `user` and `assistant` were said by somebody. `summary`: what is left of a conversation after `compact`; `meta`:
what the program says in the person's place; `error`: what it says in the model's."""


@value
class Entry:
    """One block of one line. A line holds several, known apart by their number."""

    session: str
    uuid: str
    block: int
    parent: str | None
    """Of the line. After a compaction, the one that came before in fact."""
    at: int
    kind: EntryKind
    text: str
    """Shortened, if it is very long."""
    tool: str | None
    tool_id: str | None
    """The same for a use and its result."""
    message_id: str | None
    model: str | None
    agent: str | None
    """The sub-agent it belongs to; None: the conversation itself."""
    is_error: bool
    prompt_id: str | None
    cwd: str | None
    branch: str | None
    version: str | None


@value
class MessageUsage:
    """What one message of the model took. Each of its lines says it; the last one knows best."""

    message_id: str
    session: str
    at: int
    model: str
    usage: Usage


@value
class Counts:
    """How reading went, line by line."""

    lines: int = 0
    bad: int = 0
    """Torn, binary, or no JSON object."""
    unknown: int = 0
    """Of a type that we do not know."""
    too_long: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.lines + other.lines,
            self.bad + other.bad,
            self.unknown + other.unknown,
            self.too_long + other.too_long,
            self.bytes + other.bytes,
        )


@value
class FileState:
    """How far a file was read."""

    offset: int
    mark: str
    """Of the bytes at its beginning and before the offset: if they are others, so is the file."""
    at: int
    """The time of the last line that had one."""
    counts: Counts = Counts()


@value
class Piece:
    """Some lines of a file, to be stored together with how far it was read thereby."""

    path: str
    before: FileState | None
    after: FileState
    entries: Sequence[Entry]
    usages: Sequence[MessageUsage]
    counts: Counts


@value
class Added:
    """What was new in a piece."""

    entries: int
    usage: Mapping[str, Usage]
    """By model. What was counted before is not in it, whichever file it came from."""
