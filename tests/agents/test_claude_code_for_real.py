"""Claude Code as it is: the real program, with a model API on loopback that tells what it was asked."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.anthropic import Anthropic
from tests.agents.test_claude_code import a_stub, asks, more
from tests.agents.test_command import until
from tests.agents.turns import Audience

from turnlane.agents.claude_code.agent import ClaudeCode
from turnlane.agents.claude_code.options import Options, found_program
from turnlane.errors import AgentError, AgentFailed, AgentRefused, Throttled
from turnlane.model.message import Attachment
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage

pytestmark = pytest.mark.skipif(
    found_program(["claude"], os.environ) is None, reason="needs Claude Code; the package claude-agent-sdk brings it"
)

ONE_REQUEST = Usage(150, 17, 30)
STUCK = 'TOOL:Bash:{"command": "tail -f never-ends", "description": "waits"}'


@pytest.fixture
async def api() -> AsyncIterator[Anthropic]:
    async with Anthropic() as api:
        yield api


@pytest.fixture
def claude(api: Anthropic, tmp_path: Path) -> Callable[..., ClaudeCode]:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "never-ends").touch()
    quick = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "key", "IS_SANDBOX": "1"}

    def make(**options: Any) -> ClaudeCode:
        env = {**quick, "CLAUDE_CODE_MAX_RETRIES": "0", **options.pop("env", {})}
        return ClaudeCode(Options(**{"cwd": str(tmp_path / "work"), "env": env, **options}))

    return make


def processes_in(home: Path) -> dict[int, str]:
    """Those that were started with this home, and what they were started as."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def runs_a_tool(home: Path) -> bool:
    return any(command.startswith("tail -f never-ends") for command in processes_in(home).values())


def kill_the_program(home: Path) -> None:
    for pid, command in processes_in(home).items():
        if "stream-json" in command:
            os.kill(pid, signal.SIGKILL)


async def test_a_session_goes_on_over_turns_and_over_restarts(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    first = await claude().respond(asks("one"))
    assert first.text == 'I heard ["one"]'
    assert (first.usage, first.local, first.began_anew) == (ONE_REQUEST, True, None)
    second = await claude().respond(asks("two", 2, first.session))
    assert second == replace(first, text='I heard ["one", "two"]')
    third = await claude().respond(asks("three", 3, first.session))
    assert third.text == 'I heard ["one", "two", "three"]'
    assert third.model == api.asked[-1]["model"]


@pytest.mark.parametrize("text", ["/clear", "/compact", "@/etc/passwd", "--help", "-p", "!ls", "#remember"])
async def test_what_a_customer_writes_reaches_the_model_as_it_is(
    api: Anthropic, claude: Callable[..., ClaudeCode], text: str
) -> None:
    await claude().respond(asks(text))
    assert api.heard == [text]
    assert "root:" not in str(api.asked)


async def test_two_conversations_never_share_a_session(api: Anthropic, claude: Callable[..., ClaudeCode]) -> None:
    agent = claude()
    alice, bob = await asyncio.gather(agent.respond(asks("I am Alice")), agent.respond(asks("I am Bob", who="bob")))
    assert alice.session != bob.session
    replies = await asyncio.gather(
        agent.respond(asks("and now?", 2, alice.session)), agent.respond(asks("and now?", 2, bob.session, who="bob"))
    )
    assert [reply.text for reply in replies] == [
        'I heard ["I am Alice", "and now?"]',
        'I heard ["I am Bob", "and now?"]',
    ]


# Repeated turns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_answer_that_was_paid_for_is_not_paid_for_again(
    api: Anthropic, claude: Callable[..., ClaudeCode], is_first: bool
) -> None:
    session = None if is_first else (await claude().respond(asks("one"))).session
    turn = asks("two", 2, session)
    reply = await claude().respond(turn)
    paid = len(api.asked)
    assert await claude().respond(replace(turn, attempt=2)) == reply
    assert len(api.asked) == paid


