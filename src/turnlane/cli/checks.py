"""The checks of `turnlane doctor`, each a question about the world and its answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sqlite3
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

from turnlane.agents.openai import agent as build_agent
from turnlane.backends import Backend, open_backend
from turnlane.cli.common import file_of, workers_live
from turnlane.cli.migrate import schema_version
from turnlane.cli.table import relative, took
from turnlane.clock import Clock, SystemClock
from turnlane.errors import AgentError, AgentRefused, BackendError, InvalidSettings
from turnlane.live_settings import LiveSettings
from turnlane.model.lane import Kind
from turnlane.parts import openai_options, slack_options, whatsapp_channel
from turnlane.settings import (
    ClaudeCodeAgent,
    CommandAgent,
    HttpAgent,
    OpenAIAgent,
    Settings,
    SlackChannel,
    WatiChannel,
    WebChannel,
    WebhookChannel,
    WhapiChannel,
    WhatsAppMetaChannel,
    missing_word,
    variables,
    without_password,
)

DISK_BYTES_LOW = 1_000_000_000
DISK_BYTES_NEEDED = 50_000_000
OPEN_SECONDS_MAX = 15.0
INTEGRITY_SECONDS_MAX = 20.0
CONNECT_SECONDS_MAX = 3.0
VERSION_SECONDS_MAX = 15.0
CLOCK_MS_AHEAD_MAX = 5_000
HELD_COUNTED_MAX = 1_000
YEAR_2026 = 1_767_225_600_000
YEAR_2100 = 4_102_444_800_000


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Literal["ok", "warning", "broken"]
    text: str
    next: str | None = None


# The machine


def machine() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"Python {version}")
    yield from _sqlite()
    now = SystemClock().now()
    if YEAR_2026 <= now < YEAR_2100:
        yield Finding("clock", "ok", "the date is plausible")
    else:
        yield Finding("clock", "broken", "the date of this machine cannot be right", "set its clock, best by NTP")


def _sqlite() -> Iterator[Finding]:
    from turnlane.backends.sqlite.file import SQLITE_VERSION_MIN

    if sqlite3.sqlite_version_info >= SQLITE_VERSION_MIN:
        yield Finding("sqlite", "ok", f"SQLite {sqlite3.sqlite_version}")
    else:
        needed = ".".join(map(str, SQLITE_VERSION_MIN))
        step = f"use a Python with SQLite {needed} or newer"
        yield Finding("sqlite", "broken", f"SQLite {sqlite3.sqlite_version} is too old", step)


def foreign_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    known = variables()
    for name in sorted(environ):
        if name.startswith("TURNLANE_") and name not in known:
            step = "ignore this if it is yours, such as one that { env = … } names"
            yield Finding("settings", "warning", f"{name} is set, but is no setting", step)


# The store


async def store(settings: Settings) -> AsyncIterator[Finding]:
    try:
        file = file_of(settings.backend)
        backend = open_backend(settings.backend)
    except InvalidSettings as error:
        yield Finding("backend", "broken", str(error), "change `backend` in the settings")
        return
    if file is None:
        async for finding in _without_a_file(backend, settings):
            yield finding
        return
    folder = list(_folder(file))
    for finding in folder:
        yield finding
    if not file.exists():
        yield Finding("backend", "ok", f"{file} is not there yet; the first start makes it")
    elif all(finding.status != "broken" for finding in folder):
        async for finding in _opened(backend, settings, file):
            yield finding


async def _without_a_file(backend: Backend, settings: Settings) -> AsyncIterator[Finding]:
    if (url := settings.backend).startswith("memory:"):
        yield Finding("backend", "ok", f"{url} keeps nothing once its process ends")
        return
    async for finding in _opened(backend, settings, None):
        yield finding


def _folder(file: Path) -> Iterator[Finding]:
    folder = file.absolute().parent
    if not folder.is_dir():
        yield Finding("disk", "broken", f"the folder {folder} does not exist", f"mkdir -p {folder}")
        return
    for path in (folder, file):
        if path.exists() and not os.access(path, os.W_OK):
            step = "give the user who runs turnlane the right to write, to the file and its folder"
            yield Finding("disk", "broken", f"{path} cannot be written", step)
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB free in {folder}"
    if free < DISK_BYTES_NEEDED:
        yield Finding("disk", "broken", said, "free some space; a full disk takes no message in")
    elif free < DISK_BYTES_LOW:
        yield Finding("disk", "warning", said, "free some space before it runs out")
    else:
        yield Finding("disk", "ok", said)


async def _opened(backend: Backend, settings: Settings, file: Path | None) -> AsyncIterator[Finding]:
    url = settings.backend
    name = file or without_password(url)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            before = await schema_version(url)
            await backend.open()
            after = await schema_version(url)
    except BackendError as error:
        yield Finding("backend", "broken", str(error), "mend it, then ask again")
        return
    except TimeoutError:
        step = "close the program that holds the file, or look at the disk; look at the server if there is one"
        yield Finding("backend", "broken", f"{name} did not open within {OPEN_SECONDS_MAX:.0f}s", step)
        return
    try:
        migrated = "" if before == after else f", migrated from {before}"
        yield Finding("backend", "ok", f"{name} opens; schema {after}{migrated}")
        if file is not None:
            yield await asyncio.to_thread(_integrity, file, SystemClock())
        if isinstance(backend, Served):
            for finding in _server(await backend.server_settings()):
                yield finding
        async for finding in _contents(backend, SystemClock().now()):
            yield finding
        async for finding in _set_at_run_time(backend, settings):
            yield finding
    except BackendError as error:
        yield Finding("backend", "broken", str(error), "mend it, then ask again")
    finally:
        await backend.close()


async def _set_at_run_time(backend: Backend, settings: Settings) -> AsyncIterator[Finding]:
    live = LiveSettings(backend, settings)
    await live.look()
    for setting in live.all():
        undo = f"turnlane settings unset {setting.name}"
        if setting.ignored:
            said = f"{setting.name} = {setting.stored} is stored, but not in force: {setting.ignored}"
            yield Finding("settings", "warning", said, undo)
        elif setting.name.rpartition(".")[2] == "paused" and setting.value is True:
            go_on = undo if setting.source == "stored" else f"unset it in the {setting.source}"
            yield Finding("settings", "warning", f"{setting.name} is on: nothing new begins ({setting.source})", go_on)
        elif setting.stored is not None:
            yield Finding("settings", "ok", f"{setting.name} = {setting.value} (stored)")


@runtime_checkable
class Served(Protocol):
    """A backend that is a server, with settings of its own."""

    async def server_settings(self) -> Mapping[str, str]: ...


_SAFE = {"fsync": ("on",), "full_page_writes": ("on",), "synchronous_commit": ("on", "remote_write", "remote_apply")}


def _server(found: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding("server", "ok", f"{found['server']} {found['server_version']}")
    if found.get("replicas") == "1":
        lost = (
            "the stream has one replica: it is lost with its disk, and without `sync_interval: always` so is the newest"
        )
        step = "make it with ?replicas=3 on three servers; set `sync_interval: always`, which cannot be seen from here"
        yield Finding("server", "warning", lost, step)
    for name, safe in _SAFE.items():
        if found.get(name, "on") not in safe:
            step = f"set {name} = on in the server, or accept that a crash of it loses what was acknowledged"
            yield Finding("server", "warning", f"{name} is {found[name]}", step)


def _integrity(file: Path, clock: Clock) -> Finding:
    """Reads the whole file, so it is given up on when that takes too long."""
    started = clock.monotonic()
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.set_progress_handler(lambda: clock.monotonic() - started > INTEGRITY_SECONDS_MAX, 10_000)
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        step = f"run `PRAGMA quick_check` on a copy of {file} when there is time"
        return Finding("integrity", "warning", f"not checked to the end: {error}", step)
    except sqlite3.DatabaseError as error:
        return Finding("integrity", "broken", f"{file} is damaged: {error}", "stop turnlane and restore a backup")
    finally:
        connection.close()
    if said != "ok":
        return Finding("integrity", "broken", f"{file} is damaged: {said}", "stop turnlane and restore a backup")
    return Finding("integrity", "ok", "no damage found")


async def _contents(backend: Backend, now: int) -> AsyncIterator[Finding]:
    counts = await backend.counts()
    live = await workers_live(backend, now)
    for finding in [*_workers(live, counts.messages_waiting), *await _clock_of(backend, now)]:
        yield finding
    stale = [lock for lock in await backend.locks() if (lock.worker_alive_until or 0) < now]
    if stale:
        oldest = relative(min(lock.since for lock in stale), now)
        step = "any running worker takes them over by itself; start one with `turnlane run`"
        yield Finding("locks", "warning", f"{len(stale)} held by lost workers, the oldest claimed {oldest}", step)
    else:
        yield Finding("locks", "ok", f"{counts.locks} held, none stale")
    for name, many, text, step in [
        ("deadletters", counts.dead_letters, "turns were given up on", "look at `turnlane deadletters`"),
        ("outbox", counts.deliveries_failed, "replies were given up on", "look at `turnlane outbox --state failed`"),
        ("lanes", counts.lanes.get("parked", 0), "lanes are parked", "look at `turnlane lanes --state parked`"),
    ]:
        yield Finding(name, "warning", f"{many} {text}", step) if many else Finding(name, "ok", f"no {text}")
    async for finding in _held(backend):
        yield finding


async def _held(backend: Backend) -> AsyncIterator[Finding]:
    held = len(await backend.lanes(kind=Kind.OUT, state="parked", limit=HELD_COUNTED_MAX))
    if held:
        text = f"replies of {held}{' or more' if held == HELD_COUNTED_MAX else ''} conversations are held"
        step = "look at `turnlane lanes --kind out --state parked`, then `turnlane resume CONVERSATION --outbox`"
        yield Finding("outbox", "warning", text, step)


def _workers(live: int, waiting: int) -> Iterator[Finding]:
    if waiting and not live:
        step = "start `turnlane run` or `turnlane worker`"
        yield Finding("workers", "warning", f"{waiting} messages wait and no worker is live", step)
    else:
        yield Finding("workers", "ok", f"{live} live, {waiting} messages wait")


async def _clock_of(backend: Backend, now: int) -> list[Finding]:
    newest = await backend.events(after=-1)
    if newest and newest[-1].event.at - now > CLOCK_MS_AHEAD_MAX:
        text = f"the newest event is from {took(newest[-1].event.at - now)} in the future: a clock was set back"
        return [Finding("clock", "warning", text, "keep the clocks of all machines right, best by NTP")]
    return []


# The port


async def port(settings: Settings) -> AsyncIterator[Finding]:
    listen = settings.listen
    if listen.port == 0:
        yield Finding("port", "ok", "any free port is taken at start")
        return
    try:
        _bind(listen.host, listen.port)
    except OSError as error:
        if await asyncio.to_thread(_answers_as_turnlane, listen):
            yield Finding("port", "ok", f"turnlane already serves http://{listen}/")
        else:
            step = f"stop what uses {listen}, or choose another with --listen"
            yield Finding("port", "broken", f"cannot listen on {listen}: {error.strerror}", step)
    else:
        yield Finding("port", "ok", f"{listen} is free")


def _bind(host: str, number: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _answers_as_turnlane(listen: str) -> bool:
    # Straight to the address, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{listen}/healthz", timeout=CONNECT_SECONDS_MAX) as answer:
            return bool(json.loads(answer.read(10_000)) == {"status": "up"})
    except (OSError, ValueError):
        return False


# Channels and agents


async def channels(settings: Settings) -> AsyncIterator[Finding]:
    for name, channel in settings.channels.items():
        check = f"channel {name}"
        match channel:
            case WebhookChannel(reply_url=None):
                step = f"set reply_url in [channels.{name}]"
                yield Finding(check, "warning", "has no reply_url, so no reply can leave", step)
            case WebhookChannel(reply_url=str(url)):
                yield await _reachable(check, url, "replies wait and are tried again meanwhile; start it")
                if channel.lookup_url is not None:
                    step = "a reply that may have arrived waits until it can be looked up; start it"
                    yield await _reachable(f"{check} lookup", channel.lookup_url, step)
            case WhatsAppMetaChannel() | WhapiChannel() | WatiChannel():
                yield await _whatsapp(check, name, channel)
            case WebChannel(public=False) if not settings.listen.is_loopback:
                step = f"set public = true in [channels.{name}] if everybody may chat"
                yield Finding(check, "warning", f"the chat page is not served on {settings.listen}", step)
            case WebChannel(file_bytes_max=most) if most > WebChannel().file_bytes_max and _is_nats(settings.backend):
                step = f"let the server's max_payload be {most * 3 // 2} or more, or leave file_bytes_max out"
                yield Finding(check, "warning", "a message with its files may be more than NATS takes", step)
            case SlackChannel():
                async for finding in _slack(check, name, channel):
                    yield finding
            case _:
                yield Finding(check, "ok", channel.kind)
        if (word := missing_word(channel)) is not None:
            step = f"set {word} in [channels.{name}]"
            yield Finding(check, "warning", f"has no {word}: every program on this machine may post", step)


def _is_nats(backend: str) -> bool:
    return backend.partition("://")[0] in {"nats", "tls"}


async def _whatsapp(check: str, name: str, settings: WhatsAppMetaChannel | WhapiChannel | WatiChannel) -> Finding:
    """Asked who we are, which sends nothing."""
    if isinstance(settings, WatiChannel) and settings.token is None:
        return Finding(check, "warning", "has no token, so no reply can leave", f"set token in [channels.{name}]")
    from turnlane.channels.whatsapp import TokenRefused

    channel = whatsapp_channel(name, settings, SystemClock())
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX * 2):
            return Finding(check, "ok", f"{settings.kind}, {await channel.who_we_are()}")
    except TokenRefused as error:
        return Finding(check, "broken", str(error), f"renew token in [channels.{name}]")
    except (ConnectionError, TimeoutError) as error:
        step = "replies wait and are tried again meanwhile; mend it, then ask again"
        return Finding(check, "warning", str(error) or "the platform does not answer in time", step)
    finally:
        await channel.close()


async def _slack(check: str, name: str, channel: SlackChannel) -> AsyncIterator[Finding]:
    try:
        from turnlane.channels.slack.api import Said, cause
        from turnlane.channels.slack.rights import Rights, rights_of, socket_trouble
    except ModuleNotFoundError as error:
        yield Finding(check, "broken", f"the package {error.name} is not there", "pip install 'turnlane[slack]'")
        return
    options = slack_options(channel)
    for team, rights in (await rights_of(options)).items():
        if not isinstance(rights, Rights):
            if not isinstance(rights, Said):
                yield Finding(check, "warning", cause(rights), "replies wait meanwhile; look at the network")
                return
            key = f"tokens.{team}" if team else "token"
            yield Finding(
                check, "broken", f"{key}: {cause(rights)}", "copy the token anew from the app's page in Slack"
            )
            continue
        yield Finding(check, "ok", f"is @{rights.bot} in {rights.workspace}")
        if rights.missing:
            missed = ", ".join(f"{scope} ({without})" for scope, without in rights.missing.items())
            step = "add what you want of it under OAuth & Permissions, and install the app again"
            status: Literal["broken", "warning"] = "broken" if "chat:write" in rights.missing else "warning"
            yield Finding(check, status, f"lacks the scopes {missed}", step)
    if trouble := await socket_trouble(options):
        step = f"switch Socket Mode on, and copy app_token of [channels.{name}] anew (scope connections:write)"
        yield Finding(check, "broken", f"no socket can be opened: {cause(trouble)}", step)


async def agents(settings: Settings) -> AsyncIterator[Finding]:
    for name, agent in settings.agents.items():
        check = f"agent {name}"
        match agent:
            case CommandAgent():
                yield _program(check, name, agent)
            case ClaudeCodeAgent():
                yield await _claude_code(check, name, agent)
            case HttpAgent():
                yield await _reachable(check, agent.url, "turns are tried again meanwhile; start it")
            case OpenAIAgent():
                yield await _model(check, agent)
            case _:
                yield Finding(check, "ok", agent.kind)


async def _model(check: str, agent: OpenAIAgent) -> Finding:
    """Asked for its model's name, which costs nothing."""
    options = openai_options(agent)
    step = "turns are tried again meanwhile, or given up on; mend it, then ask again"
    try:
        model = build_agent(options, api=agent.api)
    except InvalidSettings as error:
        return Finding(check, "broken", str(error), "mend it, then ask again")
    await model.close()
    from turnlane.agents.openai.service import is_known

    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX * 2):
            known = await is_known(options)
    except AgentRefused as error:
        return Finding(check, "broken", str(error), "mend it, then ask again")
    except (AgentError, TimeoutError) as error:
        return Finding(check, "warning", str(error) or "the service does not answer in time", step)
    if not known:
        return Finding(check, "warning", f"the service lists no model {agent.model!r}", "check model and base_url")
    return Finding(check, "ok", f"openai, {agent.model} answers at {urlsplit(agent.base_url).hostname}")


