"""`turnlane simulate --bot`: trouble for somebody's own bot, and the report on it."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click

from turnlane.cli import common
from turnlane.settings import Duration
from turnlane.testing.chaos import Plan, Report, load_bot, torture
from turnlane.testing.chaos.inside import LEASE_SECONDS, live_through

WORKERS_INSIDE = 3


def break_bot(name: str, plan: Plan, *, as_json: bool) -> int:
    """Live through the plan, tell what came out, and return the exit code. Without processes, all inside this one."""
    bot = load_bot(name)
    channels = ", ".join(bot.channels) or "it has none"
    click.echo(f"{name}: a witness stands in for its channels ({channels}); its agents run for real", err=True)
    if plan.processes:
        report = common.run(torture(name, plan, replay=_replay(name, plan)))
    else:
        inside = replace(plan, processes=WORKERS_INSIDE, lease=LEASE_SECONDS)
        report = common.run(live_through(bot, inside, replay=_replay(name, plan)))
    if as_json:
        common.echo_json(_shown(name, plan, report))
    else:
        click.echo(str(report))
    return 1 if report.broken else 0


def _replay(name: str, plan: Plan) -> str:
    words = ["turnlane", "simulate", "--bot", name, "--seed", str(plan.seed), "--processes", str(plan.processes)]
    words += ["--for", str(Duration(round(plan.seconds * 1_000)))]
    return shlex.join([*words, *(word for text in plan.texts for word in ("--say", text))])


def _shown(name: str, plan: Plan, report: Report) -> dict[str, object]:
    return {
        "bot": name,
        "seed": plan.seed,
        "processes": plan.processes,
        "seconds": plan.seconds,
        "happened": report.happened,
        "promises": report.verdict,
        "broken": [{"promise": each.promise, "owner": each.owner, "what": each.what} for each in report.broken],
        "notes": report.notes,
        "replay": report.replay,
    }
