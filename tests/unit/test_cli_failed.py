"""The verbs over what failed: it is tried again, or goes; and how one conversation alone behaves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.test_cli import Life
from tests.unit.test_cli_explain import call, explained, folder, lived  # noqa: F401 - a fixture of every test here

from turnlane.model.lane import Kind
from turnlane.model.turn import Delivered, GaveUp, Replied, Reply


async def given_up(life: Life) -> None:
    await life.say("site/alice", "one", id="m-1")
    await life.end(GaveUp("it cannot be answered"))
    await life.say("site/alice", "two", id="m-2")


async def given_up_and_answered(life: Life) -> None:
    await given_up(life)
    await life.end(Replied(Reply(None)))


# Dead letters


def test_a_dead_letter_is_retried_and_explained_at_its_new_place() -> None:
    lived(given_up)
    retried = call("deadletters", "retry", "site/alice#1")
    assert retried.stdout == "its messages wait again: site/alice is ready, 2 to be answered\n"
    assert call("deadletters").stdout == "no dead letters\n"
    explanation = explained("site:m-1")
    assert (explanation["message"]["seq"], explanation["waits"]["reason"]) == (3, "worker")
    assert (
        "turn 1 given up after 1 attempt: it cannot be answered (run again since)" in call("show", "site/alice").stdout
    )


def test_a_dropped_dead_letter_is_not_listed_but_still_told_of() -> None:
    lived(given_up)
    dropped = json.loads(call("deadletters", "drop", "site/alice#1", "--json").stdout)
    assert (dropped["done"], dropped["lane"]["pending"]) == (True, 1)
    assert call("deadletters").stdout == "no dead letters\n"
    assert "(dropped since)" in call("show", "site/alice").stdout
    assert explained("site:m-1")["outcome"] == "dropped"


@pytest.mark.parametrize("verb", ["show", "retry", "drop"])
def test_what_is_no_dead_letter_is_refused_with_what_it_is(verb: str) -> None:
    lived(given_up_and_answered)
    call("deadletters", "drop", "site/alice#1")
    for id_, why in [
        ("site/alice#1", "that turn was dropped"),
        ("site/alice#2", "that turn was answered"),
        ("site/alice#3", "`turnlane deadletters` lists them"),
        ("site/nobody#1", "`turnlane deadletters` lists them"),
    ]:
        refused = call("deadletters", verb, id_)
        assert (refused.exit_code, why in refused.stderr) == (1, True), refused.stderr


# What could not be sent


async def not_sent(life: Life) -> None:
    await life.say("site/alice", "hi", id="m-1")
    await life.end(Replied(Reply(["one", "two", "three"])))
    await life.end(GaveUp("400"), Kind.OUT)
    await life.end(Delivered(), Kind.OUT)


def listed(state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call("outbox", "--state", state, "--json").stdout)["deliveries"]
    return found


def test_a_failed_reply_is_sent_again_and_a_waiting_one_is_dropped() -> None:
    lived(not_sent)
    (failed,), (waiting,) = listed("failed"), listed("queued")
    assert failed["id"] in call("outbox", "list", "--state", "failed").stdout
    assert re.search(r"queued +- +", call("outbox").stdout)  # not 0: it may have been tried often
    assert call("outbox", "--limit", "1").stderr == "the first 1; more with --limit\n"
    assert call("outbox", "resend", failed["id"]).stdout == "waits to be sent: delivery 4 of site/alice: one\n"
    assert [each["text"] for each in listed("queued")] == ["three", "one"]
    assert call("outbox", "drop", waiting["id"]).stdout == "dropped: delivery 3 of site/alice: three\n"
    assert [each["text"] for each in listed("queued")] == ["one"]
    assert json.loads(call("outbox", "drop", failed["id"], "--json").stdout)["state"] == "dropped"
    assert (listed("queued"), listed("failed")) == ([], [])
    assert "dropped: dropped by an operator" in call("show", "site/alice").stdout


async def gone(life: Life) -> None:
    await life.say("site/alice", "hi", id="m-1")
    await life.end(Replied(Reply("hello")))
    await life.end(GaveUp("410: moved away", gone=True), Kind.OUT)


def test_a_conversation_that_is_gone_is_shown_as_such() -> None:
    lived(gone)
    assert "turns: idle, nothing can be sent any more: 410: moved away\n" in call("show", "site/alice").stdout


def test_an_answer_by_hand_to_who_is_gone_says_that_it_failed() -> None:
    lived(gone)
    said = call("send", "site/alice", "Anna here.", "--as-operator", "--id", "a-1")
    (id_,) = [each["id"] for each in listed("failed") if each["text"] == "Anna here."]
    assert (said.exit_code, said.stdout) == (1, f"failed: delivery {id_} of site/alice\n")
    assert f"it was not sent to site/alice: 410: moved away; `turnlane outbox resend {id_}` tries again" in said.stderr
    assert "will send it" not in said.stderr
    again = call("send", "site/alice", "Anna here.", "--as-operator", "--id", "a-1", "--json")
    told = json.loads(again.stdout)
    assert (again.exit_code, told["done"], told["state"], told["cause"]) == (1, False, "failed", "410: moved away")
    assert call("outbox", "resend", id_).exit_code == 0
    assert call("send", "site/alice", "Anna here.", "--as-operator", "--id", "a-1").exit_code == 0


def test_what_cannot_be_resent_or_dropped_is_refused_with_the_reason() -> None:
    lived(not_sent)
    (sent,), (waiting,) = listed("sent"), listed("queued")
    for verb, id_, why in [
        ("resend", sent["id"], "was sent; only what failed"),
        ("drop", sent["id"], "was sent; only what waits or failed can be dropped"),
        ("resend", waiting["id"], "`turnlane retry site/alice --outbox` ends the wait"),
        ("resend", "nothing", "`turnlane outbox` lists them"),
        ("drop", "nothing", "`turnlane outbox` lists them"),
    ]:
        refused = call("outbox", verb, id_)
        assert (refused.exit_code, why in refused.stderr) == (1, True), refused.stderr


# One conversation's own policy


def test_a_conversation_is_told_how_to_behave_and_told_to_forget_it() -> None:
    lived(given_up)
    assert call("policy", "site/alice").stdout == "site/alice: on_busy = as its route says\n"
    assert call("policy", "site/alice", "--on-busy", "steer").stdout == "site/alice: on_busy = steer\n"
    assert json.loads(call("lanes", "--json").stdout)["lanes"][0]["on_busy"] == "steer"
    assert ", on_busy = steer (its own)\n" in call("show", "site/alice").stdout
    assert json.loads(call("policy", "site/alice", "--json").stdout)["lane"]["on_busy"] == "steer"
    assert call("policy", "site/alice", "--on-busy", "default").stdout == "site/alice: on_busy = as its route says\n"


def test_a_policy_that_does_not_exist_is_refused_with_those_that_do() -> None:
    lived(given_up)
    wrong = call("policy", "site/alice", "--on-busy", "ignore")
    assert (wrong.exit_code, "'reject', 'default'" in wrong.stderr) == (2, True)
    nobody = call("policy", "site/nobody", "--on-busy", "steer")
    assert (nobody.exit_code, "`turnlane lanes` lists them" in nobody.stderr) == (1, True)