def _program(check: str, name: str, agent: CommandAgent) -> Finding:
    if agent.cwd is not None and not Path(agent.cwd).is_dir():
        return Finding(check, "broken", f"the folder {agent.cwd} does not exist", f"change cwd in [agents.{name}]")
    program = agent.command[0]
    path = agent.env["PATH"].reveal() if "PATH" in agent.env else None
    # A program with a slash in its name is looked for from the folder that the agent runs in.
    where = str(Path(agent.cwd or ".", program)) if "/" in program else program
    found = shutil.which(where, path=path)
    if found is None:
        step = f"install it, or write its whole path in [agents.{name}] command"
        return Finding(check, "broken", f"the program {program!r} cannot be found or run", step)
    return Finding(check, "ok", f"command, runs {found}")


async def _claude_code(check: str, name: str, agent: ClaudeCodeAgent) -> Finding:
    from turnlane.agents.claude_code.options import VERSION_MIN, found_program

    table = f"[agents.{name}]"
    if agent.cwd is not None and "{conversation}" not in agent.cwd and not Path(agent.cwd).is_dir():  # noqa: ASYNC240 - a look at a folder
        return Finding(check, "broken", f"the folder {agent.cwd} does not exist", f"change cwd in {table}")
    environment = agent.options.environment(os.environ)
    program = found_program(agent.command, environment)
    if program is None:
        looked = f"in PATH ({environment.get('PATH', 'empty')}) and in the package claude-agent-sdk"
        step = f"`pip install 'turnlane[claude]'`, or write its whole path in {table} command"
        return Finding(check, "broken", f"the program {agent.command[0]!r} is not there; looked {looked}", step)
    version = await _version([program, *agent.command[1:]], environment)
    if version is None:
        return Finding(check, "broken", f"{program} does not tell its version", f"run `{program} --version` to see why")
    text = f"Claude Code {'.'.join(map(str, version))}, {program}"
    if version < VERSION_MIN:
        needed = ".".join(map(str, VERSION_MIN))
        step = f"update it to {needed} or newer; older ones obey a customer who writes /clear or @/etc/passwd"
        return Finding(check, "broken", f"{text} is too old", step)
    if not _may_log_in(environment):
        step = f'set env = {{ ANTHROPIC_API_KEY = {{ env = "ANTHROPIC_API_KEY" }} }} in {table}, or log in with it'
        return Finding(check, "warning", f"{text}, has no key and nobody logged in", step)
    return Finding(check, "ok", text)


async def _version(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, ...] | None:
    try:
        asked = await asyncio.create_subprocess_exec(
            *command, "--version", env=environment, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(VERSION_SECONDS_MAX):
            said, _ = await asked.communicate()
    except TimeoutError:
        asked.kill()
        await asked.wait()
        return None
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", said.decode(errors="replace"))
    return tuple(map(int, found.groups())) if found else None


def _may_log_in(environment: Mapping[str, str]) -> bool:
    from turnlane.agents.claude_code.options import config_folder

    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    others = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    return (
        any(environment.get(key) for key in keys + others)
        or (config_folder(environment) / ".credentials.json").is_file()
    )


async def _reachable(check: str, url: str, step: str) -> Finding:
    parts = urlsplit(url)
    host, number = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            _, writer = await asyncio.open_connection(host, number)
    except (OSError, TimeoutError) as error:
        cause = getattr(error, "strerror", None) or "no answer in time"
        return Finding(check, "warning", f"nobody answers at {host}:{number} ({cause})", step)
    writer.close()
    await writer.wait_closed()
    return Finding(check, "ok", f"{host}:{number} answers")
