"""The chaos kit sees a bot that is broken on purpose, says whose promise it was, and lets a good one pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.channels.loopback import answers, loopback

from turnlane import Bot, Message, Reply, Turn
from turnlane.channels.base import Channel
from turnlane.errors import InvalidInput
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.policy import OnAsk, OnBusy
from turnlane.model.usage import Usage
from turnlane.settings import load
from turnlane.testing.chaos import PromiseBroken, Report, Witness, chaos, inside, judge
from turnlane.testing.chaos.inside import Faulty
from turnlane.testing.mutants import MUTANTS, planted

THINKS_SECONDS = 0.15
TRIES_MAX = 4
SEED_CUT_OFF_FIRST = 1
"""With it the first worker is cut off before it ever crashes."""


class Forbidden:
    """A platform that nobody may reach."""

    name = "shop"

    async def send(self, delivery: Delivery) -> SendResult:
        raise AssertionError("the bot's own channel was used")

    async def close(self) -> None:
        """Nothing is held."""


def bot_of(answer: Callable[[Turn], Any], channel: Channel | None = None, store: str = "memory://") -> Bot:
    bot = Bot(channel or Forbidden(), backend=store)
    bot.reply(answer)
    return bot


async def echo(turn: Turn) -> str:
    await asyncio.sleep(THINKS_SECONDS)
    return f"You said: {turn.text}"


async def in_two_parts(turn: Turn) -> Reply:
    await asyncio.sleep(THINKS_SECONDS)
    return Reply(["You said:", turn.text])


async def broken(bot: Bot, **options: Any) -> Report:
    """The report on a bot that is known to break a promise, in a few tries: what happens to it is up to chance."""
    for seed in range(1, TRIES_MAX + 1):
        try:
            await chaos(bot, **{"messages": 80, "seed": seed, **options})
        except PromiseBroken as seen:
            return seen.report
    pytest.fail(f"nothing was seen in {TRIES_MAX} tries")


def promises(report: Report) -> set[str]:
    return {finding.promise for finding in report.broken}


async def test_a_good_bot_keeps_every_promise_and_reaches_nobody(tmp_path: Path) -> None:
    store = tmp_path / "own.db"
    report = await chaos(bot_of(echo, store=f"sqlite:///{store}"), seed=7, messages=120)
    assert not store.exists(), "the bot's own store was opened"
    assert report.happened["messages accepted"] == 120
    assert set(report.verdict.values()) == {0}
    assert int(str(report.happened["answers of the store that were lost"])) > 0
    assert "every promise was kept" in str(report)


class Steerable:
    """Takes what is said meanwhile every other time."""

    def __init__(self) -> None:
        self._takes = cycle([True, False])

    async def respond(self, turn: Turn) -> Reply:
        return await in_two_parts(turn)

    async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
        return next(self._takes)

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    "lanes",
    [
        *({"on_busy": policy} for policy in get_args(OnBusy)),
        {"max_pending": "2", "on_full": "drop_oldest"},
        {"ack": "claim"},
        {"on_unknown": "hold"},
    ],
    ids=lambda lanes: ",".join(f"{key}={value}" for key, value in lanes.items()),
)
async def test_every_policy_keeps_every_promise_with_real_workers(lanes: dict[str, str]) -> None:
    settings = load(None, {f"TURNLANE_LANES_{key.upper()}": value for key, value in lanes.items()})
    await chaos(Bot(Forbidden(), agents={"one": Steerable()}, settings=settings), seed=3, messages=80)


class Streaming(Forbidden):
    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        raise AssertionError("the bot's own channel was used")


async def test_answers_that_are_shown_while_they_grow_arrive_once() -> None:
    async def streaming(turn: Turn) -> AsyncIterator[str]:
        for word in ("You", " said: ", turn.text):
            await asyncio.sleep(THINKS_SECONDS)
            yield word

    report = await chaos(bot_of(streaming, Streaming()), messages=40)
    assert int(str(report.happened["previews shown"])) > 0


@pytest.mark.parametrize("on_ask", get_args(OnAsk))
async def test_a_bot_that_asks_gets_its_answers(on_ask: str) -> None:
    async def careful(turn: Turn) -> str:
        answer = await turn.ask("Are you sure?", options=["yes", "no"])
        return f"You said {turn.text}, and then {answer.text}"

    bot = Bot(Forbidden(), settings=load(None, {"TURNLANE_LANES_ON_ASK": on_ask}))
    bot.reply(careful)
    report = await chaos(bot, messages=40, conversations=4)
    assert int(str(report.happened["turns answered"])) > 0


async def test_a_bot_can_be_tried_twice() -> None:
    bot = bot_of(lambda turn: f"You said: {turn.text}")
    for seed in (1, 2):
        await chaos(bot, seed=seed, messages=20)


async def test_an_agent_that_does_not_stop_is_seen() -> None:
    async def stubborn(turn: Turn) -> str:
        for _ in range(8):
            try:
                await asyncio.sleep(THINKS_SECONDS / 4)
            except asyncio.CancelledError:
                continue
        return "I never stop"

    report = await broken(bot_of(stubborn))
    assert promises(report) == {"stops when it is told to"}
    assert {finding.owner for finding in report.broken} == {"bot"}


async def test_a_bot_that_mixes_up_conversations_is_seen() -> None:
    heard = ["nothing yet"]

    async def forgetful(turn: Turn) -> str:
        heard.append(turn.text)
        return f"Before that I heard: {heard[-2]}"

    report = await broken(bot_of(forgetful), messages=40)
    assert promises(report) == {"keeps conversations apart"}


async def test_one_session_for_all_is_seen() -> None:
    report = await broken(bot_of(lambda turn: Reply("hello", session="the only one")), messages=40)
    assert promises(report) == {"keeps conversations apart"}
    assert "the only one" in str(report)


async def test_an_agent_that_hangs_is_seen() -> None:
    async def hangs(turn: Turn) -> str:
        await asyncio.Event().wait()
        return "never"

    report = await broken(bot_of(hangs), messages=10, patience=1)
    assert promises(report) == {"answers in time"}


async def test_an_agent_that_hung_until_its_worker_was_lost_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine loses leases, and with them runs that would never have ended: that all is answered is luck."""
    monkeypatch.setattr(judge, "HUNG_SECONDS_MIN", 0.5)
    monkeypatch.setattr(judge, "HUNG_TIMES_SLOWEST", 0)
    was_busy = False

    async def hangs_until_it_was_busy(turn: Turn) -> str:
        nonlocal was_busy
        if turn.conversation.endswith("person-0") and not was_busy:
            await asyncio.Event().wait()
        if turn.conversation.endswith("person-1") and not was_busy:
            await asyncio.sleep(1)  # waits: until the faults are over and the other has hung for a while
            was_busy = True
            time.sleep(1)  # noqa: ASYNC251 # waits: to block the loop; that loses the lease
        return "done"

    report = await broken(bot_of(hangs_until_it_was_busy), messages=6, conversations=2, processes=1, patience=20)
    assert promises(report) == {"answers in time"}
    assert "person-0: turn 1 hung for" in str(report)
    assert "were not answered" not in str(report)


