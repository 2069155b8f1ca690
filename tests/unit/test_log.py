"""The log: a pleasure for people, the same keys for machines, and no secret in either, whoever wrote it."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from turnlane.model.event import EVENTS, FACTS, Event, Fact
from turnlane.observe.log import ERRORS, STEPS, TRACEBACK_LINES_MAX, WARNINGS, EventLog, configure
from turnlane.observe.redact import Redactor
from turnlane.observe.words import FOR_MACHINES, PHRASES, VALUE_CHARACTERS_MAX, duration, in_words, local, moment
from turnlane.settings import load, secrets_in

ROOT = Path(__file__).resolve().parents[2]
NOON = 1_790_000_000_000
LOGGERS = ("", "uvicorn.error", "httpx2", "httpcore2", "turnlane.events", "openai._base_client")


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    handlers = list(logging.getLogger().handlers)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers[:] = handlers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def people(
    *events: Event, out: io.StringIO | None = None, process: str | None = None, texts: bool = False
) -> list[str]:
    out = out or io.StringIO()
    configure("human", "debug", out, process=process, texts=texts)
    EventLog(texts=texts)(events)
    return out.getvalue().splitlines()


def machines(*events: Event, texts: bool = False, process: str | None = None) -> list[dict[str, object]]:
    out = io.StringIO()
    configure("json", "debug", out, texts=texts, process=process)
    EventLog(texts=texts)(events)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def plausible(event: str) -> dict[str, Fact]:
    """A value for each fact, told apart from all others."""
    facts: dict[str, Fact] = {}
    for number, name in enumerate(FACTS[event], start=3):
        if name.endswith("_at") or name == "until":
            facts[name] = NOON + number * 1_000
        elif name.endswith("_ms"):
            facts[name] = number * 1_000 + 100
        elif name in {"cause", "why", "kind", "by", "worker", "message", "state", "receipt", "delivery", "body", "url"}:
            facts[name] = f"some-{name}-{number}"
        elif name == "share":
            facts[name] = 0.01 * number
        else:
            facts[name] = 10 + number
    return facts


def shown(name: str, fact: Fact) -> str:
    if isinstance(fact, int) and (name.endswith("_at") or name == "until"):
        return moment(fact, NOON)
    if isinstance(fact, int) and name.endswith("_ms"):
        return duration(fact / 1_000)
    return f"{fact:.0%}" if isinstance(fact, float) and name == "share" else str(fact)


# For people


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_is_told_whole(event: str) -> None:
    """Also one that has no phrase yet. What a phrase may leave out is named, and is no reason to look further."""
    facts = plausible(event)
    (words,) = people(Event(event, NOON, None if "channel" in facts else "site/alice", facts), texts=True)
    for name, fact in facts.items():
        if name not in FOR_MACHINES:
            assert shown(name, fact) in words, f"{name} is not in: {words}"
    assert words.isprintable()
    assert "{" not in words


@pytest.mark.parametrize("event", PHRASES)
def test_a_phrase_speaks_only_of_facts_that_there_are(event: str) -> None:
    derived = {"again", "tokens", "characters"}
    assert set(re.findall(r"\{(\w+)", PHRASES[event])) <= {*FACTS[event], *derived}


@pytest.mark.parametrize("event", EVENTS)
def test_facts_that_are_not_there_leave_no_holes(event: str) -> None:
    words = in_words(event, dict.fromkeys(FACTS[event]), NOON)
    assert "None" not in words
    assert "· ·" not in words
    assert "{" not in words


ANSWERED: Mapping[str, Fact] = {
    "turn": 3,
    "attempt": 1,
    "epoch": 7,
    "worker": "573808a8d2d30fac",
    "deliveries": 1,
    "input_tokens": 500,
    "output_tokens": 12,
    "took_ms": 1_234,
}


def test_a_line_reads_like_a_sentence() -> None:
    (line,) = people(Event("turn.answered", NOON, "site/alice", ANSWERED))
    time = f"{local(NOON):%H:%M:%S}"
    words = "answered turn 3 in 1.2 s · 1 delivery · 512 tokens"
    assert line == f"{time} info  site/alice             {words} [turn.answered]"


def test_a_retry_says_when_and_why() -> None:
    facts: dict[str, Fact] = {"turn": 3, "attempt": 2, "cause": "it is down", "retry_at": NOON + 2_000}
    (line,) = people(Event("turn.retried", NOON, "site/alice", facts))
    again = f"{local(NOON + 2_000):%H:%M:%S}"
    assert f"warn  site/alice             turn 3 failed, tries again at {again} · attempt 2 · it is down" in line


def test_an_event_without_a_phrase_is_told_by_its_facts() -> None:
    assert in_words("brand.new", {"a": 1, "b": None, "waited_ms": 250}, NOON) == "a 1 · waited_ms 250 ms"


def test_what_is_about_nobody_is_about_the_part_that_says_it() -> None:
    lines = people(
        Event("server.ready", NOON, None, {"url": "http://127.0.0.1:8484/"}),
        Event("hook.received", NOON, None, {"channel": "site", "status": 202, "accepted": 1, "duplicates": 0}),
    )
    assert [line.split()[2] for line in lines] == ["server", "site"]


def test_a_long_cause_is_cut_for_people_and_whole_for_machines() -> None:
    event = Event("lane.parked", NOON, "site/alice", {"kind": "turn", "cause": "x" * 5_000})
    (line,) = people(event)
    assert "x" * (VALUE_CHARACTERS_MAX - 1) + "…" in line
    assert "x" * VALUE_CHARACTERS_MAX not in line
    assert machines(event)[0]["cause"] == "x" * 5_000


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 ms"), (0.25, "250 ms"), (1.234, "1.2 s"), (59.6, "60 s"), (600, "10 min"), (9_000, "2.5 h")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_moment_of_another_day_has_its_date() -> None:
    assert moment(NOON, NOON) == f"{local(NOON):%H:%M:%S}"
    assert moment(NOON + 3 * 86_400_000, NOON) == f"{local(NOON + 3 * 86_400_000):%Y-%m-%d %H:%M:%S}"
    assert moment(10**18, NOON) == str(10**18)


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    event = Event("lane.parked", NOON, "site/alice", {"kind": "turn", "cause": "no agent"})
    assert "\x1b[" in people(event, out=Terminal())[0]
    assert "\x1b[" not in people(event)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in people(event, out=Terminal())[0]


def test_one_of_several_processes_says_which() -> None:
    event = Event("worker.left", NOON, None, {"worker": "w1"})
    assert people(event, process="2")[0].split()[1] == "#2"
    assert machines(event, process="2")[0]["process"] == "2"
    assert "process" not in machines(event)[0]


def test_a_traceback_is_set_off_and_has_an_end() -> None:
    out = io.StringIO()
    configure("human", "info", out)

    def deep(number: int) -> None:
        if number == 0:
            raise ValueError("one\n12:00:00 info  site/eve  faked\x1b[2J")
        (deep if number % 2 else again)(number - 1)

    def again(number: int) -> None:
        deep(number)

    try:
        deep(80)
    except ValueError:
        logging.getLogger("asyncio").exception("a task failed")
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("a task failed")
    assert len(rest) == TRACEBACK_LINES_MAX + 1
    assert all(line.startswith("    │ ") and line.isprintable() for line in rest)
    assert any("lines more" in line for line in rest)


def test_the_reference_says_which_level_each_event_has() -> None:
    page = (ROOT / "docs/reference/events.md").read_text()
    rows = dict(re.findall(r"^\| `(error|warning|debug)` \| (.*) \|$", page, re.M))
    documented = {level: set(re.findall(r"`(\w+\.\w+)`", names)) for level, names in rows.items()}
    assert documented["error"] == ERRORS
    assert documented["debug"] == STEPS
    assert documented["warning"] == WARNINGS


# For machines


def test_the_first_keys_are_always_the_same() -> None:
    for line in machines(*(Event(name, NOON, "site/alice", plausible(name)) for name in EVENTS), process="1"):
        assert list(line)[:5] == ["time", "level", "event", "process", "conversation"]


def test_no_fact_takes_the_place_of_another_key() -> None:
    heads = {"time", "level", "event", "process", "conversation", "exception", "at"}
    assert [name for name in EVENTS if heads & set(FACTS[name])] == []


# Texts


ASIDE = Event("hook.aside", NOON, None, {"channel": "site", "why": "an unknown type", "body": "my private words"})


def test_texts_are_written_down_only_if_asked_for() -> None:
    (line,) = machines(ASIDE)
    assert (line["characters"], "body" in line) == (16, False)
    (line,) = machines(ASIDE, texts=True)
    assert line["body"] == "my private words"


@pytest.mark.parametrize("texts", [False, True])
def test_what_libraries_say_to_those_who_debug_them_quotes_people(texts: bool) -> None:
    out = io.StringIO()
    configure("json", "debug", out, texts=texts)
    logging.getLogger("openai._base_client").debug("Request options: %s", {"json_data": {"input": "my private words"}})
    logging.getLogger("openai._base_client").info("Retrying request")
    assert ("my private words" in out.getvalue()) is texts
    assert "Retrying request" in out.getvalue()


# Secrets

SETTINGS = """
backend = "postgresql://turnlane:p%40ss-of-the-store@127.0.0.1/turnlane"
operator_token = "the-operators/token+1"
update_user_secret = "n\\u00f6t for \\"others\\""

