"""Every workload runs, sees what it must see, and tells a wrong result from a right one. Nothing here is timed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnlane.cli import bench
from turnlane.errors import InvalidSettings
from turnlane.testing.bench import TINY, WORKLOADS, Figure, Sample, WrongResult, chosen, figures, run
from turnlane.testing.bench.burst import one_burst
from turnlane.testing.bench.ground import Files, url_of
from turnlane.testing.bench.memory import objects_of_idle_conversations
from turnlane.testing.bench.runs import ONLY_FILES, ONLY_SERVERS
from turnlane.testing.bench.same_rows import seconds_without_an_engine
from turnlane.testing.bench.targets import POSTGRES_TARGETS, TARGETS
from turnlane.testing.bench.witness import Record, Run, check

SAID = {"bench/a": ["1", "2"]}


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in ONLY_SERVERS])
def test_every_workload_gives_right_results(name: str, tmp_path: Path) -> None:
    samples = list(WORKLOADS[name](TINY, Files(tmp_path)))
    assert samples
    assert {TARGETS[sample.name].workload for sample in samples} == {name}


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in {*ONLY_FILES, "W1-HTTP", "memory"}])
def test_every_workload_gives_right_results_on_a_server(name: str, postgres: str) -> None:
    [(_, samples)] = run([name], replace(TINY, rounds=1), server=postgres)
    assert samples
    assert {POSTGRES_TARGETS[sample.name].workload for sample in samples} == {name}


@pytest.mark.parametrize("conversations", [10, 200])
async def test_an_idle_conversation_costs_no_memory(conversations: int, tmp_path: Path) -> None:
    scale = replace(TINY, conversations=conversations)
    assert await objects_of_idle_conversations(url_of(tmp_path / "idle.db"), scale) == 0


async def test_what_a_process_keeps_would_be_seen(tmp_path: Path) -> None:
    kept = objects_of_idle_conversations(url_of(tmp_path / "kept.db"), TINY, idle_after_ms=60_000, patience_seconds=0)
    assert await kept >= TINY.conversations


def test_the_same_rows_are_written_without_an_engine(tmp_path: Path) -> None:
    finished, copy = tmp_path / "finished.db", tmp_path / "copy.db"
    one_burst(url_of(finished), "queue", TINY.slots_many, TINY)
    seconds_without_an_engine(finished, copy)
    with closing(sqlite3.connect(finished)) as original, closing(sqlite3.connect(copy)) as copied:
        for table in ("lane", "message", "origin", "turn", "session", "delivery", "journal"):
            rows = f"SELECT * FROM {table}"
            assert copied.execute(rows).fetchall() == original.execute(rows).fetchall()


def record(*runs: tuple[str, float, float], sends: list[tuple[int, str]]) -> Record:
    return Record(
        runs=[Run("bench/a", tuple(said.split("+")), began, ended) for said, began, ended in runs],
        sends=[("bench/a", seq, text) for seq, text in sends],
    )


RIGHT = [(1, "1"), (2, "2")]


def test_a_right_result_passes() -> None:
    check([record(("1", 0, 1), ("2", 1, 2), sends=RIGHT)], SAID)
    check([record(("1+2", 0, 1), sends=[(1, "1+2")])], SAID)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (record(("1", 0, 1), sends=RIGHT), "lost"),
        (record(("2", 0, 1), ("1", 1, 2), sends=RIGHT), "out of order"),
        (record(("1", 0, 2), ("2", 1, 3), sends=RIGHT), "overlap"),
        (record(("1", 0, 1), ("2", 1, 2), sends=[*RIGHT, (2, "2")]), "sent twice"),
        (record(("1", 0, 1), ("2", 1, 2), sends=[(1, "1")]), "replies lost"),
        (Record(problems=["bench/a: turn.fenced"]), "turn.fenced"),
    ],
)
def test_a_wrong_result_fails_loudly(seen: Record, why: str) -> None:
    with pytest.raises(WrongResult, match=why):
        check([seen], SAID)


def test_a_figure_is_the_median_held_against_its_target() -> None:
    values = [1.0, 4.0, 1.6]
    [figure] = figures([Sample("burst.queue.many", value, {"turns": value}) for value in values])
    assert (figure.low, figure.median, figure.high, figure.reached) == (1.0, 1.6, 4.0, "must")
    assert figure.detail == {"turns": 1.6}
    assert not figure.missed


@pytest.mark.parametrize(
    ("name", "value", "reached"),
    [
        ("burst.queue.many", 3.0, "aim"),
        ("burst.queue.many", 1.4, "not met"),
        ("slow", 1.02, "must"),
        ("slow", 1.2, "not met"),
        ("gathering", 1.0, "must"),
        ("gathering", 2.0, "not met"),
        ("http", 0.1, "not met"),
    ],
)
def test_a_target_says_what_is_reached(name: str, value: float, reached: str) -> None:
    figure = Figure(name, [Sample(name, value)], TARGETS[name])
    assert figure.reached == reached
    assert figure.missed == (reached == "not met" and figure.target.must is not None)


def test_workloads_are_chosen_by_name() -> None:
    assert chosen(["w2", " W1 "]) == ["W1", "W2"]
    assert chosen([""]) == list(WORKLOADS)
    with pytest.raises(InvalidSettings, match="no workload is named w9; choose from W1"):
        chosen(["W9"])


def test_the_command_shows_a_table_and_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    arguments = ["--quick", "--only", "W5", "--folder", str(tmp_path)]
    table = CliRunner().invoke(bench.command, arguments)
    assert "most turns of a conversation" in table.output
    answer = json.loads(CliRunner().invoke(bench.command, [*arguments, "--json"]).output)
    assert answer["figures"][0]["workload"] == "W5"
    assert list(tmp_path.iterdir()) == []
