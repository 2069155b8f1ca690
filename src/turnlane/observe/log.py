"""Events, and what libraries log, as lines: one fact a line, for people or for machines.

Texts of messages are in no line unless `texts` asks for them, and secrets in none whatever is asked.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TextIO, get_args

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from turnlane.errors import InvalidSettings
from turnlane.model.event import EVENTS, Event, Fact
from turnlane.observe.redact import Redactor
from turnlane.observe.words import in_words, local, printable

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
        "stopping.failed",
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

OURS = "turnlane"
SUBJECT_CELLS = 22
"""So wide is the column that says whom a line is about; whoever has a longer name shifts the rest."""
TRACEBACK_LINES_MAX = 60
"""Of one traceback in a log for people; what is more is cut out of its middle."""
_TRACEBACK_HEAD = 10

_SHORT = {"warning": "warn", "critical": "error"}
_COLOURS = {"debug": "2", "warn": "33", "error": "31;1"}
_DIM, _BOLD = "2", "1"


def configure(
    format: Format = "human",
    level: str = "info",
    stream: TextIO | None = None,
    *,
    texts: bool = False,
    secrets: Iterable[str] = (),
    process: str | None = None,
) -> None:
    """Send every line of this process to `stream` (standard error) in one form. May be called again.

    `secrets`: what must be seen by nobody, whoever quotes it. `process`: which of several it is.
    """
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    head = _head(process, in_words=format == "human")
    clean = _redacted(Redactor(secrets))
    render: Processor = _as_json if format == "json" else _for_people(colour=_is_coloured(out))
    handler.setFormatter(ProcessorFormatter(processors=[head, structlog.processors.format_exc_info, clean, render]))
    if not texts:
        handler.addFilter(_says_no_text)
    _replace_handler(handler)
    set_level(level)
    structlog.configure(
        processors=[ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def set_level(level: str) -> None:
    if level not in get_args(Level):
        raise InvalidSettings(f"no log level {level!r}; use one of {', '.join(get_args(Level))}")
    logging.getLogger().setLevel(level.upper())
    # uvicorn says that it started and stopped; our own events say so already.
    # The client says every request it makes, with its URL.
    for library in ("uvicorn.error", "httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


class EventLog:
    """A listener that writes one line for each event."""

    def __init__(self, *, texts: bool = False) -> None:
        self._logger = logging.getLogger("turnlane.events")
        self._texts = texts

    def __call__(self, events: Sequence[Event]) -> None:
        log: structlog.stdlib.BoundLogger = structlog.get_logger("turnlane.events")
        for event in events:
            level = level_of(event.name)
            # The standard library remembers its answer, so a line that nobody wants costs next to nothing.
            if self._logger.isEnabledFor(level):
                about = {} if event.conversation is None else {"conversation": event.conversation}
                facts = event.facts if self._texts else _without_texts(event.facts)
                log.log(level, event.name, at=event.at, **about, **facts)


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


def _says_no_text(record: logging.LogRecord) -> bool:
    """What libraries say to those who debug them quotes what they carry: whole requests, with what people said."""
    return record.levelno >= logging.INFO or record.name.split(".")[0] == OURS


# From an event to its line.


def _head(process: str | None, *, in_words: bool) -> Processor:
    """Time, level and name first, in every line; then the facts as they came. In words, the time is written later."""
    among = {} if process is None else {"process": process}

    def put_first(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
        record: logging.LogRecord = line.pop("_record")
        ours: bool = line.pop("_from_structlog")
        at = line.pop("at", int(record.created * 1000))
        event = line.pop("event")
        head = {
            "time": at if in_words else _rfc3339(at),
            "level": record.levelname.lower(),
            "event": event if ours else record.name,
        }
        said = {} if ours else {"message": event}
        return {**head, **among, **said, **line}

    return put_first


def _rfc3339(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _redacted(clean: Redactor) -> Processor:
    def take_out(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
        # Looked at as one, as there is nothing to be found in most.
        if clean.finds("\n".join([value for value in line.values() if isinstance(value, str)])):
            return {name: clean(value) if isinstance(value, str) else value for name, value in line.items()}
        return line

    return take_out


def _as_json(logger: WrappedLogger, method: str, line: EventDict) -> str:
    return json.dumps(line, default=str)


# For people


def _is_coloured(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR")


def _for_people(*, colour: bool) -> Processor:
    def painted(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text

    def render(logger: WrappedLogger, method: str, line: EventDict) -> str:
        at: int = line.pop("time")
        level: str = line.pop("level")
        level = _SHORT.get(level, level)
        event, process, trace = line.pop("event"), line.pop("process", None), line.pop("exception", None)
        subject, phrase, name = _said(event, line, at)
        parts = [
            painted(f"{local(at):%H:%M:%S}", _DIM),
            *([] if process is None else [painted(f"#{process}", _DIM)]),
            painted(f"{level:<5}", _COLOURS.get(level, "")),
            painted(f"{subject:<{SUBJECT_CELLS}}", _BOLD),
            painted(phrase, "" if level == "debug" else _COLOURS.get(level, "")),
            painted(name, _DIM),
        ]
        told = " ".join(part for part in parts if part).rstrip()
        return told if trace is None else "\n".join([told, *_traceback(trace)])

    return render


def _said(event: str, facts: EventDict, at: int) -> tuple[str, str, str]:
    """Whom it is about, what happened, and the name to look it up by."""
    if event not in EVENTS:
        said = printable(str(facts.pop("message", "")), None)
        return printable(event), " ".join([said, *(f"{name}={printable(str(facts[name]))}" for name in facts)]), ""
    conversation = facts.pop("conversation", None)
    subject = conversation or facts.get("channel") or event.partition(".")[0]
    return printable(str(subject)), in_words(event, facts, at), f"[{event}]"


def _traceback(trace: str) -> Sequence[str]:
    """Set off from the line above, so that nothing in it can pretend to be a line of its own."""
    lines = trace.splitlines()
    if len(lines) > TRACEBACK_LINES_MAX:
        cut = len(lines) - TRACEBACK_LINES_MAX
        lines[_TRACEBACK_HEAD : _TRACEBACK_HEAD + cut] = [f"… {cut} lines more"]
    return [f"    │ {printable(line, None)}" for line in lines]
