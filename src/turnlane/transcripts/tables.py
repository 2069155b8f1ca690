"""What the two databases must offer, and the statements that both understand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Protocol

from turnlane.model.value import value
from turnlane.transcripts.words import Term

Row = Sequence[Any]

ENTRY_COLUMNS = (
    "session, uuid, block, parent, at, kind, text, tool, tool_id, message_id, model, agent, is_error, prompt_id, "
    "cwd, branch, version"
)


@value
class Match:
    """How entries are found by words."""

    source: str
    """A table that offers entries as `e`."""
    condition: str
    best: str
    """By what they are ordered."""
    expression: str | None
    """The database's own, as parameter $10."""


class Tables(Protocol):
    """A database, used by one thread."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def rows(self, statement: str, parameters: Row = ()) -> Sequence[Row]: ...

    def many(self, statement: str, rows: Iterable[Row]) -> None: ...

    def writing(self) -> AbstractContextManager[None]:
        """One transaction, while which nobody else writes."""

    def explained(self) -> AbstractContextManager[None]:
        """Its errors become those that callers know."""

    def translated(self, statement: str) -> str:
        """In its own dialect."""

    def insert_entries(self, rows: Sequence[Row]) -> None:
        """New ones, as in ENTRY_COLUMNS, that can be found by their words from now on."""

    def match(self, terms: Sequence[Term]) -> Match: ...


def text_of(resource: str) -> str:
    return files("turnlane.transcripts").joinpath(resource).read_text("utf-8")


def load(resource: str) -> dict[str, str]:
    statements = {}
    for part in text_of(resource).split("-- name: ")[1:]:
        name, _, text = part.partition("\n")
        statements[name.strip()] = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return statements


SQL = load("queries.sql")