class Twice:
    """A channel that sends everything twice, as one with retries of its own does."""

    name = "shop"

    def __init__(self, platform: Witness) -> None:
        self._platform = platform

    async def send(self, delivery: Delivery) -> SendResult:
        await self._platform.send(delivery)
        return await self._platform.send(delivery)

    async def close(self) -> None:
        """Nothing is held."""


class Liar(Twice):
    async def send(self, delivery: Delivery) -> SendResult:
        return Sent("of course")


@pytest.mark.parametrize("channel", [Twice, Liar])
async def test_a_channel_that_does_not_send_once_is_seen(channel: type[Twice]) -> None:
    witness = Witness()
    report = await broken(bot_of(echo, channel(witness)), witness=witness, messages=30)
    assert promises(report) == {"sends what it is handed, once"}


async def test_a_channel_of_ones_own_that_sends_well_passes() -> None:
    witness = Witness("shop")
    report = await chaos(bot_of(echo, witness), witness=witness, messages=30)
    assert report.happened["answers that left"] == report.happened["turns answered"]


async def test_what_an_agent_raises_is_told_and_breaks_nothing() -> None:
    async def moody(turn: Turn) -> str:
        if turn.messages[0].seq % 3 == 1:
            raise ValueError("not today")
        return "fine"

    report = await chaos(bot_of(moody), messages=40)
    assert int(str(report.happened["dead letters"])) > 0
    assert any("ValueError: not today" in note for note in report.notes)
    assert any("dead letters" in note for note in report.notes)


