"""Agents outside this process ask the person, and are called again with the answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

import pytest
from tests.agents.turns import a_turn
from tests.channels.loopback import Request, loopback

from turnlane.agents.base import Agent
from turnlane.agents.command import Command
from turnlane.agents.http import Http
from turnlane.agents.wire import Heard, converse
from turnlane.errors import AgentFailed
from turnlane.model.question import TIMED_OUT, Answer
from turnlane.model.turn import Reply, Turn

ASK = {"ask": {"text": "Deploy now?", "options": ["yes", "no"], "timeout": 60}}
PROGRAM = """
import json, sys
turn = json.load(sys.stdin)["turn"]
heard = [answer["text"] for answer in turn["answers"]]
print(json.dumps({"text": f"heard {heard}"} if len(heard) == 2 else {"ask": {"text": f"question {len(heard) + 1}?"}}))
"""


class Person:
    """Answers at once, and remembers what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[object, ...]] = []

    def show(self, turn: Turn, text: str) -> None:
        """Nobody looks."""

    async def ask(
        self,
        turn: Turn,
        text: str,
        options: Sequence[str],
        timeout: float | None,
        number: int | None,
    ) -> Answer:
        self.asked.append((text, list(options), timeout, number))
        return self.answers.pop(0)


async def answered(agent: Agent, turn: Turn) -> Reply:
    try:
        return await agent.respond(turn)
    finally:
        await agent.close()


async def test_a_program_is_run_again_with_each_answer() -> None:
    person = Person(Answer("one", "Alice"), Answer("two", "Alice"))
    reply = await answered(Command([sys.executable, "-c", PROGRAM]), a_turn(stage=person))
    assert reply == Reply("heard ['one', 'two']")
    assert person.asked == [("question 1?", [], None, 1), ("question 2?", [], None, 2)]


async def test_what_was_answered_before_is_told_with_the_first_call() -> None:
    person = Person(Answer("two", "Alice"))
    turn = a_turn(stage=person, answers=(Answer("one", "Alice"),))
    reply = await answered(Command([sys.executable, "-c", PROGRAM]), turn)
    assert (reply.text, person.asked) == ("heard ['one', 'two']", [("question 2?", [], None, 2)])


async def test_an_agent_behind_a_url_is_called_again_with_the_answer() -> None:
    said = iter([ASK, {"text": "fine"}])

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        body = json.dumps(next(said)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    person = Person(TIMED_OUT)
    async with loopback(behave) as server:
        assert await answered(Http(server.url), a_turn(stage=person)) == Reply("fine")
    assert person.asked == [("Deploy now?", ["yes", "no"], 60, 1)]
    assert [request.json["turn"]["answers"] for request in server.requests] == [
        [],
        [{"text": None, "by": None, "timed_out": True}],
    ]


@pytest.mark.parametrize(
    "ask",
    [
        {"ask": "Deploy now?"},
        {"ask": {}},
        {"ask": {"text": ""}},
        {"ask": {"text": "Sure?", "options": ["yes", ""]}},
        {"ask": {"text": "Sure?", "options": "yes"}},
        {"ask": {"text": "Sure?", "timeout": 0}},
        {"ask": {"text": "Sure?", "timeout": "soon"}},
        {"ask": {"text": "Sure?"}, "text": "and an answer"},
        {"ask": {"text": "Sure?", "colour": "red"}},
    ],
)
async def test_a_question_of_the_wrong_shape_is_a_failure_that_names_the_right_one(ask: object) -> None:
    async def call(request: bytes, heard: Heard) -> bytes:
        return json.dumps(ask).encode()

    with pytest.raises(AgentFailed, match=r"the question cannot be read: .*; ask like"):
        await converse(a_turn(stage=Person()), call)
