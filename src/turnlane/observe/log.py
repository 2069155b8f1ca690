"""Events, and what libraries log, as lines: one fact a line, for people or for machines.

Texts of messages and secrets are in no event, so they are in no line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TextIO, get_args

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from turnlane.errors import InvalidSettings
from turnlane.model.event import Event, Fact

Format = Literal["human", "json"]
Level = Literal["debug", "info", "warning", "error"]

STEPS = frozenset(
    {"message.accepted", "turn.started", "delivery.started", "hook.received", "session.reused", "lane.typing"}
)
"""What happens to every message on its way; at `info` its end is enough."""
WARNINGS = frozenset(
    {
        "turn.retried",
        "turn.lost",
        "turn.fenced",
        "delivery.retried",
        "delivery.lost",
        "delivery.fenced",
        "schedule.missed",
        "tick.lost",
        "tick.fenced",
        "conversation.gone",
        "lane.full",
        "lane.parked",
        "worker.lost",
        "session.unchecked",
        "profile.unenriched",
        "profile.fallback",
        "activity.untold",
        "alert.raised",
        "alert.untold",
        "lanes.recovered",
        "budget.warned",
        "budget.stopped",
        "store.waiting",
        "store.unavailable",
        "hook.aside",
        "hook.refused",
        "login.refused",
    }
)
ERRORS = frozenset({"turn.dead_lettered", "delivery.failed"})

_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_RESET = "\x1b[0m"


def configure(format: Format = "human", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every line of this process to `stream` (standard error) in one form. May be called again."""
    if level not in get_args(Level):
        raise InvalidSettings(f"no log level {level!r}; use one of {', '.join(get_args(Level))}")
    out = sys.stderr if stream is None else stream
    render: Processor = _as_json if format == "json" else _for_people(colour=out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(ProcessorFormatter(processors=[_head, structlog.processors.format_exc_info, render]))
    _replace_handler(handler)
    logging.getLogger().setLevel(level.upper())
    # uvicorn says that it started and stopped; our own events say so already.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))
    # The client says every request it makes, with its URL, which may hold a key.
    for client in ("httpx2", "httpcore2"):
        logging.getLogger(client).setLevel(max(logging.WARNING, logging.getLogger().level))
    structlog.configure(
        processors=[ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class EventLog:
    """A listener that writes one line for each event."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("turnlane.events")

    def __call__(self, events: Sequence[Event]) -> None:
        log: structlog.stdlib.BoundLogger = structlog.get_logger("turnlane.events")
        for event in events:
            level = level_of(event.name)
            # The standard library remembers its answer, so a line that nobody wants costs next to nothing.
            if self._logger.isEnabledFor(level):
                about = {} if event.conversation is None else {"conversation": event.conversation}
                log.log(level, event.name, at=event.at, **about, **_without_texts(event.facts))


def _without_texts(facts: Mapping[str, Fact]) -> Mapping[str, Fact]:
    """What a person may have said is in the store, and not in a log."""
    if "body" not in facts:
        return facts
    return {name: fact for name, fact in facts.items() if name != "body"} | {"characters": len(str(facts["body"]))}


def level_of(event: str) -> int:
    if event in ERRORS:
        return logging.ERROR
    if event in WARNINGS:
        return logging.WARNING
    return logging.DEBUG if event in STEPS else logging.INFO


def _replace_handler(handler: logging.Handler) -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, ProcessorFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)


# From an event to its line.


def _head(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """Time, level and name first, in every line; then the facts as they came."""
    record: logging.LogRecord = line.pop("_record")
    ours: bool = line.pop("_from_structlog")
    at = line.pop("at", record.created * 1000)
    event = line.pop("event")
    time = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": time, "level": record.levelname.lower(), "event": event if ours else record.name}
    said = {} if ours else {"message": event}
    return {**head, **said, **line}


def _as_json(logger: WrappedLogger, method: str, line: EventDict) -> str:
    return json.dumps(line, default=str)


def _for_people(*, colour: bool) -> Processor:
    def render(logger: WrappedLogger, method: str, line: EventDict) -> str:
        time, level, event, trace = line.pop("time"), line.pop("level"), line.pop("event"), line.pop("exception", None)
        start, end = (_COLOURS.get(level, ""), _RESET) if colour else ("", "")
        facts = [f"{name}={_quoted(value)}" for name, value in line.items()]
        told = " ".join([time, f"{level:<7}", f"{start}{event}{end}", *facts])
        return told if trace is None else f"{told}\n{trace}"

    return render


def _quoted(value: object) -> str:
    """Bare where nothing can be misread; else quoted, so that no value can pretend to be a line of its own."""
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=\\') else json.dumps(text)
