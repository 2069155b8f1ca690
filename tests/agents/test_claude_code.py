"""The agent that is Claude Code: what it makes of what the program says, with a stand-in for the program."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents import claude_stub
from tests.agents.test_command import is_alive, pid_in
from tests.agents.turns import Audience

from turnlane.agents.claude_code.agent import ClaudeCode
from turnlane.agents.claude_code.lines import Result, failure_of, read_line
from turnlane.agents.claude_code.options import Options
from turnlane.agents.claude_code.transcript import Transcript
from turnlane.errors import AgentError, AgentFailed, AgentRefused, InvalidSettings, Throttled
from turnlane.model.message import Message
from turnlane.model.turn import Turn
from turnlane.model.usage import Usage

STUB = (sys.executable, str(claude_stub.__file__))


def a_stub(home: Path, **options: Any) -> ClaudeCode:
    home.mkdir(exist_ok=True)
    return ClaudeCode(Options(**{"command": STUB, "cwd": str(home), "env": {"HOME": str(home)}, **options}))


def a_script(home: Path, script: str, **options: Any) -> ClaudeCode:
    """A program that does just this, whatever it is asked."""
    return a_stub(home, command=("sh", "-c", script), **options)


def asks(text: str, number: int = 1, session: str | None = None, *, who: str = "alice", **more: Any) -> Turn:
    key = f"site/{who}"
    messages = [Message("site", f"{who}-{number}", key, who, text, seq=number, accepted_at=1_000 + number)]
    return replace(Turn(key, number, attempt=1, epoch=1, channel="site", messages=messages, session=session), **more)


def more(text: str) -> Message:
    return Message("site", text, "site/alice", "alice", text)


def line(**values: object) -> str:
    return "echo '" + json.dumps(values).replace("'", "") + "'"


RESULT = line(type="result", subtype="success", is_error=False, result="hello", num_turns=1)


# The program ----------------------------------------------------------------------------------------------------------


async def test_turns_are_one_session_and_a_repeated_one_is_not_run_again(tmp_path: Path) -> None:
    first = await a_stub(tmp_path).respond(asks("one"))
    assert (first.text, first.usage, first.local) == ('I heard ["one"]', Usage(150, 17, 30), True)
    second = await a_stub(tmp_path).respond(asks("two", 2, first.session))
    assert (second.text, second.session) == ('I heard ["one", "two"]', first.session)
    assert await a_script(tmp_path, "exit 1").respond(asks("two", 2, first.session, attempt=2)) == second


async def test_an_answer_is_shown_as_it_grows(tmp_path: Path) -> None:
    audience = Audience()
    reply = await a_stub(tmp_path).respond(asks("one", stage=audience))
    assert audience.seen == ["I heard", reply.text]


async def test_several_messages_are_one_question(tmp_path: Path) -> None:
    turn = asks("one")
    turn = replace(turn, messages=[*turn.messages, replace(more("we close at 6"), role="business")])
    assert (await a_stub(tmp_path).respond(turn)).text == 'I heard ["one\\n[business] we close at 6"]'


@pytest.mark.parametrize(
    ("script", "error", "cause"),
    [
        ("exit 0", AgentFailed, "without a result"),
        ("echo the reason >&2; exit 1", AgentFailed, "the reason"),
        ("kill -9 $$", AgentFailed, "exit code -9"),
        ("echo nonsense", AgentFailed, "cannot be read"),
        (line(type="result", is_error="yes"), AgentFailed, "cannot be read"),
        (line(type="result", subtype="success", is_error=False), AgentFailed, "without an answer"),
        (f"{RESULT}; {line(type='result', is_error=True, api_error_status=529)}", Throttled, "529"),
    ],
)
async def test_anything_but_a_result_without_an_error_is_a_failure(
    tmp_path: Path, script: str, error: type[AgentError], cause: str
) -> None:
    with pytest.raises(error, match=cause):
        await a_script(tmp_path, script).respond(asks("hi"))


async def test_what_is_not_known_yet_is_passed_over(tmp_path: Path) -> None:
    script = f"{line(type='novelty', result=5)}; echo; {RESULT}; exit 7"
    assert (await a_script(tmp_path, script).respond(asks("hi"))).text == "hello"


async def test_an_answer_without_a_word_says_nothing(tmp_path: Path) -> None:
    silent = line(type="result", subtype="success", is_error=False, result="", num_turns=1)
    assert (await a_script(tmp_path, silent).respond(asks("hi"))).text is None


async def test_a_program_that_will_not_go_is_killed_and_so_is_a_child_that_left_its_group(tmp_path: Path) -> None:
    pid, child = tmp_path / "pid", tmp_path / "child"
    script = (
        f"trap '' INT TERM; setsid sh -c 'echo $$ > {child}; exec sleep 600' & echo $$ > {pid}; while :; do wait; done"
    )
    agent = ClaudeCode(Options(command=("sh", "-c", script), cwd=str(tmp_path)), term_grace=0.1)
    asked = asyncio.create_task(agent.respond(asks("hi")))
    processes = [await pid_in(pid), await pid_in(child)]
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert [is_alive(each) for each in processes] == [False, False]


async def test_what_comes_too_late_or_for_another_turn_is_not_taken(tmp_path: Path) -> None:
    agent = a_stub(tmp_path)
    assert not await agent.steer(asks("hi"), [more("and this")])
    audience = Audience()
    turn = asks("HOLD", stage=audience)
    asked = asyncio.create_task(agent.respond(turn))
    await audience.shows()
    assert not await agent.steer(asks("hi", who="bob"), [more("and this")])
    steering = asyncio.create_task(agent.steer(turn, [more("and this")]))
    await asyncio.sleep(0)
    asked.cancel()
    assert not await steering
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_a_program_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentRefused, match="no-such-claude"):
        await a_stub(tmp_path, command=("no-such-claude",)).respond(asks("hi"))


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentFailed, match="cwd"):
        await a_stub(tmp_path, cwd=f"{tmp_path}/file/{{conversation}}").respond(asks("hi"))


@pytest.mark.parametrize("session", ["../../etc", "s-1", "*", ""])
async def test_a_session_of_another_agent_is_begun_anew(tmp_path: Path, session: str) -> None:
    reply = await a_stub(tmp_path).respond(asks("hi", session=session))
    assert reply.text == 'I heard ["hi"]'
    assert reply.began_anew is not None


async def test_a_transcript_that_the_program_does_not_know_is_begun_anew(tmp_path: Path) -> None:
    first = await a_stub(tmp_path).respond(asks("one"))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    reply = await a_stub(tmp_path, cwd=str(elsewhere)).respond(asks("two", 2, first.session))
    assert (reply.text, reply.began_anew) == ('I heard ["two"]', "Claude Code has no transcript of it any more")


# What it says ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "error", "cause"),
    [
        (Result(is_error=True, api_error_status=413, result="too large"), AgentRefused, "413"),
        (Result(is_error=True, api_error_status=408, result="timeout"), AgentFailed, "timeout"),
        (Result(is_error=True, api_error_status=503, result="later"), Throttled, "patience"),
        (Result(is_error=True, result="Not logged in · Please run /login"), AgentRefused, "log in where it runs"),
        (Result(is_error=True, terminal_reason="aborted_tools", errors=["x"]), AgentFailed, "aborted_tools"),
        (Result(result="Blocked by hook: secret reason", num_turns=0), AgentRefused, "hooks"),
    ],
)
def test_what_went_wrong_says_whether_to_try_again_and_what_to_do(
    result: Result, error: type[AgentError], cause: str
) -> None:
    failure = failure_of(result)
    assert isinstance(failure, error)
    assert cause in str(failure)


def test_tokens_are_counted_with_the_cache_and_with_subagents() -> None:
    counts = {"inputTokens": 1, "cacheCreationInputTokens": 2, "cacheReadInputTokens": 4, "outputTokens": 8}
    by_model = {"large": {**counts, "thinkingTokens": 3}, "small": counts}
    read = read_line(json.dumps({"type": "result", "model_usage_since_last_result": by_model}).encode())
    assert isinstance(read, Result)
    assert read.tokens == Usage(14, 16, 8, 3)
    details = {"input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 8}
    usage = {**details, "output_tokens_details": {"thinking_tokens": 5}}
    read = read_line(json.dumps({"type": "result", "usage": usage}).encode())
    assert isinstance(read, Result)
    assert read.tokens == Usage(5, 8, 4, 5)


# What it wrote down ---------------------------------------------------------------------------------------------------


def entry(kind: str, uuid: str, **message: object) -> dict[str, object]:
    return {"type": kind, "uuid": uuid, "message": message}


def said(uuid: str, id: str, text: str, stop: str | None = "end_turn", **more: object) -> dict[str, object]:
    blocks = [{"type": "text", "text": text}]
    counts = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 2}
    return {**entry("assistant", uuid, id=id, model="m", content=blocks, stop_reason=stop, usage=counts), **more}


def written(folder: Path, *entries: object) -> Transcript:
    file = folder / "session.jsonl"
    file.write_text("".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in entries))
    return Transcript(file)


def test_one_message_in_several_lines_is_counted_once(tmp_path: Path) -> None:
    transcript = written(
        tmp_path,
        said("a0", "m0", "before"),
        entry("user", "u1", content="hi"),
        said("a1", "m1", "I look.", "tool_use"),
        said("a2", "m1", "", "tool_use"),
        entry("user", "t1", content=[{"type": "tool_result", "content": "x"}]),
        said("a3", "m2", "All "),
        said("a4", "m2", "is well."),
        said("s1", "m3", "aside", isSidechain=True),
    )
    answer = transcript.answer_to("u1")
    assert answer is not None
    assert (answer.texts, answer.usage, answer.model) == (("All is well.",), Usage(30, 4, 10), "m")
    assert transcript.cut_short_after is None


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [said("a1", "m1", "I look.", "tool_use")],
        [said("a1", "m1", "half of it", None)],
        [said("a1", "m1", "API Error: 529", isApiErrorMessage=True)],
        [entry("assistant", "a1", model="<synthetic>", content="No response requested.", stop_reason="stop_sequence")],
    ],
)
def test_what_was_cut_short_is_no_answer_and_is_left_out_of_the_session(tmp_path: Path, rest: list[Any]) -> None:
    transcript = written(tmp_path, said("a0", "m0", "before"), entry("user", "u1", content="hi"), *rest, '{"type": "us')
    assert transcript.knows("u1")
    assert not transcript.knows("u2")
    assert transcript.answer_to("u1") is None
    assert transcript.cut_short_after == "a0"


def test_lines_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    transcript = written(
        tmp_path,
        "\n[]\nnonsense\n",
        {"type": "summary", "message": 5},
        {"type": "user", "uuid": "u0", "message": {"content": 7}},
        entry("user", "u1", content="hi"),
        said("a1", "m1", "hello"),
    )
    answer = transcript.answer_to("u1")
    assert answer is not None
    assert answer.texts == ("hello",)


# What it is told ------------------------------------------------------------------------------------------------------


def test_the_environment_holds_nothing_that_is_not_meant() -> None:
    surroundings = {
        "PATH": "/bin",
        "HOME": "/home/bot",
        "TURNLANE_OPERATOR_TOKEN": "secret",
        "ANTHROPIC_API_KEY": "key",
        "CLAUDECODE": "1",
        "AWS_SECRET": "s",
    }
    assert Options(env={"MINE": "1"}, config_dir="/config").environment(surroundings) == {
        "PATH": "/bin",
        "HOME": "/home/bot",
        "ANTHROPIC_API_KEY": "key",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CONFIG_DIR": "/config",
        "MINE": "1",
    }
    assert "AWS_SECRET" in Options(inherit_env=["AWS_*"]).environment(surroundings)
    assert Options(env={"DISABLE_AUTOUPDATER": "0"}).environment({})["DISABLE_AUTOUPDATER"] == "0"


def test_settings_become_arguments() -> None:
    arguments = list(
        Options(
            model="opus",
            append_system_prompt="Be brief.",
            allowed_tools=["Read", "Bash(git log *)", "Bash(git diff *)", "mcp__shop__orders"],
            disallowed_tools=["Read(./secrets/**)"],
            permission_mode="dontAsk",
            max_turns=5,
            budget_usd=0.5,
            settings="hooks.json",
            setting_sources=["project"],
            mcp_config="shop.json",
            extra_args=["--add-dir", "/data"],
        ).arguments()
    )
    after = {flag: arguments[arguments.index(flag) + 1] for flag in arguments[:-1] if flag.startswith("--")}
    assert after["--tools"] == "Read,Bash"
    assert after["--setting-sources"] == "project"
    assert after["--settings"] == os.path.abspath("hooks.json")
    assert after["--mcp-config"] == os.path.abspath("shop.json")
    assert (after["--max-turns"], after["--max-budget-usd"], after["--model"]) == ("5", "0.5", "opus")
    assert arguments[-2:] == ["--add-dir", "/data"]


@pytest.mark.parametrize(
    "options",
    [
        {"extra_args": ["--resume"]},
        {"extra_args": ["--session-id=x"]},
        {"system_prompt": "a", "append_system_prompt": "b"},
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        ClaudeCode(Options(**options))


def test_every_conversation_has_a_folder_whatever_it_is_called(tmp_path: Path) -> None:
    options = Options(cwd=f"{tmp_path}/{{conversation}}")
    names = ["site/../../etc", "site/a", "site%2Fa", "s/" + "x" * 600, "s/" + "x" * 601]
    folders = [options.folder(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(folder.is_dir() and folder.parent == tmp_path for folder in folders)
