"""What contradicts itself, though each value is fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from turnlane.errors import InvalidSchedule, InvalidSettings
from turnlane.model.message import channel_of
from turnlane.settings.meaning import missing_word, paths_of
from turnlane.settings.shape import keys
from turnlane.settings.tables import (
    ClaudeCodeAgent,
    ClaudeHooksChannel,
    Lanes,
    PacedChannel,
    Retention,
    Settings,
    SlackChannel,
    Table,
    TranscriptsAgent,
    WebChannel,
    WebhookChannel,
)
from turnlane.settings.values import VISITOR_SECRET_MIN, Duration, Secret
from turnlane.settings.words import or_rather, quoted, shown

_AT_LEAST = Duration.parse("1s")


def contradictions_in(settings: Settings) -> Iterator[str]:
    yield from _lanes_contradictions("[lanes]", settings.lanes)
    for number, route in enumerate(settings.routes, start=1):
        if route.lanes != settings.lanes:
            yield from _lanes_contradictions(f"[[routes]] {number}", route.lanes)
    yield from _too_short("[retention]", settings.retention, keys(Retention))
    if "://" not in settings.backend:
        yield f'backend: expected a URL like "sqlite:///turnlane.db", got {shown(settings.backend)}'
    yield from _unrouted(settings)
    yield from _unkeepable_schedules(settings)
    if settings.attachments.transcribe.is_wanted and not settings.attachments.transcribe.is_complete:
        yield '[attachments.transcribe]: give either command = ["whisper", "{file}"], or url and model'
    yield from _doubled_commands(settings)
    yield from _doubled_paths(settings)
    yield from _readers_of_anything(settings)
    yield from _unusable_secrets(settings)
    yield from _unreachable(settings)
    yield from _unsigned_visitors(settings)
    yield from _unusable_options(settings)
    yield from _unfit_viewers(settings)
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
                f"[channels.{channel}]: there are several agents ({quoted(settings.agents)}) and no route says which "
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
            hint = or_rather(channel, settings.channels) or f"; there is {quoted(settings.channels)}"
            yield f"{place} conversation: no channel {channel!r}{hint}"
        if schedule.name in names:
            yield f"{place} name: there is another schedule {schedule.name!r}; give each a name of its own"
        names.add(schedule.name)


def _doubled_commands(settings: Settings) -> Iterator[str]:
    meant: dict[str, str] = {}
    for name, word in settings.commands.words.items():
        first = meant.setdefault(word, name)
        if first != name:
            yield f'[commands] {name}: "{word}" is the word for {first}, too; give each its own, or "" to switch it off'


def _doubled_paths(settings: Settings) -> Iterator[str]:
    served = paths_of(settings)
    for name, channel in settings.channels.items():
        path = channel.path if isinstance(channel, PacedChannel) else None
        if path is not None and served[path] != name:
            yield f"[channels.{name}] path: [channels.{served[path]}] has the same one; give each its own"


def _readers_of_anything(settings: Settings) -> Iterator[str]:
    """Who keeps transcripts reads whatever file a message names, so only this machine's own hooks may talk to it."""
    for name, channel in settings.channels.items():
        agents = [route.agent for route in settings.routes if route.channel == name][:1] or list(settings.agents)[:1]
        if isinstance(channel, ClaudeHooksChannel) or not agents:
            continue
        if isinstance(settings.agents.get(agents[0]), TranscriptsAgent):
            yield (
                f'[channels.{name}]: the agent "{agents[0]}" reads files that messages name, so it is only for '
                f'channels of kind "claude_hooks"; add [[routes]] with channel = "{name}" and another agent'
            )


def _unusable_secrets(settings: Settings) -> Iterator[str]:
    """Asked of the channel itself, before it is built, while the place is still known."""
    from turnlane.channels.secret import Secret as HookSecret

    for name, channel in settings.channels.items():
        if isinstance(channel, WebhookChannel) and channel.secret is not None:
            try:
                HookSecret(channel.secret.reveal())
            except InvalidSettings as error:
                yield f"[channels.{name}] secret: {error}"


def _unreachable(settings: Settings) -> Iterator[str]:
    """A platform that could not reach us, or that we could not reach."""
    for name, channel in settings.channels.items():
        if not isinstance(channel, SlackChannel):
            continue
        if (channel.token is None) == (not channel.tokens):
            yield (
                f'[channels.{name}]: give either token = {{ env = "…" }} (xoxb-…), or tokens by workspace like '
                '{ T0123 = { env = "…" } }'
            )
        if channel.app_token is None and channel.signing_secret is None:
            yield (
                f"[channels.{name}]: nothing can be heard; set app_token (xapp-…) for Socket Mode, or signing_secret "
                f"if Slack posts to /channels/{name}"
            )


def _unsigned_visitors(settings: Settings) -> Iterator[str]:
    for name, channel in settings.channels.items():
        match channel:
            case WebChannel(visitors="signed", visitor_secret=None):
                yield f'[channels.{name}] visitors: "signed" needs a visitor_secret; set it to {{ env = "…" }}'
            case WebChannel(visitor_secret=Secret() as secret) if len(secret.reveal()) < VISITOR_SECRET_MIN:
                yield f"[channels.{name}] visitor_secret: can be guessed; use {VISITOR_SECRET_MIN} characters or more"


def _unusable_options(settings: Settings) -> Iterator[str]:
    for name, agent in settings.agents.items():
        if isinstance(agent, ClaudeCodeAgent):
            try:
                agent.options.check()
            except InvalidSettings as error:
                yield f"[agents.{name}] {error}"


def _unfit_viewers(settings: Settings) -> Iterator[str]:
    if settings.viewer_token is None:
        return
    if settings.operator_token is None:
        yield (
            "viewer_token: says who may look and change nothing, but without an operator_token everybody may change "
            "everything; set that, too"
        )
    elif settings.viewer_token == settings.operator_token:
        yield "viewer_token: is the same as operator_token, so a viewer would be an operator; choose another"


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
        if (word := missing_word(channel)) is not None:
            yield (
                f"[channels.{name}] {word}: is missing, so anybody could post to {settings.listen}; "
                f'set {word} = {{ env = "…" }} or listen on 127.0.0.1'
            )
