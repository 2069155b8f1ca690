"""Settings: what is taken from where, and what is said when something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlane.errors import InvalidSettings, NotFound
from turnlane.model import policy
from turnlane.model.alert import Thresholds
from turnlane.model.budget import Budget, Budgets
from turnlane.model.policy import Policy
from turnlane.model.schedule import Schedule
from turnlane.model.usage import Price
from turnlane.settings import (
    Address,
    CommandAgent,
    Duration,
    EchoAgent,
    HttpAgent,
    Secret,
    Settings,
    Url,
    WebChannel,
    WebhookChannel,
    budgets_of,
    describe,
    load,
    policy_for,
    prices_of,
    schedules_of,
    thresholds_of,
    variables,
)

Read = Callable[..., Settings]
HOURLY = """
[[schedules]]
name = "hourly"
conversation = "web/alice"
prompt = "news?"
every = "1h"
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str, environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
        file = tmp_path / "turnlane.toml"
        file.write_text(text, "utf-8")
        return load(file, environ or {}, overrides)

    return read


def problems_of(read: Read, text: str, environ: Mapping[str, str] | None = None, **overrides: object) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        read(text, environ, **overrides)
    return str(caught.value).splitlines()


# What is taken


def test_with_no_settings_at_all_a_web_chat_with_an_echo_runs_on_a_local_file() -> None:
    settings = load(None, {})
    assert settings.backend == "sqlite:///turnlane.db"
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8484)
    assert settings.turns_at_once == 5
    assert settings.sends_at_once == 20
    assert settings.channels == {"web": WebChannel()}
    assert settings.agents == {"echo": EchoAgent()}


def test_the_defaults_of_the_settings_are_those_of_the_model() -> None:
    assert policy_for(load(None, {}), "web") == Policy(agent="echo", tenant="web")


@pytest.mark.parametrize(("rate", "every_ms"), [("1/s", 1_000), ("20/m", 3_000), ("7/s", 143), ("1000/s", 1)])
def test_a_rate_is_stamped_on_every_message_of_its_channel(read: Read, rate: str, every_ms: int) -> None:
    settings = read(f'[channels.site]\nkind = "webhook"\nrate = "{rate}"\nburst = 5')
    policy = policy_for(settings, "site")
    assert (policy.send_every_ms, policy.send_burst) == (every_ms, 5)


@pytest.mark.parametrize("rate", ["'1'", "'0/s'", "'1/w'", "'-1/s'", "'1/'", "'1001/s'", "1", "'1 / s'"])
def test_a_rate_that_cannot_be_kept_is_refused(read: Read, rate: str) -> None:
    with pytest.raises(InvalidSettings, match='rate: expected a rate like "1/s"'):
        read(f"[channels.site]\nkind = 'webhook'\nrate = {rate}")


def test_the_example_of_the_design_is_read(read: Read) -> None:
    settings = read(
        """
        backend = "sqlite:///turnlane.db"
        [lanes]
        debounce = "3s"
        backoff = { first = "2s", factor = 3, most = "1m" }
        [channels.site]
        kind = "webhook"
        secret = { env = "SITE_SECRET" }
        reply_url = "http://127.0.0.1:9000/replies"
        [agents.support]
        kind = "http"
        url = "http://127.0.0.1:9000/turns"
        timeout = "1m30s"
        [agents.script]
        kind = "command"
        command = ["python3", { env = "SCRIPT" }]
        env = { KEY = { env = "SITE_SECRET" }, PLAIN = "x" }
        [[routes]]
        channel = "site"
        agent = "support"
        debounce = "0s"
        on_busy = "queue"
        on_unknown = "hold"
        backoff = { factor = 1 }
        """,
        {"SITE_SECRET": "s3cret", "SCRIPT": "agent.py"},
    )
    site = settings.channels["site"]
    assert site == WebhookChannel(secret=Secret("s3cret"), reply_url=Url("http://127.0.0.1:9000/replies"))
    assert settings.agents["support"] == HttpAgent(
        url=Url("http://127.0.0.1:9000/turns"), timeout=Duration.parse("90s")
    )
    script = settings.agents["script"]
    assert isinstance(script, CommandAgent)
    assert script.command == ["python3", "agent.py"]
    assert {name: value.reveal() for name, value in script.env.items()} == {"KEY": "s3cret", "PLAIN": "x"}
    assert policy_for(settings, "site") == Policy(
        agent="support",
        tenant="site",
        on_busy="queue",
        debounce_ms=0,
        backoff=policy.Backoff(first_ms=2_000, factor=1.0, most_ms=60_000),
        on_unknown="hold",
    )


