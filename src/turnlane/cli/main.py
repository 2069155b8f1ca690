"""The command `turnlane`: finds the verb, and turns every foreseen error into a line and an exit code."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from turnlane import __version__, errors

VERBS = {
    "run": "Server, worker and chat page in one process.",
    "serve": "The server alone: takes messages in, runs no turns.",
    "worker": "A worker alone: runs turns and sends replies, opens no port.",
    "init": "Write a commented turnlane.toml.",
    "doctor": "Check everything and name the next step for each finding.",
    "send": "Put a message in, as the person.",
    "chat": "Talk to a running server from the terminal.",
    "top": "All lanes, live, and what to do about them.",
    "lanes": "List conversations and what each is doing.",
    "show": "Tell the story of one conversation.",
    "explain": "Tell what became of one message, step by step.",
    "tail": "Follow events as they happen.",
    "alerts": "What needs an operator; rules for Prometheus, a dashboard for Grafana.",
    "deadletters": "Turns that were given up on, and their messages.",
    "outbox": "What is to be sent, was sent, or could not be.",
    "usage": "What turns have used, in tokens and money.",
    "sessions": "What agents remember of conversations.",
    "transcripts": "What was said in Claude Code: list, search, export.",
    "workers": "List workers and the machines they run on.",
    "schedules": "What is said by the clock, and when next.",
    "settings": "What is in force, and from where; changed while it runs.",
    "hook": "Keep what Claude Code's sessions say.",
    "answer": "Answer the question of a turn, in the person's place.",
    "pause": "Start no more turns in a conversation.",
    "resume": "Let a paused or parked conversation go on.",
    "stop": "Set aside all that was said and not answered.",
    "retry": "Let what waits for its next attempt start now.",
    "skip": "Give up what a conversation is stuck in.",
    "policy": "Set how one conversation treats what comes while a turn runs.",
    "migrate": "Bring the store to this version's schema.",
    "backend": "Move everything to another store.",
    "simulate": "Try to break the engine, or a bot of your own; or see lanes move.",
    "bench": "Measure the engine against the limit of its store.",
}
"""Each verb is `turnlane.cli.<verb>:command`. The sentences stand here so that --help imports none of them."""
MODULES = {"hook": "hook_settings"}
"""But this one: hook.py is what Claude Code calls, and knows nothing of command lines."""

EXIT_NOT_THERE = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_UNUSABLE = 4
EXIT_WAITED = 5
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Failed(click.ClickException):
    """Shown as one or two lines on standard error, with its own exit code."""

    exit_code: int  # type: ignore[misc]  # click reads it from the instance

    def __init__(self, text: str, exit_code: int = EXIT_NOT_THERE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = import_module(f"turnlane.cli.{MODULES.get(name, name)}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            close = get_close_matches(args[0], VERBS, n=1)
            ctx.fail(f"no verb {args[0]!r}{f'; did you mean {close[0]!r}?' if close else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.TurnlaneError as error:
            raise Failed(str(error), exit_code_of(error)) from error
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has seen enough. What is still buffered must not fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(EXIT_BROKEN_PIPE)


def exit_code_of(error: errors.TurnlaneError) -> int:
    match error:
        case errors.InvalidInput():
            return EXIT_USAGE
        case errors.BackendUnavailable():
            return EXIT_UNAVAILABLE
        case errors.BackendError():
            return EXIT_UNUSABLE
    return EXIT_NOT_THERE


def show_version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"turnlane {__version__}")
        ctx.exit()


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=show_version, help="Say which.")
@click.pass_context
def turnlane(ctx: click.Context) -> None:
    """One lane per conversation. One turn at a time. Nothing lost, nothing said twice.

    With no settings at all, `turnlane run` serves a chat page on http://127.0.0.1:8484/.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # What people wrote is printed; no terminal's encoding may turn that into a traceback.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    turnlane(prog_name="turnlane")


if __name__ == "__main__":
    main()
