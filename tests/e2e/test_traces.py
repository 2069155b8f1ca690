"""One message, followed from its web hook to its receipt through two processes, by what OpenTelemetry's own exporter
sends to a collector."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.e2e.site import ANY_PORT, SECRET, Site, eventually

from turnlane.testing.outside import ask
from turnlane.testing.processes import Turnlane, surroundings

SENDERS_TRACE, SENDERS_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass(frozen=True)
class Seen:
    """One span, as it came to the collector."""

    name: str
    trace: str
    id: str
    parent: str
    process: int
    instance: str
    service: str
    failed: bool
    about: dict[str, Any] = field(hash=False)
    links: tuple[tuple[str, str], ...] = ()


class Collector:
    """Takes spans by OTLP over HTTP, as any collector does."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the spans are what counts."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def collecting(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def take(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            process = _values(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [_seen(span, process) for span in of_scope.spans]

    async def has(self, *names: str) -> None:
        async def there() -> bool:
            return {span.name for span in self.spans} >= set(names)

        await eventually(there)

    def one(self, name: str) -> Seen:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _seen(span: Any, process: dict[str, Any]) -> Seen:
    return Seen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        process["process.pid"],
        process["service.instance.id"],
        process["service.name"],
        span.status.code == 2,
        _values(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().collecting() as collector:
        yield collector


async def begin(site: Site, collector: Collector, verb: str, *, every_ms: int = 50) -> Turnlane:
    """A process that sends its spans so often."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": str(every_ms)}
    options = [verb, *ANY_PORT, "--log-format", "json"]
    process = Turnlane(*options, folder=site.folder, environment=surroundings() | variables)
    return await site.stack.enter_async_context(process)


async def test_one_message_is_one_trace_through_two_processes(site: Site, collector: Collector) -> None:
    """ISSUE 8: from the web hook to the receipt, with nothing of the trace in the store."""
    site.configure(lease=10)
    server, worker = await begin(site, collector, "serve"), await begin(site, collector, "worker")
    url = f"{await server.ready()}channels/site"
    said = {"id": "m1", "conversation": "alice", "text": "a private word"}
    answer = await ask(url, said, secret=SECRET, traceparent=f"00-{SENDERS_TRACE}-{SENDERS_SPAN}-01")
    assert answer.status == 202
    await site.outside.until(lambda: len(site.outside.replies) == 1)
    await collector.has("hook site", "message site", "wait", "turn only", "answer", "delivery site")

    spans = list(collector.spans)
    assert len({span.trace for span in spans}) == 1
    assert len({span.id for span in spans}) == len(spans) == 6
    parents = {span.name: next((each.name for each in spans if each.id == span.parent), None) for span in spans}
    assert parents == {
        "hook site": None,
        "message site": "hook site",
        "wait": "message site",
        "turn only": "message site",
        "answer": "turn only",
        "delivery site": "answer",
    }
    assert {span.name: span.process for span in spans} == {
        "hook site": server.pid,
        "message site": server.pid,
        "wait": worker.pid,
        "turn only": worker.pid,
        "answer": worker.pid,
        "delivery site": worker.pid,
    }
    assert len({span.instance for span in spans}) == 2
    assert {span.service for span in spans} == {"turnlane"}
    assert not any(span.failed for span in spans)
    assert collector.one("hook site").parent == ""
    assert collector.one("hook site").links == ((SENDERS_TRACE, SENDERS_SPAN),)
    assert collector.one("turn only").about["turnlane.conversation"] == "site/alice"
    assert collector.one("delivery site").about["turnlane.outcome"] == "sent"
    assert "a private word" not in json.dumps([span.about for span in spans])

    turn, delivery = collector.one("turn only"), collector.one("delivery site")
    assert site.outside.traceparents == [
        f"00-{turn.trace}-{turn.id}-01",
        f"00-{delivery.trace}-{delivery.id}-01",
    ]


async def test_a_process_that_stops_hands_over_what_is_left(site: Site, collector: Collector) -> None:
    site.configure(lease=10)
    both = await begin(site, collector, "run", every_ms=3_600_000)
    await site.post(both, "m1")
    await both.said("delivery.sent")
    both.terminate()
    assert await both.ended() == 0
    assert len(collector.spans) == 6


async def test_a_collector_that_is_away_harms_nobody(site: Site, collector: Collector) -> None:
    site.configure(lease=10)
    collector.url = "http://127.0.0.1:1"
    both = await begin(site, collector, "run")
    await site.post(both, "m1")
    await site.outside.until(lambda: len(site.outside.replies) == 1)
    both.terminate()
    assert await asyncio.wait_for(both.ended(), 30) == 0
