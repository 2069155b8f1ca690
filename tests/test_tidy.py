"""House rules that no linter knows, as tests: one function a rule, and each rule is shown an offence it must see."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 60
SLEEP_SECONDS_MAX = 0.05

NOT_OURS = {".git", ".venv", "venv", "build", "dist", "node_modules", "__pycache__", ".hypothesis"}
LOCK_FILES = {
    "Pipfile.lock",
    "package-lock.json",
    "pdm.lock",
    "pnpm-lock.yaml",
    "poetry.lock",
    "pylock.toml",
    "uv.lock",
    "yarn.lock",
}
MAY_NAME_REGISTRIES = {"README.md", "CHANGELOG.md"}
# Put together from parts, so that this file does not name them either.
REGISTRIES = [
    ".".join(parts).encode()
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"))
]

TIME_AND_CHANCE = re.compile(
    r"time\.(time|monotonic|perf_counter)(_ns)?"
    r"|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|random(\.\w+)*"
    r"|secrets\.(token_\w+|choice|randbelow|randbits)"
    r"|uuid\.uuid[14]"
    r"|os\.urandom"
)
HAS_ITS_OWN_TIME = re.compile(r"src/turnlane/(clock\.py|cli/hook\.py|testing/.*|benchmarks?/.*|.*/bench\.py)")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Offences = Iterator[tuple[int, str]]
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """One Python file; its path is relative to the root of the repository."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def each(self, kind: type[Node]) -> Iterator[Node]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    def comments_at(self, line: int) -> str:
        """What the comments on this line and the one before it say, apart from lint codes."""
        comments = [text.partition("#")[2] for text in self.text.splitlines()[max(line - 2, 0) : line]]
        return re.sub(r"noqa(: *[A-Z]+\d+(, *[A-Z]+\d+)*)?", "", " ".join(comments)).strip(" -:")

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every imported name in full: `from time import sleep` is `time.sleep`."""
        for plain in self.each(ast.Import):
            yield from ((plain.lineno, alias.name) for alias in plain.names)
        for node in self.each(ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


# The rules ------------------------------------------------------------------------------------------------------------


def opens_with_a_sentence(source: Source) -> Offences:
    first = (ast.get_docstring(source.tree) or "").partition("\n")[0]
    if not re.fullmatch(r"[A-Z0-9`].* .*[.?!]", first):
        yield 1, "the first line of a module is a docstring, and a whole sentence"


def prints_only_in_the_command_line(source: Source) -> Offences:
    if source.path.startswith("src/turnlane/cli/"):
        return
    for call in source.each(ast.Call):
        if ast.unparse(call.func) == "print":
            yield call.lineno, "print() belongs to cli/; elsewhere emit an event"


def says_why_it_catches_everything(source: Source) -> Offences:
    for handler in source.each(ast.ExceptHandler):
        caught = ast.unparse(handler.type) if handler.type else ""
        if not caught:
            yield handler.lineno, "a bare except also catches cancellation; name what you can decide about"
        elif re.search(r"\b(Base)?Exception\b", caught) and not source.comments_at(handler.lineno):
            yield handler.lineno, f"except {caught} needs a comment that says why, here or on the line before"


def takes_time_and_chance_from_the_clock(source: Source) -> Offences:
    if HAS_ITS_OWN_TIME.fullmatch(source.path):
        return
    used = [(node.lineno, ast.unparse(node)) for node in source.each(ast.Attribute)]
    for line, name in [*source.imports(), *used]:
        if TIME_AND_CHANCE.fullmatch(name):
            yield line, f"{name}: time and chance come from turnlane.clock, so that a seed replays a failure"


def ends_when_it_is_cancelled(source: Source) -> Offences:
    if source.path.startswith("src/turnlane/testing/"):
        return
    for call in source.each(ast.Call):
        if ast.unparse(call.func) == "asyncio.wait_for":
            yield (
                call.lineno,
                "wait_for of Python 3.11 may miss that it is cancelled: event_loop.happens, asyncio.timeout",
            )


def keeps_the_model_pure(source: Source) -> Offences:
    if not source.path.startswith("src/turnlane/model/"):
        return
    for line, name in source.imports():
        standard = name.partition(".")[0] in sys.stdlib_module_names and not name.startswith("asyncio")
        if not standard and not re.match(r"turnlane\.(model|errors)\b", name):
            yield line, f"{name}: model/ knows the standard library (no asyncio), turnlane.model and turnlane.errors"


def keeps_functions_short(source: Source) -> Offences:
    functions: list[Function] = [*source.each(ast.FunctionDef), *source.each(ast.AsyncFunctionDef)]
    for function in functions:
        lines = length_without_docstring(function)
        if lines > FUNCTION_LINES_MAX:
            yield function.lineno, f"{function.name} has {lines} lines; the most is {FUNCTION_LINES_MAX}"


def length_without_docstring(function: Function) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def says_what_it_waits_for(source: Source) -> Offences:
    for call in source.each(ast.Call):
        match call:
            case ast.Call(args=[ast.Constant(value=int() | float() as seconds), *_]) if (
                ast.unparse(call.func) in {"time.sleep", "asyncio.sleep", "sleep"} and seconds >= SLEEP_SECONDS_MAX
            ):
                if not re.search(r"\bwaits: *\w", source.comments_at(call.lineno)):
                    yield call.lineno, f"sleep({seconds}) needs `# waits:` and the reason; a signal is better"


# Applied to every file ------------------------------------------------------------------------------------------------

Rule = Callable[[Source], Offences]
FOR_THE_PACKAGE: list[Rule] = [
    opens_with_a_sentence,
    prints_only_in_the_command_line,
    says_why_it_catches_everything,
    takes_time_and_chance_from_the_clock,
    ends_when_it_is_cancelled,
    keeps_the_model_pure,
    keeps_functions_short,
]
FOR_THE_TESTS: list[Rule] = [says_why_it_catches_everything, says_what_it_waits_for]


@pytest.mark.parametrize("rule", FOR_THE_PACKAGE)
def test_the_package_is_tidy(rule: Rule) -> None:
    assert offences_in("src/turnlane", rule) == []


@pytest.mark.parametrize("rule", FOR_THE_TESTS)
def test_the_tests_are_tidy(rule: Rule) -> None:
    assert offences_in("tests", rule) == []


def test_nothing_is_tied_to_a_package_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)} names {host.decode()}"
        for path in our_files()
        if path.name not in MAY_NAME_REGISTRIES
        for host in REGISTRIES
        if host in path.read_bytes()
    ]
    assert named == []


def test_requirements_carry_no_address() -> None:
    assert re.findall(r"^-.*|.*://.*", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE) == []


def test_there_are_no_lock_files() -> None:
    assert [path for path in our_files() if path.name in LOCK_FILES] == []


def offences_in(folder: str, rule: Rule) -> list[str]:
    return [
        f"{source.path}:{line}: {what}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for source in [Source(path.relative_to(ROOT).as_posix(), path.read_text())]
        for line, what in rule(source)
    ]


def our_files() -> Iterator[Path]:
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in NOT_OURS and not name.endswith("_cache")]
        # Databases of a running Turnlane come and go beside the sources.
        yield from (Path(folder, name) for name in names if ".db" not in name)


# The rules see --------------------------------------------------------------------------------------------------------

ELSEWHERE = "src/turnlane/flow/example.py"
MODEL = "src/turnlane/model/example.py"


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (opens_with_a_sentence, ELSEWHERE, "import os"),
        (opens_with_a_sentence, ELSEWHERE, '"""Helpers"""'),
        (opens_with_a_sentence, ELSEWHERE, '"""A sentence that goes on\nin the next line."""'),
        (prints_only_in_the_command_line, ELSEWHERE, "print('here')"),
        (says_why_it_catches_everything, ELSEWHERE, "try: ...\nexcept: ..."),
        (says_why_it_catches_everything, ELSEWHERE, "try: ...\nexcept Exception: ..."),
        (
            says_why_it_catches_everything,
            ELSEWHERE,
            "try: ...\nexcept (OSError, Exception) as e:  # noqa: BLE001\n ...",
        ),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "import random"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "from random import choice"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "from time import monotonic"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "x = time.time()"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "x = datetime.now(UTC)"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "key = uuid.uuid4()"),
        (ends_when_it_is_cancelled, ELSEWHERE, "await asyncio.wait_for(event.wait(), 1)"),
        (keeps_the_model_pure, MODEL, "import asyncio"),
        (keeps_the_model_pure, MODEL, "from msgspec import Struct"),
        (keeps_the_model_pure, MODEL, "from turnlane.clock import Clock"),
        (keeps_functions_short, ELSEWHERE, "def long():\n" + "    ...\n" * FUNCTION_LINES_MAX),
        (says_what_it_waits_for, "tests/test_example.py", "time.sleep(1)"),
        (says_what_it_waits_for, "tests/test_example.py", "await asyncio.sleep(0.05)  # a moment"),
    ],
)
def test_each_rule_sees_its_offence(rule: Rule, path: str, text: str) -> None:
    assert len(list(rule(Source(path, text)))) == 1


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (opens_with_a_sentence, ELSEWHERE, '"""One line that says what lives here."""'),
        (prints_only_in_the_command_line, "src/turnlane/cli/show.py", "print('a table')"),
        (says_why_it_catches_everything, ELSEWHERE, "try: ...\n# An agent may raise anything.\nexcept Exception: ..."),
        (says_why_it_catches_everything, ELSEWHERE, "try: ...\nexcept OSError: ..."),
        (takes_time_and_chance_from_the_clock, "src/turnlane/clock.py", "import random"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "x = clock.random() + clock.monotonic()"),
        (takes_time_and_chance_from_the_clock, ELSEWHERE, "from uuid import uuid5\nfrom secrets import compare_digest"),
        (
            keeps_the_model_pure,
            MODEL,
            "from turnlane.errors import InvalidMessage\nimport turnlane.model.lane\nimport re",
        ),
        (ends_when_it_is_cancelled, ELSEWHERE, "self.wait_for(answer)"),
        (keeps_the_model_pure, ELSEWHERE, "import asyncio"),
        (keeps_functions_short, ELSEWHERE, "def short():\n    '''" + "\n" * FUNCTION_LINES_MAX + "'''\n    ..."),
        (
            says_what_it_waits_for,
            "tests/test_example.py",
            "time.sleep(1)  # waits: for a real lease of one second to end",
        ),
        (says_what_it_waits_for, "tests/test_example.py", "await asyncio.sleep(0)"),
    ],
)
def test_no_rule_sees_ghosts(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []
