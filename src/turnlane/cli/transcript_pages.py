"""A session written out: as a chat on the terminal, as Markdown to be read, as JSON to be used."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Literal

import click

from turnlane.cli.table import local_time, one_line
from turnlane.http.wire import rfc3339, to_json
from turnlane.model.usage import written_cost
from turnlane.transcripts import Transcripts
from turnlane.transcripts.entry import Entry, EntryKind
from turnlane.transcripts.store import every_entry
from turnlane.transcripts.views import TranscriptView, altogether

Format = Literal["markdown", "json"]
FORMATS: Mapping[Format, str] = {"markdown": "md", "json": "json"}
"""With the ending of their files."""
SPEAKERS: Mapping[EntryKind, str] = {
    "user": "You",
    "assistant": "Claude",
    "thinking": "Claude thinks",
    "summary": "Summary",
    "meta": "The program",
    "error": "Error",
}


def speaker(entry: Entry) -> str:
    """A sub-agent is asked by Claude."""
    if entry.agent is None:
        return SPEAKERS[entry.kind]
    name = "Claude asks" if entry.kind == "user" else SPEAKERS[entry.kind]
    return f"{name} (agent {entry.agent})"


async def echo_chat(view: TranscriptView, entries: AsyncIterator[Entry]) -> None:
    began = f"{local_time(view.began_at):%Y-%m-%d %H:%M}"
    where = "  ".join(part for part in (view.session, view.project, view.branch, began) if part)
    click.echo(click.style(one_line(where), dim=True))
    async for entry in entries:
        _echo(entry)


def _echo(entry: Entry) -> None:
    match entry.kind:
        case "tool_use":
            tool = one_line(entry.tool or "tool")
            click.echo(click.style(f"  > {tool}  ", fg="cyan") + _indented(entry.text, 4))
        case "tool_result":
            click.echo(click.style("  < ", fg="red" if entry.is_error else "cyan") + _indented(entry.text, 4))
        case "compact":
            click.echo(click.style("\n--- compacted ---", dim=True))
        case _:
            time = f"{local_time(entry.at):%H:%M:%S}"
            click.echo(click.style(f"\n{one_line(speaker(entry))}", bold=True) + click.style(f"  {time}", dim=True))
            click.echo(f"  {_indented(entry.text, 2)}")


def harmless(text: str) -> str:
    """With nothing in it that a terminal would obey, but its lines."""
    return "\n".join(map(one_line, text.split("\n")))


def _indented(text: str, by: int) -> str:
    return harmless(text.strip("\n")).replace("\n", "\n" + " " * by)


async def exported(store: Transcripts, view: TranscriptView, form: Format) -> AsyncIterator[str]:
    """All of a session, part by part, so that a long one needs no more memory than a short one."""
    if form == "json":
        yield f'{{"session":{to_json(view).decode()},"entries":['
        comma = ""
        async for entry in every_entry(store, view.session):
            yield comma + to_json(entry).decode()
            comma = ",\n"
        yield "]}\n"
        return
    yield _title(view)
    async for entry in every_entry(store, view.session):
        yield _markdown(entry)


def _title(view: TranscriptView) -> str:
    spent = altogether(view.usage)
    facts = {
        "Session": view.session,
        "Project": view.project,
        "Branch": view.branch,
        "Began": rfc3339(view.began_at),
        "Ended": rfc3339(view.ended_at),
        "Tokens": f"{spent.tokens:,}",
        "Cost": written_cost(spent.cost),
    }
    listed = "\n".join(f"- {name}: {fact}" for name, fact in facts.items() if fact is not None)
    return f"# {one_line(view.prompt or view.session)[:100]}\n\n{listed}\n"


def _markdown(entry: Entry) -> str:
    aside = f", agent {entry.agent}" if entry.agent else ""
    match entry.kind:
        case "tool_use":
            return f"\n**{entry.tool or 'tool'}**{aside}\n\n{_fenced(entry.text)}\n"
        case "tool_result":
            return f"\n{'Failed' if entry.is_error else 'Result'}{aside}:\n\n{_fenced(entry.text)}\n"
        case "compact":
            return "\n---\n\n*Compacted*\n"
        case "user" | "assistant":
            return f"\n## {speaker(entry)}, {rfc3339(entry.at)}\n\n{entry.text}\n"
        case _:
            quoted = "\n".join(f"> {line}" for line in entry.text.splitlines())
            return f"\n*{speaker(entry)}*\n\n{quoted}\n"


def _fenced(text: str) -> str:
    """Between fences that are longer than any in it."""
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
