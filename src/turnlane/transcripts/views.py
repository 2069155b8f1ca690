"""What is seen of stored transcripts, and how it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeVar

from turnlane.model.usage import NO_USAGE, Price, Usage, price_of
from turnlane.model.value import value
from turnlane.transcripts.entry import EntryKind

PAGE_ENTRIES = 500

By = Literal["project", "day", "model", "tool"]


@value
class TranscriptView:
    """One session of Claude Code, as a list shows it."""

    session: str
    project: str | None
    """The folder in which it began."""
    branch: str | None
    version: str | None
    began_at: int
    ended_at: int
    """When the last entry so far was written."""
    entries: int
    prompt: str | None
    """The first thing that was asked."""
    usage: Mapping[str, Usage]
    """By model."""


@value
class PromptView:
    """What a hook has told of a prompt."""

    prompt_id: str
    at: int
    text: str | None
    """None: the hook did not say, and the transcript does not either so far."""


@value
class Wanted:
    """What is looked for. None: whatever it is."""

    words: str = ""
    project: str | None = None
    """A folder, its beginning, or its last name."""
    since: int | None = None
    until: int | None = None
    """Milliseconds; the last one does not count."""
    tool: str | None = None
    kind: EntryKind | None = None
    session: str | None = None


@value
class Hit:
    """Where something was found."""

    session: str
    project: str | None
    uuid: str
    block: int
    at: int
    kind: EntryKind
    tool: str | None
    agent: str | None
    snippet: str
    """Some of the text, each hit «marked»."""


@value
class Total:
    """What was added up under one name: a project, a day, a model or a tool."""

    name: str
    sessions: int
    entries: int
    """Messages of the model, or uses of the tool."""
    errors: int
    usage: Mapping[str, Usage]


Used = TypeVar("Used", TranscriptView, Total)


def priced(seen: Used, prices: Mapping[str, Price]) -> Used:
    """The same with what it cost, as far as the table has a price for its models."""
    costs = {model: _with_cost(usage, price_of(model, prices)) for model, usage in seen.usage.items()}
    return replace(seen, usage=costs)


def _with_cost(usage: Usage, price: Price | None) -> Usage:
    return usage if price is None else replace(usage, cost=price.cost(usage))


def altogether(usage: Mapping[str, Usage]) -> Usage:
    return sum(usage.values(), NO_USAGE)
