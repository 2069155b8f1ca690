"""`turnlane alerts`: what needs an operator, and the same for Prometheus and Grafana."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import click
import msgspec

from turnlane.cli import common
from turnlane.cli.main import EXIT_UNAVAILABLE, Failed
from turnlane.outgoing import Answer, Outgoing
from turnlane.settings import Settings, revealed, thresholds_of

ANSWER_SECONDS_MAX = 10.0
COLOURS = {"critical": "red", "warning": "yellow", "info": "cyan"}

Shown = Mapping[str, Any]


@click.group(cls=common.ListUnlessTold)
def command() -> None:
    """What needs an operator. Alone it asks the running server what is raised now."""


@command.command("list")
@common.as_json
@common.reaches_server
def list_alerts(given: common.Given, as_json: bool) -> None:
    """List what is raised now, the worst first, and what to do about it."""
    settings = given.load()
    found = asyncio.run(_asked(settings))
    if as_json:
        common.echo_json(found)
        return
    for line in _lines(found):
        click.echo(line)


@command.command("rules")
@common.reads_settings
def rules(given: common.Given) -> None:
    """Write the rules for Prometheus, with the thresholds of your settings."""
    from turnlane.observe.prometheus_rules import prometheus_rules

    click.echo(prometheus_rules(thresholds_of(given.load())), nl=False)


@command.command("dashboard")
def dashboard() -> None:
    """Write the dashboard for Grafana."""
    click.echo(files("turnlane.observe").joinpath("shipped", "turnlane-dashboard.json").read_text("utf-8"), nl=False)


async def _asked(settings: Settings) -> Shown:
    server, token, outgoing = common.server_of(settings), revealed(settings.operator_token), Outgoing()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        answer = await outgoing.get(f"{server}/api/alerts", headers=headers, timeout=ANSWER_SECONDS_MAX)
    finally:
        await outgoing.close()
    if not isinstance(answer, Answer):
        step = "start `turnlane run`, or name the address of another server with --listen"
        raise Failed(f"no server answers on {server}; {step}", EXIT_UNAVAILABLE)
    if answer.status == 401:
        raise Failed(f"{server} wants the operator token; set operator_token as its own settings do")
    try:
        found: Shown = msgspec.json.decode(answer.body, type=dict[str, list[dict[str, Any]]])
        found["alerts"], found["recent"]
    except (msgspec.DecodeError, KeyError):
        raise Failed(f"what answers on {server} is no Turnlane server; name another with --listen") from None
    return found


def _lines(found: Shown) -> list[str]:
    return [line for alert in found["alerts"] for line in _told(alert)] or ["nothing needs you"]


def _told(alert: Shown) -> list[str]:
    severity = click.style(alert["severity"], fg=COLOURS.get(alert["severity"]))
    head = f"{severity} {alert['alert']} since {alert['since']}"
    return [head, f"  {alert['text']}", f"  next: {alert['next_step']}"]