def test_the_command_line_beats_the_environment_which_beats_the_file(read: Read) -> None:
    text = 'backend = "sqlite:///file.db"\nlisten = "127.0.0.1:1"\nturns_at_once = 2\n[lanes]\ndebounce = "1s"\n'
    environ = {
        "TURNLANE_LISTEN": "127.0.0.1:2",
        "TURNLANE_BACKEND": "sqlite:///env.db",
        "TURNLANE_LANES_DEBOUNCE": "2s",
        "TURNLANE_LANES_BACKOFF_FACTOR": "1.5",
    }
    settings = read(text, environ, listen="127.0.0.1:3", backend=None)
    assert settings.listen == "127.0.0.1:3"
    assert settings.backend == "sqlite:///env.db"
    assert settings.lanes.debounce == 2_000
    assert settings.lanes.backoff.factor == 1.5
    said = {each.key: (each.value, each.source) for each in describe(settings)}
    assert said["listen"] == ("127.0.0.1:3", "command line")
    assert said["backend"] == ("sqlite:///env.db", "environment")
    assert said["lanes.debounce"] == ("2s", "environment")
    assert said["turns_at_once"] == (2, "file")
    assert said["lanes.max_wait"] == ("15s", "default")


def test_every_single_value_has_a_variable() -> None:
    assert {
        "TURNLANE_TURNS_AT_ONCE",
        "TURNLANE_LANES_DEBOUNCE",
        "TURNLANE_LANES_BACKOFF_FIRST",
        "TURNLANE_RETENTION_DEDUPE_FOR",
    } <= set(variables())


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(None, {"TURNLANE_LISTEN": ""}) == load(None, {})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("3s", 3_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1m30s", 90_000),
        ("0s", 0),
    ],
)
def test_durations_have_units(text: str, milliseconds: int) -> None:
    assert Duration.parse(text) == milliseconds
    assert Duration.parse(text).seconds == milliseconds / 1_000


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_is_written_as_it_is_read(milliseconds: int) -> None:
    assert Duration.parse(str(Duration(milliseconds))) == milliseconds


@pytest.mark.parametrize("text", ["3", "", "s", "-3s", "3 s", "3.5s", "3x", "99999999d", "9" * 400 + "s"])
def test_what_is_no_duration_is_refused(read: Read, text: str) -> None:
    (problem,) = problems_of(read, f'[lanes]\ndebounce = "{text}"')
    assert "expected a duration with its unit" in problem


def test_a_window_of_any_length_works_by_itself(read: Read) -> None:
    assert read('[lanes]\ndebounce = "65s"').lanes.max_wait == 65_000
    assert read('[lanes]\nmax_wait = "1s"').lanes.debounce == 1_000
    assert (
        read('[channels.a]\nkind = "web"\n[[routes]]\nchannel = "a"\ndebounce = "65s"').routes[0].lanes.max_wait
        == 65_000
    )


def test_a_chat_names_the_sites_that_may_have_it(read: Read) -> None:
    sites = ["https://www.example.com", "http://localhost:8080", "https://*.example.org"]
    (web,) = read(f"[channels.web]\nkind = 'web'\nsites = {sites}").channels.values()
    assert isinstance(web, WebChannel)
    assert list(web.sites) == sites


@pytest.mark.parametrize(
    "site",
    ["www.example.com", "https://example.com/", "https://a b", "https://x; script-src *", "*", "https://*", "'self'"],
)
def test_what_is_no_site_is_refused(read: Read, site: str) -> None:
    (problem,) = problems_of(read, f'[channels.web]\nkind = "web"\nsites = ["{site}"]')
    assert "expected a list of sites" in problem


def test_signed_visitors_need_a_secret_that_nobody_guesses(read: Read) -> None:
    (problem,) = problems_of(read, '[channels.web]\nkind = "web"\nvisitors = "signed"')
    assert "needs a visitor_secret" in problem
    (problem,) = problems_of(read, '[channels.web]\nkind = "web"\nvisitor_secret = "hunter2"')
    assert "16 characters" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:0", "127.9.9.9:80", "[::1]:8484"])
