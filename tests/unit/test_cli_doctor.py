"""`turnlane doctor`: what it finds, and that each finding names the next step."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from turnlane.backends import open_backend
from turnlane.backends.base import Arrival
from turnlane.cli.main import turnlane as command
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import GaveUp, Parked, Replied, Reply

NOW = Policy(debounce_ms=0, max_wait_ms=0)


class Doctor(NamedTuple):
    exit_code: int
    findings: list[dict[str, Any]]

    def says(self, check: str, status: str, text: str) -> bool:
        return any(
            (each["check"], each["status"]) == (check, status) and text in each["text"] for each in self.findings
        )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TURNLANE_"):
            monkeypatch.delenv(name)
    # Port 0 is always free, whatever else this machine serves.
    monkeypatch.setenv("TURNLANE_LISTEN", "127.0.0.1:0")
    return tmp_path


def examine(*arguments: str, settings: str | None = None) -> Doctor:
    if settings is not None:
        Path("turnlane.toml").write_text(settings)
    result = CliRunner().invoke(command, ["doctor", "--json", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    findings = json.loads(result.stdout)["findings"]
    for finding in findings:
        assert finding["status"] == "ok" or finding["next"], f"no next step: {finding}"
    return Doctor(result.exit_code, findings)


def test_with_no_settings_everything_is_fine_and_nothing_is_made(folder: Path) -> None:
    doctor = examine()
    assert doctor.exit_code == 0
    assert {finding["status"] for finding in doctor.findings} == {"ok"}
    assert doctor.says("backend", "ok", "turnlane.db is not there yet")
    assert list(folder.iterdir()) == []


def test_it_reads_well_on_a_terminal() -> None:
    told = CliRunner().invoke(command, ["doctor"]).stdout
    assert "ok       python" in told
    assert told.endswith("\n0 broken, 0 to look at\n")


def test_every_mistake_in_the_settings_is_a_finding() -> None:
    doctor = examine(settings="zzz = 1\n[lanes]\ndebounce = 3\n")
    assert doctor.exit_code == 1
    assert doctor.says("settings", "broken", "zzz: unknown key")
    assert doctor.says("settings", "broken", "[lanes] debounce: expected a duration")


def test_every_value_that_is_no_default_is_named_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLANE_OPERATOR_TOKEN", "s3cret")
    doctor = examine(settings="turns_at_once = 7")
    assert doctor.says("settings", "ok", "turns_at_once = 7 (file)")
    assert doctor.says("settings", "ok", "operator_token = *** (environment)")


def test_a_foreign_variable_is_worth_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLANE_HOME", "/srv")
    doctor = examine()
    assert (doctor.exit_code, doctor.says("settings", "warning", "TURNLANE_HOME")) == (0, True)


def test_a_backend_nobody_knows_is_broken() -> None:
    doctor = examine("--backend", "oracle://x")
    assert (doctor.exit_code, doctor.says("backend", "broken", "oracle")) == (1, True)


def test_a_folder_that_is_not_there_is_broken() -> None:
    doctor = examine("--backend", "sqlite:///no/such/x.db")
    assert (doctor.exit_code, doctor.says("disk", "broken", "does not exist")) == (1, True)


def test_a_folder_that_cannot_be_written_is_broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlane.cli.checks.os.access", lambda path, mode: Path(path) != folder)
    doctor = examine()
    assert (doctor.exit_code, doctor.says("disk", "broken", "cannot be written")) == (1, True)


@pytest.mark.parametrize(("free", "status"), [(1_000, "broken"), (500_000_000, "warning")])
def test_a_disk_that_runs_full_is_noticed(monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr("turnlane.cli.checks.shutil.disk_usage", lambda _: Usage(free))
    assert examine().says("disk", status, "GB free")


def test_a_file_that_is_no_store_is_broken(folder: Path) -> None:
    (folder / "turnlane.db").write_bytes(b"no database" * 1_000)
    doctor = examine()
    assert (doctor.exit_code, doctor.says("backend", "broken", "not an SQLite database")) == (1, True)


def test_a_store_of_a_newer_version_is_broken() -> None:
    asyncio.run(make())
    connection = sqlite3.connect("turnlane.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    doctor = examine()
    assert (doctor.exit_code, doctor.says("backend", "broken", "install a newer turnlane")) == (1, True)


def test_a_damaged_store_is_found(folder: Path) -> None:
    asyncio.run(make(messages=400))
    file = folder / "turnlane.db"
    content = bytearray(file.read_bytes())
    assert len(content) > 5 * 4096
    # The first page tells what the file is; damage behind it is only found by reading.
    content[4 * 4096 :] = b"\xa5" * (len(content) - 4 * 4096)
    file.write_bytes(content)
    doctor = examine()
    assert doctor.exit_code == 1
    assert any(finding["status"] == "broken" and "damaged" in finding["text"] for finding in doctor.findings)


def test_what_needs_an_operator_is_named() -> None:
    asyncio.run(make_trouble())
    doctor = examine()
    assert doctor.exit_code == 0
    assert doctor.says("workers", "warning", "messages wait and no worker is live")
    assert doctor.says("locks", "warning", "1 held by lost workers")
    assert doctor.says("deadletters", "warning", "1 turns were given up on")
    assert doctor.says("lanes", "warning", "1 lanes are parked")


def test_what_was_set_at_run_time_is_told_and_a_pause_is_worth_a_look() -> None:
    async def set_some() -> None:
        backend = open_backend("sqlite:///turnlane.db")
        await backend.open()
        for name, value in {"lanes.debounce": "5s", "paused": "true", "channels.gone.paused": "true"}.items():
            await backend.configure(name, value)
        await backend.close()

    asyncio.run(set_some())
    doctor = examine()
    assert doctor.exit_code == 0
    assert doctor.says("settings", "ok", "lanes.debounce = 5s (stored)")
    assert doctor.says("settings", "warning", "paused is on: nothing new begins (stored)")
    assert doctor.says("settings", "warning", "channels.gone.paused = true is stored, but not in force")


def test_a_clock_that_was_set_back_is_noticed() -> None:
    class Ahead(SystemClock):
        def now(self) -> int:
            return super().now() + 3_600_000

    asyncio.run(make(messages=1, clock=Ahead()))
    assert examine().says("clock", "warning", "in the future")


async def make(*, messages: int = 0, clock: SystemClock | None = None) -> None:
    backend = open_backend("sqlite:///turnlane.db", clock)
    await backend.open()
    said = [Message("web", f"m-{n}", f"web/{n}", "me", "x" * 500) for n in range(messages)]
    await backend.accept([Arrival(message, NOW) for message in said])
    await backend.close()


async def make_trouble() -> None:
    backend = open_backend("sqlite:///turnlane.db")
    await backend.open()
    await backend.join("lost", 60_000)
    for number in range(3):
        await backend.accept([Arrival(Message("web", f"m-{number}", f"web/{number}", "me", "hi"), NOW)])
    held, given_up, parked = await backend.claim("lost", Kind.TURN, most=3)
    await backend.commit(given_up, GaveUp("no"))
    await backend.commit(parked, Parked("no agent"))
    # Its term is over before anybody looks: a worker that was lost with what it held.
    await backend.renew("lost", -1_000, [held])
    await backend.close()


# The port


@contextmanager
def served(answer: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_port_that_we_serve_already_is_fine() -> None:
    with served(b'{"status": "up"}') as address:
        assert examine("--listen", address).says("port", "ok", "already serves")


def test_a_port_that_somebody_else_uses_is_broken() -> None:
    with served(b"hello") as address:
        doctor = examine("--listen", address)
    assert (doctor.exit_code, doctor.says("port", "broken", "cannot listen")) == (1, True)


# Channels and agents


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_a_web_hook_without_secret_or_reply_url_is_worth_a_look() -> None:
    doctor = examine(settings='[channels.site]\nkind = "webhook"\n')
    assert doctor.exit_code == 0
    assert doctor.says("channel site", "warning", "no reply_url")
    assert doctor.says("channel site", "warning", "no secret")


def test_a_lookup_url_where_nobody_answers_is_worth_a_look() -> None:
    with served(b"") as address:
        settings = f'[channels.site]\nkind = "webhook"\nreply_url = "http://{address}/"\n'
        doctor = examine(settings=f'{settings}lookup_url = "http://127.0.0.1:{unused_port()}/"\n')
    assert doctor.says("channel site", "ok", "answers")
    assert doctor.says("channel site lookup", "warning", "nobody answers")


META = 'kind = "whatsapp_meta"\napp_secret = "a"\nverify_token = "v"'
WHATSAPP = [META, 'kind = "whapi"\nsecret = "s"', 'kind = "wati"\npasskey = "p"']


@pytest.mark.parametrize("channel", WHATSAPP)
def test_a_platform_is_asked_whether_the_token_works(channel: str) -> None:
    with served(b"{}") as address:
        doctor = examine(settings=f'[channels.wa]\n{channel}\ntoken = "t"\nbase_url = "http://{address}"\n')
    assert doctor.says("channel wa", "ok", "the token works")
    unheard = f'[channels.wa]\n{channel}\ntoken = "t-1"\nbase_url = "http://127.0.0.1:{unused_port()}"\n'
    assert examine(settings=unheard).says("channel wa", "warning", "")


def test_a_wati_channel_without_token_or_passkey_is_worth_a_look() -> None:
    doctor = examine(settings='[channels.wa]\nkind = "wati"\n')
    assert doctor.says("channel wa", "warning", "no token")
    assert doctor.says("channel wa", "warning", "no passkey")


def test_replies_that_are_held_are_counted() -> None:
    async def hold_a_reply() -> None:
        backend = open_backend("sqlite:///turnlane.db")
        await backend.open()
        await backend.join("worker", 60_000)
        await backend.accept([Arrival(Message("web", "m-1", "web/alice", "alice", "hello"), NOW)])
        (turn,) = await backend.claim("worker", Kind.TURN)
        await backend.commit(turn, Replied(Reply("hello")))
        (sending,) = await backend.claim("worker", Kind.OUT)
        await backend.commit(sending, Parked("nobody can tell"))
        await backend.close()

    asyncio.run(hold_a_reply())
    assert examine().says("outbox", "warning", "replies of 1 conversations are held")


def test_a_service_that_does_not_answer_is_worth_a_look() -> None:
    doctor = examine(settings=f'[agents.a]\nkind = "http"\nurl = "http://127.0.0.1:{unused_port()}/x"\n')
    assert (doctor.exit_code, doctor.says("agent a", "warning", "nobody answers at 127.0.0.1")) == (0, True)


def test_a_service_that_answers_is_fine() -> None:
    with served(b"") as address:
        doctor = examine(settings=f'[agents.a]\nkind = "http"\nurl = "http://{address}/x"\n')
    assert doctor.says("agent a", "ok", "answers")


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ('command = ["no-such-program"]', "'no-such-program' cannot be found"),
        ('command = ["./agent.sh"]', "'./agent.sh' cannot be found"),
        ('command = ["sh"]\ncwd = "no-such-folder"', "the folder no-such-folder does not exist"),
        ('command = ["sh"]\nenv = { PATH = "/no/where" }', "'sh' cannot be found"),
    ],
)
def test_a_command_that_cannot_run_is_broken(agent: str, text: str) -> None:
    doctor = examine(settings=f'[agents.a]\nkind = "command"\n{agent}\n')
    assert (doctor.exit_code, doctor.says("agent a", "broken", text)) == (1, True)


@pytest.mark.parametrize(
    ("script", "more", "status", "text"),
    [
        ("echo '2.1.325 (Claude Code)'", 'env = { ANTHROPIC_API_KEY = "k" }', "ok", "Claude Code 2.1.325, "),
        ("echo '2.1.325 (Claude Code)'", 'env = { HOME = "/no/where" }', "warning", "has no key and nobody logged in"),
        ("echo '2.1.197 (Claude Code)'", "", "broken", "2.1.197, "),
        ("echo 'no version'", "", "broken", "does not tell its version"),
        (None, "", "broken", "'./claude' is not there; looked in PATH"),
        ("true", 'cwd = "no-such-folder"', "broken", "the folder no-such-folder does not exist"),
    ],
)
def test_claude_code_is_looked_for_and_asked_for_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, more: str, status: str, text: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    if script is not None:
        (folder / "claude").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "claude").chmod(0o755)
    doctor = examine(settings=f'[agents.a]\nkind = "claude_code"\ncommand = ["./claude"]\n{more}\n')
    assert doctor.says("agent a", status, text), doctor.findings


def test_a_command_is_looked_for_in_its_own_folder(folder: Path) -> None:
    (folder / "bots").mkdir()
    script = folder / "bots" / "agent.sh"
    script.touch(mode=0o755)
    doctor = examine(settings='[agents.a]\nkind = "command"\ncommand = ["./agent.sh"]\ncwd = "bots"\n')
    assert doctor.says("agent a", "ok", "bots/agent.sh")


def test_files_that_are_more_than_nats_takes_are_worth_a_look() -> None:
    settings = 'backend = "nats://127.0.0.1:1"\nbackend_wait = "0s"\n[channels.web]\nkind = "web"\n'
    assert examine(settings=settings).says("channel web", "ok", "web")
    doctor = examine(settings=settings + "file_bytes_max = 3000000\n")
    assert doctor.says("channel web", "warning", "more than NATS takes")


def test_a_chat_page_that_is_not_served_is_worth_a_look() -> None:
    doctor = examine("--listen", "0.0.0.0:0", settings='operator_token = "t"\n')
    assert doctor.says("channel web", "warning", "the chat page is not served")
