"""Settings: turnlane.toml, the environment and the command line become one checked value, or a list of what to change.

Every table is a Struct below and every key a field of it, so defaults and types are written down once. A value is taken
from the strongest place that gives it: command line, environment, store, file, default. What the store holds was set
while everything runs, and is read over the file by the same code (`with_stored`).
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import FieldInfo, fields

from turnlane.agents.claude_code.options import INHERITED, PROGRAM, Options
from turnlane.errors import InvalidSchedule, InvalidSettings, NotFound
from turnlane.model import policy
from turnlane.model.budget import SCOPES, Budget, Budgets
from turnlane.model.command import Command, Commands
from turnlane.model.limits import Limits, Pauses
from turnlane.model.message import channel_of, key_written
from turnlane.model.policy import LATER, NORMAL, URGENT, Ack, OnAsk, OnBusy, OnFull, OnUnknown, Policy, Priority
from turnlane.model.schedule import MISSED_MAX, Missed, Schedule
from turnlane.model.usage import Price

Source = Literal["command line", "environment", "stored", "file", "default"]

# Values that TOML has no type for.


class Duration(int):
    """Milliseconds, written with a unit: "250ms", "3s", "15m", "2h", "1d", "1m30s"."""

    _UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    _TEXT = re.compile(r"(?:\d{1,15}(?:ms|s|m|h|d))+")
    _PART = re.compile(r"(\d+)(ms|s|m|h|d)")
    _MOST = 36_500 * 86_400_000

    @classmethod
    def parse(cls, text: object) -> Duration:
        if not isinstance(text, str) or not cls._TEXT.fullmatch(text):
            raise ValueError("not a duration")
        units = dict(cls._UNITS)
        total = sum(int(count) * units[unit] for count, unit in cls._PART.findall(text))
        if total > cls._MOST:
            raise ValueError("longer than a century")
        return cls(total)

    @property
    def ms(self) -> int:
        return int(self)

    @property
    def seconds(self) -> float:
        return self / 1_000

    def __str__(self) -> str:
        rest, text = int(self), ""
        for unit, size in self._UNITS:
            count, rest = divmod(rest, size)
            text += f"{count}{unit}" if count else ""
        return text or "0s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class Secret:
    """A text that prints as `***`. Deliberately no `str`: whoever needs what is inside says `reveal()`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, text: object) -> Secret:
        if not isinstance(text, str) or not text.strip():
            raise ValueError("not a secret")
        return cls(text)

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Url(str):
    """Where to post to: http or https, with a host."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Url:
        if not isinstance(text, str) or not text.isprintable() or " " in text:
            raise ValueError("not a URL")
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
            raise ValueError("not a URL")
        return cls(text)


class Rate(str):
    """How many in which time: "1/s", "20/m", "500/h"."""

    __slots__ = ()
    _TEXT = re.compile(r"([1-9]\d{0,6})/(s|m|h|d)")
    _UNITS: ClassVar[Mapping[str, int]] = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    @classmethod
    def parse(cls, text: object) -> Rate:
        match = cls._TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) > cls._UNITS[match[2]]:
            raise ValueError("not a rate")
        return cls(match[0])

    @property
    def every_ms(self) -> int:
        """The time for one of them, rounded up: rather too slow than too fast."""
        count, _, unit = self.partition("/")
        return -(-self._UNITS[unit] // int(count))


class Address(str):
    """Where to listen: "127.0.0.1:8484", "localhost:8484", "[::1]:8484"; port 0 takes any that is free."""

    __slots__ = ()
    _TEXT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")

    @classmethod
    def parse(cls, text: object) -> Address:
        match = cls._TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[2]) > 65_535:
            raise ValueError("not an address")
        if match[1].startswith("["):
            ip_address(match[1][1:-1])
        return cls(match[0])

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])

    @property
    def is_loopback(self) -> bool:
        """Only the person at this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # A host name may point anywhere.
            return False


class Hosts(tuple[str, ...]):
    """Names of hosts, in a list or with commas between them: a name, `*.` and a name, or either an address or a name
    with its port."""

    __slots__ = ()
    _TEXT = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?P<port>:\d{1,5})?|\[[0-9a-f:.]+\]:\d{1,5}")

    @classmethod
    def parse(cls, given: object) -> Hosts:
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else given
        if not isinstance(names, list):
            raise ValueError("not a list of hosts")
        for name in names:
            match = cls._TEXT.fullmatch(name.casefold()) if isinstance(name, str) else None
            if match is None or (name.startswith("*") and match["port"]):
                raise ValueError("not a host")
        return cls(names)


