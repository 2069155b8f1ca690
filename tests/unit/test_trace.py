"""Traces: every step of a message is a span with the right parent, whoever makes it and however it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanContext, StatusCode
from tests.flow.world import AT_ONCE, World

from turnlane.agents.command import Command
from turnlane.agents.function import Function
from turnlane.backends.memory import MemoryBackend
from turnlane.channels.base import Heard, Status
from turnlane.errors import AgentFailed, BackendUnavailable, InvalidSettings
from turnlane.flow.hear import hear
from turnlane.flow.receive import receive
from turnlane.model.delivery import NotSent, Refused
from turnlane.model.lane import Kind
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Replied, Reply, Turn
from turnlane.model.usage import Usage
from turnlane.observe.exporter import follower, is_wanted
from turnlane.observe.trace import LOST, Follower, message_ids, trace_of
from turnlane.outgoing import trace_headers
from turnlane.settings import load
from turnlane.testing.doubles import VirtualClock

ALICE = "desk/alice"


class Traced(World):
    """A world whose steps are all seen."""

    tracer: Follower

    def __init__(self, backend: MemoryBackend, clock: VirtualClock, sampler: Sampler | None = None) -> None:
        super().__init__(backend, clock)
        self._exporter = InMemorySpanExporter()
        self.tracer = self._follower(sampler)

    def _follower(self, sampler: Sampler | None) -> Follower:
        provider = TracerProvider(sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        tracer = provider.get_tracer("turnlane")
        return Follower(tracer, clean=lambda text: text.replace("hunter2", "***"))  # type: ignore[arg-type]

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def parent_of(self, name: str) -> str | None:
        parent = self.one(name).parent
        return next((each.name for each in self.spans() if parent and context(each).span_id == parent.span_id), None)

    def traces(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for span in self.spans():
            found.setdefault(context(span).trace_id, []).append(span.name)
        return found


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def about(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("turnlane."): value for name, value in (span.attributes or {}).items()}


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def world(clock: VirtualClock) -> AsyncIterator[Traced]:
    backend = MemoryBackend("memory://", clock)
    await backend.open()
    yield Traced(backend, clock)
    await backend.close()


async def test_a_message_leaves_one_span_a_step(world: Traced) -> None:
    async with world.working(lambda turn: Reply("hi", usage=Usage(30, 12), model="small-1")):
        await world.say("alice", "hello")
        await world.desk.has(1)
        await world.settled()
    assert list(world.traces()) == [trace_of(ALICE, "m-1")]
    steps = ("message desk", "wait", "turn agent", "answer", "delivery desk")
    assert [world.parent_of(step) for step in steps] == [None, "message desk", "message desk", "turn agent", "answer"]
    told = about(world.one("turn agent"))
    assert told.items() >= {"conversation": ALICE, "turn": 1, "attempt": 1, "agent": "agent", "messages": 1}.items()
    assert (told["outcome"], told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (
        "answered",
        30,
        12,
    )
    assert told["gen_ai.response.model"] == "small-1"
    assert {span.status.status_code for span in world.spans("turn")} == {StatusCode.OK}


async def test_messages_answered_together_are_linked_both_ways(world: Traced) -> None:
    async with world.working(lambda turn: Reply("hi")):
        await world.say("alice", "one", "two", "three", policy=replace(AT_ONCE, debounce_ms=10, max_batch=3))
        await world.settled()
    run = world.one("turn agent")
    others = [message_ids(ALICE, f"m-{number}") for number in (2, 3)]
    assert linked(run) == [span_id for _, span_id in others]
    for trace_id, _ in others:
        message, wait = [span for span in world.spans() if context(span).trace_id == trace_id]
        assert (message.name, wait.name, linked(wait)) == ("message desk", "wait", [context(run).span_id])


async def test_a_message_that_comes_again_makes_no_second_span(world: Traced) -> None:
    for _ in range(2):
        await receive(
            [world.message("alice", "hi", "m-1")],
            backend=world.backend,
            policy_for=lambda _: AT_ONCE,
            tracer=world.tracer,
        )
    assert [span.name for span in world.spans()] == ["message desk"]


async def test_a_failed_run_ends_in_error_and_the_next_one_is_beside_it(world: Traced, clock: VirtualClock) -> None:
    fails = [AgentFailed("the key hunter2 is not known")]

    def moody(turn: Turn) -> Reply:
        if fails:
            raise fails.pop()
        return Reply("hi")

    async with world.working(moody):
        await world.say("alice", "hello")
        await world.facts.seen("turn.retried")
        clock.advance(2_000)
        await world.desk.has(1)
        await world.settled()
    first, second = world.spans("turn agent")
    assert (about(first)["outcome"], first.status.status_code) == ("retried", StatusCode.ERROR)
    assert first.status.description == "the key *** is not known"
    assert (about(second)["outcome"], about(second)["attempt"]) == ("answered", 2)
    assert first.parent == second.parent
    assert world.one("answer").parent == context(second)
    assert len(world.spans("wait")) == 1


async def test_each_sending_is_a_span_and_says_why_it_failed(world: Traced, clock: VirtualClock) -> None:
    world.desk.results.extend([NotSent("busy"), Refused("blocked")])
    async with world.working(lambda turn: Reply("hi")):
        await world.say("alice", "hello")
        await world.facts.seen("delivery.retried")
        clock.advance(2_000)
        await world.facts.seen("delivery.failed")
        await world.settled()
    first, second = world.spans("delivery desk")
    assert [(about(span)["outcome"], span.status.description) for span in (first, second)] == [
        ("retried", "busy"),
        ("failed", "blocked"),
    ]
    assert first.parent is not None
    assert first.parent == second.parent
    assert first.parent.span_id == context(world.one("answer")).span_id


async def test_what_a_platform_tells_later_is_in_the_same_trace(world: Traced, clock: VirtualClock) -> None:
    async with world.working(lambda turn: Reply("hi")):
        await world.say("alice", "hello")
        await world.desk.has(1)
        await world.settled()
    heard = Heard(statuses=[Status(ALICE, "read", receipt="receipt-1"), Status(ALICE, "read", receipt="a stranger's")])
    await hear(
        "desk",
        heard,
        backend=world.backend,
        receive=lambda messages: receive(messages, backend=world.backend, policy_for=lambda _: AT_ONCE),
        emit=world.tell,
        clock=clock,
        tracer=world.tracer,
    )
    assert about(world.one("receipt desk"))["state"] == "read"
    assert world.parent_of("receipt desk") == "answer"
    assert len(world.traces()) == 1


async def test_a_hook_belongs_to_its_first_message_and_knows_its_sender(world: Traced) -> None:
    messages = [world.message("alice", "one"), world.message("bob", "two")]
    sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with world.tracer.hearing("desk", messages, since=1_000, traceparent=sender):
        await receive(messages, backend=world.backend, policy_for=lambda _: AT_ONCE, tracer=world.tracer)
    hook, (first, second) = world.one("hook desk"), world.spans("message")
    assert (first.parent, second.parent) == (context(hook), None)
    assert linked(second) == [context(hook).span_id]
    assert linked(hook) == [0xB7AD6B7169203331]
    assert hook.start_time == 1_000 * 1_000_000


@pytest.mark.parametrize("traceparent", [None, "", "garbage", "00-0-0-00", "ff" * 500])
async def test_what_a_sender_says_of_its_trace_can_do_no_harm(world: Traced, traceparent: str | None) -> None:
    with world.tracer.hearing("desk", [world.message("alice", "hi")], since=0, traceparent=traceparent):
        pass
    assert linked(world.one("hook desk")) == []


async def test_a_hook_that_fails_says_only_what_kind_of_error_it_was(world: Traced) -> None:
    with (
        pytest.raises(BackendUnavailable),
        world.tracer.hearing("desk", [world.message("alice", "hi")], since=0, traceparent=None),
    ):
        raise BackendUnavailable("password hunter2 for alice's words")
    hook = world.one("hook desk")
    assert (hook.status.status_code, hook.status.description) == (StatusCode.ERROR, "BackendUnavailable")
    assert hook.events == ()


async def test_a_hook_without_messages_leaves_nothing(world: Traced) -> None:
    with world.tracer.hearing("desk", [], since=0, traceparent=None):
        pass
    assert world.spans() == []


async def test_a_run_whose_lease_was_lost_says_so_and_its_heir_knows_it(world: Traced, clock: VirtualClock) -> None:
    await world.say("alice", "hello")
    for worker in ("slow", "quick"):
        await world.backend.join(worker, 1_000)
        (lease,) = await world.backend.claim(worker, Kind.TURN)
        with world.tracer.running(lease):
            if worker == "quick":
                outcome = Replied(Reply("hi"))
                world.tracer.committed(lease, outcome, (await world.backend.commit(lease, outcome)).verdict)
        clock.advance(2_000)
        await world.backend.reap()
    slow, quick = world.spans("turn agent")
    assert (slow.status.status_code, slow.status.description) == (StatusCode.ERROR, LOST)
    assert (about(slow)["took_over"], about(quick)["took_over"], about(quick)["outcome"]) == (False, True, "answered")
    assert context(slow).span_id != context(quick).span_id


async def test_a_stale_holder_leaves_no_answer(world: Traced) -> None:
    await world.say("alice", "hello")
    await world.backend.join("w", 1_000)
    (lease,) = await world.backend.claim("w", Kind.TURN)
    with world.tracer.running(lease):
        assert trace_headers.get() != {}
        world.tracer.committed(lease, Replied(Reply("hi")), "fenced")
    assert trace_headers.get() == {}
    assert world.spans("answer") == []
    assert world.one("turn agent").status.status_code is StatusCode.ERROR


async def test_an_agents_own_spans_and_requests_go_on_with_the_trace(world: Traced) -> None:
    seen: list[str] = []

    async def respond(turn: Turn) -> Reply:
        await asyncio.sleep(0)
        seen.append(trace_headers.get()["traceparent"])
        return Reply(str(trace.get_current_span().get_span_context().span_id))

    async with world.working(Function(respond)):
        await world.say("alice", "hello")
        (text,) = await world.desk.has(1)
        await world.settled()
    run = context(world.one("turn agent"))
    assert (text, seen) == (str(run.span_id), [f"00-{run.trace_id:032x}-{run.span_id:016x}-01"])


async def test_a_program_finds_its_trace_in_its_environment(world: Traced) -> None:
    program = "import json, os; print(json.dumps({'text': os.environ['TRACEPARENT']}))"
    async with world.working(Command([sys.executable, "-c", program])):
        await world.say("alice", "hello")
        (text,) = await world.desk.has(1)
        await world.settled()
    assert text == f"00-{trace_of(ALICE, 'm-1'):032x}-{context(world.one('turn agent')).span_id:016x}-01"


async def test_what_the_clock_says_begins_a_trace_at_its_turn(world: Traced, clock: VirtualClock) -> None:
    schedule = Schedule("pulse", conversation=ALICE, prompt="how is it?", every_ms=1_000)
    await world.backend.schedule(schedule, AT_ONCE)
    async with world.working(lambda turn: Reply("hi")):
        clock.advance(1_000)
        await world.desk.has(1)
        await world.settled()
    assert world.one("turn agent").parent is None
    assert world.parent_of("delivery desk") == "answer"


async def test_all_processes_sample_the_same_traces(clock: VirtualClock) -> None:
    """By the id of the trace, so that one that is seen is seen whole."""
    backend = MemoryBackend("memory://", clock)
    await backend.open()
    world = Traced(backend, clock, ParentBased(TraceIdRatioBased(0.5)))
    async with world.working(lambda turn: Reply("hi")):
        for number in range(40):
            await world.say(f"person-{number}", "hello")
        await world.desk.has(40)
        await world.settled()
    whole = {"message desk", "wait", "turn agent", "answer", "delivery desk"}
    assert 5 < len(world.traces()) < 35
    assert all(set(names) == whole for names in world.traces().values())
    await backend.close()


def test_the_ids_are_the_same_wherever_they_are_made() -> None:
    """A fixed point: processes of two versions must agree, too."""
    assert f"{trace_of('site/alice', 'm1'):032x}" == "67a9c201097f6c8f6945c9231070d291"
    assert trace_of("site/alice", "m1") == trace_of("site/bob", "m1")
    assert trace_of("site/alice", "m1") != trace_of("other/alice", "m1")
    assert message_ids("site/a", "m1") != message_ids("site/a", "m2")


@pytest.mark.parametrize(
    ("enabled", "environ", "wanted"),
    [
        (None, {}, False),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        (None, {"OTEL_TRACES_EXPORTER": "console"}, True),
        (False, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
        (True, {}, True),
    ],
)
def test_who_wants_traces(enabled: bool | None, environ: dict[str, str], wanted: bool) -> None:
    assert is_wanted(enabled, environ) is wanted


def test_the_settings_know_three_answers() -> None:
    assert load(None, {}).traces.enabled is None
    assert load(None, {"TURNLANE_TRACES_ENABLED": "true"}).traces.enabled is True
    assert load(None, {"TURNLANE_TRACES_ENABLED": "false"}).traces.enabled is False


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InvalidSettings, match=r"pip install 'turnlane\[otel\]'"):
        follower(machine="m", insist=True)
    assert follower(machine="m", insist=False) is None


def test_an_exporter_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_grpc")
    with pytest.raises(InvalidSettings, match="pip install opentelemetry-exporter-otlp-proto-grpc"):
        follower(machine="m", insist=True)
