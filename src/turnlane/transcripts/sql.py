"""Transcripts in a database: the same steps in SQLite and in Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar

from turnlane.errors import NotFound
from turnlane.model.usage import NO_USAGE, Usage, date_of
from turnlane.transcripts.entry import Added, Counts, Entry, FileState, MessageUsage, Piece
from turnlane.transcripts.read import BY_THE_PROGRAM, NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, shortened
from turnlane.transcripts.tables import SQL, Row, Tables
from turnlane.transcripts.views import PAGE_ENTRIES, By, Hit, PromptView, Total, TranscriptView, Wanted
from turnlane.transcripts.words import snippet, terms_of

T = TypeVar("T")

PROMPT_CHARACTERS_MAX = 500
"""Of the first one, kept with its session."""
PROMPT_SLACK_MS = 2_000
"""How much later than the hook was called a prompt may be written down, where no id says which one it is."""
NAMELESS = "at "
"""How the ids of prompts begin that had none."""
NAMES: Mapping[By, str] = {
    "project": "coalesce(s.project, '')",
    "day": "CAST(u.at / 86400000 AS bigint)",
    "model": "u.model",
}
IN_PROJECT = (
    "(CAST($1 AS text) IS NULL OR s.project = $1 OR s.project LIKE $2 ESCAPE '\\' OR s.project LIKE $3 ESCAPE '\\')"
)


class SqlTranscripts:
    """See `Transcripts`. The database is used in one thread, for one verb at a time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="turnlane-transcripts")

    async def open(self) -> None:
        await self._do(lambda: None)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._tables.close)
            thread.shutdown(wait=False)

    async def _do(self, work: Callable[[], T]) -> T:
        def explained() -> T:
            with self._tables.explained():
                self._tables.open()
                return work()

        assert self._thread is not None, "the transcripts are closed"
        return await asyncio.get_running_loop().run_in_executor(self._thread, explained)

    async def states(self, paths: Sequence[str]) -> Mapping[str, FileState]:
        return await self._do(lambda: self._states(paths))

    async def add(self, pieces: Sequence[Piece]) -> Sequence[Added | None]:
        def add() -> Sequence[Added | None]:
            with self._tables.writing():
                return [self._add(piece) for piece in pieces]

        return await self._do(add)

    async def sessions(
        self,
        *,
        project: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 100,
    ) -> list[TranscriptView]:
        asked = (*_in_project(project), since, until, limit)
        return await self._do(lambda: self._views(self._rows("sessions", asked, project=IN_PROJECT)))

    async def session(self, beginning: str) -> TranscriptView:
        beginning = _name(beginning) or ""
        found = await self._do(lambda: self._views(self._rows("sessions_beginning", (beginning,))))
        exact = [each for each in found if each.session == beginning]
        if len(exact or found) != 1:
            several = f"; {len(found)} or more begin so, write more of it" if found else ""
            raise NotFound(f"no session {beginning!r}{several}; `turnlane transcripts list` shows them")
        return (exact or found)[0]

    async def entries(
        self, session: str, *, after: tuple[int, int] | None = None, limit: int = PAGE_ENTRIES
    ) -> tuple[list[Entry], tuple[int, int] | None]:
        rows = await self._do(lambda: self._rows("entries", (_name(session), *(after or (-1, -1)), limit)))
        found = [_entry(row) for row in rows]
        return found, (found[-1].at, rows[-1][0]) if len(rows) == limit else None

    async def search(self, wanted: Wanted, *, limit: int = 20) -> list[Hit]:
        terms = terms_of(wanted.words)
        if wanted.words.strip() and not terms:
            return []
        match = self._tables.match(terms)
        filled = {"source": match.source, "matches": match.condition, "best": match.best, "project": IN_PROJECT}
        names = (_name(wanted.tool), wanted.kind, _name(wanted.session))
        filters = (wanted.since, wanted.until, *names, limit, match.expression)
        asked = (*_in_project(wanted.project), *filters)
        rows = await self._do(lambda: self._rows("search", asked, **filled))
        return [Hit(*[*row[:8], snippet(row[8], terms)]) for row in rows]

    async def totals(self, by: By, *, since: int | None = None, until: int | None = None) -> list[Total]:
        return await self._do(lambda: self._totals(by, since, until))

    async def note_prompt(
        self, session: str, prompt_id: str | None, at: int, text: str | None, *, project: str | None = None
    ) -> None:
        names = (_name(session), _name(project))
        id_ = _name(prompt_id) or f"{NAMELESS}{at}"
        said = None if text is None else shortened(text, TEXT_CHARACTERS_MAX)

        def note() -> None:
            with self._tables.writing():
                number = self._rows("save_session", (*names, None, None, at, at, _first(said)))[0][0]
                self._rows("save_prompt", (number, id_, at, said))

        await self._do(note)

    async def fill_prompts(self, session: str) -> int:
        def fill() -> int:
            empty = self._rows("empty_prompts", (session,))
            if not empty:
                return 0
            with self._tables.writing():
                return sum(self._fill(*row) for row in empty)

        return await self._do(fill)

    async def prompts(self, session: str) -> list[PromptView]:
        rows = await self._do(lambda: self._rows("prompts", (session,)))
        return [PromptView(*row) for row in rows]

    # In the thread

    def _rows(self, statement: str, parameters: Row = (), **filled: str) -> Sequence[Row]:
        return self._tables.rows(self._statement(statement, filled), parameters)

    def _many(self, name: str, rows: Iterable[Row]) -> None:
        self._tables.many(self._statement(name, {}), rows)

    def _statement(self, name: str, filled: Mapping[str, str]) -> str:
        statement = SQL[name]
        for part, text in filled.items():
            statement = statement.replace(f"{{{part}}}", text)
        return self._tables.translated(statement)

    def _states(self, paths: Collection[str]) -> Mapping[str, FileState]:
        rows = self._rows("states", (_listed(paths),))
        return {path: FileState(offset, mark, at, Counts(*counts)) for path, offset, mark, at, *counts in rows}

    def _add(self, piece: Piece) -> Added | None:
        stored = self._states([piece.path]).get(piece.path)
        if stored != piece.before:
            return None
        added = 0
        numbers = {}
        for session in _sessions_of(piece):
            entries = [entry for entry in piece.entries if entry.session == session]
            known = self._save_session(session, entries, piece.usages)
            numbers[session] = known[0]
            added += self._save_entries(entries, known)
        usage = self._save_usages(piece.usages, numbers)
        state = piece.after
        counts = state.counts
        counted = (counts.lines, counts.bad, counts.unknown, counts.too_long, counts.bytes)
        self._rows("save_state", (piece.path, state.offset, state.mark, state.at, *counted))
        return Added(added, usage)

    def _save_session(self, session: str, entries: Sequence[Entry], usages: Sequence[MessageUsage]) -> Row:
        """Its number, folder, branch and version."""
        times = [entry.at for entry in entries] + [each.at for each in usages if each.session == session]
        prompts = (entry.text for entry in entries if entry.kind == "user" and entry.agent is None)
        where = [_first_known(getattr(entry, name) for entry in entries) for name in ("cwd", "branch", "version")]
        began = min((at for at in times if at), default=0)
        return self._rows("save_session", (session, *where, began, max(times), _first(next(prompts, None))))[0]

    def _save_entries(self, entries: Sequence[Entry], known: Row) -> int:
        number, *where = known
        there = {tuple(row) for row in self._rows("known_entries", (number, _listed({each.uuid for each in entries})))}
        new = {(entry.uuid, entry.block): entry for entry in entries if (entry.uuid, entry.block) not in there}
        if not new:
            return 0
        tools = self._tools(number, list(new.values()))
        self._tables.insert_entries([_row(number, entry, tools, where) for entry in new.values()])
        self._rows("count_entries", (number, len(new)))
        return len(new)

    def _tools(self, number: int, entries: Sequence[Entry]) -> Mapping[str, str]:
        """By the ids of their uses. A result says only the id, and may be written much later."""
        here = [(entry.tool_id, entry.tool) for entry in entries if entry.kind == "tool_use"]
        wanted = {entry.tool_id for entry in entries if entry.kind == "tool_result" and entry.tool_id}
        wanted -= {tool_id for tool_id, _ in here}
        before = self._rows("tools", (number, _listed(wanted))) if wanted else ()
        return {tool_id: tool for tool_id, tool in [*here, *before] if tool_id and tool}

    def _save_usages(self, usages: Sequence[MessageUsage], numbers: Mapping[str, int]) -> Mapping[str, Usage]:
        """What each message took beyond what was known of it, by model."""
        if not usages:
            return {}
        known = {
            message_id: Usage(*counts)
            for message_id, *counts in self._rows("usages", (_listed({each.message_id for each in usages}),))
        }
        spent: dict[str, Usage] = {}
        rows: dict[str, Row] = {}
        for each in usages:
            before = known.get(each.message_id)
            now = _greatest(before or NO_USAGE, each.usage)
            if now == before:
                continue
            known[each.message_id] = now
            spent[each.model] = spent.get(each.model, NO_USAGE) + _less(now, before or NO_USAGE)
            rows[each.message_id] = (each.message_id, numbers[each.session], each.at, each.model, *_counts(now))
        self._many("save_usage", rows.values())
        return spent

    def _fill(self, number: int, prompt_id: str, at: int) -> int:
        nameless = prompt_id.startswith(NAMELESS)
        said = () if nameless else self._rows("said_under", (number, prompt_id))
        said = said or self._rows("said_before", (number, at + PROMPT_SLACK_MS, int(nameless)))
        if not said:
            return 0
        self._rows("fill_prompt", (number, prompt_id, said[0][0]))
        return 1

    def _views(self, rows: Sequence[Row]) -> list[TranscriptView]:
        used: dict[int, dict[str, Usage]] = {}
        for number, model, *counts in self._rows("session_usages", (json.dumps([row[0] for row in rows]),)):
            used.setdefault(number, {})[model] = Usage(*map(int, counts))
        return [TranscriptView(*[*row[1:], used.get(row[0], {})]) for row in rows]

    def _totals(self, by: By, since: int | None, until: int | None) -> list[Total]:
        if by == "tool":
            rows = self._rows("tool_totals", (since, until))
            return [Total(name, sessions, int(uses), int(errors), {}) for name, sessions, uses, errors in rows]
        used = self._rows("total_usages", (since, until), name=NAMES[by])
        by_name = {
            name: {model: Usage(*map(int, counts)) for _, model, *counts in group}
            for name, group in groupby(used, key=lambda row: row[0])
        }
        return [
            Total(date_of(name).isoformat() if by == "day" else name, sessions, messages, errors, by_name[name])
            for name, sessions, messages, errors in self._rows("totals", (since, until), name=NAMES[by])
        ]