class Words(tuple[str, ...]):
    """A program and its arguments: a list, or in a variable one text with quotes as in a shell."""

    __slots__ = ()

    @classmethod
    def parse(cls, given: object) -> Words:
        words = shlex.split(given) if isinstance(given, str) else given
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise ValueError("not a command")
        return cls(words)


Count = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000")]
Bytes = Annotated[int, Meta(ge=1, le=100_000_000, description="a whole number from 1 to 100000000")]
Temperature = Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")]
Factor = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Tokens = Annotated[int, Meta(ge=0, le=10**15, description="a whole number of tokens")]
Money = Annotated[float, Meta(ge=0, le=10**9, description="an amount of money, such as 2.5")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000, description="a number greater than 0")]
Names = Annotated[list[str], Meta(description='a list of texts, like ["Read", "Grep"]')]
Argv = Annotated[list[str], Meta(min_length=1, description='a list like ["python3", "agent.py"]')]

PRIORITIES: Mapping[str, Priority] = {"urgent": URGENT, "normal": NORMAL, "later": LATER}

# The tables of turnlane.toml.


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a table of the file may hold. A field without a default must be given."""


class Backoff(Table, frozen=True, kw_only=True):
    first: Duration = Duration.parse("1s")
    factor: Factor = 2.0
    most: Duration = Duration.parse("5m")


class Lanes(Table, frozen=True, kw_only=True):
    debounce: Duration = Duration.parse("3s")
    """Given alone, a longer one takes `max_wait` with it, so that any window works by itself."""
    max_wait: Duration = Duration.parse("15s")
    max_batch: Count = 50
    on_busy: OnBusy = "collect"
    idle_after: Duration = Duration.parse("60s")
    max_pending: Count = 100
    on_full: OnFull = "store"
    priority: Literal["urgent", "normal", "later"] = "normal"
    lease: Duration = Duration.parse("30s")
    turn_deadline: Duration = Duration.parse("10m")
    attempts: Count = 3
    takeovers: CountOrNone = 10
    ack: Ack = "commit"
    deliver_for: Duration = Duration.parse("24h")
    on_unknown: OnUnknown = "resend"
    on_ask: OnAsk = "set_aside"
    session_wait: Duration = Duration.parse("30s")
    backoff: Backoff = Backoff()


class FleetLimits(Table, frozen=True, kw_only=True):
    """How many turns may run at once in all processes together."""

    all: Count | None = None
    per_channel: Count | None = None
    per_agent: Count | None = None
    per_user: Count | None = None


class BudgetTable(Table, frozen=True, kw_only=True):
    """How much may be spent; of tokens and money, whichever is used up first."""

    tokens: Tokens | None = None
    cost: Money | None = None
    warn: Share = 0.8
    stop: bool = True

    @property
    def budget(self) -> Budget | None:
        if self.tokens is None and self.cost is None:
            return None
        return Budget(self.tokens, None if self.cost is None else round(self.cost * 1_000_000), self.warn, self.stop)


class BudgetTables(Table, frozen=True, kw_only=True):
    """Of one session as long as it lasts; and of one user, one channel, or everything, on one day."""

    session: BudgetTable = BudgetTable()
    user: BudgetTable = BudgetTable()
    channel: BudgetTable = BudgetTable()
    day: BudgetTable = BudgetTable()


class Sessions(Table, frozen=True, kw_only=True):
    valid_for: Duration = Duration.parse("30m")


class People(Table, frozen=True, kw_only=True):
    cached: Count = 1_000
    cached_for: Duration = Duration.parse("12h")


class ActivityTable(Table, frozen=True, kw_only=True):
    """Where to report what people did, and how late."""

    url: Url | None = None
    secret: Secret | None = None
    quiet: Duration = Duration.parse("2m")
    at_once: Tokens = 1_000


class PriceTable(Table, frozen=True, kw_only=True):
    """Of a million tokens, in whatever money you count."""

    input: Money
    output: Money
    cached: Money | None = None


class ChatCommands(Table, frozen=True, kw_only=True):
    """The word for each. An empty one switches it off."""

    enabled: bool = True
    stop: str = "/stop"
    new: str = "/new"
    status: str = "/status"
    usage: str = "/usage"
    pause: str = "/pause"
    resume: str = "/resume"

    @property
    def by_word(self) -> Commands:
        names: tuple[Command, ...] = get_args(Command)
        words = {getattr(self, name).strip().casefold(): name for name in names if self.enabled}
        return {word: name for word, name in words.items() if word}


class Takeover(Table, frozen=True, kw_only=True):
    """What it means for the agent that a person of the business writes in a conversation."""

    enabled: bool = True
    silent_for: Duration = Duration.parse("1h")

    @property
    def ms(self) -> int:
        return self.silent_for.ms if self.enabled else 0


class Retention(Table, frozen=True, kw_only=True):
    messages: Duration = Duration.parse("90d")
    events: Duration = Duration.parse("7d")
    dedupe_for: Duration = Duration.parse("30d")


class Transcribe(Table, frozen=True, kw_only=True):
    """Who makes text of voice messages: a program, or a service."""

    command: Words | None = None
    url: Url | None = None
    model: str | None = None
    api_key: Secret | None = None

    @property
    def is_wanted(self) -> bool:
        return self != Transcribe()

    @property
    def is_complete(self) -> bool:
        if self.command is not None:
            return (self.url, self.model, self.api_key) == (None, None, None)
        return self.url is not None and self.model is not None


class AttachmentsTable(Table, frozen=True, kw_only=True):
    """What is fetched for agents of what comes with messages."""

    hosts: Hosts = Hosts()
    file_bytes_max: Bytes = 10_000_000
    total_bytes_max: Bytes = 20_000_000
    timeout: Duration = Duration.parse("30s")
    transcribe: Transcribe = Transcribe()


class WebhookChannel(Table, frozen=True, kw_only=True):
    kind: Literal["webhook"] = "webhook"
    paused: bool = False
    secret: Secret | None = None
    reply_url: Url | None = None
    lookup_url: Url | None = None
    rate: Rate | None = None
    burst: Count = 1


class WebChannel(Table, frozen=True, kw_only=True):
    kind: Literal["web"] = "web"
    paused: bool = False
    public: bool = False
    """Whether the chat page is served where others can reach it, too."""


class TerminalChannel(Table, frozen=True, kw_only=True):
    kind: Literal["terminal"] = "terminal"
    paused: bool = False


class EchoAgent(Table, frozen=True, kw_only=True):
    kind: Literal["echo"] = "echo"
    paused: bool = False


class CommandAgent(Table, frozen=True, kw_only=True):
    kind: Literal["command"] = "command"
    paused: bool = False
    command: Argv
    cwd: str | None = None
    env: dict[str, Secret] = field(default_factory=dict)
    sessions: Literal["shared", "local"] = "shared"


class HttpAgent(Table, frozen=True, kw_only=True):
    kind: Literal["http"] = "http"
    paused: bool = False
    url: Url
    headers: dict[str, Secret] = field(default_factory=dict)
    timeout: Duration = Duration.parse("10m")


class ClaudeCodeAgent(Table, frozen=True, kw_only=True):
    kind: Literal["claude_code"] = "claude_code"
    paused: bool = False
    command: Argv = field(default_factory=lambda: [PROGRAM])
    model: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    allowed_tools: Names = field(default_factory=list)
    disallowed_tools: Names = field(default_factory=list)
    permission_mode: Literal["default", "acceptEdits", "dontAsk", "plan", "bypassPermissions"] | None = None
    max_turns: Count | None = None
    budget_usd: Dollars | None = None
    cwd: str | None = None
    config_dir: str | None = None
    settings: str | None = None
    setting_sources: Names = field(default_factory=list)
    mcp_config: str | None = None
    env: dict[str, Secret] = field(default_factory=dict)
    inherit_env: Names = field(default_factory=lambda: list(INHERITED))
    timeout: Duration | None = None
    tell_when_forgotten: str | None = None
    extra_args: Names = field(default_factory=list)

    @property
    def options(self) -> Options:
        given = {each.name: getattr(self, each.name) for each in fields(type(self))}
        del given["kind"], given["paused"]
        given["env"] = {name: value.reveal() for name, value in self.env.items()}
        given["timeout"] = None if self.timeout is None else self.timeout.seconds
        return Options(**given)


class OpenAIAgent(Table, frozen=True, kw_only=True):
    kind: Literal["openai"] = "openai"
    paused: bool = False
    model: str
    api: Literal["conversations", "chat"] | None = None
    api_key: Secret | None = None
    base_url: Url = Url("https://api.openai.com/v1")
    instructions: str | None = None
    temperature: Temperature | None = None
    max_output_tokens: Count | None = None
    timeout: Duration = Duration.parse("10m")
    history_turns: CountOrNone = 20
    history_characters: Count = 100_000
    extra: dict[str, Any] = field(default_factory=dict)


ChannelSettings = WebhookChannel | WebChannel | TerminalChannel
AgentSettings = EchoAgent | CommandAgent | HttpAgent | ClaudeCodeAgent | OpenAIAgent

CHANNEL_KINDS: Mapping[str, type[ChannelSettings]] = {
    "webhook": WebhookChannel,
    "web": WebChannel,
    "terminal": TerminalChannel,
}
AGENT_KINDS: Mapping[str, type[AgentSettings]] = {
    "echo": EchoAgent,
    "command": CommandAgent,
    "http": HttpAgent,
    "claude_code": ClaudeCodeAgent,
    "openai": OpenAIAgent,
}


class Route(Table, frozen=True, kw_only=True):
    """Which agent answers a channel, and how its lanes behave: [lanes] with what the route overrides."""

    channel: str
    agent: str
    lanes: Lanes


class ScheduleTable(Table, frozen=True, kw_only=True):
    """What is said in a conversation by the clock."""

    name: str
    conversation: str
    prompt: str
    cron: str | None = None
    zone: str = "UTC"
    every: Duration | None = None
    missed: Missed = "once"
    missed_max: Count = MISSED_MAX
    enabled: bool = True

    @property
    def schedule(self) -> Schedule:
        return Schedule(
            self.name,
            key_written(self.conversation),
            self.prompt,
            self.cron,
            self.zone,
            None if self.every is None else self.every.ms,
            self.missed,
            self.missed_max,
            self.enabled,
            by="file",
        )


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ReadFrom:
    """What settings were read from, to be read again with what the store holds. May hold secrets."""

    # Settings that say the same are the same, wherever it was read.
    file: Mapping[str, Any] = dataclasses.field(compare=False)
    file_name: str = dataclasses.field(compare=False)
    environ: Mapping[str, str] = dataclasses.field(compare=False)
    overrides: Mapping[str, object] = dataclasses.field(compare=False)


class Settings(Table, frozen=True, kw_only=True):
    backend: str = "sqlite:///turnlane.db"
    backend_wait: Duration = Duration.parse("30s")
    listen: Address = Address("127.0.0.1:8484")
    turns_at_once: Count = 5
    sends_at_once: Count = 20
    drain: Duration = Duration.parse("30s")
    paused: bool = False
    machine: str | None = None
    operator_token: Secret | None = None
    update_user_secret: Secret | None = None
    log_format: Literal["human", "json"] = "human"
    lanes: Lanes = Lanes()
    retention: Retention = Retention()
    commands: ChatCommands = ChatCommands()
    limits: FleetLimits = FleetLimits()
    takeover: Takeover = Takeover()
    sessions: Sessions = Sessions()
    people: People = People()
    activity: ActivityTable = ActivityTable()
    budgets: BudgetTables = BudgetTables()
    prices: Mapping[str, PriceTable] = field(default_factory=dict)
    attachments: AttachmentsTable = AttachmentsTable()
    channels: Mapping[str, ChannelSettings] = field(default_factory=lambda: {"web": WebChannel()})
    agents: Mapping[str, AgentSettings] = field(default_factory=lambda: {"echo": EchoAgent()})
    routes: tuple[Route, ...] = ()
    schedules: tuple[ScheduleTable, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Where each value came from that is not a default, by its dotted key."""
    read_from: ReadFrom | None = None
    """None: made in code, which nothing at run time changes."""


