"""`turnlane transcripts`: what was said in Claude Code, listed, shown, searched, exported and added up."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, get_args

import click

from turnlane.cli import common
from turnlane.cli.hook import default_spool
from turnlane.cli.table import Column, echo_table, local_time, one_line, relative
from turnlane.cli.transcript_pages import FORMATS, Format, echo_chat, exported, harmless
from turnlane.cli.usage import DATE
from turnlane.clock import SystemClock
from turnlane.errors import NotFound
from turnlane.model.usage import DAY_MS, day_of_date, written_cost
from turnlane.settings import Settings, prices_of, transcripts_file_of
from turnlane.transcripts import Transcripts, open_transcripts
from turnlane.transcripts.entry import EntryKind
from turnlane.transcripts.importing import Progress, import_folder
from turnlane.transcripts.store import every_entry, is_kept
from turnlane.transcripts.views import By, Hit, Total, TranscriptView, Wanted, altogether, priced

SESSION_CHARACTERS = 8
KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
SESSIONS = [
    Column("SESSION"),
    Column("PROJECT"),
    Column("WHEN", right=True),
    Column("ENTRIES", right=True),
    Column("TOKENS", right=True),
    Column("COST", right=True),
    Column("FIRST PROMPT"),
]
HITS = [Column("WHEN"), Column("SESSION"), Column("PROJECT"), Column("KIND"), Column("TEXT")]
NUMBERS = [Column(name, right=True) for name in ("INPUT", "CACHED", "OUTPUT", "REASONING", "COST")]
PLAIN_STEPS = 10
"""How many lines at most tell of an import where no bar can be drawn."""

project = click.option("--project", help="Of this folder, or of one of this name.")
since = click.option("--since", type=DATE, metavar="DATE", help="From this day on, such as 2026-11-01.")
until = click.option("--until", type=DATE, metavar="DATE", help="To this day, which counts.")


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """Transcripts of Claude Code. Alone it lists the sessions, the latest at first."""


@command.command("list")
@project
@since
@until
@common.limit
@common.as_json
@common.reads_store
def list_them(
    given: common.Given, project: str | None, since: datetime | None, until: datetime | None, limit: int, as_json: bool
) -> None:
    """List sessions: where and when they were, what was asked first, and what they took."""
    settings = settings_for(given)

    async def listed() -> list[TranscriptView]:
        async with opened(settings) as store:
            return await store.sessions(project=project, since=_from(since), until=_to(until), limit=limit)

    prices = prices_of(settings)
    found = [priced(session, prices) for session in asyncio.run(listed())]
    if as_json:
        common.echo_json({"sessions": found})
        return
    now = SystemClock().now()
    echo_table(SESSIONS, (_session_row(session, now) for session in found), nothing="no transcripts")


@command.command("show")
@click.argument("session")
@click.option("--thinking", is_flag=True, help="Also what Claude thought.")
@click.option("--tools", is_flag=True, help="Also what tools were given, and what they answered.")
@click.option("--agents", is_flag=True, help="Also what sub-agents said and did.")
@common.as_json
@common.reads_store
def show_one(given: common.Given, session: str, thinking: bool, tools: bool, agents: bool, as_json: bool) -> None:
    """Show one session as a chat. SESSION may be the beginning of its id."""
    settings = settings_for(given)
    kinds = {"user", "assistant", "compact", "summary", "error"}
    kinds |= ({"thinking"} if thinking else set()) | ({"tool_use", "tool_result"} if tools else set())

    async def shown() -> None:
        async with opened(settings) as store:
            view = priced(await store.session(session), prices_of(settings))
            entries = (
                each
                async for each in every_entry(store, view.session)
                if each.kind in kinds and (agents or each.agent is None)
            )
            if as_json:
                prompts = await store.prompts(view.session)
                common.echo_json({"session": view, "entries": [each async for each in entries], "prompts": prompts})
            else:
                await echo_chat(view, entries)

    asyncio.run(shown())


@command.command("search")
@click.argument("words", nargs=-1)
@project
@since
@until
@click.option("--tool", help="What this tool was given or has answered.")
@click.option("--kind", type=click.Choice(KINDS), help="Of this kind alone.")
@click.option("--session", help="Of this session alone; the beginning of its id is enough.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, metavar="N")
@common.as_json
@common.reads_store
def search(
    given: common.Given,
    words: tuple[str, ...],
    project: str | None,
    since: datetime | None,
    until: datetime | None,
    tool: str | None,
    kind: EntryKind | None,
    session: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find what was said: words, "a phrase", begin*, -not. The best fit comes first; without words, the newest."""

    async def searched() -> list[Hit]:
        async with opened(settings_for(given)) as store:
            whole = None if session is None else (await store.session(session)).session
            wanted = Wanted(" ".join(words), project, _from(since), _to(until), tool, kind, whole)
            return await store.search(wanted, limit=limit)

    found = asyncio.run(searched())
    if as_json:
        common.echo_json({"hits": found})
    else:
        echo_table(HITS, map(_hit_row, found), nothing="nothing found")


@command.command("export")
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Every session; with -o, each into a file of that folder.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="markdown", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Into this file, or folder, instead.")
@common.reads_store
def export(given: common.Given, session: str | None, every: bool, form: Format, output: Path | None) -> None:
    """Write a session in full, as Markdown to be read or as JSON."""
    if (session is None) != every:
        raise click.UsageError("name a session, or say --all")
    settings = settings_for(given)
    if every and output is not None:
        output.mkdir(parents=True, exist_ok=True)

    async def write() -> None:
        async with opened(settings) as store:
            views = [await store.session(session)] if session is not None else await store.sessions(limit=2**31)
            for view in views:
                target = output / _file_of(view, form) if every and output is not None else output
                on_screen = target is None and sys.stdout.isatty()
                with _writing_to(target) as file:
                    async for part in exported(store, priced(view, prices_of(settings)), form):
                        file.write(harmless(part) if on_screen else part)

    asyncio.run(write())


