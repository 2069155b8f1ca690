"""The operator's API described in OpenAPI 3.1, its schemas taken from the very classes that are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from inspect import getdoc
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnlane.flow.steer import Said, Steered
from turnlane.http.query import CURSOR_MAX, LIMIT_DEFAULT, LIMIT_MAX
from turnlane.http.wire import is_time
from turnlane.live_settings import VALUE_CHARACTERS_MAX, Setting
from turnlane.model.alert import Alert, PastAlert
from turnlane.model.delivery import DeliveryState, delivery_id
from turnlane.model.explanation import Explanation
from turnlane.model.lane import Kind, LaneState
from turnlane.model.policy import OnBusy
from turnlane.model.schedule import MISSED_MAX, PROMPT_CHARACTERS_MAX, Missed
from turnlane.model.usage import By, Sum
from turnlane.model.view import (
    Counts,
    DeadLetter,
    DeliveryView,
    LaneView,
    Lock,
    ScheduleView,
    SessionView,
    Story,
    TurnView,
    WorkerView,
)
from turnlane.transcripts.entry import Entry, EntryKind
from turnlane.transcripts.views import Hit, PromptView, TranscriptView

Schema = dict[str, Any]

KINDS = tuple(kind.name.lower() for kind in Kind)

API_VERSION = "1"
"""Of the description: within it fields and paths are added, never renamed or removed."""

INTRODUCTION = (
    "What an operator sees of a Turnlane server, and does to it. Times are RFC 3339 in UTC. Unknown parameters are "
    "refused. A conversation's key (`site/alice`) holds slashes and is percent-encoded already: as `{key}` in a path "
    "it is encoded once more, as one part (`site%2Falice`)."
)

ANSWER_CHARACTERS_MAX = 10_000
TRANSCRIPT_EXAMPLE = "5d7c1f1e-0000-4000-8000-000000000001"

PROBLEMS: Mapping[int, str] = {
    400: "A parameter or the body cannot be read; `detail` names it",
    401: "A wrong or missing token",
    403: "A viewer may not change things; or a page of another site, or another machine's name on a loopback address",
    404: "No such conversation, message, dead letter, delivery, schedule, setting, transcript or channel",
    405: "Not with this method",
    408: "The body took too long",
    413: "The body is too long",
    415: "The body is not declared as JSON",
    422: "JSON of the wrong shape",
    429: "Too many wrong tokens came from this address; `Retry-After` says when to come back",
    503: "The store cannot be reached; `Retry-After` says when to come back",
}
ALWAYS = (400, 401, 403, 429, 503)
_BODIES = (404, 408, 413, 415, 422)
"""Where something is named, and a body is read."""

_WORDS: Schema = {"type": "string"}
_WITHOUT_NUL: Schema = {"type": "string", "pattern": "^[^\\u0000]*$"}


@dataclass(frozen=True, slots=True)
class Operation:
    path: str
    summary: str
    answer: Schema
    parameters: Sequence[Schema] = ()
    method: str = "get"
    body: Schema | None = None
    """Where nothing of it is required, it may be left out."""
    problems: Sequence[int] = ()
    media_type: str = "application/json"
    judged: bool = False
    """A body of the right shape may still be refused: no schema can say which times come."""


@cache
def description() -> Schema:
    """The whole document, fit for `/api/openapi.json`."""
    paths: dict[str, Schema] = {}
    for operation in operations():
        paths.setdefault(operation.path, {})[operation.method] = _written(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Turnlane", "version": API_VERSION, "description": INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": {**_schemas(), "Problem": _PROBLEM},
            "responses": {str(status): _problem(status) for status in PROBLEMS},
            "securitySchemes": {
                "operator": {"type": "http", "scheme": "bearer", "description": "`operator_token`"},
                "viewer": {"type": "http", "scheme": "bearer", "description": "`viewer_token`: to look only"},
            },
        },
        # Without a token set, loopback alone is enough.
        "security": [{"operator": []}, {"viewer": []}, {}],
    }


_ME = {
    "type": "object",
    "properties": {
        "role": {"enum": ["operator", "viewer"]},
        "csrf": {"type": ["string", "null"]},
        "open": {"type": "boolean"},
    },
    "required": ["role", "csrf", "open"],
}


def operations() -> Sequence[Operation]:
    """Every path of the API, in the order of docs/reference/http.md."""
    kind = _choice("kind", KINDS, "Of lanes; `turn` if not given")
    state = _choice("state", get_args(LaneState), "Only lanes in this state")
    channel = _query("channel", _WITHOUT_NUL, "Only of this channel")
    agent = _query("agent", _WITHOUT_NUL, "Only of this agent")
    limit = _query("limit", _whole(1, LIMIT_MAX, LIMIT_DEFAULT), "At most so many")
    delivery_state = _choice("state", get_args(DeliveryState), "`queued` if not given")
    conversation = _query("conversation", _WITHOUT_NUL, "Only of this conversation, by its key")
    after = _query("after", _whole(0, CURSOR_MAX), "Begin after this cursor; without one, now")
    seen = {**after, "name": "Last-Event-ID", "in": "header", "description": "The same, and wins: browsers send it"}
    event = _object({"id": _WORDS, "event": _WORDS, "data": _WORDS})
    message = [_in_path("channel", "The message's channel", "site"), _in_path("origin_id", "Its id there", "m-1")]
    letter, retried, dropped = (
        _in_path("id", "A dead letter, `CONVERSATION#TURN`", example=f"site/{name}#1")
        for name in ("bob", "dave", "erin")
    )
    delivery, resent, given_up = (
        _in_path("id", "A delivery", example=delivery_id(f"site/{name}", 1, 1)) for name in ("alice", "fay", "gus")
    )
    steered = _ref(Steered)
    return [
        Operation(
            "/api/lanes", "Lanes, and what each is doing", _list("lanes", LaneView), [kind, state, channel, limit]
        ),
        Operation("/api/lanes/stream", "Lanes as they change", event, [after, seen], media_type="text/event-stream"),
        *_of_conversations(limit),
        Operation("/api/messages/{channel}/{origin_id}", "Explain one", _ref(Explanation), message, problems=[404]),
        Operation(
            "/api/outbox", "What leaves, left, or could not", _list("deliveries", DeliveryView), [delivery_state, limit]
        ),
        Operation("/api/outbox/{id}", "One of it", _ref(DeliveryView), [delivery], problems=[404]),
        Operation("/api/outbox/{id}/resend", "Send it again", _ref(DeliveryView), [resent], "post", _NOTHING, _BODIES),
        Operation("/api/outbox/{id}/drop", "Do not send it", _ref(DeliveryView), [given_up], "post", _NOTHING, _BODIES),
        Operation("/api/deadletters", "Given up on", _list("dead_letters", DeadLetter), [conversation, limit]),
        Operation("/api/deadletters/{id}", "One in full", _ref(DeadLetter), [letter], problems=[404]),
        Operation("/api/deadletters/{id}/retry", "Run it again", steered, [retried], "post", _NOTHING, _BODIES),
        Operation("/api/deadletters/{id}/drop", "Keep it no longer", steered, [dropped], "post", _NOTHING, _BODIES),
        *_of_schedules(),
        *_of_settings(),
        _of_usage(channel),
        Operation("/api/sessions", "What agents remember", _list("sessions", SessionView), [agent, limit]),
        *_of_transcripts(limit),
        Operation("/api/locks", "Leases that are held now", _list("locks", Lock)),
        Operation("/api/workers", "Who runs turns", _list("workers", WorkerView)),
        Operation("/api/alerts", "What needs an operator", _ALERTS),
        Operation("/api/counts", "The store in numbers", _ref(Counts)),
        Operation("/api/me", "Who asks, and what a page must send along with what it changes", _ME),
        Operation("/api/events", "Facts as they happen", event, [after, seen], media_type="text/event-stream"),
        Operation("/api/openapi.json", "This description", {"type": "object"}),
    ]


def _of_conversations(limit: Schema) -> Sequence[Operation]:
    key = _in_path("key", "A conversation, `CHANNEL/ROOM`", example="site/alice")
    turns_only = _object({"outbox": {"const": False, "default": False}}, optional=True)
    told = _object({"on_busy": {"enum": [*get_args(OnBusy), None], "default": None}}, optional=True)
    text = {**_WITHOUT_NUL, "minLength": 1, "maxLength": ANSWER_CHARACTERS_MAX}
    said = _object({"text": {**text, "examples": ["yes"]}})
    either = _object({"outbox": _OUTBOX}, optional=True)
    steered = _ref(Steered)
    return [
        Operation("/api/conversations/{key}", "The story of one", _ref(Story), [key, limit], problems=[404]),
        Operation(
            "/api/conversations/{key}/turns", "Its turns", _list("turns", TurnView), [key, limit], problems=[404]
        ),
        Operation("/api/conversations/{key}/pause", "Start nothing more", steered, [key], "post", _PAUSING, _BODIES),
        Operation("/api/conversations/{key}/resume", "Go on, also if parked", steered, [key], "post", either, _BODIES),
        Operation("/api/conversations/{key}/stop", "Set all aside", steered, [key], "post", turns_only, _BODIES),
        Operation("/api/conversations/{key}/answer", "Answer a question", steered, [key], "post", said, _BODIES),
        Operation("/api/conversations/{key}/retry", "Next attempt now", steered, [key], "post", either, _BODIES),
        Operation("/api/conversations/{key}/skip", "Give up what is open", steered, [key], "post", either, _BODIES),
        Operation("/api/conversations/{key}/policy", "Its own on_busy", steered, [key], "post", told, _BODIES),
        Operation("/api/conversations/{key}/renew", "Begin a session", steered, [key], "post", _NOTHING, _BODIES),
        Operation("/api/conversations/{key}/say", "Answer by hand", _ref(Said), [key], "post", _SAYING, _BODIES),
    ]


def _of_usage(channel: Schema) -> Operation:
    names = "|".join(get_args(By))
    by = {"type": "string", "pattern": f"^({names})(,({names}))*$", "examples": ["day,user"]}
    asked = [
        _query("by", by, "Added up by these, with commas between them; `day` if not given"),
        _query("since", {"type": "string", "format": "date"}, "From this day on, by universal time"),
        _query("until", {"type": "string", "format": "date"}, "To this day"),
        channel,
        _query("user", _WITHOUT_NUL, "Only of this user"),
    ]
    return Operation("/api/usage", "What turns used, and what it cost", _list("usage", Sum), asked)


def _of_transcripts(limit: Schema) -> Sequence[Operation]:
    session = _in_path("session", "A session of Claude Code; the beginning of its id is enough", TRANSCRIPT_EXAMPLE)
    project = _query("project", _WITHOUT_NUL, "Of this folder, or of one of this name")
    since = _query("since", {"type": "string", "format": "date"}, "From this day on, by universal time")
    until = _query("until", {"type": "string", "format": "date"}, "To this day")
    after = _query("after", {"type": "string", "pattern": "^[0-9]{1,14}-[0-9]{1,15}$"}, "What `next` said")
    asked = [
        _query("q", _WITHOUT_NUL, 'Words, "a phrase", begin*, -not; without, the newest'),
        *(project, since, until, limit),
        _query("tool", _WITHOUT_NUL, "What this tool was given or has answered"),
        _choice("kind", get_args(EntryKind), "Of this kind alone"),
        _query("session", _WITHOUT_NUL, "Of this session alone, by its whole id"),
    ]
    entries = {"type": "array", "items": _ref(Entry)}
    prompts = {"type": "array", "items": _ref(PromptView)}
    page = _object({"session": _ref(TranscriptView), "entries": entries, "next": _OR_NULL, "prompts": prompts})
    return [
        Operation(
            "/api/transcripts",
            "Sessions of Claude Code",
            _list("sessions", TranscriptView),
            [project, since, until, limit],
        ),
        Operation("/api/transcripts/search", "Find what was said", _list("hits", Hit), asked),
        Operation("/api/transcripts/{session}", "One, and a page of it", page, [session, after, limit], problems=[404]),
    ]


def _of_schedules() -> Sequence[Operation]:
    name = _in_path("name", "A schedule", example="pulse")
    return [
        Operation("/api/schedules", "What is said by the clock", _list("schedules", ScheduleView)),
        Operation("/api/schedules", "Add or change", _ref(ScheduleView), (), "post", _SCHEDULING, _BODIES, judged=True),
        Operation("/api/schedules/{name}", "One of them", _ref(ScheduleView), [name], problems=[404]),
        Operation("/api/schedules/{name}/fire", "Say it now", _ref(ScheduleView), [name], "post", _NOTHING, _BODIES),
        Operation(
            "/api/schedules/{name}/pause", "Say it no more", _ref(ScheduleView), [name], "post", _NOTHING, _BODIES
        ),
        Operation("/api/schedules/{name}/resume", "Go on", _ref(ScheduleView), [name], "post", _NOTHING, _BODIES),
        Operation("/api/schedules/{name}/remove", "Forget it", _ref(ScheduleView), [name], "post", _NOTHING, _BODIES),
    ]


def _of_settings() -> Sequence[Operation]:
    name = _in_path("name", "A setting, by its dotted name", example="lanes.debounce")
    path, setting = "/api/settings/{name}", _ref(Setting)
    return [
        Operation("/api/settings", "What is in force, and from where", _list("settings", Setting)),
        Operation(path, "For all processes", setting, [name], "put", _SETTING, _BODIES, judged=True),
        Operation(path, "As file or default say", setting, [name], "delete", problems=[404]),
    ]


def _written(operation: Operation) -> Schema:
    written: Schema = {
        "summary": operation.summary,
        "parameters": list(operation.parameters),
        "responses": {
            "200": {"description": "Done", "content": {operation.media_type: {"schema": operation.answer}}},
            **{str(each): {"$ref": f"#/components/responses/{each}"} for each in (*ALWAYS, *operation.problems)},
        },
    }
    if operation.body is not None:
        needed = bool(operation.body["required"])
        written["requestBody"] = {"required": needed, "content": {"application/json": {"schema": operation.body}}}
    return written


# Parameters and answers


def _query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _choice(name: str, words: Sequence[str], description: str) -> Schema:
    return _query(name, {"type": "string", "enum": list(words)}, description)


def _in_path(name: str, description: str, example: str) -> Schema:
    schema = {"type": "string", "minLength": 1, "examples": [example]}
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": description}


def _whole(lowest: int, highest: int, default: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": lowest, "maximum": highest}
    return schema if default is None else {**schema, "default": default}


def _list(name: str, of: type) -> Schema:
    return _object({name: _array(of)})


def _array(of: type) -> Schema:
    return {"type": "array", "items": _ref(of)}


def _object(properties: dict[str, Schema], *, optional: bool = False) -> Schema:
    required = [] if optional else list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _ref(of: type) -> Schema:
    return {"$ref": f"#/components/schemas/{of.__name__}"}


_NOTHING = _object({}, optional=True)

_ALERTS = _object({"alerts": _array(Alert), "recent": _array(PastAlert)})

_OUTBOX: Schema = {"type": "boolean", "default": False}

_OR_NULL: Schema = {"type": ["string", "null"]}

_LASTS: Schema = {
    **_OR_NULL,
    "pattern": "^([1-9][0-9]{0,3}(ms|s|m|h|d)){1,3}$",
    "description": "How long, such as `2h`",
}

_PAUSING = _object({"outbox": _OUTBOX, "for": _LASTS}, optional=True)

_SETTING = _object(
    {
        "value": {
            "type": ["string", "boolean", "number", "null"],
            "maxLength": VALUE_CHARACTERS_MAX,
            "description": "As in turnlane.toml; null lifts a limit",
            "examples": ["5s"],
        }
    }
)

_NAME: Schema = {"type": "string", "pattern": r"^[^\x00]+$", "maxLength": 128}

_SAYING: Schema = {
    **_object(
        {
            "text": {"type": "string", "pattern": r"^[^\x00]*[^\x00\s][^\x00]*$", "examples": ["Anna here."]},
            "id": {**_NAME, **_OR_NULL, "description": "Its own; said again under the same, it changes nothing"},
            "sender": {**_NAME, "default": "operator"},
            "takeover": {"type": "boolean", "default": True, "description": "Whether the agent falls silent"},
        }
    ),
    "required": ["text"],
}


_SCHEDULING: Schema = {
    **_object(
        {
            "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$", "examples": ["pulse"]},
            "conversation": {"type": "string", "minLength": 3, "description": "Its key", "examples": ["site/alice"]},
            "prompt": {"type": "string", "minLength": 1, "maxLength": PROMPT_CHARACTERS_MAX, "examples": ["Any news?"]},
            "cron": {"type": ["string", "null"], "default": None, "description": "Five fields, or a word like @daily"},
            "zone": {"type": "string", "default": "UTC", "description": "Of `cron`, like `Europe/Berlin`"},
            "every": {
                "type": ["string", "null"],
                "pattern": "^([0-9]{1,15}(ms|s|m|h|d))+$",
                "default": None,
                "description": "Instead of `cron`, like `15m`",
                "examples": ["15m"],
            },
            "missed": {"type": "string", "enum": list(get_args(Missed)), "default": "once"},
            "missed_max": _whole(1, 10_000, MISSED_MAX),
            "enabled": {"type": "boolean", "default": True},
        }
    ),
    "required": ["name", "conversation", "prompt"],
}


_PROBLEM: Schema = {
    "description": "RFC 9457. `detail` names the next step.",
    **_object({"type": _WORDS, "title": _WORDS, "status": {"type": "integer"}, "detail": _WORDS}),
}


def _problem(status: int) -> Schema:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": PROBLEMS[status], "content": content}


# Schemas of what is answered, as http/wire.py writes it


def _schemas() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    seen: list[type] = [LaneView, Story, Sum, SessionView, DeadLetter, Lock, WorkerView, Counts, ScheduleView, Setting]
    waiting = [*seen, Alert, PastAlert, Steered, Said, Explanation, TranscriptView, Entry, Hit, PromptView]
    while waiting:
        each = waiting.pop()
        if each.__name__ not in found:
            found[each.__name__] = _of_class(each, waiting)
    return dict(sorted(found.items()))


def _of_class(cls: type, met: list[type]) -> Schema:
    """Fields may be added within a major version, so what is not listed here is allowed."""
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    properties = {field.name: _of(hints[field.name], field.name, met) for field in fields(cls)}
    schema: Schema = {"type": "object", "properties": properties, "required": list(properties)}
    documented = cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
    return {"description": getdoc(cls), **schema} if documented else schema


def _of(hint: Any, name: str, met: list[type]) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return {"anyOf": [_of(each, name, met) for each in arguments]}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (tuple, list):
        return {"type": "array", "items": _of(arguments[0], "", met)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], "", met)}
    if hint is Kind:
        return {"type": "string", "enum": list(KINDS)}
    if is_dataclass(hint) and isinstance(hint, type):
        met.append(hint)
        return _ref(hint)
    if hint is int and is_time(name):
        return {"type": "string", "format": "date-time"}
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
    return {"type": plain[hint]}
