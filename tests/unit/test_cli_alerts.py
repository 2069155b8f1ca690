"""`turnlane alerts`: what is raised, asked of a running server, and the files for Prometheus and Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.channels.loopback import Behaviour, answers, loopback, nobody_listens

from turnlane.cli import alerts
from turnlane.cli.main import Failed, turnlane
from turnlane.settings import load

RAISED = {
    "alert": "store_down",
    "severity": "critical",
    "since": "2026-11-16T09:16:20.184Z",
    "value": 0.0,
    "threshold": 1.0,
    "text": "the store does not answer",
    "next_step": "start it",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(*words: str) -> Result:
    return CliRunner().invoke(turnlane, ["alerts", *words])


async def asked(behaviour: Behaviour, token: str | None = None) -> tuple[Any, dict[str, str]]:
    async with loopback(behaviour) as server:
        address = server.url.split("/")[2]
        environ = {"TURNLANE_LISTEN": address} | ({} if token is None else {"TURNLANE_OPERATOR_TOKEN": token})
        found = await alerts._asked(load(None, environ))
    return found, server.requests[0].headers


async def test_a_running_server_is_asked_with_the_token() -> None:
    body = json.dumps({"alerts": [RAISED], "recent": []}).encode()
    found, headers = await asked(answers(200, body), token="sesame-0123456789")
    assert found == {"alerts": [RAISED], "recent": []}
    assert headers["authorization"] == "Bearer sesame-0123456789"


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (answers(401, b"{}"), "operator token"),
        (answers(200, b"<html>"), "no Turnlane server"),
        (answers(200, b'{"alerts": []}'), "no Turnlane server"),
        (answers(404, b'{"title": "Not Found"}'), "no Turnlane server"),
    ],
)
async def test_what_cannot_be_asked_is_said(behaviour: Behaviour, said: str) -> None:
    with pytest.raises(Failed, match=said):
        await asked(behaviour)


def test_without_a_server_it_names_the_next_step() -> None:
    result = typed("--listen", nobody_listens().split("/")[2])
    assert result.exit_code == 3
    assert "turnlane run" in result.output


def test_what_is_raised_is_shown_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(settings: object) -> dict[str, list[dict[str, object]]]:
        return {"alerts": [RAISED], "recent": []}

    monkeypatch.setattr(alerts, "_asked", found)
    assert typed().output.splitlines() == [
        "critical store_down since 2026-11-16T09:16:20.184Z",
        "  the store does not answer",
        "  next: start it",
    ]
    assert json.loads(typed("--json").output) == {"alerts": [RAISED], "recent": []}


def test_nothing_raised_is_said() -> None:
    assert alerts._lines({"alerts": [], "recent": []}) == ["nothing needs you"]


def test_the_files_are_written(tmp_path: Path) -> None:
    (tmp_path / "turnlane.toml").write_text("[alerts]\nstore_errors = 0.33\n")
    assert "> 0.33 and" in typed("rules").output
    assert json.loads(typed("dashboard").output)["title"] == "Turnlane"
