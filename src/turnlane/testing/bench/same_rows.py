"""The limit that no disk can move: the rows of a finished run, written again in the same groups without an engine."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from turnlane.backends.sql.codec import NOTHING
from turnlane.backends.sqlite import schema
from turnlane.model.event import event_of
from turnlane.model.lane import Kind
from turnlane.testing.bench.ground import open_file

Row = tuple[Any, ...]
Group = Mapping[str, list[Row]]
"""The rows of one transaction, by the statement that writes them."""

PLACE = f"nullif(?, {NOTHING})"
"""As cheap as the engine binds nothing."""
TABLES = ("lane", "message", "origin", "turn", "session", "delivery", "journal")
STEADY = ("id", "kind", "key", "policy", "failures", "retry_at", "paused", "parked")
"""Of a lane: what an ordinary message does not change, and the engine does not write again."""
SETTLED = ("state", "settled_at", "attempt", "epoch", "receipt", "cause")


def seconds_without_an_engine(finished: Path, copy: Path) -> float:
    """How long it takes to write what is in `finished`: same schema, same rows, same transactions, nothing decided."""
    with closing(open_file(finished)) as connection:
        groups = [{statement: _bound(rows) for statement, rows in group.items()} for group in _Run(connection).groups()]
    with closing(open_file(copy)) as connection:
        schema.migrate(connection)
        before = time.perf_counter()
        for group in groups:
            connection.execute("BEGIN IMMEDIATE")
            for statement, rows in group.items():
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
        return time.perf_counter() - before


class _Run:
    """A finished file, read back in the order of its journal, which has one row for each transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._columns = {table: _columns(connection, table) for table in TABLES}
        self._rows = {table: self._read(connection, table) for table in TABLES}
        self._lanes = {(row["kind"], row["key"]): row for row in self._rows["lane"]}
        self._messages = {(row["lane"], row["seq"]): row for row in self._rows["message"]}
        self._origins = {(row["lane"], row["seq"]): row for row in self._rows["origin"]}
        self._turns = {(row["lane"], row["number"]): row for row in self._rows["turn"]}
        self._sessions = {row["lane"]: row for row in self._rows["session"]}
        self._deliveries = {(row["lane"], row["seq"]): row for row in self._rows["delivery"]}
        self._answers = {(row["lane"], row["turn"]): row for row in self._rows["delivery"]}
        self._inserted: set[int] = set()
        self._owners: dict[int, str | None] = {}
        self._pending: Counter[int] = Counter()

    def _read(self, connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
        rows = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - one of TABLES
        return [dict(zip(self._columns[table], row, strict=True)) for row in rows]

    def groups(self) -> Iterator[Group]:
        for entry in self._rows["journal"]:
            group: defaultdict[str, list[Row]] = defaultdict(list)
            touched: dict[int, dict[str, Any]] = {}
            for noted in json.loads(entry["facts"]):
                event = event_of(noted, entry["at"])
                for lane in self._happen(group, event.name, event.conversation, event.facts):
                    touched[lane["id"]] = lane
            self._write_lanes(group, touched.values(), entry["at"])
            group[self._insert("journal")].append(tuple(entry.values()))
            yield group

    def _happen(
        self, group: defaultdict[str, list[Row]], name: str, conversation: str | None, facts: Mapping[str, Any]
    ) -> Iterable[dict[str, Any]]:
        """Add what the event wrote. Returns the lanes that it changed."""
        noun = name.partition(".")[0]
        if noun not in {"message", "turn", "delivery"}:
            return ()
        lane = self._lanes[Kind.OUT if noun == "delivery" else Kind.TURN, conversation]
        match name:
            case "message.accepted":
                self._pending[lane["id"]] += 1
                group[self._insert("origin")].append(tuple(self._origins[lane["id"], facts["seq"]].values()))
                group[self._insert("message")].append(tuple(self._messages[lane["id"], facts["seq"]].values()))
            case "turn.started" | "delivery.started":
                self._owners[lane["id"]] = facts["worker"]
            case "turn.answered":
                self._owners[lane["id"]] = None
                return lane, self._answer(group, lane, facts["turn"])
            case "delivery.sent":
                self._owners[lane["id"]] = None
                self._pending[lane["id"]] -= 1
                delivery = self._deliveries[lane["id"], facts["seq"]]
                settled = tuple(delivery[column] for column in SETTLED)
                group[self._update("delivery", SETTLED, ("lane", "seq"))].append((*settled, lane["id"], facts["seq"]))
        return (lane,)

    def _answer(self, group: defaultdict[str, list[Row]], lane: dict[str, Any], turn: int) -> dict[str, Any]:
        out = self._lanes[Kind.OUT, lane["key"]]
        row = self._turns[lane["id"], turn]
        self._pending[lane["id"]] -= row["last"] - row["first"] + 1
        self._pending[out["id"]] += 1
        group[self._insert("turn")].append(tuple(row.values()))
        group[self._insert("session", upsert=True)].append(tuple(self._sessions[lane["id"]].values()))
        queued = self._answers[out["id"], turn] | {"state": "queued", "settled_at": None, "receipt": None, "attempt": 0}
        group[self._insert("delivery")].append(tuple(queued.values()))
        return out

    def _write_lanes(self, group: defaultdict[str, list[Row]], lanes: Iterable[dict[str, Any]], at: int) -> None:
        for lane in lanes:
            row = lane | self._business(lane["id"], at)
            if lane["id"] in self._inserted:
                columns = [column for column in row if column not in STEADY]
                values = (*(row[column] for column in columns), row["id"])
                group[self._update("lane", columns, ("id",))].append(values)
            else:
                self._inserted.add(lane["id"])
                group[self._insert("lane")].append(tuple(row.values()))

    def _business(self, lane: int, at: int) -> dict[str, Any]:
        """The indexed columns, as they were then; the others have no more to write than in the end."""
        owner = self._owners.get(lane)
        is_due = self._pending[lane] > 0 and owner is None
        return {"owner": owner, "claimed_at": at if owner else None, "due_at": at if is_due else None}

    def _insert(self, table: str, *, upsert: bool = False) -> str:
        places = ", ".join(PLACE for _ in self._columns[table])
        return f"INSERT {'OR REPLACE ' if upsert else ''}INTO {table} VALUES ({places})"  # noqa: S608 - one of TABLES

    @staticmethod
    def _update(table: str, columns: Iterable[str], keys: Iterable[str]) -> str:
        changes = ", ".join(f"{column} = {PLACE}" for column in columns)
        return f"UPDATE {table} SET {changes} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"  # noqa: S608 - the schema's own names


def _bound(rows: list[Row]) -> list[Row]:
    return [tuple([NOTHING if value is None else value for value in row]) for row in rows]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
