"""The agent that is a program: real processes, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.turns import Audience, a_turn

from turnlane.agents import command
from turnlane.agents.command import Command
from turnlane.errors import AgentFailed, InvalidSettings
from turnlane.model.turn import Reply
from turnlane.model.usage import Usage

HELLO = """echo '{"text": "hello"}'"""


def shell(script: str, **more: Any) -> Command:
    return Command(["sh", "-c", script], **more)


def python(script: str, **more: Any) -> Command:
    return Command([sys.executable, "-c", script], **more)


def is_alive(pid: int) -> bool:
    """A zombie that waits for its parent is dead: it holds nothing and does nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def until(told: Callable[[], bool]) -> None:
    """Wait for another process, which can tell only by a file."""
    async with asyncio.timeout(20):
        while not told():  # noqa: ASYNC110 - no event reaches across processes
            await asyncio.sleep(0.01)


async def pid_in(file: Path) -> int:
    await until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())  # noqa: ASYNC240 - a few bytes


async def test_the_turn_comes_in_and_the_answer_goes_out_as_json() -> None:
    agent = python(
        "import json, sys; turn = json.load(sys.stdin)['turn'];"
        "print(json.dumps({'text': turn['messages'][0]['text'] + turn['id'], 'session': 's-2',"
        "'usage': {'input_tokens': 1, 'output_tokens': 2}}))"
    )
    assert await agent.respond(a_turn("hi ")) == Reply("hi site/alice#3", "s-2", Usage(1, 2))
    await agent.close()


async def test_the_sessions_of_a_program_may_be_on_this_machine_alone() -> None:
    agent = shell("""echo '{"text": "hello", "session": "s-1"}'""", local_sessions=True)
    assert await agent.respond(a_turn()) == Reply("hello", "s-1", local=True)


async def test_a_program_need_not_read_what_it_is_told() -> None:
    assert await shell(HELLO).respond(a_turn("x" * 1_000_000)) == Reply("hello")


async def test_a_long_turn_and_a_long_answer_fit_through() -> None:
    agent = python(
        "import json, sys; turn = json.load(sys.stdin)['turn'];"
        "print(json.dumps({'text': turn['messages'][0]['text'] * 2}))"
    )
    reply = await agent.respond(a_turn("x" * 1_000_000))
    assert reply.text == "x" * 2_000_000


async def test_customer_text_is_never_an_argument_or_a_command() -> None:
    agent = python(
        "import json, sys; turn = json.load(sys.stdin)['turn'];"
        "print(json.dumps({'text': turn['messages'][0]['text'] + str(len(sys.argv))}))"
    )
    assert (await agent.respond(a_turn("$(exit 1); -h"))).text == "$(exit 1); -h1"


async def test_environment_and_folder_are_the_settings(tmp_path: Path) -> None:
    agent = shell(
        """printf '{"text": "%s %s %s"}' "$PWD" "$WORD" "${PATH:+kept}" """, env={"WORD": "w"}, cwd=str(tmp_path)
    )
    assert (await agent.respond(a_turn())).text == f"{tmp_path} w kept"


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("exit 75", "exited with code 75"),
        ("echo some output; exit 1", "exited with code 1"),
        ("kill -9 $$", "ended by signal 9"),
        ("true", "cannot be read"),
        ("echo hello", "cannot be read"),
        ("""echo '{"text": 5}'""", r"\$\.text"),
        (f"{HELLO}; {HELLO}", "trailing"),
    ],
)
async def test_anything_but_success_and_json_is_a_failure_to_be_retried(script: str, cause: str) -> None:
    with pytest.raises(AgentFailed, match=cause) as failed:
        await shell(script).respond(a_turn())
    assert failed.value.retry


@pytest.mark.parametrize("end", ["exit 1", "echo not json"])
async def test_the_end_of_standard_error_is_in_the_failure(end: str) -> None:
    script = f"head -c 100000 /dev/zero >&2; echo >&2; echo the reason >&2; {end}"
    with pytest.raises(AgentFailed, match="the reason") as failed:
        await shell(script).respond(a_turn())
    assert len(str(failed.value)) < 3_000
    assert "\0" not in str(failed.value)


async def test_an_answer_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUTPUT_BYTES_MAX", 100_000)
    with pytest.raises(AgentFailed, match="more than 100000 bytes"):
        await shell("yes").respond(a_turn())


@pytest.mark.parametrize(
    "agent", [Command(["no-such-program-anywhere"]), Command(["/"]), Command(["true"], cwd="/no/such/folder")]
)
async def test_a_program_that_cannot_start_is_a_failure_that_names_it(agent: Command) -> None:
    with pytest.raises(AgentFailed, match="check the agent's command"):
        await agent.respond(a_turn())


@pytest.mark.parametrize("argv", [[], [""], "claude -p", ["a\0"]])
def test_a_command_that_cannot_work_is_refused_at_once(argv: Any) -> None:
    with pytest.raises(InvalidSettings, match="list"):
        Command(argv)


