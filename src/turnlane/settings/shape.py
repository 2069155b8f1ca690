"""Which tables every source can set, what can change while a process runs, and how keys are called elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import FieldInfo, fields

from turnlane.model.budget import SCOPES
from turnlane.settings.tables import (
    ActivityTable,
    AlertsTable,
    AttachmentsTable,
    Backoff,
    BudgetTable,
    BudgetTables,
    ChatCommands,
    ClaudeCodeAgent,
    ClaudeHooksChannel,
    CommandAgent,
    EchoAgent,
    FleetLimits,
    HttpAgent,
    Lanes,
    Logs,
    OpenAIAgent,
    People,
    Retention,
    Sessions,
    Settings,
    SlackChannel,
    Table,
    Takeover,
    TerminalChannel,
    Traces,
    Transcribe,
    TranscriptsAgent,
    WatiChannel,
    WebChannel,
    WebhookChannel,
    WhapiChannel,
    WhatsAppMetaChannel,
)

_PARTS = frozenset(["prices", "channels", "agents", "routes", "schedules", "sources", "read_from"])
"""Fields that hold tables by name or number (or no setting at all), not single values."""

SECTIONS: Mapping[tuple[str, ...], type[Table]] = {
    (): Settings,
    ("lanes",): Lanes,
    ("lanes", "backoff"): Backoff,
    ("retention",): Retention,
    ("commands",): ChatCommands,
    ("limits",): FleetLimits,
    ("takeover",): Takeover,
    ("sessions",): Sessions,
    ("people",): People,
    ("activity",): ActivityTable,
    ("alerts",): AlertsTable,
    ("logs",): Logs,
    ("traces",): Traces,
    ("budgets",): BudgetTables,
    **{("budgets", scope): BudgetTable for scope in SCOPES},
    ("attachments",): AttachmentsTable,
    ("attachments", "transcribe"): Transcribe,
}
"""The tables that every source can set; channels, agents, routes and schedules live in the file."""

AT_RUN_TIME: Mapping[type[Table], frozenset[str]] = {
    Settings: frozenset(["paused"]),
    Lanes: frozenset(each.name for each in fields(Lanes)) - {"backoff", "lease", "idle_after"},
    Backoff: frozenset(["first", "factor", "most"]),
    ChatCommands: frozenset(each.name for each in fields(ChatCommands)),
    FleetLimits: frozenset(each.name for each in fields(FleetLimits)),
    Takeover: frozenset(["enabled", "silent_for"]),
    Sessions: frozenset(["valid_for"]),
    People: frozenset(["cached", "cached_for"]),
    ActivityTable: frozenset(["quiet", "at_once"]),
    AlertsTable: frozenset(each.name for each in fields(AlertsTable)) - {"enabled", "url", "secret"},
    Logs: frozenset(["level"]),
    BudgetTables: frozenset(),
    BudgetTable: frozenset(each.name for each in fields(BudgetTable)),
    **dict.fromkeys(
        (WebhookChannel, SlackChannel, WhatsAppMetaChannel, WhapiChannel, WatiChannel),
        frozenset(["paused", "flood", "flood_burst", "rate", "burst", "pause"]),
    ),
    WebChannel: frozenset(["paused", "flood", "flood_burst"]),
    TerminalChannel: frozenset(["paused"]),
    ClaudeHooksChannel: frozenset(["paused"]),
    EchoAgent: frozenset(["paused"]),
    CommandAgent: frozenset(["paused"]),
    HttpAgent: frozenset(["paused"]),
    ClaudeCodeAgent: frozenset(["paused"]),
    OpenAIAgent: frozenset(["paused"]),
    TranscriptsAgent: frozenset(["paused"]),
}
"""What can change while a process runs. All else is built into its parts when it starts."""


def keys(table: type[Table]) -> dict[str, Any]:
    """The single values of a table: the name of each, and its type."""
    return {each.name: each.type for each in fields(table) if not _is_part(each)}


def parts_in(table: type[Table]) -> list[str]:
    return [each.name for each in fields(table) if _is_part(each) and each.name not in {"sources", "read_from"}]


def _is_part(each: FieldInfo) -> bool:
    return each.name in _PARTS or (isinstance(each.type, type) and issubclass(each.type, Table))


def variable_for(key: str) -> str:
    """The environment variable of a dotted key: `TURNLANE_LANES_DEBOUNCE` for `lanes.debounce`."""
    return "TURNLANE_" + key.replace(".", "_").upper()


def variables() -> dict[str, str]:
    """Every environment variable that is read, with the dotted key it sets."""
    dotted = (".".join((*path, key)) for path, table in SECTIONS.items() for key in keys(table))
    return {variable_for(key): key for key in dotted}
