"""The contract of a backend as tests, for every backend to pass.

Subclass it in a test module and provide four fixtures; the tests run under pytest with pytest-asyncio in auto mode:

    class TestMyBackend(BackendConformance): ...

    clock       a Clock; the backend under test is built with it
    backend     an open, empty Backend
    pass_time   an async callable: let that many milliseconds pass (a virtual clock is advanced, a real one awaited)
    open_again  an async callable: another open Backend on the same stored data; None if the store lives in one object

Each test is a sentence about the world. A docstring names the requirement (A5, D4, …) that it shows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from turnlane.backends.base import Acceptance, Arrival, Backend, Committed, Verdict
from turnlane.clock import Clock
from turnlane.errors import InvalidSchedule, WorkerLost
from turnlane.model.delivery import delivery_id
from turnlane.model.event import EVENTS, Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import Limits, Pauses
from turnlane.model.message import Attachment, Message, channel_of
from turnlane.model.notice import DROPPED, FULL
from turnlane.model.person import Person
from turnlane.model.policy import LATER, NORMAL, URGENT, OnBusy, Policy
from turnlane.model.question import TIMED_OUT, Answer, Question
from turnlane.model.schedule import Missed, Schedule
from turnlane.model.turn import (
    Asks,
    Delivered,
    Fired,
    GaveUp,
    Outcome,
    Parked,
    Released,
    Replied,
    Reply,
    RetryLater,
    Superseded,
)
from turnlane.model.usage import Usage
from turnlane.model.view import Changes, LaneView
from turnlane.testing.doubles import VirtualClock

PassTime = Callable[[int], Awaitable[None]]
OpenAgain = Callable[[], Awaitable[Backend]] | None

TERM_MS = 1_000
ALICE, BOB = "site/alice", "site/bob"
AT_ONCE = Policy(debounce_ms=0)
GATHER = Policy(debounce_ms=300, max_wait_ms=700)
SESSION_WAIT_MS = 400
AT_HOME = replace(AT_ONCE, session_wait_ms=SESSION_WAIT_MS)
TAKEOVER_MS = 400
PATIENCE_SECONDS = 10
EACH_SECOND = Schedule("pulse", ALICE, "beat", every_ms=1_000)
EACH_HOUR = Schedule("hourly", ALICE, "beat", every_ms=3_600_000)


def arrival(origin_id: str, conversation: str = ALICE, policy: Policy = AT_ONCE, *, text: str = "hello") -> Arrival:
    return Arrival(Message(channel_of(conversation), origin_id, conversation, "somebody", text), policy)


def answer(text: str | Sequence[str] | None = "hi", session: str | None = None, tokens: int = 0) -> Replied:
    return Replied(Reply(text, session, Usage(input_tokens=tokens)))


def kept_here(session: str | None = "s-1") -> Replied:
    """An answer whose session is on the machine of whoever gives it, and nowhere else."""
    return Replied(Reply("hi", session, local=True))


def by_the_business(origin_id: str, conversation: str = ALICE, policy: Policy = AT_ONCE) -> Arrival:
    message = Message(channel_of(conversation), origin_id, conversation, "Anna", "hello", role="business")
    return Arrival(message, replace(policy, takeover_ms=TAKEOVER_MS))


def by_hand(id_: str, conversation: str = ALICE, *, text: str = "by hand") -> Message:
    return Message(channel_of(conversation), id_, conversation, "operator", text, role="operator")


def told(lease: Lease) -> list[str]:
    """All that the agent is told, in order: what it is to answer, and (in brackets) what others said."""
    heard = {message.seq: f"({message.origin_id})" for message in lease.heard}
    said = {message.seq: message.origin_id for message in lease.messages}
    return [words for _, words in sorted((heard | said).items())]


def origin_ids(lease: Lease) -> list[str]:
    return [message.origin_id for message in lease.messages]


async def accept(backend: Backend, *arrivals: Arrival) -> list[Acceptance]:
    return await backend.accept(arrivals)


async def joined(backend: Backend, clock: Clock, machine: str = "") -> str:
    worker = clock.token()
    await backend.join(worker, TERM_MS, machine)
    return worker


async def settled_in_the_north(backend: Backend, clock: Clock, policy: Policy) -> tuple[str, str]:
    """Workers in the north and in the south. The session of the conversation is in the north, and m-2 waits."""
    north, south = await joined(backend, clock, "north"), await joined(backend, clock, "south")
    await accept(backend, arrival("m-1", policy=policy))
    await backend.commit(await claim_one(backend, north), kept_here())
    await accept(backend, arrival("m-2", policy=policy))
    return north, south


async def asked(backend: Backend, worker: str, question: Question) -> Lease:
    """A turn over m-1 that waits for the answer to what the person was asked."""
    lease = await about_to_ask(backend, worker, question)
    await send_everything(backend, worker)
    return lease


async def about_to_ask(backend: Backend, worker: str, question: Question) -> Lease:
    """The same, but the question has not left yet."""
    await accept(backend, arrival("m-1"))
    lease = await claim_one(backend, worker)
    assert (await backend.commit(lease, Asks(1, question))).verdict == "asked"
    return lease


async def claim_one(backend: Backend, worker: str, kind: Kind = Kind.TURN) -> Lease:
    [lease] = await backend.claim(worker, kind)
    return lease


async def next_one(backend: Backend, committed: Committed, worker: str, kind: Kind = Kind.TURN) -> Lease:
    """What the worker goes on with: handed over with the commit, or claimed if the backend does not hand over."""
    return committed.next or await claim_one(backend, worker, kind)


async def lane_of(backend: Backend, conversation: str = ALICE, kind: Kind = Kind.TURN) -> LaneView:
    [lane] = [lane for lane in await backend.lanes(kind=kind) if lane.conversation == conversation]
    return lane


async def texts_sent(backend: Backend, conversation: str = ALICE) -> list[str]:
    return [view.text for view in await backend.deliveries(conversation) if view.state == "sent"]


async def expire(backend: Backend, pass_time: PassTime) -> int:
    """Everybody's term passes, and somebody notices."""
    await pass_time(TERM_MS + 10)
    return await backend.reap()


async def send_everything(backend: Backend, worker: str) -> None:
    while leases := await backend.claim(worker, Kind.OUT):
        await backend.commit(leases[0], Delivered())


async def fire_what_is_due(backend: Backend, worker: str) -> Verdict | None:
    """Of the first schedule that is due. None: none is."""
    leases = await backend.claim(worker, Kind.TICK)
    return (await backend.commit(leases[0], Fired())).verdict if leases else None