_PARTS = frozenset(["prices", "channels", "agents", "routes", "schedules", "sources", "read_from"])
"""Fields that hold tables by name or number (or no setting at all), not single values."""

_SECTIONS: Mapping[tuple[str, ...], type[Table]] = {
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
    ("budgets",): BudgetTables,
    **{("budgets", scope): BudgetTable for scope in SCOPES},
    ("attachments",): AttachmentsTable,
    ("attachments", "transcribe"): Transcribe,
}
"""The tables that every source can set; channels, agents, routes and schedules live in the file."""

_AT_RUN_TIME: Mapping[type[Table], frozenset[str]] = {
    Settings: frozenset(["paused"]),
    Lanes: frozenset(each.name for each in fields(Lanes)) - {"backoff", "lease", "idle_after"},
    Backoff: frozenset(["first", "factor", "most"]),
    ChatCommands: frozenset(each.name for each in fields(ChatCommands)),
    FleetLimits: frozenset(each.name for each in fields(FleetLimits)),
    Takeover: frozenset(["enabled", "silent_for"]),
    Sessions: frozenset(["valid_for"]),
    People: frozenset(["cached", "cached_for"]),
    ActivityTable: frozenset(["quiet", "at_once"]),
    BudgetTables: frozenset(),
    BudgetTable: frozenset(each.name for each in fields(BudgetTable)),
    WebhookChannel: frozenset(["paused", "rate", "burst"]),
    WebChannel: frozenset(["paused"]),
    TerminalChannel: frozenset(["paused"]),
    EchoAgent: frozenset(["paused"]),
    CommandAgent: frozenset(["paused"]),
    HttpAgent: frozenset(["paused"]),
    ClaudeCodeAgent: frozenset(["paused"]),
    OpenAIAgent: frozenset(["paused"]),
}
"""What can change while a process runs. All else is built into its parts when it starts."""


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
    problems = reader.problems or list(_contradictions(settings))
    if problems:
        raise InvalidSettings("\n".join(problems))
    return settings


