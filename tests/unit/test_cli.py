"""The command line: what it prints, what it refuses and with which exit code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import turnlane.cli.main
from turnlane.backends import Backend, open_backend
from turnlane.backends.base import Arrival
from turnlane.cli.common import run
from turnlane.cli.init import TEMPLATE
from turnlane.cli.main import VERBS
from turnlane.cli.main import turnlane as command
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, GaveUp, Outcome, Parked, Replied, Reply, RetryLater
from turnlane.settings import Lanes, Settings, load

URL = "sqlite:///turnlane.db"
AT_ONCE = Policy(debounce_ms=0, max_wait_ms=0)
SOURCES = Path(turnlane.cli.main.__file__).parents[2]
ANSI = re.compile(r"\x1b\[")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test is in an empty folder of its own, with no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TURNLANE_") or name == "NO_COLOR":
            monkeypatch.delenv(name)
    return tmp_path


def call(*arguments: str, color: bool = False, input: str | None = None) -> Result:
    result = CliRunner().invoke(command, arguments, prog_name="turnlane", color=color, input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def json_of(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def process(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "turnlane.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES), **environ},
    )


# A store with a little life in it


class Life:
    """What a worker would have done."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def say(self, conversation: str, text: str, *, id: str, policy: Policy = AT_ONCE) -> None:
        channel, _, sender = conversation.partition("/")
        await self.backend.accept([Arrival(Message(channel, id, conversation, sender, text), policy)])

    async def take(self, kind: Kind = Kind.TURN) -> Lease:
        (lease,) = await self.backend.claim("w1", kind)
        return lease

    async def end(self, outcome: Outcome, kind: Kind = Kind.TURN) -> None:
        await self.backend.commit(await self.take(kind), outcome)


async def live(url: str = URL) -> None:
    backend = open_backend(url)
    await backend.open()
    life = Life(backend)
    try:
        await backend.join("w1", 60_000)
        await life.say("site/alice", "hello\nthere \x1b[31mred", id="m-1")
        await life.say("site/alice", "anybody?", id="m-2")
        await life.end(RetryLater(at=0, cause="the model was busy"))
        await life.end(Replied(Reply("Yes, here.")))
        await life.end(Delivered("r-1"), Kind.OUT)
        await life.say("site/bob", "I break it", id="m-3")
        await life.end(GaveUp("it cannot be answered"))
        await life.say("site/carol", "and me?", id="m-4")
        await life.end(Replied(Reply("you too")))
        await life.end(GaveUp("410: gone"), Kind.OUT)
        await life.say("other/dave", "nobody for me", id="m-5")
        await life.end(Parked("no such agent"))
        await life.say("other/erin", "answered, not sent", id="m-6")
        await life.end(Replied(Reply("on its way")))
        await life.say(
            "other/frank", "wait for me", id="m-7", policy=replace(AT_ONCE, debounce_ms=600_000, max_wait_ms=600_000)
        )
        await life.say("other/gina", "running", id="m-8")
        await life.take()
    finally:
        await backend.close()


@pytest.fixture
def lived(folder: Path) -> None:
    asyncio.run(live())


# The command itself


def test_help_names_every_verb_and_imports_none_of_them() -> None:
    code = (
        "import sys\nfrom turnlane.cli.main import main\nsys.argv = ['turnlane', sys.argv[1]]\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "vendors = {'starlette', 'uvicorn', 'sqlite3', 'msgspec', 'asyncio'}\n"
        "heavy = [name for name in sys.modules if name.split('.')[0] in vendors]\n"
        "verbs = [name for name in sys.modules if name.startswith('turnlane.cli.') and name != 'turnlane.cli.main']\n"
        "assert not heavy + verbs, heavy + verbs\n"
    )
    for option in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", code, option],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("turnlane" if option == "--version" else "Usage: turnlane")
    assert all(f"  {verb} " in call("--help").stdout for verb in VERBS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in {"simulate", "bench"}])