async def test_a_function_that_blocks_its_process_is_told() -> None:
    async def blocking(turn: Turn) -> str:
        if turn.number == 1 and turn.attempt == 1:
            time.sleep(0.4)  # noqa: ASYNC251 # waits: to block the loop; that is the mistake
        return "done"

    report = await chaos(bot_of(blocking), messages=20, conversations=2, lease=2)
    assert any("nothing could run in a process" in note for note in report.notes)


async def test_different_answers_to_one_turn_are_told() -> None:
    async def counting(turn: Turn) -> str:
        if turn.attempt == 1:
            raise ValueError("only the second time")
        return f"attempt {turn.attempt}"

    report = await chaos(bot_of(counting), messages=20)
    assert any("ran more than once" in note for note in report.notes)


@pytest.mark.parametrize(
    ("mistake", "promise"),
    [
        ("what came during the turn is forgotten", "nothing is lost"),
        ("a delivery is skipped", "nothing is lost"),
        ("parts leave in the wrong order", "order is kept"),
    ],
)
async def test_a_mistake_of_the_engine_is_called_the_engines(mistake: str, promise: str) -> None:
    with planted(next(mutant for mutant in MUTANTS if mutant.name == mistake)):
        report = await broken(bot_of(in_two_parts), patience=2)
    assert promise in promises(report)
    assert "turnlane" in {finding.owner for finding in report.broken}
    assert "Turnlane's" in report.conclusion


async def test_nobody_hears_of_made_up_people() -> None:
    """Neither whoever is told what people did, nor whoever is told when something is wrong."""
    async with loopback(answers(200)) as server:
        url = f"{server.url}/hook"
        settings = load(None, {"TURNLANE_ACTIVITY_URL": url, "TURNLANE_ALERTS_URL": url})
        bot = Bot(Forbidden(), settings=settings)
        bot.reply(lambda turn: Reply("hello", usage=Usage(2_000)))
        await chaos(bot, messages=20)
        assert server.requests == []


async def test_who_is_interrupted_does_not_wait_for_what_nobody_may_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or a test's time-out, while a worker is cut off and can give nothing back."""
    cut_off = asyncio.Event()

    class Watched(Faulty):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if (name, value) == ("cut", True):
                cut_off.set()

    monkeypatch.setattr(inside, "Faulty", Watched)
    trying = asyncio.create_task(chaos(bot_of(echo), messages=10_000, processes=1, seed=SEED_CUT_OFF_FIRST))
    await cut_off.wait()
    trying.cancel()
    await asyncio.wait([trying], timeout=10)
    assert trying.cancelled()


async def test_a_bot_without_an_answer_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"@bot\.reply"):
        await chaos(Bot(Forbidden(), backend="memory://"))


async def test_a_bot_without_a_channel_is_refused() -> None:
    bot = Bot(backend="memory://")
    bot.reply(echo)
    with pytest.raises(InvalidInput, match=r"give it one"):
        await chaos(bot)


WAITS_FOR_OTHERS = """
paused = true

[channels.shop]
kind = "whapi"
token = "t"
secret = "s"
rate = "1/m"
pause = "1h"
paused = true

[agents.one]
kind = "echo"
paused = true
"""


async def test_what_the_settings_hold_back_is_let_go(tmp_path: Path) -> None:
    """Nobody is sent anything, so no account must be spared; and what is paused shows nothing."""
    (tmp_path / "turnlane.toml").write_text(WAITS_FOR_OTHERS)
    report = await chaos(Bot.from_settings(load(tmp_path / "turnlane.toml", {})), messages=20, patience=20)
    assert int(str(report.happened["turns answered"])) > 0


async def test_a_budget_that_is_used_up_is_told_and_is_not_the_engines_fault() -> None:
    bot = Bot(Forbidden(), settings=load(None, {"TURNLANE_BUDGETS_DAY_TOKENS": "10"}))
    bot.reply(lambda turn: Reply("hello", usage=Usage(10)))
    report = await broken(bot, messages=30, patience=1)
    assert promises(report) == {"answers in time"}
    assert "the budget of the day is used up" in str(report)
