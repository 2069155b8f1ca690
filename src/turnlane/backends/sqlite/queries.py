"""The statements of queries.sql, by name."""

from __future__ import annotations

from importlib.resources import files


def load(resource: str) -> dict[str, str]:
    """Split a file of statements at its `-- name:` lines; comment lines below a name are dropped."""
    statements: dict[str, str] = {}
    for block in _text(resource).split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.startswith("--")]
        statements[name.strip()] = "\n".join(lines)
    return statements


def _text(resource: str) -> str:
    return files(__package__).joinpath(resource).read_text(encoding="utf-8")


SQL = load("queries.sql")
SCHEMA = _text("schema.sql")