def test_every_verb_explains_itself(verb: str) -> None:
    assert call(verb, "--help").stdout.startswith(f"Usage: turnlane {verb}")


def test_a_mistyped_verb_or_option_gets_a_suggestion() -> None:
    result = call("lane")
    assert (result.exit_code, "did you mean 'lanes'?" in result.stderr) == (2, True)
    result = call("lanes", "--chanel", "x")
    assert (result.exit_code, "--channel" in result.stderr) == (2, True)


def test_wrong_settings_are_one_line_each_and_exit_2(folder: Path) -> None:
    (folder / "turnlane.toml").write_text('[lanes]\ndebounse = "3s"\nmax_batch = 0\n')
    for verb in ("run", "serve", "worker", "lanes", "tail", "migrate"):
        result = call(verb)
        assert result.exit_code == 2
        assert result.stderr.splitlines() == [
            "Error: turnlane.toml: [lanes] debounse: unknown key; did you mean 'debounce'?",
            "turnlane.toml: [lanes] max_batch: expected a whole number from 1 to 1000000, got 0",
        ]


def test_a_settings_file_that_is_named_must_be_there() -> None:
    result = call("lanes", "--config", "no.toml")
    assert (result.exit_code, "turnlane init" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("backend", "exit_code", "said"),
    [
        ("oracle://x", 2, "no backend for 'oracle'"),
        ("memory://", 2, "memory:// lives inside one running process"),
        ("turnlane.db", 2, "expected a URL"),
        ("sqlite:///no/such/folder/x.db", 1, "there is no no/such/folder/x.db yet"),
    ],
)
def test_a_backend_that_cannot_be_names_the_next_step(backend: str, exit_code: int, said: str) -> None:
    result = call("lanes", "--backend", backend)
    assert (result.exit_code, said in result.stderr) == (exit_code, True), result.stderr


def test_looking_at_a_store_does_not_make_one(folder: Path) -> None:
    for arguments in (["lanes"], ["show", "web/a"], ["tail", "--no-follow"], ["outbox"], ["deadletters"]):
        result = call(*arguments)
        assert (result.exit_code, result.stderr) == (
            1,
            "Error: there is no turnlane.db yet; start `turnlane run` here, or name another store with --backend\n",
        )
    assert list(folder.iterdir()) == []


def test_a_store_that_cannot_be_made_is_unavailable() -> None:
    result = call("send", "web/a", "hi", "--backend", "sqlite:///no/such/folder/x.db")
    assert (result.exit_code, "check that its folder exists" in result.stderr) == (3, True)


