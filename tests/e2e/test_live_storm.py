"""`turnlane simulate --live`: real processes under a short storm, one of them killed; and a storm on one that runs."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from turnlane.errors import InvalidInput
from turnlane.testing.live import Instance, Plan, Target, storm_on_its_own, storm_on_yours
from turnlane.testing.loopback import answers, loopback
from turnlane.testing.outside import NO_ANSWER, ask
from turnlane.testing.processes import COMMAND, SECONDS_MAX, surroundings

SHORT = Plan(customers=50, seconds=4, rate=30, think=0.3, failing=0.2, duplicates=0.2, seed=3, kill_every=2)


def quietly(text: str) -> None:
    """Nobody looks."""


async def test_a_storm_in_which_a_worker_is_killed_breaks_no_promise() -> None:
    told: list[str] = []
    report = await storm_on_its_own(SHORT, over=asyncio.Event(), tell=told.append, progress=quietly)
    assert report.violations == [], str(report)
    assert re.fullmatch(r"look at it move: http://127\.0\.0\.1:\d+/console", told[0])
    figures = report.figures
    assert figures["sent"] == figures["accepted"] > 0
    assert figures["sent again"] == figures["duplicates"] > 0
    assert figures["workers killed (SIGKILL)"] >= 1
    assert figures["runs of the agent that failed"] > 0
    assert 0 < figures["answers"] == figures["turns"] <= figures["sent"]


async def test_an_instance_that_runs_is_stormed_through_its_web_hook(tmp_path: Path) -> None:
    plan = Plan(customers=20, seconds=2, rate=30, workers=1, think=0)
    async with Instance(plan, tmp_path) as instance:
        report = await storm_on_yours(plan, instance.target, over=asyncio.Event(), tell=quietly, progress=quietly)
        stored = (await ask(f"{instance.url}/api/counts")).json
        assert not report.judged
        assert report.figures["sent"] == report.figures["accepted"] > 0
        assert report.figures["lanes before"] == 0
        assert report.figures["lanes after"] == report.figures["conversations"] == sum(stored["lanes"].values())
        for target, advice in (
            (Target(instance.url, "shop", "wrong"), "--secret-env"),
            (Target(instance.url, "nowhere"), "--channel"),
        ):
            with pytest.raises(InvalidInput, match=advice):
                await storm_on_yours(plan, target, over=asyncio.Event(), tell=quietly, progress=quietly)


async def test_nobody_there_is_said_at_once() -> None:
    gone = Target("http://127.0.0.1:9", "site")
    with pytest.raises(InvalidInput, match="nobody answers"):
        await storm_on_yours(SHORT, gone, over=asyncio.Event(), tell=quietly, progress=quietly)


async def somebody_runs(url: str) -> None:
    while True:
        if (await ask(f"{url}/api/counts")).json["lanes"].get("running"):
            return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("body", [b"hello", b"[]", b'{"lanes": 3}', b"{}"])
async def test_what_is_no_turnlane_is_not_stormed(body: bytes) -> None:
    async with loopback(answers(200, body)) as other:
        target = Target(other.url.removesuffix("/here"), "site")
        with pytest.raises(InvalidInput, match="is no Turnlane"):
            await storm_on_yours(SHORT, target, over=asyncio.Event(), tell=quietly, progress=quietly)
        assert [request.line.split()[:2] for request in other.requests] == [["GET", "/api/counts"]]


@asynccontextmanager
async def storming(folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """The command, and the address of its own instance, once somebody runs there."""
    options = ("--customers", "20", "--seconds", "3000", "--rate", "20", "--think", "0.1", "--json")
    # One that is killed leaves its file behind; here, where the test's own files are.
    environment = {**surroundings(), "TMPDIR": str(folder)}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "simulate", "--live", *options, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(SECONDS_MAX):
            first = (await process.stderr.readline()).decode()
            console = re.fullmatch(r"look at it move: (http://.*)/console\n", first)
            assert console is not None, first
            await somebody_runs(console[1])
            yield process, console[1]
            await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()


async def test_ctrl_c_ends_it_early_with_the_summary(tmp_path: Path) -> None:
    async with storming(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    assert report["figures"]["sent"] == report["figures"]["accepted"] > 0
    assert set(report["promises"].values()) == {0}
    assert report["broken"] == []


async def test_of_a_storm_that_is_killed_nothing_is_left_running(tmp_path: Path) -> None:
    async with storming(tmp_path) as (process, url):
        process.kill()
        await process.wait()
        await nobody_listens(url)


async def nobody_listens(url: str) -> None:
    while True:
        try:
            await ask(f"{url}/healthz")
        except ConnectionRefusedError:
            return
        except NO_ANSWER:
            continue
        await asyncio.sleep(0.02)
