"""What settings mean to the parts that follow them."""

from __future__ import annotations

from pathlib import Path

from turnlane.errors import NotFound
from turnlane.model import policy
from turnlane.model.alert import Thresholds
from turnlane.model.budget import SCOPES, Budgets
from turnlane.model.limits import Limits, Pauses
from turnlane.model.pace import Pace
from turnlane.model.policy import Policy
from turnlane.model.schedule import Schedule
from turnlane.model.usage import Price
from turnlane.settings.tables import (
    ChannelSettings,
    Lanes,
    PacedChannel,
    Settings,
    Takeover,
    TranscriptsAgent,
    WatiChannel,
    WebhookChannel,
    WhapiChannel,
)
from turnlane.settings.values import PRIORITIES
from turnlane.settings.words import or_rather


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


def thresholds_of(settings: Settings) -> Thresholds:
    alerts = settings.alerts
    return Thresholds(
        store_errors=alerts.store_errors,
        cache_errors=alerts.cache_errors,
        sessions_invalid=alerts.sessions_invalid,
        session_hits=alerts.session_hits,
        hook_errors=alerts.hook_errors,
        lock_held=alerts.lock_held.seconds,
        stale_at_start=alerts.stale_at_start,
        contention=alerts.contention,
        turns_failing=alerts.turns_failing,
        sends_failing=alerts.sends_failing,
        overdue=alerts.overdue.seconds,
        samples_min=alerts.samples_min,
        off=tuple(alerts.off),
    )


def transcripts_file_of(settings: Settings) -> Path | None:
    """Where the agent that keeps transcripts was told to; None: beside the backend."""
    keepers = (agent for agent in settings.agents.values() if isinstance(agent, TranscriptsAgent))
    return next((Path(keeper.file) for keeper in keepers if keeper.file is not None), None)


def prices_of(settings: Settings) -> dict[str, Price]:
    return {model: Price(price.input, price.output, price.cached) for model, price in settings.prices.items()}


def paces_of(settings: Settings) -> dict[str, Pace]:
    """How much one sender may say, in the channels that have a limit."""
    return {
        name: Pace(channel.flood.every_ms, channel.flood_burst)
        for name, channel in settings.channels.items()
        if channel.flood is not None
    }


def paths_of(settings: Settings) -> dict[str, str]:
    """The channels that take web hooks at a path of their own, by that path."""
    return {
        channel.path: name
        for name, channel in settings.channels.items()
        if isinstance(channel, PacedChannel) and channel.path is not None
    }


def schedules_of(settings: Settings) -> list[Schedule]:
    return [table.schedule for table in settings.schedules]


def policy_for(settings: Settings, channel: str) -> Policy:
    """The policy that a message of this channel stamps on its lane. The first matching route wins."""
    if channel not in settings.channels:
        raise NotFound(f"no channel {channel!r} in the settings{or_rather(channel, settings.channels)}")
    lanes, agent = settings.lanes, next(iter(settings.agents))
    for route in settings.routes:
        if route.channel == channel:
            lanes, agent = route.lanes, route.agent
            break
    return policy_of(lanes, settings.takeover, agent=agent, tenant=channel, channel=settings.channels[channel])


def missing_word(channel: ChannelSettings) -> str | None:
    """What others would have to know to post, if it is not set: then anybody may."""
    match channel:
        case WebhookChannel(secret=None) | WhapiChannel(secret=None):
            return "secret"
        case WatiChannel(passkey=None):
            return "passkey"
        case _:
            return None


def policy_of(
    lanes: Lanes, takeover: Takeover, *, agent: str, tenant: str, channel: ChannelSettings | None = None
) -> Policy:
    paced = channel if isinstance(channel, PacedChannel) else PacedChannel()
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
        send_pause_ms=paced.pause.ms,
        on_ask=lanes.on_ask,
        session_wait_ms=lanes.session_wait.ms,
        takeover_ms=takeover.ms,
    )
