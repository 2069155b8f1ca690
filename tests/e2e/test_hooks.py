"""Claude Code's hooks with real processes: events from several sessions, killed workers, and the real `claude`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agents.anthropic import Anthropic
from tests.e2e.site import Site, eventually

from turnlane.agents.claude_code.options import found_program, program
from turnlane.backends import open_backend
from turnlane.cli import hook, hook_settings
from turnlane.testing.processes import SECONDS_MAX, surroundings
from turnlane.transcripts.entry import Entry
from turnlane.transcripts.store import open_transcripts

SESSIONS, EVENTS_EACH, SECONDS = 5, 40, 5.0
LATE_MS = 4_000
"""How much later than its max wait, when it is ready, a turn may start on a machine with other things to do."""


def transcript_line(session: str, number: int) -> str:
    return json.dumps(
        {
            "type": "user",
            "uuid": f"{session}-{number}",
            "parentUuid": None,
            "sessionId": session,
            "timestamp": f"2026-11-16T00:00:{number:02d}.000Z",
            "cwd": "/home/user/project",
            "message": {"role": "user", "content": f"line {number} of {session}"},
        }
    )


async def tell(spool: Path, event: Mapping[str, object]) -> None:
    """As Claude Code does it."""
    command = [sys.executable, "-I", "-S", hook.__file__, "--spool", str(spool)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE)
    await process.communicate(json.dumps(event).encode())
    assert process.returncode == 0


async def kept(url: str, session: str) -> list[Entry]:
    store = open_transcripts(url)
    await store.open()
    try:
        entries, after = await store.entries(session)
        while after is not None:
            more, after = await store.entries(session, after=after)
            entries += more
        return entries
    finally:
        await store.close()


# E2 to E4


async def talk(spool: Path, folder: Path, session: str, begun: asyncio.Event) -> None:
    """A person at a keyboard: what is said stands in the transcript before its event is told."""
    path = folder / f"{session}.jsonl"
    for number in range(EVENTS_EACH):
        with path.open("a") as file:
            file.write(transcript_line(session, number) + "\n")
        event = {"session_id": session, "transcript_path": str(path), "hook_event_name": "Stop", "number": number}
        started = asyncio.get_running_loop().time()
        await tell(spool, event)
        if number == EVENTS_EACH // 2:
            begun.set()
        spent = asyncio.get_running_loop().time() - started
        await asyncio.sleep(max(0.0, SECONDS / EVENTS_EACH - spent))


async def test_two_hundred_events_in_five_seconds_are_all_kept_though_the_worker_is_killed(site: Site) -> None:
    """E2 to E4: each session within its max wait, one turn at a time, and nothing lost."""
    spool = site.folder / "spool"
    text = hook_settings.WORKER_SETTINGS.format(
        backend=json.dumps(f"sqlite:///{site.file}"), spool=json.dumps(str(spool))
    )
    (site.folder / "turnlane.toml").write_text(text + '\n[lanes]\nlease = "1s"\n')
    worker = await site.begin("worker")
    await worker.said("worker.joined")
    halfway = asyncio.Event()
    sessions = [f"session-{number}" for number in range(SESSIONS)]
    talking = [asyncio.create_task(talk(spool, site.folder, session, halfway)) for session in sessions]
    await halfway.wait()
    worker.kill()
    await worker.ended()
    await worker.start()
    await asyncio.gather(*talking)
    await site.comes_true(lambda: not list((spool / hook.NEW).glob("*.json")))
    await site.all_settled()

    assert site.rows("SELECT count(*), count(DISTINCT origin_id) FROM message") == [(200, 200)]
    url = f"sqlite:///{site.file}"
    for session in sessions:
        said = [entry.text for entry in await kept(url, session)]
        assert said == [f"line {number} of {session}" for number in range(EVENTS_EACH)]
    started = await _events(url, "turn.started")
    assert max(facts["waited_ms"] for facts in started if facts["attempt"] == 1) <= LATE_MS, started


async def _events(url: str, name: str) -> list[Mapping[str, Any]]:
    backend = open_backend(url)
    await backend.open()
    try:
        return [stored.event.facts for stored in await backend.events(limit=100_000) if stored.event.name == name]
    finally:
        await backend.close()


# E6


async def test_with_no_server_the_first_event_starts_a_worker_that_ends_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "state" / "spool"
    monkeypatch.setenv("PYTHONPATH", surroundings().get("PYTHONPATH", ""))
    hook_settings.prepare(spool, None)
    start = spool / hook.START
    start.write_text(start.read_text().replace(hook_settings.IDLE, "2s"))
    path = tmp_path / "s-1.jsonl"
    path.write_text(transcript_line("s-1", 0) + "\n")
    await tell(spool, {"session_id": "s-1", "transcript_path": str(path), "hook_event_name": "Stop"})
    url = f"sqlite:///{spool.parent / 'turnlane.db'}"

    async def is_kept() -> bool:
        return (spool.parent / "turnlane.transcripts.db").exists() and len(await kept(url, "s-1")) == 1

    await eventually(is_kept)

    async def nobody_listens() -> bool:
        return not hook.wake(str(spool))

    await eventually(nobody_listens)
    assert not (spool / hook.LOG).exists()


# The real one

needs_claude = pytest.mark.skipif(
    found_program(["claude"], os.environ) is None, reason="needs Claude Code; the package claude-agent-sdk brings it"
)


@pytest.fixture
async def api() -> AsyncIterator[Anthropic]:
    async with Anthropic() as api:
        yield api


class Keyboard:
    """Somebody who uses Claude Code, with our hooks installed."""

    def __init__(self, folder: Path, api: Anthropic) -> None:
        self.folder = folder
        self.spool = folder / "state" / "spool"
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        settings = folder / ".claude" / "settings.json"
        settings.parent.mkdir()
        line = hook_settings.hook_command(self.spool)
        settings.write_text(json.dumps(hook_settings.with_ours({}, line)))

    async def says(self, text: str, session: str | None = None) -> Any:
        """The result of one turn."""
        command = [program(["claude"], os.environ), "-p", text, "--output-format", "json"]
        command += ["--allowedTools", "Bash", "Agent"]
        if session is not None:
            command += ["--resume", session]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=self._environ, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(SECONDS_MAX):
            out, err = await process.communicate()
        assert process.returncode == 0, (out, err)
        return json.loads(out)


@needs_claude
async def test_what_was_said_to_the_real_claude_is_what_is_stored(site: Site, api: Anthropic) -> None:
    """Through resume, tool use, a sub-agent and compaction."""
    keyboard = Keyboard(site.folder, api)
    text = hook_settings.WORKER_SETTINGS.format(
        backend=json.dumps(f"sqlite:///{site.file}"), spool=json.dumps(str(keyboard.spool))
    )
    (site.folder / "turnlane.toml").write_text(text)
    await site.begin("worker")
    session = (await keyboard.says("hello there"))["session_id"]
    await keyboard.says('say TOOL:Bash:{"command": "echo a-word", "description": "speak"}', session)
    task: dict[str, object] = {
        "description": "look",
        "prompt": "a question for another",
        "subagent_type": "general-purpose",
    }
    task["run_in_background"] = False
    await keyboard.says(f"ask TOOL:Agent:{json.dumps(task)}", session)
    await keyboard.says("/compact", session)
    last = await keyboard.says("goodbye", session)
    url = f"sqlite:///{site.file}"

    async def is_whole() -> bool:
        if not (site.folder / "turnlane.transcripts.db").exists():
            return False
        there = await kept(url, session)
        # What its sub-agent said is in a file of its own, which is read after that of the session.
        heard = any(entry.agent is not None and "a question for another" in entry.text for entry in there)
        return heard and any(entry.text == last["result"] for entry in there)

    await eventually(is_whole)
    entries = await kept(url, session)
    mine = [entry.text for entry in entries if entry.kind == "user" and entry.agent is None]
    assert mine[0] == "hello there"
    assert mine[-1] == "goodbye"
    assert sum("TOOL:" in text for text in mine) == 2
    assert any(entry.kind == "tool_use" and entry.tool == "Bash" for entry in entries)
    assert any(entry.kind == "tool_result" and "a-word" in entry.text for entry in entries)
    assert any(entry.kind == "compact" for entry in entries)
    assert len({(entry.uuid, entry.block) for entry in entries}) == len(entries)


def test_the_installed_line_is_words_of_a_shell(tmp_path: Path) -> None:
    spool = tmp_path / "a folder with 'quotes'"
    assert shlex.split(hook_settings.hook_command(spool))[-1] == str(spool)
