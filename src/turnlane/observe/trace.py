"""Traces for OpenTelemetry: one message from its web hook to its receipt, whichever processes it goes through.

Nothing of a trace is stored. Its id, and the ids of those spans that others hang on, are made of what every process
knows anyway: the channel and origin id of a turn's first message, the conversation, the number of the turn. See
docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from turnlane.backends.base import Acceptance, Verdict
from turnlane.channels.base import Status
from turnlane.model.delivery import Delivery
from turnlane.model.lease import Lease
from turnlane.model.message import Message, channel_of
from turnlane.model.turn import GaveUp, Outcome, Parked, Replied, RetryLater
from turnlane.model.view import DeliveryView
from turnlane.outgoing import trace_headers

SCOPE = "turnlane"
FAILURES = frozenset({"retried", "dead_letter", "failed", "parked", "fenced"})
"""Of what may become of a run, what an operator looks for."""
LOST = "its lease was lost before it was committed; whoever took over goes on"
NANOSECONDS = 1_000_000
"""In a millisecond."""

Attributes = Mapping[str, AttributeValue]

_PROPAGATOR = TraceContextTextMapPropagator()


class Follower:
    """Makes the spans of this process. Each is complete by itself: its parent is made elsewhere, or is lost."""

    def __init__(
        self, tracer: SdkTracer, *, clean: Callable[[str], str] = str, close: Callable[[], None] = lambda: None
    ) -> None:
        if not isinstance(tracer.id_generator, DerivedIds):
            tracer.id_generator = DerivedIds(tracer.id_generator)
        self._tracer = tracer
        self._clean = clean
        """What is said of a failure may quote a secret."""
        self.close = close

    # What arrives

    @contextmanager
    def hearing(
        self, channel: str, messages: Sequence[Message], *, since: int, traceparent: str | None
    ) -> Iterator[None]:
        """A hook belongs to the trace of the first message that it brings; one without any is of no interest here."""
        if not messages:
            yield
            return
        about: Attributes = {"turnlane.channel": channel, "turnlane.messages": len(messages)}
        links = _links_to_sender(traceparent)
        trace_id = trace_of(messages[0].conversation, messages[0].origin_id)
        span = self._root(f"hook {channel}", trace_id, None, SpanKind.SERVER, about, links, since * NANOSECONDS)
        with self._current(span):
            yield

    async def storing(
        self, messages: Sequence[Message], accepting: Awaitable[Sequence[Acceptance]]
    ) -> Sequence[Acceptance]:
        spans = [self._message(message) for message in messages]
        acceptances = await accepting
        for span, acceptance in zip(spans, acceptances, strict=True):
            # The span of a message that came again was made when it came first.
            if acceptance.verdict != "duplicate":
                span.set_attributes({"turnlane.seq": acceptance.seq, "turnlane.outcome": acceptance.verdict})
                span.end()
        return acceptances

    def _message(self, message: Message) -> Span:
        """Under the hook that brought it, or linked to it, if that is in the trace of another message."""
        trace_id, span_id = message_ids(message.conversation, message.origin_id)
        name = f"message {message.channel}"
        about = {"turnlane.conversation": message.conversation, "turnlane.message": message.id}
        around = trace.get_current_span().get_span_context()
        if around.is_valid and around.trace_id == trace_id:
            return self._child(name, around, span_id, SpanKind.PRODUCER, about)
        links = [Link(around)] if around.is_valid else []
        return self._root(name, trace_id, span_id, SpanKind.PRODUCER, about, links)

    # What a worker does

    @contextmanager
    def running(self, lease: Lease) -> Iterator[None]:
        span = self._sending(lease, lease.delivery) if lease.delivery is not None else self._turn(lease)
        span.set_attributes(
            {
                "turnlane.conversation": lease.key,
                "turnlane.attempt": lease.attempt,
                "turnlane.epoch": lease.epoch,
                "turnlane.worker": lease.worker,
                "turnlane.took_over": lease.took_over,
            }
        )
        # Replaced by how it ended, once that is committed.
        span.set_status(StatusCode.ERROR, LOST)
        run, headers = _RUN.set(span), trace_headers.set(_headers_of(span))
        try:
            with self._current(span):
                yield
        finally:
            trace_headers.reset(headers)
            _RUN.reset(run)

    def committed(self, lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        span = _RUN.get()
        span.set_attribute("turnlane.outcome", verdict)
        if verdict in FAILURES:
            span.set_status(StatusCode.ERROR, self._clean(_cause(outcome, verdict)))
        else:
            span.set_status(StatusCode.OK)
        if isinstance(outcome, Replied):
            span.set_attributes(_spent(outcome))
        if verdict == "answered":
            # Made once for each turn, as only one commit is let through; the deliveries hang on it, wherever they are.
            about: Attributes = {"turnlane.conversation": lease.key, "turnlane.turn": lease.number}
            self._child("answer", span.get_span_context(), answer_id(lease.key, lease.number), about=about).end()

    def _turn(self, lease: Lease) -> Span:
        span_id = run_id(lease.key, lease.number, lease.epoch)
        about: Attributes = {
            "turnlane.channel": channel_of(lease.key),
            "turnlane.agent": lease.policy.agent,
            "turnlane.turn": lease.number,
            "turnlane.messages": len(lease.messages),
        }
        spoken = [self._elsewhere(*message_ids(lease.key, message.origin_id)) for message in lease.messages]
        links = [Link(other) for other in spoken[1:]]
        name = f"turn {lease.policy.agent}"
        if not lease.messages:
            return self._root(
                name, _number("turn", lease.key, lease.number, bits=128), span_id, SpanKind.CONSUMER, about
            )
        if lease.messages[0].role == "schedule":  # the store itself said it, so that nobody made a span for it
            span = self._root(name, spoken[0].trace_id, span_id, SpanKind.CONSUMER, about, links)
        else:
            span = self._child(name, spoken[0], span_id, SpanKind.CONSUMER, about, links)
        if lease.attempt == 1:
            self._waits(lease, span.get_span_context())
        return span

    def _waits(self, lease: Lease, run: SpanContext) -> None:
        """How long each message waited and was gathered, in its own trace, with the way to the run that answers it."""
        for message in lease.messages:
            if message.role != "schedule":
                parent = self._elsewhere(*message_ids(lease.key, message.origin_id))
                links = [] if parent.trace_id == run.trace_id else [Link(run)]
                about: Attributes = {"turnlane.turn": lease.number, "turnlane.message": message.id}
                start = message.accepted_at * NANOSECONDS
                self._child("wait", parent, None, about=about, links=links, start=start).end(
                    max(start, lease.claimed_at * NANOSECONDS)
                )

    def _sending(self, lease: Lease, delivery: Delivery) -> Span:
        about: dict[str, AttributeValue] = {
            "turnlane.channel": channel_of(lease.key),
            "turnlane.delivery": delivery.id,
            "turnlane.kind": delivery.kind,
            "turnlane.part": delivery.part,
        }
        if delivery.turn is not None:
            about["turnlane.turn"] = delivery.turn
        name, span_id = f"delivery {channel_of(lease.key)}", sending_id(delivery.id, lease.epoch)
        return self._of_delivery(name, delivery, span_id, SpanKind.CLIENT, about)

    # What is told afterwards

    def reported(self, delivery: DeliveryView, status: Status) -> None:
        about = {
            "turnlane.conversation": delivery.conversation,
            "turnlane.delivery": delivery.id,
            "turnlane.state": status.state,
        }
        span = self._of_delivery(f"receipt {channel_of(delivery.conversation)}", delivery, None, about=about)
        if status.state == "failed":
            span.set_status(StatusCode.ERROR, self._clean(status.cause or "the platform does not say why"))
        span.end()

    # Spans

    def _of_delivery(
        self,
        name: str,
        delivery: Delivery | DeliveryView,
        span_id: int | None,
        kind: SpanKind = SpanKind.INTERNAL,
        about: Attributes | None = None,
    ) -> Span:
        """An answer hangs on its commit, a question on the message that led to it; a notice has its own trace."""
        if not delivery.in_reply_to:
            return self._root(name, _number("delivery", delivery.id, bits=128), span_id, kind, about or {})
        trace_id, parent_id = message_ids(delivery.conversation, delivery.in_reply_to[0])
        if delivery.kind != "question" and delivery.turn is not None:
            parent_id = answer_id(delivery.conversation, delivery.turn)
        return self._child(name, self._elsewhere(trace_id, parent_id), span_id, kind, about)

    def _root(
        self,
        name: str,
        trace_id: int,
        span_id: int | None,
        kind: SpanKind,
        about: Attributes,
        links: Sequence[Link] = (),
        start: int | None = None,
    ) -> Span:
        with _next_ids(trace_id, span_id):
            return self._tracer.start_span(name, Context(), kind, about, links, start)

    def _child(
        self,
        name: str,
        parent: SpanContext,
        span_id: int | None,
        kind: SpanKind = SpanKind.INTERNAL,
        about: Attributes | None = None,
        links: Sequence[Link] = (),
        start: int | None = None,
    ) -> Span:
        context = trace.set_span_in_context(NonRecordingSpan(parent), Context())
        with _next_ids(None, span_id):
            return self._tracer.start_span(name, context, kind, about, links, start)

    def _elsewhere(self, trace_id: int, span_id: int) -> SpanContext:
        """A span that may be made by any process, as they all sample alike: by the id of the trace."""
        decision = self._tracer.sampler.should_sample(None, trace_id, SCOPE).decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)

    @contextmanager
    def _current(self, span: Span) -> Iterator[None]:
        """What is done meanwhile belongs to it, the spans of an agent's own code too."""
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield
            # Passed on, and told by its kind alone: one that nobody foresaw may quote anything, a message's text too.
            except BaseException as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise
            finally:
                span.end()


