"""What became of one message, and what it waits for."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.test_cli import AT_ONCE, URL, Life

from turnlane.backends import open_backend
from turnlane.backends.base import Arrival
from turnlane.cli.main import turnlane as command
from turnlane.clock import Clock, SystemClock
from turnlane.flow import explain
from turnlane.model.delivery import question_id
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Backoff
from turnlane.model.question import Question
from turnlane.model.turn import Asks, Delivered, GaveUp, Released, Replied, Reply, RetryLater
from turnlane.model.usage import Usage
from turnlane.testing.doubles import VirtualClock

GATHERING = replace(AT_ONCE, debounce_ms=600_000, max_wait_ms=600_000)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TURNLANE_"):
            monkeypatch.delenv(name)
    return tmp_path


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments, prog_name="turnlane")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def explained(message: str) -> Any:
    result = call("explain", message, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def lived(story: Callable[[Life], Awaitable[None]], clock: Clock | None = None) -> None:
    """Let a worker live the story in the store of this folder."""

    async def live() -> None:
        backend = open_backend(URL, clock)
        await backend.open()
        try:
            await backend.join("w1", 60_000)
            await story(Life(backend))
        finally:
            await backend.close()

    asyncio.run(live())


# What became of it


def test_the_whole_way_of_a_message_is_told_in_order() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hello", id="m-1")
        await life.say("site/alice", "anybody?", id="m-2")
        await life.end(RetryLater(at=0, cause="the model was busy"))
        await life.end(Released())
        await life.end(Replied(Reply(["Yes,", "here."], session="s-1", usage=Usage(input_tokens=12, output_tokens=3))))
        await life.end(RetryLater(at=0, cause="429"), Kind.OUT)
        await life.end(Delivered("r-1"), Kind.OUT)
        await life.end(Delivered(), Kind.OUT)

    lived(story)
    told = call("explain", "site:m-1").stdout
    parts = [
        "site:m-1  alice: hello",
        "stored      stored as message 1 of site/alice",
        "gathered    messages 1 to 2 together are turn 1",
        "attempt     attempt 1 by worker w1, epoch 1, failed: the model was busy",
        "attempt     attempt 2 by worker w1, epoch 2, was given back",
        "turn        turn 1 began, attempt 2: agent echo by worker w1, epoch 3",
        "answered    turn 1 was answered",
        "tokens      12 tokens in, 3 out, session s-1",
        "outbox      reply, part 1 of 2: Yes,",
        "attempt     sending, attempt 1 by worker w1, epoch 1, failed: 429",
        "receipt     sent at attempt 2; receipt r-1",
        "outbox      reply, part 2 of 2: here.",
        "receipt     sent at attempt 1; the platform gave no receipt",
        "answered: all of it took",
    ]
    places = [told.find(part) for part in parts]
    assert places == sorted(places), told
    assert -1 not in places, told


def test_each_step_has_its_time_and_how_long_it_took() -> None:
    async def story(life: Life) -> None:
        message = Message("site", "m-1", "site/alice", "alice", "hi", sent_at=SystemClock().now() - 5_000)
        await life.backend.accept([Arrival(message, AT_ONCE)])
        await life.end(Replied(Reply("hello")))

    lived(story)
    steps = explained("site:m-1")["steps"]
    assert [step["name"] for step in steps] == ["received", "stored", "gathered", "turn", "answered", "outbox"]
    assert steps[1]["took_ms"] >= 5_000
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", step["at"]) for step in steps)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} +\+5\.\ds  stored", call("explain", "site:m-1").stdout)


def test_a_sender_whose_clock_is_ahead_gives_no_length_of_time() -> None:
    async def story(life: Life) -> None:
        ahead = Message("site", "m-1", "site/alice", "alice", "hi", sent_at=SystemClock().now() + 60_000)
        await life.backend.accept([Arrival(ahead, AT_ONCE)])

    lived(story)
    assert explained("site:m-1")["steps"][1]["took_ms"] is None


def test_an_answer_of_silence_and_a_dead_letter_are_told() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "psst", id="m-1")
        await life.end(Replied(Reply(None)))
        await life.say("site/alice", "boom", id="m-2")
        await life.end(GaveUp("it cannot be answered"))

    lived(story)
    assert "turn 1 was answered with silence" in call("explain", "site:m-1").stdout
    told = call("explain", "site:m-2").stdout
    assert "given up    turn 2 was given up after 1 attempt: it cannot be answered" in told
    assert told.endswith("since it was stored\n")
    assert explained("site:m-2")["outcome"] == "dead_letter"


def test_a_reply_that_could_not_be_sent_is_told() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")
        await life.end(Replied(Reply("hello")))
        await life.end(GaveUp("410: gone"), Kind.OUT)

    lived(story)
    assert "given up    not sent after 1 attempt: 410: gone" in call("explain", "site:m-1").stdout


def test_a_message_that_went_into_no_turn_says_why() -> None:
    async def story(life: Life) -> None:
        room_for_one = replace(AT_ONCE, max_pending=1, on_full="drop_oldest")
        await life.say("site/alice", "one", id="m-1", policy=room_for_one)
        await life.say("site/alice", "two", id="m-2", policy=room_for_one)
        await life.end(Replied(Reply("re two")))

    lived(story)
    dropped = explained("site:m-1")
    assert (dropped["outcome"], dropped["waits"], dropped["turns"]) == ("dropped", None, [])
    assert "settled     dropped, to make room" in call("explain", "site:m-1").stdout
    assert explained("site:m-2")["outcome"] == "answered"


def test_a_message_that_was_stopped_while_it_waited_says_so() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.backend.stop("site/alice")

    lived(story)
    assert "settled     set aside unanswered, as the conversation was stopped" in call("explain", "site:m-1").stdout


def test_a_message_may_be_named_by_its_place() -> None:
    async def story(life: Life) -> None:
        await life.say("site/a%20b", "one", id="x:/1")
        await life.say("site/a%20b", "two", id="x:/2")

    lived(story)
    by_place = call("explain", "--conversation", "site/a b", "--seq", "2", "--json").stdout
    assert json.loads(by_place)["message"]["origin_id"] == "x:/2"
    assert explained("site:x:/2")["message"] == json.loads(by_place)["message"]


async def test_a_message_far_back_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "ROWS_FIRST", 2)
    backend = open_backend("memory://")
    await backend.open()
    life = Life(backend)
    await backend.join("w1", 60_000)
    for number in range(30):
        await life.say("site/alice", "hi", id=f"m-{number}")
        await life.end(Replied(Reply(f"re {number}")))
    found = await explain.explain(backend, "site", "m-3", now=0)
    assert [delivery.text for delivery in found.deliveries] == ["re 3"]
    await backend.close()


# What it waits for


def test_it_waits_for_quiet_until_a_time() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1", policy=GATHERING)

    lived(story)
    told = call("explain", "site:m-1").stdout
    assert re.search(r"it waits: more may be said.*\n  since .*\n  until .* \(in (10|9)m\)\n$", told), told
    assert explained("site:m-1")["waits"]["reason"] == "quiet"
    assert explained("site:m-1")["outcome"] is None


def test_it_waits_for_the_turn_that_runs_and_for_the_one_before_it() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.take()
        await life.say("site/alice", "two", id="m-2")

    lived(story)
    under_way = "turn 1 is under way: attempt 1 by worker w1, epoch 1"
    assert explained("site:m-1")["waits"]["text"] == under_way
    assert explained("site:m-2")["waits"]["text"] == f"turn 1 comes first; {under_way}"


def test_it_waits_for_a_retry_until_a_time_and_says_why() -> None:
    async def story(life: Life) -> None:
        policy = replace(AT_ONCE, backoff=Backoff(first_ms=60_000))
        await life.say("site/alice", "one", id="m-1", policy=policy)
        await life.end(RetryLater(at=SystemClock().now() + 60_000, cause="the model was busy"))
        await life.say("site/alice", "two", id="m-2", policy=policy)

    lived(story)
    waits = explained("site:m-1")["waits"]
    assert waits["text"] == "turn 1 failed and is tried again, as attempt 2: the model was busy"
    assert (waits["reason"], waits["since"] < waits["until_at"]) == ("retry", True)
    assert waits["next"] == "turnlane retry site/alice"
    assert call("explain", "site:m-1").stdout.endswith("  to go on sooner: turnlane retry site/alice\n")
    assert explained("site:m-2")["waits"]["text"].startswith("turn 1 comes first; turn 1 failed")
    assert [step["name"] for step in explained("site:m-1")["steps"]] == ["stored", "attempt"]


def test_who_waits_for_an_answer_is_not_said_to_wait_for_a_retry() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        question = Question("Deploy now?", ("yes", "no"), expires_at=SystemClock().now() + 600_000)
        await life.end(Asks(1, question))

    lived(story)
    assert "Deploy now?⏎1. yes⏎2. no" in call("show", "site/alice").stdout
    assert "asked the person: Deploy now? (yes / no)" in call("explain", "site:m-1").stdout
    assert re.search(r"site/alice +waiting .* asks, no longer than (10|9)m", call("lanes").stdout)
    assert re.search(r"turns: waiting, 1 waiting, asks, no longer than (10|9)m", call("show", "site/alice").stdout)
    tried = call("retry", "site/alice")
    assert tried.stdout == "nothing waits for a retry: site/alice is waiting, 1 to be answered\n"
    assert tried.stderr == "`turnlane answer site/alice TEXT` answers what it asks\n"


def test_a_turn_that_runs_on_while_it_asks_is_told_in_its_time() -> None:
    clock = VirtualClock()

    async def story(life: Life) -> None:
        for name in ("alice", "bob"):
            await life.say(f"site/{name}", "one", id=name)
            lease = await life.take()
            clock.advance(1)
            await life.backend.ask(lease, 1, Question("Deploy now?", ("yes", "no")))
            await life.end(Delivered(), Kind.OUT)
            clock.advance(1)
            if name == "alice":
                await life.backend.answer("site/alice", "yes")
                await life.backend.commit(lease, Replied(Reply("done")))
                await life.end(Delivered(), Kind.OUT)

    lived(story, clock)
    steps, waits = explained("site:alice")["steps"], explained("site:bob")["waits"]
    told = ["stored", "gathered", "turn", "asked", "answer", "answered", "outbox", "receipt"]
    assert [step["name"] for step in steps] == told
    assert [each["at"] for each in steps] == sorted(each["at"] for each in steps)
    assert (waits["reason"], waits["next"]) == ("answer", "turnlane answer site/bob TEXT")


def test_it_waits_for_a_worker_and_says_if_there_is_none() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    assert explained("site:m-1")["waits"]["text"] == "a worker with a free slot takes it next"

    async def goodbye() -> None:
        backend = open_backend(URL)
        await backend.open()
        await backend.leave("w1")
        await backend.close()

    asyncio.run(goodbye())
    waits = explained("site:m-1")["waits"]
    assert (waits["text"], waits["next"]) == ("no worker is running", "turnlane run")


def test_what_a_lost_worker_had_begun_is_not_said_to_be_under_way() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.take()
        await life.say("site/alice", "two", id="m-2")
        await life.say("site/bob", "wait for me", id="m-3", policy=replace(AT_ONCE, backoff=Backoff(first_ms=60_000)))
        await life.end(RetryLater(at=SystemClock().now() + 60_000, cause="the model was busy"))

    lived(story, VirtualClock(now=SystemClock().now() - 600_000))  # so the term of its worker is over
    for message in ("site:m-1", "site:m-2"):
        waits = explained(message)["waits"]
        assert (waits["reason"], waits["text"], waits["next"]) == ("worker", "no worker is running", "turnlane run")
    waits = explained("site:m-3")["waits"]
    assert (waits["reason"], waits["next"]) == ("retry", "turnlane run")
    assert waits["text"].endswith("as attempt 2: the model was busy; no worker is running")


def test_it_waits_until_a_run_that_was_stopped_has_ended() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.take()
        await life.backend.stop("site/alice")
        await life.say("site/alice", "two", id="m-2")

    lived(story)
    waits = explained("site:m-2")["waits"]
    stopping = "worker w1 is stopping what it has begun; nothing else starts before"
    assert (waits["reason"], waits["text"], waits["next"]) == ("run", stopping, None)


def test_what_was_put_off_is_not_said_to_have_failed() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.end(RetryLater(at=SystemClock().now() + 60_000, cause="its budget is used up", counts=False))

    lived(story)
    put_off = "turn 1 was put off and is tried again, as attempt 1: its budget is used up"
    assert explained("site:m-1")["waits"]["text"] == put_off


def test_a_question_that_has_not_left_waits_for_its_outbox() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.end(Replied(Reply("re one")))
        await life.end(Delivered(), Kind.OUT)
        await life.backend.pause("site/alice", Kind.OUT)
        await life.say("site/alice", "two", id="m-2")
        await life.end(Asks(1, Question("Deploy now?")))
        await life.say("site/alice", "three", id="m-3")

    lived(story)
    waits = explained("site:m-2")["waits"]
    text = "turn 2 asks 'Deploy now?', still to be sent: the lane is paused"
    assert (waits["reason"], waits["text"]) == ("paused", text)
    assert waits["next"] == "turnlane resume site/alice --outbox"
    assert explained("site:m-3")["waits"]["text"] == f"turn 2 comes first; {text}"
    call("resume", "site/alice", "--outbox")
    waits = explained("site:m-2")["waits"]
    assert (waits["reason"], waits["next"]) == ("worker", None)
    assert waits["text"].endswith("still to be sent: a worker with a free slot takes it next")


def test_a_question_that_reached_nobody_is_not_said_to_be_out_of_time() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.end(Asks(1, Question("Deploy now?", expires_at=SystemClock().now() + 600_000)))
        await life.end(GaveUp("410: gone"), Kind.OUT)

    lived(story)
    assert "nobody answered: the question reached nobody" in call("explain", "site:m-1").stdout
    assert "nobody answered turn 1: its question reached nobody" in call("show", "site/alice").stdout


def test_a_button_that_was_pressed_too_late_is_not_said_to_have_answered() -> None:
    clock = VirtualClock()

    async def story(life: Life) -> None:
        await life.say("site/alice", "deploy", id="m-1")
        await life.end(Asks(1, Question("Deploy now?", ("yes", "no"))))
        await life.end(Delivered(), Kind.OUT)
        asked = question_id("site/alice", 1, 1)
        for number, text in enumerate(("yes", "no")):
            press = Message("site", f"press-{number}", "site/alice", "alice", text, answers=asked)
            await life.backend.accept([Arrival(press, AT_ONCE)])
            clock.advance(1)

    lived(story, clock)
    assert "taken as the answer to what the agent had asked" in call("explain", "site:press-0").stdout
    assert "it answers a question that was closed already, so it changed" in call("explain", "site:press-1").stdout
    shown = call("show", "site/alice").stdout
    assert "yes  (answers a question)" in shown
    assert "no  (answers a question that was closed already)" in shown


def test_who_came_too_fast_is_not_said_to_have_met_a_busy_conversation_alone() -> None:
    async def story(life: Life) -> None:
        message = Message("site", "m-1", "site/alice", "alice", "hi")
        await life.backend.accept([Arrival(message, AT_ONCE, too_fast=True)])

    lived(story)
    assert (
        "refused, because the conversation was busy or full, or they came too fast"
        in call("explain", "site:m-1").stdout
    )


def test_it_names_the_setting_that_holds_it_up() -> None:
    async def story(life: Life) -> None:
        await life.say("web/alice", "hi", id="m-1")
        await life.backend.configure("channels.web.paused", "true")

    lived(story)
    waits = explained("web:m-1")["waits"]
    assert (waits["reason"], waits["next"]) == ("paused", "turnlane settings set channels.web.paused false")
    assert waits["text"] == "the setting channels.web.paused is on: nothing that it holds begins"


def test_a_steered_message_is_told_in_its_time() -> None:
    clock = VirtualClock()

    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        lease = await life.take()
        clock.advance(1)
        await life.say("site/alice", "two", id="m-2")
        await life.backend.commit(lease, Replied(Reply("re one and two"), through=2))

    lived(story, clock)
    began, taken = explained("site:m-1")["steps"], explained("site:m-2")["steps"]
    assert [step["name"] for step in began] == ["stored", "gathered", "turn", "steered", "answered", "outbox"]
    assert [step["name"] for step in taken] == ["stored", "steered", "answered", "outbox"]
    assert began[1]["text"] == "this message alone is turn 1"
    by = "attempt 1 of agent echo by worker w1, epoch 1"
    assert began[3]["text"] == f"message 2 was taken into turn 1, which ran already: {by}"
    assert taken[1]["text"] == f"this message was taken into turn 1, which ran already: {by}"
    assert [each["at"] for each in began] == sorted(each["at"] for each in began)


def test_it_says_that_the_slots_are_taken() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.take()
        await life.say("site/bob", "two", id="m-2")

    lived(story)
    waits = explained("site:m-2")["waits"]
    busy = (
        "a worker with a free slot takes it next; 1 turn runs in 1 worker now (one runs as many as its turns_at_once)"
    )
    assert (waits["reason"], waits["text"]) == ("worker", busy)


@pytest.mark.parametrize("limit", ["all", "per_channel", "per_agent", "per_user"])
def test_it_names_the_limit_that_is_reached(limit: str) -> None:
    async def story(life: Life) -> None:
        for place in ("home", "work"):
            said = Message("site", place, f"site/{place}", "alice", "hi")
            await life.backend.accept([Arrival(said, AT_ONCE)])
        await life.take()
        await life.backend.configure(f"limits.{limit}", "1")

    lived(story)
    waits = explained("site:work")["waits"]
    text = f"as many turns run now as limits.{limit} = 1 allows; one of them has to end first"
    assert (waits["reason"], waits["text"]) == ("limit", text)
    assert waits["next"] == f"turnlane settings set limits.{limit} 2"


def test_a_limit_that_others_have_reached_is_not_named() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.take()
        await life.say("web/bob", "two", id="m-2")
        await life.backend.configure("limits.per_channel", "1")
        await life.backend.configure("limits.per_user", "1")

    lived(story)
    assert explained("web:m-2")["waits"]["reason"] == "worker"


def test_it_waits_for_the_machine_of_its_session_until_a_time() -> None:
    async def story(life: Life) -> None:
        await life.backend.join("w2", 60_000, "north")
        await life.say("site/alice", "hello", id="m-1")
        [lease] = await life.backend.claim("w2", Kind.TURN)
        await life.backend.commit(lease, Replied(Reply(None, "s-1", local=True)))
        await life.say("site/alice", "again", id="m-2")
        assert await life.backend.claim("w1", Kind.TURN) == []

    lived(story)
    waits = explained("site:m-2")["waits"]
    assert (waits["reason"], waits["since"] < waits["until_at"]) == ("machine", True)
    assert waits["text"] == "it is left to a worker on north, which holds its session; then anybody takes it"
    assert re.search(r"site/alice +ready .* left to north, anybody's in \d+s", call("lanes").stdout)


def test_a_reply_waits_for_its_sending_and_for_the_one_before_it() -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "one", id="m-1")
        await life.end(Replied(Reply("re one")))
        await life.say("site/alice", "two", id="m-2")
        await life.end(Replied(Reply("re two")))
        await life.end(RetryLater(at=SystemClock().now() + 60_000, cause="503"), Kind.OUT)

    lived(story)
    waits = explained("site:m-1")["waits"]
    assert (waits["reason"], waits["text"]) == ("retry", "delivery 1 failed and is tried again, as attempt 2: 503")
    assert waits["next"] == "turnlane retry site/alice --outbox"
    assert explained("site:m-2")["waits"]["text"].startswith("delivery 1 comes first; ")
    assert explained("site:m-2")["outcome"] == "answered"


def test_a_reply_waits_for_its_account_until_a_time() -> None:
    async def story(life: Life) -> None:
        for name in ("alice", "bob"):
            await life.say(f"site/{name}", "hi", id=name)
            await life.end(Replied(Reply(f"re {name}")))
        await life.end(RetryLater(at=SystemClock().now() + 60_000, cause="429", holds_account=True), Kind.OUT)

    lived(story)
    waits = explained("site:alice")["waits"]
    assert (waits["reason"], waits["next"]) == ("retry", None)  # a retry would not make it leave sooner
    waits = explained("site:bob")["waits"]
    assert (waits["reason"], waits["since"] < waits["until_at"]) == ("rate", True)
    assert waits["text"].startswith("nothing is sent for site until then: its rate is used up, or the platform asked")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["site:nope"], 1, "no message site:nope; messages are known by CHANNEL:ID"),
        (["nope"], 2, "write CHANNEL:ID"),
        ([":x"], 2, "write CHANNEL:ID"),
        (["site:"], 2, "write CHANNEL:ID"),
        (["site:\udcff"], 2, "write CHANNEL:ID"),
        ([], 2, "name one message"),
        (["site:m-1", "--seq", "1"], 2, "name one message"),
        (["--seq", "1"], 2, "name one message"),
        (["--conversation", "site/alice", "--seq", "9"], 1, "message 9 of site/alice is not there"),
        (["--conversation", "site/nobody", "--seq", "1"], 1, "`turnlane lanes` lists them"),
        (["--conversation", "alice", "--seq", "1"], 2, "CHANNEL/ROOM"),
    ],
)
def test_a_message_that_is_not_there_names_the_next_step(arguments: list[str], exit_code: int, said: str) -> None:
    async def story(life: Life) -> None:
        await life.say("site/alice", "hi", id="m-1")

    lived(story)
    result = call("explain", *arguments)
    assert (result.exit_code, said in result.stderr) == (exit_code, True), result.stderr