async def test_another_store_never_gets_the_answer_of_an_earlier_one(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    turn = asks("one")
    await claude().respond(turn)
    later = replace(turn, messages=[replace(turn.messages[0], accepted_at=2_000, text="hello")])
    assert (await claude().respond(later)).text == 'I heard ["hello"]'


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("text", ["two HOLD", f"two {STUCK}"])
async def test_a_run_that_was_killed_leaves_nothing_in_the_session(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path, is_first: bool, text: str
) -> None:
    session = None if is_first else (await claude().respond(asks("one"))).session
    agent = claude(allowed_tools=["Bash(tail *)"])
    audience = Audience()
    turn = asks(text, 2, session, stage=audience)
    asked = asyncio.create_task(agent.respond(turn))
    if "HOLD" in text:
        await audience.shows()
        await until(lambda: b"two HOLD" in transcript(tmp_path, session or ""))
    else:
        await until(lambda: runs_a_tool(tmp_path) and b"tool_use" in transcript(tmp_path, session or ""))
    kill_the_program(tmp_path)
    with pytest.raises(AgentFailed, match="without a result"):
        await asked
    assert processes_in(tmp_path) == {}
    again = replace(turn, attempt=2, messages=[replace(turn.messages[0], text="two")])
    reply = await agent.respond(again)
    assert reply.text == ('I heard ["two"]' if is_first else 'I heard ["one", "two"]')
    assert reply.usage == ONE_REQUEST
    following = await agent.respond(asks("three", 3, reply.session))
    assert following.text == ('I heard ["two", "three"]' if is_first else 'I heard ["one", "two", "three"]')
    assert await agent.respond(asks("three", 3, reply.session, attempt=2)) == following


def transcript(home: Path, session: str) -> bytes:
    return b"".join(path.read_bytes() for path in home.glob(f".claude/projects/*/{session}*.jsonl"))


async def test_what_a_killed_worker_left_behind_is_ended_before_the_turn_runs_again(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path
) -> None:
    first = await claude().respond(asks("one"))
    tools = claude(allowed_tools=["Bash(tail *)"])
    turn = asks(f"two {STUCK}", 2, first.session)
    left_behind = asyncio.create_task(tools.respond(turn))
    await until(lambda: runs_a_tool(tmp_path))
    elsewhere = claude()
    reply = await elsewhere.respond(replace(turn, attempt=2, epoch=2, messages=[replace(turn.messages[0], text="two")]))
    assert reply.text == 'I heard ["one", "two"]'
    with pytest.raises(AgentFailed):
        await left_behind
    assert processes_in(tmp_path) == {}


# Stopping -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["two HOLD", f"two {STUCK}"])
async def test_a_cancelled_turn_ends_the_program_and_its_tool_and_the_session_goes_on_without_it(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path, text: str
) -> None:
    agent = claude(allowed_tools=["Bash(tail *)"])
    first = await agent.respond(asks("one"))
    asked = asyncio.create_task(agent.respond(asks(text, 2, first.session, stage=(audience := Audience()))))
    await audience.shows()
    await until(lambda: "HOLD" in text or runs_a_tool(tmp_path))
    paid = len(api.asked)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert processes_in(tmp_path) == {}
    assert len(api.asked) == paid
    assert (await agent.respond(asks("three", 3, first.session))).text == 'I heard ["one", "three"]'


async def test_a_turn_that_takes_too_long_is_stopped(claude: Callable[..., ClaudeCode], tmp_path: Path) -> None:
    with pytest.raises(AgentFailed, match=r"longer than 1\.5 s"):
        await claude(timeout=1.5).respond(asks("HOLD"))
    assert processes_in(tmp_path) == {}


# Steering -------------------------------------------------------------------------------------------------------------


async def test_what_is_said_while_the_model_speaks_is_answered_after_it(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    agent, audience = claude(), Audience()
    turn = asks("one HOLD", stage=audience)
    asked = asyncio.create_task(agent.respond(turn))
    await audience.shows()
    assert await agent.steer(turn, [more("and two"), more("and three")])
    api.release()
    reply = await asked
    assert list(reply.parts) == ['I heard ["one HOLD"]', 'I heard ["one HOLD", "and two\\nand three"]']
    assert reply.usage == ONE_REQUEST + ONE_REQUEST
    assert audience.seen[-1] == "\n\n".join(reply.parts)
    assert not await agent.steer(turn, [more("too late")])
    assert await agent.respond(replace(turn, attempt=2)) == reply
    assert (await agent.respond(asks("four", 2, reply.session))).text == (
        'I heard ["one HOLD", "and two\\nand three", "four"]'
    )


async def test_what_is_said_while_a_tool_runs_is_answered_with_the_rest(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path
) -> None:
    agent = claude(allowed_tools=["Bash(tail *)"])
    turn = asks(f"one {STUCK}")
    asked = asyncio.create_task(agent.respond(turn))
    await until(lambda: runs_a_tool(tmp_path))
    assert await agent.steer(turn, [more("and two")])
    for pid, command in processes_in(tmp_path).items():
        if command.startswith("tail"):
            os.kill(pid, signal.SIGTERM)
    reply = await asked
    assert len(reply.parts) == 1
    assert reply.usage == ONE_REQUEST + ONE_REQUEST
    assert api.heard[-1] == "and two"


# What goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, AgentRefused),
        (401, AgentRefused),
        (403, AgentRefused),
        (429, Throttled),
        (500, AgentFailed),
        (529, Throttled),
    ],
)
async def test_an_error_of_the_api_is_an_error_and_never_an_answer(
    api: Anthropic, claude: Callable[..., ClaudeCode], status: int, error: type[AgentError]
) -> None:
    agent = claude()
    first = await agent.respond(asks("one"))
    with pytest.raises(error, match=str(status)):
        await agent.respond(asks(f"two ERR:{status}", 2, first.session))
    again = asks("two", 2, first.session, attempt=2)
    assert (await agent.respond(again)).text == 'I heard ["one", "two"]'


