"""C1–C3 and C8: `turnlane run --processes 4`, four processes that share one port, one file and the work."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.e2e.site import Site, children_of

from turnlane.testing.outside import Call, Outside
from turnlane.testing.processes import Turnlane


async def start_four(site: Site) -> Turnlane:
    four = await site.start("run", "--processes", "4")
    await four.said("worker.joined", times=4)
    return four


@pytest.mark.parametrize("window", ["2s", "5s"])
async def test_a_rapid_burst_of_one_customer_gives_one_turn_and_one_reply(
    site: Site, outside: Outside, window: str
) -> None:
    """C8, the first scenario; the window there is 65 s, and any length must work."""
    site.configure(debounce=window, lease=3)
    four = await start_four(site)
    await asyncio.gather(*(site.post(four, f"m{n}") for n in range(5)))
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert len(outside.calls) == len(outside.requests) == 1
    assert sorted(outside.replies[0].in_reply_to) == ["m0", "m1", "m2", "m3", "m4"]


async def test_four_customers_at_once_run_concurrently(site: Site, outside: Outside) -> None:
    """C8, the second scenario."""
    all_run = asyncio.Event()

    async def respond(call: Call) -> str:
        await all_run.wait()
        return f"hello {call.conversation}"

    outside.respond = respond
    site.configure(lease=3)
    four = await start_four(site)
    for process in "1234":
        await four.said("worker.joined", process=process)
    names = ["ann", "ben", "cem", "dia"]
    await asyncio.gather(*(site.post(four, f"from-{name}", conversation=name) for name in names))
    await outside.until(lambda: len(outside.calls) == 4)  # none of them has been answered
    all_run.set()
    await outside.until(lambda: len(outside.replies) == 4)
    assert sorted(reply.conversation for reply in outside.requests) == names


async def test_a_planted_stale_lock_is_cleaned_up_and_its_messages_are_answered(site: Site, outside: Outside) -> None:
    """C8, the third scenario, and C6: nobody is restarted."""
    site.configure(debounce="5s", lease=3)
    four = await start_four(site)
    await site.post(four, "m1", "m2")
    site.rows(
        "UPDATE lane SET owner = 'a-worker-of-last-week', claimed_at = 1, epoch = 7, number = 1, attempt = 1,"
        " claim_seq = next_seq, first_at = NULL, due_at = NULL"
    )
    await four.said("turn.lost", worker="a-worker-of-last-week")
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert [reply.in_reply_to for reply in outside.requests] == [("m1", "m2")]
    assert site.turns() == [("site/alice", 1, "answered", 8)]


async def test_a_killed_process_is_started_again_and_its_customer_is_answered_once(
    site: Site, outside: Outside
) -> None:
    async def respond(call: Call) -> str:
        if call.turn["epoch"] == 1:
            await asyncio.Event().wait()
        return f"epoch {call.turn['epoch']}"

    outside.respond = respond
    site.configure(lease=3)
    four = await start_four(site)
    await site.post(four, "m1")
    await outside.until(lambda: len(outside.calls) == 1)
    for child in children_of(four.pid):
        os.kill(child, signal.SIGKILL)
    await outside.until(lambda: bool(outside.replies))
    await four.said("worker.joined", times=8)
    told = await four.said("turnlane.processes", times=4)
    assert "was killed by SIGKILL; starting another" in told["message"]
    await site.all_settled()
    # On a machine so busy that a worker misses its own term, a third one may have to answer: once, all the same.
    [reply] = outside.replies
    assert reply.text in {"epoch 2", "epoch 3"}
    assert {request.key for request in outside.requests} == {reply.key}


async def test_a_wrong_or_missing_secret_is_refused_and_nothing_is_stored(site: Site, outside: Outside) -> None:
    """C1."""
    site.configure()
    process = await site.start()
    for secret in (None, "a-shared-secre", "another-secret", "é"):
        answer = await site.try_to_post(process, "m1", secret=secret)
        assert (answer.status, answer.headers["content-type"]) == (401, "application/problem+json")
    assert site.rows("SELECT count(*) FROM message") == site.rows("SELECT count(*) FROM lane") == [(0,)]
    await site.post(process, "m1")
    await outside.until(lambda: [reply.text for reply in outside.replies] == ["m1"])


async def test_the_web_hook_answers_whatever_the_agent_is_doing(site: Site, outside: Outside) -> None:
    """C2: every slot of the process is in an agent that never answers, and still messages are taken in."""

    async def hang(call: Call) -> str:
        await asyncio.Event().wait()
        return ""

    outside.respond = hang
    site.configure(top="turns_at_once = 2")
    process = await site.start()
    await site.post(process, "a1", conversation="ann")
    await site.post(process, "b1", conversation="ben")
    await outside.until(lambda: len(outside.calls) == 2)
    await site.post(process, "a2", conversation="ann")
    await site.post(process, "c1", conversation="cem")
    assert [call.ended for call in outside.calls] == [None, None]