@command.command("stats")
@click.option("--by", type=click.Choice(get_args(By)), default="project", show_default=True, help="Add up by this.")
@since
@until
@common.as_json
@common.reads_store
def stats(given: common.Given, by: By, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    """What sessions took, each message once, in however many files it stands. Days are those of universal time."""
    settings = settings_for(given)

    async def added() -> list[Total]:
        async with opened(settings) as store:
            return await store.totals(by, since=_from(since), until=_to(until))

    prices = prices_of(settings)
    found = [priced(total, prices) for total in asyncio.run(added())]
    if as_json:
        common.echo_json({"by": by, "totals": found})
        return
    counted = Column("USES" if by == "tool" else "MESSAGES", right=True)
    more = [Column("ERRORS", right=True)] if by == "tool" else NUMBERS
    columns = [Column(by.upper()), Column("SESSIONS", right=True), counted, *more]
    echo_table(columns, (_total_row(total, by) for total in found), nothing="no transcripts")


@command.command("import")
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@common.as_json
@common.reads_store
def import_them(given: common.Given, folder: Path | None, as_json: bool) -> None:
    """Take in every transcript under FOLDER, by default all of Claude Code's. Ended early, it goes on from there."""
    folder = folder or projects_folder()
    if not folder.is_dir():
        raise NotFound(f"there is no {folder}; name the folder with the transcripts")

    async def imported() -> Progress:
        async with opened(settings_for(given), create=True) as store:
            with _reporting() as report:
                return await import_folder(store, folder, report)

    done = common.run(imported())
    if as_json:
        common.echo_json(done)
        return
    for problem in done.new.problems:
        click.echo(f"not read: {one_line(problem)}", err=True)
    counts = done.new.counts
    click.echo(
        f"{done.files:,} files, {counts.lines:,} new lines in {counts.bytes / 1_000_000:,.1f} MB: "
        f"{done.new.entries:,} new entries"
        f" ({counts.bad:,} bad, {counts.unknown:,} of unknown types, {counts.too_long:,} too long)"
    )


def projects_folder() -> Path:
    """Where Claude Code keeps its transcripts."""
    config = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(config) if config else Path.home() / ".claude") / "projects"


def settings_for(given: common.Given) -> Settings:
    """Those that were named or are here; else, if nothing is kept here either, those of the installed hooks."""
    settings = given.load()
    is_named = given.file is not None or given.backend is not None or "TURNLANE_BACKEND" in os.environ
    of_hooks = Path(default_spool()).parent / common.DEFAULT_FILE
    if is_named or is_kept(settings.backend) or not of_hooks.exists():
        return settings
    return replace(given, config=of_hooks).load()


@asynccontextmanager
async def opened(settings: Settings, *, create: bool = False) -> AsyncIterator[Transcripts]:
    """The transcripts, for as long as the block runs. A file that is not there yet is made only by an import."""
    where = (settings.backend, transcripts_file_of(settings))
    if not create and not is_kept(*where):
        raise NotFound("there are no transcripts yet; `turnlane transcripts import` takes in those of Claude Code")
    store = open_transcripts(*where)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def _session_row(session: TranscriptView, now: int) -> list[object]:
    spent = altogether(session.usage)
    return [
        session.session[:SESSION_CHARACTERS],
        session.project or "-",
        relative(session.ended_at, now),
        f"{session.entries:,}",
        f"{spent.tokens:,}",
        written_cost(spent.cost),
        session.prompt or "-",
    ]


def _hit_row(hit: Hit) -> list[object]:
    when = f"{local_time(hit.at):%Y-%m-%d %H:%M}"
    return [when, hit.session[:SESSION_CHARACTERS], hit.project or "-", hit.tool or hit.kind, hit.snippet]


def _total_row(total: Total, by: By) -> list[object]:
    row: list[object] = [total.name or "-", f"{total.sessions:,}", f"{total.entries:,}"]
    if by == "tool":
        return [*row, f"{total.errors:,}"]
    spent = altogether(total.usage)
    counts = (spent.input_tokens, spent.cached_tokens, spent.output_tokens, spent.reasoning_tokens)
    return [*row, *(f"{count:,}" for count in counts), written_cost(spent.cost)]


def _from(day: datetime | None) -> int | None:
    return None if day is None else day_of_date(day.date()) * DAY_MS


def _to(day: datetime | None) -> int | None:
    return None if day is None else _from(day + timedelta(days=1))


def _file_of(view: TranscriptView, form: Format) -> str:
    """Its id may be any text, and must lead to no other folder."""
    return f"{re.sub(r'[^A-Za-z0-9-]', '_', view.session)}.{FORMATS[form]}"


def _writing_to(path: Path | None) -> AbstractContextManager[IO[str]]:
    return nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8")


@contextmanager
def _reporting() -> Iterator[Callable[[Progress], None]]:
    """On a terminal a bar, else a line now and then; on standard error, so that the answer stays alone."""
    if not sys.stderr.isatty():
        told = [0]

        def tell(progress: Progress) -> None:
            step = progress.files_done * PLAIN_STEPS // max(progress.files, 1)
            if step > told[0]:
                told[0] = step
                click.echo(f"{progress.files_done:,} of {progress.files:,} files", err=True)

        yield tell
        return
    with click.progressbar(length=1, label="transcripts", file=sys.stderr, show_pos=True) as bar:

        def draw(progress: Progress) -> None:
            bar.length = progress.files
            bar.update(progress.files_done - bar.pos)

        yield draw
