"""The lane decides alone: what always holds, whatever happens to it in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlane.model.lane import HEARD_MAX, Kind, Lane
from turnlane.model.policy import Policy

GATHERING = Policy(debounce_ms=3_000, max_wait_ms=15_000, max_batch=5)
AT_ONCE = Policy(debounce_ms=0, max_wait_ms=0)


def lane(policy: Policy = GATHERING, kind: Kind = Kind.TURN) -> Lane:
    return Lane(kind, "desk/alice", policy)


def running(policy: Policy = AT_ONCE, kind: Kind = Kind.TURN, messages: int = 1) -> Lane:
    one = lane(policy, kind)
    for _ in range(messages):
        one.arrive(policy, 0)
    one.claim("worker", 0)
    return one


def test_a_new_lane_is_idle_and_nobody_need_look_at_it() -> None:
    new = lane()
    assert (new.state(0), new.due_at, new.pending) == ("idle", None, 0)


def test_a_message_makes_it_gather_until_it_was_quiet() -> None:
    """A4 and E2"""
    one = lane()
    assert one.arrive(GATHERING, 0) == 1
    assert one.arrive(GATHERING, 2_000) == 2
    assert (one.state(4_999), one.state(5_000)) == ("gathering", "ready")


def test_a_claimer_that_comes_too_early_puts_the_look_off() -> None:
    """Lazy debounce: a message does not move the indexed time; whoever looks too early does."""
    one = lane()
    one.arrive(GATHERING, 0)
    one.arrive(GATHERING, 2_000)
    assert one.due_at == 3_000
    assert not one.is_ready(3_000)
    assert one.due_at == 5_000
    assert one.is_ready(5_000)


def test_max_wait_and_a_full_batch_end_the_gathering() -> None:
    one = lane()
    for at in range(0, 13_000, 2_500):
        one.arrive(replace(GATHERING, max_batch=100), at)
    assert one.ready_at == 15_000
    full = lane()
    for _ in range(5):
        full.arrive(GATHERING, 1_000)
    assert full.ready_at == 1_000


def test_a_claim_takes_at_most_a_batch_and_counts_the_attempt_before_the_run() -> None:
    """A9 and contract 4: attempts are counted before the run."""
    one = running(GATHERING, messages=7)
    assert (one.done_seq, one.claim_seq, one.next_seq) == (0, 5, 7)
    assert (one.attempt, one.epoch, one.number, one.state(0)) == (1, 1, 1, "running")


def test_only_a_claim_grows_the_epoch() -> None:
    """Contract 3"""
    steps: list[Callable[[Lane], None]] = [
        lambda one: one.complete(1),
        lambda one: one.retry(5, 1, counts=True),
        lambda one: one.release(1),
        lambda one: one.orphan(1),
        lambda one: one.park(1),
    ]
    for step in steps:
        one = running()
        step(one)
        assert (one.epoch, one.owner) == (1, None)


def test_the_fence_knows_worker_epoch_and_batch() -> None:
    """C4"""
    one = running(messages=1)
    assert one.held_by("worker", 1, 1)
    assert not one.held_by("another", 1, 1)
    assert not one.held_by("worker", 0, 1)
    one.orphan(1)
    assert not one.held_by("worker", 1, 1)


def test_a_batch_that_somebody_else_ended_is_fenced_and_its_lane_stays_held() -> None:
    one = running(messages=1)
    one.end(1)
    assert not one.held_by("worker", 1, 1)
    one.arrive(one.policy, 1)
    assert (one.is_hollow, one.due_at, one.state(100_000)) == (True, None, "running")
    one.let_go(2)
    assert (one.is_hollow, one.state(100_000)) == (False, "ready")


def test_a_retry_keeps_its_batch_its_number_and_its_place() -> None:
    one = running()
    one.arrive(AT_ONCE, 1)
    one.retry(1_000, 2, counts=True)
    assert (one.state(999), one.state(1_000)) == ("waiting", "ready")
    one.claim("worker", 1_000)
    assert (one.number, one.attempt, one.failures, one.claim_seq, one.next_seq) == (1, 2, 1, 1, 2)


def test_a_quiet_window_is_not_lost_by_a_retry() -> None:
    """What waits behind a batch that backs off still gathers for its own window."""
    one = running(GATHERING)
    one.arrive(GATHERING, 10_000)
    one.retry(10_500, 10_100, counts=True)
    one.claim("worker", 10_500)
    one.complete(10_600)
    assert (one.state(10_600), one.due_at) == ("gathering", 13_000)


def test_a_failure_that_does_not_count_and_a_release_leave_no_trace() -> None:
    ends: list[Callable[[Lane], None]] = [lambda one: one.retry(0, 0, counts=False), lambda one: one.release(0)]
    for end in ends:
        one = running()
        end(one)
        assert (one.attempt, one.failures, one.takeovers) == (0, 0, 0)


@pytest.mark.parametrize(("ack", "allowed"), [("commit", 2), ("claim", 0)])
def test_takeovers_are_bounded_and_with_claim_there_is_none(ack: str, allowed: int) -> None:
    """D4"""
    policy = replace(AT_ONCE, takeovers=2, ack=ack)  # type: ignore[arg-type] # both are known
    one = running(policy)
    for _ in range(allowed):
        assert not one.takeovers_used_up
        one.orphan(0)
        one.claim("worker", 0)
    assert one.takeovers_used_up


def test_a_sending_may_be_taken_over_whatever_the_turn_may() -> None:
    """D4: it has a key by which the platform knows it again."""
    assert not running(replace(AT_ONCE, ack="claim"), Kind.OUT).takeovers_used_up


def test_a_sending_whose_end_nobody_knows_leaves_doubt_behind_and_uses_up_no_takeovers() -> None:
    ends: list[Callable[[Lane], None]] = [
        lambda one: one.retry(0, 0, counts=True, in_doubt=True),
        lambda one: one.release(0),
    ]
    for end in ends:
        one = running(replace(AT_ONCE, takeovers=1), Kind.OUT)
        for _ in range(5):
            end(one)
            assert (one.takeovers, one.takeovers_used_up) == (1, False)
            one.claim("worker", 0)


def test_a_claim_that_was_called_off_leaves_no_doubt() -> None:
    one = running(AT_ONCE, Kind.OUT)
    one.call_off(0)
    assert (one.attempt, one.failures, one.state(0)) == (0, 0, "ready")


def test_a_paused_or_parked_lane_is_never_due_and_goes_on_where_it_was() -> None:
    one = lane(AT_ONCE)
    one.arrive(AT_ONCE, 0)
    one.pause(0)
    one.arrive(AT_ONCE, 1)
    assert (one.state(9), one.due_at) == ("paused", None)
    one.resume(2)
    assert one.is_ready(2)
    one.claim("worker", 2)
    one.park(3)
    assert (one.state(9), one.due_at) == ("parked", None)
    one.unpark(4)
    assert (one.state(4), one.attempt) == ("ready", 0)


def test_an_out_lane_takes_one_delivery_at_a_time_and_goes_on_under_the_same_lease() -> None:
    """Contract 10"""
    out = running(kind=Kind.OUT, messages=3)
    assert (out.claim_seq, out.number) == (1, 1)
    out.advance()
    assert (out.claim_seq, out.number, out.epoch, out.attempt) == (2, 2, 1, 1)
    assert not out.held_by("worker", 1, 1)


STEPS = st.sampled_from(
    ["arrive", "look", "complete", "retry", "retry_free", "release", "orphan", "park", "unpark", "pause", "resume"]
)


@settings(max_examples=300)
@given(
    steps=st.lists(st.tuples(STEPS, st.integers(0, 5_000)), max_size=60),
    on_busy=st.sampled_from(["collect", "queue"]),
    kind=st.sampled_from([Kind.TURN, Kind.OUT]),
)
def test_what_always_holds_holds_always(steps: list[tuple[str, int]], on_busy: str, kind: Kind) -> None:
    """The sentences at the top of model/lane.py, after every step of any life."""
    policy = replace(GATHERING, on_busy=on_busy)  # type: ignore[arg-type] # both are known
    one, now, epoch = lane(policy, kind), 0, 0
    for step, ms in steps:
        now += ms
        before = (one.done_seq, one.claim_seq, one.has_open_batch)
        take(one, step, now, policy)
        assert 0 <= one.done_seq <= one.claim_seq <= one.next_seq
        wanted = one.pending and one.owner is None and not one.paused and not one.parked
        assert (one.due_at is not None) == bool(wanted)
        assert one.epoch >= epoch
        assert 0 <= one.failures <= one.attempt
        if before[2] and one.has_open_batch and one.done_seq == before[0]:
            assert one.claim_seq == before[1]
        epoch = one.epoch


def test_however_long_others_talk_the_agent_is_told_the_end_of_it() -> None:
    one = lane(GATHERING)
    for _ in range(2 * HEARD_MAX):
        one.hear()
    assert (one.pending, one.due_at) == (0, None)
    one.arrive(GATHERING, 0)
    one.claim("worker", 0)
    assert list(one.heard_places) == list(range(HEARD_MAX + 1, 2 * HEARD_MAX + 1))


def take(one: Lane, step: str, now: int, policy: Policy) -> None:
    """Only what a transaction may do in that state."""
    if step == "arrive":
        one.arrive(policy, now)
    elif step == "look" and one.is_ready(now):
        one.claim("worker", now)
        if one.next_seq > one.claim_seq and one.first_at is None:
            one.leave_out(now)
    elif step in {"pause", "resume"}:
        getattr(one, step)(now)
    elif step == "unpark" and one.parked:
        one.unpark(now)
    elif one.owner is not None:
        ends: dict[str, Callable[[], None]] = {
            "complete": lambda: one.complete(now),
            "retry": lambda: one.retry(now + 700, now, counts=True),
            "retry_free": lambda: one.retry(now + 700, now, counts=False),
            "release": lambda: one.release(now),
            "orphan": lambda: one.orphan(now),
            "park": lambda: one.park(now),
        }
        ends.get(step, lambda: None)()


def test_a_delivery_rests_behind_those_that_wait_and_not_behind_those_that_were_dropped() -> None:
    """Seen only where the clock goes back: what came at a time that is yet to come is no rest."""
    out = running(kind=Kind.OUT)
    out.arrive(AT_ONCE, 20_000)
    out.withdraw(2, 2, 0)
    out.arrive(AT_ONCE, 0)
    out.complete(0)
    assert (out.pending, out.due_at) == (1, 0)
