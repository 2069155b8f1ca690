"""`turnlane simulate --bot`: finds the bot, refuses what is none with the next step, and reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnlane.cli.main import turnlane

GOOD = """
from turnlane import Bot, Terminal

bot = Bot(Terminal(), backend="sqlite:///own.db")
mute = Bot(Terminal())
alone = Bot()
number = 3


@alone.reply
@bot.reply
async def answer(turn):
    return f"You said: {turn.text}"
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a few modules in it, none of which is known to the next test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = {
        "good": GOOD,
        "runs": GOOD + "\nbot.run()\n",
        "needs": "import not_installed_anywhere\n",
        "raises": "1 / 0\n",
    }
    for name, text in modules.items():
        (tmp_path / f"shop_{name}.py").write_text(text)
    yield tmp_path
    for name in modules:
        sys.modules.pop(f"shop_{name}", None)


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(turnlane, ["simulate", *arguments])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop_good", "module:attribute"),
        ("shop_good:", "module:attribute"),
        ("shop_nowhere:bot", "run this in the folder that holds it"),
        ("shop_good:bott", "did you mean shop_good:bot?"),
        ("shop_good:number", "no Bot but int"),
        ("shop_good:mute", "@bot.reply"),
        ("shop_good:alone", "give it one, such as Bot(Terminal())"),
        ("shop_good.py:bot", "name its module: shop_good:bot"),
        ("shop/good.py:bot", "name its module: shop.good:bot"),
        ("shop_runs:bot", "if __name__"),
        ("shop_needs:bot", "install what it needs"),
        ("shop_raises:bot", "ZeroDivisionError"),
        ("nowhere.toml", "turnlane init"),
    ],
)
def test_what_is_no_bot_is_refused_with_the_next_step(name: str, says: str, shop: Path) -> None:
    result = simulate("--bot", name)
    assert result.exit_code == 2
    assert says in result.output
    assert not (shop / "own.db").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--for", "3s"], "--for is only for --bot"),
        (["--processes", "2"], "--processes is only for --bot"),
        (["--bot", "shop_good:bot", "--seeds", "3"], "--seeds is not for --bot"),
        (["--bot", "shop_good:bot", "--for", "3"], "with its unit"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments: list[str], says: str) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_a_bot_is_tried_inside_one_process(shop: Path) -> None:
    result = simulate("--bot", "shop_good:bot", "--processes", "0", "--for", "1s", "--seed", "3", "--say", "hi there")
    assert result.exit_code == 0, result.output
    assert "a witness stands in for its channels (terminal)" in result.output
    assert "every promise was kept" in result.output
    assert not (shop / "own.db").exists()


def test_a_settings_file_names_a_bot_too(shop: Path) -> None:
    (shop / "turnlane.toml").write_text('[lanes]\non_busy = "interrupt"\n')
    result = simulate("--bot", "turnlane.toml", "--processes", "0", "--for", "1s", "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["broken"], shown["bot"]) == (0, [], "turnlane.toml")
    assert shown["happened"]["turns answered"] > 0
    assert set(shown["promises"].values()) == {0}