def test_a_loopback_address_needs_no_token(address: str) -> None:
    assert load(None, {}, {"listen": address}).listen.is_loopback


def test_the_first_matching_route_wins(read: Read) -> None:
    settings = read(
        """
        [channels.a]
        kind = "web"
        [agents.x]
        kind = "echo"
        [agents.y]
        kind = "echo"
        [[routes]]
        channel = "a"
        agent = "y"
        [[routes]]
        channel = "a"
        agent = "x"
        """
    )
    assert policy_for(settings, "a").agent == "y"


def test_a_single_agent_is_everybodys_default(read: Read) -> None:
    settings = read('[channels.a]\nkind = "web"\n[channels.b]\nkind = "web"\n[agents.only]\nkind = "echo"')
    assert {policy_for(settings, name).agent for name in "ab"} == {"only"}


def test_a_policy_for_an_unknown_channel_is_refused_with_a_suggestion() -> None:
    with pytest.raises(NotFound, match="did you mean 'web'"):
        policy_for(load(None, {}), "wed")


# What is said when something is wrong


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[lanes]\ndebounse = "3s"', "turnlane.toml: [lanes] debounse: unknown key; did you mean 'debounce'?"),
        ("turns_at_onse = 3", "turnlane.toml: turns_at_onse: unknown key; did you mean 'turns_at_once'?"),
        ('debounce = "3s"', "turnlane.toml: debounce: unknown key; did you mean '[lanes] debounce'?"),
        ("zzz = 1", "turnlane.toml: zzz: unknown key"),
        ("sources = {}", "turnlane.toml: sources: unknown key"),
        ("[lanes]\ndebounce = 3", "turnlane.toml: [lanes] debounce: expected a duration with its unit"),
        ("lanes = 3", "turnlane.toml: [lanes]: expected a table, got 3"),
        ("[lanes]\nbackoff = 3", "turnlane.toml: [lanes.backoff]: expected a table, got 3"),
        ("[lanes.backoff]\nfist = 3", "turnlane.toml: [lanes.backoff] fist: unknown key; did you mean 'first'?"),
        ('turns_at_once = "5"', 'turnlane.toml: turns_at_once: expected a whole number from 1 to 1000000, got "5"'),
        ("turns_at_once = true", "expected a whole number from 1 to 1000000, got True"),
        ("turns_at_once = 0", "expected a whole number from 1 to 1000000, got 0"),
        (
            '[lanes]\non_busy = "discard"',
            '[lanes] on_busy: expected "collect" or "queue" or "interrupt" or "steer" or "rollback" or "reject", got',
        ),
        ('[lanes]\non_busy = "colect"', "did you mean 'collect'?"),
        ('[lanes]\non_full = "lose"', '[lanes] on_full: expected "store" or "reject" or "drop_oldest", got "lose"'),
        ('[lanes]\non_unknown = "keep"', '[lanes] on_unknown: expected "resend" or "hold", got "keep"'),
        ('[channels.a]\nkind = "webhook"\nlookup_url = "x"', "[channels.a] lookup_url: expected a URL"),
        (
            '[agents.a]\nkind = "claude_code"\nallowed_tools = "Read"',
            "[agents.a] allowed_tools: expected a list of texts",
        ),
        ('[agents.a]\nkind = "claude_code"\nbudget_usd = 0', "[agents.a] budget_usd: expected a number greater than 0"),
        (
            '[agents.a]\nkind = "claude_code"\nextra_args = ["--resume"]',
            "[agents.a] extra_args: --resume is decided for each turn; leave it out",
        ),
        ('[lanes]\nlease = "10ms"', '[lanes] lease: must be at least "1s", is "10ms"'),
        ('[retention]\nevents = "0s"', '[retention] events: must be at least "1s", is "0s"'),
        ('[lanes]\ndebounce = "9s"\nmax_wait = "3s"', '[lanes] debounce: "9s" is longer than max_wait = "3s"'),
        ('[lanes]\nbackoff = { first = "9m" }', '[lanes] backoff: first = "9m" is longer than most = "5m"'),
        ("channels = 1", "[channels]: expected tables like [channels.NAME], got 1"),
        ("[channels]\na = 1", "[channels.a]: expected a table, got 1"),
        ('[channels.Acme]\nkind = "web"', "[channels.Acme]: a name has up to 64 of a-z"),
        ("[channels.a]", '[channels.a] kind: is missing; use one of "webhook", "web", "terminal"'),
        ('[channels.a]\nkind = "webhok"', '[channels.a] kind: "webhok" is not known; use one of'),
        ('[channels.a]\nkind = "web"\nsecrt = 1', "[channels.a] secrt: unknown key"),
        ('[channels.a]\nkind = "webhook"\nsecret = 17', "[channels.a] secret: expected a text that is not empty"),
        ('[channels.a]\nkind = "webhook"\nreply_url = "localhost"', "[channels.a] reply_url: expected a URL like"),
        ('[agents.a]\nkind = "http"', "[agents.a] url: is missing; give a URL like"),
        ('[agents.a]\nkind = "command"\ncommand = "python3 x"', "[agents.a] command: expected a list like"),
        ('[agents.a]\nkind = "command"\ncommand = []', "[agents.a] command: expected a list like"),
        ("[routes]\nchannel = 1", "routes: expected a list of tables; write [[routes]] with two brackets"),
        ("[[routes]]", '[[routes]] 1 channel: is missing; give one of "web"'),
        ('[[routes]]\nchannel = "wed"', "[[routes]] 1 channel: no channel 'wed'; did you mean 'web'?"),
        ('[[routes]]\nchannel = "web"\nagent = "zz"', "[[routes]] 1 agent: no agent 'zz'; there is \"echo\""),
        ('[[routes]]\nchannel = "web"\nlease = "2s"', "[[routes]] 1 lease: belongs to the worker"),
        (
            '[[routes]]\nchannel = "web"\ndebounse = "2s"',
            "[[routes]] 1 debounse: unknown key; did you mean 'debounce'?",
        ),
        ('[[routes]]\nchannel = "web"\nattempts = 0', "[[routes]] 1 attempts: expected a whole number"),
        ("[schedules]\nname = 1", "schedules: expected a list of tables; write [[schedules]] with two brackets"),
        (f'{HOURLY}\nmised = "all"', "[[schedules]] 1 mised: unknown key; did you mean 'missed'?"),
        (f'{HOURLY}\nmissed = "al"', '[[schedules]] 1 missed: expected "once" or "skip" or "all", got "al"'),
        (f'{HOURLY}\ncron = "@daily"', "[[schedules]] 1: give either cron"),
        (HOURLY.replace("1h", "1"), "[[schedules]] 1 every: expected a duration with its unit"),
        (HOURLY.replace('every = "1h"', 'cron = "61 * * * *"'), '[[schedules]] 1: the minute "61" is out of range'),
        (
            HOURLY.replace("web/alice", "wed/alice"),
            "[[schedules]] 1 conversation: no channel 'wed'; did you mean 'web'?",
        ),
        (HOURLY.replace("web/alice", "alice"), '[[schedules]] 1: "alice" is no conversation'),
        (HOURLY.replace("hourly", "Hourly!"), '[[schedules]] 1: "Hourly!" is no name for a schedule'),
        (HOURLY * 2, "[[schedules]] 2 name: there is another schedule 'hourly'"),
        ('listen = "0.0.0.0"', 'listen: expected HOST:PORT like "127.0.0.1:8484", got "0.0.0.0"'),
        ('listen = "127.0.0.1:99999"', "listen: expected HOST:PORT"),
        ('listen = "[::zz]:80"', "listen: expected HOST:PORT"),
        ('backend = "turnlane.db"', 'backend: expected a URL like "sqlite:///turnlane.db"'),
        ("this is no toml", "turnlane.toml is not valid TOML"),
        ("a = " + "[" * 5000, "turnlane.toml"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_to_write(read: Read, text: str, problem: str) -> None:
    (said,) = problems_of(read, text)
    assert problem in said


def test_schedules_are_read_and_shown(read: Read) -> None:
    """D5"""
    settings = read(HOURLY.replace("web/alice", "web/alice smith") + 'missed = "skip"')
    [schedule] = schedules_of(settings)
    assert schedule == Schedule(
        "hourly", "web/alice%20smith", "news?", every_ms=3_600_000, missed="skip", missed_max=100, by="file"
    )
    shown = {each.key: each.value for each in describe(settings)}
    assert (shown["schedules.1.every"], shown["schedules.1.missed"]) == ("1h", "skip")


def test_all_mistakes_are_said_at_once(read: Read) -> None:
    said = problems_of(
        read, 'zzz = 1\n[lanes]\ndebounce = 3\n[agents.a]\nkind = "http"', {"TURNLANE_TURNS_AT_ONCE": "x"}
    )
    assert len(said) == 4


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = '\x00'"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "turnlane.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidSettings, match=r"turnlane\.toml"):
        load(file, {})


