"""One statement out of many parts: all of it happens, or nothing does, and what it rests on is checked on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from turnlane.backends.postgres.queries import SQL
from turnlane.backends.sql.codec import NOTHING, to_text
from turnlane.backends.sql.database import Row

CHECKED = frozenset(
    {"move_lane", "set_lane", "renew_worker", "check_lane", "check_worker", "check_holds", "check_journal"}
)
"""Parts that must find each of their rows. Otherwise somebody else has changed one."""
LATE = {"$last": "xid", "$newest": "bigint"}
"""Parameters that are known only once the transaction before has ended: what wrote it, and the newest fact since."""
READS = frozenset({"check_worker", "check_holds", "check_journal"})

NEWEST_FACT = SQL["view_version"]
"""Before this one's."""
ALONE = "pg_snapshot_xmin(pg_current_snapshot()) = pg_snapshot_xmax(pg_current_snapshot())"
"""No other transaction was open as this one began."""

Parts = Mapping[str, Sequence[Row]]
"""The rows of each part."""


def columns(rows: Sequence[Row]) -> list[str]:
    """As a part takes them, once its parameters are `texts`."""
    return [_array([None if value is NOTHING else value for value in column]) for column in zip(*rows, strict=True)]


def texts(statement: str) -> str:
    """The same with its arrays given as text, which costs a fifth of what the driver needs for them."""
    return re.sub(r"(\$\d+)(::\w+\[\])", r"\1::text\2", statement)


def _array(values: Sequence[Any]) -> str:
    """As Postgres reads it. JSON has other brackets, and some escapes of its own for what needs none here."""
    text = to_text(values)
    if "\\" not in text:
        return f"{{{text[1:-1]}}}"
    return f"{{{','.join('null' if value is None else _quoted(value) for value in values)}}}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def composed(parts: Parts) -> tuple[str, list[Any]]:
    """The statement and its parameters but for the late ones.

    It answers: the version of what it wrote, its fact, `NEWEST_FACT`, `ALONE`.
    """
    names = tuple(parts)
    parameters: list[Any] = [column for rows in parts.values() for column in columns(rows)]
    widths = tuple(len(rows[0]) for rows in parts.values())
    parameters.append(sum(len(rows) for name, rows in parts.items() if name in CHECKED))
    return _text(names, widths), parameters


@cache
def _text(names: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """A division by zero undoes everything, and is told from any other error by its kind."""
    taken, parts = 0, []
    for name, width in zip(names, widths, strict=True):
        parts.append(f"{name} AS ({_numbered(texts(SQL[name]), taken)})")
        taken += width
    found = " + ".join(_count(name) for name in names if name in CHECKED) or "0"
    version = "NULL::xid" if READS.issuperset(names) else "pg_current_xact_id()::xid"
    fact = "(SELECT id FROM insert_journal)" if "insert_journal" in names else "NULL::bigint"
    told = _count("notify") if "notify" in names else "0"
    as_believed = f"1 / (CASE WHEN {found} = ${taken + 1}::bigint THEN 1 ELSE 0 END)"
    text = f"WITH {', '.join(parts)} SELECT {version}, {fact}, ({NEWEST_FACT}), {ALONE}, {told}, {as_believed}"
    for number, (name, kind) in enumerate(LATE.items(), taken + 2):
        text = f"{text}, {name}".replace(name, f"${number}::{kind}")
    return text


def _count(name: str) -> str:
    return f"(SELECT count(*) FROM {name})"  # noqa: S608 - the name of a part


def _numbered(statement: str, after: int) -> str:
    return re.sub(r"\$(\d+)", lambda number: f"${int(number[1]) + after}", statement)
