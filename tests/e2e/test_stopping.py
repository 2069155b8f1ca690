"""A12 and A13: how a process ends, what it still finishes, what it leaves, and who goes on with it."""

from __future__ import annotations

import asyncio

from tests.e2e.site import Site, is_gone

from turnlane.testing.outside import Call, Outside, Reply
from turnlane.testing.processes import Turnlane


class Gate:
    """An agent or a receiver that waits until it is let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def respond(self, call: Call) -> str:
        await self.open.wait()
        return "done"

    async def receive(self, reply: Reply) -> int:
        await self.open.wait()
        return 204


async def test_after_sigterm_the_running_turn_finishes_and_its_answer_leaves(site: Site, outside: Outside) -> None:
    """A12."""
    gate = Gate()
    outside.respond = gate.respond
    site.configure()
    process = await site.start_thinking()
    process.terminate()
    await process.said("server.draining")
    gate.open.set()
    assert await process.ended() == 0
    assert [reply.text for reply in outside.requests] == ["done"]
    assert site.rows("SELECT state FROM delivery") == [("sent",)]


async def test_draining_keeps_the_lease_alive_and_counts_deliveries_not_only_turns(
    site: Site, outside: Outside
) -> None:
    thinking, sending = Gate(), Gate()
    outside.respond, outside.receive = thinking.respond, sending.receive
    site.configure(lease=3)
    draining = await site.start_thinking()
    other = await site.start()
    draining.terminate()
    await draining.said("server.draining")
    await site.lease_was_renewed(other, "site/alice")
    thinking.open.set()
    await outside.until(lambda: len(outside.requests) == 1)
    await site.lease_was_renewed(other, "site/alice")  # by whichever of them was quicker to take the delivery
    sending.open.set()
    assert await draining.ended() == 0
    await site.all_settled()
    assert len(outside.calls) == len(outside.requests) == 1
    assert site.turns() == [("site/alice", 1, "answered", 1)]


async def test_a_process_that_drains_does_not_end_before_its_answer_was_taken(site: Site, outside: Outside) -> None:
    gate = Gate()
    outside.receive = gate.receive
    site.configure(lease=3)
    process = await site.start_sending()
    process.terminate()
    await process.said("server.draining")
    reader = await site.start("serve")
    await site.lease_was_renewed(reader, "site/alice")
    assert process.is_running
    gate.open.set()
    assert await process.ended() == 0
    assert site.rows("SELECT state, attempt FROM delivery") == [("sent", 1)]


STUBBORN = """
[ -e "$0/healed" ] && exec echo '{"text": "at last"}'
trap '' TERM
sleep 1000 &
echo "$$ $!" > "$0/pids.new"
mv "$0/pids.new" "$0/pids"
wait
wait
"""
"""A program with a child, both deaf to SIGTERM, that answers only once somebody has put a file there."""


async def start_stubborn(site: Site, *, top: str = "", lanes: str = "") -> tuple[Turnlane, list[int]]:
    """A process whose agent is that program, at work on m1; and the two that it consists of."""
    site.configure(top=top, lanes=lanes, command=["sh", "-c", STUBBORN, str(site.folder)])
    process = await site.start()
    await site.post(process, "m1")
    await site.comes_true((site.folder / "pids").exists)
    pids = [int(pid) for pid in (site.folder / "pids").read_text().split()]
    assert len(pids) == 2
    return process, pids


async def test_a_turn_longer_than_the_drain_time_is_cancelled_with_its_processes_and_answered_after_the_restart(
    site: Site, outside: Outside
) -> None:
    """A12, A13."""
    process, pids = await start_stubborn(site, top='drain = "1s"')
    process.terminate()
    assert await process.ended() == 0
    assert [pid for pid in pids if not is_gone(pid)] == []
    assert site.rows("SELECT result FROM attempt") == [("released",)]
    (site.folder / "healed").touch()
    await site.start()
    await outside.until(lambda: [reply.text for reply in outside.requests] == ["at last"])
    await site.all_settled()
    assert site.rows("SELECT number, attempt, outcome FROM turn") == [(1, 1, "answered")]


async def test_a_second_signal_stops_at_once_and_nothing_is_lost(site: Site, outside: Outside) -> None:
    """A12."""
    process, pids = await start_stubborn(site, top='drain = "1h"')
    process.terminate()
    await process.said("server.draining")
    process.terminate()
    assert await process.ended() == 0
    assert [pid for pid in pids if not is_gone(pid)] == []
    (site.folder / "healed").touch()
    await site.start()
    await outside.until(lambda: [reply.text for reply in outside.requests] == ["at last"])


async def test_a_stuck_turn_is_killed_with_its_children_not_only_logged(site: Site, outside: Outside) -> None:
    process, pids = await start_stubborn(site, lanes='turn_deadline = "1s"\nbackoff = { first = "10ms" }')
    (site.folder / "healed").touch()
    retried = await process.said("turn.retried")
    assert "turn_deadline" in retried["cause"]
    assert [pid for pid in pids if not is_gone(pid)] == []
    await outside.until(lambda: [reply.text for reply in outside.requests] == ["at last"])


async def test_stored_messages_that_no_turn_has_acknowledged_are_processed_on_start(
    site: Site, outside: Outside
) -> None:
    """A13."""
    site.configure()
    taker = await site.start("serve")
    await site.post(taker, "a1", "a2", conversation="ann")
    await site.post(taker, "b1", conversation="ben")
    taker.kill()
    await taker.ended()
    assert outside.calls == []
    await site.start()
    await outside.until(lambda: len(outside.replies) == 2)
    assert sorted(reply.in_reply_to for reply in outside.requests) == [("a1", "a2"), ("b1",)]


async def test_killed_in_the_middle_of_an_answer_and_started_again_the_answer_arrives_once(
    site: Site, outside: Outside
) -> None:
    gate = Gate()
    outside.respond = gate.respond
    site.configure()
    process = await site.start_thinking()
    process.kill()
    await process.ended()
    gate.open.set()
    await process.start()
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert [reply.text for reply in outside.requests] == ["done"]
    assert site.turns() == [("site/alice", 1, "answered", 2)]


async def test_a_process_killed_while_it_sends_sends_again_under_the_same_key(site: Site, outside: Outside) -> None:
    """Whether the first request counted, only the receiver can know: the key lets it see that they are one."""
    gate = Gate()

    async def receive(reply: Reply) -> int:
        return await gate.receive(reply) if len(outside.requests) == 1 else 204

    outside.receive = receive
    site.configure()
    process = await site.start_sending()
    process.kill()
    await process.ended()
    await process.start()
    await outside.until(lambda: len(outside.requests) == 2)
    await site.all_settled()
    assert outside.requests[0] == outside.requests[1]
    assert len(outside.calls) == 1