def test_a_file_that_is_not_there_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="turnlane init"):
        load(tmp_path / "no.toml", {})


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load(tmp_path, {})


def test_a_mistyped_variable_is_refused_and_a_foreign_one_is_not() -> None:
    with pytest.raises(InvalidSettings, match=r"TURNLANE_LANES_DEBOUNSE: .* did you mean 'TURNLANE_LANES_DEBOUNCE'"):
        load(None, {"TURNLANE_LANES_DEBOUNSE": "3s"})
    load(None, {"TURNLANE_LISTEN_FD": "3", "TURNLANE_HOME": "/srv"})


@pytest.mark.parametrize("environ", [{}, {"SITE_SECRET": ""}])
def test_a_missing_variable_is_named(read: Read, environ: dict[str, str]) -> None:
    (said,) = problems_of(read, '[channels.a]\nkind = "webhook"\nsecret = { env = "SITE_SECRET" }', environ)
    assert "[channels.a] secret: the environment variable SITE_SECRET is" in said


def test_several_agents_and_a_channel_without_a_route_is_an_error(read: Read) -> None:
    (said,) = problems_of(read, '[agents.a]\nkind = "echo"\n[agents.b]\nkind = "echo"')
    assert '[channels.web]: there are several agents ("a", "b") and no route' in said


