"""Numbers for Prometheus: counted from events as they happen, and read from the store when asked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from turnlane.model.event import Event
from turnlane.model.message import channel_of
from turnlane.model.view import Counts

SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600)

SHARED_BY_PROCESSES = "PROMETHEUS_MULTIPROC_DIR"
"""A folder in which the processes behind one port add up their counts; the supervisor sets it."""

OTHER = "other"
"""The label of whatever belongs to no channel of the settings, so that strangers cannot make up labels."""


class Metrics:
    """A listener that counts, and the page that shows the numbers."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, channels: Collection[str]) -> None:
        self._channels = channels
        self._registry = CollectorRegistry()
        self._by_outcome = {
            "message": self._counter("turnlane_messages", "Messages that came in, by what became of them.", "outcome"),
            "turn": self._counter("turnlane_turns", "Runs of agents that ended, by how.", "outcome"),
            "delivery": self._counter("turnlane_deliveries", "Sendings that ended, by how.", "outcome"),
        }
        self._hooks = self._counter("turnlane_hooks", "Web hooks, by the status of the answer.", "status")
        self._ignored = self._counter("turnlane_hooks_ignored", "What platforms told that is no message to us.", "why")
        self._asides = Counter("turnlane_hooks_aside", "What nobody could read.", ["channel"], registry=self._registry)
        self._workers_lost = Counter("turnlane_workers_lost", "Workers found dead.", registry=self._registry)
        self._durations = {
            ("turn.started", "waited_ms"): self._histogram(
                "turnlane_turn_waited_seconds", "Ready until the run starts."
            ),
            ("turn.answered", "took_ms"): self._histogram("turnlane_turn_seconds", "Start of a run until its commit."),
            ("delivery.sent", "waited_ms"): self._histogram("turnlane_delivery_waited_seconds", "Queued until sent."),
        }

    def __call__(self, events: Sequence[Event]) -> None:
        for event in events:
            self._count(event)
            self._measure(event)

    def render(self, counts: Counts | None, *, now: int) -> bytes:
        """The page. `None`: the store did not answer, which is worth a number too."""
        gauges = CollectorRegistry()
        gauges.register(_Gauges(counts, now))
        return generate_latest(self._counted()) + generate_latest(gauges)

    def _counted(self) -> CollectorRegistry:
        if not os.environ.get(SHARED_BY_PROCESSES):
            return self._registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]  # the library leaves it bare
        return shared

    def _count(self, event: Event) -> None:
        noun, _, verb = event.name.partition(".")
        if noun in self._by_outcome and verb not in {"started", "reported"}:
            self._by_outcome[noun].labels(self._channel(event), verb).inc()
        elif event.name == "hook.ignored":
            self._ignored.labels(self._channel(event), str(event.facts["why"])).inc(int(event.facts["count"] or 0))
        elif event.name == "hook.aside":
            self._asides.labels(self._channel(event)).inc()
        elif noun == "hook":
            self._hooks.labels(self._channel(event), str(event.facts.get("status"))).inc()
        elif event.name == "worker.lost":
            self._workers_lost.inc()

    def _measure(self, event: Event) -> None:
        for (name, fact), histogram in self._durations.items():
            milliseconds = event.facts.get(fact) if name == event.name else None
            if isinstance(milliseconds, int | float):
                histogram.labels(self._channel(event)).observe(milliseconds / 1000)

    def _channel(self, event: Event) -> str:
        channel = event.facts.get("channel") if event.conversation is None else channel_of(event.conversation)
        return channel if isinstance(channel, str) and channel in self._channels else OTHER

    def _counter(self, name: str, help: str, label: str) -> Counter:
        return Counter(name, help, ["channel", label], registry=self._registry)

    def _histogram(self, name: str, help: str) -> Histogram:
        return Histogram(name, help, ["channel"], buckets=SECONDS, registry=self._registry)


class _Gauges(Collector):
    """The store as it is at this moment."""

    def __init__(self, counts: Counts | None, now: int) -> None:
        self._counts = counts
        self._now = now

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield GaugeMetricFamily("turnlane_backend_up", "1 if the store answered.", 0 if counts is None else 1)
        if counts is None:
            return
        lanes = GaugeMetricFamily("turnlane_lanes", "Conversations, by the state of their lane.", labels=["state"])
        for state, number in counts.lanes.items():
            lanes.add_metric([state], number)
        yield lanes
        yield GaugeMetricFamily("turnlane_messages_waiting", "Stored and not answered.", counts.messages_waiting)
        yield GaugeMetricFamily("turnlane_deliveries_waiting", "Queued and not sent.", counts.deliveries_waiting)
        yield GaugeMetricFamily("turnlane_deliveries_failed", "Given up on and kept.", counts.deliveries_failed)
        yield GaugeMetricFamily("turnlane_dead_letters", "Turns given up on and kept.", counts.dead_letters)
        yield GaugeMetricFamily("turnlane_locks", "Leases held now.", counts.locks)
        yield GaugeMetricFamily("turnlane_workers_live", "Workers that may claim.", counts.workers_live)
        overdue = 0 if counts.oldest_due_at is None else max(0, self._now - counts.oldest_due_at)
        yield GaugeMetricFamily("turnlane_oldest_due_seconds", "How long the longest due lane waits.", overdue / 1000)
