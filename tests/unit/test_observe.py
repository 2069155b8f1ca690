"""Logs and metrics: every event has its line and its number, and nothing private is in either."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlane.errors import InvalidSettings
from turnlane.model.event import EVENTS, Event
from turnlane.model.lane import Kind
from turnlane.model.view import Counts, Lock, WorkerView
from turnlane.observe.gauges import StoreNow
from turnlane.observe.log import ERRORS, STEPS, WARNINGS, EventLog, configure
from turnlane.observe.metrics import Metrics, forget_process

ROOT = Path(__file__).resolve().parents[2]

ANSWERED = Event("turn.answered", 0, "site/alice", {"turn": 3, "took_ms": 250, "worker": "w1"})
REFUSED = Event(
    "hook.refused", 1_500, None, {"channel": "site", "status": 422, "cause": 'text is a "number"\nnot text'}
)


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = root.level, list(root.handlers), uvicorn.level
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    uvicorn.setLevel(before[2])


def lines(format: str, *events: Event, level: str = "debug") -> list[str]:
    out = io.StringIO()
    configure("json" if format == "json" else "human", level, out)
    EventLog()(events)
    return out.getvalue().splitlines()


def test_a_line_for_people_says_when_who_and_what() -> None:
    assert [line.split(maxsplit=1)[1] for line in lines("human", ANSWERED, REFUSED)] == [
        "info  site/alice             answered turn 3 in 250 ms [turn.answered]",
        'warn  site                   web hook refused with 422 · text is a "number" not text [hook.refused]',
    ]


def test_a_line_for_machines_is_one_object() -> None:
    (line,) = lines("json", ANSWERED)
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "event": "turn.answered",
        "conversation": "site/alice",
        "turn": 3,
        "took_ms": 250,
        "worker": "w1",
    }


@pytest.mark.parametrize("format", ["human", "json"])
@pytest.mark.parametrize("evil", ["a\nturn.answered faked=1", "\x1b[2Jcleared", "\u2028", "", " ", "a=b"])
def test_no_value_can_pretend_to_be_a_line_of_its_own(format: str, evil: str) -> None:
    (line,) = lines(format, Event("lane.parked", 0, evil, {"cause": evil}))
    assert line.isprintable()


def test_every_event_has_its_line() -> None:
    told = lines("json", *(Event(name, 0) for name in EVENTS))
    assert [json.loads(line)["event"] for line in told] == list(EVENTS)


def test_the_steps_of_every_message_are_for_debugging() -> None:
    told = [json.loads(line)["event"] for line in lines("json", *(Event(name, 0) for name in EVENTS), level="info")]
    assert set(told) == set(EVENTS) - STEPS
    assert set(EVENTS) >= STEPS | WARNINGS | ERRORS


def test_configuring_again_does_not_double_lines() -> None:
    configure("human", "info", io.StringIO())
    assert len(lines("human", ANSWERED)) == 1


def test_an_unknown_level_names_those_there_are() -> None:
    with pytest.raises(InvalidSettings, match="debug, info, warning, error"):
        configure(level="loud")


def test_what_libraries_log_takes_the_same_form() -> None:
    out = io.StringIO()
    configure("json", "info", out)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in %s", "ASGI application")
    logging.getLogger("uvicorn.error").info("Started server process")
    (line,) = out.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["message"]) == (
        "uvicorn.error",
        "error",
        "Exception in ASGI application",
    )
    assert "ValueError: broken" in told["exception"]


def test_a_traceback_for_people_follows_its_line() -> None:
    out = io.StringIO()
    configure("human", "info", out)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("a task failed")
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("error asyncio                a task failed")
    assert rest[-1] == "    │ ValueError: broken"


COUNTS = Counts(
    lanes={"idle": 2, "ready": 1},
    messages_waiting=4,
    deliveries_waiting=5,
    deliveries_failed=6,
    dead_letters=7,
    locks=8,
    workers_live=9,
    oldest_due_at=1_000,
)
STORE = StoreNow(
    COUNTS,
    [Lock("site/alice", Kind.TURN, "w1", 1, 500, None), Lock("site/bob", Kind.TURN, "w1", 1, 2_000, None)],
    [WorkerView("w1", True, 3_500, 2), WorkerView("lost", True, 3_499, 0), WorkerView("gone", False, 9_000, 0)],
)


def page(*events: Event, store: StoreNow | None = STORE) -> list[str]:
    metrics = Metrics({"site"})
    metrics(events)
    return metrics.render(store, now=3_500).decode().splitlines()


def test_what_happened_is_counted_by_channel_and_outcome() -> None:
    told = page(
        Event("message.accepted", 0, "site/alice"),
        Event("message.duplicate", 0, "site/alice"),
        Event("turn.started", 0, "site/alice", {"waited_ms": 40}),
        ANSWERED,
        Event("turn.retried", 0, "site/alice"),
        Event("turn.dead_lettered", 0, "site/alice"),
        Event("delivery.sent", 0, "site/alice", {"waited_ms": 10}),
        Event("delivery.failed", 0, "site/alice"),
        Event("delivery.reported", 0, "site/alice", {"state": "read"}),
        Event("hook.ignored", 0, None, {"channel": "site", "why": "an edit", "count": 3}),
        Event("hook.aside", 0, None, {"channel": "site", "why": "an unknown type", "body": "{}"}),
        Event("worker.lost", 0),
        REFUSED,
    )
    for line in [
        'turnlane_messages_total{channel="site",outcome="accepted"} 1.0',
        'turnlane_messages_total{channel="site",outcome="duplicate"} 1.0',
        'turnlane_turns_total{channel="site",outcome="answered"} 1.0',
        'turnlane_turns_total{channel="site",outcome="retried"} 1.0',
        'turnlane_turns_total{channel="site",outcome="dead_lettered"} 1.0',
        'turnlane_deliveries_total{channel="site",outcome="sent"} 1.0',
        'turnlane_deliveries_total{channel="site",outcome="failed"} 1.0',
        'turnlane_turn_seconds_sum{channel="site"} 0.25',
        'turnlane_turn_waited_seconds_sum{channel="site"} 0.04',
        'turnlane_delivery_waited_seconds_count{channel="site"} 1.0',
        'turnlane_hooks_total{channel="site",status="422"} 1.0',
        'turnlane_hooks_ignored_total{channel="site",why="an edit"} 3.0',
        'turnlane_hooks_aside_total{channel="site"} 1.0',
        "turnlane_workers_lost_total 1.0",
    ]:
        assert line in told
    assert not any('outcome="started"' in line or 'outcome="reported"' in line for line in told)


def test_the_store_is_shown_as_it_is_when_asked() -> None:
    told = page()
    for line in [
        "turnlane_backend_up 1.0",
        'turnlane_lanes{state="ready"} 1.0',
        "turnlane_messages_waiting 4.0",
        "turnlane_deliveries_waiting 5.0",
        "turnlane_deliveries_failed 6.0",
        "turnlane_dead_letters 7.0",
        "turnlane_locks 8.0",
        "turnlane_workers_live 1.0",
        "turnlane_oldest_lock_seconds 3.0",
        "turnlane_oldest_due_seconds 2.5",
    ]:
        assert line in told
    assert "turnlane_backend_up 0.0" in page(store=None)


def test_strangers_cannot_make_up_labels() -> None:
    told = page(*(Event("message.accepted", 0, f"made-up-{number}/x") for number in range(50)))
    assert 'turnlane_messages_total{channel="other",outcome="accepted"} 50.0' in told
    assert not any("made-up" in line for line in told)


COUNT_ONE = """
import sys
from turnlane.model.event import Event
from turnlane.observe.metrics import Metrics
metrics = Metrics({"site"})
metrics([Event("message.accepted", 0, "site/alice")])
print(metrics.render(None, now=0).decode())
"""


def test_processes_behind_one_port_add_up(tmp_path: Path) -> None:
    def count_one() -> str:
        command = [sys.executable, "-c", COUNT_ONE]
        environment = {"PYTHONPATH": str(ROOT / "src"), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert 'turnlane_messages_total{channel="site",outcome="accepted"} 1.0' in count_one()
    assert 'turnlane_messages_total{channel="site",outcome="accepted"} 2.0' in count_one()


JUDGED = COUNT_ONE.replace("metrics.render(None, now=0).decode()", "list(metrics.samples(None, now=0))")


def test_processes_behind_one_port_judge_what_they_add_up_to(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(ROOT / "src"), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for total in (1.0, 2.0):
        command = [sys.executable, "-c", JUDGED]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert f"('turnlane_messages_total', {{'channel': 'site', 'outcome': 'accepted'}}, {total})" in told


SHOW_OPEN = COUNT_ONE.replace("print(", "metrics.note_streams(3)\nprint(")


def test_what_a_process_had_open_goes_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOW_OPEN]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as first:
        told, _ = first.communicate()
    assert "turnlane_streams_open 3.0" in told
    forget_process(first.pid, tmp_path)
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "turnlane_streams_open 3.0" in told
    assert 'turnlane_messages_total{channel="site",outcome="accepted"} 2.0' in told


def test_the_reference_lists_every_event_as_it_is() -> None:
    table = re.findall(r"^\| `(\w+\.\w+)` \| (.+?) \| (.*?) \|$", (ROOT / "docs/reference/events.md").read_text(), re.M)
    documented = {name: (means, re.findall(r"`(\w+)`", facts)) for name, means, facts in table}
    told = {name: text.rpartition(". ") for name, text in EVENTS.items()}
    assert documented == {name: (f"{means}.", facts.split(", ")) for name, (means, _, facts) in told.items()}


@pytest.mark.parametrize("format", ["human", "json"])
def test_what_nobody_could_read_is_in_the_store_and_not_in_the_log(format: str) -> None:
    aside = Event("hook.aside", 0, None, {"channel": "site", "why": "an unknown type", "body": "my secret"})
    (line,) = lines(format, aside)
    assert "my secret" not in line
    assert "an unknown type" in line