def _sessions_of(piece: Piece) -> Iterable[str]:
    """Seldom more than one."""
    return dict.fromkeys([*(entry.session for entry in piece.entries), *(each.session for each in piece.usages)])


def _listed(names: Collection[str]) -> str:
    return json.dumps(list(names))


def _name(name: str | None) -> str | None:
    return None if name is None else shortened(name, NAME_CHARACTERS_MAX)


def _in_project(name: str | None) -> tuple[str | None, str | None, str | None]:
    """The folder itself, one of this name, or anything in it."""
    if name is None:
        return None, None, None
    name = shortened(name, NAME_CHARACTERS_MAX).rstrip("/") or "/"
    escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return name, f"%/{escaped}", f"{escaped}/%"


def _first(prompt: str | None) -> str | None:
    return None if prompt is None or prompt.startswith(BY_THE_PROGRAM) else prompt[:PROMPT_CHARACTERS_MAX]


def _first_known(names: Iterable[str | None]) -> str | None:
    return next((name for name in names if name is not None), None)


def _row(number: int, entry: Entry, tools: Mapping[str, str], where: Sequence[str | None]) -> Row:
    """As in ENTRY_COLUMNS."""
    tool = entry.tool or tools.get(entry.tool_id or "")
    placed = zip((entry.cwd, entry.branch, entry.version), where, strict=True)
    return (
        number,
        entry.uuid,
        entry.block,
        entry.parent,
        entry.at,
        entry.kind,
        entry.text,
        tool,
        entry.tool_id,
        entry.message_id,
        entry.model,
        entry.agent,
        entry.is_error,
        entry.prompt_id,
        *(None if own == shared else own for own, shared in placed),
    )


def _entry(row: Row) -> Entry:
    values: list[Any] = list(row[1:])
    values[12] = bool(values[12])
    return Entry(*values)


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens


def _greatest(one: Usage, other: Usage) -> Usage:
    """While a message is being written, its lines know less of it than the last one."""
    return Usage(*map(max, _counts(one), _counts(other)))


def _less(usage: Usage, known: Usage) -> Usage:
    return Usage(*(now - before for now, before in zip(_counts(usage), _counts(known), strict=True)))
