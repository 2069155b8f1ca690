"""C4–C7: two processes on one file, and what becomes of a conversation whose worker is slow, frozen or dead."""

from __future__ import annotations

import asyncio

from tests.e2e.site import Site

from turnlane.testing.outside import Call, Outside, Reply


class Answers:
    """An agent whose first call waits until it is let go; whoever asks again is answered at once."""

    def __init__(self) -> None:
        self.first_may_end = asyncio.Event()

    async def __call__(self, call: Call) -> str:
        if call.turn["epoch"] == 1:
            await self.first_may_end.wait()
        return f"epoch {call.turn['epoch']}"


async def test_a_stalled_worker_that_wakes_up_late_changes_nothing_and_says_nothing(
    site: Site, outside: Outside
) -> None:
    """C4: a stale epoch changes nothing, and says nothing."""
    outside.respond = answers = Answers()
    site.configure(lease=3)
    stalled = await site.start_thinking()
    await site.start()
    stalled.freeze()
    await outside.until(lambda: bool(outside.replies))
    answers.first_may_end.set()
    await outside.until(lambda: outside.calls[0].ended is not None)
    stalled.thaw()
    await stalled.said("worker.joined", times=2)  # it has noticed, and begun anew
    await site.post(stalled, "m2")
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    (*first, epoch), (*second, later) = site.turns()
    assert (first, second) == (["site/alice", 1, "answered"], ["site/alice", 2, "answered"])
    assert 1 < epoch < later
    assert [reply.text for reply in outside.requests] == [f"epoch {epoch}", f"epoch {later}"]


async def test_a_dead_workers_lane_resumes_by_itself(site: Site, outside: Outside) -> None:
    """C5: a live worker takes over when the lease lapses; what arrived meanwhile waits its turn."""
    outside.respond = Answers()
    site.configure(lease=3)
    dying = await site.start_thinking()
    living = await site.start()
    dying.kill()
    await site.post(living, "m2")
    await living.said("turn.lost", turn=1)
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    assert [reply.in_reply_to for reply in outside.requests] == [("m1",), ("m2",)]
    assert [call.turn["attempt"] for call in outside.calls] == [1, 2, 1]


async def test_a_message_that_no_worker_saw_is_found_without_a_restart(site: Site, outside: Outside) -> None:
    """C6: whoever took it in runs no turns, and is dead before anybody does."""
    site.configure(debounce="1s")
    await site.start()
    taker = await site.start("serve")
    await site.post(taker, "m1")
    taker.kill()
    await outside.until(lambda: [reply.in_reply_to for reply in outside.replies] == [("m1",)])


async def test_operators_can_list_the_locks(site: Site, outside: Outside) -> None:
    """C7: conversation, worker, since when; from any process, and also those of a dead one until they are reaped."""
    outside.respond = answers = Answers()
    site.configure(lease=3)
    holder = await site.start()
    worker = (await holder.said("worker.joined"))["worker"]
    before = (await site.api(holder, "locks"))["locks"]
    await site.post(holder, "m1")
    await outside.until(lambda: len(outside.calls) == 1)
    reader = await site.start("serve")
    (lock,) = (await site.api(reader, "locks"))["locks"]
    assert before == []
    assert (lock["conversation"], lock["kind"], lock["worker"], lock["epoch"]) == ("site/alice", "turn", worker, 1)
    assert lock["since"] < lock["worker_alive_until"]
    answers.first_may_end.set()
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert (await site.api(reader, "locks"))["locks"] == []


async def test_a_lease_outlives_any_turn(site: Site, outside: Outside) -> None:
    """The agent thinks for several terms, with a second process around that would take the lane if it could."""
    outside.respond = answers = Answers()
    site.configure(lease=3)
    await site.start_thinking()
    other = await site.start()
    await site.lease_was_renewed(other, "site/alice")
    answers.first_may_end.set()
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert [call.turn["epoch"] for call in outside.calls] == [1]
    assert [reply.text for reply in outside.requests] == ["epoch 1"]


async def test_a_slow_send_is_not_doubled_by_a_second_process(site: Site, outside: Outside) -> None:
    may_end = asyncio.Event()

    async def receive(reply: Reply) -> int:
        await may_end.wait()
        return 204

    outside.receive = receive
    site.configure(lease=3)
    await site.start_sending()
    other = await site.start()
    await site.lease_was_renewed(other, "site/alice")
    may_end.set()
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert len(outside.requests) == 1
    assert site.rows("SELECT state, attempt FROM delivery") == [("sent", 1)]


async def test_two_processes_never_hold_one_lane_on_one_sqlite_file_too(site: Site, outside: Outside) -> None:
    """Every message is a turn of its own, and both processes are always hungry."""
    site.configure(lanes='on_busy = "queue"')
    pair = [await site.start(), await site.start()]
    names = ["ann", "ben", "cem"]

    async def chatter(name: str) -> None:
        for n in range(15):
            await site.post(pair[n % 2], f"{name}-{n:02}", conversation=name)

    await asyncio.gather(*map(chatter, names))
    await outside.until(lambda: len(outside.replies) == 45)
    await site.all_settled()
    assert len({call.turn["id"] for call in outside.calls}) == len(outside.calls) == 45
    for name in names:
        calls = [call for call in outside.calls if call.conversation == f"site/{name}"]
        assert not any(a.overlaps(b) for a in calls for b in calls if a is not b)
        replies = [reply.text for reply in outside.requests if reply.conversation == name]
        assert replies == [f"{name}-{n:02}" for n in range(15)]