[channels.site]
kind = "webhook"
secret = "secret-of-the-site"
reply_url = "https://example.com/in?k=0123456789abcdef0123"

[agents.only]
kind = "http"
url = "http://127.0.0.1:9000"
headers = { x-api-key = "k-of-the-agent" }
"""
SECRETS = [
    "p@ss-of-the-store",
    "the-operators/token+1",
    "secret-of-the-site",
    'nöt for "others"',
    "0123456789abcdef0123",
    "k-of-the-agent",
]

OTHERS = [
    ("Authorization: Bearer abc.DEF-123", "abc.DEF-123"),
    ("headers={'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ("[(b'authorization', b'Bearer abcdef123456')]", "abcdef123456"),
    ('{"Authorization": "token 0123456789"}', "0123456789"),
    ("Cookie: session=abcdef", "abcdef"),
    ("sent with bearer abcdef123456 to it", "abcdef123456"),
    ("GET https://api.example.com/v1?user=alice&access_token=abc123&x=1", "abc123"),
    ("wss://example.com/link/?ticket=1&api_key=zzz999", "zzz999"),
    ("postgresql://bob:hunter2@db:5432/x", "hunter2"),
    ("redis://:hunter2@cache/0", "hunter2"),
    ("ConnectionError: amqp://a:hunter2@b failed", "hunter2"),
    ('{"client_secret": "hunter2", "ok": 1}', "hunter2"),
    ("{'password': 'hunter\\'2'}", "hunter"),
    ("Config(api_key='hunter2', model='x')", "hunter2"),
    ("password=hunter2 user=bob", "hunter2"),
    ("invalid key sk-proj-abcdefghijklmnop1234 given", "sk-proj-abcdefghijklmnop1234"),
    ("token xoxb-1234567890-abcdef is revoked", "xoxb-1234567890-abcdef"),
    ("xapp-1-A0123-456-abcdef", "xapp-1-A0123-456-abcdef"),
    ("whsec_bm90LWEtcmVhbC1zZWNyZXQhIQ==", "bm90LWEtcmVhbC1zZWNyZXQhIQ"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghij"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w", "eyJzdWIiOiIxMjM0In0"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
]

HARMLESS = [
    "conversation site/alice is waiting",
    "this channel has no secret, so it is served on loopback only; set its `secret`",
    "512 tokens",
    "a basic answer to a key question",
    "http://127.0.0.1:8484/channels/site?conversation=alice",
    "postgresql://turnlane@127.0.0.1/turnlane",
    "no agent is named 'support' here; add it to the settings",
    "schedule/nightly-report at 12:00:00",
    "cached_tokens and reasoning_tokens are counted, too",
]


def test_the_settings_know_their_secrets(tmp_path: Path) -> None:
    file = tmp_path / "turnlane.toml"
    file.write_text(SETTINGS)
    assert set(SECRETS) <= secrets_in(load(file, {}))
    assert "127.0.0.1" not in secrets_in(load(file, {}))


@pytest.mark.parametrize("format", ["human", "json"])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_configured_secret_is_in_no_line(format: str, secret: str) -> None:
    """Not as a fact, a library's word, an argument of one, nor in the text of an exception or what it came from."""
    out = io.StringIO()
    configure("json" if format == "json" else "human", "info", out, secrets=SECRETS)
    EventLog()([Event("lane.parked", NOON, "site/alice", {"kind": "turn", "cause": f"wrong: {secret}"})])
    library = logging.getLogger("some.library")
    library.warning("said %s to %r", secret, {"value": secret})
    library.warning("https://example.com/?q=%s", quote(secret, safe=""))
    library.warning(json.dumps({"value": secret}))
    try:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise ValueError(f"cannot use {secret}") from error
    except ValueError:
        library.exception("it failed")
    told = out.getvalue()
    assert "***" in told
    assert secret not in told
    assert json.dumps(secret)[1:-1] not in told
    assert quote(secret, safe="") not in told


@pytest.mark.parametrize(("text", "secret"), OTHERS)
def test_the_secrets_of_others_are_known_by_how_they_look(text: str, secret: str) -> None:
    out = io.StringIO()
    configure("json", "info", out)
    logging.getLogger("some.library").error(text)
    EventLog()([Event("turn.retried", NOON, "site/alice", {"cause": text})])
    assert "***" in out.getvalue()
    assert secret not in out.getvalue()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert Redactor(SECRETS)(text) == text


def test_a_secret_too_short_to_be_one_does_not_blacken_the_log() -> None:
    assert Redactor(["a", "", "turn"])("a turn of alice") == "a turn of alice"


def test_the_longer_of_two_secrets_is_taken_out_whole() -> None:
    assert Redactor(["hunter", "hunter2-and-more"])("x hunter2-and-more y") == "x *** y"
