"""`turnlane simulate --live`: a storm on an instance of its own or on yours, its options and how it is told."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from turnlane.cli import common
from turnlane.cli.main import EXIT_INTERRUPTED
from turnlane.testing.live.arrivals import CUSTOMERS_MAX, LINES_MAX, RATE_MAX, SECONDS_MAX, Plan

if TYPE_CHECKING:
    from turnlane.testing.live import Report

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT = Plan()
KILL_EVERY_SECONDS = 10.0
CLEAR_LINE = "\r\x1b[K"

_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--live", is_flag=True, help="Storm a real instance instead, so that its lanes move."),
    click.option("--url", metavar="URL", help="With --live: one that runs, like http://127.0.0.1:8484. Else its own."),
    click.option("--channel", metavar="NAME", help="With --url: the web hook channel to write to."),
    click.option("--secret-env", metavar="VARIABLE", help="With --url: where the channel's secret stands."),
    click.option("--token-env", metavar="VARIABLE", help="With --url: where the operator's token stands."),
    click.option("--i-own-this-host", "owned", is_flag=True, help="With --url: it may be another machine."),
    click.option(
        "--customers",
        type=click.IntRange(1, CUSTOMERS_MAX),
        default=DEFAULT.customers,
        show_default=True,
        metavar="N",
        help="With --live: how many write.",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(1, SECONDS_MAX),
        default=DEFAULT.seconds,
        show_default=True,
        help="With --live: for how long.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(0.1, RATE_MAX),
        default=DEFAULT.rate,
        show_default=True,
        help="With --live: messages a second, of all together.",
    ),
    click.option(
        "--duplicates",
        type=click.FloatRange(0, 1),
        default=DEFAULT.duplicates,
        show_default=True,
        metavar="SHARE",
        help="With --live: the share that the platform sends once more.",
    ),
    click.option(
        "--lines-max",
        type=click.IntRange(1, LINES_MAX),
        default=DEFAULT.lines_max,
        show_default=True,
        metavar="N",
        help="With --live: the longest burst of a customer.",
    ),
    click.option(
        "--think",
        type=click.FloatRange(0, 10),
        default=DEFAULT.think,
        show_default=True,
        metavar="SECONDS",
        help="With --live alone: how long the agent takes for most turns.",
    ),
    click.option(
        "--failing",
        type=click.FloatRange(0, 0.9),
        default=DEFAULT.failing,
        show_default=True,
        metavar="SHARE",
        help="With --live alone: the share of the agent's runs that fail.",
    ),
    click.option(
        "--kill-workers",
        is_flag=False,
        flag_value=KILL_EVERY_SECONDS,
        type=click.FloatRange(1, SECONDS_MAX),
        metavar="[SECONDS]",
        help=f"With --live alone: kill one of its workers (SIGKILL) every {KILL_EVERY_SECONDS:g} s, or so many.",
    ),
    click.option("--stay", is_flag=True, help="With --live alone: leave the instance up afterwards, until Ctrl-C."),
]

ONLY = {
    "url": "--url",
    "channel": "--channel",
    "secret_env": "--secret-env",
    "token_env": "--token-env",
    "owned": "--i-own-this-host",
    "customers": "--customers",
    "seconds": "--seconds",
    "rate": "--rate",
    "duplicates": "--duplicates",
    "lines_max": "--lines-max",
    "think": "--think",
    "failing": "--failing",
    "kill_workers": "--kill-workers",
    "stay": "--stay",
}
OWN_ONLY = ("think", "failing", "kill_workers", "stay")
YOURS_ONLY = ("channel", "secret_env", "token_env", "owned")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says about a storm."""

    live: bool
    url: str | None
    channel: str | None
    secret_env: str | None
    token_env: str | None
    owned: bool
    customers: int
    seconds: float
    rate: float
    duplicates: float
    lines_max: int
    think: float
    failing: float
    kill_workers: float | None
    stay: bool

    def plan(self, seed: int | None) -> Plan:
        return Plan(
            customers=self.customers,
            seconds=self.seconds,
            rate=self.rate,
            duplicates=self.duplicates,
            lines_max=self.lines_max,
            seed=1 if seed is None else seed,
            think=self.think,
            failing=self.failing,
            kill_every=self.kill_workers,
        )


def storms(function: Function) -> Function:
    """Hand the verb a `storm` made of its options."""

    @functools.wraps(function)
    def verb(*context: click.Context, **arguments: Any) -> Any:
        named = {name: arguments.pop(name) for name in Asked.__dataclass_fields__}
        return function(*context, storm=Asked(**named), **arguments)

    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb  # type: ignore[return-value]


def misplaced(asked: Asked) -> tuple[str, ...]:
    """Options that mean nothing where the storm goes."""
    return OWN_ONLY if asked.url is not None else YOURS_ONLY


def storm(ctx: click.Context, asked: Asked, *, seed: int | None, as_json: bool) -> int:
    """Storm it, tell how it goes and what came of it, and return the exit code."""
    if asked.url is not None and asked.channel is None:
        raise click.UsageError("--url needs --channel: the web hook channel of that instance to write to", ctx)
    secret, token = _of_environment(ctx, asked.secret_env), _of_environment(ctx, asked.token_env)
    return asyncio.run(_Teller(as_json).storm(asked, asked.plan(seed), secret, token))


def _of_environment(ctx: click.Context, name: str | None) -> str | None:
    if name is None:
        return None
    if not (value := os.environ.get(name)):
        raise click.UsageError(f"the environment has no {name}; set it, or name another variable", ctx)
    return value


class _Teller:
    """Ctrl-C ends the storm and leads to the summary; pressed again, it ends everything."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._over = asyncio.Event()
        self._left = asyncio.Event()
        self._live = sys.stderr.isatty() and not as_json

    async def storm(self, asked: Asked, plan: Plan, secret: str | None, token: str | None) -> int:
        self._heed_signals()
        try:
            report = await self._report(asked, plan, secret, token)
        except asyncio.CancelledError:
            self._tell("stopped at once; nothing was judged")
            return EXIT_INTERRUPTED
        self._tell("")
        if self._as_json:
            common.echo_json(report.shown)
        else:
            click.secho(str(report), fg="red" if report.violations else None)
        return 1 if report.violations else 0

    async def _report(self, asked: Asked, plan: Plan, secret: str | None, token: str | None) -> Report:
        from turnlane.testing.live import Target, storm_on_its_own, storm_on_yours

        teller: dict[str, Any] = {"over": self._over, "tell": self._tell, "progress": self._progress}
        if asked.url is None:
            return await storm_on_its_own(plan, **teller, left=self._left if asked.stay else None)
        target = Target(asked.url, asked.channel or "", secret)
        return await storm_on_yours(plan, target, **teller, token=token, owned=asked.owned)

    def _heed_signals(self) -> None:
        task = asyncio.current_task()
        assert task is not None

        def heard() -> None:
            if self._left.is_set():
                task.cancel()
                return
            self._tell("no more is sent; what was sent is still answered, and judged (Ctrl-C again: stop at once)")
            self._over.set()
            self._left.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, heard)

    def _tell(self, text: str) -> None:
        clear = CLEAR_LINE if self._live else ""
        click.echo(f"{clear}{text}" if text else clear, err=True, nl=bool(text))

    def _progress(self, text: str) -> None:
        if self._live:
            click.echo(f"{CLEAR_LINE}{text}", err=True, nl=False)