def changeable(settings: Settings) -> list[str]:
    """The names of all that can be set while everything runs. Of a route, by its channel, whether it has one or not."""
    tables = [(path, table) for path, table in _SECTIONS.items() if table in _AT_RUN_TIME]
    for group in ("channels", "agents"):
        tables += [((group, name), type(table)) for name, table in getattr(settings, group).items()]
    for channel in settings.channels:
        tables += [(("routes", channel), Lanes), (("routes", channel, "backoff"), Backoff)]
    return [".".join((*path, key)) for path, table in tables for key in keys(table) if key in _AT_RUN_TIME[table]]


def limits_of(settings: Settings) -> Limits:
    limits = settings.limits
    channels, agents = (
        frozenset(name for name, table in tables.items() if table.paused)
        for tables in (settings.channels, settings.agents)
    )
    pauses = Pauses(settings.paused, channels, agents) if settings.paused or channels or agents else None
    return Limits(limits.all, limits.per_channel, limits.per_agent, limits.per_user, pauses)


def budgets_of(settings: Settings) -> Budgets:
    return Budgets(*(getattr(settings.budgets, scope).budget for scope in SCOPES))


def prices_of(settings: Settings) -> dict[str, Price]:
    return {model: Price(price.input, price.output, price.cached) for model, price in settings.prices.items()}


def schedules_of(settings: Settings) -> list[Schedule]:
    return [table.schedule for table in settings.schedules]


def policy_for(settings: Settings, channel: str) -> Policy:
    """The policy that a message of this channel stamps on its lane. The first matching route wins."""
    if channel not in settings.channels:
        raise NotFound(f"no channel {channel!r} in the settings{_or_rather(channel, settings.channels)}")
    lanes, agent = settings.lanes, next(iter(settings.agents))
    for route in settings.routes:
        if route.channel == channel:
            lanes, agent = route.lanes, route.agent
            break
    return policy_of(lanes, settings.takeover, agent=agent, tenant=channel, channel=settings.channels[channel])


def policy_of(
    lanes: Lanes, takeover: Takeover, *, agent: str, tenant: str, channel: ChannelSettings | None = None
) -> Policy:
    paced = channel if isinstance(channel, WebhookChannel) else WebhookChannel()
    return Policy(
        agent=agent,
        tenant=tenant,
        on_busy=lanes.on_busy,
        on_full=lanes.on_full,
        priority=PRIORITIES[lanes.priority],
        debounce_ms=lanes.debounce.ms,
        max_wait_ms=lanes.max_wait.ms,
        max_batch=lanes.max_batch,
        max_pending=lanes.max_pending,
        turn_deadline_ms=lanes.turn_deadline.ms,
        attempts=lanes.attempts,
        takeovers=lanes.takeovers,
        ack=lanes.ack,
        backoff=policy.Backoff(lanes.backoff.first.ms, lanes.backoff.factor, lanes.backoff.most.ms),
        deliver_for_ms=lanes.deliver_for.ms,
        on_unknown=lanes.on_unknown,
        send_every_ms=paced.rate.every_ms if paced.rate else 0,
        send_burst=paced.burst,
        on_ask=lanes.on_ask,
        session_wait_ms=lanes.session_wait.ms,
        takeover_ms=takeover.ms,
    )


