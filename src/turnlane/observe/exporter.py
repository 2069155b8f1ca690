"""Where spans go: to what the operator's own code set up, or to what OpenTelemetry's variables describe."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import TYPE_CHECKING

from turnlane.errors import InvalidSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import AttributeValue

    from turnlane.observe.trace import Follower

WANTED_BY = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
"""Whoever sets one of these wants traces."""
EXPORTERS = "opentelemetry_traces_exporter"
"""Under this name packages offer what sends spans."""
OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
CLOSE_SECONDS_MAX = 3.0
NEEDED = "traces need the package {}; pip install 'turnlane[otel]'"


def is_wanted(enabled: bool | None, environ: Mapping[str, str]) -> bool:
    if enabled is not None:
        return enabled
    return environ.get("OTEL_TRACES_EXPORTER") != "none" and any(environ.get(name) for name in WANTED_BY)


def follower(*, machine: str, insist: bool, clean: Callable[[str], str] = str) -> Follower | None:
    """Who follows messages through this process. None: OpenTelemetry itself is told to be off.

    `insist`: without the packages it is a mistake to start. Else the variables may be meant for others on this machine.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import Tracer

        from turnlane.observe.trace import SCOPE, Follower
    except ModuleNotFoundError as error:
        if insist:
            raise InvalidSettings(NEEDED.format(error.name)) from error
        logging.getLogger("turnlane.traces").warning("no traces, though OTEL_… is set: " + NEEDED.format(error.name))
        return None
    provider, close = trace.get_tracer_provider(), _leave_it
    if isinstance(provider, trace.ProxyTracerProvider):  # nobody else has set one up
        ours = provider = _provider(machine)
        close = partial(_close, ours)
        trace.set_tracer_provider(ours)
    tracer = provider.get_tracer(SCOPE, _version())
    if isinstance(tracer, trace.NoOpTracer):
        return None
    if not isinstance(tracer, Tracer):
        raise InvalidSettings(
            f"traces need a TracerProvider of opentelemetry-sdk, and {type(provider).__name__} is set; remove it, or "
            "set [traces] enabled = false"
        )
    return Follower(tracer, clean=clean, close=close)


def _provider(machine: str) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(machine))
    for exporter in _exporters(os.environ):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _close(provider: TracerProvider) -> None:
    """A collector that is away is tried for ten seconds and more; nobody who stops a process waits that long for it."""
    closing = threading.Thread(target=provider.shutdown, name="turnlane-traces", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS_MAX)


def _leave_it() -> None:
    """Whoever set the provider up ends it, too."""


def _resource(machine: str) -> Resource:
    """What the operator says in OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES wins."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours: dict[str, AttributeValue] = {
        "service.name": "turnlane",
        "service.version": _version(),
        "service.instance.id": f"{machine}/{os.getpid()}",
        "host.name": machine,
        "process.pid": os.getpid(),
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _version() -> str:
    try:
        return version("turnlane")
    except PackageNotFoundError:  # run from its sources
        return "unknown"


def _exporters(environ: Mapping[str, str]) -> Iterator[SpanExporter]:
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    otlp = OTLP.get(protocol or "http/protobuf", protocol or "")
    for name in (environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() != "none":
            yield _exporter(otlp if name.strip() == "otlp" else name.strip())


def _exporter(name: str) -> SpanExporter:
    for offered in entry_points(group=EXPORTERS, name=name):
        exporter: SpanExporter = offered.load()()
        return exporter
    known = ", ".join(sorted({offered.name for offered in entry_points(group=EXPORTERS)}))
    package = f"opentelemetry-exporter-{name.replace('_', '-')}"
    raise InvalidSettings(f"nothing here sends traces by {name!r}, only {known}; pip install {package}")
