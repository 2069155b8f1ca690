"""Real processes of somebody's bot, killed and frozen while people write."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlane.testing.chaos import Plan, torture

BOT = """
import asyncio
import os

from turnlane import Bot, Terminal

bot = Bot(Terminal(), backend="sqlite:///own.db")
leaves = Bot(Terminal(), backend="sqlite:///own.db")
keeps_leaving = Bot(Terminal(), backend="sqlite:///own.db")
swallows = Bot(Terminal(), backend="sqlite:///own.db")
deaf = Bot(Terminal(), backend="sqlite:///own.db")


@bot.reply
async def answer(turn):
    await asyncio.sleep(0.05)
    return f"You said: {turn.text}"


@swallows.reply
async def swallow(turn):
    try:
        await asyncio.sleep(0.3)
    except asyncio.CancelledError:
        pass
    return "I was not stopped"


@deaf.reply
async def hear_nothing(turn):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@leaves.reply
async def leave(turn):
    if turn.attempt == 1 and turn.number == 1:
        os._exit(3)
    return "back again"


@keeps_leaving.reply
async def leave_once_a_turn(turn):
    if turn.attempt == 1:
        os._exit(3)
    return "back again"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tortured_shop.py").write_text(BOT)
    return tmp_path


@pytest.mark.slow
async def test_a_good_bot_keeps_every_promise_while_its_processes_are_killed_and_frozen(shop: Path) -> None:
    report = await torture("tortured_shop:bot", Plan(seconds=8, processes=2, seed=5))
    print(report)
    assert report.broken == [], str(report)
    assert report.happened["processes killed (SIGKILL)"]
    assert report.happened["processes frozen past the lease (SIGSTOP)"]
    assert not (shop / "own.db").exists()


async def test_a_bot_that_swallows_its_cancellation_is_seen(shop: Path) -> None:
    """A process that is killed or frozen tells nobody to stop: so processes are stopped, and so are conversations."""
    report = await torture("tortured_shop:swallows", Plan(seconds=6, processes=2))
    assert {finding.promise for finding in report.broken} == {"stops when it is told to"}, str(report)
    assert report.happened["conversations stopped by an operator"]


@pytest.mark.slow
async def test_a_bot_that_never_stops_is_seen_and_killed(shop: Path) -> None:
    report = await torture("tortured_shop:deaf", Plan(seconds=4, processes=1, conversations=2, patience=6))
    assert "stops when it is told to" in {finding.promise for finding in report.broken}, str(report)
    assert "and still ran after 15 s" in str(report)


async def test_a_bot_that_ends_its_process_is_seen(shop: Path) -> None:
    report = await torture("tortured_shop:leaves", Plan(seconds=3, processes=1, conversations=1))
    assert {finding.promise for finding in report.broken} == {"does not end its process"}
    assert "process 1 ended, and nobody had told it to:\n  (ended with 3)\n" in str(report)


async def test_what_waits_when_the_last_process_ends_itself_is_not_called_lost(shop: Path) -> None:
    """Once the faults are over nobody kills it any more, and so nobody started it again."""
    report = await torture("tortured_shop:keeps_leaving", Plan(seconds=3, processes=1, conversations=4, patience=30))
    assert {finding.promise for finding in report.broken} == {"does not end its process"}, str(report)
