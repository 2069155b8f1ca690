"""The tables of turnlane.toml: every key is a field, so defaults and types are written down once."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import fields

from turnlane.agents.claude_code.options import INHERITED, PROGRAM, Options
from turnlane.model.budget import Budget
from turnlane.model.command import Command, Commands
from turnlane.model.message import key_written
from turnlane.model.policy import Ack, OnAsk, OnBusy, OnFull, OnUnknown
from turnlane.model.schedule import MISSED_MAX, Missed, Schedule
from turnlane.settings.values import (
    Address,
    AlertNames,
    Argv,
    Bytes,
    Count,
    CountOrNone,
    Dollars,
    Duration,
    Factor,
    FileBytes,
    Files,
    Hosts,
    Money,
    Names,
    Origins,
    Rate,
    Secret,
    Share,
    Temperature,
    Tokens,
    Url,
    UrlPath,
    Words,
)

Source = Literal["command line", "environment", "stored", "file", "default"]


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


class Logs(Table, frozen=True, kw_only=True):
    """What is written down, beside `log_format`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    texts: bool = False


class Traces(Table, frozen=True, kw_only=True):
    """None: on where OpenTelemetry's own variables name a receiver."""

    enabled: bool | None = None


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


class AlertsTable(Table, frozen=True, kw_only=True):
    """From where on an operator is told, and where that goes beside the log and the console."""

    enabled: bool = True
    url: Url | None = None
    secret: Secret | None = None
    off: AlertNames = AlertNames()
    samples_min: Count = 20
    store_errors: Share = 0.1
    cache_errors: Share = 0.2
    sessions_invalid: Share = 0.5
    session_hits: Share = 0.6
    hook_errors: CountOrNone = 0
    lock_held: Duration = Duration.parse("5m")
    stale_at_start: CountOrNone = 10
    contention: Share = 0.5
    turns_failing: Share = 0.5
    sends_failing: Share = 0.5
    overdue: Duration = Duration.parse("1m")


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
    def words(self) -> Mapping[Command, str]:
        """As they are looked for, of those that are on."""
        words = {name: getattr(self, name).strip().casefold() for name in get_args(Command) if self.enabled}
        return {name: word for name, word in words.items() if word}

    @property
    def by_word(self) -> Commands:
        return {word: name for name, word in self.words.items()}


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


class AnyChannel(Table, frozen=True, kw_only=True):
    """What every channel may be told."""

    paused: bool = False
    flood: Rate | None = None
    """How much one sender may say; more is refused, with a notice."""
    flood_burst: Count = 10


class PacedChannel(AnyChannel, frozen=True, kw_only=True):
    """A channel whose account may send only so much."""

    rate: Rate | None = None
    burst: Count = 1
    pause: Duration = Duration.parse("0s")
    """Between two deliveries of one conversation."""
    path: UrlPath | None = None
    """Where it takes web hooks, beside /channels/NAME."""


class WebhookChannel(PacedChannel, frozen=True, kw_only=True):
    kind: Literal["webhook"] = "webhook"
    secret: Secret | None = None
    reply_url: Url | None = None
    lookup_url: Url | None = None


class WebChannel(AnyChannel, frozen=True, kw_only=True):
    kind: Literal["web"] = "web"
    public: bool = False
    """Whether the chat page is served where others can reach it, too."""
    sites: Origins = Origins()
    """Whose pages may have the chat in them."""
    title: str = "Turnlane"
    greeting: str = ""
    """Stands where nothing was said yet."""
    visitors: Literal["anyone", "signed"] = "anyone"
    visitor_secret: Secret | None = None
    """With it the server of a site signs who its visitor is."""
    file_bytes_max: FileBytes = 700_000
    """Of the files of one message together. Each becomes a third longer on its way, and NATS takes 1 MB."""
    files_max: Files = 5


class TerminalChannel(AnyChannel, frozen=True, kw_only=True):
    kind: Literal["terminal"] = "terminal"


class ClaudeHooksChannel(AnyChannel, frozen=True, kw_only=True):
    kind: Literal["claude_hooks"] = "claude_hooks"
    spool: str


