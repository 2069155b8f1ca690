"""What `import turnlane` gives: exactly the documented names, fully typed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnlane

ROOT = Path(__file__).parents[2]

DOCUMENTED = [
    "Answer",
    "Attachment",
    "Bot",
    "Command",
    "Echo",
    "Http",
    "Message",
    "Reply",
    "Terminal",
    "Turn",
    "TurnlaneError",
    "Usage",
    "Web",
    "Webhook",
]

USES = '''
"""What people write, checked as strictly as our own code."""
from collections.abc import AsyncIterator, Iterator

from turnlane import Bot, Reply, Terminal, Turn, Usage, Web, Webhook

bot = Bot(Terminal(), Web(), Webhook("site", secret="s"), backend="sqlite:///hello.db")


@bot.reply
async def answer(turn: Turn) -> str | Reply | None:
    if turn.session is None:
        return Reply(["one", "two"], session="s-1", usage=Usage(input_tokens=1))
    return "\\n".join(f"{m.sender}: {m.text}" for m in turn.messages) or None


def pieces(turn: Turn) -> Iterator[str]:
    yield turn.text


async def later(turn: Turn) -> AsyncIterator[str]:
    yield turn.text


Bot(backend="memory://").reply(pieces)
Bot(backend="memory://").reply(later)
reveal_type(answer)
reveal_type(bot.reply(pieces))
'''


WRONG = """
from turnlane import Bot, Reply, Turn

Bot(backend=3)
Reply(text=3)


def f(turn: Turn) -> None:
    turn.number = 4
    turn.txt
"""


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says to all of it, in one run and with the cache of the project's own."""
    folder = tmp_path_factory.mktemp("typing")
    for name, text in {"readme_bot.py": readme_bot(), "uses.py": USES, "wrong.py": WRONG}.items():
        (folder / name).write_text(text)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *(str(path) for path in sorted(folder.iterdir()))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return checked.stdout + checked.stderr


def readme_bot() -> str:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "@bot.reply" in block)


def test_the_public_names_are_exactly_the_documented_ones() -> None:
    assert sorted(turnlane.__all__) == DOCUMENTED
    assert sorted(set(dir(turnlane)) - {"__version__"}) == DOCUMENTED
    for name in DOCUMENTED:
        assert getattr(turnlane, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agent'"):
        _ = turnlane.Agent


def test_importing_the_package_imports_no_server_and_no_store() -> None:
    """A hook command starts at every event of a person at a keyboard."""
    heavy = {"starlette", "sqlite3", "asyncio", "msgspec", "click"}
    code = f"import sys, turnlane; print([name for name in sys.modules if name.split('.')[0] in {heavy}])"
    imported = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert imported.stdout.strip() == "[]"


def test_the_readmes_twelve_lines_type_check(verdict: str) -> None:
    assert len([line for line in readme_bot().splitlines() if line.strip()]) <= 12
    ast.parse(readme_bot())
    assert "readme_bot.py" not in verdict
    assert "checked 3 source files" in verdict


def test_what_people_write_type_checks_and_keeps_its_types(verdict: str) -> None:
    assert "uses.py" in verdict
    assert not re.search(r"uses\.py:\d+: error", verdict), verdict
    assert "Coroutine[Any, Any, str | turnlane.model.turn.Reply | None]" in verdict
    assert re.search(r"Revealed type is .def \(turn: turnlane\.model\.turn\.Turn\) -> .*Iterator\[.*str\]", verdict)


def test_wrong_use_is_seen_by_the_type_checker(verdict: str) -> None:
    wrong = sorted(int(line) for line in re.findall(r"wrong\.py:(\d+): error", verdict))
    assert wrong == [4, 5, 9, 10], verdict