Plain = str | bool | int | float | list[str] | dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """One effective value, in the form that the file would have it, and where it came from."""

    key: str
    value: Plain
    source: Source


def describe(settings: Settings) -> list[Described]:
    """Every effective value, secrets masked."""
    found: dict[str, object] = {}
    for path in _SECTIONS:
        table: Any = settings
        for part in path:
            table = getattr(table, part)
        found |= _values_of(table, path)
    for group in ("channels", "agents"):
        for name, table in getattr(settings, group).items():
            found |= _values_of(table, (group, name))
    for name, price in settings.prices.items():
        found |= _values_of(price, ("prices", name))
    for route in settings.routes:
        name = route.channel
        if f"routes.{name}.channel" in found:
            continue  # of two for one channel, the first counts
        found |= {f"routes.{name}.channel": name, f"routes.{name}.agent": route.agent}
        overridden = _values_of(route.lanes, ("routes", name))
        overridden |= _values_of(route.lanes.backoff, ("routes", name, "backoff"))
        found |= {key: value for key, value in overridden.items() if key in settings.sources}
    for number, table in enumerate(settings.schedules, start=1):
        found |= _values_of(table, ("schedules", str(number)))
    found["backend"] = without_password(settings.backend)
    return [Described(key, _plain(value), settings.sources.get(key, "default")) for key, value in found.items()]


def keys(table: type[Table]) -> dict[str, Any]:
    """The single values of a table: the name of each, and its type."""
    return {each.name: each.type for each in fields(table) if not _is_part(each)}


def _parts(table: type[Table]) -> list[str]:
    return [each.name for each in fields(table) if _is_part(each) and each.name not in {"sources", "read_from"}]


def _is_part(each: FieldInfo) -> bool:
    return each.name in _PARTS or (isinstance(each.type, type) and issubclass(each.type, Table))


def variable_for(key: str) -> str:
    """The environment variable of a dotted key: `TURNLANE_LANES_DEBOUNCE` for `lanes.debounce`."""
    return "TURNLANE_" + key.replace(".", "_").upper()


def variables() -> dict[str, str]:
    """Every environment variable that is read, with the dotted key it sets."""
    dotted = (".".join((*path, key)) for path, table in _SECTIONS.items() for key in keys(table))
    return {variable_for(key): key for key in dotted}


def without_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", url)


def _values_of(table: Table, path: tuple[str, ...]) -> dict[str, object]:
    return {".".join((*path, key)): getattr(table, key) for key in keys(type(table))}


def _plain(value: Any) -> Plain:
    match value:
        case Duration() | Secret() | Address():
            return str(value)
        case Url():
            return re.sub(r"\?.*", "?***", without_password(value))
        case Hosts() | Words():
            return list(value)
        case dict():
            return {key: str(each) for key, each in value.items()}
    return value  # type: ignore[no-any-return]


