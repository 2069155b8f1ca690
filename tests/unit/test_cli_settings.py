"""The verb over settings: listed with where each came from, set, unset, and refused with the next step."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_cli import call, folder, json_of  # noqa: F401 - a fixture of every test here


def listed(*arguments: str) -> dict[str, Any]:
    return {setting["name"]: setting for setting in json_of("settings", *arguments)["settings"]}


@pytest.fixture
def store() -> None:
    call("send", "web/bob", "hello")


@pytest.mark.parametrize("arguments", [[], ["set", "lanes.debounce", "5s"], ["unset", "lanes.debounce"]])
def test_without_a_store_the_next_step_is_named(arguments: list[str]) -> None:
    result = call("settings", *arguments)
    assert (result.exit_code, "start `turnlane run` here" in result.stderr) == (1, True)


@pytest.mark.usefixtures("store")
def test_a_setting_is_set_listed_and_unset() -> None:
    """D8"""
    assert call("settings", "set", "lanes.debounce", "5s").stdout == "lanes.debounce = 5s (stored)\n"
    assert call("settings", "set", "channels.web.paused", "true").stdout == "channels.web.paused = true (stored)\n"
    heading, *rows = call("settings").stdout.splitlines()
    assert heading.split() == ["NAME", "VALUE", "FROM", "STORED"]
    assert ["lanes.debounce", "5s", "stored", "5s"] in [row.split() for row in rows]
    assert ["limits.all", "null", "default"] in [row.split() for row in rows]
    assert listed()["channels.web.paused"]["value"] is True
    assert "listen" not in listed()
    assert listed("list", "--all")["listen"]["changeable"] is False
    assert call("settings", "unset", "lanes.debounce").stdout == "lanes.debounce = 3s (default)\n"
    assert json_of("settings", "unset", "channels.web.paused")["source"] == "default"


@pytest.mark.usefixtures("store")
def test_it_says_if_the_environment_is_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLANE_LANES_DEBOUNCE", "1s")
    result = call("settings", "set", "lanes.debounce", "4s")
    assert (result.exit_code, result.stdout) == (0, "lanes.debounce = 1s (environment)\n")
    assert result.stderr == "it is stored, but not in force here: TURNLANE_LANES_DEBOUNCE is stronger\n"
    assert "lanes.debounce: what is stored is not in force here" in call("settings").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["set", "lanes.debounce", "5"], 2, "lanes.debounce: expected a duration with its unit"),
        (["set", "lanes.debonce", "5s"], 1, "did you mean 'lanes.debounce'?"),
        (["set", "listen", "127.0.0.1:1"], 2, "listen is read when a process starts"),
        (["set", "lanes.debounce", "\udcff"], 2, "not valid UTF-8"),
        (["unset", "lanes.debonce"], 1, "did you mean 'lanes.debounce'?"),
    ],
)
@pytest.mark.usefixtures("store")
def test_what_cannot_be_set_is_refused(arguments: list[str], code: int, says: str) -> None:
    result = call("settings", *arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr
    assert not [setting for setting in listed().values() if setting["stored"] is not None]


@pytest.mark.usefixtures("store")
def test_what_is_sent_follows_what_is_stored() -> None:
    call("settings", "set", "routes.web.debounce", "0s")
    call("settings", "set", "commands.stop", "/halt")
    assert call("send", "web/alice", "hello").exit_code == 0
    assert call("send", "web/carol", "/halt").exit_code == 0
    states = {lane["conversation"]: lane["state"] for lane in json_of("lanes")["lanes"]}
    assert states == {"web/bob": "gathering", "web/alice": "ready", "web/carol": "idle"}