class SlackChannel(PacedChannel, frozen=True, kw_only=True):
    kind: Literal["slack"] = "slack"
    token: Secret | None = None
    """Of the bot (`xoxb-…`), in the one workspace it is in."""
    tokens: dict[str, Secret] = field(default_factory=dict)
    """By workspace (`T…`), if it is in several."""
    app_token: Secret | None = None
    """`xapp-…`: what happens comes over a socket that we open."""
    signing_secret: Secret | None = None
    """What happens is posted to /channels/NAME."""
    base_url: Url = Url("https://slack.com/api/")
    users: Names = field(default_factory=list)
    rooms: Names = field(default_factory=list)
    mention_only: bool = True
    """In rooms: a conversation begins when the bot is mentioned. In direct messages that is not needed."""
    direct: Literal["room", "thread"] = "room"
    """Whether a direct message is one conversation, or each message in it opens a thread."""
    streaming: Literal["edits", "native", "off"] = "edits"
    status: str = "is thinking…"
    receipt: str | None = None
    """The emoji that marks what was stored."""
    text_max: Count = 4_000
    rate: Rate | None = Rate("4/s")
    burst: Count = 4
    pause: Duration = Duration.parse("1s")


class WhatsAppMetaChannel(PacedChannel, frozen=True, kw_only=True):
    kind: Literal["whatsapp_meta"] = "whatsapp_meta"
    token: Secret
    app_secret: Secret
    verify_token: Secret
    base_url: Url = Url("https://graph.facebook.com/v23.0")
    users: Names = field(default_factory=list)
    rooms: Names = field(default_factory=list)
    """Ids of our phone numbers; none: all that the app hears of."""
    typing: bool = True
    text_max: Count = 4_096
    rate: Rate | None = Rate("80/s")
    burst: Count = 10
    pause: Duration = Duration.parse("300ms")


class WhapiChannel(PacedChannel, frozen=True, kw_only=True):
    kind: Literal["whapi"] = "whapi"
    token: Secret
    secret: Secret | None = None
    """Comes in a header that is set with the web hook, or as `?secret=`."""
    base_url: Url = Url("https://gate.whapi.cloud")
    users: Names = field(default_factory=list)
    rooms: Names = field(default_factory=list)
    typing: bool = True
    text_max: Count = 4_096
    rate: Rate | None = Rate("1/s")
    burst: Count = 2
    pause: Duration = Duration.parse("300ms")


class WatiChannel(PacedChannel, frozen=True, kw_only=True):
    kind: Literal["wati"] = "wati"
    token: Secret | None = None
    passkey: Secret | None = None
    base_url: Url = Url("https://live-mt-server.wati.io")
    """With the number of the tenant behind it, as Wati shows it."""
    number: str | None = None
    """Which of the account's phone numbers this is, if it has several."""
    users: Names = field(default_factory=list)
    text_max: Count = 4_096
    rate: Rate | None = Rate("5/s")
    burst: Count = 5
    pause: Duration = Duration.parse("300ms")


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


class TranscriptsAgent(Table, frozen=True, kw_only=True):
    kind: Literal["transcripts"] = "transcripts"
    paused: bool = False
    file: str | None = None


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


ChannelSettings = (
    WebhookChannel
    | WebChannel
    | TerminalChannel
    | ClaudeHooksChannel
    | SlackChannel
    | WhatsAppMetaChannel
    | WhapiChannel
    | WatiChannel
)
AgentSettings = EchoAgent | CommandAgent | HttpAgent | ClaudeCodeAgent | OpenAIAgent | TranscriptsAgent

CHANNEL_KINDS: Mapping[str, type[ChannelSettings]] = {
    "webhook": WebhookChannel,
    "web": WebChannel,
    "terminal": TerminalChannel,
    "claude_hooks": ClaudeHooksChannel,
    "slack": SlackChannel,
    "whatsapp_meta": WhatsAppMetaChannel,
    "whapi": WhapiChannel,
    "wati": WatiChannel,
}

AGENT_KINDS: Mapping[str, type[AgentSettings]] = {
    "echo": EchoAgent,
    "command": CommandAgent,
    "http": HttpAgent,
    "claude_code": ClaudeCodeAgent,
    "openai": OpenAIAgent,
    "transcripts": TranscriptsAgent,
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
    viewer_token: Secret | None = None
    proxies: CountOrNone = 0
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
    alerts: AlertsTable = AlertsTable()
    logs: Logs = Logs()
    traces: Traces = Traces()
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

    @property
    def this_machine(self) -> str:
        return self.machine or socket.gethostname()