# Reading.


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
        table = _SECTIONS[path]
        known = keys(table)
        prefix = f"[{'.'.join(path)}] " if path else ""
        given = self.from_file(self.table_at(path), prefix, known, parts=_parts(table))
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
                    self.problem(f"[{'.'.join(path)}]", f"expected a table, got {_shown(inner)}")
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
                hint = _or_rather(key, [*known, *parts]) or (not prefix and _or_rather(key, keys(Lanes), "[lanes] {}"))
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
            return msgspec.convert(value, kind, strict=not from_variable, dec_hook=_decode)
        except msgspec.ValidationError:
            # What stands behind { env = … } may be private, whatever key it was put in.
            hidden = given.source == "file" and from_variable
            got = "what the variable holds" if hidden else _shown(value, secret=_holds_secret(kind))
            hint = _or_rather(value, _choices(kind)) if isinstance(value, str) else ""
            self.problems.append(f"{given.place}: expected {_expected(kind)}, got {got}{hint}")
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
            self.problem(f"[{group}]", f"expected tables like [{group}.NAME], got {_shown(tables)}")
            return {}
        read = {name: self.named_table(group, name, table, kinds) for name, table in tables.items()}
        return {name: table for name, table in read.items() if table is not None}

    def named_table(self, group: str, name: str, table: object, kinds: Mapping[str, type[_T]]) -> _T | None:
        place = f"[{group}.{name}]"
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
            self.problem(place, "a name has up to 64 of a-z, 0-9, _ and -, and begins with a letter or a digit")
            return None
        if not isinstance(table, dict):
            self.problem(place, f"expected a table, got {_shown(table)}")
            return None
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            stated = "is missing" if kind is None else f"{_shown(kind)} is not known"
            self.problem(f"{place} kind", f"{stated}; use one of {_quoted(kinds)}{_or_rather(str(kind), kinds)}")
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
                self.problem(f"{place} {each.name}", f"is missing; give {_expected(each.type)}")
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
        return self.converted(self.from_file(table, f"{place} ", known, parts=_parts(Lanes)), known, path)

    def route_backoff(self, table: Mapping[str, Any], place: str, path: tuple[str, ...]) -> dict[str, Any]:
        backoff = table.get("backoff", {})
        if not isinstance(backoff, dict):
            self.problem(f"{place} backoff", f"expected a table, got {_shown(backoff)}")
            return {}
        given = self.from_file(backoff, f"{place} backoff.", keys(Backoff))
        return self.converted(given, keys(Backoff), (*path, "backoff"))

    def check_name(self, given: Mapping[str, Any], key: str, names: Mapping[str, Any], place: str) -> None:
        if key not in given:
            if key == "channel" or len(names) > 1:
                self.problem(f"{place} {key}", f"is missing; give one of {_quoted(names)}")
        elif given[key] not in names:
            hint = _or_rather(given[key], names) or f"; there is {_quoted(names)}"
            self.problem(f"{place} {key}", f"no {key} {given[key]!r}{hint}")

    def refuse_mistyped_variables(self) -> None:
        """What begins with TURNLANE_ and is almost a setting is a mistake; the rest may be somebody else's."""
        known = {name.removeprefix("TURNLANE_"): name for name in variables()}
        for name in self.environ:
            prefix, found, rest = name.partition("TURNLANE_")
            if prefix or not found or rest in known or name in self.named_variables:
                continue
            if hint := _or_rather(rest, known, "TURNLANE_{}", cutoff=0.85):
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


# Contradictions: each value is fine by itself.

_AT_LEAST = Duration.parse("1s")


def _contradictions(settings: Settings) -> Iterator[str]:
    yield from _lanes_contradictions("[lanes]", settings.lanes)
    for number, route in enumerate(settings.routes, start=1):
        if route.lanes != settings.lanes:
            yield from _lanes_contradictions(f"[[routes]] {number}", route.lanes)
    yield from _too_short("[retention]", settings.retention, keys(Retention))
    if "://" not in settings.backend:
        yield f'backend: expected a URL like "sqlite:///turnlane.db", got {_shown(settings.backend)}'
    yield from _unrouted(settings)
    yield from _unkeepable_schedules(settings)
    if settings.attachments.transcribe.is_wanted and not settings.attachments.transcribe.is_complete:
        yield '[attachments.transcribe]: give either command = ["whisper", "{file}"], or url and model'
    yield from _unusable_secrets(settings)
    yield from _unusable_options(settings)
    yield from _exposed(settings)


def _lanes_contradictions(place: str, lanes: Lanes) -> Iterator[str]:
    yield from _too_short(place, lanes, ["lease", "turn_deadline", "idle_after", "deliver_for"])
    if lanes.debounce > lanes.max_wait:
        yield (
            f'{place} debounce: "{lanes.debounce}" is longer than max_wait = "{lanes.max_wait}", which cuts it off; '
            "raise max_wait or lower debounce"
        )
    if lanes.backoff.first > lanes.backoff.most:
        yield f'{place} backoff: first = "{lanes.backoff.first}" is longer than most = "{lanes.backoff.most}"'


def _too_short(place: str, table: Table, durations: Iterable[str]) -> Iterator[str]:
    for key in durations:
        if getattr(table, key) < _AT_LEAST:
            yield f'{place} {key}: must be at least "{_AT_LEAST}", is "{getattr(table, key)}"'


