"""The verbs that steer a conversation: hold it, let it go on, stop it, and decide about what it is stuck in."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest
from tests.unit.test_cli import AT_ONCE, Life
from tests.unit.test_cli_explain import call, explained, folder, lived  # noqa: F401 - a fixture of every test here

from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.policy import Backoff
from turnlane.model.question import Question
from turnlane.model.turn import Asks, Delivered, Parked, Replied, Reply, RetryLater
from turnlane.testing.doubles import VirtualClock

PATIENT = replace(AT_ONCE, backoff=Backoff(first_ms=600_000), max_batch=1)


async def idle(life: Life) -> None:
    await life.say("site/alice", "hi", id="m-1")
    await life.end(Replied(Reply(None)))


async def waiting_for_a_retry(life: Life) -> None:
    await life.say("site/alice", "one", id="m-1", policy=PATIENT)
    await life.say("site/alice", "two", id="m-2", policy=PATIENT)
    await life.end(RetryLater(at=SystemClock().now() + 600_000, cause="the model was busy"))


async def waiting_to_send_again(life: Life) -> None:
    await life.say("site/alice", "hi", id="m-1")
    await life.end(Replied(Reply(["one", "two"])))
    await life.end(RetryLater(at=SystemClock().now() + 600_000, cause="503"), Kind.OUT)


async def goodbye(life: Life) -> None:
    await life.backend.leave("w1")


# Hold, and go on


def test_a_paused_conversation_waits_and_goes_on_when_resumed() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    paused = call("pause", "site/alice")
    assert paused.stdout == "no more turns start: site/alice is paused, 1 to be answered\n"
    assert paused.stderr == "`turnlane resume site/alice` lets it go on\n"
    waits = explained("site:m-1")["waits"]
    assert (waits["reason"], waits["next"]) == ("paused", "turnlane resume site/alice")
    lanes = json.loads(call("lanes", "--state", "paused", "--json").stdout)["lanes"]
    assert [lane["conversation"] for lane in lanes] == ["site/alice"]
    assert call("resume", "site/alice").stdout == "resumed: site/alice is ready, 1 to be answered\n"


def test_a_pause_may_end_by_itself() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    paused = call("pause", "site/alice", "--for", "2h")
    assert re.fullmatch(
        r"no more turns start: site/alice is paused until [\d-]+ [\d:]+, 1 to be answered\n", paused.stdout
    )
    assert paused.stderr == "`turnlane resume site/alice` lets it go on sooner\n"
    waits = explained("site:m-1")["waits"]
    assert (waits["reason"], waits["until_at"] is not None) == ("paused", True)
    assert "resumes in" in call("lanes").stdout
    assert "turns: paused, 1 waiting, resumes in" in call("show", "site/alice").stdout
    for wrong in ("2", "soon", "-1h", "99999999999d"):
        refused = call("pause", "site/alice", "--for", wrong)
        assert refused.exit_code == 2
        assert "write it with its unit" in refused.stderr or wrong == "-1h"


def test_a_pause_that_is_over_at_once_is_refused() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    for nothing in ("0s", "0h0m"):
        refused = call("pause", "site/alice", "--for", nothing)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{nothing} is over at once; write a longer time" in refused.stderr
    assert json.loads(call("lanes", "--state", "paused", "--json").stdout)["lanes"] == []


# Answer by hand


def test_an_operator_answers_by_hand_and_the_agent_falls_silent() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "help!", id="m-1")

    lived(story)
    answered = call("send", "site/alice", "Anna here.", "--as-operator", "--id", "a-1", "--sender", "Anna")
    assert re.fullmatch(r"queued: delivery [0-9a-f-]{36} of site/alice\n", answered.stdout)
    assert "the agent is silent until" in answered.stderr
    assert "`turnlane resume site/alice` lets it go on sooner" in answered.stderr
    again = call("send", "site/alice", "Anna here.", "--as-operator", "--id", "a-1", "--sender", "Anna")
    assert again.stdout.startswith("duplicate, nothing changed: delivery ")
    told = call("show", "site/alice").stdout
    assert told.count("Anna here.") == 1
    assert "operator  Anna here.  (waits to be sent)" in told
    assert explained("site:operator/site/alice/a-1")["outcome"] == "heard"


def test_an_answer_by_hand_need_not_silence_the_agent() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "help!", id="m-1")

    lived(story)
    said = json.loads(call("send", "site/alice", "hm", "--as-operator", "--no-takeover", "--json").stdout)
    assert (said["done"], said["lane"]["state"]) == (True, "ready")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["site/nobody", "hi", "--as-operator"], "no conversation 'site/nobody' to answer in; `turnlane lanes`"),
        (["site/alice", " ", "--as-operator"], "text is empty"),
        (["site/alice", "hi", "--no-takeover"], "--no-takeover goes with --as-operator"),
        (["site/alice", "hi", "--as-operator", "--wait", "1"], "gets none"),
    ],
)
def test_what_cannot_be_answered_by_hand_says_why(arguments: list[str], says: str) -> None:
    lived(idle)
    refused = call("send", *arguments)
    assert refused.exit_code != 0
    assert says in refused.stderr
    assert "to be sent" not in call("show", "site/alice").stdout


def test_resume_lets_a_parked_conversation_go_on() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.end(Parked("no such agent: 'helper'"))

    lived(story)
    waits = explained("site:m-1")["waits"]
    assert (waits["text"], waits["next"]) == (
        "the lane is parked: no such agent: 'helper'",
        "turnlane resume site/alice",
    )
    assert json.loads(call("resume", "site/alice", "--json").stdout)["lane"]["state"] == "ready"


def test_the_outbox_is_held_by_itself() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.end(Replied(Reply("hello")))

    lived(story)
    paused = call("pause", "site/alice", "--outbox")
    assert paused.stdout == "nothing more is sent: sending of site/alice is paused, 1 to be sent\n"
    assert paused.stderr == "`turnlane resume site/alice --outbox` lets it go on\n"
    assert explained("site:m-1")["waits"]["next"] == "turnlane resume site/alice --outbox"
    assert json.loads(call("lanes", "--json").stdout)["lanes"][0]["state"] == "idle"
    assert call("resume", "site/alice", "--outbox").stdout == "resumed: sending of site/alice is ready, 1 to be sent\n"


def test_a_running_turn_goes_on_when_its_conversation_is_paused() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.take()

    lived(story)
    assert "what worker w1 has begun goes on to its end" in call("pause", "site/alice").stderr


def test_going_on_needs_a_worker() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await goodbye(life)

    lived(story)
    assert call("resume", "site/alice").stderr == "no worker is running; `turnlane run` goes on with it\n"


def test_nobody_is_said_to_be_stopping_what_a_lost_worker_had_begun() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.take()

    lived(story, VirtualClock(now=SystemClock().now() - 600_000))  # so the term of its worker is over
    assert call("stop", "site/alice").stderr == "no worker is running; `turnlane run` goes on with it\n"


# Stop


def test_stop_sets_aside_what_runs_and_what_waits() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        lease = await life.take()
        await life.say("site/alice", "two", id="m-2")
        stopped = await asyncio.to_thread(call, "stop", "site/alice")
        assert stopped.stdout.startswith("stopped, what was not answered is set aside: site/alice is running, 0 to be")
        assert stopped.stderr == f"worker {lease.worker} is stopping what it has begun; nothing else starts before\n"
        assert (await life.backend.commit(lease, Replied(Reply("too late")))).verdict == "superseded"
        assert await life.backend.outbox() == []

    lived(story)
    assert [explained(f"site:m-{number}")["outcome"] for number in (1, 2)] == ["superseded", "superseded"]


def test_what_is_paused_stays_so_when_it_is_stopped() -> None:
    lived(waiting_for_a_retry)
    call("pause", "site/alice")
    stopped = call("stop", "site/alice")
    assert stopped.stdout.endswith("site/alice is paused, 0 to be answered\n")
    assert stopped.stderr == "`turnlane resume site/alice` lets it go on\n"


# Retry


def test_retry_ends_the_wait_for_the_next_attempt() -> None:
    lived(waiting_for_a_retry)
    retried = call("retry", "site/alice")
    assert retried.stdout == "the wait before the next attempt is over: site/alice is ready, 2 to be answered\n"
    assert retried.stderr == ""


def test_retry_sends_again_at_once() -> None:
    lived(waiting_to_send_again)
    assert call("retry", "site/alice").stdout.startswith("nothing waits for a retry: site/alice is idle")
    retried = call("retry", "site/alice", "--outbox")
    assert retried.stdout.endswith("is over: sending of site/alice is ready, 2 to be sent\n")


def test_a_retry_of_what_is_paused_says_how_it_goes_on() -> None:
    lived(waiting_for_a_retry)
    call("pause", "site/alice")
    assert call("retry", "site/alice").stderr == "`turnlane resume site/alice` lets it go on\n"


def test_what_runs_already_is_not_tried_again() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.take()

    lived(story)
    retried = call("retry", "site/alice")
    assert retried.stdout == "nothing waits for a retry: site/alice is running, 1 to be answered\n"
    assert retried.stderr == "what worker w1 has begun goes on to its end\n"


# Skip


def test_a_waiting_retry_is_visible_and_can_be_skipped() -> None:
    lived(waiting_for_a_retry)
    assert explained("site:m-2")["waits"]["next"] == "turnlane retry site/alice"
    skipped = call("skip", "site/alice")
    assert skipped.stdout == ("skipped, and kept in `turnlane deadletters`: site/alice is ready, 1 to be answered\n")
    assert "site/alice#1" in call("deadletters").stdout
    assert explained("site:m-1")["outcome"] == "dead_letter"


def test_a_reply_that_cannot_be_sent_is_skipped_and_the_next_one_leaves() -> None:
    lived(waiting_to_send_again)
    skipped = call("skip", "site/alice", "--outbox")
    assert skipped.stdout == (
        "skipped, and kept in `turnlane outbox --state failed`: sending of site/alice is ready, 1 to be sent\n"
    )
    (failed,) = json.loads(call("outbox", "--state", "failed", "--json").stdout)["deliveries"]
    assert (failed["text"], failed["cause"]) == ("one", "skipped by an operator")


def test_what_was_not_begun_is_not_skipped() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.end(Replied(Reply("hello")))

    lived(story)
    for arguments, said in [
        (["site/alice"], "no turn was begun that could be skipped: site/alice is idle, 0 to be answered\n"),
        (
            ["site/alice", "--outbox"],
            "no reply was begun that could be skipped: sending of site/alice is ready, 1 to be sent\n",
        ),
    ]:
        assert call("skip", *arguments).stdout == said


# All of them


@pytest.mark.parametrize("verb", ["stop", "retry", "skip"])
def test_nothing_to_do_is_no_failure_and_says_what_is_there(verb: str) -> None:
    lived(idle)
    result = call(verb, "site/alice")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(": site/alice is idle, 0 to be answered\n")
    answer = json.loads(call(verb, "site/alice", "--json").stdout)
    assert (answer["done"], answer["lane"]["state"]) == (False, "idle")


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "retry", "skip"])
def test_what_was_done_is_told_in_json(verb: str) -> None:
    lived(waiting_for_a_retry)
    answer = json.loads(call(verb, "site/alice", "--json").stdout)
    assert (answer["done"], answer["lane"]["conversation"]) == (True, "site/alice")


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "retry", "skip"])
def test_what_is_not_there_cannot_be_steered(verb: str) -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    no_outbox = (2, "No such option '--outbox'") if verb == "stop" else (1, "nothing was sent in site/alice yet")
    for arguments, exit_code, said in [
        (["site/nobody"], 1, "`turnlane lanes` lists them"),
        (["site/alice", "--outbox"], *no_outbox),
        (["alice"], 2, "CHANNEL/ROOM"),
    ]:
        result = call(verb, *arguments)
        assert (result.exit_code, said in result.stderr) == (exit_code, True), result.stderr


# Answer


def test_an_operator_answers_the_question_that_a_turn_waits_with() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "deploy", id="m-1")
        await life.end(Asks(1, Question("Deploy now?", ("yes", "no"))))

    lived(story)
    answered = call("answer", "site/alice", "2")
    assert (answered.exit_code, answered.stdout) == (0, "answered: site/alice goes on, turn 1\n")
    again = call("answer", "site/alice", "1")
    assert again.exit_code == 1
    assert "no turn of site/alice waits for an answer; `turnlane show site/alice`" in again.stderr
    shown = call("show", "site/alice").stdout
    assert "Deploy now?" in shown
    assert " no  (answers turn 1)" in shown


def test_nobody_is_answered_where_nobody_asks() -> None:
    lived(idle)
    assert call("answer", "site/alice", "yes").exit_code == 1
    assert "no conversation 'site/bob'" in call("answer", "site/bob", "yes").stderr


def test_what_waits_for_an_answer_says_so_and_how_to_give_it() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "deploy", id="m-1")
        await life.end(Asks(1, Question("Deploy now?", ("yes", "no"))))
        await life.end(Delivered(), Kind.OUT)

    lived(story)
    waits = explained("site:m-1")["waits"]
    assert (waits["reason"], waits["next"]) == ("answer", "turnlane answer site/alice TEXT")
    assert "turn 1 waits for the answer to 'Deploy now?'" in waits["text"]
    call("answer", "site/alice", "no")
    assert [step["name"] for step in explained("site:m-1")["steps"]] == ["stored", "asked", "attempt", "answer"]


# Who did what


def acts() -> list[tuple[str, str | None]]:
    events = [json.loads(line)["event"] for line in call("tail", "--no-follow", "--json").stdout.splitlines()]
    told = [each for each in events if each["name"] == "operator.acted"]
    assert all((each["facts"]["by"], each["facts"]["status"]) == ("cli", 0) for each in told)
    return [(each["facts"]["action"], each["conversation"]) for each in told]


def test_what_is_done_by_the_command_line_is_written_down() -> None:
    lived(idle)
    call("pause", "site/alice", "--for", "2h")
    call("send", "site/alice", "Anna here.", "--as-operator")
    call("policy", "site/alice", "--on-busy", "steer")
    call("settings", "set", "lanes.debounce", "5s")
    call("schedules", "add", "pulse", "web/alice", "beat", "--every", "1h")
    assert acts() == [
        ("turnlane pause site/alice", "site/alice"),
        ("turnlane send --as-operator site/alice", "site/alice"),
        ("turnlane policy site/alice --on-busy steer", "site/alice"),
        ("turnlane settings set lanes.debounce", None),
        ("turnlane schedules add pulse", "web/alice"),
    ]


def test_looking_and_what_fails_is_no_act() -> None:
    lived(idle)
    call("policy", "site/alice")
    call("show", "site/alice")
    call("pause", "site/nobody")
    call("answer", "site/alice", "yes")
    call("deadletters", "drop", "site/alice#7")
    assert acts() == []