class BackendConformance:
    """Inherit it, and every promise of `turnlane.backends.base` is tested."""

    # Accept ----------------------------------------------------------------------------------------------------------

    async def test_one_call_may_bring_more_messages_than_one_write_can_hold(self, backend: Backend) -> None:
        said = [f"m-{number}" for number in range(1, 1_501)]
        first, again = await asyncio.gather(*(accept(backend, *map(arrival, said)) for _ in range(2)))
        assert [acceptance.seq for acceptance in first] == [acceptance.seq for acceptance in again]
        assert [acceptance.seq for acceptance in first] == list(range(1, 1_501))
        assert Counter(acceptance.verdict for acceptance in [*first, *again]) == {"accepted": 1_500, "duplicate": 1_500}
        story = await backend.story(ALICE, limit=2_000)
        assert story is not None
        assert [message.origin_id for message in story.messages] == said

    async def test_messages_are_numbered_in_the_order_they_are_accepted(self, backend: Backend) -> None:
        first = await accept(backend, arrival("m-1"), arrival("m-2"), arrival("b-1", BOB))
        second = await accept(backend, arrival("m-3"))
        assert [acceptance.seq for acceptance in first + second] == [1, 2, 1, 3]
        story = await backend.story(ALICE)
        assert story is not None
        assert [(message.origin_id, message.seq) for message in story.messages] == [("m-1", 1), ("m-2", 2), ("m-3", 3)]

    async def test_a_redelivered_message_is_accepted_once_and_never_lost(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """A15: stored once, however often the platform repeats it, and answered though its first worker died."""
        await accept(backend, arrival("m-1"))
        await claim_one(backend, await joined(backend, clock))
        assert await accept(backend, arrival("m-1")) == [Acceptance("duplicate", 1)]
        await expire(backend, pass_time)
        lease = await claim_one(backend, await joined(backend, clock))
        assert origin_ids(lease) == ["m-1"]

    async def test_the_same_id_with_another_body_or_conversation_is_a_duplicate(self, backend: Backend) -> None:
        await accept(backend, arrival("m-0"), arrival("m-1", text="first"))
        again = [arrival("m-1", text="second"), arrival("m-1", BOB), arrival("m-1", policy=Policy(agent="other"))]
        assert await accept(backend, *again) == [Acceptance("duplicate", 2)] * 3
        story = await backend.story(ALICE)
        assert story is not None
        assert [message.text for message in story.messages] == ["hello", "first"]
        assert (await lane_of(backend)).agent == AT_ONCE.agent
        assert await backend.story(BOB) is None

    async def test_the_same_id_on_another_channel_is_another_message(self, backend: Backend) -> None:
        assert await accept(backend, arrival("m-1"), arrival("m-1", "shop/alice")) == [Acceptance("accepted", 1)] * 2

    async def test_each_message_of_an_accept_stands_for_itself(self, backend: Backend) -> None:
        """Resending all of them after an unknown outcome is safe."""
        await accept(backend, arrival("m-1"))
        mixed = [arrival("m-1"), arrival("m-2"), arrival("m-2"), arrival("b-1", BOB)]
        answers = await accept(backend, *mixed)
        assert [each.verdict for each in answers] == ["duplicate", "accepted", "duplicate", "accepted"]
        assert {each.verdict for each in await accept(backend, *mixed)} == {"duplicate"}

    async def test_dedupe_survives_a_backend_restart(self, backend: Backend, open_again: OpenAgain) -> None:
        await accept(backend, arrival("m-1"))
        await backend.close()
        again = await self.opened_again(open_again)
        assert await accept(again, arrival("m-1")) == [Acceptance("duplicate", 1)]

    async def test_the_mailbox_bound_never_drops_unless_told_to(self, backend: Backend, clock: Clock) -> None:
        """A9: however many wait, each is stored and answered, in batches."""
        many = [arrival(f"m-{i}", policy=replace(AT_ONCE, max_batch=60)) for i in range(150)]
        await accept(backend, *many)
        worker = await joined(backend, clock)
        heard: list[str] = []
        while leases := await backend.claim(worker, Kind.TURN):
            heard += origin_ids(leases[0])
            await backend.commit(leases[0], answer(None))
        assert heard == [each.message.origin_id for each in many]

    # Gathering -------------------------------------------------------------------------------------------------------

    async def test_a_quiet_window_really_is_a_quiet_window_and_max_wait_bounds_it(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """E2: quiet for the window, and in any case once max wait has passed since the first."""
        worker = await joined(backend, clock)
        for number in range(4):
            await accept(backend, arrival(f"m-{number}", policy=GATHER))
            assert await backend.claim(worker, Kind.TURN) == []
            await pass_time(200)
            await backend.renew(worker, TERM_MS, [])
        # 800 ms after the first message, 200 ms after the last: the window is still open, but max wait is over.
        assert len((await claim_one(backend, worker)).messages) == 4

    async def test_a_burst_of_three_gives_one_turn_not_three(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """A4: what is said within the window is one turn."""
        worker = await joined(backend, clock)
        for number in range(3):
            await accept(backend, arrival(f"m-{number}", policy=GATHER))
        await pass_time(GATHER.debounce_ms)
        lease = await claim_one(backend, worker)
        assert origin_ids(lease) == ["m-0", "m-1", "m-2"]
        await backend.commit(lease, answer())
        assert await backend.claim(worker, Kind.TURN) == []

    async def test_a_gathered_burst_keeps_every_message_attachment_and_mention(
        self, backend: Backend, clock: Clock
    ) -> None:
        said = [
            Message("site", "m-1", ALICE, "alice", "@bot look", (Attachment("https://files.example/1", "a.png"),), 17),
            Message(
                "site", "m-2", ALICE, "bob", "@carol too\n\x01 ünï", (Attachment("https://files.example/2", size=3),)
            ),
            Message("site", "m-3", ALICE, "alice", ""),
        ]
        await backend.accept([Arrival(message, AT_ONCE) for message in said])
        lease = await claim_one(backend, await joined(backend, clock))
        assert [replace(message, seq=0, accepted_at=0) for message in lease.messages] == said

    async def test_a_full_batch_does_not_wait_and_leaves_the_rest_for_the_next_turn(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, *(arrival(f"m-{i}", policy=replace(GATHER, max_batch=2)) for i in range(3)))
        lease = await claim_one(backend, worker)
        assert (origin_ids(lease), lease.number) == (["m-0", "m-1"], 1)
        await backend.commit(lease, answer())
        follower = await claim_one(backend, worker)
        assert (origin_ids(follower), follower.number) == (["m-2"], 2)

    async def test_policy_queue_gives_each_message_its_own_turn(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, *(arrival(f"m-{i}", policy=replace(AT_ONCE, on_busy="queue")) for i in range(3)))
        turns = []
        while leases := await backend.claim(worker, Kind.TURN):
            turns.append(origin_ids(leases[0]))
            await backend.commit(leases[0], answer())
        assert turns == [["m-0"], ["m-1"], ["m-2"]]

    async def test_messages_of_a_running_turn_wait_and_become_the_next_turn_of_the_same_session(
        self, backend: Backend, clock: Clock
    ) -> None:
        """A5: what arrives meanwhile is the next turn, and it resumes the same session."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        running = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"), arrival("m-3"))
        assert await backend.claim(worker, Kind.TURN) == []
        await backend.commit(running, answer(session="s-1"))
        follower = await claim_one(backend, worker)
        assert origin_ids(follower) == ["m-2", "m-3"]
        assert follower.session is not None
        assert follower.session.handle == "s-1"

    async def test_a_message_that_arrives_while_a_batch_backs_off_has_a_quiet_window_of_its_own(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=GATHER))
        await pass_time(GATHER.debounce_ms)
        lease = await claim_one(backend, worker)
        await backend.commit(lease, RetryLater(clock.now() + 100, "boom"))
        await accept(backend, arrival("m-2", policy=GATHER))
        await pass_time(100)
        again = await claim_one(backend, worker)
        assert origin_ids(again) == ["m-1"]
        await backend.commit(again, answer())
        assert await backend.claim(worker, Kind.TURN) == []
        await pass_time(GATHER.debounce_ms)
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]

    async def test_a_message_accepted_while_a_turn_fails_is_still_answered(
        self, backend: Backend, clock: Clock
    ) -> None:
        """E4: an event that arrives during processing leads to another pass, even if processing fails."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await asyncio.gather(backend.commit(lease, GaveUp("broken")), accept(backend, arrival("m-2")))
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]

    async def test_no_message_is_stranded_at_release(self, backend: Backend, clock: Clock) -> None:
        """E4: between the last look and the release there is no gap to fall into."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-0"))
        for number in range(1, 30):
            lease = await claim_one(backend, worker)
            calls = [backend.commit(lease, answer()), accept(backend, arrival(f"m-{number}"))]
            await asyncio.gather(*(calls if number % 2 else reversed(calls)))
        assert origin_ids(await claim_one(backend, worker)) == ["m-29"]

    # Claim -----------------------------------------------------------------------------------------------------------

    async def test_at_most_one_lease_of_a_lane_is_valid(self, backend: Backend, clock: Clock) -> None:
        """E3: one processor at a time; the others find nothing and leave."""
        await accept(backend, arrival("m-1"))
        workers = [await joined(backend, clock) for _ in range(5)]
        found = await asyncio.gather(*(backend.claim(worker, Kind.TURN, most=3) for worker in workers))
        assert sum(map(len, found)) == 1

    async def test_two_processes_never_hold_one_lane(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        other = await self.opened_again(open_again)
        await accept(backend, *(arrival(f"m-{i}", f"site/{i}") for i in range(20)))
        here, there = await joined(backend, clock), await joined(other, clock)
        claims = [backend.claim(here, Kind.TURN, most=2) for _ in range(10)]
        claims += [other.claim(there, Kind.TURN, most=2) for _ in range(10)]
        leases = [lease for found in await asyncio.gather(*claims) for lease in found]
        assert len(leases) == len({lease.key for lease in leases}) == 20

    async def test_one_busy_key_never_blocks_the_others(self, backend: Backend, clock: Clock) -> None:
        """A3, A10: conversations run in parallel, whatever happens in one of them."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        busy = await claim_one(backend, worker)
        await accept(backend, *(arrival(f"m-{i}") for i in range(2, 50)), arrival("b-1", BOB))
        other = await claim_one(backend, worker)
        assert other.key == BOB
        await backend.commit(busy, GaveUp("broken"))
        assert (await backend.commit(other, answer())).verdict == "answered"

    async def test_another_conversations_message_is_never_lost_because_this_one_is_busy(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await claim_one(backend, worker)
        others = [arrival(f"x-{i}", f"site/{i}") for i in range(5)]
        await asyncio.gather(*(accept(backend, each) for each in others))
        leases = await backend.claim(worker, Kind.TURN, most=10)
        assert sorted(lease.messages[0].origin_id for lease in leases) == [each.message.origin_id for each in others]

    async def test_the_longest_due_is_claimed_first_and_no_more_than_asked(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        for name in ("c", "a", "b"):
            await accept(backend, arrival("m-1" + name, f"site/{name}"))
            await pass_time(10)
        assert [lease.key for lease in await backend.claim(worker, Kind.TURN, most=2)] == ["site/c", "site/a"]
        assert [lease.key for lease in await backend.claim(worker, Kind.TURN, most=2)] == ["site/b"]

    async def test_a_tenant_with_many_waiting_lanes_does_not_starve_the_next_tenant(
        self, backend: Backend, clock: Clock
    ) -> None:
        """A11: one turn of the others is the most that anybody waits."""
        big, small = replace(AT_ONCE, tenant="big"), replace(AT_ONCE, tenant="small")
        await accept(backend, *(arrival(f"b-{n}", f"site/big-{n}", big) for n in range(10)))
        await accept(backend, *(arrival(f"s-{n}", f"site/small-{n}", small) for n in range(2)))
        worker = await joined(backend, clock)
        tenants = []
        for _ in range(4):
            lease = await claim_one(backend, worker)
            tenants.append(lease.policy.tenant)
            await backend.commit(lease, answer(None))
        assert tenants in (["big", "small"] * 2, ["small", "big"] * 2)

    async def test_whoever_runs_least_is_served_first(self, backend: Backend, clock: Clock) -> None:
        """A11: what one claim hands out counts at once."""
        big, small = replace(AT_ONCE, tenant="big"), replace(AT_ONCE, tenant="small")
        await accept(backend, *(arrival(f"s-{n}", f"site/small-{n}", small) for n in range(2)))
        worker = await joined(backend, clock)
        assert len(await backend.claim(worker, Kind.TURN, most=2)) == 2
        await accept(backend, *(arrival(f"b-{n}", f"site/big-{n}", big) for n in range(5)))
        await accept(backend, arrival("s-9", "site/small-9", small))
        leases = await backend.claim(worker, Kind.TURN, most=4)
        tenants = [lease.policy.tenant for lease in leases]
        assert tenants[:2] == ["big", "big"]
        assert sorted(tenants) == ["big", "big", "big", "small"]

    async def test_the_most_urgent_is_served_first(self, backend: Backend, clock: Clock) -> None:
        for name, priority in (("later", LATER), ("normal", NORMAL), ("urgent", URGENT)):
            await accept(backend, arrival(name, f"site/{name}", replace(AT_ONCE, priority=priority)))
        leases = await backend.claim(await joined(backend, clock), Kind.TURN, most=3)
        assert [lease.key for lease in leases] == ["site/urgent", "site/normal", "site/later"]

    async def test_lanes_that_still_gather_do_not_hide_those_that_are_ready(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, *(arrival("m-1", f"c{i}/room", GATHER) for i in range(30)))
        await pass_time(200)
        await accept(backend, *(arrival("m-2", f"c{i}/room", GATHER) for i in range(30)))
        await pass_time(150)
        await accept(backend, arrival("m-3", BOB))
        assert (await claim_one(backend, worker)).key == BOB

    async def test_each_kind_of_lane_is_claimed_for_itself(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        assert await backend.claim(worker, Kind.OUT) == []
        await backend.commit(await claim_one(backend, worker), answer())
        assert await backend.claim(worker, Kind.TURN) == []
        assert (await claim_one(backend, worker, Kind.OUT)).kind is Kind.OUT

    async def test_a_waiting_claim_is_woken_by_a_message(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        await accept(backend, arrival("m-1"))
        [lease] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert origin_ids(lease) == ["m-1"]

    async def test_a_waiting_claim_is_woken_by_another_process(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        other = await self.opened_again(open_again)
        worker = await joined(backend, clock)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        await accept(other, arrival("m-1"))
        [lease] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert origin_ids(lease) == ["m-1"]

    async def test_a_waiting_claim_is_woken_by_time_passing(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=GATHER))
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        assert not waiting.done()
        await pass_time(GATHER.debounce_ms)
        [lease] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert origin_ids(lease) == ["m-1"]

    async def test_waiting_claims_share_what_arrives(self, backend: Backend, clock: Clock) -> None:
        workers = [await joined(backend, clock) for _ in range(3)]
        waiting = [asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True)) for worker in workers]
        await asyncio.sleep(0)
        await accept(backend, *(arrival(f"m-{i}", f"site/{i}") for i in range(3)))
        found = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS)
        assert sorted(lease.key for leases in found for lease in leases) == ["site/0", "site/1", "site/2"]

    async def test_a_claim_cancelled_while_it_waits_holds_nothing(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        await self.cancel(waiting)
        await accept(backend, arrival("m-1"))
        assert origin_ids(await claim_one(backend, worker)) == ["m-1"]

    async def test_a_claim_cancelled_in_the_moment_it_is_served_holds_nothing(
        self, backend: Backend, clock: Clock
    ) -> None:
        """The race: the lease is committed, and the caller is cancelled before it hears of it."""
        worker = await joined(backend, clock)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)

        def cancel_when_served(events: Sequence[Event]) -> None:
            if any(event.name == "turn.started" for event in events):
                waiting.cancel()

        backend.subscribe(cancel_when_served)
        await accept(backend, arrival("m-1"))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [lease] = await asyncio.wait_for(backend.claim(worker, Kind.TURN, wait=True), PATIENCE_SECONDS)
        assert (origin_ids(lease), lease.attempt) == (["m-1"], 1)

    async def test_a_waiting_claim_ends_with_its_worker(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        await expire(backend, pass_time)
        with pytest.raises(WorkerLost):
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)

    # Workers ---------------------------------------------------------------------------------------------------------

    async def test_a_worker_is_never_known_by_pid_or_host_name(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """Ids are fresh: two workers of one process are two, and an id that was used once is refused for ever."""
        first, second = await joined(backend, clock), await joined(backend, clock)
        assert first != second
        with pytest.raises(WorkerLost):
            await backend.join(first, TERM_MS)
        await expire(backend, pass_time)
        with pytest.raises(WorkerLost):
            await backend.join(first, TERM_MS)

    async def test_dead_is_final(self, backend: Backend, clock: Clock, pass_time: PassTime) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await expire(backend, pass_time)
        assert not await backend.renew(worker, TERM_MS, [])
        with pytest.raises(WorkerLost):
            await backend.claim(worker, Kind.TURN)
        assert not await backend.renew(worker, TERM_MS, [])

    async def test_nobody_claims_who_never_joined(self, backend: Backend, clock: Clock) -> None:
        with pytest.raises(WorkerLost):
            await backend.claim(clock.token(), Kind.TURN)

    async def test_a_worker_that_renews_is_never_reaped(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """A lease outlives any turn: however long the agent thinks, nobody takes the lane while its worker renews."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        for _ in range(5):
            await pass_time(TERM_MS // 2)
            assert await backend.renew(worker, TERM_MS, [lease])
            assert await backend.reap() == 0
        assert (await backend.commit(lease, answer())).verdict == "answered"

    async def test_a_worker_that_was_late_but_not_reaped_goes_on(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await pass_time(TERM_MS * 3)
        assert await backend.renew(worker, TERM_MS, [lease])
        assert (await backend.commit(lease, answer())).verdict == "answered"

    async def test_a_dead_workers_lane_resumes_by_itself(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """C5: any live worker takes over once the term is over, and is told that it does. E3: the lock lapses."""
        await accept(backend, arrival("m-1"))
        lost = await claim_one(backend, await joined(backend, clock))
        assert not lost.took_over
        assert await backend.reap() == 0
        assert await expire(backend, pass_time) == 1
        lease = await claim_one(backend, await joined(backend, clock))
        assert lease.took_over
        assert (lease.number, lease.first, lease.last) == (lost.number, lost.first, lost.last)
        assert (lease.epoch, lease.attempt) == (lost.epoch + 1, 2)

    async def test_a_claim_whose_answer_was_lost_is_given_back(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """The worker lives on but never heard of its lease: naming what it holds frees what it does not know of."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("b-1", BOB))
        known, unheard = await backend.claim(worker, Kind.TURN, most=2)
        await pass_time(TERM_MS // 2)
        assert await backend.renew(worker, TERM_MS, [known])
        assert await backend.claim(worker, Kind.TURN) == [], "its answer might still be on the way"
        await pass_time(TERM_MS // 2 + 10)
        assert await backend.renew(worker, TERM_MS, [known])
        again = await claim_one(backend, worker)
        assert (again.key, again.attempt, again.epoch) == (unheard.key, 1, unheard.epoch + 1)
        assert (await backend.commit(known, answer())).verdict == "answered"

    async def test_whoever_leaves_gives_its_lanes_back_without_blame(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        left = await claim_one(backend, worker)
        await backend.leave(worker)
        await backend.leave(worker)
        lease = await claim_one(backend, await joined(backend, clock))
        assert (lease.attempt, lease.number, lease.took_over) == (1, 1, False)
        await backend.commit(left, answer("too late"))
        assert (await backend.commit(lease, answer("in time"))).verdict == "answered"
        assert [view.text for view in await backend.deliveries(ALICE)] == ["in time"]
        assert not await backend.renew(worker, TERM_MS, [])

    # Attempts --------------------------------------------------------------------------------------------------------

    async def test_attempts_are_counted_before_the_run(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        for attempt in (1, 2, 3):
            lease = await claim_one(backend, await joined(backend, clock))
            assert lease.attempt == attempt == (await lane_of(backend)).attempt
            await expire(backend, pass_time)

    async def test_a_poison_turn_stops_after_its_attempts_and_is_kept(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, attempts=3)))
        verdicts: list[Verdict] = []
        for _ in range(3):
            lease = await claim_one(backend, worker)
            verdicts.append((await backend.commit(lease, RetryLater(clock.now(), "boom"))).verdict)
        assert verdicts == ["retried", "retried", "dead_letter"]
        assert await backend.claim(worker, Kind.TURN) == []
        [letter] = await backend.dead_letters(conversation=ALICE)
        assert [message.origin_id for message in letter.messages] == ["m-1"]
        assert (letter.turn.cause, letter.turn.attempt, letter.turn.outcome) == ("boom", 3, "dead_letter")

    async def test_a_turn_that_kills_its_workers_stops_after_its_takeovers_and_is_kept(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, takeovers=2)), arrival("b-1", BOB))
        for _ in range(3):
            leases = await backend.claim(await joined(backend, clock), Kind.TURN, most=2)
            assert sorted(lease.key for lease in leases) == [ALICE, BOB]
            await expire(backend, pass_time)
        [letter] = await backend.dead_letters()
        assert (letter.turn.conversation, letter.turn.attempt) == (ALICE, 3)
        [lease] = await backend.claim(await joined(backend, clock), Kind.TURN, most=2)
        assert lease.key == BOB

    async def test_a_retry_keeps_its_place_is_visible(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        failed = await claim_one(backend, worker)
        retry_at = clock.now() + 400
        await backend.commit(failed, RetryLater(retry_at, "not now"))
        await accept(backend, arrival("m-2"))
        assert await backend.claim(worker, Kind.TURN) == []
        lane = await lane_of(backend)
        assert (lane.state, lane.due_at, lane.pending) == ("waiting", retry_at, 2)
        story = await backend.story(ALICE)
        assert story is not None
        assert [(run.result, run.cause, run.number) for run in story.attempts] == [("retried", "not now", 1)]
        await pass_time(400)
        again = await claim_one(backend, worker)
        assert (origin_ids(again), again.number, again.attempt, again.failures) == (["m-1"], 1, 2, 1)

    async def test_a_story_tells_attempts_in_the_order_they_happened(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """Those of turns and of deliveries, as one story."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        for kind in (Kind.TURN, Kind.OUT, Kind.TURN):
            lease = await claim_one(backend, worker, kind)
            await backend.commit(lease, RetryLater(clock.now(), f"{kind.name} was not to be"))
            if kind is Kind.TURN:
                await backend.commit(await claim_one(backend, worker), answer())
                await accept(backend, arrival(f"after {lease.number}"))
            await pass_time(10)
        story = await backend.story(ALICE)
        assert story is not None
        assert [attempt.kind for attempt in story.attempts] == [Kind.TURN, Kind.OUT, Kind.TURN]
        shorter = await backend.story(ALICE, limit=2)
        assert shorter is not None and shorter.attempts == story.attempts[-2:]

    async def test_a_failure_that_does_not_count_uses_up_nothing(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, attempts=1)))
        for _ in range(5):
            lease = await claim_one(backend, worker)
            assert lease.attempt == 1
            later = RetryLater(clock.now(), "busy", counts=False)
            assert (await backend.commit(lease, later)).verdict == "retried"

    async def test_released_is_given_back_without_blame(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        assert (await backend.commit(await claim_one(backend, worker), Released())).verdict == "released"
        lease = await claim_one(backend, worker)
        assert (lease.attempt, lease.number, lease.epoch) == (1, 1, 2)

    async def test_acknowledged_at_commit_a_crash_repeats_the_turn_and_never_loses_it(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D4, `ack = "commit"`."""
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, ack="commit")))
        await claim_one(backend, await joined(backend, clock))
        await expire(backend, pass_time)
        assert origin_ids(await claim_one(backend, await joined(backend, clock))) == ["m-1"]

    async def test_acknowledged_at_claim_a_crash_loses_the_turn_and_never_repeats_it(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D4, `ack = "claim"`: lost to the agent, but kept as a dead letter; what came later is answered."""
        policy = replace(AT_ONCE, ack="claim")
        await accept(backend, arrival("m-1", policy=policy))
        await claim_one(backend, await joined(backend, clock))
        await accept(backend, arrival("m-2", policy=policy))
        await expire(backend, pass_time)
        assert origin_ids(await claim_one(backend, await joined(backend, clock))) == ["m-2"]
        assert [letter.messages[0].origin_id for letter in await backend.dead_letters()] == ["m-1"]

    # Commit ----------------------------------------------------------------------------------------------------------

    async def test_a_stale_epoch_changes_nothing_and_says_nothing(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """C4: a stalled worker that wakes up late can change nothing."""
        await accept(backend, arrival("m-1"))
        slow = await claim_one(backend, await joined(backend, clock))
        await expire(backend, pass_time)
        for outcome in (answer("first"), GaveUp("no"), Released(), Parked("no"), RetryLater(0, "no")):
            assert (await backend.commit(slow, outcome)).verdict == "fenced"
        quick = await claim_one(backend, await joined(backend, clock))
        assert (await backend.commit(slow, answer("first"))).verdict == "fenced"
        assert (await backend.commit(quick, answer("second"))).verdict == "answered"
        assert (await backend.commit(slow, answer("first"))).verdict == "fenced"
        assert [view.text for view in await backend.deliveries(ALICE)] == ["second"]

    async def test_a_stale_sender_settles_nothing(self, backend: Backend, clock: Clock, pass_time: PassTime) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        slow = await claim_one(backend, worker, Kind.OUT)
        await expire(backend, pass_time)
        quick = await claim_one(backend, await joined(backend, clock), Kind.OUT)
        assert quick.delivery == slow.delivery
        assert (await backend.commit(slow, Delivered("r-1"))).verdict == "fenced"
        assert (await lane_of(backend, kind=Kind.OUT)).pending == 2

    async def test_the_answer_is_committed_with_the_message_that_asked_for_it(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-2"))
        lease = await claim_one(backend, worker)
        before = await backend.story(ALICE)
        assert before is not None
        assert (before.turns, before.deliveries, before.sessions) == ((), (), {})
        await backend.commit(lease, answer(["part one", "part two"], "s-1", tokens=7))
        after = await backend.story(ALICE)
        assert after is not None
        [turn] = after.turns
        assert (turn.outcome, turn.first, turn.last, turn.session, turn.usage.input_tokens) == (
            "answered",
            1,
            2,
            "s-1",
            7,
        )
        assert [(view.text, view.part, view.parts, view.turn, view.state) for view in after.deliveries] == [
            ("part one", 1, 2, 1, "queued"),
            ("part two", 2, 2, 1, "queued"),
        ]
        assert {view.in_reply_to for view in after.deliveries} == {("m-1", "m-2")}
        assert after.sessions[lease.policy.agent].usage.input_tokens == 7
        assert (await lane_of(backend)).pending == 0

    async def test_saying_nothing_is_an_answer(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        assert (await backend.commit(await claim_one(backend, worker), answer(None))).verdict == "answered"
        assert await backend.deliveries(ALICE) == []
        assert (await lane_of(backend)).state == "idle"

    @pytest.mark.parametrize(
        ("outcome", "verdict"),
        [
            (answer("hi", "s-1", tokens=5), "answered"),
            (RetryLater(0, "boom"), "retried"),
            (GaveUp("no"), "dead_letter"),
            (Released(), "released"),
            (Parked("nobody"), "parked"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_repeated_commit_answers_what_it_answered_the_first_time(
        self, backend: Backend, clock: Clock, outcome: Outcome, verdict: Verdict
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        doubled = await asyncio.gather(backend.commit(lease, outcome), backend.commit(lease, outcome))
        assert [each.verdict for each in doubled] == [verdict, verdict]
        await backend.unpark(ALICE)
        later = await backend.claim(worker, Kind.TURN)
        story = await backend.story(ALICE)
        assert (await backend.commit(lease, outcome)).verdict == verdict
        assert await backend.story(ALICE) == story, "asking again changes nothing"
        for each in later:
            assert (await backend.commit(each, answer())).verdict == "answered"

    async def test_a_repeated_settle_never_settles_the_next_delivery(self, backend: Backend, clock: Clock) -> None:
        """The lease goes on from delivery to delivery, so the epoch alone does not tell them apart."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two", "three"]))
        lease = await claim_one(backend, worker, Kind.OUT)
        first = await backend.commit(lease, Delivered("r-1"), take_next=True)
        again = await backend.commit(lease, Delivered("r-1"))
        assert (first.verdict, again.verdict) == ("sent", "sent")
        following = await next_one(backend, first, worker, Kind.OUT)
        assert following.delivery is not None
        assert following.delivery.text == "two"
        assert await texts_sent(backend) == ["one"]
        assert (await backend.commit(following, Delivered("r-2"))).verdict == "sent"
        assert await texts_sent(backend) == ["one", "two"]

    async def test_one_fenced_commit_does_not_fail_its_neighbours(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        stale = await claim_one(backend, await joined(backend, clock))
        await expire(backend, pass_time)
        worker = await joined(backend, clock)
        await accept(backend, arrival("b-1", BOB))
        leases = await backend.claim(worker, Kind.TURN, most=2)
        calls = [backend.commit(stale, answer()), *(backend.commit(lease, answer()) for lease in leases)]
        *_, accepted = await asyncio.gather(*calls, accept(backend, arrival("m-2")))
        assert accepted == [Acceptance("accepted", 2)]
        assert [(await backend.commit(lease, answer())).verdict for lease in leases] == ["answered", "answered"]

    async def test_take_next_goes_on_with_what_is_due(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("b-1", BOB))
        lease = await claim_one(backend, worker)
        following = await next_one(backend, await backend.commit(lease, answer(), take_next=True), worker)
        assert {lease.key, following.key} == {ALICE, BOB}
        assert following.worker == worker
        assert (await backend.commit(following, answer(), take_next=True)).next is None

    async def test_take_next_takes_nothing_of_a_paused_lane(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        lease = await claim_one(backend, worker, Kind.OUT)
        await backend.pause(ALICE, Kind.OUT)
        assert (await backend.commit(lease, Delivered(), take_next=True)).next is None

    # Busy lanes ------------------------------------------------------------------------------------------------------

    async def test_an_interrupted_turns_messages_and_the_new_ones_become_one_new_turn(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"))
        ended = await backend.commit(lease, Superseded(set_aside=False, cause="interrupted"))
        assert ended.verdict == "superseded"
        second = await claim_one(backend, worker)
        assert (second.number, second.attempt, origin_ids(second)) == (2, 1, ["m-1", "m-2"])
        await backend.commit(second, answer("both"))
        story = await backend.story(ALICE)
        assert story is not None
        turns = [(turn.number, turn.first, turn.last, turn.outcome) for turn in story.turns]
        assert turns == [(1, 1, 1, "superseded"), (2, 1, 2, "answered")]
        assert [view.in_reply_to for view in story.deliveries] == [("m-1", "m-2")]

    async def test_a_rolled_back_turns_messages_are_set_aside_and_the_new_ones_run_alone(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"))
        await backend.commit(lease, Superseded(set_aside=True, cause="rolled back"))
        second = await claim_one(backend, worker)
        assert (second.number, origin_ids(second)) == (2, ["m-2"])
        assert (await lane_of(backend)).pending == 1

    async def test_a_steered_message_belongs_to_exactly_one_turn(self, backend: Backend, clock: Clock) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"), arrival("m-3"))
        steered = Replied(Reply("one and two"), through=2)
        assert (await backend.commit(lease, steered)).verdict == "answered"
        assert (await backend.commit(lease, steered)).verdict == "answered"
        second = await claim_one(backend, worker)
        assert (second.number, origin_ids(second)) == (2, ["m-3"])
        [delivery] = await backend.deliveries(ALICE)
        assert delivery.in_reply_to == ("m-1", "m-2")

    @pytest.mark.parametrize("later", ["steer", "collect"])
    async def test_what_may_have_been_handed_into_a_turn_is_not_dropped(
        self, backend: Backend, clock: Clock, later: OnBusy
    ) -> None:
        """It would be dropped and answered. Once nobody runs the turn, nobody has it, and the oldest goes again."""
        policy = replace(AT_ONCE, on_busy="steer", on_full="drop_oldest", max_pending=2)
        afterwards, worker = replace(policy, on_busy=later), await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=policy))
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2", policy=policy))
        await accept(backend, arrival("m-3", policy=afterwards))
        await accept(backend, arrival("m-4", policy=afterwards))
        assert [message.origin_id for message in await backend.waiting(ALICE)] == ["m-2"]
        await backend.commit(lease, Released())
        await accept(backend, arrival("m-5", policy=afterwards))
        assert [message.origin_id for message in await backend.waiting(ALICE)] == ["m-5"]
        await backend.commit(await claim_one(backend, worker), Replied(Reply("one and five"), through=5))
        story = await backend.story(ALICE)
        assert story is not None
        assert dict(story.outcomes) == dict.fromkeys([2, 3, 4], "dropped")
        # One for the newcomers, as they were dropped in a row, and one for what waited.
        assert [each.text for each in story.deliveries] == [FULL, DROPPED, "one and five"]

    async def test_an_interrupted_turn_leaves_nothing_outside(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, await joined(backend, clock))
        await backend.commit(lease, Superseded(set_aside=False, cause="interrupted"))
        assert (await backend.commit(lease, answer("too late"))).verdict in {"fenced", "superseded"}
        assert await backend.deliveries(ALICE) == []

    # Deliveries ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", ["no answer", "stopped", "left", "lost"])
    async def test_a_sending_whose_end_nobody_knows_leaves_the_next_one_in_doubt(
        self, backend: Backend, clock: Clock, pass_time: PassTime, end: str
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        sending = await claim_one(backend, worker, Kind.OUT)
        assert not sending.in_doubt
        match end:
            case "no answer":
                await backend.commit(sending, RetryLater(clock.now(), "cut", in_doubt=True))
            case "stopped":
                await backend.commit(sending, Released())
            case "left":
                await backend.leave(worker)
            case "lost":
                await expire(backend, pass_time)
        worker = await joined(backend, clock)
        again = await claim_one(backend, worker, Kind.OUT)
        assert again.in_doubt
        await backend.commit(again, RetryLater(clock.now(), "refused connection"))
        again = await claim_one(backend, worker, Kind.OUT)
        assert again.in_doubt
        following = await next_one(backend, await backend.commit(again, Delivered(), take_next=True), worker, Kind.OUT)
        assert not following.in_doubt

    async def test_a_sending_that_an_operator_let_go_is_in_doubt_no_more(self, backend: Backend, clock: Clock) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await backend.commit(await claim_one(backend, worker), answer())
        await backend.commit(await claim_one(backend, worker, Kind.OUT), RetryLater(clock.now(), "cut", in_doubt=True))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Parked("nobody can tell"))
        assert await backend.unpark(ALICE, Kind.OUT)
        assert not (await claim_one(backend, worker, Kind.OUT)).in_doubt

    async def test_a_reply_never_overtakes_an_earlier_one_while_backing_off(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        lease = await claim_one(backend, worker, Kind.OUT)
        await backend.commit(lease, RetryLater(clock.now() + 200, "429", counts=False), take_next=True)
        await accept(backend, arrival("m-2"))
        await backend.commit(await claim_one(backend, worker), answer("three"))
        assert await backend.claim(worker, Kind.OUT) == []
        await pass_time(200)
        again = await claim_one(backend, worker, Kind.OUT)
        assert again.delivery == lease.delivery, "the same delivery under the same id"
        await backend.commit(again, Delivered())
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["one", "two", "three"]

    async def test_a_delivery_has_one_id_for_ever(self, backend: Backend, clock: Clock, pass_time: PassTime) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        first = await claim_one(backend, worker, Kind.OUT)
        await expire(backend, pass_time)
        again = await claim_one(backend, await joined(backend, clock), Kind.OUT)
        assert first.delivery is not None
        assert again.delivery is not None
        assert first.delivery.id == again.delivery.id == delivery_id(ALICE, 1, 1)
        assert len({view.id for view in await backend.deliveries(ALICE)}) == 2

    async def test_a_delivery_that_is_refused_is_kept_and_the_next_one_goes_on(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        refused = await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("400"))
        assert refused.verdict == "failed"
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Delivered("r-2"))
        views = [(view.text, view.state, view.cause, view.receipt) for view in await backend.deliveries(ALICE)]
        assert views == [("one", "failed", "400", None), ("two", "sent", None, "r-2")]

    async def test_a_delivery_is_tried_as_long_as_its_policy_says(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, attempts=1, deliver_for_ms=500)))
        await backend.commit(await claim_one(backend, worker), answer())
        lease = await claim_one(backend, worker, Kind.OUT)
        assert (await backend.commit(lease, RetryLater(clock.now(), "503"))).verdict == "retried"
        lease = await claim_one(backend, worker, Kind.OUT)
        assert (await backend.commit(lease, RetryLater(clock.now() + 600, "503"))).verdict == "failed"
        assert [view.text for view in await backend.outbox(state="failed")] == ["hi"]

    async def test_an_account_never_sends_faster_than_its_rate_whoever_sends(
        self, backend: Backend, clock: Clock, pass_time: PassTime, open_again: OpenAgain
    ) -> None:
        """In no window of time, over two processes; each conversation in order; and no other account waits for it."""
        stores = [backend, backend if open_again is None else await open_again()]
        workers = [await joined(store, clock) for store in stores]
        paced = replace(AT_ONCE, tenant="site", send_every_ms=200, send_burst=2)
        keys = [f"site/{name}" for name in ("a", "b", "c")]
        await accept(backend, *(arrival(key, key, paced) for key in keys))
        await accept(backend, arrival("x", "shop/x", replace(AT_ONCE, tenant="shop")))
        for lease in await backend.claim(workers[0], Kind.TURN, most=4):
            await backend.commit(lease, answer(["one", "two", "three"]))
        sent: list[tuple[int, str]] = []
        while (await backend.counts()).deliveries_waiting:
            for store, worker in zip(stores, workers, strict=True):
                leases = await store.claim(worker, Kind.OUT, most=5)
                while leases:
                    sent += [(clock.now(), lease.key) for lease in leases]
                    ended = [await store.commit(lease, Delivered(), take_next=True) for lease in leases]
                    leases = [each.next for each in ended if each.next is not None]
            await pass_time(50)
            for store, worker in zip(stores, workers, strict=True):
                await store.renew(worker, TERM_MS, [])
        times = [at for at, key in sent if key != "shop/x"]
        assert len(times) == 9
        assert all(later - at >= 200 for at, later in zip(times, times[2:], strict=False))
        assert [key for _, key in sent[:5]].count("shop/x") == 3
        for key in [*keys, "shop/x"]:
            assert await texts_sent(backend, key) == ["one", "two", "three"]

    async def test_what_a_platform_tells_later_is_tied_to_its_delivery(self, backend: Backend, clock: Clock) -> None:
        """In any order and as often as it likes; a delivery that failed after all is kept as failed, to be resent."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer())
        assert not await backend.report(ALICE, 1, "read"), "nobody has sent it yet"
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Delivered("wamid-1"))
        assert not await backend.report(ALICE, 1, "sent"), "that is known"
        assert await backend.report(ALICE, 1, "read") and not await backend.report(ALICE, 2, "read")
        assert (await backend.deliveries(ALICE))[0].state == "sent"
        assert await backend.report(ALICE, 1, "failed", cause="the window is closed")
        assert not await backend.report(ALICE, 1, "read")
        (failed,) = await backend.outbox(state="failed")
        assert (failed.cause, failed.receipt) == ("the window is closed", "wamid-1")
        assert await backend.resend(ALICE, 1)
        again = await claim_one(backend, worker, Kind.OUT)
        assert again.delivery is not None and again.delivery.id == failed.id

    async def test_a_delivery_in_doubt_is_sent_if_the_platform_says_so(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, deliver_for_ms=60_000)))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        sending = await claim_one(backend, worker, Kind.OUT)
        assert not await backend.report(ALICE, 1, "delivered"), "whoever sends it will say so"
        await backend.commit(sending, RetryLater(clock.now() + 30_000, "cut", in_doubt=True))
        assert not await backend.report(ALICE, 1, "failed")
        assert await backend.report(ALICE, 1, "delivered", receipt="wamid-1")
        (first, _) = await backend.deliveries(ALICE)
        assert (first.state, first.receipt) == ("sent", "wamid-1")
        following = await claim_one(backend, worker, Kind.OUT)
        assert following.delivery is not None and following.delivery.text == "two"

    async def test_a_fact_is_written_down_by_itself(self, backend: Backend, clock: Clock) -> None:
        """In the order of what happens, and of no lane unless it names one, which need not exist."""
        unread = {"channel": "site", "why": "an unknown type", "body": '{"type": "hologram"}'}
        await backend.note("hook.aside", **unread)
        await joined(backend, clock)
        await backend.note("session.forgotten", ALICE, by="nobody")
        told = [each.event for each in await backend.events()]
        assert [event.name for event in told] == ["hook.aside", "worker.joined", "session.forgotten"]
        assert (told[0].conversation, told[0].facts) == (None, unread)
        assert (told[2].conversation, told[2].facts) == (ALICE, {"by": "nobody"})
        assert await backend.lanes() == []

    async def test_a_conversation_rests_between_two_sendings_and_no_other_waits_for_it(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """B10: nor does what is said meanwhile end the rest."""
        worker = await joined(backend, clock)
        resting = replace(AT_ONCE, send_pause_ms=400)
        await accept(backend, arrival("m-1", policy=resting), arrival("b-1", BOB, resting))
        for lease in await backend.claim(worker, Kind.TURN, most=2):
            await backend.commit(lease, answer(["one", "two"]))
        sending = await claim_one(backend, worker, Kind.OUT)
        sent_at = clock.now()
        ended = await backend.commit(sending, Delivered(), take_next=True)
        other = ended.next or await claim_one(backend, worker, Kind.OUT)
        assert other.key != sending.key
        said = Message(channel_of(sending.key), "o-1", sending.key, "operator", "three", role="operator")
        await backend.say(said, takes_over=False)
        assert await backend.claim(worker, Kind.OUT) == []
        while not (leases := await backend.claim(worker, Kind.OUT)):
            await pass_time(50)
        assert leases[0].key == sending.key and clock.now() >= sent_at + 400
        assert leases[0].delivery is not None and leases[0].delivery.text == "two"

    async def test_what_is_shown_counts_for_the_rate_of_its_account(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, tenant="site", send_every_ms=300)))
        lease = await claim_one(backend, worker)
        assert await backend.hold_outbox(lease)
        shown_at = clock.now()
        assert not await backend.hold_outbox(lease) or clock.now() >= shown_at + 300
        while not await backend.hold_outbox(lease):
            await pass_time(50)
        assert clock.now() >= shown_at + 300

    async def test_the_more_urgent_has_the_next_place_of_the_rate(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        paced = replace(AT_ONCE, tenant="site", send_every_ms=100)
        await accept(backend, arrival("m-1", policy=paced))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        sending = await claim_one(backend, worker, Kind.OUT)
        await accept(backend, arrival("b-1", BOB, replace(paced, priority=URGENT)))
        await backend.commit(await claim_one(backend, worker), answer("at once"))
        assert (await backend.commit(sending, Delivered(), take_next=True)).next is None
        assert await backend.claim(worker, Kind.OUT) == []
        await pass_time(100)
        assert [lease.key for lease in await backend.claim(worker, Kind.OUT, most=2)] == [BOB]

    async def test_who_waits_for_the_rate_is_served_when_there_is_room(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, send_every_ms=50)))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Delivered())
        waiting = asyncio.create_task(backend.claim(worker, Kind.OUT, wait=True))
        await asyncio.sleep(0)
        if isinstance(clock, VirtualClock):
            clock.advance(50)
        [lease] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert lease.delivery is not None
        assert lease.delivery.text == "two"

    async def test_a_long_answer_waits_while_its_account_is_held(self, backend: Backend, clock: Clock) -> None:
        """Also if its lease could go on from part to part."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("b-1", BOB))
        for lease in await backend.claim(worker, Kind.TURN, most=2):
            await backend.commit(lease, answer(["one", "two"]))
        first, second = await backend.claim(worker, Kind.OUT, most=2)
        until = clock.now() + 60_000
        await backend.commit(first, RetryLater(until, "429", holds_account=True))
        assert (await backend.commit(second, Delivered(), take_next=True)).next is None
        story = await backend.story(BOB)
        assert story is not None
        assert story.held_until == until

    # Sessions --------------------------------------------------------------------------------------------------------

    async def test_two_conversations_never_share_one_agent_session_by_accident(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """CONTRACTS 20. An agent gave both the same handle: they may both use it, but never at the same time."""
        worker = await joined(backend, clock)
        for conversation in ("site/alice", "site/bob"):
            await accept(backend, arrival(f"first of {conversation}", conversation))
            await backend.commit(await claim_one(backend, worker), answer(session="one memory"))
        await accept(backend, arrival("m-1", "site/alice"), arrival("m-2", "site/bob"), arrival("m-3", "site/carol"))
        running = await backend.claim(worker, Kind.TURN, most=10)
        assert {lease.key for lease in running} in ({"site/alice", "site/carol"}, {"site/bob", "site/carol"})
        shared = next(lease for lease in running if lease.key != "site/carol")
        await pass_time(300)
        assert await backend.claim(worker, Kind.TURN, most=10) == []
        await backend.commit(shared, answer(session="one memory"))
        await pass_time(300)
        [other] = await backend.claim(worker, Kind.TURN, most=10)
        assert {other.key, shared.key} == {"site/alice", "site/bob"}
        assert other.session is not None
        assert other.session.handle == "one memory"

    async def test_sessions_that_begin_at_the_same_time_under_one_handle_take_turns(
        self, backend: Backend, clock: Clock
    ) -> None:
        """CONTRACTS 20. Also with somebody who had the handle before."""
        worker = await joined(backend, clock)
        handles = {"site/erin": "old", "site/alice": "one", "site/bob": "one", "site/carol": "hers", "site/dave": "old"}
        erin, *others = handles
        await accept(backend, arrival("first of erin", erin))
        await backend.commit(await claim_one(backend, worker), answer(session="old"))
        await accept(backend, *(arrival(f"first of {each}", each) for each in others))
        leases = await backend.claim(worker, Kind.TURN, most=10)
        await asyncio.gather(*(backend.commit(lease, answer(session=handles[lease.key])) for lease in leases))
        story = await backend.story("site/carol")
        assert story is not None
        assert [(session.handle, session.turns) for session in story.sessions.values()] == [("hers", 1)]
        await accept(backend, *(arrival(f"second of {each}", each) for each in handles))
        running = await backend.claim(worker, Kind.TURN, most=10)
        assert sorted(handles[lease.key] for lease in running) == ["hers", "old", "one"]
        assert all(lease.session is not None and lease.session.handle == handles[lease.key] for lease in running)

    async def test_who_begins_under_anothers_handle_does_not_go_on_beside_the_other(
        self, backend: Backend, clock: Clock
    ) -> None:
        """CONTRACTS 20. Its next turn and the other's are handed out in the very moment in which it begins."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("b-1", BOB))
        await backend.commit(await claim_one(backend, worker), answer(session="one"))
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"))
        committing = backend.commit(lease, answer(session="one"), take_next=True)
        committed, _, claimed = await asyncio.gather(
            committing, accept(backend, arrival("b-2", BOB)), backend.claim(worker, Kind.TURN, most=10)
        )
        assert len([*claimed, *([committed.next] if committed.next is not None else [])]) == 1

    async def test_sessions_that_begin_at_the_same_time_on_one_machine_stay_there(
        self, backend: Backend, clock: Clock
    ) -> None:
        """D7"""
        worker = await joined(backend, clock, "north")
        await accept(backend, arrival("m-1"), arrival("b-1", BOB))
        leases = await backend.claim(worker, Kind.TURN, most=2)
        await asyncio.gather(*(backend.commit(lease, kept_here(f"of {lease.key}")) for lease in leases))
        stories = [await backend.story(conversation) for conversation in (ALICE, BOB)]
        sessions = [story.sessions[AT_ONCE.agent] for story in stories if story is not None]
        assert [(session.handle, session.machine) for session in sessions] == [
            (f"of {ALICE}", "north"),
            (f"of {BOB}", "north"),
        ]

    async def test_one_users_state_never_reaches_anothers_turn(self, backend: Backend, clock: Clock) -> None:
        """Sessions belong to a conversation and an agent."""
        worker = await joined(backend, clock)
        sales = replace(AT_ONCE, agent="sales")
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(session="alice's"))
        await accept(backend, arrival("b-1", BOB), arrival("m-2", policy=sales))
        leases = await backend.claim(worker, Kind.TURN, most=2)
        assert [(lease.session, lease.policy.agent == "sales") for lease in leases] in (
            [(None, False), (None, True)],
            [(None, True), (None, False)],
        )

    async def test_a_session_belongs_to_the_agent_that_ran(self, backend: Backend, clock: Clock) -> None:
        """A message that arrives during the turn may name another agent, for the next turn."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2", policy=replace(AT_ONCE, agent="sales")))
        await backend.commit(lease, answer(session="s-1"))
        story = await backend.story(ALICE)
        assert story is not None
        assert list(story.sessions) == [AT_ONCE.agent] == [turn.agent for turn in story.turns]
        assert (await claim_one(backend, worker)).session is None

    async def test_tokens_add_up_in_a_session_and_start_anew_in_another(self, backend: Backend, clock: Clock) -> None:
        """B5: a reused session adds to its total, a new one starts from zero, no session changes nothing."""
        worker = await joined(backend, clock)
        totals = []
        for number, (handle, tokens) in enumerate([("a", 5), ("a", 7), (None, 100), ("b", 2)]):
            await accept(backend, arrival(f"m-{number}"))
            await backend.commit(await claim_one(backend, worker), answer(session=handle, tokens=tokens))
            story = await backend.story(ALICE)
            assert story is not None
            session = story.sessions[AT_ONCE.agent]
            totals.append((session.handle, session.turns, session.usage.input_tokens))
        assert totals == [("a", 1, 5), ("a", 2, 12), ("a", 2, 12), ("b", 1, 2)]

    async def test_sessions_are_listed_and_can_be_forgotten(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        for conversation in (ALICE, BOB):
            await accept(backend, arrival(f"m-{conversation}", conversation))
            lease = await claim_one(backend, worker)
            await backend.commit(lease, answer(session=f"of {conversation}", tokens=3))
            await pass_time(5)
        latest, earlier = await backend.sessions()
        assert (latest.conversation, latest.handle, latest.turns, latest.usage.tokens) == (BOB, f"of {BOB}", 1, 3)
        assert (earlier.conversation, earlier.agent) == (ALICE, AT_ONCE.agent)
        assert await backend.sessions(limit=1) == [latest]
        assert await backend.sessions(agent="nobody") == []
        assert await backend.renew_session(BOB)
        assert not await backend.renew_session(BOB)
        assert not await backend.renew_session("site/nobody")
        assert await backend.sessions() == [earlier]
        await accept(backend, arrival("m-9", BOB))
        assert (await claim_one(backend, worker)).session is None

    @pytest.mark.parametrize("by", ["command", "operator"])
    async def test_what_the_very_first_turn_remembers_can_be_forgotten_while_it_runs(
        self, backend: Backend, clock: Clock, by: str
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        if by == "command":
            await accept(backend, replace(arrival("m-2", text="/new"), command="new"))
        else:
            assert await backend.renew_session(ALICE)
        assert not await backend.renew_session(ALICE)
        await backend.commit(lease, answer(session="s-1"))
        assert await backend.sessions() == []
        await accept(backend, arrival("m-3"))
        second = await claim_one(backend, worker)
        assert second.session is None
        await backend.commit(second, answer(session="s-2"))
        assert [session.handle for session in await backend.sessions()] == ["s-2"]

    async def test_who_is_put_off_is_told_once_and_goes_on_in_a_new_session(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer("first", session="s-1"))
        await accept(backend, arrival("m-2"))
        later = RetryLater(clock.now() + 60_000, "no money", counts=False, notice="not now")
        for _ in range(2):
            await backend.commit(await claim_one(backend, worker), later)
            await backend.retry(ALICE)
        await backend.commit(await claim_one(backend, worker), later)
        assert [(each.kind, each.text) for each in await backend.deliveries(ALICE)] == [
            ("reply", "first"),
            ("notice", "not now"),
        ]
        assert await backend.claim(worker, Kind.TURN) == []
        assert await backend.renew_session(ALICE)
        lease = await claim_one(backend, worker)
        assert (origin_ids(lease), lease.session, lease.attempt) == (["m-2"], None, 1)

    # People ----------------------------------------------------------------------------------------------------------

    async def test_what_is_known_of_somebody_is_kept_and_replaced(self, backend: Backend) -> None:
        assert await backend.person("site", "alice") is None
        first = await backend.save_person(Person("site", "alice", "Alice", "ally", ("vip", "de"), "c-1", 7))
        assert (first.version, first.labels) == (1, ("vip", "de"))
        second = await backend.save_person(Person("site", "alice", "Alice B."))
        assert (second.version, await backend.person("site", "alice")) == (2, second)
        assert second.labels == ()
        assert await backend.person("shop", "alice") is None

    async def test_everybody_hears_of_people_who_have_changed(self, backend: Backend, pass_time: PassTime) -> None:
        await backend.save_person(Person("site", "alice"))
        await pass_time(20)
        nobody, cursor = await backend.changed_people(-1)
        assert nobody == []
        bob = await backend.save_person(Person("site", "bob", "Bob"))
        alice = await backend.save_person(Person("site", "alice", "Alice"))
        changed, cursor = await backend.changed_people(cursor)
        assert {bob, alice}.issubset(changed)
        again, _ = await backend.changed_people(cursor)
        assert {(each.place, each.version) for each in again} <= {(bob.place, 1), (alice.place, 2)}

    # What is spent ---------------------------------------------------------------------------------------------------

    async def test_what_turns_used_is_added_up_by_day_channel_user_agent_and_model(
        self, backend: Backend, clock: Clock
    ) -> None:
        """B5: exact at every commit; a session that begins anew, or a turn without one, changes nothing about it."""
        worker = await joined(backend, clock)
        for number, (conversation, session, model) in enumerate(
            [(ALICE, "a", "small"), (ALICE, "b", "small"), (BOB, None, "large"), (ALICE, "b", "large")]
        ):
            await accept(backend, arrival(f"m-{number}", conversation))
            usage = Usage(10 + number, 1, 2, 3, 4_000)
            reply = Reply("hi", session, usage, model=model)
            await backend.commit(await claim_one(backend, worker), Replied(reply))
        small, large = sorted(await backend.spent(), key=lambda spent: spent.account.model, reverse=True)
        assert small.account == large.account._replace(model="small")
        assert (small.account.channel, small.account.user, small.account.agent) == ("site", "somebody", AT_ONCE.agent)
        assert (small.turns, small.usage) == (2, Usage(21, 2, 4, 6, 8_000))
        assert (large.turns, large.usage) == (2, Usage(25, 2, 4, 6, 8_000))
        story = await backend.story(ALICE)
        assert story is not None
        assert [turn.usage.cost for turn in story.turns] == [4_000] * 3
        assert story.sessions[AT_ONCE.agent].usage == Usage(24, 2, 4, 6, 8_000)

    async def test_only_what_is_asked_for_of_the_spent_is_shown(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-2", "shop/alice"))
        for lease in await backend.claim(worker, Kind.TURN, most=2):
            await backend.commit(lease, answer(tokens=5))
        [one, other] = await backend.spent()
        assert (one.account.channel, other.account.channel) == ("shop", "site")
        day = one.account.day
        assert await backend.spent(channel="site") == [other]
        assert await backend.spent(since=day, until=day, channel="shop", user="somebody") == [one]
        assert await backend.spent(user="nobody") == []
        assert await backend.spent(since=day + 2) == await backend.spent(until=day - 2) == []

    async def test_a_turn_that_used_nothing_or_was_fenced_is_not_paid(self, backend: Backend, clock: Clock) -> None:
        lost, worker = await joined(backend, clock), await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        stale = await claim_one(backend, lost)
        await backend.leave(lost)
        assert (await backend.commit(stale, answer(tokens=7))).verdict != "answered"
        await backend.commit(await claim_one(backend, worker), answer(tokens=0))
        assert await backend.spent() == []

    # Sessions on one machine -----------------------------------------------------------------------------------------

    async def test_a_session_on_one_machine_goes_on_there(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D7. Whoever is elsewhere leaves it, in sight; the operator is told once."""
        _, south = await settled_in_the_north(backend, clock, replace(AT_ONCE, session_wait_ms=60_000))
        assert await backend.claim(south, Kind.TURN) == []
        assert await backend.claim(south, Kind.TURN) == []
        lane = await lane_of(backend)
        assert lane.awaits == "north"
        events = [each.event for each in await backend.events()]
        [awaited] = [event for event in events if event.name == "session.awaited"]
        assert awaited.facts == {"machine": "north", "until": lane.awaits_until}
        neighbour = await joined(backend, clock, "north")
        await pass_time(300)
        lease = await claim_one(backend, neighbour)
        assert (lease.session and lease.session.machine, lease.moved_from) == ("north", None)
        assert (await lane_of(backend)).awaits is None

    async def test_a_lane_waits_for_its_machine_no_longer_than_it_may(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """Then it is handed over: the agent is told where its session was, and is at home here from its commit on."""
        north, south = await settled_in_the_north(backend, clock, AT_HOME)
        assert await backend.claim(south, Kind.TURN) == []
        await pass_time(SESSION_WAIT_MS + 10)
        lease = await claim_one(backend, south)
        assert (lease.session and lease.session.handle, lease.moved_from) == ("s-1", "north")
        await backend.commit(lease, kept_here())
        story = await backend.story(ALICE)
        assert story is not None
        session = story.sessions[AT_ONCE.agent]
        assert (session.machine, session.turns) == ("south", 2)
        moved = [each.event.facts for each in await backend.events() if each.event.name == "session.moved"]
        assert moved == [{"turn": 2, "machine": "north", "to": "south"}]
        await accept(backend, arrival("m-3", policy=AT_HOME))
        assert await backend.claim(north, Kind.TURN) == []

    async def test_a_lane_is_handed_over_at_once_when_its_machine_is_gone(self, backend: Backend, clock: Clock) -> None:
        """With the last worker there, not before."""
        north, south = await settled_in_the_north(backend, clock, replace(AT_ONCE, session_wait_ms=60_000))
        last = await joined(backend, clock, "north")
        await backend.leave(north)
        assert await backend.claim(south, Kind.TURN) == []
        await backend.leave(last)
        assert (await claim_one(backend, south)).moved_from == "north"

    async def test_a_machine_is_gone_too_when_its_workers_do_not_renew(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        _, south = await settled_in_the_north(backend, clock, replace(AT_ONCE, session_wait_ms=60_000))
        await pass_time(TERM_MS // 2)
        assert await backend.claim(south, Kind.TURN) == []
        await backend.renew(south, TERM_MS, [])
        await pass_time(TERM_MS // 2 + 10)
        assert (await claim_one(backend, south)).moved_from == "north"

    async def test_of_those_who_wait_whoever_is_at_home_is_served(self, backend: Backend, clock: Clock) -> None:
        policy = replace(AT_ONCE, session_wait_ms=60_000)
        north, south = await settled_in_the_north(backend, clock, policy)
        await backend.commit(await claim_one(backend, north), kept_here())
        elsewhere = asyncio.create_task(backend.claim(south, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        at_home = asyncio.create_task(backend.claim(north, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        await accept(backend, arrival("m-3", policy=policy))
        [lease] = await asyncio.wait_for(at_home, PATIENCE_SECONDS)
        assert (lease.worker, elsewhere.done()) == (north, False)
        await accept(backend, arrival("b-1", BOB))
        [other] = await asyncio.wait_for(elsewhere, PATIENCE_SECONDS)
        assert other.key == BOB

    async def test_nobody_waits_for_a_session_that_any_machine_can_go_on_with(
        self, backend: Backend, clock: Clock
    ) -> None:
        """Nor if it has become so, was given up, belongs to another agent, or the settings say not to."""
        policy = replace(AT_ONCE, session_wait_ms=60_000)
        north, south = await settled_in_the_north(backend, clock, policy)
        await backend.commit(await claim_one(backend, north), answer(session="s-1"))
        await accept(backend, arrival("m-3", policy=policy))
        shared = await claim_one(backend, south)
        assert shared.moved_from is None
        await backend.commit(shared, kept_here())
        await accept(backend, Arrival(arrival("m-4").message, policy, "new"), arrival("m-5", policy=policy))
        fresh = await claim_one(backend, north)
        assert (fresh.session, fresh.moved_from) == (None, None)
        await backend.commit(fresh, kept_here())
        await accept(backend, arrival("m-6", policy=replace(policy, agent="sales")))
        await backend.commit(await claim_one(backend, south), answer())
        await accept(backend, arrival("m-7", policy=replace(policy, session_wait_ms=0)))
        assert (await claim_one(backend, south)).moved_from == "north"

    # Steering --------------------------------------------------------------------------------------------------------

    async def test_a_retry_keeps_its_place_is_visible_and_can_be_hurried_or_skipped(
        self, backend: Backend, clock: Clock
    ) -> None:
        """PEERS: a retry keeps its place, is visible, and can be skipped."""
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await backend.commit(await claim_one(backend, worker), RetryLater(clock.now() + 3_600_000, "boom"))
        await accept(backend, arrival("m-2"))
        assert ((await lane_of(backend)).state, await backend.claim(worker, Kind.TURN)) == ("waiting", [])
        assert await backend.retry(ALICE)
        lease = await claim_one(backend, worker)
        assert (lease.attempt, origin_ids(lease)) == (2, ["m-1"])
        assert await backend.skip(ALICE)
        assert (await backend.commit(lease, answer("too late"))).verdict in {"fenced", "dead_letter"}
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]
        [letter] = await backend.dead_letters()
        assert (letter.turn.number, [message.origin_id for message in letter.messages]) == (1, ["m-1"])

    async def test_nothing_is_hurried_or_skipped_where_nothing_waits(self, backend: Backend) -> None:
        await accept(backend, arrival("m-1"))
        assert not await backend.retry(ALICE)
        assert not await backend.skip(ALICE)
        assert not await backend.skip("site/nobody")

    async def test_stop_sets_aside_all_that_was_said_and_fences_who_runs_it(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        await accept(backend, arrival("m-2"))
        assert await backend.stop(ALICE)
        assert not await backend.stop(ALICE)
        assert (await backend.commit(lease, answer("too late"))).verdict in {"fenced", "superseded"}
        assert (await lane_of(backend)).state == "idle"
        assert await backend.deliveries(ALICE) == []

    async def test_after_a_stop_nothing_starts_before_the_holder_has_let_go(
        self, backend: Backend, clock: Clock
    ) -> None:
        """What it ran may use the agent's session until it has really stopped."""
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        await backend.stop(ALICE)
        await accept(backend, arrival("m-2"))
        [turn] = await backend.busy(worker)
        assert (turn.is_over, await backend.claim(worker, Kind.TURN)) == (True, [])
        ended = await backend.commit(lease, answer("too late"), take_next=True)
        assert ended.verdict in {"fenced", "superseded"}
        assert ended.next is not None and origin_ids(ended.next) == ["m-2"]

    async def test_whoever_runs_a_turn_sees_that_its_conversation_is_paused(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await claim_one(backend, worker)

        async def is_paused() -> bool:
            [turn] = await backend.busy(worker)
            return turn.is_paused

        assert not await is_paused()
        await backend.pause(ALICE, until=clock.now() + 200)
        assert await is_paused()
        await pass_time(200)
        assert not await is_paused()
        await backend.pause(ALICE)
        assert await is_paused()
        await backend.resume(ALICE)
        assert not await is_paused()

    async def test_a_stopped_turn_whose_holder_dies_holds_nobody_up(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        await claim_one(backend, await joined(backend, clock))
        await backend.stop(ALICE)
        await accept(backend, arrival("m-2"))
        await expire(backend, pass_time)
        lease = await claim_one(backend, await joined(backend, clock))
        assert (origin_ids(lease), lease.attempt) == (["m-2"], 1)

    async def test_a_skipped_sending_is_not_overtaken_while_it_may_still_leave(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        first = await claim_one(backend, worker, Kind.OUT)
        assert await backend.skip(ALICE, Kind.OUT)
        assert await backend.claim(worker, Kind.OUT) == []
        assert (await backend.commit(first, Delivered("r-1"))).verdict in {"fenced", "failed"}
        second = await claim_one(backend, worker, Kind.OUT)
        assert second.delivery is not None and second.delivery.text == "two"

    # Showing an answer before it is whole ----------------------------------------------------------------------------

    async def test_who_runs_the_turn_may_show_its_answer_and_the_reply_leaves_at_once(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        assert [await backend.hold_outbox(lease) for _ in range(2)] == [True, True]
        outbox = await lane_of(backend, kind=Kind.OUT)
        assert (outbox.owner, outbox.epoch, outbox.pending) == (worker, 1, 0)
        await backend.commit(lease, answer("whole"))
        sending = await claim_one(backend, worker, Kind.OUT)
        assert (sending.epoch, sending.attempt, sending.in_doubt) == (2, 1, False)
        await backend.commit(sending, Delivered())
        assert await texts_sent(backend) == ["whole"]

    @pytest.mark.parametrize(
        "outcome",
        [
            answer(None),
            RetryLater(0, "boom"),
            GaveUp("no"),
            Released(),
            Parked("nobody"),
            Superseded(set_aside=False, cause="interrupted"),
        ],
        ids=lambda outcome: type(outcome).__name__,
    )
    async def test_however_a_turn_ends_nothing_of_it_is_shown_any_more(
        self, backend: Backend, clock: Clock, outcome: Outcome
    ) -> None:
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, await joined(backend, clock))
        assert await backend.hold_outbox(lease)
        await backend.commit(lease, outcome)
        assert (await lane_of(backend, kind=Kind.OUT)).owner is None
        assert not await backend.hold_outbox(lease)

    async def test_nothing_is_shown_while_something_is_to_be_said(self, backend: Backend, clock: Clock) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        first = await backend.commit(await claim_one(backend, worker), answer("before"))
        assert first.verdict == "answered"
        await accept(backend, arrival("m-2"))
        lease = await claim_one(backend, worker)
        assert not await backend.hold_outbox(lease)
        sending = await claim_one(backend, worker, Kind.OUT)
        assert not await backend.hold_outbox(lease)
        await backend.commit(sending, Delivered())
        assert await backend.hold_outbox(lease)

    async def test_what_is_to_be_said_never_waits_for_what_is_shown(self, backend: Backend, clock: Clock) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        assert await backend.hold_outbox(lease)
        await accept(backend, replace(arrival("m-2"), command="status"))
        notice = await claim_one(backend, worker, Kind.OUT)
        assert not await backend.hold_outbox(lease)
        await backend.commit(notice, Delivered())
        assert await backend.hold_outbox(lease)

    async def test_nothing_is_shown_where_nothing_may_be_sent(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        assert await backend.hold_outbox(lease)
        await backend.pause(ALICE, Kind.OUT)
        assert not await backend.hold_outbox(lease)
        await backend.resume(ALICE, Kind.OUT)
        assert await backend.hold_outbox(lease)
        await accept(backend, arrival("m-2", BOB))
        await backend.commit(await claim_one(backend, worker), answer())
        slow_down = RetryLater(clock.now() + 200, "slow down", holds_account=True)
        await backend.commit(await claim_one(backend, worker, Kind.OUT), slow_down)
        assert not await backend.hold_outbox(lease)
        await pass_time(250)
        assert await backend.hold_outbox(lease)

    async def test_nobody_shows_anything_of_a_turn_that_it_lost(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        stale = await claim_one(backend, await joined(backend, clock))
        assert await backend.hold_outbox(stale)
        assert await expire(backend, pass_time) == 2
        lease = await claim_one(backend, await joined(backend, clock))
        assert [await backend.hold_outbox(stale), await backend.hold_outbox(lease)] == [False, True]
        assert not await backend.hold_outbox(stale)

    async def test_a_turn_that_was_stopped_shows_nothing_more(self, backend: Backend, clock: Clock) -> None:
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, await joined(backend, clock))
        assert await backend.hold_outbox(lease)
        await backend.stop(ALICE)
        assert not await backend.hold_outbox(lease)
        await backend.commit(lease, answer("too late"))
        assert (await lane_of(backend, kind=Kind.OUT)).owner is None

    async def test_renewing_leaves_the_outbox_to_who_names_the_turn(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"))
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker)
        assert await backend.hold_outbox(lease)
        for _ in range(3):
            await pass_time(TERM_MS // 2)
            assert await backend.renew(worker, TERM_MS, [lease])
        assert (await lane_of(backend, kind=Kind.OUT)).epoch == 1
        assert await backend.hold_outbox(lease)
        await backend.renew(worker, TERM_MS, [])
        assert (await lane_of(backend, kind=Kind.OUT)).owner is None

    # Questions -------------------------------------------------------------------------------------------------------

    async def test_a_turn_that_asks_is_set_aside_and_starts_again_with_the_answer(
        self, backend: Backend, clock: Clock
    ) -> None:
        """D9"""
        worker = await joined(backend, clock)
        lease = await asked(backend, worker, Question("Deploy now?", ("yes", "no")))
        [delivery] = await backend.deliveries(ALICE)
        assert (delivery.kind, delivery.text, delivery.options) == ("question", "Deploy now?", ("yes", "no"))
        assert (delivery.turn, delivery.in_reply_to) == (1, ("m-1",))
        assert ((await lane_of(backend)).state, await backend.claim(worker, Kind.TURN)) == ("waiting", [])
        await accept(backend, arrival("m-2", text=" YES "))
        again = await claim_one(backend, worker)
        assert (again.number, again.attempt, origin_ids(again)) == (lease.number, 1, ["m-1"])
        assert again.answers == (Answer("yes", "somebody"),)
        await backend.commit(again, answer("deployed"))
        story = await backend.story(ALICE)
        assert story is not None and story.outcomes == {2: "answer"}
        assert [(turn.number, turn.outcome) for turn in story.turns] == [(1, "answered")]
        assert (await lane_of(backend)).state == "idle"

    async def test_any_text_is_an_answer_and_the_second_one_is_a_message_of_its_own(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Deploy now?", ("yes", "no")))
        await accept(backend, arrival("m-2", text="what would change?"), arrival("m-3", text="hello?"))
        again = await claim_one(backend, worker)
        assert again.answers == (Answer("what would change?", "somebody"),)
        await backend.commit(again, answer("a lot"))
        assert origin_ids(await claim_one(backend, worker)) == ["m-3"]

    async def test_who_cannot_have_seen_the_question_yet_does_not_answer_it(
        self, backend: Backend, clock: Clock
    ) -> None:
        """D9: a word about something else is no approval."""
        worker = await joined(backend, clock)
        await about_to_ask(backend, worker, Question("Deploy now?", ("yes", "no")))
        await accept(backend, arrival("m-2", text="yes"))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), RetryLater(clock.now(), "429"))
        await accept(backend, arrival("m-3", text="yes"))
        assert [asked.answer for asked in await backend.questions(ALICE)] == [None]
        await send_everything(backend, worker)
        await accept(backend, arrival("m-4", text="no"))
        again = await claim_one(backend, worker)
        assert (origin_ids(again), again.answers) == (["m-1"], (Answer("no", "somebody"),))
        await backend.commit(again, answer("then not"))
        assert origin_ids(await claim_one(backend, worker)) == ["m-2", "m-3"]
        story = await backend.story(ALICE)
        assert story is not None and story.outcomes == {4: "answer"}

    async def test_a_question_waits_behind_what_was_said_before_it_also_for_its_answer(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-0"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        await about_to_ask(backend, worker, Question("Deploy now?"))
        sending = await claim_one(backend, worker, Kind.OUT)
        store = backend if open_again is None else await open_again()
        await accept(store, arrival("m-2", text="yes"))
        sending = await next_one(store, await store.commit(sending, Delivered(), take_next=True), worker, Kind.OUT)
        await accept(store, arrival("m-3", text="yes"))
        sending = await next_one(store, await store.commit(sending, Delivered(), take_next=True), worker, Kind.OUT)
        assert sending.delivery is not None and sending.delivery.text == "Deploy now?"
        await accept(backend, arrival("m-4", text="no"))
        assert [asked.answer for asked in await store.questions(ALICE)] == [Answer("no", "somebody")]

    @pytest.mark.parametrize("how", ["being sent", "in doubt", "given back", "lost"])
    async def test_a_question_that_may_have_arrived_may_be_answered(
        self, backend: Backend, clock: Clock, pass_time: PassTime, how: str
    ) -> None:
        """D9: who has seen it waits for nothing but the turn that goes on."""
        worker = await joined(backend, clock)
        await about_to_ask(backend, worker, Question("Deploy now?"))
        sending = await claim_one(backend, worker, Kind.OUT)
        match how:
            case "in doubt":
                await backend.commit(sending, RetryLater(clock.now() + 3_600_000, "no answer", in_doubt=True))
            case "given back":
                await backend.commit(sending, Released())
            case "lost":
                await expire(backend, pass_time)
        await accept(backend, arrival("m-2", text="yes"))
        assert [asked.answer for asked in await backend.questions(ALICE)] == [Answer("yes", "somebody")]

    async def test_a_button_and_an_operator_answer_before_anything_has_left(
        self, backend: Backend, clock: Clock
    ) -> None:
        """Whoever names the question knows it."""
        worker = await joined(backend, clock)
        await about_to_ask(backend, worker, Question("Deploy now?"))
        [question] = await backend.deliveries(ALICE)
        pressed = arrival("m-2", text="yes")
        await accept(backend, replace(pressed, message=replace(pressed.message, answers=question.id)))
        again = await claim_one(backend, worker)
        assert again.answers == (Answer("yes", "somebody"),)
        await backend.commit(again, Asks(2, Question("Really?")))
        assert await backend.answer(ALICE, "no")
        assert (await claim_one(backend, worker)).answers == (Answer("yes", "somebody"), Answer("no", "operator"))

    async def test_a_retry_does_not_make_a_turn_ask_again(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Deploy now?", expires_at=clock.now() + 3_600_000))
        assert not await backend.retry(ALICE)
        assert await backend.claim(worker, Kind.TURN) == []
        lane = await lane_of(backend)
        assert (lane.state, lane.asks) == ("waiting", True)
        assert await backend.answer(ALICE, "yes")
        assert not (await lane_of(backend)).asks
        again = await claim_one(backend, worker)
        await backend.commit(again, RetryLater(clock.now() + 3_600_000, "boom"))
        assert await backend.retry(ALICE)

    async def test_a_parked_turn_that_asks_waits_for_an_operator_and_not_for_its_answer(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        for number, expires_at in enumerate((None, clock.now() + 3_600_000)):
            conversation = f"site/asker-{number}"
            await accept(backend, arrival(f"m-{number}", conversation=conversation))
            lease = await claim_one(backend, worker)
            await backend.ask(lease, 1, Question("Deploy now?", expires_at=expires_at))
            await backend.commit(lease, Parked("there is no such agent"))
            lane = await lane_of(backend, conversation)
            assert (lane.state, lane.asks) == ("parked", False)
            assert await backend.retry(conversation)
            assert await backend.claim(worker, Kind.TURN) == []

    async def test_a_button_answers_its_own_question_once_and_nothing_else(
        self, backend: Backend, clock: Clock
    ) -> None:
        """D9: answered twice, the second changes nothing."""
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Deploy now?", ("yes", "no")))
        [question] = await backend.deliveries(ALICE)
        pressed = [
            replace(one, message=replace(one.message, answers=button))
            for one, button in [
                (arrival("m-2", text="yes"), "another question"),
                (arrival("m-3", text="yes"), question.id),
                (arrival("m-4", text="no"), question.id),
            ]
        ]
        assert [one.verdict for one in await accept(backend, *pressed)] == ["accepted"] * 3
        again = await claim_one(backend, worker)
        assert again.answers == (Answer("yes", "somebody"),)
        await backend.commit(again, answer("done"))
        assert await backend.claim(worker, Kind.TURN) == []
        story = await backend.story(ALICE)
        assert story is not None and story.outcomes == {2: "answer", 3: "answer", 4: "answer"}

    async def test_a_question_that_nobody_answers_in_time_says_so(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Deploy now?", expires_at=clock.now() + 500))
        assert await backend.claim(worker, Kind.TURN) == []
        await pass_time(600)
        again = await claim_one(backend, worker)
        assert again.answers == (TIMED_OUT,)
        assert not await backend.answer(ALICE, "yes")
        await accept(backend, arrival("m-2", text="yes"))
        await backend.commit(again, answer("then not"))
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]

    async def test_an_operator_may_answer(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        assert not await backend.answer(ALICE, "yes")
        await asked(backend, worker, Question("Deploy now?", ("yes", "no")))
        assert await backend.answer(ALICE, "2")
        assert not await backend.answer(ALICE, "1")
        assert (await claim_one(backend, worker)).answers == (Answer("no", "operator"),)

    async def test_a_turn_may_hold_its_lease_while_it_asks_and_outlive_its_worker(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D9: asked, killed, restarted, answered: the turn goes on once, and the waiting cost no attempt."""
        await accept(backend, arrival("m-1", policy=replace(AT_ONCE, takeovers=0)))
        lease = await claim_one(backend, await joined(backend, clock))
        question = Question("Deploy now?")
        assert await backend.ask(lease, 1, question) is None
        assert await backend.ask(lease, 1, question) is None
        await expire(backend, pass_time)
        worker = await joined(backend, clock)
        assert ((await lane_of(backend)).state, await backend.claim(worker, Kind.TURN)) == ("waiting", [])
        assert await backend.ask(lease, 2, question) is None
        await send_everything(backend, worker)
        await accept(backend, arrival("m-2", text="go on"))
        again = await claim_one(backend, worker)
        assert (again.number, again.attempt, again.answers) == (1, 1, (Answer("go on", "somebody"),))
        assert await backend.ask(again, 1, question) == Answer("go on", "somebody")
        assert [delivery.kind for delivery in await backend.deliveries(ALICE)] == ["question"]
        with pytest.raises(ValueError, match="question 3"):
            await backend.ask(again, 3, question)

    async def test_a_stopped_turn_asks_no_more(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Deploy now?"))
        assert await backend.stop(ALICE)
        await accept(backend, arrival("m-2", text="yes"))
        lease = await claim_one(backend, worker)
        assert (origin_ids(lease), lease.answers) == (["m-2"], ())

    async def test_a_limit_is_counted_from_leases_and_leaves_with_them(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """A11"""
        backend.limits = Limits(all=3, per_agent=2, per_user=1)
        support, sales = replace(AT_ONCE, agent="support"), replace(AT_ONCE, agent="sales")
        said = [Message("site", f"m-{n}", f"site/{n}", f"user-{n}", "hello") for n in range(6)]
        await accept(backend, *(Arrival(message, support) for message in said[:4]))
        await accept(backend, *(Arrival(message, sales) for message in said[4:]))
        await accept(backend, Arrival(Message("site", "m-9", "site/9", "user-4", "me again"), sales))
        worker = await joined(backend, clock)
        leases = await backend.claim(worker, Kind.TURN, most=10)
        assert sorted(lease.policy.agent for lease in leases) in (
            ["sales", "support", "support"],
            ["sales", "sales", "support"],
        )
        assert len({lease.messages[0].sender for lease in leases}) == 3
        assert await backend.claim(worker, Kind.TURN, most=10) == []
        await backend.commit(leases[0], answer(None))
        assert len(await backend.claim(worker, Kind.TURN, most=10)) == 1
        await expire(backend, pass_time)
        again = await backend.claim(await joined(backend, clock), Kind.TURN, most=10)
        assert len(again) == 3

    async def test_all_that_is_paused_waits_and_what_runs_goes_on(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        running = await claim_one(backend, worker)
        backend.limits = Limits(pauses=Pauses(all=True))
        assert (await accept(backend, arrival("m-2"), arrival("b-1", BOB)))[0].verdict == "accepted"
        assert (await backend.commit(running, answer(), take_next=True)).next is None
        assert await backend.claim(worker, Kind.TURN, most=9) == await backend.claim(worker, Kind.OUT, most=9) == []
        backend.limits = Limits()
        assert len(await backend.claim(worker, Kind.TURN, most=9)) == 2
        assert len(await backend.claim(worker, Kind.OUT, most=9)) == 1

    async def test_a_paused_channel_neither_runs_nor_sends_and_others_do(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        site, shop = replace(AT_ONCE, tenant="site"), replace(AT_ONCE, tenant="shop")
        for number in range(2):
            said = arrival(f"m-{number}", policy=site), arrival(f"s-{number}", "shop/carol", policy=shop)
            await accept(backend, *said)
            for lease in await backend.claim(worker, Kind.TURN, most=2):
                await backend.commit(lease, answer())
        sending = {lease.key: lease for lease in await backend.claim(worker, Kind.OUT, most=2)}
        backend.limits = Limits(pauses=Pauses(channels=frozenset(["site"])))
        await accept(backend, arrival("m-2", policy=site), arrival("s-2", "shop/carol", policy=shop))
        assert (await backend.commit(sending[ALICE], Delivered(), take_next=True)).next is None
        went_on = await backend.commit(sending["shop/carol"], Delivered(), take_next=True)
        assert (await next_one(backend, went_on, worker, Kind.OUT)).key == "shop/carol"
        assert [lease.key for lease in await backend.claim(worker, Kind.TURN, most=9)] == ["shop/carol"]
        assert await backend.claim(worker, Kind.OUT, most=9) == []

    async def test_a_paused_agent_runs_no_turn_but_what_it_said_is_sent(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        support, sales = replace(AT_ONCE, agent="support"), replace(AT_ONCE, agent="sales")
        await accept(backend, arrival("m-1", policy=support))
        await backend.commit(await claim_one(backend, worker), answer())
        backend.limits = Limits(pauses=Pauses(agents=frozenset(["support"])))
        await accept(backend, arrival("m-2", policy=support), arrival("b-1", BOB, policy=sales))
        assert [lease.key for lease in await backend.claim(worker, Kind.TURN, most=9)] == [BOB]
        await send_everything(backend, worker)
        assert len(await texts_sent(backend)) == 1

    async def test_a_waiting_claim_is_served_once_the_pause_is_over(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        backend.limits = Limits(pauses=Pauses(all=True))
        await accept(backend, arrival("m-1"))
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        assert not await backend.claim(worker, Kind.TURN)
        backend.limits = Limits()
        [lease] = await asyncio.wait_for(waiting, 0.9)
        assert origin_ids(lease) == ["m-1"]

    # Settings --------------------------------------------------------------------------------------------------------

    async def test_a_setting_is_stored_changed_and_forgotten(self, backend: Backend, open_again: OpenAgain) -> None:
        """D8"""
        assert await backend.configuration() == {}
        assert await backend.configure("lanes.debounce", "5s")
        assert await backend.configure("commands.stop", "", by="api")
        assert not await backend.configure("lanes.debounce", "5s")
        assert await backend.configure("lanes.debounce", "ünï\n" * 5_000)
        assert not await backend.configure("limits.all", None)
        assert await backend.configuration() == {"lanes.debounce": "ünï\n" * 5_000, "commands.stop": ""}
        assert await backend.configure("lanes.debounce", None)
        changed = [each.event.facts for each in await backend.events() if each.event.name == "settings.changed"]
        assert [(facts["setting"], facts["by"]) for facts in changed] == [
            ("lanes.debounce", "operator"),
            ("commands.stop", "api"),
            ("lanes.debounce", "operator"),
            ("lanes.debounce", "operator"),
        ]
        assert (changed[0]["value"], changed[-1]["value"]) == ("5s", None)
        await backend.close()
        assert await (await self.opened_again(open_again)).configuration() == {"commands.stop": ""}

    async def test_a_paused_lane_waits_and_its_running_turn_goes_on(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        running = await claim_one(backend, worker)
        assert await backend.pause(ALICE)
        await accept(backend, arrival("m-2"))
        assert (await backend.commit(running, answer())).verdict == "answered"
        assert await backend.claim(worker, Kind.TURN) == []
        assert (await lane_of(backend)).state == "paused"
        assert await backend.resume(ALICE)
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]

    async def test_a_pause_with_an_end_ends_by_itself_if_something_waits(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        until = clock.now() + TAKEOVER_MS
        assert await backend.pause(ALICE, until=until)
        lane = await lane_of(backend)
        assert (lane.state, lane.paused_until, lane.due_at) == ("paused", until, until)
        assert await backend.claim(worker, Kind.TURN) == []
        await pass_time(TAKEOVER_MS + 10)
        assert (await lane_of(backend)).state == "ready"
        assert dict((await backend.counts()).lanes) == {"ready": 1}
        assert origin_ids(await claim_one(backend, worker)) == ["m-1"]
        resumed = [each.event for each in await backend.events() if each.event.name == "lane.resumed"]
        assert [event.facts["by"] for event in resumed] == ["time"]

    async def test_a_waiting_claim_is_woken_by_the_end_of_a_pause(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.pause(ALICE, until=clock.now() + TAKEOVER_MS)
        waiting = asyncio.create_task(backend.claim(worker, Kind.TURN, wait=True))
        await pass_time(TAKEOVER_MS + 10)
        [lease] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert origin_ids(lease) == ["m-1"]

    async def test_what_comes_after_a_pause_has_ended_is_not_held_up_by_it(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer())
        await backend.pause(ALICE, until=clock.now() + TAKEOVER_MS)
        await pass_time(TAKEOVER_MS + 10)
        assert (await lane_of(backend)).state == "idle"
        await accept(backend, arrival("m-2"))
        assert origin_ids(await claim_one(backend, worker)) == ["m-2"]

    # Others who answer -----------------------------------------------------------------------------------------------

    async def test_what_was_said_during_a_takeover_reaches_the_agent_afterwards_in_order_in_one_turn(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), by_the_business("b-2"), arrival("m-3"), arrival("m-4"))
        await accept(backend, by_the_business("b-5"), arrival("m-6"))
        assert await backend.claim(worker, Kind.TURN) == []
        assert (await lane_of(backend)).pending == 2, "m-4, for which the agent returns, and m-6"
        await pass_time(TAKEOVER_MS + 10)
        lease = await claim_one(backend, worker)
        assert told(lease) == ["(m-1)", "(b-2)", "(m-3)", "m-4", "(b-5)", "m-6"]
        assert [message.role for message in lease.heard] == ["person", "business", "person", "business"]
        await backend.commit(lease, answer("welcome back"))
        [delivery] = await backend.deliveries(ALICE)
        assert delivery.in_reply_to == ("m-4", "m-6")
        story = await backend.story(ALICE)
        assert story is not None
        assert dict(story.outcomes) == dict.fromkeys((1, 2, 3, 5), "heard")
        await accept(backend, arrival("m-7"))
        assert told(await claim_one(backend, worker)) == ["m-7"], "nothing is told twice"

    async def test_two_never_answer_one_message(self, backend: Backend, clock: Clock, pass_time: PassTime) -> None:
        """A turn that runs when somebody of the business speaks is over, and its messages wait for the agent."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        running = await claim_one(backend, worker)
        await accept(backend, by_the_business("b-2"))
        assert [lane.is_over for lane in await backend.busy(worker)] == [True]
        await pass_time(TAKEOVER_MS + 10)
        assert await backend.claim(worker, Kind.TURN) == [], "not while the agent may still be at it"
        assert (await backend.commit(running, answer("too late"))).verdict == "superseded"
        assert await backend.deliveries(ALICE) == []
        again = await claim_one(backend, worker)
        assert (told(again), again.number, again.attempt) == (["m-1", "(b-2)"], 2, 1)

    async def test_a_word_of_the_business_alone_starts_nothing(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        assert await accept(backend, by_the_business("b-1")) == [Acceptance("accepted", 1)]
        assert await accept(backend, by_the_business("b-1")) == [Acceptance("duplicate", 1)]
        lane = await lane_of(backend)
        assert (lane.state, lane.pending, lane.due_at) == ("paused", 0, None)
        await pass_time(TAKEOVER_MS + 10)
        assert (await lane_of(backend)).state == "idle"
        assert await backend.claim(worker, Kind.TURN) == []

    async def test_each_further_word_starts_the_silence_anew_and_none_cuts_a_pause_short(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await accept(backend, arrival("m-1"), by_the_business("b-2"))
        first = (await lane_of(backend)).paused_until or 0
        await pass_time(100)
        await accept(backend, by_the_business("b-3"))
        second = (await lane_of(backend)).paused_until or 0
        assert second >= first + 100
        await backend.pause(ALICE, until=second + 60_000)
        await accept(backend, by_the_business("b-4"))
        assert (await lane_of(backend)).paused_until == second + 60_000
        await backend.pause(ALICE)
        await accept(backend, by_the_business("b-5"))
        lane = await lane_of(backend)
        assert (lane.state, lane.paused_until, lane.due_at) == ("paused", None, None)

    async def test_what_the_business_said_is_told_again_to_a_turn_that_failed_or_lost_its_worker(
        self, backend: Backend, clock: Clock, pass_time: PassTime, open_again: OpenAgain
    ) -> None:
        await accept(backend, by_the_business("b-1"), arrival("m-2"))
        await backend.resume(ALICE)
        other = backend if open_again is None else await open_again()
        lease = await claim_one(other, worker := await joined(other, clock))
        assert told(lease) == ["(b-1)", "m-2"]
        await other.commit(lease, RetryLater(clock.now(), "boom"))
        assert told(await claim_one(other, worker)) == ["(b-1)", "m-2"]
        await expire(backend, pass_time)
        assert told(await claim_one(backend, await joined(backend, clock))) == ["(b-1)", "m-2"]

    async def test_an_answer_by_hand_leaves_once_and_the_agent_knows_it(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        assert await backend.say(by_hand("h-1")) is None, "there is no such conversation"
        await accept(backend, arrival("m-1"))
        assert await backend.say(by_hand("h-1", text="I am Anna")) == Acceptance("accepted", 2)
        assert await backend.say(by_hand("h-1", text="I am Anna")) == Acceptance("duplicate", 2)
        [delivery] = await backend.deliveries(ALICE)
        assert (delivery.kind, delivery.text, delivery.turn, delivery.in_reply_to) == (
            "operator",
            "I am Anna",
            None,
            (),
        )
        assert (await lane_of(backend)).state == "paused"
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["I am Anna"]
        await backend.resume(ALICE)
        lease = await claim_one(backend, worker)
        assert (told(lease), lease.heard[0].role) == (["m-1", "(h-1)"], "operator")

    async def test_an_answer_by_hand_need_not_take_over(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await backend.say(by_hand("h-1"), takes_over=False)
        await accept(backend, arrival("m-2"))
        assert (await backend.commit(lease, answer())).verdict == "answered"
        assert told(await claim_one(backend, worker)) == ["(h-1)", "m-2"]

    async def test_who_is_typing_is_waited_for_within_max_wait(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        assert not await backend.typing(ALICE), "nobody has said anything yet"
        await accept(backend, arrival("m-1", policy=GATHER))
        first = await lane_of(backend)
        await pass_time(100)
        assert await backend.typing(ALICE)
        later = (await lane_of(backend)).ready_at or 0
        assert later >= (first.ready_at or 0) + 100
        await pass_time(200)
        await backend.typing(ALICE)
        await pass_time(200)
        await backend.typing(ALICE)
        assert (await lane_of(backend)).ready_at == (first.first_at or 0) + GATHER.max_wait_ms

    async def test_typing_holds_up_nothing_that_is_ready_runs_or_is_paused(
        self, backend: Backend, clock: Clock
    ) -> None:
        await accept(backend, arrival("m-1"))
        assert not await backend.typing(ALICE)
        await claim_one(backend, await joined(backend, clock))
        assert not await backend.typing(ALICE)
        await accept(backend, arrival("b-1", BOB, GATHER))
        await backend.pause(BOB)
        assert not await backend.typing(BOB)

    async def test_a_parked_lane_waits_for_an_operator_and_counts_anew(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), RetryLater(clock.now(), "boom"))
        assert (await backend.commit(await claim_one(backend, worker), Parked("no agent"))).verdict == "parked"
        await accept(backend, arrival("m-2"))
        assert await backend.claim(worker, Kind.TURN) == []
        assert (await lane_of(backend)).state == "parked"
        assert await backend.unpark(ALICE)
        assert not await backend.unpark(ALICE)
        lease = await claim_one(backend, worker)
        assert (origin_ids(lease), lease.attempt, lease.failures) == (["m-1"], 1, 0)

    async def test_steering_says_if_there_is_no_such_lane(self, backend: Backend) -> None:
        assert not await backend.pause(ALICE)
        assert not await backend.resume(ALICE)
        assert not await backend.unpark(ALICE)

    async def test_a_wall_clock_that_jumps_changes_when_and_never_what(self, backend: Backend, clock: Clock) -> None:
        if not isinstance(clock, VirtualClock):
            pytest.skip("needs a clock that can be set")
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        clock.jump(-3_600_000)
        await accept(backend, arrival("m-2"))
        assert (await backend.commit(lease, answer("one"))).verdict == "answered"
        clock.jump(7_200_000)
        assert await backend.renew(worker, TERM_MS, [])
        follower = await claim_one(backend, worker)
        assert (origin_ids(follower), follower.number, follower.epoch) == (["m-2"], 2, 2)

    # What failed -----------------------------------------------------------------------------------------------------

    async def test_a_dead_letter_runs_again_after_what_waits_and_under_the_same_ids(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-2"))
        await backend.commit(await claim_one(backend, worker), GaveUp("no"))
        await accept(backend, arrival("m-3", policy=replace(AT_ONCE, max_batch=1)))
        assert await backend.retry_dead_letter(ALICE, 1) == 2
        assert await backend.dead_letters() == []
        assert await accept(backend, arrival("m-1")) == [Acceptance("duplicate", 4)]
        assert await backend.place_of("site", "m-2") == (ALICE, 5)
        turns = []
        while leases := await backend.claim(worker, Kind.TURN):
            turns.append((leases[0].number, origin_ids(leases[0])))
            await backend.commit(leases[0], answer())
        assert turns == [(2, ["m-3"]), (3, ["m-1"]), (4, ["m-2"])]
        assert [view.in_reply_to for view in await backend.deliveries(ALICE)] == [("m-3",), ("m-1",), ("m-2",)]
        story = await backend.story(ALICE)
        assert story is not None
        assert [turn.outcome for turn in story.turns] == ["retried", "answered", "answered", "answered"]
        assert [message.seq for message in story.messages] == [3, 4, 5]

    async def test_a_retried_dead_letter_waits_like_its_lane(self, backend: Backend, clock: Clock) -> None:
        """Behind a running turn, and while the lane is paused."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), GaveUp("no"))
        await accept(backend, arrival("m-2"))
        running = await claim_one(backend, worker)
        await backend.pause(ALICE)
        await backend.retry_dead_letter(ALICE, 1)
        await backend.commit(running, answer())
        assert await backend.claim(worker, Kind.TURN) == []
        await backend.resume(ALICE)
        assert origin_ids(await claim_one(backend, worker)) == ["m-1"]

    async def test_a_retried_dead_letter_is_not_refused_for_coming_late(self, backend: Backend, clock: Clock) -> None:
        worker, policy = await joined(backend, clock), replace(AT_ONCE, on_busy="reject")
        await accept(backend, arrival("m-1", policy=policy))
        await backend.commit(await claim_one(backend, worker), GaveUp("no"))
        await accept(backend, arrival("m-2", policy=policy))
        running = await claim_one(backend, worker)
        await accept(backend, arrival("m-3", policy=policy))
        await backend.retry_dead_letter(ALICE, 1)
        await backend.commit(running, answer())
        assert origin_ids(await claim_one(backend, worker)) == ["m-1"]

    async def test_only_a_dead_letter_is_retried_or_dropped_and_only_once(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("b-1", BOB))
        for lease in await backend.claim(worker, Kind.TURN, most=2):
            await backend.commit(lease, GaveUp("no"))
        assert await backend.drop_dead_letter(ALICE, 1)
        assert await backend.retry_dead_letter(BOB, 1) == 1
        for conversation, number in ((ALICE, 1), (BOB, 1), (ALICE, 2), ("site/nobody", 1)):
            assert await backend.retry_dead_letter(conversation, number) == 0
            assert not await backend.drop_dead_letter(conversation, number)
        counts = await backend.counts()
        assert (counts.dead_letters, counts.messages_waiting) == (0, 1)

    async def test_a_commit_is_told_the_same_after_its_dead_letter_was_retried(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        await backend.commit(lease, GaveUp("no"))
        await backend.retry_dead_letter(ALICE, 1)
        assert (await backend.commit(lease, GaveUp("no"))).verdict == "dead_letter"

    async def test_a_failed_delivery_is_sent_again_after_what_waits_under_the_same_id(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two", "three"]))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("400"))
        await pass_time(10)
        assert await backend.resend(ALICE, 1)
        again = await backend.delivery(delivery_id(ALICE, 1, 1))
        assert again is not None
        assert (again.seq, again.state, again.cause, again.queued_at) == (4, "queued", None, clock.now())
        assert not await backend.resend(ALICE, 1)
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["two", "three", "one"]
        assert not await backend.resend(ALICE, 4)

    async def test_a_held_delivery_is_let_go_and_what_waits_behind_it_is_not_resent(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        assert not await backend.resend(ALICE, 1)
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Parked("nobody can tell"))
        assert not await backend.resend(ALICE, 2)
        assert await backend.resend(ALICE, 1)
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["one", "two"]

    @pytest.mark.parametrize("state", ["failed", "held", "backing off", "waiting", "last"])
    async def test_a_dropped_delivery_is_not_sent_and_the_next_one_goes_on(
        self, backend: Backend, clock: Clock, state: str
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two", "three"]))
        ends: dict[str, Outcome] = {
            "failed": GaveUp("400"),
            "held": Parked("nobody can tell"),
            "backing off": RetryLater(clock.now() + 60_000, "503"),
        }
        if state in ends:
            await backend.commit(await claim_one(backend, worker, Kind.OUT), ends[state])
        place = {"waiting": 2, "last": 3}.get(state, 1)
        assert await backend.drop(ALICE, place)
        assert not await backend.drop(ALICE, place)
        assert [view.seq for view in await backend.outbox(state="dropped")] == [place]
        assert await backend.outbox(state="failed") == []
        counts = await backend.counts()
        assert (counts.deliveries_waiting, counts.deliveries_failed) == (2, 0)
        committed = await backend.commit(await claim_one(backend, worker, Kind.OUT), Delivered(), take_next=True)
        if committed.next is not None:
            await backend.commit(committed.next, Delivered())
        await send_everything(backend, worker)
        texts = ["one", "two", "three"]
        assert await texts_sent(backend) == texts[: place - 1] + texts[place:]
        assert not await backend.drop(ALICE, 1 if place > 1 else 2)

    async def test_who_sends_what_is_dropped_is_fenced_and_nothing_leaves_before_it_has_let_go(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        sending = await claim_one(backend, worker, Kind.OUT)
        assert await backend.drop(ALICE, 1)
        assert await backend.claim(worker, Kind.OUT) == []
        assert (await backend.commit(sending, Delivered())).verdict in {"fenced", "failed"}
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["two"]

    async def test_only_a_delivery_that_there_is_is_found_resent_or_dropped(self, backend: Backend) -> None:
        await accept(backend, arrival("m-1"))
        for place in (0, 1, 7):
            assert not await backend.resend(ALICE, place)
            assert not await backend.drop(ALICE, place)
        assert await backend.delivery("nothing") is None

    async def test_nothing_more_is_sent_to_who_is_gone_until_somebody_writes(
        self, backend: Backend, clock: Clock
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-2", policy=replace(AT_ONCE, max_batch=1)))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two", "three"]))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("410", gone=True), take_next=True)
        assert (await lane_of(backend)).gone == "410"
        running = await claim_one(backend, worker)
        assert not await backend.hold_outbox(running), "nor is an answer shown there"
        await backend.commit(running, answer("four"))
        assert await backend.claim(worker, Kind.OUT) == []
        failed = [(view.text, view.cause) for view in await backend.deliveries(ALICE) if view.state == "failed"]
        assert failed == [("one", "410"), ("two", "410"), ("three", "410"), ("four", "410")]
        await accept(backend, arrival("m-3"), arrival("b-1", BOB))
        assert (await lane_of(backend)).gone is None
        for lease in await backend.claim(worker, Kind.TURN, most=2):
            await backend.commit(lease, answer("five"))
        await send_everything(backend, worker)
        assert await texts_sent(backend) == ["five"]
        assert await texts_sent(backend, BOB) == ["five"]

    async def test_a_question_to_who_is_gone_fails_like_everything_else(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-2", policy=replace(AT_ONCE, max_batch=1)))
        await backend.commit(await claim_one(backend, worker), answer("one"))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("410", gone=True))
        lease = await claim_one(backend, worker)
        await backend.ask(lease, 1, Question("Deploy now?", ("yes", "no")))
        assert [view.state for view in await backend.deliveries(ALICE)] == ["failed", "failed"]

    async def test_resending_tries_again_to_reach_who_was_gone(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer(["one", "two"]))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("410", gone=True))
        store = backend if open_again is None else await open_again()
        assert (await lane_of(store)).gone == "410"
        assert await store.resend(ALICE, 2)
        assert (await lane_of(store)).gone is None
        await send_everything(store, worker)
        assert await texts_sent(store) == ["two"]

    async def test_a_conversation_behaves_as_it_was_told_until_it_is_changed_back(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        worker, route = await joined(backend, clock), replace(AT_ONCE, on_busy="collect")
        assert not await backend.behave(ALICE, "queue")
        await accept(backend, arrival("m-1", policy=route))
        assert await backend.behave(ALICE, "queue")
        store = backend if open_again is None else await open_again()
        await accept(store, arrival("m-2", policy=route), arrival("m-3", policy=route), arrival("b-1", BOB, route))
        assert (await lane_of(store)).on_busy == "queue"
        assert (await lane_of(store, BOB)).on_busy is None
        lease = next(lease for lease in await store.claim(worker, Kind.TURN, most=2) if lease.key == ALICE)
        assert (origin_ids(lease), lease.policy.on_busy) == (["m-1"], "queue")
        [busy] = [each for each in await store.busy(worker) if each.conversation == ALICE]
        assert busy.on_busy == "queue"
        await store.behave(ALICE, None)
        await store.commit(lease, answer())
        again = await claim_one(store, worker)
        assert (origin_ids(again), again.policy) == (["m-2", "m-3"], route)

    # What is seen ----------------------------------------------------------------------------------------------------

    async def test_what_returned_has_happened_and_survives_a_restart(
        self, backend: Backend, clock: Clock, open_again: OpenAgain
    ) -> None:
        """A13: after a restart, what no turn has acknowledged is processed; sessions survive."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer("hi", "s-1", tokens=3))
        await accept(backend, arrival("m-2"))
        before, events = await backend.story(ALICE), await backend.events()
        await backend.close()
        again = await self.opened_again(open_again)
        assert await again.story(ALICE) == before
        assert await again.events() == events
        lease = await claim_one(again, await joined(again, clock))
        assert origin_ids(lease) == ["m-2"]
        assert lease.session is not None
        assert lease.session.handle == "s-1"

    async def test_lanes_are_listed_by_kind_state_and_channel(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(
            backend,
            arrival("m-1"),
            arrival("m-2", "my_shop/x"),
            arrival("m-3", "my-shop/x", GATHER),
            arrival("m-4", "Site/x", GATHER),
        )
        await backend.claim(worker, Kind.TURN)
        assert {lane.conversation for lane in await backend.lanes(channel="my_shop")} == {"my_shop/x"}
        assert {lane.conversation for lane in await backend.lanes(channel="site")} == {ALICE}
        assert {lane.conversation for lane in await backend.lanes(state="gathering")} == {"my-shop/x", "Site/x"}
        assert [lane.state for lane in await backend.lanes(state="running")] == ["running"]
        assert len(await backend.lanes(limit=3)) == 3
        assert len(await backend.lanes(state="gathering", limit=1)) == 1
        assert await backend.lanes(kind=Kind.OUT) == []

    async def test_a_conversation_nobody_heard_of_has_no_story(self, backend: Backend) -> None:
        assert await backend.story(ALICE) is None
        assert await backend.deliveries(ALICE) == []
        assert await backend.dead_letters() == []

    async def test_a_message_is_found_by_its_channel_and_id(self, backend: Backend) -> None:
        await accept(backend, arrival("m-1"), arrival("m-2"), arrival("m-3", conversation=BOB))
        assert await backend.place_of("site", "m-2") == (ALICE, 2)
        assert await backend.place_of("site", "m-3") == (BOB, 1)
        assert await backend.place_of("site", "m-4") is None
        assert await backend.place_of("other", "m-1") is None

    async def test_the_story_shows_the_latest_oldest_first(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        for number in range(4):
            await accept(backend, arrival(f"m-{number}"))
            await backend.commit(await claim_one(backend, worker), answer(f"re {number}"))
        story = await backend.story(ALICE, limit=2)
        assert story is not None
        assert [message.origin_id for message in story.messages] == ["m-2", "m-3"]
        assert [turn.number for turn in story.turns] == [3, 4]
        assert [view.text for view in story.deliveries] == ["re 2", "re 3"]
        assert [view.text for view in await backend.deliveries(ALICE, after=1, limit=2)] == ["re 1", "re 2"]

    async def test_the_locks_are_the_leases_that_are_held(self, backend: Backend, clock: Clock) -> None:
        """C7: conversation, worker, since when."""
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        lease = await claim_one(backend, worker)
        [lock] = await backend.locks()
        assert (lock.conversation, lock.kind, lock.worker, lock.epoch) == (ALICE, Kind.TURN, worker, lease.epoch)
        assert (lock.since, lock.worker_alive_until) == (lease.claimed_at, lease.claimed_at + TERM_MS)
        [view] = await backend.workers()
        assert (view.id, view.live, view.lanes) == (worker, True, 1)
        await backend.commit(lease, answer())
        assert await backend.locks() == []

    async def test_counts_add_up(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("b-1", BOB), arrival("x-1", "site/x"))
        answered, given_up = await backend.claim(worker, Kind.TURN, most=2)
        await backend.commit(answered, answer(["one", "two"]))
        await backend.commit(given_up, GaveUp("no"))
        await backend.commit(await claim_one(backend, worker, Kind.OUT), GaveUp("400"))
        counts = await backend.counts()
        assert {state: count for state, count in counts.lanes.items() if count} == {"idle": 2, "ready": 1}
        assert (counts.messages_waiting, counts.deliveries_waiting, counts.deliveries_failed) == (1, 1, 1)
        assert (counts.dead_letters, counts.locks, counts.workers_live) == (1, 0, 1)
        assert counts.oldest_due_at is not None

    async def test_events_are_kept_in_order_behind_their_cursors(self, backend: Backend, clock: Clock) -> None:
        """B8: every decision leaves a fact under a name that is documented."""
        assert await backend.events() == []
        heard: list[Event] = []
        backend.subscribe(heard.extend)
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"), arrival("m-1"), arrival("m-2"))
        await backend.commit(await claim_one(backend, worker), answer())
        await backend.commit(await claim_one(backend, worker, Kind.OUT), Delivered())
        stored = await backend.events()
        names = [entry.event.name for entry in stored]
        assert set(names) <= set(EVENTS)
        # Facts of calls that changed nothing are kept only where that is cheap.
        assert [name for name in names if name != "message.duplicate"] == [
            "worker.joined",
            "message.accepted",
            "message.accepted",
            "turn.started",
            "turn.answered",
            "delivery.started",
            "delivery.sent",
        ]
        assert heard == [entry.event for entry in stored]
        cursors = [entry.cursor for entry in stored]
        assert cursors == sorted(set(cursors))
        for place, cursor in enumerate(cursors):
            assert await backend.events(after=cursor, limit=2) == stored[place + 1 : place + 3]
        assert await backend.events(after=-1) == stored[-1:]

    async def test_changes_tell_how_the_lanes_stand_that_they_are_about(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1", ALICE), arrival("m-2", BOB))
        # Stored together, and told together or one by one.
        together = await backend.changes(after=0)
        assert {lane.conversation for lane in together.lanes} == {ALICE, BOB}
        begun, one_by_one = 0, []
        while (page := await backend.changes(after=begun, limit=1)).events:
            begun = page.events[0].cursor
            one_by_one.append((page.events[0].event.conversation, [lane.conversation for lane in page.lanes]))
        assert one_by_one == [(None, []), (ALICE, [ALICE]), (BOB, [BOB])]
        lease = await claim_one(backend, worker)
        changes = await backend.changes(after=begun)
        assert (list(changes.events), list(changes.lanes)) == (
            await backend.events(after=begun),
            [await lane_of(backend, lease.key)],
        )
        await backend.commit(lease, answer())
        assert [entry.event.name for entry in (await backend.changes(after=begun, limit=1)).events] == ["turn.started"]
        # Told late, a lane is as it is by now, or as it was with the fact, and never as it was before.
        for cursor in (begun, changes.events[-1].cursor):
            [lane] = (await backend.changes(after=cursor)).lanes
            assert (lane.conversation, lane.state) == (lease.key, "idle")
        last = (await backend.events(after=-1))[-1].cursor
        assert await backend.changes(after=last) == Changes([], [])

    async def test_every_change_of_a_lane_is_told(self, backend: Backend, clock: Clock, pass_time: PassTime) -> None:
        """Also where somebody types, or an operator ends what was said and what runs."""
        worker = await joined(backend, clock)

        async def heard(changing: Awaitable[object]) -> str:
            cursor = (await backend.events(after=-1))[-1].cursor
            await changing
            [lane] = (await backend.changes(after=cursor)).lanes
            assert lane == await lane_of(backend)
            return lane.state

        await accept(backend, arrival("m-1", policy=replace(GATHER, max_wait_ms=60_000)))
        await pass_time(1)
        assert await heard(backend.typing(ALICE)) == "gathering"
        assert await heard(backend.stop(ALICE)) == "idle"
        await accept(backend, arrival("m-2"))
        lease = await claim_one(backend, worker)
        assert await heard(backend.stop(ALICE)) == "running"
        assert await heard(backend.commit(lease, answer())) == "idle"

    async def test_the_board_shows_what_is_not_idle_first(self, backend: Backend, clock: Clock) -> None:
        worker = await joined(backend, clock)
        for number, name in enumerate(("a", "b", "c", "d")):
            await accept(backend, arrival(f"m-{number}", f"site/{name}"))
        while leases := await backend.claim(worker, Kind.TURN):
            await backend.commit(leases[0], answer())
        await backend.pause("site/b")
        board = await backend.board(10)
        assert [(lane.conversation, lane.state) for lane in board[:1]] == [("site/b", "paused")]
        assert {lane.conversation for lane in board} == {"site/a", "site/b", "site/c", "site/d"}
        assert await backend.board(2) == board[:2]

    async def test_a_change_is_noticed_here_and_elsewhere(self, backend: Backend, open_again: OpenAgain) -> None:
        watchers = [backend] if open_again is None else [backend, await open_again()]
        waiting = [asyncio.create_task(each.changed(PATIENCE_SECONDS)) for each in watchers]
        numbers = iter(range(1_000_000))
        # The first message may be stored before everybody watches; whoever watches hears of one of the next.
        while not all(task.done() for task in waiting):
            await accept(backend, arrival(f"m-{next(numbers)}"))
            await asyncio.sleep(0.01)
        assert all([await task for task in waiting])
        assert not await backend.changed(0.01)

    async def test_old_history_is_forgotten_but_never_dead_letters_nor_what_waits(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        worker = await joined(backend, clock)
        await accept(backend, arrival("m-1"))
        await backend.commit(await claim_one(backend, worker), answer())
        await send_everything(backend, worker)
        await accept(backend, arrival("m-2"))
        await backend.commit(await claim_one(backend, worker), GaveUp("no"))
        await accept(backend, arrival("m-3"))
        await pass_time(10)
        now = clock.now()
        await backend.forget(messages_before=now, events_before=now, origins_before=0)
        story = await backend.story(ALICE)
        assert story is not None
        kept = [message.origin_id for message in story.messages]
        assert kept[-2:] == ["m-2", "m-3"]
        [letter] = await backend.dead_letters()
        assert [message.origin_id for message in letter.messages] == ["m-2"]
        assert await accept(backend, arrival("m-1")) == [Acceptance("duplicate", 1)]
        assert origin_ids(await claim_one(backend, worker)) == ["m-3"]

    # Schedules -------------------------------------------------------------------------------------------------------

    async def test_a_schedule_says_its_prompt_when_it_is_due_and_not_before(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D5"""
        worker = await joined(backend, clock)
        assert await backend.schedule(EACH_SECOND, AT_ONCE)
        [view] = await backend.schedules()
        assert (view.name, view.state, view.owner, view.fired_at) == ("pulse", "waiting", None, None)
        assert view.next_at is not None
        assert clock.now() < view.next_at <= clock.now() + 1_000
        assert await backend.claim(worker, Kind.TICK) == []
        await pass_time(view.next_at - clock.now())
        worker = await joined(backend, clock)
        assert await fire_what_is_due(backend, worker) == "fired"
        [message] = await backend.waiting(ALICE)
        assert (message.role, message.text, message.sent_at) == ("schedule", "beat", view.next_at)
        assert (message.sender, message.channel) == ("schedule/pulse", "site")
        assert message.origin_id.startswith("schedule/pulse/")
        [after] = await backend.schedules()
        assert after.next_at == view.next_at + 1_000
        assert after.fired_at is not None
        assert origin_ids(await claim_one(backend, worker)) == [message.origin_id]

    async def test_the_same_definition_changes_nothing_and_other_words_keep_the_time(
        self, backend: Backend, clock: Clock
    ) -> None:
        await backend.schedule(EACH_HOUR, AT_ONCE)
        [before] = await backend.schedules()
        assert not await backend.schedule(EACH_HOUR, AT_ONCE)
        assert await backend.schedule(replace(EACH_HOUR, prompt="other words"), AT_ONCE)
        [after] = await backend.schedules()
        assert (after.prompt, after.next_at) == ("other words", before.next_at)
        assert await backend.schedule(replace(EACH_HOUR, cron="7 * * * *", every_ms=None), AT_ONCE)
        [changed] = await backend.schedules()
        assert changed.next_at != before.next_at

    async def test_a_due_time_is_fired_once_whoever_commits_how_often(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        """D5: two leaders never act at once"""
        await backend.schedule(EACH_SECOND, AT_ONCE)
        await pass_time(1_000)
        slow = await joined(backend, clock)
        stale = await claim_one(backend, slow, Kind.TICK)
        assert await backend.claim(slow, Kind.TICK) == []
        assert await expire(backend, pass_time) == 1
        quick = await joined(backend, clock)
        lease = await claim_one(backend, quick, Kind.TICK)
        assert (lease.number, lease.attempt, lease.epoch) == (stale.number, 2, stale.epoch + 1)
        assert (await backend.commit(stale, Fired())).verdict == "fenced"
        assert await backend.waiting(ALICE) == []
        assert (await backend.commit(lease, Fired())).verdict == "fired"
        assert (await backend.commit(lease, Fired())).verdict == "fired"
        assert len(await backend.waiting(ALICE)) == 1

    @pytest.mark.parametrize("missed", ["once", "skip", "all"])
    async def test_missed_times_are_said_as_the_schedule_wants(
        self, backend: Backend, clock: Clock, pass_time: PassTime, missed: Missed
    ) -> None:
        await backend.schedule(replace(EACH_SECOND, missed=missed), AT_ONCE)
        [view] = await backend.schedules()
        assert view.next_at is not None
        await pass_time(3_500)
        worker = await joined(backend, clock)
        await fire_what_is_due(backend, worker)
        said = [message.sent_at for message in await backend.waiting(ALICE)]
        [after] = await backend.schedules()
        assert after.next_at is not None
        assert after.next_at > clock.now() - 1_000
        # No more than a minute late is not missed, so that one is said in any case.
        expected = list(range(view.next_at, after.next_at, 1_000))
        assert said == (expected if missed == "all" else expected[:1])

    async def test_of_what_was_missed_for_long_no_more_is_said_than_allowed(
        self, backend: Backend, clock: Clock
    ) -> None:
        """With a clock that is turned by hand; others wait no minutes."""
        if not isinstance(clock, VirtualClock):
            pytest.skip("needs a clock that is turned by hand")
        wanted: dict[str, Missed] = {"one": "once", "none": "skip", "many": "all"}
        for name, missed in wanted.items():
            many = replace(EACH_SECOND, name=name, conversation=f"site/{name}", missed=missed, missed_max=7)
            await backend.schedule(many, AT_ONCE)
        clock.advance(3_600_000)
        worker = await joined(backend, clock)
        while await fire_what_is_due(backend, worker):
            pass
        counts = [len(await backend.waiting(f"site/{name}")) for name in wanted]
        assert counts == [1, 0, 7]
        assert all(view.next_at == clock.now() // 1_000 * 1_000 + 1_000 for view in await backend.schedules())
        names = [entry.event.name for entry in await backend.events()]
        assert names.count("schedule.missed") == 3

    async def test_a_schedule_is_fired_by_hand_once_for_each_time(self, backend: Backend, clock: Clock) -> None:
        assert await backend.fire("hourly", clock.now()) is None
        await backend.schedule(EACH_HOUR, AT_ONCE)
        [before] = await backend.schedules()
        at = clock.now()
        assert await backend.fire("hourly", at) == Acceptance("accepted", 1)
        assert await backend.fire("hourly", at) == Acceptance("duplicate", 1)
        assert [message.text for message in await backend.waiting(ALICE)] == ["beat"]
        [after] = await backend.schedules()
        assert (after.next_at, after.state) == (before.next_at, "waiting")

    async def test_what_is_due_while_a_turn_runs_is_not_refused_for_coming_late(
        self, backend: Backend, clock: Clock
    ) -> None:
        """Nobody said it, so nobody is told to say it again. Those who came late before and after it are refused."""
        worker, policy = await joined(backend, clock), replace(AT_ONCE, on_busy="reject")
        await backend.schedule(EACH_HOUR, policy)
        await accept(backend, arrival("m-1", policy=policy))
        running = await claim_one(backend, worker)
        await accept(backend, arrival("m-2", policy=policy))
        assert await backend.fire("hourly", clock.now()) == Acceptance("accepted", 3)
        await accept(backend, arrival("m-3", policy=policy))
        assert await backend.refuse_late(running) == 1
        await backend.commit(running, answer())
        assert [message.role for message in (await claim_one(backend, worker)).messages] == ["schedule"]
        story = await backend.story(ALICE)
        assert story is not None
        assert dict(story.outcomes) == {2: "refused", 4: "refused"}

    async def test_a_removed_schedule_fires_no_more_and_fences_its_holder(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await backend.schedule(EACH_SECOND, AT_ONCE)
        await pass_time(1_000)
        worker = await joined(backend, clock)
        lease = await claim_one(backend, worker, Kind.TICK)
        assert await backend.unschedule("pulse")
        assert not await backend.unschedule("pulse")
        assert await backend.schedules() == []
        assert (await backend.commit(lease, Fired())).verdict == "fenced"
        assert await backend.story(ALICE) is None
        assert await backend.schedule(EACH_SECOND, AT_ONCE)
        assert len(await backend.schedules()) == 1

    async def test_what_passes_while_a_schedule_is_paused_was_not_missed(
        self, backend: Backend, clock: Clock, pass_time: PassTime
    ) -> None:
        await backend.schedule(EACH_SECOND, AT_ONCE)
        assert await backend.pause("schedule/pulse", Kind.TICK)
        [paused] = await backend.schedules()
        assert (paused.state, paused.next_at) == ("paused", None)
        await pass_time(2_000)
        worker = await joined(backend, clock)
        assert await backend.claim(worker, Kind.TICK) == []
        assert await backend.resume("schedule/pulse", Kind.TICK)
        [resumed] = await backend.schedules()
        assert resumed.next_at is not None
        assert resumed.next_at > clock.now() - 1_000
        await pass_time(1_000)
        await fire_what_is_due(backend, await joined(backend, clock))
        assert len(await backend.waiting(ALICE)) == 1

    async def test_a_schedule_that_is_off_waits_for_nothing(self, backend: Backend) -> None:
        await backend.schedule(replace(EACH_SECOND, enabled=False), AT_ONCE)
        [view] = await backend.schedules()
        assert (view.state, view.next_at) == ("off", None)
        assert await backend.schedule(EACH_SECOND, AT_ONCE)
        [on] = await backend.schedules()
        assert on.state == "waiting"

    @pytest.mark.parametrize(
        "wrong",
        [
            {"every_ms": None, "cron": "61 * * * *"},
            {"every_ms": None, "cron": "0 0 30 feb *"},
            {"every_ms": None, "cron": "* * * * *", "zone": "Mars/Olympus"},
            {"every_ms": None},
            {"every_ms": 10},
            {"cron": "* * * * *"},
            {"name": "No Such Name"},
            {"prompt": " "},
        ],
    )
    async def test_a_schedule_that_cannot_be_kept_is_refused_and_changes_nothing(
        self, backend: Backend, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidSchedule):
            await backend.schedule(replace(EACH_SECOND, **wrong), AT_ONCE)
        assert await backend.schedules() == []

    async def test_a_prompt_is_no_answer_to_what_a_turn_asks(self, backend: Backend, clock: Clock) -> None:
        """D9: only the person answers."""
        worker = await joined(backend, clock)
        await asked(backend, worker, Question("Shall I?"))
        await backend.schedule(EACH_HOUR, AT_ONCE)
        await backend.fire("hourly", clock.now())
        [question] = await backend.questions(ALICE)
        assert question.answer is None
        assert len(await backend.waiting(ALICE)) == 1

    async def test_schedules_are_kept_and_seen_by_others(
        self, backend: Backend, open_again: OpenAgain, clock: Clock, pass_time: PassTime
    ) -> None:
        await backend.schedule(EACH_SECOND, AT_ONCE)
        other = await self.opened_again(open_again)
        assert await other.schedules() == await backend.schedules()
        assert not await other.schedule(EACH_SECOND, AT_ONCE)
        await pass_time(1_000)
        assert await fire_what_is_due(other, await joined(other, clock)) == "fired"
        assert len(await backend.waiting(ALICE)) == 1

    async def test_close_may_be_called_twice(self, backend: Backend) -> None:
        await backend.close()
        await backend.close()

    # Helpers ---------------------------------------------------------------------------------------------------------

    @staticmethod
    async def opened_again(open_again: OpenAgain) -> Backend:
        if open_again is None:
            pytest.skip("this store lives in one object")
        return await open_again()

    @staticmethod
    async def cancel(task: asyncio.Task[list[Lease]]) -> None:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
