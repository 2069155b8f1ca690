"""`turnlane transcripts`: taken in, listed, shown, searched, exported and added up."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.transcripts.written import SESSION, answered, line, said, text, thinking, tool_result, tool_use, write
from tests.unit.test_cli_explain import call, folder  # noqa: F401 - a fixture of every test here

import turnlane

OTHER = "6d7c1f1e-0000-4000-8000-000000000002"
PRICES = '[prices."claude-opus"]\ninput = 5.0\noutput = 25.0\ncached = 0.5\n'


@pytest.fixture(autouse=True)
def no_hooks_of_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where hooks keep their things."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "turnlane"


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    kept = tmp_path / "config" / "projects"
    write(
        kept / "-home-user-proj" / f"{SESSION}.jsonl",
        said("Which files are here?\nAll of them.", hour=1)
        + answered(thinking("I had better look."), tool_use("Bash", "t1", command="ls"), id="msg_1", hour=2)
        + said(tool_result("t1", "a.py\n```\nb.py", is_error=True), hour=3)
        + line("system", subtype="compact_boundary", content="compacted", hour=4)
        + answered(text("Two: a.py and \x1b[31mb.py"), id="msg_2", output=100_000, hour=5),
    )
    agents = kept / "-home-user-proj" / SESSION / "subagents"
    write(agents / "agent-a1.jsonl", answered(text("I am aside"), id="msg_3", hour=6))
    write(kept / "-srv-garden" / f"{OTHER}.jsonl", said("Plant a tree", cwd="/srv/garden"))
    return kept


@pytest.fixture
def imported(projects: Path, tmp_path: Path) -> None:
    (tmp_path / "turnlane.toml").write_text(PRICES, "utf-8")
    assert call("transcripts", "import", str(projects)).exit_code == 0


def told(*arguments: str) -> Any:
    return json.loads(call("transcripts", *arguments, "--json").stdout)


def test_without_transcripts_the_next_step_is_named() -> None:
    for verb in (["list"], ["show", "x"], ["search", "x"], ["stats"], ["export", "x"]):
        wrong = call("transcripts", *verb)
        assert (wrong.exit_code, "`turnlane transcripts import`" in wrong.stderr) == (1, True)


def test_the_folder_of_claude_code_is_taken_in_and_a_second_time_changes_nothing(
    projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(projects.parent))
    first = call("transcripts", "import")
    assert first.stdout.startswith("3 files, 7 new lines in 0.0 MB: 8 new entries (0 bad, ")
    assert first.stderr.splitlines()[-1] == "3 of 3 files"
    again = told("import")
    assert (again["files"], again["new"]["entries"], again["new"]["counts"]["lines"]) == (3, 0, 0)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "nowhere")
    wrong = call("transcripts", "import")
    assert (wrong.exit_code, "there is no nowhere/projects" in wrong.stderr) == (1, True)


def test_they_are_where_the_agent_that_keeps_them_was_told(projects: Path, tmp_path: Path) -> None:
    hooks = '[channels.hooks]\nkind = "claude_hooks"\nspool = "spool"\n'
    keeper = '[agents.keeper]\nkind = "transcripts"\nfile = "kept.db"\n'
    (tmp_path / "turnlane.toml").write_text(hooks + keeper, "utf-8")
    assert call("transcripts", "list").exit_code == 1
    call("transcripts", "import", str(projects))
    assert len(told("list")["sessions"]) == 2
    assert [path.name for path in tmp_path.glob("*.db")] == ["kept.db"]


def test_where_nothing_is_named_or_kept_what_hooks_have_kept_is_shown(projects: Path, no_hooks_of_mine: Path) -> None:
    backend = f'backend = "sqlite:///{no_hooks_of_mine}/turnlane.db"\n'
    write(no_hooks_of_mine / "turnlane.toml", backend.encode())
    call("transcripts", "import", str(projects))
    assert (no_hooks_of_mine / "turnlane.transcripts.db").exists()
    assert len(told("list")["sessions"]) == 2
    assert call("transcripts", "list", "--backend", "sqlite:///here.db").exit_code == 1


@pytest.mark.usefixtures("imported")
def test_sessions_are_listed_with_what_they_cost() -> None:
    heading, first, second = call("transcripts").stdout.splitlines()
    assert heading.split()[:6] == ["SESSION", "PROJECT", "WHEN", "ENTRIES", "TOKENS", "COST"]
    assert first.split()[:2] == [SESSION[:8], "/home/user/proj"]
    assert first.endswith("7  100,484  2.50  Which files are here?⏎All of them.")
    assert second.endswith("1        0  0.00  Plant a tree")
    (session,) = told("list", "--project", "proj")["sessions"]
    assert session["usage"]["claude-opus-5-5"]["cost"] == 2_502_695
    assert told("list", "--until", "2026-11-14") == {"sessions": []}
    assert len(told("list", "--since", "2026-11-15", "--until", "2026-11-15", "--limit", "1")["sessions"]) == 1


@pytest.mark.usefixtures("imported")
def test_a_session_is_shown_as_a_chat() -> None:
    shown = call("transcripts", "show", "5d7").stdout
    assert "\nYou  " in shown
    assert "\n  Which files are here?\n  All of them.\n" in shown
    assert "\n--- compacted ---\n" in shown
    assert "\n  Two: a.py and �[31mb.py\n" in shown
    assert not any(word in shown for word in ("look", "Bash", "aside"))
    everything = call("transcripts", "show", SESSION, "--thinking", "--tools", "--agents").stdout
    assert "\n  > Bash  command: ls\n  < a.py\n    ```\n    b.py\n" in everything
    assert "\nClaude thinks  " in everything
    assert "\nClaude (agent a1)  " in everything
    assert [entry["kind"] for entry in told("show", "5d7", "--tools")["entries"]] == [
        "user",
        "tool_use",
        "tool_result",
        "compact",
        "assistant",
    ]


@pytest.mark.usefixtures("imported")
def test_who_spoke_is_told_apart() -> None:
    agents = Path("more") / "-srv-garden" / OTHER / "subagents"
    write(agents / "agent-b2.jsonl", said("Which trees grow here?", isSidechain=True, hour=7))
    assert call("transcripts", "import", "more").exit_code == 0
    assert "\nClaude asks (agent b2)  " in call("transcripts", "show", "6d7", "--agents").stdout


@pytest.mark.usefixtures("imported")
def test_what_was_said_is_found() -> None:
    _, hit = call("transcripts", "search", "plant", "tree").stdout.splitlines()
    assert hit.split()[2:5] == ["6d7c1f1e", "/srv/garden", "user"]
    assert hit.endswith("«Plant» a «tree»")
    assert call("transcripts", "search", "plant", "--session", "5d7").stdout == "nothing found\n"
    assert [hit["kind"] for hit in told("search", "--tool", "Bash")["hits"]] == ["tool_result", "tool_use"]
    assert [hit["session"] for hit in told("search", "--kind", "user", "--project", "/srv")["hits"]] == [OTHER]
    assert len(told("search", "--since", "2026-11-15", "--limit", "3")["hits"]) == 3


@pytest.mark.usefixtures("imported")
def test_sessions_are_exported(tmp_path: Path) -> None:
    markdown = call("transcripts", "export", "5d7").stdout
    assert markdown.startswith("# Which files are here?⏎All of them.\n\n- Session: 5d7c1f1e-")
    assert "\n**Bash**\n\n```\ncommand: ls\n```\n\nFailed:\n\n````\na.py\n```\nb.py\n````\n" in markdown
    assert "\n> I had better look.\n" in markdown
    whole = json.loads(call("transcripts", "export", "5d7", "--format", "json").stdout)
    assert (whole["session"]["session"], len(whole["entries"])) == (SESSION, 7)
    assert call("transcripts", "export", "--all", "--format", "json", "-o", "out").exit_code == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"{SESSION}.json", f"{OTHER}.json"]
    assert call("transcripts", "export", "--all").stdout.count("- Session: ") == 2
    assert "name a session, or say --all" in call("transcripts", "export").stderr


@pytest.mark.usefixtures("imported")
def test_what_sessions_took_is_added_up() -> None:
    heading, line = call("transcripts", "stats").stdout.splitlines()
    assert heading.split()[:4] == ["PROJECT", "SESSIONS", "MESSAGES", "INPUT"]
    assert line.split() == ["/home/user/proj", "1", "3", "450", "90", "100,034", "0", "2.50"]
    assert call("transcripts", "stats", "--by", "tool").stdout.splitlines()[1].split() == ["Bash", "1", "1", "1"]
    assert [total["name"] for total in told("stats", "--by", "day")["totals"]] == ["2026-11-15"]
    assert told("stats", "--by", "model", "--since", "2026-11-16")["totals"] == []


def test_on_a_terminal_an_import_draws_a_bar(projects: Path) -> None:
    outer, inner = pty.openpty()
    with open(outer, "rb", closefd=True, buffering=0) as screen, open(inner, "wb", closefd=True) as terminal:
        command = [sys.executable, "-c", "from turnlane.cli.main import main; main()", "transcripts", "import"]
        environment = {**os.environ, "PYTHONPATH": str(Path(turnlane.__file__).parents[1])}
        done = subprocess.run(
            [*command, str(projects)], stderr=terminal, stdout=subprocess.PIPE, env=environment, check=True
        )
        terminal.close()
        drawn = screen.read(10_000)
    assert done.stdout.startswith(b"3 files, ")
    assert b"transcripts" in drawn
    assert b"3/3" in drawn