def test_a_route_among_several_agents_names_one(read: Read) -> None:
    (said,) = problems_of(read, '[agents.a]\nkind = "echo"\n[agents.b]\nkind = "echo"\n[[routes]]\nchannel = "web"')
    assert '[[routes]] 1 agent: is missing; give one of "a", "b"' in said


@pytest.mark.parametrize("address", ["0.0.0.0:80", "192.0.2.1:80", "[::]:80", "example.org:80"])
def test_an_address_that_others_reach_needs_a_token_and_secrets(read: Read, address: str) -> None:
    said = problems_of(read, '[channels.a]\nkind = "webhook"', listen=address)
    assert len(said) == 2
    assert "operator_token" in said[0]
    assert "[channels.a] secret: is missing" in said[1]
    environ = {"TURNLANE_OPERATOR_TOKEN": "t"}
    assert read('[channels.a]\nkind = "webhook"\nsecret = "s"', environ, listen=address).listen == Address(address)


@pytest.mark.parametrize(
    ("channel", "word"), [('kind = "whapi"\ntoken = "t"', "secret"), ('kind = "wati"\ntoken = "t"', "passkey")]
)
def test_a_platform_that_signs_nothing_needs_a_word_where_others_reach_it(read: Read, channel: str, word: str) -> None:
    environ = {"TURNLANE_OPERATOR_TOKEN": "t"}
    (said,) = problems_of(read, f"[channels.a]\n{channel}", environ, listen="0.0.0.0:80")
    assert f"[channels.a] {word}: is missing" in said
    assert read(f'[channels.a]\n{channel}\n{word} = "s"', environ, listen="0.0.0.0:80").channels


def test_a_viewers_token_is_another_than_the_operators_and_not_alone(read: Read) -> None:
    (said,) = problems_of(read, 'viewer_token = "v"')
    assert said.startswith("viewer_token: ")
    assert "operator_token" in said
    (said,) = problems_of(read, 'operator_token = "s3cret"\nviewer_token = "s3cret"')
    assert "choose another" in said
    assert "s3cret" not in said
    assert read('operator_token = "o"\nviewer_token = { env = "V" }', {"V": "v"}).viewer_token == Secret("v")


# Secrets stay secret


def test_a_secret_prints_as_stars_in_every_way() -> None:
    secret = Secret("s3cret")
    assert {str(secret), repr(secret), f"{secret}", f"{secret!r:>3}"} == {"***"}
    assert secret.reveal() == "s3cret"
    assert secret == Secret("s3cret") != Secret("other")
    assert len({secret, Secret("s3cret")}) == 1


