"""`turnlane hook install|uninstall|status`: edits Claude Code's settings with care, and says how things stand."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from turnlane.cli import common, hook
from turnlane.errors import InvalidSettings

EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PostCompact", "SessionEnd")
"""What is enough: at each of these the transcript has grown. An event for each tool would cost the person time."""
TIMEOUT_SECONDS = 10
IDLE = "60s"
OURS = re.compile(r"turnlane[/\\]cli[/\\]hook\.py|\bturnlane(-hook| hook)\b")

WORKER_SETTINGS = """\
# Written by `turnlane hook install`: a worker that keeps what Claude Code's sessions say. Change it as you like.

backend = {backend}

[channels.claude-code]
kind = "claude_hooks"
spool = {spool}

[agents.transcripts]
kind = "transcripts"

[[routes]]
channel = "claude-code"
agent = "transcripts"
debounce = "2s"
max_wait = "2s"
"""

Settings = dict[str, Any]

_PLACE = [
    click.option("--user", "place", flag_value="user", default="user", help="In ~/.claude/settings.json (default)."),
    click.option("--project", "place", flag_value="project", help="In .claude/settings.json of this folder."),
]
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_SPOOL = click.option("--spool", type=click.Path(path_type=Path), metavar="FOLDER", help="Where events are kept.")


def placed(function: Any) -> Any:
    for option in reversed(_PLACE):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Keep what Claude Code's sessions say. Alone, `turnlane hook` takes one event from standard input."""


@command.command()
@placed
@_SPOOL
@_YES
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Settings with a channel of kind claude_hooks. Default: some are written beside the spool.",
)
def install(place: str, spool: Path | None, yes: bool, config: Path | None) -> None:
    """Let Claude Code tell its events. What stands in its settings stays; they are backed up, and shown before."""
    folder = (spool or Path(hook.default_spool())).expanduser().absolute()
    file = settings_file(place)
    before = read_settings(file)
    change(file, before, with_ours(before, hook_command(folder)), yes=yes)
    prepare(folder, config)
    click.echo(f"Claude Code tells its events to {folder}. Read them with `turnlane transcripts list`.")


@command.command()
@placed
@_YES
def uninstall(place: str, yes: bool) -> None:
    """Let Claude Code tell nothing any more. What was kept stays."""
    file = settings_file(place)
    before = read_settings(file)
    change(file, before, without_ours(before), yes=yes)


@command.command()
@_SPOOL
@common.as_json
def status(spool: Path | None, as_json: bool) -> None:
    """Whether it is installed, whether somebody listens, and what waits."""
    folder = (spool or Path(hook.default_spool())).expanduser()
    found = {
        "user": is_installed(read_settings(settings_file("user"))),
        "project": is_installed(read_settings(settings_file("project"))),
        "spool": str(folder),
        "waiting": len(list((folder / hook.NEW).glob("*.json"))) if (folder / hook.NEW).is_dir() else 0,
        "listening": hook.wake(str(folder)),
        "troubles": _last_lines(folder / hook.LOG),
    }
    if as_json:
        common.echo_json(found)
        return
    installed = [place for place in ("user", "project") if found[place]]
    click.echo(f"installed: {', '.join(installed) if installed else 'no; `turnlane hook install` does it'}")
    click.echo(f"spool:     {folder}, {found['waiting']} waiting")
    click.echo(f"listening: {'yes' if found['listening'] else 'nobody now; the next event starts a worker'}")
    for line in _last_lines(folder / hook.LOG):
        click.echo(f"trouble:   {line}")


# Claude Code's settings


def settings_file(place: str) -> Path:
    if place == "project":
        return Path.cwd() / ".claude" / "settings.json"
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser() / "settings.json"


def read_settings(file: Path) -> Settings:
    try:
        settings = json.loads(file.read_text("utf-8") or "{}")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{file} cannot be read, so nothing was changed; mend it first ({error})") from None
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise InvalidSettings(f"{file} is not like Claude Code's settings, so nothing was changed; mend it first")
    read: Settings = settings
    return read


