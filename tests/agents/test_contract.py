"""Every agent keeps every promise of the contract."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.openai_service import KEY, MODEL, Mode, serving
from tests.agents.test_claude_code import a_script, a_stub
from tests.agents.test_command import pid_in
from tests.channels.loopback import Request, answers, loopback
from tests.e2e.site import is_gone

from turnlane.agents.base import Agent
from turnlane.agents.command import Command
from turnlane.agents.echo import Echo
from turnlane.agents.function import Function
from turnlane.agents.http import Http
from turnlane.agents.openai import agent as openai_agent
from turnlane.agents.openai.options import Api, Options
from turnlane.errors import AgentError
from turnlane.model.turn import Reply, Turn
from turnlane.testing.agents import AgentContract, CancellableAgentContract, FallibleAgentContract, Thinking


class TestEcho(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return Echo()


class TestFunction(AgentContract, CancellableAgentContract, FallibleAgentContract):
    @pytest.fixture
    async def agent(self) -> AsyncIterator[Agent]:
        function = Function(lambda turn: turn.text)
        yield function
        await function.close()

    @pytest.fixture
    def thinking(self) -> Thinking:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def think(turn: Turn) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()
            return "never"

        return Thinking(Function(think), begun.wait, gone.wait)

    @pytest.fixture
    def failing(self) -> Agent:
        return Function(lambda turn: 5)


ECHO = """
import json, sys
turn = json.load(sys.stdin)["turn"]
text = "\\n".join(message["text"] for message in turn["messages"])
print(json.dumps({"text": text, "session": turn["session"] or "s-" + turn["conversation"]}))
"""
HANG = "import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(1000)"


class TestCommand(AgentContract, CancellableAgentContract, FallibleAgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return Command([sys.executable, "-c", ECHO])

    @pytest.fixture
    def thinking(self, tmp_path: Path) -> Thinking:
        file = tmp_path / "pid"

        async def begun() -> None:
            while not file.exists() or not file.read_text():  # noqa: ASYNC110 - a program has no event of ours to set
                await asyncio.sleep(0.01)

        async def gone() -> None:
            assert is_gone(int(file.read_text()))

        return Thinking(Command([sys.executable, "-c", HANG], cwd=str(tmp_path)), begun, gone)

    @pytest.fixture
    def failing(self) -> Agent:
        return Command([sys.executable, "-c", "raise SystemExit(3)"])


async def repeats(request: Request, writer: asyncio.StreamWriter) -> None:
    said = "\n".join(message["text"] for message in request.json["turn"]["messages"])
    await answers(200, json.dumps({"text": said}).encode())(request, writer)


class TestHttp(AgentContract, CancellableAgentContract, FallibleAgentContract):
    @pytest.fixture
    async def agent(self) -> AsyncIterator[Agent]:
        async with loopback(repeats) as server:
            http = Http(server.url)
            yield http
            await http.close()

    @pytest.fixture
    async def thinking(self) -> AsyncIterator[Thinking]:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def listens_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            begun.set()
            await reader.read()
            writer.close()
            gone.set()

        async with await asyncio.start_server(listens_to_the_end, "127.0.0.1", 0) as server:
            http = Http(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            yield Thinking(http, begun.wait, gone.wait)
            await http.close()

    @pytest.fixture
    async def failing(self) -> AsyncIterator[Agent]:
        async with loopback(answers(500)) as server:
            http = Http(server.url)
            yield http
            await http.close()


class TestClaudeCode(AgentContract, CancellableAgentContract, FallibleAgentContract):
    def repeats(self, reply: Reply, text: str) -> bool:
        """The stand-in tells what it heard as JSON."""
        heard = json.loads(str(reply.text).removeprefix("I heard "))
        return super().repeats(Reply("\n".join(heard)), text)

    @pytest.fixture
    def agent(self, tmp_path: Path) -> Agent:
        return a_stub(tmp_path)

    @pytest.fixture
    def thinking(self, tmp_path: Path) -> Thinking:
        file = tmp_path / "pid"

        async def gone() -> None:
            assert is_gone(int(file.read_text()))

        return Thinking(a_script(tmp_path, "echo $$ > pid; exec sleep 1000"), lambda: pid_in(file), gone)

    @pytest.fixture
    def failing(self, tmp_path: Path) -> Agent:
        return a_script(tmp_path, "exit 3")


class OpenAIContract(AgentContract, CancellableAgentContract, FallibleAgentContract):
    api: Api

    @pytest.fixture
    async def agent(self) -> AsyncIterator[Agent]:
        async with serving() as service:
            model = openai_agent(Options(MODEL, KEY, service.url), api=self.api)
            yield model
            await model.close()

    @pytest.fixture
    async def thinking(self) -> AsyncIterator[Thinking]:
        async with serving() as service:
            service.next(Mode(completes=False))
            model = openai_agent(Options(MODEL, KEY, service.url), api=self.api)
            yield Thinking(
                model,
                lambda: service.until(lambda: bool(service.bodies)),
                lambda: service.until(lambda: service.hung_up == 1),
            )
            await model.close()

    @pytest.fixture
    async def failing(self) -> AsyncIterator[Agent]:
        async with serving() as service:
            service.next(*[Mode(status=500)] * 2)
            model = openai_agent(Options(MODEL, KEY, service.url), api=self.api)
            yield model
            await model.close()


class TestOpenAIConversations(OpenAIContract):
    api = "conversations"


class TestOpenAIChat(OpenAIContract):
    api = "chat"


# The contract sees an agent that breaks it


class Bad:
    """Does one thing wrong, by its name."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong
        self.heard: list[str] = []

    async def respond(self, turn: Turn) -> Reply:
        self.heard.append(turn.text)
        match self.wrong:
            case "obeys":
                return Reply("cleared" if turn.text.startswith("/") else turn.text)
            case "mixes":
                await asyncio.sleep(0)
                return Reply("\n".join(self.heard))
            case "shares":
                return Reply(turn.text, session="the-only-one")
            case "forgets":
                return Reply(turn.text, session=f"s-{turn.id}")
            case "stores":
                return Reply(f"{turn.text}\0")
            case "changes":
                list.append(turn.messages, turn.messages[0])  # type: ignore[arg-type]
                return Reply(turn.text)
        raise ValueError(self.wrong)

    async def close(self) -> None:
        if self.heard == ["closed"]:
            raise RuntimeError("closed already")
        self.heard = ["closed"]


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        ("obeys", lambda bad: AgentContract().test_what_people_say_is_text_and_nothing_else(bad, "/clear")),
        ("mixes", AgentContract().test_conversations_at_the_same_time_do_not_mix),
        ("shares", AgentContract().test_conversations_at_the_same_time_do_not_mix),
        ("forgets", AgentContract().test_a_session_is_gone_on_with_or_it_is_said_why_not),
        ("stores", AgentContract().test_a_turn_is_answered),
        ("changes", AgentContract().test_what_was_asked_is_left_as_it_was),
        ("raises", AgentContract().test_a_session_that_it_does_not_know_is_answered_or_fails_cleanly),
        ("raises", FallibleAgentContract().test_a_failure_is_an_agent_error_that_says_whether_to_try_again),
        ("closes", AgentContract().test_it_may_be_closed_twice_and_before_it_was_asked_anything),
    ],
)
async def test_the_contract_sees_an_agent_that(wrong: str, test: Callable[[Agent], Awaitable[None]]) -> None:
    with pytest.raises((AssertionError, ValueError, RuntimeError, AgentError)):
        await test(Bad(wrong))


async def test_the_contract_sees_an_agent_that_leaves_something_behind() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def leaves(turn: Turn) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def gone() -> None:
        assert left.is_set()

    with pytest.raises(AssertionError):
        await CancellableAgentContract().test_a_turn_that_is_cancelled_leaves_nothing_behind(
            Thinking(Function(leaves), begun.wait, gone)
        )
