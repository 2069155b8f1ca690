"""Numbers for Prometheus, and for our own alerts: counted from events as they happen, and read when asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from turnlane.backends.base import Verdict
from turnlane.backends.calls import Calls
from turnlane.model.budget import SCOPES
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import channel_of
from turnlane.model.turn import Outcome, Replied
from turnlane.observe.gauges import Gauges, StoreNow
from turnlane.people.cache import Cache

SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600)

SHARED_BY_PROCESSES = "PROMETHEUS_MULTIPROC_DIR"
"""A folder in which the processes behind one port add up their counts; the supervisor sets it."""

OTHER = "other"
"""The label of whatever belongs to no channel or agent of the settings, so that strangers cannot make up labels."""

STALE_TOLD_MS = 15 * 60_000
"""So long after a start it is shown how many stale leases were found there."""

Sample = tuple[str, dict[str, str], float]
"""The name of a number, its labels, and the number."""

Handler = Callable[[Event], None]


class Metrics:
    """A listener that counts, and the page that shows the numbers.

    `calls` and `lookups` count by themselves, on the path of a message; what they have is taken over when asked.
    """

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self,
        channels: Collection[str],
        agents: Collection[str] = (),
        *,
        calls: Calls | None = None,
        lookups: Cache[Any, Any] | None = None,
    ) -> None:
        self._channels = channels
        self._agents = agents
        self._calls = calls
        self._lookups = lookups
        self._registry = CollectorRegistry()
        self._taken: dict[tuple[Counter, tuple[str, ...]], float] = {}
        self._stale: tuple[int, int] | None = None
        """How many leases of the dead were found at the start, and when it was noted."""
        self._handlers: dict[str, list[Handler]] = {}
        self._count_outcomes()
        self._count_hooks()
        self._count_sessions()
        self._count_trouble()
        self._measure_durations()
        self._tokens = self._counter("turnlane_tokens", "Tokens that answered turns used.", "agent", "kind")
        self._streams = self._gauge("turnlane_streams_open", "Readers that follow what happens.")
        self._stale_at_start = self._gauge("turnlane_stale_at_start", "Leases of the dead that a new worker found.")
        self._count_store()

    def __call__(self, events: Sequence[Event]) -> None:
        handlers = self._handlers
        for event in events:
            for handle in handlers.get(event.name, ()):
                handle(event)

    def note_turn(self, lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        """A turn of this process has ended."""
        if verdict == "answered" and isinstance(outcome, Replied):
            agent, usage = self._agent(lease.policy.agent), outcome.reply.usage
            self._tokens.labels(agent, "input").inc(usage.input_tokens)
            self._tokens.labels(agent, "output").inc(usage.output_tokens)

    def note_streams(self, number: int) -> None:
        self._streams.set(number)

    def render(self, store: StoreNow | None, *, now: int) -> bytes:
        """The page. `None`: the store did not answer, which is worth a number too."""
        self._take_over(now)
        gauges = CollectorRegistry()
        gauges.register(Gauges(store, now))
        return generate_latest(self._counted()) + generate_latest(gauges)

    def samples(self, store: StoreNow | None, *, now: int) -> Iterator[Sample]:
        """The same numbers, for those who judge them here."""
        self._take_over(now)
        for source in (self._counted(), Gauges(store, now)):
            for metric in source.collect():
                for sample in metric.samples:
                    yield sample.name, sample.labels, sample.value

    def _counted(self) -> CollectorRegistry:
        if not os.environ.get(SHARED_BY_PROCESSES):
            return self._registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]  # the library leaves it bare
        return shared

    # What is counted of events

    def _count_outcomes(self) -> None:
        for noun, name, text, verbs in (
            ("message", "messages", "Messages that came in, by what became of them.", MESSAGE_OUTCOMES),
            ("turn", "turns", "Runs of agents that ended, by how.", TURN_OUTCOMES),
            ("delivery", "deliveries", "Sendings that ended, by how.", DELIVERY_OUTCOMES),
            ("schedule", "schedules", "Prompts of schedules, by what became of them.", ("fired", "missed")),
            ("profile", "profiles", "Questions to platforms about people.", ("enriched", "unenriched")),
        ):
            counter = self._counter(f"turnlane_{name}", text, "channel", "outcome")
            for verb in verbs:
                self._on(f"{noun}.{verb}", self._by_channel(counter, verb))

    def _count_hooks(self) -> None:
        hooks = self._counter("turnlane_hooks", "Web hooks, by the status of the answer.", "channel", "status")
        ignored = self._counter("turnlane_hooks_ignored", "What platforms told and is no message.", "channel", "why")
        errors = self._counter("turnlane_hook_errors", "Web hooks refused, or that nobody could read.", "channel")
        for channel in (*self._channels, OTHER):
            errors.labels(channel)
        answered = cache(hooks.labels)
        for name in ("hook.received", "hook.refused"):
            self._on(name, lambda e: answered(self._channel(e), str(e.facts.get("status"))).inc())
        self._on(
            "hook.ignored",
            lambda e: ignored.labels(self._channel(e), str(e.facts["why"])).inc(int(e.facts["count"] or 0)),
        )
        self._on("hook.aside", self._by_channel(self._counter("turnlane_hooks_aside", "Nobody could read.", "channel")))
        for name in ("hook.refused", "hook.aside"):
            self._on(name, self._by_channel(errors))

    def _count_sessions(self) -> None:
        """A look-up is answered by what this process knows, or by the agent, which is asked what has become of it."""
        lookups = self._counter("turnlane_session_lookups", "Is a session there, and not empty?", "agent", "answer")
        checks = self._counter("turnlane_session_checks", "Agents asked about a session, by answer.", "agent", "state")

        def reused(event: Event) -> None:
            if event.facts["known"]:
                lookups.labels(self._agent(event.facts["agent"]), "known").inc()

        def checked(event: Event) -> None:
            agent = self._agent(event.facts["agent"])
            lookups.labels(agent, "asked").inc()
            checks.labels(agent, str(event.facts.get("state", "unknown"))).inc()

        self._on("session.reused", reused)
        self._on("session.checked", checked)
        self._on("session.unchecked", checked)

    def _count_trouble(self) -> None:
        """All of them begin at zero: what first appears at one would not be seen to have grown."""
        previews = self._counter("turnlane_previews_failed", "Answers that could not be shown as they grow.", "channel")
        budgets = self._counter("turnlane_budgets", "Budgets that warned, or stopped a turn.", "budget", "outcome")
        parked = self._counter("turnlane_lanes_parked", "Lanes that nobody could run.", "kind")
        lost = self._counter("turnlane_workers_lost", "Workers found dead.")
        outages = self._counter("turnlane_store_outages", "How often a worker lost the store.")
        untold = self._counter("turnlane_reports_untold", "What could not be told to a web hook of yours.", "what")
        alerts = self._counter("turnlane_alerts", "Alerts that this process raised.", "alert", "severity")
        for outcome in ("warned", "stopped"):
            for scope in SCOPES:
                budgets.labels(scope, outcome)
            self._on(f"budget.{outcome}", _by_fact(budgets, "budget", outcome))
        for kind in Kind:
            parked.labels(kind.name.lower())
        self._on("lane.parked", _by_fact(parked, "kind"))
        self._on("worker.lost", _always(lost))
        self._on("store.unavailable", _always(outages))
        self._on("preview.failed", self._by_channel(previews))
        for what in ("activity", "alert"):
            self._on(f"{what}.untold", _always(untold.labels(what)))
        self._on("alert.raised", lambda e: alerts.labels(str(e.facts["alert"]), str(e.facts["severity"])).inc())
        self._on("lanes.recovered", self._recovered)

    def _measure_durations(self) -> None:
        for name, fact, metric, text in (
            ("turn.started", "waited_ms", "turnlane_turn_waited_seconds", "Ready until the run starts."),
            ("turn.answered", "took_ms", "turnlane_turn_seconds", "Start of a run until its commit."),
            ("delivery.sent", "waited_ms", "turnlane_delivery_waited_seconds", "Queued until sent."),
        ):
            self._on(name, self._measured(self._histogram(metric, text), fact))

    def _measured(self, histogram: Histogram, fact: str) -> Handler:
        of = cache(histogram.labels)

        def measure(event: Event) -> None:
            milliseconds = event.facts.get(fact)
            if isinstance(milliseconds, int | float):
                of(self._channel(event)).observe(milliseconds / 1000)

        return measure

    def _recovered(self, event: Event) -> None:
        if event.facts["at_start"]:
            before = 0 if self._stale is None else self._stale[0]
            self._stale = before + int(event.facts["lanes"] or 0), event.at

    # What others count

    def _count_store(self) -> None:
        self._made = self._counter("turnlane_store_calls", "Calls of the store.", "verb")
        self._failed = self._counter("turnlane_store_errors", "Calls that it could not answer.", "verb")
        self._groups = self._counter("turnlane_store_groups", "Transactions tried: calls travel together.")
        self._conflicts = self._counter("turnlane_store_conflicts", "Transactions that others got in the way of.")
        self._looked_up = self._counter("turnlane_profile_lookups", "Who writes? Asked of this process.", "answer")
        self._not_found_out = self._counter("turnlane_profile_lookup_errors", "Nobody could tell who writes.")

    def _take_over(self, now: int) -> None:
        if self._stale is not None:
            self._stale_at_start.set(self._stale[0] if now - self._stale[1] < STALE_TOLD_MS else 0)
        for counter, labels, total in self._counted_by_others():
            new = total - self._taken.get((counter, labels), 0)
            if new > 0:
                self._taken[counter, labels] = total
                (counter.labels(*labels) if labels else counter).inc(new)

    def _counted_by_others(self) -> Iterable[tuple[Counter, tuple[str, ...], float]]:
        if self._calls is not None:
            yield from ((self._made, (verb.strip("_"),), number) for verb, number in self._calls.made.copy().items())
            # Written by another thread, meanwhile.
            yield from ((self._failed, (verb.strip("_"),), number) for verb, number in list(self._calls.failed.items()))
            yield self._groups, (), self._calls.groups
            yield self._conflicts, (), self._calls.conflicts
        if self._lookups is not None:
            yield self._looked_up, ("hit",), self._lookups.hits
            yield self._looked_up, ("miss",), self._lookups.misses
            yield self._not_found_out, (), self._lookups.failed

    # How it is counted

    def _on(self, event: str, handler: Handler) -> None:
        self._handlers.setdefault(event, []).append(handler)

    def _by_channel(self, counter: Counter, *labels: str) -> Handler:
        # To find one by its labels takes longer than to count on it, and every message is counted several times.
        of = cache(lambda channel: counter.labels(channel, *labels))
        return lambda event: of(self._channel(event)).inc()

    def _channel(self, event: Event) -> str:
        channel = event.facts.get("channel") if event.conversation is None else channel_of(event.conversation)
        return channel if isinstance(channel, str) and channel in self._channels else OTHER

    def _agent(self, name: object) -> str:
        return name if isinstance(name, str) and name in self._agents else OTHER

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, registry=self._registry, multiprocess_mode="livesum")

    def _histogram(self, name: str, help: str) -> Histogram:
        return Histogram(name, help, ["channel"], buckets=SECONDS, registry=self._registry)


MESSAGE_OUTCOMES = ("accepted", "heard", "duplicate", "refused", "dropped")
TURN_OUTCOMES = ("answered", "retried", "released", "lost", "dead_lettered", "superseded", "asked", "fenced")
DELIVERY_OUTCOMES = ("sent", "retried", "released", "lost", "failed", "fenced")


def _always(counter: Counter) -> Handler:
    return lambda event: counter.inc()


def _by_fact(counter: Counter, fact: str, *labels: str) -> Handler:
    """By one of its facts, which is one of a few words of ours."""
    return lambda event: counter.labels(str(event.facts[fact]), *labels).inc()


def forget_process(pid: int, folder: Path) -> None:
    """A process that added up its numbers there is gone: what it had open or found is not there any more."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]  # as above