class DerivedIds(IdGenerator):
    """Takes the ids that were laid out for the next span, and leaves all others to whoever made them before."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others

    def generate_trace_id(self) -> int:
        return _NEXT.get()[0] or self._others.generate_trace_id()

    def generate_span_id(self) -> int:
        return _NEXT.get()[1] or self._others.generate_span_id()


_RUN: ContextVar[Span] = ContextVar("run")
"""Not the current span, as an agent may have left one of its own behind."""
_NEXT: ContextVar[tuple[int | None, int | None]] = ContextVar("next_ids", default=(None, None))


@contextmanager
def _next_ids(trace_id: int | None, span_id: int | None) -> Iterator[None]:
    told = _NEXT.set((trace_id, span_id))
    try:
        yield
    finally:
        _NEXT.reset(told)


# Ids that every process makes alike


def trace_of(conversation: str, origin_id: str) -> int:
    """The trace of a message, and of the turn that it is the first message of."""
    return _number("trace", channel_of(conversation), origin_id, bits=128)


def message_ids(conversation: str, origin_id: str) -> tuple[int, int]:
    """Of the trace, and of the span in it that says that the message was stored."""
    return trace_of(conversation, origin_id), _number("message", channel_of(conversation), origin_id)


def run_id(conversation: str, turn: int, epoch: int) -> int:
    return _number("run", conversation, turn, epoch)


def answer_id(conversation: str, turn: int) -> int:
    return _number("answer", conversation, turn)


def sending_id(delivery: str, epoch: int) -> int:
    return _number("sending", delivery, epoch)


def _number(*parts: str | int, bits: int = 64) -> int:
    """Never 0, which stands for no id."""
    digest = sha256("\0".join(map(str, (SCOPE, *parts))).encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[: bits // 8], "big") or 1


def _links_to_sender(traceparent: str | None) -> list[Link]:
    """The sender's own trace is linked and not gone on with: no other process could know of it."""
    if traceparent is None:
        return []
    theirs = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, Context())).get_span_context()
    return [Link(theirs)] if theirs.is_valid else []


def _headers_of(span: Span) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, trace.set_span_in_context(span, Context()))
    return headers


def _cause(outcome: Outcome, verdict: Verdict) -> str:
    if verdict == "fenced":
        return "the lease was no longer valid; nothing was changed"
    match outcome:
        case RetryLater(cause=cause) | GaveUp(cause=cause) | Parked(cause=cause):
            return cause
    return verdict


def _spent(replied: Replied) -> dict[str, AttributeValue]:
    """Under the names that OpenTelemetry gives to what models do."""
    usage, model = replied.reply.usage, replied.reply.model
    spent: dict[str, AttributeValue] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    return spent if model is None else {**spent, "gen_ai.response.model": model}