def test_a_store_of_a_newer_version_is_refused_with_its_own_exit_code(lived: None) -> None:
    import sqlite3

    connection = sqlite3.connect("turnlane.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    result = call("lanes")
    assert (result.exit_code, "install a newer turnlane" in result.stderr) == (4, True)
    assert "Traceback" not in result.output


def test_a_file_that_is_not_ours_is_refused(folder: Path) -> None:
    import sqlite3

    connection = sqlite3.connect("turnlane.db")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    theirs = (folder / "turnlane.db").read_bytes()
    for content, said in [(theirs, "of another program"), (b"no database " * 1_000, "is not an SQLite database")]:
        (folder / "turnlane.db").write_bytes(content)
        for arguments in (["lanes"], ["send", "web/a", "hi"], ["migrate"]):
            result = call(*arguments)
            assert (result.exit_code, said in result.stderr) == (4, True)


# Reading verbs


def test_lanes_lists_what_each_conversation_does(lived: None) -> None:
    lines = call("lanes").stdout.splitlines()
    assert lines[0].split() == ["CONVERSATION", "STATE", "PENDING", "TURN", "ATTEMPT", "AGENT", "WHEN"]
    states = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert states == {
        "site/alice": "idle",
        "site/bob": "idle",
        "site/carol": "idle",
        "other/dave": "parked",
        "other/erin": "idle",
        "other/frank": "gathering",
        "other/gina": "running",
    }
    # Aligned: every row has its state under the heading.
    assert {line.index(line.split()[1], len(line.split()[0])) for line in lines} == {lines[0].index("STATE")}
    assert any(re.search(r"gathering .* ready in (10|9)m$", line) for line in lines)
    assert any(re.search(r"running .* for \d+ms, by w1$", line) for line in lines)


def test_lanes_can_be_chosen(lived: None) -> None:
    assert [lane["conversation"] for lane in json_of("lanes", "--state", "parked")["lanes"]] == ["other/dave"]
    assert {lane["conversation"] for lane in json_of("lanes", "--channel", "site")["lanes"]} == {
        "site/alice",
        "site/bob",
        "site/carol",
    }
    assert len(json_of("lanes", "--limit", "2")["lanes"]) == 2
    assert {lane["kind"] for lane in json_of("lanes", "--kind", "out")["lanes"]} == {"out"}
    assert call("lanes", "--state", "paused").stdout == "no such lanes\n"
    assert call("lanes", "--state", "asleep").exit_code == 2
    assert call("lanes", "--limit", "0").exit_code == 2


def test_workers_are_listed_with_their_machines(lived: None) -> None:
    async def join_and_leave() -> None:
        backend = open_backend(URL)
        await backend.open()
        await backend.join("w2", 60_000, "north")
        await backend.join("w3", 60_000, "south")
        await backend.leave("w3")
        await backend.close()

    asyncio.run(join_and_leave())
    heading, *rows = call("workers").stdout.splitlines()
    assert heading.split() == ["WORKER", "MACHINE", "STATE", "LANES", "ALIVE", "UNTIL"]
    assert sorted(row.split()[:3] for row in rows) == [["w1", "live", "1"], ["w2", "north", "live"]]
    assert [each["machine"] for each in json_of("workers", "--all")["workers"] if not each["live"]] == ["south"]


def test_times_in_json_are_rfc_3339(lived: None) -> None:
    (frank,) = json_of("lanes", "--state", "gathering")["lanes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", frank["first_at"])


def test_show_reads_like_a_chat_in_time_order(lived: None) -> None:
    told = call("show", "site/alice").stdout
    parts = [
        "site/alice\n",
        "  turns: idle",
        "alice  hello⏎there �[31mred",
        "alice  anybody?",
        "turn 1, attempt 1 retried: the model was busy",
        "turn 1 answered 2 messages in",
        "(attempt 2)",
        "Yes, here.  (sent after",
    ]
    places = [told.index(part) for part in parts]
    assert places == sorted(places), told
    assert not ANSI.search(told)


def test_show_says_what_went_wrong(lived: None) -> None:
    assert "turn 1 given up after 1 attempt: it cannot be answered" in call("show", "site/bob").stdout
    assert "you too  (not sent: 410: gone)" in call("show", "site/carol").stdout
    assert "on its way  (waits to be sent)" in call("show", "other/erin").stdout


def test_show_as_json_is_the_whole_story(lived: None) -> None:
    story = json_of("show", "site/alice")
    assert [message["text"] for message in story["messages"]] == ["hello\nthere \x1b[31mred", "anybody?"]
    assert [turn["outcome"] for turn in story["turns"]] == ["answered"]
    assert [delivery["receipt"] for delivery in story["deliveries"]] == ["r-1"]


@pytest.mark.parametrize("conversation", ["site/nobody", "site/" + "x" * 600])
def test_show_of_an_unknown_conversation_exits_1(lived: None, conversation: str) -> None:
    result = call("show", conversation)
    assert (result.exit_code, "`turnlane lanes` lists them" in result.stderr) == (1, True)


@pytest.mark.parametrize("conversation", ["", "alice", "/alice", "site/"])
def test_what_is_no_conversation_is_wrong_usage(lived: None, conversation: str) -> None:
    result = call("show", conversation)
    assert (result.exit_code, "CHANNEL/ROOM" in result.stderr) == (2, True)


def test_tail_prints_events_and_goes_on_from_a_cursor(lived: None) -> None:
    events = [json.loads(line) for line in call("tail", "--no-follow", "--json").stdout.splitlines()]
    names = [event["event"]["name"] for event in events]
    assert names[:3] == ["worker.joined", "message.accepted", "message.accepted"]
    cursors = [event["cursor"] for event in events]
    assert cursors == sorted(set(cursors))
    rest = call("tail", "--no-follow", "--json", "--since", str(cursors[4])).stdout.splitlines()
    assert [json.loads(line) for line in rest] == events[5:]


def test_tail_can_follow_one_conversation(lived: None) -> None:
    lines = call("tail", "--no-follow", "--conversation", "site/bob").stdout.splitlines()
    assert len(lines) == 3
    assert all("site/bob" in line for line in lines)
    assert "cause=it cannot be answered" in lines[-1]


def test_tail_prints_times_as_people_read_them(lived: None) -> None:
    call("pause", "site/bob", "--for", "2h")
    last = next(line for line in call("tail", "--no-follow").stdout.splitlines() if "lane.paused" in line)
    assert re.search(r"  until=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$", last), last


def test_dead_letters_are_listed_and_shown(lived: None) -> None:
    assert call("deadletters").stdout == call("deadletters", "list").stdout
    assert re.search(r"site/bob#1 +1 +1 +(now|\S+ ago) +it cannot be answered", call("deadletters").stdout)
    told = call("deadletters", "show", "site/bob#1").stdout
    assert "cause: it cannot be answered" in told
    assert "bob  I break it" in told
    assert json_of("deadletters", "show", "site/bob#1")["messages"][0]["origin_id"] == "m-3"
    assert len(json_of("deadletters", "list")["dead_letters"]) == 1
    assert json_of("deadletters") == json_of("deadletters", "list")
    assert call("deadletters", "list", "--conversation", "site/alice").stdout == "no dead letters\n"


@pytest.mark.parametrize("id", ["site/bob#2", "site/bob#x", "site/zoe#1"])
def test_a_dead_letter_that_is_not_there_exits_1(lived: None, id: str) -> None:
    result = call("deadletters", "show", id)
    assert (result.exit_code, "`turnlane deadletters` lists them" in result.stderr) == (1, True)


def test_the_outbox_is_seen_by_state(lived: None) -> None:
    assert "on its way" in call("outbox").stdout
    assert "[410: gone] you too" in call("outbox", "--state", "failed").stdout
    assert [delivery["text"] for delivery in json_of("outbox", "--state", "sent")["deliveries"]] == ["Yes, here."]


def test_migrate_makes_a_store_and_then_finds_it_current() -> None:
    assert "migrated from schema 0 to" in call("migrate").stdout
    assert call("migrate").stdout.endswith("is current\n")
    assert json_of("migrate")["before"] == json_of("migrate")["after"] > 0


# Writing verbs


def test_send_stores_a_message_with_no_server_running() -> None:
    result = call("send", "web/alice", "hello", "--id", "m-1")
    assert result.exit_code == 0
    assert result.stdout == "accepted: web:m-1 is message 1 of web/alice\n"
    assert "no worker is running; it is stored" in result.stderr
    again = call("send", "web/alice", "hello again", "--id", "m-1")
    assert again.stdout == "duplicate, nothing changed: web:m-1 is message 1 of web/alice\n"
    story = json_of("show", "web/alice")
    assert [(message["sender"], message["text"]) for message in story["messages"]] == [("alice", "hello")]


def test_send_gives_each_message_an_id_of_its_own() -> None:
    assert [json_of("send", "web/alice", "hello")["seq"] for _ in range(3)] == [1, 2, 3]


def test_send_reads_standard_input() -> None:
    call("send", "web/alice", "-", input="a long\ntext")
    assert json_of("show", "web/alice")["messages"][0]["text"] == "a long\ntext"


def test_send_encodes_what_is_typed_and_takes_what_is_encoded() -> None:
    assert json_of("send", "web/alice smith", "hello")["conversation"] == "web/alice%20smith"
    assert json_of("send", "web/alice%20smith", "hello")["seq"] == 2
    assert json_of("show", "web/alice smith")["messages"][0]["sender"] == "alice smith"


def test_send_waits_in_vain_with_its_own_exit_code() -> None:
    result = call("send", "web/alice", "hello", "--wait", "0.05")
    assert (result.exit_code, "no reply within 0.05s" in result.stderr, result.stdout) == (5, True, "")


def test_send_prints_the_reply_alone() -> None:
    async def answer() -> None:
        backend = open_backend(URL)
        await backend.open()
        await backend.join("w1", 60_000)
        (lease,) = await backend.claim("w1", Kind.TURN, wait=True)
        await backend.commit(lease, Replied(Reply(["one", "two"])))
        await backend.close()

    sender = process("send", "web/alice", "hello", "--wait", "30", TURNLANE_LANES_DEBOUNCE="0s")
    asyncio.run(answer())
    out, err = sender.communicate(timeout=30)
    assert (sender.returncode, out) == (0, "one\ntwo\n"), err
    assert "accepted" in err


def test_send_says_so_when_the_turn_was_given_up_on(lived: None, folder: Path) -> None:
    (folder / "turnlane.toml").write_text('[channels.site]\nkind = "webhook"\n')
    result = call("send", "site/bob", "again", "--id", "m-3", "--wait", "5")
    assert (result.exit_code, "was given up on: it cannot be answered" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["wed/alice", "hi"], 1, "did you mean 'web'?"),
        (["alice", "hi"], 2, "CHANNEL/ROOM"),
        (["web/alice", ""], 2, "text is empty"),
        (["web/alice", " \n"], 2, "text is empty"),
        (["web/alice", "a\udcffb"], 2, "text is not valid UTF-8"),
        (["web/a\udcff", "hi"], 2, "not valid UTF-8"),
        (["web/alice", "nul \0"], 2, "NUL"),
        (["web/alice", "x" * 1_000_001], 2, "text is longer than"),
        (["web/alice", "hi", "--id", ""], 2, "--id is empty"),
        (["web/alice", "hi", "--id", "x" * 513], 2, "--id is longer than"),
        (["web/alice", "hi", "--sender", "x" * 513], 2, "--sender is longer than"),
        (["web/" + "x" * 600, "hi"], 2, "use at most 512"),
        (["web/alice", "hi", "--wait", "soon"], 2, "soon"),
        (["web/alice", "hi", "--wait", "-1"], 2, "-1"),
        (["web/alice", "hi", "--wait", "nan"], 2, "--wait"),
        (["web/alice", "hi", "--wait", "inf"], 2, "--wait"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_is_stored(
    folder: Path, arguments: Sequence[str], exit_code: int, said: str
) -> None:
    result = call("send", *arguments)
    assert (result.exit_code, said in result.stderr) == (exit_code, True), result.stderr
    assert list(folder.iterdir()) == []


def test_init_writes_settings_that_load_and_never_overwrites(folder: Path) -> None:
    file = folder / "turnlane.toml"
    assert call("init").exit_code == 0
    read = load(file, {})
    assert read == Settings(sources=read.sources, read_from=read.read_from)
    file.write_text("turns_at_once = 7")
    result = call("init")
    assert (result.exit_code, "--force" in result.stderr, file.read_text()) == (2, True, "turns_at_once = 7")
    assert call("init", "--force").exit_code == 0
    assert file.read_text() == TEMPLATE
    assert call("init", "--config", "no/such/x.toml").exit_code == 2


def test_everything_that_init_comments_out_loads_when_switched_on(folder: Path) -> None:
    file = folder / "all.toml"
    file.write_text(re.sub(r"(?m)^#(?=\S)", "", TEMPLATE))
    settings = load(file, {name: name for name in re.findall(r'env = "(\w+)"', TEMPLATE)})
    assert settings.lanes == Lanes()
    assert set(settings.channels) == {"web", "site", "slack", "wa"}
    assert set(settings.agents) == {"support", "script", "claude", "gpt"}
    assert settings.operator_token is not None
    assert (settings.budgets.user.tokens, set(settings.prices)) == (200_000, {"gpt-5"})


# Terminals, pipes and signals


def test_colour_is_for_terminals_and_not_with_no_color(lived: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ANSI.search(call("lanes", color=True).stdout)
    assert not ANSI.search(call("lanes").stdout)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ANSI.search(call("lanes", color=True).stdout)
    assert not ANSI.search(call("show", "site/bob", color=True).stdout)


def test_a_reader_that_has_seen_enough_is_no_error(lived: None) -> None:
    async def fill() -> None:
        backend = open_backend(URL)
        await backend.open()
        messages = [Message("site", f"f-{n}", f"site/{n}-{'x' * 80}", "f", "hi") for n in range(2_000)]
        await backend.accept([Arrival(message, AT_ONCE) for message in messages])
        await backend.close()

    asyncio.run(fill())
    reader = process("lanes", "--limit", "5000")
    assert reader.stdout is not None
    assert reader.stderr is not None
    with reader.stdout, reader.stderr:
        assert reader.stdout.readline().startswith("CONVERSATION")
        reader.stdout.close()
        assert reader.stderr.read() == ""
    assert reader.wait(30) == 141


def test_a_command_that_is_sent_is_obeyed_and_answered_at_once(lived: None) -> None:
    said = call("send", "web/nina", "/status", "--wait", "5")
    assert said.stdout == "Nothing runs. No message is waiting.\n"
    assert json.loads(call("send", "web/nina", "/stop", "--wait", "5", "--json").stdout)["outcome"] == "command"


def test_a_message_that_is_not_answered_is_not_taken_for_silence(lived: None, folder: Path) -> None:
    call("send", "web/olga", "hello", "--id", "o-1")
    call("stop", "web/olga")
    result = call("send", "web/olga", "hello", "--id", "o-1", "--wait", "5")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "it was set aside, and is not answered; `turnlane explain web:o-1` tells more" in result.stderr
    (folder / "turnlane.toml").write_text(
        '[channels.web]\nkind = "web"\n[lanes]\nmax_pending = 1\non_full = "reject"\n'
    )
    call("send", "web/olga", "one")
    result = call("send", "web/olga", "two", "--id", "o-2", "--wait", "5")
    assert (result.exit_code, "it was refused, and is not answered" in result.stderr) == (5, True)


def test_ctrl_c_ends_following_without_noise(lived: None) -> None:
    follower = process("tail", "--since", "0", "--json")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["event"]["name"] == "worker.joined"
    asyncio.run(live_once_more())
    while "message.accepted" not in (line := follower.stdout.readline()) or "m-99" not in line:
        assert line
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert (follower.returncode, err) == (0, "")


def test_ctrl_c_is_heard_between_two_steps_and_never_in_the_middle_of_one() -> None:
    """Cancelled in the middle of handing an answer over, a read would fail with a traceback."""
    heard = []

    async def interrupted() -> None:
        task = asyncio.current_task()
        assert task is not None
        os.kill(os.getpid(), signal.SIGINT)
        heard.append(task.cancelling())
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(task.cancelling())

    with pytest.raises(KeyboardInterrupt):
        run(interrupted())
    assert heard == [0, 1]


async def live_once_more() -> None:
    backend = open_backend(URL)
    await backend.open()
    await Life(backend).say("site/zoe", "late", id="m-99")
    await backend.close()


def test_an_error_nobody_foresaw_still_shows_where_it_happened(lived: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlane.cli.common.echo_json", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call("lanes", "--json")
