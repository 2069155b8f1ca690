"""`turnlane usage` and `turnlane sessions`: what was spent, and what agents remember."""

from __future__ import annotations

import json

from tests.unit.test_cli import Life
from tests.unit.test_cli_explain import call, folder, lived  # noqa: F401 - a fixture of every test here

from turnlane.model.turn import Replied, Reply
from turnlane.model.usage import Usage


async def spent(life: Life) -> None:
    for number, (who, model) in enumerate([("alice", "small"), ("alice", "large"), ("bob", "large")]):
        await life.say(f"site/{who}", "hi", id=f"m-{number}")
        usage = Usage(1_000, 100, 500, 10, 1_250_000)
        await life.end(Replied(Reply("hello", f"session of {who}", usage, model=model)))


def test_what_was_used_is_shown_day_by_day() -> None:
    lived(spent)
    heading, line = call("usage").stdout.splitlines()
    assert heading.split() == ["DAY", "TURNS", "INPUT", "CACHED", "OUTPUT", "REASONING", "COST"]
    assert line.split()[1:] == ["3", "3,000", "1,500", "300", "30", "3.75"]


def test_it_is_added_up_by_whatever_is_asked_for() -> None:
    lived(spent)
    _, large, small = call("usage", "--by", "model", "--by", "channel").stdout.splitlines()
    assert large.split()[:3] == ["site", "large", "2"]
    assert small.split()[:3] == ["site", "small", "1"]
    usage = json.loads(call("usage", "--by", "model", "--channel", "site", "--json").stdout)["usage"]
    assert [(each["model"], each["turns"], each["cost"], each["day"]) for each in usage] == [
        ("large", 2, 2.5, None),
        ("small", 1, 1.25, None),
    ]


def test_only_the_days_that_are_asked_for_are_shown() -> None:
    lived(spent)
    assert call("usage", "--until", "2001-01-01").stdout == "nothing was used\n"
    assert call("usage", "--channel", "elsewhere").stdout == "nothing was used\n"
    wrong = call("usage", "--since", "yesterday")
    assert (wrong.exit_code, "%Y-%m-%d" in wrong.stderr) == (2, True)


def test_sessions_are_listed_shown_and_forgotten() -> None:
    lived(spent)
    assert len(call("sessions").stdout.splitlines()) == 3
    _, shown = call("sessions", "show", "site/alice").stdout.splitlines()
    assert shown.split()[0] == "site/alice"
    assert shown.endswith("session of alice")
    assert call("sessions", "forget", "site/alice").stdout == "the next turn of site/alice begins a new session\n"
    assert call("sessions", "forget", "site/alice").stdout == "no agent remembers site/alice\n"
    assert call("sessions", "show", "site/alice").stdout == "no agent remembers site/alice\n"
    [left] = json.loads(call("sessions", "--json").stdout)["sessions"]
    assert (left["conversation"], left["handle"], left["usage"]["cost"]) == ("site/bob", "session of bob", 1_250_000)


def test_of_an_unknown_conversation_nobody_remembers_anything() -> None:
    lived(spent)
    for verb in ("show", "forget"):
        wrong = call("sessions", verb, "site/nobody")
        assert (wrong.exit_code, "`turnlane lanes` lists them" in wrong.stderr) == (1, True)