async def test_a_first_turn_can_be_asked_for_patience_again_and_again(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    for attempt in range(1, 4):
        with pytest.raises(Throttled):
            await claude().respond(asks("ERR:529", attempt=attempt))
    assert api.heard == ["ERR:529"]


async def test_an_api_that_cannot_be_reached_is_a_failure_to_be_retried(claude: Callable[..., ClaudeCode]) -> None:
    with pytest.raises(AgentFailed, match="api_error"):
        await claude(env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}).respond(asks("hi"))


async def test_without_a_key_the_operator_is_told_what_to_do(claude: Callable[..., ClaudeCode]) -> None:
    with pytest.raises(AgentRefused, match="ANTHROPIC_API_KEY"):
        await claude(env={"ANTHROPIC_API_KEY": ""}).respond(asks("hi"))


async def test_a_connection_that_is_cut_is_tried_again_by_the_program(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    assert (await claude(env={"CLAUDE_CODE_MAX_RETRIES": "2"}).respond(asks("CUT"))).text == 'I heard ["CUT"]'


async def test_a_limit_of_turns_that_is_hit_says_so(claude: Callable[..., ClaudeCode]) -> None:
    agent = claude(max_turns=1, allowed_tools=["Bash(echo *)"])
    with pytest.raises(AgentRefused, match="max_turns"):
        await agent.respond(asks('TOOL:Bash:{"command": "echo hi", "description": "says hi"}'))


async def test_a_budget_that_is_used_up_says_so(claude: Callable[..., ClaudeCode]) -> None:
    agent = claude(budget_usd=0.000001, allowed_tools=["Bash(echo *)"])
    with pytest.raises(AgentRefused, match="budget_usd"):
        await agent.respond(asks('TOOL:Bash:{"command": "echo hi", "description": "says hi"}'))


async def test_a_session_that_is_gone_is_begun_anew_and_said(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path
) -> None:
    agent = claude(tell_when_forgotten="I had to begin anew.")
    first = await agent.respond(asks("one"))
    shutil.rmtree(tmp_path / ".claude" / "projects")
    second = await agent.respond(asks("two", 2, first.session))
    assert second.text == 'I had to begin anew.\n\nI heard ["two"]'
    assert second.session != first.session
    assert second.began_anew == "Claude Code has no transcript of it any more"
    moved = await claude().respond(asks("two", 2, str(first.session), who="bob", moved_from="north"))
    assert (moved.text, moved.began_anew) == ('I heard ["two"]', "its transcript is on north, and not here")


# What it may do -------------------------------------------------------------------------------------------------------


async def test_it_has_no_tools_unless_they_are_named(api: Anthropic, claude: Callable[..., ClaudeCode]) -> None:
    await claude().respond(asks("hi"))
    assert api.asked[-1].get("tools", []) == []
    await claude(allowed_tools=["Read", "Bash(git log *)"]).respond(asks("hi", who="bob"))
    assert {tool["name"] for tool in api.asked[-1]["tools"]} - {"DeferredToolPlaceholder"} == {"Bash", "Read"}


async def test_what_subagents_use_is_counted(api: Anthropic, claude: Callable[..., ClaudeCode]) -> None:
    tool = '{"description": "sub", "prompt": "hello", "subagent_type": "general-purpose"}'
    agent, turn = claude(allowed_tools=["Agent"]), asks(f"TOOL:Agent:{tool}")
    reply = await agent.respond(turn)
    assert len(api.asked) == 3
    assert reply.usage == ONE_REQUEST + ONE_REQUEST + ONE_REQUEST
    assert await agent.respond(replace(turn, attempt=2)) == reply


async def test_nothing_runs_in_the_background_of_an_answer(claude: Callable[..., ClaudeCode], tmp_path: Path) -> None:
    tool = '{"command": "tail -f never-ends", "description": "waits", "run_in_background": true}'
    reply = await claude(allowed_tools=["Bash(tail *)"]).respond(asks(f"TOOL:Bash:{tool}"))
    assert "run_in_background" in str(reply.text)
    assert processes_in(tmp_path) == {}


async def test_each_conversation_may_have_a_folder_of_its_own(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path
) -> None:
    agent = claude(cwd=f"{tmp_path}/people/{{conversation}}", system_prompt="Say where you are.")
    await agent.respond(asks("hi", who="../bob"))
    assert [path.name for path in (tmp_path / "people").iterdir()] == ["site%2F..%2Fbob"]
    assert "Say where you are." in str(api.asked[-1]["system"])


# Files ----------------------------------------------------------------------------------------------------------------

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAGE = base64.b64encode(b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF").decode()


async def test_pictures_and_documents_reach_the_model_in_their_own_form(
    api: Anthropic, claude: Callable[..., ClaudeCode]
) -> None:
    turn = asks("what is this?")
    files = (
        Attachment(f"data:image/png;base64,{PIXEL}", "dot.png", "image/png"),
        Attachment(f"data:application/pdf;base64,{PAGE}", "page.pdf", "application/pdf"),
        Attachment("data:text/plain,some%20words", "notes.txt", "text/plain"),
        Attachment("data:application/zip,PK", "all.zip", "application/zip"),
        Attachment("http://127.0.0.1/secret.png", "secret.png", "image/png"),
    )
    agent = claude()
    reply = await agent.respond(replace(turn, messages=[replace(turn.messages[0], attachments=files)]))
    text, image, document, notes, archive, secret = api.asked[-1]["messages"][0]["content"][:6]
    assert text["text"] == "what is this?"
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": PAGE}
    assert notes["text"].startswith("[attachment notes.txt]\nsome words")
    assert "all.zip" in archive["text"]
    assert "secret.png" in secret["text"]
    await agent.respond(asks("and now?", 2, reply.session))
    assert "image/png" in str(api.asked[-1]["messages"])
    await agent.close()


# The stand-in ---------------------------------------------------------------------------------------------------------


async def test_the_stand_in_of_the_fast_tests_does_as_the_program_does(
    api: Anthropic, claude: Callable[..., ClaudeCode], tmp_path: Path
) -> None:
    stub = a_stub(tmp_path / "stub")
    assert await story(stub, (tmp_path / "stub" / "released").touch) == await story(claude(), api.release)


async def story(agent: ClaudeCode, release: Callable[[], None]) -> list[object]:
    """How each of these ends, without what is made by chance."""
    first = await agent.respond(asks("one"))
    ends: list[object] = [told(first), told(await agent.respond(asks("one", attempt=2)))]
    for text in ("/clear", "two ERR:529", "two ERR:401", "two ERR:500", "two ERR:400", "two"):
        ends.append(await end_of(agent, asks(text, 2, first.session)))
    ends.append(await end_of(agent, asks("two", 2, first.session, attempt=7)))
    ends.append(await end_of(agent, asks("three", 3, "0b6c1f64-7b64-4b9a-8a57-0e0f0d6b7a11", who="bob")))
    turn = asks("four HOLD", 4, first.session, stage=(audience := Audience()))
    asked = asyncio.create_task(agent.respond(turn))
    await audience.shows()
    steering = asyncio.create_task(agent.steer(turn, [more("and five")]))
    await asyncio.sleep(0)
    release()
    return [*ends, await steering, told(await asked), audience.seen]


async def end_of(agent: ClaudeCode, turn: Turn) -> object:
    try:
        return told(await agent.respond(turn))
    except AgentError as error:
        return type(error)


def told(reply: Reply) -> Reply:
    return replace(reply, model=None)
