"""What the operator decides about Claude Code, as the program is told it: arguments, environment, folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from turnlane.errors import AgentRefused, InvalidSettings
from turnlane.model.value import value

PROGRAM = "claude"
VERSION_MIN = (2, 1, 248)
"""Older ones take what a customer writes for commands and file names, whatever they are told."""

INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ANTHROPIC_*",
)
"""What it gets of the environment that turnlane itself runs in, unless told otherwise."""

UNLESS_TOLD = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # What runs in the background would hold up the answer until it ends, and end with it.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
SPOKEN = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--verbose", "--include-partial-messages"),
)
OURS = {"-p", "--print", "-r", "--resume", "-c", "--continue", "--session-id", "--fork-session", "--resume-session-at"}
OURS |= {"--input-format", "--output-format", "--no-session-persistence"}

FOLDER_CHARACTERS_MAX = 200


@value
class Options:
    command: Sequence[str] = (PROGRAM,)
    model: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    allowed_tools: Sequence[str] = ()
    """What it may use without being asked, such as `Read` or `Bash(git log *)`. Other tools do not exist for it."""
    disallowed_tools: Sequence[str] = ()
    permission_mode: str | None = None
    max_turns: int | None = None
    budget_usd: float | None = None
    cwd: str | None = None
    config_dir: str | None = None
    settings: str | None = None
    setting_sources: Sequence[str] = ()
    mcp_config: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: Sequence[str] = INHERITED
    timeout: float | None = None
    tell_when_forgotten: str | None = None
    extra_args: Sequence[str] = ()

    def check(self) -> None:
        """Raises InvalidSettings for what cannot work."""
        for argument in self.extra_args:
            if argument.partition("=")[0] in OURS:
                raise InvalidSettings(f"extra_args: {argument} is decided for each turn; leave it out")
        if self.system_prompt is not None and self.append_system_prompt is not None:
            raise InvalidSettings(
                "system_prompt: takes the place of what append_system_prompt is put after; give one of them"
            )

    def arguments(self) -> Iterator[str]:
        """All but which session it is."""
        yield from SPOKEN
        yield from ("--setting-sources", ",".join(self.setting_sources))
        yield "--strict-mcp-config"
        yield from ("--tools", ",".join(dict.fromkeys(filter(None, map(_built_in, self.allowed_tools)))))
        # One flag with all its values, as the program would take a value of its own for one more of the first.
        for flag, values in (
            ("--allowedTools", self.allowed_tools),
            ("--disallowedTools", self.disallowed_tools),
        ):
            if values:
                yield from (flag, *values)
        for flag, given in (
            ("--model", self.model),
            ("--system-prompt", self.system_prompt),
            ("--append-system-prompt", self.append_system_prompt),
            ("--permission-mode", self.permission_mode),
            ("--max-turns", self.max_turns),
            ("--max-budget-usd", self.budget_usd),
            ("--settings", _absolute(self.settings)),
            ("--mcp-config", _absolute(self.mcp_config)),
        ):
            if given is not None:
                yield from (flag, str(given))
        yield from self.extra_args

    def environment(self, surroundings: Mapping[str, str]) -> dict[str, str]:
        """Nothing that is not meant: not the secrets of turnlane, not what a hook of Claude Code itself left there."""
        kept = {
            name: text
            for name, text in surroundings.items()
            if any(fnmatchcase(name, pattern) for pattern in self.inherit_env)
        }
        config = {} if self.config_dir is None else {"CLAUDE_CONFIG_DIR": str(Path(self.config_dir).absolute())}
        return {**UNLESS_TOLD, **kept, **config, **self.env}

    def folder(self, conversation: str) -> Path:
        """Where it works. With `{conversation}` in it, one for each conversation, whatever that is called."""
        folder = Path((self.cwd or ".").replace("{conversation}", _folder_name(conversation))).absolute()
        if not folder.is_dir() and "{conversation}" in (self.cwd or ""):
            folder.mkdir(parents=True)
        return folder


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where the program keeps its sessions."""
    if given := environment.get("CLAUDE_CONFIG_DIR"):
        return Path(given)
    return Path(environment.get("HOME") or Path.home()) / ".claude"


def program(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The program itself: what PATH finds, or the one inside of the package `claude-agent-sdk`."""
    found = found_program(command, environment)
    if found is None:
        raise AgentRefused(f"cannot find the program {command[0]!r}; `turnlane doctor` says where it was looked for")
    return found


def found_program(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    from shutil import which

    found = which(command[0], path=environment.get("PATH"))
    if found is None and command[0] == PROGRAM:
        found = which(str(_bundled()))
    return None if found is None else str(Path(found).absolute())


def _bundled() -> Path | None:
    from importlib.util import find_spec

    package = find_spec("claude_agent_sdk")
    return None if package is None or package.origin is None else Path(package.origin).parent / "_bundled" / PROGRAM


def _built_in(rule: str) -> str:
    """The tool that the rule is about. Nothing for one of an MCP server, which brings its own."""
    return "" if rule.startswith("mcp__") else rule.partition("(")[0]


def _absolute(path: str | None) -> str | None:
    """As it is seen from here; the program may run in another folder."""
    return None if path is None else str(Path(path).absolute())


def _folder_name(conversation: str) -> str:
    name = quote(conversation, safe="")
    if len(name) <= FOLDER_CHARACTERS_MAX:
        return name
    from hashlib import sha256

    digest = sha256(conversation.encode()).hexdigest()
    return f"{name[: FOLDER_CHARACTERS_MAX - len(digest) - 1]}-{digest}"