# Pieces ---------------------------------------------------------------------------------------------------------------


async def test_pieces_are_shown_as_they_come_and_the_last_object_is_the_answer(tmp_path: Path) -> None:
    audience, told = Audience(), tmp_path / "told"
    script = (
        """echo '{"piece": "Hel"}'; echo; """
        f"""while [ ! -e {told} ]; do sleep 0.01; done; printf '%s' '{{"piece": "lo"}}'; echo; """
        """printf '{\n  "text": "Hello!"\n}\n'"""
    )
    asked = asyncio.create_task(shell(script).respond(a_turn(stage=audience)))
    await audience.sees("Hel")
    told.touch()
    assert await asked == Reply("Hello!")
    assert audience.seen == ["Hel", "Hello"]


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("""echo '{"piece": "half"}'""", "cannot be read"),
        ("""echo '{"piece": "half"}'; exit 1""", "exited with code 1"),
        ("""echo '{"piece": 5}'; echo '{"text": "five"}'""", "cannot be read"),
        ("""echo '{"text": "first"}'; echo '{"piece": "too late"}'""", "trailing"),
    ],
)
async def test_pieces_without_an_answer_are_a_failure(script: str, cause: str) -> None:
    with pytest.raises(AgentFailed, match=cause):
        await shell(script).respond(a_turn())


# Nothing is left behind -----------------------------------------------------------------------------------------------


async def test_a_child_left_behind_is_gone_after_the_answer(tmp_path: Path) -> None:
    """It holds the standard output open, too: the answer does not wait for it."""
    pid = tmp_path / "pid"
    async with asyncio.timeout(10):
        reply = await shell(f"sleep 600 & echo $! > {pid}; {HELLO}").respond(a_turn())
    assert reply == Reply("hello")
    assert not is_alive(int(pid.read_text()))


async def test_a_child_left_behind_is_gone_after_a_failure(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(AgentFailed):
        await shell(f"(trap '' TERM HUP; sleep 600) & echo $! > {pid}; exit 1").respond(a_turn())
    assert not is_alive(int(pid.read_text()))


async def test_a_cancelled_program_may_tidy_up(tmp_path: Path) -> None:
    pid, tidied = tmp_path / "pid", tmp_path / "tidied"
    agent = shell(f"trap 'touch {tidied}; exit 0' TERM; sleep 600 & echo $! > {pid}; wait")
    asked = asyncio.create_task(agent.respond(a_turn()))
    child = await pid_in(pid)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert tidied.exists()
    assert not is_alive(child)


async def test_a_cancelled_program_that_will_not_go_is_killed_with_its_children(tmp_path: Path) -> None:
    pid, leader = tmp_path / "pid", tmp_path / "leader"
    script = (
        f"trap '' TERM; sh -c 'while :; do sleep 1; done' & echo $! > {pid}; echo $$ > {leader}; while :; do wait; done"
    )
    asked = asyncio.create_task(shell(script, term_grace=0.1).respond(a_turn()))
    processes = [await pid_in(pid), await pid_in(leader)]
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert [is_alive(each) for each in processes] == [False, False]


async def test_a_second_cancellation_does_not_save_the_program(tmp_path: Path) -> None:
    pid, terminated = tmp_path / "pid", tmp_path / "terminated"
    script = f"trap 'touch {terminated}' TERM; echo $$ > {pid}; while :; do sleep 0.01; done"
    asked = asyncio.create_task(shell(script, term_grace=60).respond(a_turn()))
    process = await pid_in(pid)
    asked.cancel()
    await until(terminated.exists)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not is_alive(process)


async def test_a_turn_cancelled_while_the_program_starts_leaves_nothing(tmp_path: Path) -> None:
    for turns_of_the_loop in range(5):
        pid = tmp_path / f"pid-{turns_of_the_loop}"
        asked = asyncio.create_task(shell(f"echo $$ > {pid}; exec sleep 600", term_grace=5).respond(a_turn()))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not pid.exists() or not pid.read_text() or not is_alive(int(pid.read_text()))


async def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(AgentFailed, match=r"longer than 0\.3 s"):
        await shell(f"echo $$ > {pid}; exec sleep 600", timeout=0.3).respond(a_turn())
    assert not pid.exists() or not is_alive(int(pid.read_text()))


async def test_a_child_that_left_the_group_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with asyncio.timeout(10):
        reply = await shell(f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & {HELLO}").respond(a_turn())
    assert reply == Reply("hello")
    if pid.exists():
        os.kill(await pid_in(pid), signal.SIGKILL)


async def test_many_at_once_do_not_disturb_each_other() -> None:
    agent = python("import json, sys; print(json.dumps({'text': json.load(sys.stdin)['turn']['messages'][0]['text']}))")
    replies = await asyncio.gather(*(agent.respond(a_turn(str(number))) for number in range(10)))
    assert [reply.text for reply in replies] == [json.dumps(number) for number in range(10)]
