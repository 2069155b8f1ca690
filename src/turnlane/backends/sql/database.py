"""The little that is asked of a database's driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Protocol

Row = Sequence[Any]


class Results(Protocol):
    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """Used by one thread at a time."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Results: ...
    def executemany(self, statement: str, rows: Iterable[Row], /) -> object: ...


def load(package: str, resource: str) -> dict[str, str]:
    """Split a file of statements at its `-- name:` lines; comment lines below a name are dropped."""
    statements: dict[str, str] = {}
    for block in text_of(package, resource).split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.startswith("--")]
        statements[name.strip()] = "\n".join(lines)
    return statements


def text_of(package: str, resource: str) -> str:
    return files(package).joinpath(resource).read_text(encoding="utf-8")