def _unrouted(settings: Settings) -> Iterator[str]:
    if len(settings.agents) == 1:
        return
    routed = {route.channel for route in settings.routes}
    for channel in settings.channels:
        if channel not in routed:
            yield (
                f"[channels.{channel}]: there are several agents ({_quoted(settings.agents)}) and no route says which "
                f'answers here; add [[routes]] with channel = "{channel}" and agent'
            )


def _unkeepable_schedules(settings: Settings) -> Iterator[str]:
    names: set[str] = set()
    for number, table in enumerate(settings.schedules, start=1):
        place, schedule = f"[[schedules]] {number}", table.schedule
        try:
            schedule.check()
        except InvalidSchedule as error:
            yield f"{place}: {error}"
            continue
        channel = channel_of(schedule.conversation)
        if channel not in settings.channels:
            hint = _or_rather(channel, settings.channels) or f"; there is {_quoted(settings.channels)}"
            yield f"{place} conversation: no channel {channel!r}{hint}"
        if schedule.name in names:
            yield f"{place} name: there is another schedule {schedule.name!r}; give each a name of its own"
        names.add(schedule.name)


def _unusable_secrets(settings: Settings) -> Iterator[str]:
    """Asked of the channel itself, before it is built, while the place is still known."""
    from turnlane.channels.secret import Secret as HookSecret

    for name, channel in settings.channels.items():
        if isinstance(channel, WebhookChannel) and channel.secret is not None:
            try:
                HookSecret(channel.secret.reveal())
            except InvalidSettings as error:
                yield f"[channels.{name}] secret: {error}"


def _unusable_options(settings: Settings) -> Iterator[str]:
    for name, agent in settings.agents.items():
        if isinstance(agent, ClaudeCodeAgent):
            try:
                agent.options.check()
            except InvalidSettings as error:
                yield f"[agents.{name}] {error}"


def _exposed(settings: Settings) -> Iterator[str]:
    """Bound to loopback all is open to the person at the machine; bound to anything else it needs its secrets."""
    if settings.listen.is_loopback:
        return
    if settings.operator_token is None:
        yield (
            f"listen: {settings.listen} can be reached by others, so an operator_token is needed; "
            'set operator_token = { env = "…" } or TURNLANE_OPERATOR_TOKEN, or listen on 127.0.0.1'
        )
    for name, channel in settings.channels.items():
        if isinstance(channel, WebhookChannel) and channel.secret is None:
            yield (
                f"[channels.{name}] secret: is missing, so anybody could post to {settings.listen}; "
                'set secret = { env = "…" } or listen on 127.0.0.1'
            )


# Words.

_EXPECTED: Mapping[object, str] = {
    Duration: 'a duration with its unit, like "250ms", "3s" or "1m30s"',
    Secret: "a text that is not empty",
    Rate: 'a rate like "1/s", "20/m" or "500/h", at most 1000 in a second',
    Url: 'a URL like "http://127.0.0.1:9000/turns"',
    Address: 'HOST:PORT like "127.0.0.1:8484"',
    str: "a text",
    bool: "true or false",
    dict[str, Secret]: "a table of texts",
    dict[str, Any]: "a table",
    Hosts: 'a list of hosts like ["files.slack.com", "*.example.com", "10.0.0.5:9000"]',
    Words: 'a list like ["whisper", "{file}"]',
}


def _decode(kind: type, value: object) -> object:
    if kind in {Duration, Rate, Secret, Url, Address, Hosts, Words}:
        return kind.parse(value)
    raise NotImplementedError(kind)


def _one_kind(kind: Any) -> Any:
    """The type without its `| None`."""
    if get_origin(kind) in {Union, UnionType}:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return kind


def _expected(kind: Any) -> str:
    kind = _one_kind(kind)
    if get_origin(kind) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kind))
    if get_origin(kind) is Annotated:
        return str(kind.__metadata__[0].description)
    return _EXPECTED[kind]


def _choices(kind: Any) -> Sequence[str]:
    kind = _one_kind(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _holds_secret(kind: Any) -> bool:
    """A URL may carry a key, too."""
    return _one_kind(kind) in {Secret, dict[str, Secret], Url}


def _shown(value: object, *, secret: bool = False) -> str:
    if secret:
        return "another text" if isinstance(value, str) and value else _shown(value) if not value else "something else"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _quoted(names: Mapping[str, Any]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _or_rather(name: str, known: Iterable[str], form: str = "{}", *, cutoff: float = 0.6) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean '{form.format(close[0])}'?" if close else ""