def hook_command(spool: Path) -> str:
    """The file itself, without the packages around it: nothing starts faster."""
    words = [sys.executable, "-I", "-S", str(Path(hook.__file__).absolute()), "--spool", str(spool)]
    return shlex.join(words)


def with_ours(settings: Settings, line: str) -> Settings:
    """Ours comes once and last in each event, whatever was there of ours before."""
    changed = without_ours(settings)
    hooks = changed.setdefault("hooks", {})
    for event in EVENTS:
        ours = {"type": "command", "command": line, "timeout": TIMEOUT_SECONDS}
        hooks[event] = [*hooks.get(event, []), {"hooks": [ours]}]
    return changed


def without_ours(settings: Settings) -> Settings:
    changed: Settings = json.loads(json.dumps(settings))
    for event, groups in list(changed.get("hooks", {}).items()):
        kept = [group for group in map(_without_ours_in, groups) if group is not None]
        if kept or not groups:
            changed["hooks"][event] = kept
        else:
            del changed["hooks"][event]
    if "hooks" in changed and not changed["hooks"] and settings.get("hooks"):
        del changed["hooks"]
    return changed


def _without_ours_in(group: object) -> object | None:
    """None: there was nothing else in it."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    others = [each for each in group["hooks"] if not _is_ours(each)]
    if len(others) == len(group["hooks"]):
        return group
    return {**group, "hooks": others} if others else None


def _is_ours(each: object) -> bool:
    return isinstance(each, dict) and bool(OURS.search(str(each.get("command", ""))))


def is_installed(settings: Mapping[str, Any]) -> bool:
    groups = [group for event in EVENTS for group in settings.get("hooks", {}).get(event, [])]
    return any(_is_ours(each) for group in groups if isinstance(group, dict) for each in group.get("hooks", []))


def change(file: Path, before: Settings, after: Settings, *, yes: bool) -> None:
    """Show, ask, back up, write; or say that there is nothing to do."""
    if before == after:
        click.echo(f"{file} is as it should be; nothing was changed.")
        return
    old, new = (_written(settings) for settings in (before, after))
    click.echo(
        "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(file), str(file))), nl=False
    )
    if not yes:
        click.confirm("Change it like this?", abort=True)
    real = file.resolve()  # it may be a link into somebody's dotfiles, which stays one
    real.parent.mkdir(parents=True, exist_ok=True)
    if real.exists():
        backup = real.with_name(f"{real.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.backup")
        write_whole(backup, real.read_bytes(), real)
        click.echo(f"The old one is {backup}")
    write_whole(real, new.encode(), real)


def _written(settings: Settings) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n" if settings else ""


def write_whole(path: Path, data: bytes, like: Path) -> None:
    """All of it or nothing, with the rights of the other."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if like.exists():
            os.chmod(name, like.stat().st_mode & 0o777)
        os.replace(name, path)
    # Whatever stopped it, also Ctrl-C: nothing half written stays.
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# The spool, and the worker that an event may start


def prepare(spool: Path, config: Path | None) -> None:
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = config.absolute() if config is not None else spool.parent / "turnlane.toml"
    if not file.exists():
        backend = f"sqlite:///{spool.parent / 'turnlane.db'}"
        text = WORKER_SETTINGS.format(backend=json.dumps(backend), spool=json.dumps(str(spool)))
        write_whole(file, text.encode(), file)
    argv = [sys.executable, "-m", "turnlane.cli.main", "worker", "--config", str(file), "--until-idle", IDLE]
    start = spool / hook.START
    write_whole(start, json.dumps({"argv": argv}, indent=2).encode() + b"\n", start)


def _last_lines(log: Path) -> list[str]:
    try:
        return log.read_text("utf-8", errors="replace").splitlines()[-3:]
    except FileNotFoundError:
        return []
