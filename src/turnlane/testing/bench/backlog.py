"""W3: does a long queue of waiting lanes slow down the front of it?"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

from turnlane import event_loop
from turnlane.testing.bench.engine import Engine, conversations, engine, message, policy
from turnlane.testing.bench.ground import Ground
from turnlane.testing.bench.report import Sample
from turnlane.testing.bench.scale import Scale
from turnlane.testing.bench.witness import WrongResult

ARRIVALS_PER_CALL = 500


def backlog(scale: Scale, ground: Ground) -> Iterator[Sample]:
    small = event_loop.run(_drain_rate(ground.store("backlog-small"), scale.backlog_small, scale))
    large = event_loop.run(_drain_rate(ground.store("backlog-large"), scale.backlog, scale))
    again = event_loop.run(_drain_rate(ground.store("backlog-again"), scale.backlog_small, scale))
    rate_small = (small + again) / 2
    detail = {"lanes": scale.backlog, "turns_per_second_small": rate_small, "turns_per_second_large": large}
    yield Sample("backlog", large / rate_small, detail)


async def _drain_rate(url: str, lanes: int, scale: Scale) -> float:
    """Fill the lanes while nobody works, and close: what filling left in memory would favour the short queue. Then
    open again and time the first turns."""
    async with engine(url, policy()) as filling:
        arrivals = [message(conversation, 1) for conversation in conversations(lanes)]
        for first in range(0, lanes, ARRIVALS_PER_CALL):
            await filling.say_all(arrivals[first : first + ARRIVALS_PER_CALL])
    del arrivals
    async with engine(url, policy()) as ours:
        ours.said = filling.said
        gc.collect()
        async with ours.working(scale.slots_many):
            await ours.witness.answered(scale.drained)
            finished = time.perf_counter()
        _check(ours)
        return scale.drained / (finished - ours.witness.record.runs[0].began)


def _check(ours: Engine) -> None:
    """Some lanes still wait, which is as it should be; those that ran did so once, the longest waiting first."""
    ran = [run.conversation for run in ours.witness.record.runs]
    if set(ran) != set(list(ours.said)[: len(ran)]):
        raise WrongResult("the backlog was not drained from its front; look at the order of due lanes")
    ours.said = {conversation: ours.said[conversation] for conversation in ran}
    ours.check()
