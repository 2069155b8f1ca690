"""What is stored at run time, over the file: what wins, what is refused, and what becomes of what no longer fits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnlane.backends.memory import MemoryBackend
from turnlane.clock import SystemClock
from turnlane.errors import BackendUnavailable, InvalidSettings, NotFound
from turnlane.live_settings import VALUE_CHARACTERS_MAX, LiveSettings
from turnlane.model.event import Fact
from turnlane.model.limits import Pauses
from turnlane.settings import Settings, changeable, limits_of, load, policy_for

FILE = """
[lanes]
attempts = 7
[channels.site]
kind = "webhook"
[channels.shop]
kind = "webhook"
rate = "1/s"
[agents.support]
kind = "http"
url = "http://127.0.0.1:9000/turns"
headers = { key = "secret-word" }
[[routes]]
channel = "shop"
debounce = "1s"
max_wait = "2s"
"""


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend("memory://", SystemClock())


@pytest.fixture
def base(tmp_path: Path) -> Settings:
    path = tmp_path / "turnlane.toml"
    path.write_text(FILE)
    return load(path, {})


@pytest.fixture
def live(backend: MemoryBackend, base: Settings) -> LiveSettings:
    return LiveSettings(backend, base)


async def test_command_line_and_environment_are_stronger_than_the_store_and_the_file_is_weaker(
    backend: MemoryBackend, tmp_path: Path
) -> None:
    path = tmp_path / "turnlane.toml"
    path.write_text("[lanes]\nattempts = 7\nmax_batch = 7\nmax_pending = 7")
    base = load(path, {"TURNLANE_LANES_ATTEMPTS": "8"}, {"lanes.max_batch": "9"})
    live = LiveSettings(backend, base)
    for name in ("lanes.attempts", "lanes.max_batch", "lanes.max_pending"):
        await live.change(name, "5", by="test")
    lanes = live.settings.lanes
    assert (lanes.attempts, lanes.max_batch, lanes.max_pending) == (8, 9, 5)
    said = {setting.name: (setting.source, setting.stored, setting.ignored) for setting in live.all()}
    assert said["lanes.attempts"] == ("environment", "5", "TURNLANE_LANES_ATTEMPTS is stronger")
    assert said["lanes.max_batch"] == ("command line", "5", "the command line is stronger")
    assert said["lanes.max_pending"] == ("stored", "5", None)
    assert (await live.change("lanes.max_pending", None, by="test")).source == "file"


async def test_a_route_is_named_by_its_channel_whether_the_file_has_one_or_not(live: LiveSettings) -> None:
    await live.change("routes.site.on_busy", "queue", by="test")
    await live.change("routes.shop.backoff.most", "9s", by="test")
    await live.change("lanes.attempts", "2", by="test")
    site, shop = policy_for(live.settings, "site"), policy_for(live.settings, "shop")
    assert (site.on_busy, shop.on_busy) == ("queue", "collect")
    assert (site.debounce_ms, shop.debounce_ms) == (3_000, 1_000)
    assert (site.backoff.most_ms, shop.backoff.most_ms) == (300_000, 9_000)
    assert (site.attempts, shop.attempts, site.agent) == (2, 2, "support")
    gone = await live.change("routes.site.on_busy", None, by="test")
    assert (gone.value, gone.source) == ("collect", "default")


async def test_pauses_are_told_to_whoever_claims(live: LiveSettings) -> None:
    assert limits_of(live.settings).pauses is None
    await live.change("channels.site.paused", "true", by="test")
    await live.change("agents.support.paused", "true", by="test")
    assert limits_of(live.settings).pauses == Pauses(False, frozenset(["site"]), frozenset(["support"]))
    await live.change("paused", "true", by="test")
    pauses = limits_of(live.settings).pauses
    assert pauses is not None
    assert pauses.all


async def test_without_a_file_the_channel_and_the_agent_that_there_are_can_be_paused(backend: MemoryBackend) -> None:
    live = LiveSettings(backend, load(None, {}))
    await live.change("channels.web.paused", "true", by="test")
    await live.change("agents.echo.paused", "true", by="test")
    assert limits_of(live.settings).pauses == Pauses(False, frozenset(["web"]), frozenset(["echo"]))


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("lanes.debounce", "5", InvalidSettings, 'lanes.debounce: expected a duration with its unit, like "250ms"'),
        ("lanes.on_busy", "colect", InvalidSettings, "did you mean 'collect'?"),
        ("limits.all", "0", InvalidSettings, "limits.all: expected a whole number from 1 to 1000000"),
        ("channels.shop.rate", "fast", InvalidSettings, "channels.shop.rate: expected a rate like"),
        ("routes.shop.debounce", "5s", InvalidSettings, 'longer than max_wait = "2s"'),
        ("lanes.turn_deadline", "1ms", InvalidSettings, 'must be at least "1s"'),
        ("commands.stop", "a" * (VALUE_CHARACTERS_MAX + 1), InvalidSettings, "20000 is the most"),
        ("commands.stop", "/NEW", InvalidSettings, "give each its own"),
        ("commands.stop", "\x1b[2J", InvalidSettings, "control characters; leave them out"),
        ("lanes.debonce", "5s", NotFound, "did you mean 'lanes.debounce'?"),
        ("channels.other.paused", "true", NotFound, "did you mean"),
        ("nonsense", "5s", NotFound, "`turnlane settings` lists them"),
        ("", "5s", NotFound, "no setting ''"),
        ("lanes", "5s", NotFound, "no setting 'lanes'"),
        ("lanes.lease", "5s", InvalidSettings, "is read when a process starts; set it in the file"),
        ("operator_token", "word", InvalidSettings, "is read when a process starts"),
        ("channels.site.secret", "word", InvalidSettings, "is read when a process starts"),
    ],
)
async def test_what_the_file_would_not_take_is_refused_and_nothing_is_stored(
    live: LiveSettings, backend: MemoryBackend, name: str, value: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as refused:
        await live.change(name, value, by="test")
    assert says in str(refused.value)
    assert await backend.configuration() == {}


async def test_what_another_setting_needs_cannot_be_unset(live: LiveSettings, backend: MemoryBackend) -> None:
    await live.change("routes.shop.max_wait", "9s", by="test")
    await live.change("routes.shop.debounce", "8s", by="test")
    with pytest.raises(InvalidSettings, match="raise max_wait or lower debounce"):
        await live.change("routes.shop.max_wait", None, by="test")
    assert await backend.configuration() == {"routes.shop.max_wait": "9s", "routes.shop.debounce": "8s"}


async def test_what_no_longer_fits_is_left_out_and_said_and_can_be_removed(
    backend: MemoryBackend, base: Settings
) -> None:
    told: list[tuple[str, dict[str, Fact]]] = []
    live = LiveSettings(backend, base, say=lambda name, **facts: told.append((name, facts)))
    await backend.configure("channels.gone.paused", "true")
    await backend.configure("lanes.attempts", "several")
    await backend.configure("lanes.max_batch", "4")
    await live.look()
    assert (live.settings.lanes.attempts, live.settings.lanes.max_batch) == (7, 4)
    assert told[0] == (
        "settings.applied",
        {"settings": "channels.gone.paused, lanes.attempts, lanes.max_batch"},
    )
    assert [(name, facts["setting"]) for name, facts in told[1:]] == [
        ("settings.ignored", "channels.gone.paused"),
        ("settings.ignored", "lanes.attempts"),
    ]
    ignored = {setting.name: setting.ignored for setting in live.all() if setting.ignored}
    assert ignored["channels.gone.paused"] == "there is no such setting in this process"
    assert "expected a whole number" in ignored["lanes.attempts"]
    await live.change("lanes.max_pending", "5", by="test")
    assert live.settings.lanes.max_pending == 5
    await live.change("channels.gone.paused", None, by="test")
    await live.change("lanes.attempts", None, by="test")
    assert not [setting for setting in live.all() if setting.ignored]


async def test_what_fits_only_together_stays_in_force_beside_something_that_does_not(
    live: LiveSettings, backend: MemoryBackend
) -> None:
    await backend.configure("routes.shop.debounce", "8s")
    await backend.configure("routes.shop.max_wait", "9s")
    await backend.configure("routes.site.attempts", "many")
    await live.look()
    assert policy_for(live.settings, "shop").debounce_ms == 8_000
    assert [setting.name for setting in live.all() if setting.ignored] == ["routes.site.attempts"]


@pytest.mark.parametrize("name", ["routes.shop.nonsense", "routes.gone.debounce", "routes", "x", "agents.gone.paused"])
async def test_whatever_is_stored_can_be_removed(live: LiveSettings, backend: MemoryBackend, name: str) -> None:
    await backend.configure(name, "1")
    await live.change(name, None, by="test")
    assert await backend.configuration() == {}


@pytest.mark.parametrize(("name", "ending"), [("channels.site.paused", "?"), ("nonsense", " lists them.")])
async def test_without_a_file_a_name_that_is_not_known_may_be_in_one(
    backend: MemoryBackend, name: str, ending: str
) -> None:
    with pytest.raises(NotFound, match=re.escape(f"{ending} No settings file was read; --config names one")):
        await LiveSettings(backend, load(None, {})).change(name, "true", by="test")


async def test_what_could_not_be_brought_into_force_is_tried_again(backend: MemoryBackend, base: Settings) -> None:
    trouble = [BackendUnavailable("just now")]
    went_on: list[int] = []

    async def go_on_with(settings: Settings) -> None:
        if trouble:
            raise trouble.pop()
        went_on.append(settings.lanes.attempts)

    live = LiveSettings(backend, base, go_on_with)
    await backend.configure("lanes.attempts", "5")
    with pytest.raises(BackendUnavailable):
        await live.look()
    await live.look()
    await live.look()
    assert went_on == [5]


async def test_null_lifts_a_limit_of_the_file(backend: MemoryBackend, tmp_path: Path) -> None:
    path = tmp_path / "turnlane.toml"
    path.write_text("[limits]\nall = 3")
    live = LiveSettings(backend, load(path, {}))
    assert (await live.change("limits.all", "null", by="test")).value is None
    assert live.settings.limits.all is None


async def test_settings_made_in_code_are_not_changed_from_outside(backend: MemoryBackend) -> None:
    live = LiveSettings(backend, Settings())
    with pytest.raises(InvalidSettings, match="made in code"):
        await live.change("lanes.attempts", "5", by="test")
    await backend.configure("lanes.attempts", "5")
    assert await live.look() == Settings()


async def test_nothing_secret_can_be_stored_or_is_shown(live: LiveSettings, base: Settings) -> None:
    words = {name.rpartition(".")[2] for name in changeable(base)}
    assert words.isdisjoint({"secret", "operator_token", "headers", "env", "url", "reply_url", "backend"})
    assert "secret-word" not in str(live.all())
