"""What the real Claude Code writes down is what is stored: through resume, tools, sub-agents, compaction and a fork."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.anthropic import Anthropic
from tests.transcripts.written import all_entries

from turnlane.agents.claude_code.options import found_program
from turnlane.model.usage import Usage
from turnlane.transcripts import Followed, follow, open_transcripts
from turnlane.transcripts.views import altogether

PROGRAM = found_program(["claude"], os.environ)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Claude Code; the package claude-agent-sdk brings it")

BASH = 'TOOL:Bash:{"command": "echo hi", "description": "says hi"}'
ASKED = {"description": "sub", "prompt": "look around", "subagent_type": "general-purpose", "run_in_background": False}
SUBAGENT = f"TOOL:Agent:{json.dumps(ASKED)}"

Says = Callable[..., Awaitable[str]]


@pytest.fixture
async def api() -> AsyncIterator[Anthropic]:
    async with Anthropic() as api:
        yield api


@pytest.fixture
def says(api: Anthropic, tmp_path: Path) -> Says:
    """Say something to the program, and be told its session."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "key",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    (tmp_path / "work").mkdir()

    async def say(text: str, *options: str) -> str:
        assert PROGRAM is not None
        command = [PROGRAM, "-p", "--output-format", "json", "--allowedTools", "Bash,Agent", *options, "--", text]
        ran = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path / "work", env=env, stdin=subprocess.DEVNULL, capture_output=True
        )
        session: str = json.loads(ran.stdout)["session_id"]
        return session

    return say


async def test_what_claude_code_writes_down_is_what_is_stored(api: Anthropic, says: Says, tmp_path: Path) -> None:
    store = open_transcripts("memory://", tmp_path / "t.db")

    async def followed(session: str) -> Followed:
        (path,) = (tmp_path / ".claude" / "projects").glob(f"*/{session}.jsonl")
        new = await follow(store, path)
        assert (new.counts.bad, new.counts.unknown, new.problems) == (0, 0, ())
        return new

    session = await says("hello there")
    await says(BASH, "--resume", session)
    first = await followed(session)
    await says(SUBAGENT, "--resume", session)
    second = await followed(session)
    assert altogether((first + second).usage) == sum([Usage(150, 17, 30)] * api.answered, Usage())
    await says("/compact", "--resume", session)
    fork = await says("after the fork", "--resume", session, "--fork-session")
    await says("ERR:400", "--resume", session)
    await followed(session)
    assert altogether((await followed(fork)).usage) == Usage(150, 17, 30)

    entries = await all_entries(store, session)
    said = [entry.text for entry in entries if entry.kind == "user" and entry.agent is None]
    assert said == ["hello there", BASH, SUBAGENT, "/compact", "ERR:400"]
    assert ("hi", "Bash") in [(entry.text, entry.tool) for entry in entries if entry.kind == "tool_result"]
    aside = [entry.text for entry in entries if entry.agent is not None]
    assert aside == ["look around", 'I heard ["look around"]']
    assert {"compact", "summary", "error"} < {entry.kind for entry in entries}
    assert (await all_entries(store, fork))[-2].text == "after the fork"
    await store.close()
