"""`turnlane hook`: an event is kept durably, somebody is woken, and the person at the keyboard never waits."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnlane.agents.transcripts import TranscriptKeeper
from turnlane.channels.base import Heard, ListeningChannel, Received
from turnlane.channels.claude_hooks import ClaudeHooks
from turnlane.cli import entry, hook, hook_settings
from turnlane.errors import BackendUnavailable, InvalidSettings, Throttled
from turnlane.model.message import Message
from turnlane.model.turn import Turn
from turnlane.testing.processes import SECONDS_MAX

EVENT = {"session_id": "s-1", "transcript_path": "/home/user/s-1.jsonl", "hook_event_name": "Stop", "cwd": "/home/user"}


def told(spool: Path, payload: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    """As Claude Code does it."""
    command = [sys.executable, "-I", "-S", hook.__file__, "--spool", str(spool), *options]
    return subprocess.run(command, input=payload, capture_output=True, timeout=SECONDS_MAX, check=False)


def kept(spool: Path) -> list[Path]:
    return sorted((spool / hook.NEW).glob("*.json"))


# The command


def test_an_event_is_kept_as_it_came_and_nothing_is_said(tmp_path: Path) -> None:
    payload = json.dumps(EVENT).encode()
    done = told(tmp_path / "spool", payload)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (file,) = kept(tmp_path / "spool")
    assert file.read_bytes() == payload
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list((tmp_path / "spool" / hook.WRITING).iterdir()) == []


def test_names_sort_by_time_and_are_never_the_same(tmp_path: Path) -> None:
    names = [hook.keep(str(tmp_path), b"{}") for _ in range(50)]
    assert names == sorted(set(names))


def test_a_spool_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    """Trouble is told only to whoever asks for it."""
    (tmp_path / "spool").write_text("a file in the way")
    assert told(tmp_path / "spool", b"{}").returncode == 0
    spoken = told(tmp_path / "spool", b"{}", "--verbose")
    assert (spoken.returncode, b"Error" in spoken.stderr) == (0, True)


def test_trouble_is_written_beside_the_spool(tmp_path: Path) -> None:
    (tmp_path / hook.NEW).write_text("a file in the way")
    assert told(tmp_path, b"{}").stderr == b""
    assert "FileExistsError" in (tmp_path / hook.LOG).read_text()


def test_a_huge_event_is_cut_and_still_says_what_happened(tmp_path: Path) -> None:
    huge = {**EVENT, "tool_response": {"stdout": "x" * 3_000_000}, "list": ["y" * 10_000] * 500}
    hook.keep(str(tmp_path), json.dumps(huge).encode())
    hook.keep(str(tmp_path), b"\xff" * 1_000_000)
    cut, garbage = kept(tmp_path)
    assert cut.stat().st_size <= hook.PAYLOAD_BYTES_MAX
    assert EVENT.items() <= json.loads(cut.read_text()).items()
    assert garbage.stat().st_size == hook.PAYLOAD_BYTES_MAX


def test_only_the_standard_library_is_imported(tmp_path: Path) -> None:
    """E1: and little of it, as each costs the person time."""
    source = (
        "import sys; before = set(sys.modules); h = {'__name__': 'h'}; exec(open(sys.argv[1]).read(), h);"
        "h['keep'](sys.argv[2], b'{}'); h['wake'](sys.argv[2]); print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, hook.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.split())
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert len(imported) < 10, imported
    tree = ast.parse(Path(hook.__file__).read_text("utf-8"))
    top = {each.names[0].name for each in tree.body if isinstance(each, ast.Import)}
    assert top == {"os", "sys", "time"}


@pytest.mark.parametrize(
    ("argv", "short"),
    [
        (["hook"], True),
        (["hook", "--spool", "x"], True),
        (["hook", "--verbose", "--spool", "x"], True),
        (["hook", "--spool"], False),
        (["hook", "install"], False),
        (["hook", "--help"], False),
        (["run"], False),
        ([], False),
    ],
)
def test_only_an_event_takes_the_short_way(argv: list[str], short: bool) -> None:
    assert entry._is_an_event(argv) is short


def test_nobody_listens_so_one_worker_is_started_and_inherits_nothing_of_claude(tmp_path: Path) -> None:
    """E6: five events at once start one."""
    script = "import os, sys; open(sys.argv[1], 'a').write(' '.join(sorted(os.environ)) + '\\n')"
    argv = [sys.executable, "-c", script, str(tmp_path / "ran")]
    (tmp_path / hook.START).write_text(json.dumps({"argv": argv}))
    started = [hook.start_worker(str(tmp_path)) for _ in range(5)]
    assert started == [True, False, False, False, False]
    os.wait()
    (environ,) = (tmp_path / "ran").read_text().splitlines()
    assert "CLAUDE" not in environ
    assert hook.worker_environment({"CLAUDECODE": "1", "ANTHROPIC_API_KEY": "x", "HOME": "/"}) == {"HOME": "/"}


# The channel


class Inbox:
    def __init__(self, *, down: int = 0) -> None:
        self.heard: list[Heard] = []
        self.down = down
        self.came = asyncio.Event()

    async def receive(self, heard: Heard) -> Received:
        if self.down:
            self.down -= 1
            raise BackendUnavailable("not now")
        self.heard.append(heard)
        self.came.set()
        return Received(accepted=len(heard.messages))

    async def messages(self, count: int) -> list[Message]:
        async with asyncio.timeout(SECONDS_MAX):
            while len(found := [message for heard in self.heard for message in heard.messages]) < count:
                self.came.clear()
                await self.came.wait()
        return found


async def test_events_are_taken_in_order_and_go_once_they_are_stored(tmp_path: Path) -> None:
    channel = ClaudeHooks("claude-code", spool=tmp_path)
    assert isinstance(channel, ListeningChannel)
    names = [hook.keep(str(tmp_path), json.dumps({**EVENT, "number": n}).encode()) for n in range(3)]
    inbox = Inbox(down=1)
    listening = asyncio.create_task(channel.listen(inbox.receive))
    messages = await inbox.messages(3)
    assert [(each.conversation, each.origin_id) for each in messages] == [("claude-code/s-1", name) for name in names]
    assert [json.loads(each.text)["number"] for each in messages] == [0, 1, 2]
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    assert hook.wake(str(tmp_path))
    await inbox.messages(4)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert len(kept(tmp_path)) <= 1, "the last one may have been stored and not yet removed"
    assert not hook.wake(str(tmp_path)), "nobody listens any more"


@pytest.mark.parametrize(
    "payload", [b"", b"\xff\x00", b"[]", b"{}", b'{"session_id": 7}', b'{"session_id": ""}', b"null"]
)
async def test_what_cannot_be_read_is_set_aside_and_stops_nothing(tmp_path: Path, payload: bytes) -> None:
    hook.keep(str(tmp_path), payload)
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    (tmp_path / hook.NEW / "a stranger's file").write_text("stays")
    inbox = Inbox()
    listening = asyncio.create_task(ClaudeHooks("claude-code", spool=tmp_path).listen(inbox.receive))
    await inbox.messages(1)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert len([aside for heard in inbox.heard for aside in heard.asides]) == 1


async def test_a_file_that_may_not_be_read_is_left_where_it_is_and_told_of_once(tmp_path: Path) -> None:
    closed = tmp_path / hook.NEW / f"{1:020d}-1-00000000.json"
    closed.mkdir(parents=True)  # as unreadable as it gets, also for root
    inbox = Inbox()
    listening = asyncio.create_task(ClaudeHooks("claude-code", spool=tmp_path).listen(inbox.receive))
    for count in (1, 2):
        hook.keep(str(tmp_path), json.dumps(EVENT).encode())
        await inbox.messages(count)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    (aside,) = [aside for heard in inbox.heard for aside in heard.asides]
    assert closed.name in aside.body
    assert closed.exists()


async def test_what_killed_hooks_were_writing_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    left, written = (tmp_path / hook.WRITING / name for name in ("left", "written"))
    for file in (left, written):
        file.write_text("{")
    os.utime(left, (0, 0))
    inbox = Inbox()
    listening = asyncio.create_task(ClaudeHooks("claude-code", spool=tmp_path).listen(inbox.receive))
    await inbox.messages(1)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert written.exists()
    assert not left.exists()


async def test_one_at_a_time_takes_from_a_spool(tmp_path: Path) -> None:
    first, second = Inbox(), Inbox()
    tasks = [asyncio.create_task(ClaudeHooks("claude-code", spool=tmp_path).listen(first.receive))]
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    await first.messages(1)
    tasks.append(asyncio.create_task(ClaudeHooks("claude-code", spool=tmp_path).listen(second.receive)))
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    await first.messages(2)
    assert second.heard == []
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    hook.keep(str(tmp_path), json.dumps(EVENT).encode())
    await second.messages(1)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)


# The agent


class NoStore:
    """Enough to be opened."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def test_a_session_is_kept_where_its_files_are() -> None:
    """D7"""
    store: Any = NoStore()
    event = json.dumps({"session_id": "s-1", "machine": "north"})
    turn = Turn("claude-code/s-1", 1, 1, 1, "claude-code", [Message("claude-code", "e-1", "k", "keyboard", event)])
    with pytest.raises(Throttled, match="on the machine north"):
        await TranscriptKeeper(store, machine="south").respond(turn)
    reply = await TranscriptKeeper(store, machine="north").respond(turn)
    assert (reply.parts, reply.local) == ((), True)


