"""A whole storm, from its start to its report: on an instance of its own, or on one that runs."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from turnlane.errors import InvalidInput
from turnlane.http.listen import is_loopback
from turnlane.testing.evidence import gather, what_happened
from turnlane.testing.live.arrivals import MESSAGES_MAX, Plan, arrivals
from turnlane.testing.live.instance import Instance, answer_in
from turnlane.testing.live.report import Report, quantile
from turnlane.testing.live.storm import Storm, Target
from turnlane.testing.outside import NO_ANSWER, ask

LOOK_SECONDS = 1.0
COUNTED = ("messages_waiting", "deliveries_waiting", "deliveries_failed", "dead_letters", "workers_live")

Say = Callable[[str], None]
"""`tell`: whole sentences, where to look first of all. `progress`: how it goes, every second."""


class Lasted(NamedTuple):
    """Seconds from the first message to the last, and to the last answer."""

    writing: float
    answering: float


def checked(plan: Plan) -> Plan:
    if plan.messages > MESSAGES_MAX:
        raise InvalidInput(
            f"{plan.messages:,} messages are more than the {MESSAGES_MAX:,} of one storm; lower --rate or --seconds"
        )
    return plan


async def storm_on_its_own(
    plan: Plan, *, over: asyncio.Event, tell: Say, progress: Say, left: asyncio.Event | None = None
) -> Report:
    """Start an instance, storm it, wait for all answers, end it, and judge. `over` ends the storm early; with `left`,
    the instance stays up until that is set."""
    checked(plan)
    with tempfile.TemporaryDirectory(prefix="turnlane-live-") as folder:
        async with Instance(plan, Path(folder)) as instance:
            tell(f"look at it move: {instance.url}/console")
            storm = Storm(instance.target)
            lasted = await _live(plan, storm, instance, over, progress)
            if left is not None:
                tell(f"the storm is over, and {instance.url}/console stays up until Ctrl-C")
                await left.wait()
            await instance.end()
        return await asyncio.to_thread(judge, plan, storm, instance, lasted)


async def _live(plan: Plan, storm: Storm, instance: Instance, over: asyncio.Event, progress: Say) -> Lasted:
    def how() -> str:
        waiting = len(storm.accepted_at) - len(instance.answered_at)
        killed = f", {instance.kills} workers killed" if plan.kill_every else ""
        return f"{storm.happened['sent']:,} messages sent, {max(waiting, 0):,} of them wait for their answer{killed}"

    began = time.monotonic()
    async with _telling(how, progress):
        killing = asyncio.create_task(instance.kill_workers(over))
        try:
            await _blow(storm, plan, over)
            seconds = time.monotonic() - began
        finally:
            over.set()
            await killing
        await instance.all_answered(len(storm.accepted_at))
    return Lasted(seconds, time.monotonic() - began)


async def _blow(storm: Storm, plan: Plan, over: asyncio.Event) -> None:
    """No longer than the plan says, also if the instance does not keep up."""
    ending = asyncio.get_running_loop().call_later(plan.seconds, over.set)
    try:
        await storm.blow(arrivals(plan), over)
    finally:
        ending.cancel()


@asynccontextmanager
async def _telling(how: Callable[[], str], progress: Say) -> AsyncIterator[None]:
    began = time.monotonic()

    async def tell() -> None:
        while True:
            # waits: once a second is often enough to be read
            await asyncio.sleep(LOOK_SECONDS)
            progress(f"{time.monotonic() - began:4.0f} s  {how()}")

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


def judge(plan: Plan, storm: Storm, instance: Instance, lasted: Lasted) -> Report:
    """By what was accepted, what arrived, and the rows of the store. Not to be called where an event loop runs."""
    world = instance.outside
    conversations = gather(
        storm.said,
        store=instance.store,
        calls=world.calls,
        replies=world.replies,
        requests=world.requests,
        says=answer_in,
    )
    broken = [violation for each in conversations for violation in each.violations()]
    events = what_happened(instance.store)
    waited = [at - storm.accepted_at[each] for each, at in instance.answered_at.items() if each in storm.accepted_at]
    figures = {
        **_posted(storm, lasted.writing),
        "conversations": len(conversations),
        "turns": sum(len(each.turns) for each in conversations),
        "answers": len(world.replies),
        "answers sent again under their key": len(world.requests) - len(world.replies),
        "runs of the agent that failed": events["turn.retried"],
        "turns and sendings given back": events["turn.released"] + events["delivery.released"],
        "workers killed (SIGKILL)": instance.kills,
        "turns and sendings taken over": events["turn.lost"] + events["delivery.lost"],
        "events a second": round(sum(events.values()) / lasted.answering),
        "seconds to the answer, p50": quantile(waited, 0.5),
        "seconds to the answer, p95": quantile(waited, 0.95),
    }
    title = f"{plan.customers:,} customers for {lasted.writing:.0f} s, seed {plan.seed}"
    return Report(title, figures, [*instance.problems, *broken])


def _posted(storm: Storm, seconds: float) -> dict[str, int | float]:
    return {
        **{name: storm.happened[name] for name in ("sent", "accepted", "sent again", "duplicates", "rejected")},
        **{name: times for name, times in sorted(storm.happened.items()) if name.startswith("posts")},
        "messages a second": storm.happened["sent"] / seconds,
        "seconds behind the plan, at most": storm.late,
        "milliseconds to be accepted, p50": quantile(storm.took, 0.5) * 1_000,
        "milliseconds to be accepted, p95": quantile(storm.took, 0.95) * 1_000,
    }


async def storm_on_yours(
    plan: Plan,
    target: Target,
    *,
    over: asyncio.Event,
    tell: Say,
    progress: Say,
    token: str | None = None,
    owned: bool = False,
) -> Report:
    """Storm an instance that runs, and tell what it answered. Only on this machine, unless its host is `owned`."""
    checked(plan)
    refuse_strangers(target, owned=owned)
    before = await _counts(target, token)
    tell(f"look at it move: {target.url.rstrip('/')}/console")
    storm = Storm(target)
    began = time.monotonic()
    async with _telling(lambda: f"{storm.happened['sent']:,} messages sent", progress):
        await _blow(storm, plan, over)
    seconds = time.monotonic() - began
    after = await _counts(target, token)
    figures = {**_posted(storm, seconds), "conversations": len(storm.said), **_compared(before, after)}
    return Report(f"{plan.customers:,} customers on {target.url}, seed {plan.seed}", figures, judged=False)


def refuse_strangers(target: Target, *, owned: bool) -> None:
    host = host_of(target.url)
    if not owned and not is_loopback(host):
        raise InvalidInput(
            f"{host} is not this machine, and a storm there may be an attack; add --i-own-this-host only if it is yours"
        )


def host_of(url: str) -> str:
    with suppress(ValueError):
        address = urlsplit(url)
        if address.scheme in {"http", "https"} and address.hostname and address.port != 0:
            return address.hostname
    raise InvalidInput(f"{url!r} is no address of a server; write it like http://127.0.0.1:8484")


async def _counts(target: Target, token: str | None) -> Mapping[str, int]:
    """Of /api/counts: what waits, and what was given up. Nothing, if the operator's token is wanted and not given.

    Raises InvalidInput for whatever is no Turnlane: nobody else is to be stormed.
    """
    try:
        answer = await ask(f"{target.url.rstrip('/')}/api/counts", secret=token)
    except NO_ANSWER as error:
        raise InvalidInput(f"nobody answers at {target.url}; start it with `turnlane run` ({error})") from error
    if answer.status in {401, 403}:
        return {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        told = answer.json
        return {name: int(told[name]) for name in COUNTED} | {"lanes": sum(told["lanes"].values())}
    raise InvalidInput(f"what answers at {target.url} is no Turnlane; give the address that `turnlane run` tells")


def _compared(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | float]:
    """As it was before and is now."""
    return {
        f"{name.replace('_', ' ')} {when}": counts[name]
        for name in after
        for when, counts in (("before", before), ("after", after))
        if name in counts
    }
