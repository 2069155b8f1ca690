"""What the tables of a database hold, for whoever copies all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from turnlane.backends.copying import CONVERSATIONS, JOURNAL, OTHERS, TABLES, Piece, Row, Whole
from turnlane.backends.sql import codec
from turnlane.backends.sql.codec import NOTHING, Policies, StoredLane, to_text
from turnlane.backends.sql.database import Connection
from turnlane.model.lane import OUT, TURN, Lane
from turnlane.model.message import Message, channel_of

PAGE_ROWS = 200
"""A row may hold a long text, and a page is held in memory."""
BLOCK_ROWS = 1000
"""Conversations are read together that have about so many messages and deliveries; a longer one alone."""
LANE_NUMBERS = 4
"""Of one conversation, side by side: its kinds of lanes, and one that stays free."""

COLUMNS = {
    "lane": "id, kind, key, next_seq, done_seq, claim_seq, number, attempt, first_at, ready_at, due_at, owner, epoch, "
    "claimed_at, policy, failures, retry_at, paused, parked, queue, more",
    "message": "lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role, outcome",
    "origin": "channel, origin_id, lane, seq, at",
    "turn": "lane, number, first, last, outcome, attempt, epoch, worker, agent, started_at, ended_at, cause, session, "
    "input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost",
    "attempt": "lane, epoch, number, attempt, worker, result, at, cause",
    "delivery": "lane, seq, id, kind, turn, part, parts, text, in_reply_to, queued_at, state, settled_at, attempt, "
    "epoch, receipt, cause, options",
    "question": "lane, turn, number, text, options, asked_at, expires_at, answer, answered_by, answered_at",
    "session": "lane, agent, handle, turns, input_tokens, output_tokens, cached_tokens, reasoning_tokens, updated_at, "
    "shared, machine, cost",
    "journal": "id, at, facts",
    **{table: ", ".join(columns) for table, columns in OTHERS.items()},
}
"""As codec.py has them in its rows."""

_LANES = f"SELECT {COLUMNS['lane']}, min(id) OVER (PARTITION BY key) AS began FROM lane ORDER BY began, kind"
_ORIGINS = (
    "SELECT l.key, o.origin_id, o.seq, o.at FROM origin AS o "
    "JOIN (SELECT id, key, min(id) OVER (PARTITION BY key) AS began FROM lane) AS l ON l.id = o.lane ORDER BY l.began"
)

_facts = msgspec.json.Decoder(list[list[Any]]).decode
_lane_values = attrgetter(*[each.name for each in fields(Lane)])


class Tables(Protocol):
    """The tables themselves, as each database has them."""

    name: str

    @property
    def connection(self) -> Connection: ...
    @property
    def sql(self) -> Mapping[str, str]: ...
    def begin(self, *, writes: bool) -> None: ...
    def commit(self) -> None: ...
    def pages(self, name: str, statement: str) -> Iterator[Sequence[Row]]:
        """What the statement finds, little by little; another may be under way under another name."""

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...
    def find(self, statement: str) -> Sequence[Row]: ...
    def mark(self, *, unfinished: bool) -> None:
        """The version is negative as long as it is unfinished."""

    def go_on_counting(self) -> None:
        """Let all numbers that are given out from now on be greater than those that were written."""

    def close(self) -> None: ...


class SqlContents:
    def __init__(self, tables: Tables) -> None:
        self.name = tables.name
        self._tables = tables
        self._policies = Policies(tables.connection, tables.sql)
        self._last_id = 0
        self.begin, self.commit, self.close = tables.begin, tables.commit, tables.close

    def _number(self, statement: str) -> int:
        found: int = self._tables.find(statement)[0][0]
        return found

    def worked_on_until(self, now: int) -> int:
        return self._number(f"SELECT coalesce(max(alive_until), 0) FROM worker WHERE live AND alive_until >= {now}")

    def is_empty(self) -> bool:
        return not any(self._tables.find(f"SELECT 1 FROM {table} LIMIT 1") for table in TABLES)

    def size(self) -> int:
        return sum(self._number(f"SELECT count(*) FROM {table}") for table in TABLES)

    def last_fact(self) -> int:
        return self._number("SELECT coalesce(max(id), 0) FROM journal")

    # Reading

    def read(self) -> Iterator[Piece]:
        for rows in self._tables.pages(JOURNAL, f"SELECT {COLUMNS[JOURNAL]} FROM journal ORDER BY id"):
            yield JOURNAL, [(id_, at, _facts(facts)) for id_, at, facts in rows]
        origins = Origins(self._tables)
        for block in self._blocks():
            yield CONVERSATIONS, self._conversations(block, origins)
        for table in OTHERS:
            for rows in self._tables.pages(table, f"SELECT {COLUMNS[table]} FROM {table}"):
                yield table, [(row[0], bool(row[1]), *row[2:]) if table == "worker" else tuple(row) for row in rows]

    def _blocks(self) -> Iterator[Sequence[StoredLane]]:
        """All lanes of some conversations, those that began first at first."""
        rows = (row for page in self._tables.pages("lanes", _LANES) for row in page)
        block: list[StoredLane] = []
        for _, of_one in groupby(rows, key=lambda row: row[2]):
            block += [codec.lane_from(row, self._policies) for row in of_one]
            if len(block) >= PAGE_ROWS or sum(lane.next_seq for lane in block) >= BLOCK_ROWS:
                yield block
                block = []
        if block:
            yield block

    def _conversations(self, block: Sequence[StoredLane], origins: Origins) -> Sequence[Whole]:
        found = {lane.key: Whole(lane.key) for lane in block}
        lanes = {lane.id: lane for lane in block}
        for whole in found.values():
            whole.origins = origins.of(whole.key)
        for lane in block:
            found[lane.key].lanes.append(Lane(*_lane_values(lane)))
        for of, row in self._rows("message", lanes):
            whole, message = found[of.key], codec.message_from(row[:-1], of.key)
            whole.messages.append(message)
            if row[-1] is not None:
                whole.outcomes[message.seq] = row[-1]
        for of, row in self._rows("turn", lanes):
            found[of.key].turns.append(codec.turn_from(row, of.key))
        for of, row in self._rows("attempt", lanes):
            found[of.key].attempts.append(codec.attempt_from(row, of.kind, of.key))
        for of, row in self._rows("delivery", lanes):
            settled: Any = tuple(row[10:16])
            found[of.key].deliveries.append((codec.delivery_from(row, of.key), settled))
        for of, row in self._rows("question", lanes):
            found[of.key].questions.append(codec.question_from(row, of.key))
        for of, row in self._rows("session", lanes):
            found[of.key].sessions[row[1]] = (codec.session_from(row), bool(row[9]))
        return list(found.values())

    def _rows(self, table: str, lanes: Mapping[int, StoredLane]) -> Iterator[tuple[Lane, Row]]:
        """Those that belong to these lanes, in the order of their keys."""
        first, second = COLUMNS[table].split(", ")[:2]
        these = ", ".join(map(str, lanes))
        chosen = f"SELECT {COLUMNS[table]} FROM {table} WHERE {first} IN ({these}) ORDER BY {first}, {second}"
        return ((lanes[row[0]], row) for row in self._tables.find(chosen))

    # Writing

    def write(self, piece: Piece) -> None:
        what, values = piece
        if what == CONVERSATIONS:
            for table, rows in self._rows_of(values).items():
                self._insert(table, rows)
        elif what == JOURNAL:
            self._insert(JOURNAL, [(id_, at, to_text(facts)) for id_, at, facts in values])
        else:
            self._insert(what, values)

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            self._tables.insert(table, COLUMNS[table], rows)

    def _rows_of(self, conversations: Sequence[Whole]) -> Mapping[str, Sequence[Row]]:
        rows: dict[str, list[Row]] = {table: [] for table in COLUMNS}
        for whole in conversations:
            self._last_id += LANE_NUMBERS
            lane, out = self._last_id + TURN, self._last_id + OUT
            channel, outcomes = channel_of(whole.key), whole.outcomes
            rows["lane"] += [self._lane_row(each) for each in whole.lanes]
            rows["message"] += [_message_row(lane, each, outcomes.get(each.seq)) for each in whole.messages]
            rows["origin"] += [(channel, id_, lane, *place) for id_, place in whole.origins.items()]
            rows["turn"] += [_filled(codec.turn_row(lane, each)) for each in whole.turns]
            rows["attempt"] += [codec.attempt_row(self._last_id + each.kind, each) for each in whole.attempts]
            for delivery, settled in whole.deliveries:
                options = to_text(delivery.options) if delivery.options else None
                rows["delivery"].append((*codec.delivery_row(out, delivery), *settled, options))
            for asked in whole.questions:
                answer = (None, None) if asked.answer is None else (asked.answer.text, asked.answer.by)
                rows["question"].append((*codec.question_row(lane, asked), *answer, asked.answered_at))
            rows["session"] += [
                codec.new_session_row(lane, agent, session, shared=shared)
                for agent, (session, shared) in whole.sessions.items()
            ]
        return rows

    def _lane_row(self, lane: Lane) -> Row:
        stored = StoredLane(*_lane_values(lane))
        stored.id = self._last_id + lane.kind
        return _filled(codec.new_lane_row(stored, self._policies))

    def mark_unfinished(self, last_fact: int) -> None:
        self._tables.mark(unfinished=True)

    def finish(self, copied: Row) -> None:
        self.write((JOURNAL, [copied]))
        self._tables.go_on_counting()
        self._tables.mark(unfinished=False)


class Origins:
    """Ids that are known again, asked for conversation by conversation in the order in which these began."""

    def __init__(self, tables: Tables) -> None:
        self._rows = (row for page in tables.pages("origins", _ORIGINS) for row in page)
        self._next = next(self._rows, None)

    def of(self, key: str) -> dict[str, tuple[int, int]]:
        found = {}
        while self._next is not None and self._next[0] == key:
            _, origin_id, seq, at = self._next
            found[origin_id] = (seq, at)
            self._next = next(self._rows, None)
        return found


def _message_row(lane: int, message: Message, outcome: str | None) -> Row:
    row = codec.message_row(lane, message)
    role = None if message.role == "person" else message.role
    return (*row[:5], message.sent_at, row[6], None if row[7] is NOTHING else row[7], role, outcome)


def _filled(row: Row) -> Row:
    return [None if value is NOTHING else value for value in row]
