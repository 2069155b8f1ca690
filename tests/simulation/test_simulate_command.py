"""`turnlane simulate` says what happened, and how to replay what broke."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from turnlane.cli.main import turnlane
from turnlane.testing.mutants import MUTANTS, planted


def test_it_shows_what_happened() -> None:
    result = CliRunner().invoke(turnlane, ["simulate", "--seeds", "3", "--steps", "100"])
    assert result.exit_code == 0, result.output
    assert "3 histories, 300 steps on memory://" in result.output
    assert "no promise broken" in result.output


def test_it_compares_stores() -> None:
    result = CliRunner().invoke(turnlane, ["simulate", "--seeds", "2", "--steps", "30", "--beside", "sqlite://"])
    assert result.exit_code == 0, result.output
    assert "2 histories, 60 steps on memory:// --beside sqlite://" in result.output


def test_it_answers_in_json() -> None:
    result = CliRunner().invoke(turnlane, ["simulate", "--seeds", "2", "--first-seed", "5", "--steps", "50", "--json"])
    shown = json.loads(result.output)
    assert (shown["backend"], shown["seeds"], shown["steps"], shown["broken"]) == ("memory://", 2, 100, [])
    assert shown["happened"]["accepted"] > 0


def test_a_broken_promise_is_shown_with_its_replay() -> None:
    with planted(MUTANTS[0]):
        found = CliRunner().invoke(turnlane, ["simulate", "--seeds", "20", "--json"])
        assert found.exit_code == 1
        broken = json.loads(found.output)["broken"][0]
        again = CliRunner().invoke(turnlane, broken["replay"].split()[1:])
    assert again.exit_code == 1
    assert f"seed {broken['seed']} broke a promise" in again.output
    assert broken["replay"] in again.output
    assert broken["trace"][-1] in again.output


def test_processes_share_the_work() -> None:
    alone, shared = [
        CliRunner().invoke(turnlane, ["simulate", "--seeds", "30", "--steps", "20", "--json", "--jobs", str(jobs)])
        for jobs in (1, 2)
    ]
    assert json.loads(alone.output)["happened"] == json.loads(shared.output)["happened"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend", "sqlite:///turnlane.db"], "throwaway"),
        (["--backend", "carrier-pigeon://"], "memory://, sqlite://"),
        (["--beside", "sqlite:///turnlane.db"], "throwaway"),
        (["--backend", "sqlite://", "--beside", "sqlite://"], "no --backend"),
        (["--seeds", "0"], "--seeds"),
        (["--seed", "x"], "--seed"),
        (["--steps", "-1"], "--steps"),
    ],
)
def test_what_cannot_be_simulated_is_refused(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(turnlane, ["simulate", *arguments])
    assert result.exit_code == 2
    assert says in result.output
