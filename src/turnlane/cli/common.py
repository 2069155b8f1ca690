"""What the verbs share: options, settings, an open store, and how times and JSON are written."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import click

from turnlane.backends import Backend, open_backend
from turnlane.errors import BackendError, InvalidSettings, NotFound
from turnlane.http.wire import to_json
from turnlane.model.event import ACTION_CHARACTERS_MAX, Fact
from turnlane.model.message import key_written
from turnlane.settings import Duration, Settings, load

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_FILE = Path("turnlane.toml")


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says about the settings."""

    config: Path | None = None
    backend: str | None = None
    listen: str | None = None
    log_format: str | None = None

    @property
    def file(self) -> Path | None:
        """The file named, else ./turnlane.toml if there is one."""
        return self.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def load(self) -> Settings:
        overrides = {"backend": self.backend, "listen": self.listen, "log_format": self.log_format}
        return load(self.file, os.environ, overrides)

    def arguments(self) -> list[str]:
        """The same, to be given to another process."""
        named = {
            "--config": self.config,
            "--backend": self.backend,
            "--listen": self.listen,
            "--log-format": self.log_format,
        }
        return [word for option, value in named.items() if value is not None for word in (option, str(value))]


_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Settings file. Default: ./turnlane.toml if it is there.",
)
_BACKEND = click.option("--backend", metavar="URL", help="Where everything is stored, like sqlite:///turnlane.db.")
_LISTEN = click.option("--listen", metavar="HOST:PORT", help="Where the server listens. Default: 127.0.0.1:8484.")
_LOG_FORMAT = click.option("--log-format", type=click.Choice(["human", "json"]), help="How log lines look.")

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Answer in JSON, as documented in docs/reference/cli.md."
)
limit = click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, metavar="N")


class ListUnlessTold(click.Group):
    """Without a word of its own the verb means `list`, options and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def milliseconds(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """What was typed as a duration that is not over at once; a callback for options."""
    try:
        ms = None if text is None else Duration.parse(text).ms
    except ValueError:
        raise click.BadParameter(f"{text!a} is no duration; write it with its unit, like 90s, 30m or 2h") from None
    if ms == 0:
        raise click.BadParameter(f"{text} is over at once; write a longer time, like 90s, 30m or 2h")
    return ms


def reads_store(function: Function) -> Function:
    """Hand the verb a `given` made of --config and --backend."""
    return _with_options(function, [_CONFIG, _BACKEND])


def reads_settings(function: Function) -> Function:
    """Hand the verb a `given` made of --config alone."""
    return _with_options(function, [_CONFIG])


def reaches_server(function: Function) -> Function:
    """Hand the verb a `given` made of --config and --listen."""
    return _with_options(function, [_CONFIG, _LISTEN])


def runs(function: Function) -> Function:
    """Hand the verb a `given` made of all four common options."""
    return _with_options(function, [_CONFIG, _BACKEND, _LISTEN, _LOG_FORMAT])


def _with_options(function: Function, options: list[Callable[[Function], Function]]) -> Function:
    @functools.wraps(function)
    def verb(*context: click.Context, **arguments: Any) -> Any:
        named = {name: arguments.pop(name) for name in Given.__dataclass_fields__ if name in arguments}
        return function(*context, Given(**named), **arguments)

    for option in reversed(options):
        verb = option(verb)
    return verb  # type: ignore[return-value]


@asynccontextmanager
async def opened(settings: Settings, *, create: bool = False) -> AsyncIterator[Backend]:
    """The store, for as long as the block runs. One that is not there yet is made only if the verb has a reason to."""
    if settings.backend.startswith("memory:"):
        raise InvalidSettings("memory:// lives inside one running process; name a stored backend with --backend")
    file = file_of(settings.backend)
    if file is not None and not file.exists() and not create:
        raise NotFound(f"there is no {file} yet; start `turnlane run` here, or name another store with --backend")
    backend = open_backend(settings.backend)
    try:
        await backend.open()
        yield backend
    finally:
        await backend.close()


async def acted(backend: Backend, settings: Settings, on: str, conversation: str | None = None) -> None:
    """Write down that the verb was obeyed. It has happened, so a store that fails just now does not make it undone."""
    verb = click.get_current_context().command_path.partition(" ")[2]
    untold = await write_down(backend, settings.this_machine, f"turnlane {verb} {on}", conversation)
    if untold is not None:
        click.echo(untold, err=True)


async def write_down(backend: Backend, machine: str, action: str, conversation: str | None) -> str | None:
    """Returns what to tell the operator if the store did not take it down."""
    facts: dict[str, Fact] = {"action": action[:ACTION_CHARACTERS_MAX], "by": "cli", "from": machine, "status": 0}
    try:
        await backend.note("operator.acted", conversation, **facts)
    except BackendError as error:
        return f"it is done, but the store did not take down that you did it: {error}"
    return None


def server_of(settings: Settings) -> str:
    """Where a server that listens as these settings say is found from this machine."""
    return f"http://{_reachable(settings.listen.host)}:{settings.listen.port}"


def _reachable(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"


async def workers_live(backend: Backend, now: int) -> int:
    """How many workers are at work. One that was lost still counts as live in the store until somebody notices."""
    return sum(worker.live and worker.alive_until >= now for worker in await backend.workers())


def file_of(url: str) -> Path | None:
    """The file of an SQLite store: `turnlane.db` of `sqlite:///turnlane.db`."""
    if not url.startswith("sqlite:"):
        return None
    from turnlane.backends.sqlite.file import Location

    return Location(url).path


def conversation_named(text: str) -> str:
    """A key as the store has it, from what was typed: `site/alice smith` is `site/alice%20smith`."""
    channel, _, room = text.partition("/")
    if not is_utf8(text):
        raise click.BadParameter("the conversation is not valid UTF-8; set the terminal to UTF-8 and type it again")
    if not channel or not room:
        raise click.BadParameter(f"{text!r} is no conversation; write CHANNEL/ROOM, such as web/alice")
    return key_written(text)


def is_utf8(typed: str) -> bool:
    """Bytes of the command line that are not UTF-8 arrive as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in typed)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; Ctrl-C cancels it, lets it tidy up, and raises KeyboardInterrupt.

    The loop hears of Ctrl-C between two steps. The handler of asyncio.run cancels in the middle of one, and if that one
    was to hand over an answer, a traceback is shown.
    """

    async def heard() -> T:
        task = asyncio.current_task()
        assert task is not None
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        return await main

    try:
        return asyncio.run(heard())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def echo_json(value: object) -> None:
    click.echo(to_json(value))
