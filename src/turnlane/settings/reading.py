"""Reading: the file, the environment, the store and the command line become one checked value, or a list of problems.

A value is taken from the strongest place that gives it: command line, environment, store, file, default. What the store
holds was set while everything runs, and is read over the file by the same code (`with_stored`).
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from turnlane.errors import InvalidSettings
from turnlane.model.budget import SCOPES
from turnlane.settings.contradictions import contradictions_in
from turnlane.settings.shape import AT_RUN_TIME, SECTIONS, keys, parts_in, variable_for, variables
from turnlane.settings.tables import (
    AGENT_KINDS,
    CHANNEL_KINDS,
    ActivityTable,
    AlertsTable,
    AttachmentsTable,
    Backoff,
    BudgetTable,
    BudgetTables,
    ChatCommands,
    FleetLimits,
    Lanes,
    Logs,
    People,
    PriceTable,
    ReadFrom,
    Retention,
    Route,
    ScheduleTable,
    Sessions,
    Settings,
    Source,
    Table,
    Takeover,
    Traces,
    Transcribe,
)
from turnlane.settings.words import choices_of, decode, expected, holds_secret, or_rather, quoted, shown


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> Settings:
    """Read and check everything. `overrides` is the command line: dotted keys; None means not given.

    Raises InvalidSettings with one problem a line, each with its place and what to write instead.
    """
    file = {} if path is None else _read_toml(path)
    return _read(ReadFrom(file, path.name if path else "", dict(environ), overrides or {}))


def with_stored(settings: Settings, stored: Mapping[str, str]) -> Settings:
    """The same settings read again, with these over the file: dotted names of `changeable(settings)`, and texts.

    Raises InvalidSettings as `load` does.
    """
    if settings.read_from is None:
        raise InvalidSettings("the settings of this process were made in code; change them there")
    file = deepcopy(dict(settings.read_from.file))
    for name, text in stored.items():
        *path, key = name.split(".")
        _table_in(file, path, settings)[key] = _Stored(name, text)
    overlaid = _read(dataclasses.replace(settings.read_from, file=file))
    return msgspec.structs.replace(overlaid, read_from=settings.read_from)


def _read(read_from: ReadFrom) -> Settings:
    reader = _Reader(read_from)
    settings = reader.settings()
    problems = reader.problems or list(contradictions_in(settings))
    if problems:
        raise InvalidSettings("\n".join(problems))
    return settings


def changeable(settings: Settings) -> list[str]:
    """The names of all that can be set while everything runs. Of a route, by its channel, whether it has one or not."""
    tables = [(path, table) for path, table in SECTIONS.items() if table in AT_RUN_TIME]
    for group in ("channels", "agents"):
        tables += [((group, name), type(table)) for name, table in getattr(settings, group).items()]
    for channel in settings.channels:
        tables += [(("routes", channel), Lanes), (("routes", channel, "backoff"), Backoff)]
    return [".".join((*path, key)) for path, table in tables for key in keys(table) if key in AT_RUN_TIME[table]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    raw: object
    place: str
    source: Source


@dataclasses.dataclass(frozen=True, slots=True)
class _Stored:
    """Stands in the file where the store says something else."""

    name: str
    text: str


def _table_in(file: dict[str, Any], path: Sequence[str], settings: Settings) -> dict[str, Any]:
    """The table of the file that a name belongs to, made if the file does well without."""
    match path:
        case ["routes", channel, *rest]:
            routes = file.setdefault("routes", [])
            table = next((route for route in routes if route["channel"] == channel), None)
            if table is None:
                table = {"channel": channel}
                routes.append(table)
            path = rest
        case ["channels" | "agents" as group, name]:
            kinds = {each: {"kind": table.kind} for each, table in getattr(settings, group).items()}
            found: dict[str, Any] = (file.get(group) or file.setdefault(group, kinds))[name]
            return found
        case _:
            table = file
    for part in path:
        table = table.setdefault(part, {})
    return table


class _Missing(Exception):
    """The value cannot be had; the problem is already written down."""


_T = TypeVar("_T", bound=Table)


class _Reader:
    """Takes the sources apart and notes every problem it meets, so that one run shows them all."""

    def __init__(self, read_from: ReadFrom) -> None:
        self.read_from = read_from
        self.file = read_from.file
        self.file_name = read_from.file_name
        self.environ = read_from.environ
        self.overrides = read_from.overrides
        self.problems: list[str] = []
        self.sources: dict[str, Source] = {}
        self.named_variables: set[str] = set()

    def settings(self) -> Settings:
        values = self.section(())
        lanes_given = self.section(("lanes",))
        backoff_given = self.section(("lanes", "backoff"))
        values["lanes"] = _lanes(Lanes(), lanes_given, backoff_given)
        values["retention"] = Retention(**self.section(("retention",)))
        values["commands"] = ChatCommands(**self.section(("commands",)))
        values["limits"] = FleetLimits(**self.section(("limits",)))
        values["takeover"] = Takeover(**self.section(("takeover",)))
        values["activity"] = ActivityTable(**self.section(("activity",)))
        values["alerts"] = AlertsTable(**self.section(("alerts",)))
        values["logs"] = Logs(**self.section(("logs",)))
        values["traces"] = Traces(**self.section(("traces",)))
        values["people"] = People(**self.section(("people",)))
        values["sessions"] = Sessions(**self.section(("sessions",)))
        self.section(("budgets",))
        budgets = {scope: BudgetTable(**self.section(("budgets", scope))) for scope in SCOPES}
        values["budgets"] = BudgetTables(**budgets)
        values["prices"] = self.prices()
        transcribe = Transcribe(**self.section(("attachments", "transcribe")))
        values["attachments"] = AttachmentsTable(**self.section(("attachments",)), transcribe=transcribe)
        channels = self.named_tables("channels", CHANNEL_KINDS)
        agents = self.named_tables("agents", AGENT_KINDS)
        if channels:
            values["channels"] = channels
        if agents:
            values["agents"] = agents
        if not self.problems:
            known = (values.get("channels", Settings().channels), values.get("agents", Settings().agents))
            values["routes"] = tuple(self.routes(*known, lanes_given, backoff_given))
        values["schedules"] = tuple(self.schedules())
        self.refuse_mistyped_variables()
        return Settings(**values, sources=self.sources, read_from=self.read_from)

    def section(self, path: tuple[str, ...]) -> dict[str, Any]:
        """What is given for the keys of one table, from the strongest source that gives it."""
        table = SECTIONS[path]
        known = keys(table)
        prefix = f"[{'.'.join(path)}] " if path else ""
        given = self.from_file(self.table_at(path), prefix, known, parts=parts_in(table))
        for key in known:
            dotted = ".".join((*path, key))
            if variable := self.environ.get(variable_for(dotted)):  # An empty variable counts as not set.
                given[key] = _Given(variable, variable_for(dotted), "environment")
            if (option := self.overrides.get(dotted)) is not None:
                given[key] = _Given(option, "--" + dotted.replace("_", "-"), "command line")
        return self.converted(given, known, path)

    def table_at(self, path: tuple[str, ...]) -> Mapping[str, Any]:
        table = self.file
        for depth, part in enumerate(path, start=1):
            inner = table.get(part, {})
            if not isinstance(inner, dict):
                if depth == len(path):  # Said once, by the section of that very name.
                    self.problem(f"[{'.'.join(path)}]", f"expected a table, got {shown(inner)}")
                return {}
            table = inner
        return table

    def from_file(
        self, table: Mapping[str, Any], prefix: str, known: Mapping[str, Any], parts: Sequence[str] = ()
    ) -> dict[str, _Given]:
        """The known keys of a table of the file. Others are refused, unless they are `parts`: tables of their own."""
        given = {}
        for key, raw in table.items():
            place = f"{prefix}{key}"
            if isinstance(raw, _Stored):
                given[key] = _Given(raw.text, raw.name, "stored")
            elif key in known:
                given[key] = _Given(raw, self.in_file(place), "file")
            elif key not in parts:
                hint = or_rather(key, [*known, *parts]) or (not prefix and or_rather(key, keys(Lanes), "[lanes] {}"))
                self.problem(place, f"unknown key{hint or ''}")
        return given

    def converted(self, given: Mapping[str, _Given], known: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        values = {}
        for key, item in given.items():
            try:
                values[key] = self.convert(item, known[key])
            except _Missing:
                continue
            self.sources[".".join((*path, key))] = item.source
        return values

    def convert(self, given: _Given, kind: Any) -> Any:
        value = self.resolved(given.raw, given.place)
        from_variable = given.source != "file" or value is not given.raw
        try:
            return msgspec.convert(value, kind, strict=not from_variable, dec_hook=decode)
        except msgspec.ValidationError:
            # What stands behind { env = … } may be private, whatever key it was put in.
            hidden = given.source == "file" and from_variable
            got = "what the variable holds" if hidden else shown(value, secret=holds_secret(kind))
            hint = or_rather(value, choices_of(kind)) if isinstance(value, str) else ""
            self.problems.append(f"{given.place}: expected {expected(kind)}, got {got}{hint}")
            raise _Missing from None

    def resolved(self, raw: object, place: str) -> object:
        """The value, with every `{ env = "NAME" }` in it replaced by what the variable holds."""
        match raw:
            case {"env": str(name), **others} if not others:
                return self.variable(name, place)
            case dict() if any(isinstance(value, dict) for value in raw.values()):
                return {key: self.resolved(value, place) for key, value in raw.items()}
            case list() if any(isinstance(value, dict) for value in raw):
                return [self.resolved(value, place) for value in raw]
        return raw

    def variable(self, name: str, place: str) -> str:
        self.named_variables.add(name)
        value = self.environ.get(name)
        if not value:
            state = "empty" if value == "" else "not set"
            self.problems.append(f"{place}: the environment variable {name} is {state}; set it before you start")
            raise _Missing
        return value

    def named_tables(self, group: str, kinds: Mapping[str, type[_T]]) -> dict[str, _T]:
        tables = self.file.get(group, {})
        if not isinstance(tables, dict):
            self.problem(f"[{group}]", f"expected tables like [{group}.NAME], got {shown(tables)}")
            return {}
        read = {name: self.named_table(group, name, table, kinds) for name, table in tables.items()}
        return {name: table for name, table in read.items() if table is not None}

    def named_table(self, group: str, name: str, table: object, kinds: Mapping[str, type[_T]]) -> _T | None:
        place = f"[{group}.{name}]"
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
            self.problem(place, "a name has up to 64 of a-z, 0-9, _ and -, and begins with a letter or a digit")
            return None
        if not isinstance(table, dict):
            self.problem(place, f"expected a table, got {shown(table)}")
            return None
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            stated = "is missing" if kind is None else f"{shown(kind)} is not known"
            self.problem(f"{place} kind", f"{stated}; use one of {quoted(kinds)}{or_rather(str(kind), kinds)}")
            return None
        return self.item(kinds[kind], table, place, (group, name))

    def prices(self) -> dict[str, PriceTable]:
        """By model, or the beginning of its name; `*` is any other."""
        tables = self.file.get("prices", {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            self.problem("[prices]", 'expected tables like [prices."MODEL"] with the price of a million tokens')
            return {}
        read = {
            name: self.item(PriceTable, table, f"[prices.{name}]", ("prices", name)) for name, table in tables.items()
        }
        return {name: table for name, table in read.items() if table is not None}

    def item(self, kind: type[_T], table: Mapping[str, Any], place: str, path: tuple[str, ...]) -> _T | None:
        known = keys(kind)
        values = self.converted(self.from_file(table, f"{place} ", known), known, path)
        required = [each for each in fields(kind) if each.required]
        for each in required:
            if each.name not in table:
                self.problem(f"{place} {each.name}", f"is missing; give {expected(each.type)}")
        return kind(**values) if all(each.name in values for each in required) else None

    def routes(
        self,
        channels: Mapping[str, Any],
        agents: Mapping[str, Any],
        lanes_given: Mapping[str, Any],
        backoff_given: Mapping[str, Any],
    ) -> Iterator[Route]:
        for number, table in enumerate(self.list_of_tables("routes"), start=1):
            place, path = f"[[routes]] {number}", ("routes", str(table.get("channel", number)))
            given = self.route_values(table, place, path)
            backoff = self.route_backoff(table, place, path)
            self.check_name(given, "channel", channels, place)
            self.check_name(given, "agent", agents, place)
            if "channel" in given and (agent := given.pop("agent", next(iter(agents)))):
                lanes = _lanes(Lanes(), {**lanes_given, **given}, {**backoff_given, **backoff})
                yield Route(channel=given["channel"], agent=agent, lanes=lanes)

    def schedules(self) -> Iterator[ScheduleTable]:
        for number, table in enumerate(self.list_of_tables("schedules"), start=1):
            item = self.item(ScheduleTable, table, f"[[schedules]] {number}", ("schedules", str(number)))
            if item is not None:
                yield item

    def list_of_tables(self, name: str) -> Sequence[Mapping[str, Any]]:
        tables = self.file.get(name, [])
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            return tables
        self.problem(name, f"expected a list of tables; write [[{name}]] with two brackets")
        return ()

    def route_values(self, table: Mapping[str, Any], place: str, path: tuple[str, ...]) -> dict[str, Any]:
        known = {"channel": str, "agent": str, **keys(Lanes)}
        if "lease" in table:
            self.problem(f"{place} lease", "belongs to the worker, which runs all routes; set it in [lanes]")
        return self.converted(self.from_file(table, f"{place} ", known, parts=parts_in(Lanes)), known, path)

    def route_backoff(self, table: Mapping[str, Any], place: str, path: tuple[str, ...]) -> dict[str, Any]:
        backoff = table.get("backoff", {})
        if not isinstance(backoff, dict):
            self.problem(f"{place} backoff", f"expected a table, got {shown(backoff)}")
            return {}
        given = self.from_file(backoff, f"{place} backoff.", keys(Backoff))
        return self.converted(given, keys(Backoff), (*path, "backoff"))

    def check_name(self, given: Mapping[str, Any], key: str, names: Mapping[str, Any], place: str) -> None:
        if key not in given:
            if key == "channel" or len(names) > 1:
                self.problem(f"{place} {key}", f"is missing; give one of {quoted(names)}")
        elif given[key] not in names:
            hint = or_rather(given[key], names) or f"; there is {quoted(names)}"
            self.problem(f"{place} {key}", f"no {key} {given[key]!r}{hint}")

    def refuse_mistyped_variables(self) -> None:
        """What begins with TURNLANE_ and is almost a setting is a mistake; the rest may be somebody else's."""
        known = {name.removeprefix("TURNLANE_"): name for name in variables()}
        for name in self.environ:
            prefix, found, rest = name.partition("TURNLANE_")
            if prefix or not found or rest in known or name in self.named_variables:
                continue
            if hint := or_rather(rest, known, "TURNLANE_{}", cutoff=0.85):
                self.problems.append(f"{name}: unknown variable{hint}")

    def problem(self, place: str, text: str) -> None:
        self.problems.append(f"{self.in_file(place)}: {text}")

    def in_file(self, place: str) -> str:
        return f"{self.file_name}: {place}"


def _lanes(base: Lanes, given: Mapping[str, Any], backoff: Mapping[str, Any]) -> Lanes:
    """Whichever of debounce and max_wait is given alone pulls the other's default with it."""
    values = {key: value for key, value in given.items() if key != "channel"}
    if "max_wait" not in values:
        values["max_wait"] = max(base.max_wait, values.get("debounce", base.debounce))
    elif "debounce" not in values:
        values["debounce"] = min(base.debounce, values["max_wait"])
    return Lanes(**values, backoff=Backoff(**backoff))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{path.name} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{path.name} is not UTF-8 text; save it as UTF-8") from None
    except FileNotFoundError:
        raise InvalidSettings(f"there is no file {path}; write one with `turnlane init --config {path}`") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from None