def test_no_secret_is_in_what_settings_print_or_describe(read: Read) -> None:
    settings = read(
        """
        backend = "postgresql://me:s3cret@db/x"
        operator_token = "s3cret"
        [channels.a]
        kind = "webhook"
        secret = { env = "A" }
        reply_url = "http://me:s3cret@host/x?key=s3cret"
        [agents.c]
        kind = "command"
        command = ["x"]
        env = { KEY = "s3cret" }
        """,
        {"A": "s3cret"},
    )
    described = {each.key: each.value for each in describe(settings)}
    assert "s3cret" not in str(described)
    assert described["channels.a.secret"] == "***"
    assert described["backend"] == "postgresql://me:***@db/x"


@pytest.mark.parametrize(
    "text",
    [
        'operator_token = ["s3cret"]',
        '[channels.a]\nkind = "webhook"\nreply_url = "s3cret"',
        '[channels.a]\nkind = "webhook"\nreply_url = { env = "A" }',
        '[lanes]\ndebounce = { env = "A" }',
        '[agents.c]\nkind = "command"\ncommand = ["x"]\nenv = ["s3cret"]',
    ],
)
def test_no_secret_is_in_an_error(read: Read, text: str) -> None:
    (said,) = problems_of(read, text, {"A": "s3cret"})
    assert "s3cret" not in said


def test_budgets_and_prices_are_read(read: Read) -> None:
    settings = read(
        """
        [budgets.user]
        tokens = 100_000
        [budgets.day]
        cost = 2.5
        warn = 0.5
        stop = false
        [prices."claude-sonnet"]
        input = 3.0
        output = 15.0
        """,
        {"TURNLANE_BUDGETS_SESSION_TOKENS": "7"},
    )
    day = Budget(cost=2_500_000, warn=0.5, stops=False)
    assert budgets_of(settings) == Budgets(session=Budget(tokens=7), user=Budget(tokens=100_000), day=day)
    assert prices_of(settings) == {"claude-sonnet": Price(3.0, 15.0)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[budgets]\nusers = 3", "did you mean 'user'"),
        ("[budgets]\nuser = 3", "[budgets.user]: expected a table"),
        ("[budgets.user]\ntoken = 3", "did you mean 'tokens'"),
        ("[budgets.user]\nwarn = 3", "expected a number from 0 to 1"),
        ("[prices]\nlarge = 3", "[prices]: expected tables like"),
        ('[prices."large"]\ninput = 3', "[prices.large] output: is missing"),
    ],
)
def test_a_wrong_budget_or_price_is_refused_with_its_place(read: Read, text: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("path", ["/", "hooks", "/api/x", "/channels/site", "/a//b", "/a b", "/ä", "/embed.js"])
def test_a_path_that_is_ours_or_none_is_refused(read: Read, path: str) -> None:
    (problem,) = problems_of(read, f'[channels.site]\nkind = "webhook"\npath = "{path}"')
    assert "does not begin like one of ours" in problem


def test_two_channels_cannot_have_one_path(read: Read) -> None:
    text = "".join(f'[channels.{name}]\nkind = "webhook"\npath = "/hooks/x"\n' for name in ("a", "b"))
    (problem,) = problems_of(read, text)
    assert "[channels.a] path: [channels.b] has the same one" in problem


def test_two_chat_commands_cannot_have_one_word(read: Read) -> None:
    """One of them would be off, and nobody would know which."""
    (problem,) = problems_of(read, '[commands]\nstop = "/halt"\npause = " /HALT"')
    assert '[commands] pause: "/halt" is the word for stop, too' in problem
    read('[commands]\nstop = ""\npause = ""')
    read('[commands]\nstop = "/halt"\npause = "/halt"\nenabled = false')


def test_alerts_are_read_and_their_defaults_are_those_of_the_model(read: Read) -> None:
    assert thresholds_of(load(None, {})) == Thresholds()
    text = '[alerts]\nstore_errors = 0.3\nlock_held = "20m"\noff = ["hook_errors"]\nsamples_min = 5'
    assert thresholds_of(read(text)) == Thresholds(
        store_errors=0.3, lock_held=1200, off=("hook_errors",), samples_min=5
    )
    assert load(None, {"TURNLANE_ALERTS_OFF": "overdue, no_worker"}).alerts.off == ("overdue", "no_worker")


def test_an_alert_that_is_not_there_is_refused(read: Read) -> None:
    with pytest.raises(InvalidSettings, match="a list of alerts"):
        read('[alerts]\noff = ["bad_weather"]')
