"""The store as it is at this moment, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnlane.backends.base import Backend
from turnlane.model.value import value
from turnlane.model.view import Counts, Lock, WorkerView


@value
class StoreNow:
    counts: Counts
    locks: Sequence[Lock] = ()
    workers: Sequence[WorkerView] = ()


async def store_now(backend: Backend) -> StoreNow:
    return StoreNow(await backend.counts(), await backend.locks(), await backend.workers())


class Gauges(Collector):
    """Without a store only this: that it did not answer."""

    def __init__(self, store: StoreNow | None, now: int) -> None:
        self._store = store
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("turnlane_backend_up", "1 if the store answered.", 0 if self._store is None else 1)
        if self._store is not None:
            yield from self._counted(self._store.counts)
            held = self._seconds_since(min((lock.since for lock in self._store.locks), default=None))
            yield GaugeMetricFamily("turnlane_oldest_lock_seconds", "How long the longest lease is held.", held)
            # One that was lost still counts as live in the store until somebody notices, which the dead do not.
            live = sum(worker.live and worker.alive_until >= self._now for worker in self._store.workers)
            yield GaugeMetricFamily("turnlane_workers_live", "Workers that may claim.", live)

    def _counted(self, counts: Counts) -> Iterator[Metric]:
        lanes = GaugeMetricFamily("turnlane_lanes", "Conversations, by the state of their lane.", labels=["state"])
        for state, number in counts.lanes.items():
            lanes.add_metric([state], number)
        yield lanes
        yield GaugeMetricFamily("turnlane_messages_waiting", "Stored and not answered.", counts.messages_waiting)
        yield GaugeMetricFamily("turnlane_deliveries_waiting", "Queued and not sent.", counts.deliveries_waiting)
        yield GaugeMetricFamily("turnlane_deliveries_failed", "Given up on and kept.", counts.deliveries_failed)
        yield GaugeMetricFamily("turnlane_dead_letters", "Turns given up on and kept.", counts.dead_letters)
        yield GaugeMetricFamily("turnlane_locks", "Leases held now.", counts.locks)
        overdue = self._seconds_since(counts.oldest_due_at)
        yield GaugeMetricFamily("turnlane_oldest_due_seconds", "How long the longest due lane waits.", overdue)

    def _seconds_since(self, at: int | None) -> float:
        return 0.0 if at is None else max(0, self._now - at) / 1000