# Claude Code's settings

MINE = {"type": "command", "command": "say done"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("TURNLANE_SPOOL", str(tmp_path / "state" / "spool"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, answer: str | None = None) -> str:
    done = CliRunner().invoke(hook_settings.command, words, input=answer)
    assert done.exit_code == 0, done.output
    return done.output


def test_installing_keeps_what_is_there_and_shows_the_difference_first(home: Path) -> None:
    file = home / "claude" / "settings.json"
    file.parent.mkdir()
    before = {"model": "opus", "hooks": {"Stop": [{"hooks": [MINE]}]}, "größe": 1}
    file.write_text(json.dumps(before))
    file.chmod(0o600)
    shown = run("install", answer="y\n")
    assert '+        "hooks": [' in shown
    after = json.loads(file.read_text("utf-8"))
    assert after["hooks"]["Stop"][0] == {"hooks": [MINE]}
    assert set(after["hooks"]) == set(hook_settings.EVENTS)
    assert (after["model"], after["größe"], stat.S_IMODE(file.stat().st_mode)) == ("opus", 1, 0o600)
    (backup,) = file.parent.glob("settings.json.*.backup")
    assert json.loads(backup.read_text()) == before


def test_installing_twice_changes_nothing_and_uninstalling_leaves_what_was_there(home: Path) -> None:
    file = home / "claude" / "settings.json"
    file.parent.mkdir()
    before = {"hooks": {"Stop": [{"hooks": [MINE]}], "PreToolUse": []}}
    file.write_text(json.dumps(before))
    run("install", "--yes")
    written = file.read_text()
    assert "nothing was changed" in run("install", "--yes")
    assert file.read_text() == written
    run("uninstall", "--yes")
    assert json.loads(file.read_text()) == before
    assert "nothing was changed" in run("uninstall", "--yes")


def test_where_there_were_no_settings_there_are_none_of_ours_left(home: Path) -> None:
    run("install", "--project", "--yes")
    assert hook_settings.is_installed(json.loads((home / ".claude" / "settings.json").read_text()))
    run("uninstall", "--project", "--yes")
    assert (home / ".claude" / "settings.json").read_text().strip() in {"", "{}"}


def test_saying_no_changes_nothing(home: Path) -> None:
    done = CliRunner().invoke(hook_settings.command, ["install"], input="n\n")
    assert done.exit_code == 1
    assert not (home / "claude").exists()
    assert not (home / "state").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}'])
def test_settings_that_cannot_be_read_are_left_alone(home: Path, text: str) -> None:
    file = home / "claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(text)
    done = CliRunner().invoke(hook_settings.command, ["install", "--yes"])
    assert isinstance(done.exception, InvalidSettings)
    assert "mend it first" in str(done.exception)
    assert (file.read_text(), list(file.parent.iterdir())) == (text, [file])


def test_a_link_stays_a_link(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "settings.json").write_text("{}")
    (home / "claude").mkdir()
    (home / "claude" / "settings.json").symlink_to(home / "dotfiles" / "settings.json")
    run("install", "--yes")
    assert (home / "claude" / "settings.json").is_symlink()
    assert hook_settings.is_installed(json.loads((home / "dotfiles" / "settings.json").read_text()))


def test_the_installed_line_runs_and_the_worker_finds_its_settings(home: Path) -> None:
    run("install", "--yes")
    settings = json.loads((home / "claude" / "settings.json").read_text())
    line = settings["hooks"]["Stop"][0]["hooks"][0]["command"]
    (home / "state" / "spool" / hook.START).unlink()  # nobody is to be started here
    subprocess.run(line, shell=True, input=json.dumps(EVENT).encode(), timeout=SECONDS_MAX, check=True)  # noqa: S602
    assert len(kept(home / "state" / "spool")) == 1
    from turnlane.settings import ClaudeHooksChannel, load

    loaded = load(home / "state" / "turnlane.toml", {})
    assert loaded.channels["claude-code"] == ClaudeHooksChannel(spool=str(home / "state" / "spool"))
    lanes = loaded.routes[0].lanes
    assert (lanes.debounce.ms, lanes.max_wait.ms) == (2_000, 2_000)


def test_the_status_tells_what_waits_and_who_listens(home: Path) -> None:
    assert "installed: no" in run("status")
    run("install", "--yes")
    hook.keep(str(home / "state" / "spool"), b"{}")
    told = json.loads(run("status", "--json"))
    assert (told["user"], told["project"], told["waiting"], told["listening"]) == (True, False, 1, False)
