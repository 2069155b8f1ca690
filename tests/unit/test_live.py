"""A storm before it blows: who says what when, what its judge sees, and where it refuses to go."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnlane.backends.base import Arrival, open_backend
from turnlane.cli.main import turnlane as command
from turnlane.errors import InvalidInput
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied
from turnlane.model.turn import Reply as Answer
from turnlane.testing.evidence import Violation
from turnlane.testing.live import Instance, Plan, Report, Said, Storm, Target, arrivals
from turnlane.testing.live.arrivals import LINES_MAX, MESSAGES_MAX
from turnlane.testing.live.instance import answer_in
from turnlane.testing.live.report import quantile
from turnlane.testing.live.runs import Lasted, checked, judge, refuse_strangers
from turnlane.testing.outside import Call, Reply

PLAN = Plan(customers=200, seconds=60, rate=50, seed=7)


# Arrivals


def test_one_seed_is_one_storm() -> None:
    assert list(arrivals(PLAN)) == list(arrivals(PLAN))
    assert list(arrivals(PLAN)) != list(arrivals(replace(PLAN, seed=8)))


def test_messages_come_in_the_order_of_time_and_within_it() -> None:
    times = [said.at for said in arrivals(PLAN)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < PLAN.seconds


def test_there_are_about_as_many_as_the_rate_says() -> None:
    many = sum(not said.again for said in arrivals(PLAN))
    assert many == pytest.approx(PLAN.messages, rel=0.15)


def test_every_message_has_an_id_of_its_own_but_for_those_that_are_sent_again() -> None:
    said = list(arrivals(PLAN))
    first, again = [each for each in said if not each.again], [each for each in said if each.again]
    assert len({each.id for each in first}) == len(first)
    assert len(again) == pytest.approx(len(first) * PLAN.duplicates, rel=0.3)
    before = {each.id: each for each in first}
    assert all(before[each.id].at < each.at and before[each.id].text == each.text for each in again)


def test_people_write_in_bursts_and_then_are_quiet() -> None:
    gaps = [after.at - before.at for said in by_customer().values() for before, after in pairwise(said)]
    assert min(gaps) < 2.5 < max(gaps)
    assert sum(gap < 2.5 for gap in gaps) > len(gaps) / 3


def test_a_few_write_much_more_than_the_others() -> None:
    many = Counter({customer: len(said) for customer, said in by_customer().items()})
    assert len(many) == PLAN.customers, "everybody comes"
    [(_, most), *_] = many.most_common(1)
    assert most > 3 * many.total() / len(many)


def test_nobody_says_two_things_at_a_time_if_bursts_are_short() -> None:
    plan = replace(PLAN, lines_max=1, duplicates=0, customers=1_000, rate=10)
    assert max(len(said) for said in by_customer(plan).values()) < LINES_MAX * 2
    assert len(by_customer(plan)) == pytest.approx(10 * 60 * 0.85, rel=0.15), "nobody twice before everybody once"


def by_customer(plan: Plan = PLAN) -> dict[str, list[Said]]:
    found: dict[str, list[Said]] = defaultdict(list)
    for said in arrivals(plan):
        found[said.customer].append(said)
    return found


# The judge


KEY = "shop/anna-0001"


async def lived(folder: Path) -> None:
    """Two turns of one conversation, as workers would have run them."""
    backend = open_backend(f"sqlite:///{folder}/turnlane.db?synchronous=off")
    await backend.open()
    await backend.join("w", 60_000)
    for turn, ids in ((1, ("m-1", "m-2")), (2, ("m-3",))):
        said = [Message("shop", each, KEY, "anna", "hi") for each in ids]
        await backend.accept([Arrival(each, Policy(debounce_ms=0, max_wait_ms=0)) for each in said])
        [lease] = await backend.claim("w", Kind.TURN)
        await backend.commit(lease, Replied(Answer(answer_in(KEY, turn, lease.epoch))))
        [lease] = await backend.claim("w", Kind.OUT)
        await backend.commit(lease, Delivered())
    await backend.leave("w")
    await backend.close()


@pytest.fixture
def seen(tmp_path: Path) -> tuple[Storm, Instance]:
    """What a storm and its receiver saw of that."""
    asyncio.run(lived(tmp_path))
    storm = Storm(Target("http://127.0.0.1:1", "shop"))
    storm.said[KEY] = ["m-1", "m-2", "m-3"]
    storm.accepted_at = {"m-1": 0.0, "m-2": 1.0, "m-3": 5.0}
    instance = Instance(PLAN, tmp_path)
    instance.answered_at = {"m-1": 3.0, "m-2": 3.0, "m-3": 6.0}
    for turn, epoch, ids in ((1, 1, ("m-1", "m-2")), (2, 2, ("m-3",))):
        reply = Reply(f"key-{turn}", "anna-0001", turn, 1, answer_in(KEY, turn, epoch), ids)
        instance.outside.requests.append(reply)
        instance.outside.replies.append(reply)
        instance.outside.calls.append(Call({"conversation": KEY, "number": turn, "epoch": epoch}, turn, turn + 0.5))
    return storm, instance


def lose_one(storm: Storm, instance: Instance) -> None:
    instance.outside.replies.pop()


def forget_one(storm: Storm, instance: Instance) -> None:
    storm.said[KEY].append("m-4")


def say_one_twice(storm: Storm, instance: Instance) -> None:
    instance.outside.replies.append(replace(instance.outside.replies[-1], key="another"))


def swap_two(storm: Storm, instance: Instance) -> None:
    instance.outside.replies.reverse()


def let_a_stale_one_speak(storm: Storm, instance: Instance) -> None:
    instance.outside.replies[-1] = replace(instance.outside.replies[-1], text=answer_in(KEY, 2, 1))


def test_a_storm_that_was_weathered_breaks_no_promise(seen: tuple[Storm, Instance]) -> None:
    report = judge(PLAN, *seen, Lasted(10, 12))
    assert report.violations == []
    assert (report.figures["turns"], report.figures["answers"]) == (2, 2)
    assert report.figures["seconds to the answer, p50"] == 2.0
    assert "every promise was kept" in str(report)


@pytest.mark.parametrize(
    ("promise", "plant"),
    [
        ("lost", lose_one),
        ("lost", forget_one),
        ("doubled", say_one_twice),
        ("reordered", swap_two),
        ("overlapping", let_a_stale_one_speak),
    ],
)
def test_the_judge_finds_what_was_planted(
    seen: tuple[Storm, Instance], promise: str, plant: Callable[[Storm, Instance], None]
) -> None:
    plant(*seen)
    report = judge(PLAN, *seen, Lasted(10, 12))
    assert report.promises[promise] > 0
    assert "a promise was BROKEN" in str(report)


def test_quantiles_are_of_what_was_seen() -> None:
    assert quantile([], 0.5) == 0.0
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.95) == 95


# Where it goes


@pytest.mark.parametrize("url", ["http://127.0.0.1:8484", "http://localhost:1", "http://[::1]:80/"])
def test_this_machine_may_be_stormed(url: str) -> None:
    refuse_strangers(Target(url, "site"), owned=False)


@pytest.mark.parametrize("url", ["http://example.com", "https://10.0.0.7:8484", "http://127.0.0.1.example.com"])
def test_another_host_is_stormed_only_by_its_owner(url: str) -> None:
    with pytest.raises(InvalidInput, match="--i-own-this-host"):
        refuse_strangers(Target(url, "site"), owned=False)
    refuse_strangers(Target(url, "site"), owned=True)


@pytest.mark.parametrize("url", ["example.com", "ftp://127.0.0.1/", "http://", "http://[", "http://127.0.0.1:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no address"):
        refuse_strangers(Target(url, "site"), owned=True)


def test_a_storm_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match=f"{MESSAGES_MAX:,}"):
        checked(Plan(seconds=3_600, rate=2_000))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", "5"], "--rate is only for --live"),
        (["--live", "--seeds", "3"], "--seeds is not for --live"),
        (["--live", "--for", "3s"], "--for is not for --live"),
        (["--live", "--bot", "shop:bot"], "--bot and --live are two things"),
        (["--live", "--channel", "site"], "--channel is only for an instance that runs"),
        (["--live", "--url", "http://127.0.0.1:1", "--channel", "x", "--kill-workers"], "--kill-workers is only for"),
        (["--live", "--url", "http://127.0.0.1:1"], "--url needs --channel"),
        (["--live", "--url", "http://a.example", "--channel", "x"], "--i-own-this-host"),
        (["--live", "--url", "http://127.0.0.1:1", "--channel", "x", "--secret-env", "NO_SUCH"], "no NO_SUCH"),
        (["--live", "--seconds", "4000"], "4000"),
        (["--live", "--rate", "3000"], "3000"),
    ],
)
def test_what_makes_no_sense_is_refused_with_2(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(command, ["simulate", *arguments])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    ("violations", "exit_code", "verdict"),
    [([], 0, "every promise was kept"), ([("lost", "anna-0001-1 was accepted and never answered")], 1, "BROKEN")],
)
def test_a_broken_promise_is_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, violations: list[Violation], exit_code: int, verdict: str
) -> None:
    async def storm_on_its_own(plan: Plan, **asked: object) -> Report:
        return Report(f"seed {plan.seed}, {plan.kill_every}", {"sent": 3}, violations)

    monkeypatch.setattr("turnlane.testing.live.storm_on_its_own", storm_on_its_own)
    result = CliRunner().invoke(command, ["simulate", "--live", "--seed", "9", "--kill-workers"])
    assert result.exit_code == exit_code
    assert "seed 9, 10.0" in result.stdout
    assert verdict in result.stdout
    as_json = CliRunner().invoke(command, ["simulate", "--live", "--json"])
    assert as_json.exit_code == exit_code
    told = json.loads(as_json.stdout)
    assert told["promises"]["lost"] == len(told["broken"]) == len(violations)
