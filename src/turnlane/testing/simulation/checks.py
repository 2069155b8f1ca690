"""Checkers: what the store shows, against what the oracle knows. I1 to I12 are explained in docs/explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from turnlane.backends.base import Backend
from turnlane.backends.serving import MACHINE_LOOK_MS, SESSION_LOOK_MS, USER_LOOK_MS
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.session import Session
from turnlane.model.usage import NO_USAGE
from turnlane.model.view import LaneView, SessionView, StoredEvent, Story, TurnView, latest
from turnlane.testing.simulation.oracle import Account, Oracle, require, require_same

KINDS = (Kind.TURN, Kind.OUT, Kind.TICK)
EVENTS_PAGE = 97


# After every step ----------------------------------------------------------------------------------------------------


def check_lanes(oracle: Oracle, views: Sequence[LaneView], latest_now: int) -> None:
    """`latest_now` is the highest that the wall clock ever stood."""
    oracle.end_what_is_shown()
    oracle.check_limits()
    require_same(len(views), len(oracle.accounts), "a lane for each conversation that was heard of")
    patience_ms = max(
        SESSION_LOOK_MS if oracle.sessions_are_shared else 0,
        MACHINE_LOOK_MS if oracle.sessions_are_local else 0,
        USER_LOOK_MS if oracle.limits.per_user else 0,
    )
    for view in views:
        check_lane(view, oracle.accounts[view.kind, view.conversation], latest_now + patience_ms)


def check_lane(view: LaneView, lane: Account, latest_now: int) -> None:
    batch, holder = lane.batch, lane.holder
    require_same(
        (view.pending, view.number),
        (lane.pending, lane.opened),
        "I1, I5: what waits is what arrived and has no outcome",
    )
    require_same(
        (view.epoch, view.owner, view.claimed_at),
        (lane.epoch, holder and holder.worker, holder and holder.since),
        "I2 one holder; only a claim grows the epoch",
    )
    require_same(
        (view.attempt, view.failures),
        (lane.attempts, batch.failures if batch else 0),
        "I8 attempts are failures, lost runs and the present one",
    )
    require_same(view.due_at is not None, lane.claimable, "I4 no lost and no spurious wake-up", view)
    if view.due_at is not None:
        require(view.due_at <= max(latest_now, lane.startable_at), "I7 nothing waits longer than it must", view, lane)
    require_same(view.on_busy, lane.on_busy, "a lane behaves as it was told")
    require_same(view.gone is not None, lane.gone, "who cannot be reached is remembered, until somebody writes")
    check_gathering(view, lane)


def check_gathering(view: LaneView, lane: Account) -> None:
    if view.state == "paused":
        require(lane.paused, "only who was paused is", view, lane)
    elif lane.claimable and view.state != "ready":
        require_same(view.state, "waiting" if lane.batch else "gathering", "a lane says what it waits for")
    if lane.kind is Kind.TURN:
        first = lane.waiting[0] if lane.waiting else None
        require_same(view.first_at, getattr(first, "accepted_at", None), "I7 max wait counts from the first left out")


# Now and then --------------------------------------------------------------------------------------------------------


async def check_overview(oracle: Oracle, backend: Backend) -> None:
    """What an operator sees: locks, workers and counts."""
    lanes = list(oracle.accounts.values())
    locks = {(lock.kind, lock.conversation, lock.worker, lock.epoch, lock.since) for lock in await backend.locks()}
    held = {(lane.kind, lane.key, *_holder(lane)) for lane in lanes if lane.holder}
    require_same(locks, held, "the locks are the leases")
    workers = {(view.id, view.alive_until, view.lanes) for view in await backend.workers() if view.live}
    holding = Counter(lane.holder.worker for lane in lanes if lane.holder)
    live = {(name, row.alive_until, holding[name]) for name, row in oracle.workers.items() if not row.dead}
    require_same(workers, live, "the live workers are those that joined and were not lost")
    await check_counts(oracle, backend, lanes)
    shown = {
        f"schedule/{view.name}": (view.conversation, view.prompt, view.missed, view.fired_at, view.owner)
        for view in await backend.schedules()
    }
    kept = {
        key: (each.conversation, each.prompt, each.missed, oracle.fired_at.get(key), _owner(oracle, key))
        for key, each in oracle.schedules.items()
    }
    require_same(shown, kept, "the schedules are those that were set and not removed")


def _owner(oracle: Oracle, key: str) -> str | None:
    holder = oracle.accounts[Kind.TICK, key].holder
    return holder.worker if holder else None


def _holder(lane: Account) -> tuple[str, int, int]:
    assert lane.holder is not None
    return lane.holder.worker, lane.holder.epoch, lane.holder.since


async def check_counts(oracle: Oracle, backend: Backend, lanes: Sequence[Account]) -> None:
    counts = await backend.counts()
    waiting = Counter({kind: sum(lane.pending for lane in lanes if lane.kind is kind) for kind in KINDS})
    settled = Counter(view.state for view in chain.from_iterable(oracle.deliveries.values()))
    outcomes = Counter(turn.outcome for turn in chain.from_iterable(oracle.turns.values()))
    require_same(counts.messages_waiting, waiting[Kind.TURN], "messages that wait are counted")
    require_same(counts.deliveries_waiting, waiting[Kind.OUT], "deliveries that wait are counted")
    require_same(counts.deliveries_failed, settled["failed"], "deliveries that failed are counted")
    require_same(counts.dead_letters, outcomes["dead_letter"], "dead letters are counted")
    require_same(counts.locks, sum(1 for lane in lanes if lane.holder), "locks are counted")
    live = sum(1 for row in oracle.workers.values() if not row.dead)
    require_same(counts.workers_live, live, "live workers are counted")


async def check_story(oracle: Oracle, backend: Backend, key: str) -> None:
    """Everything of one conversation: messages, turns, attempts, deliveries, sessions."""
    story = await backend.story(key, limit=100_000)
    if story is None:
        require(key not in oracle.messages, "a conversation is known once a message was accepted", key)
        return
    require_same(list(story.messages), oracle.messages[key], "I1 every message, in the order it was accepted", key)
    check_turns(story, oracle.turns.get(key, []))
    require_same(
        Counter(replace(attempt, cause=None) for attempt in story.attempts),
        Counter(oracle.attempts.get(key, [])),
        "I8 every run that did not answer is kept",
        key,
    )
    require_same(
        [replace(view, cause=None) for view in story.deliveries],
        oracle.deliveries.get(key, []),
        "I9 what leaves is what was answered, in order, each part once",
        key,
    )
    outcomes = {seq: outcome for (name, seq), outcome in oracle.outcomes.items() if name == key}
    require_same(dict(story.outcomes), outcomes, "what is in no turn has an outcome of its own", key)
    sessions = {agent: session for (name, agent), session in oracle.sessions.items() if name == key}
    require_same(dict(story.sessions), sessions, "sessions and what they spent", key)
    require_same(list(story.questions), oracle.questions_of(key), "what was asked and answered", key)
    require_same(await backend.questions(key), list(story.questions)[-100:], "what was asked, on its own", key)


def check_turns(story: Story, expected: Sequence[TurnView]) -> None:
    require_same(len(story.turns), len(expected), "I5 every batch is one turn", story.conversation)
    for turn, should in zip(story.turns, expected, strict=True):
        # Whoever takes a lane back gives a cause of its own, and cannot know which agent was running.
        known = turn if should.cause is not None else replace(turn, cause=None)
        if should.outcome in {"dead_letter", "retried", "dropped"} and should.cause is None:
            known = replace(known, agent=should.agent)
        require_same(known, should, "I5 a turn is recorded as it happened", story.conversation)


# At the end ----------------------------------------------------------------------------------------------------------


async def check_totals(oracle: Oracle, backend: Backend, heard: Sequence[Event]) -> None:
    """Everything has drained: the sums, taken from the store alone, must come out."""
    for key in oracle.messages:
        await check_story(oracle, backend, key)
        story = await backend.story(key, limit=100_000)
        assert story is not None
        check_tiling(story)
        check_replies(story, resent=oracle.resent)
        check_usage(story, since=oracle.sessions_until.get(key, 0), began=oracle.session_began)
    await check_overview(oracle, backend)
    await check_dead_letters(oracle, backend)
    await check_spent(oracle, backend)
    await check_sessions(oracle, backend)
    stored = [event async for page in pages(backend) for event in page]
    check_events(oracle, [entry.event for entry in stored], heard)


def check_tiling(story: Story) -> None:
    """I5, I12: turns tile the messages without gap or overlap, and none is left."""
    last_turn_of: dict[int, int] = {}
    for turn in story.turns:
        if turn.first in last_turn_of:
            before = story.turns[last_turn_of[turn.first] - 1]
            require_same(before.outcome, "superseded", "I5 only what was superseded is taken again", before, turn)
        places = [seq for seq in range(turn.first, turn.last + 1) if seq not in story.outcomes]
        last_turn_of.update(dict.fromkeys(places, turn.number))
        if turn.outcome == "retried":  # its messages stand elsewhere now
            last_turn_of = {seq: number for seq, number in last_turn_of.items() if number != turn.number}
    require_same(
        sorted([*last_turn_of, *story.outcomes]),
        [message.seq for message in story.messages],
        "I5, I12: every message has exactly one outcome: of its turn, or of its own",
    )
    owners = list(last_turn_of.values())
    require_same(owners, sorted(owners), "I5 turns tile the messages in order", story.turns)
    numbers = [turn.number for turn in story.turns]
    require_same(numbers, list(range(1, len(numbers) + 1)), "turns are numbered in order")


def check_replies(story: Story, *, resent: Collection[str]) -> None:
    """I9: answered turns and their parts, in order, under ids of their own. What was sent again has left its place."""
    answered = {turn.number for turn in story.turns if turn.outcome == "answered"}
    places = [(view.turn, view.part) for view in story.deliveries if view.kind == "reply" and view.id not in resent]
    require_same(places, sorted(set(places), key=lambda place: (place[0] or 0, place[1])), "replies leave in order")
    require(answered.issuperset(turn for turn, _ in places), "only answered turns reply", places)
    ids = {view.id for view in story.deliveries}
    require_same(len(ids), len(story.deliveries), "each delivery has an id of its own")
    require(all(view.state != "queued" for view in story.deliveries), "I12 nothing is left to send", story.deliveries)


def check_usage(story: Story, *, since: int, began: Mapping[tuple[str, str], int]) -> None:
    """Tokens belong to the session: what its turns spent since it began is what it shows."""
    folded: dict[str, Session] = {}
    for turn in story.turns:
        if turn.session is None or turn.number <= since or turn.number < began[turn.conversation, turn.agent]:
            continue
        last = folded.get(turn.agent)
        spent = last.usage if last and last.handle == turn.session else NO_USAGE
        folded[turn.agent] = Session(turn.session, usage=spent + turn.usage)
    shown = {agent: (session.handle, session.usage) for agent, session in story.sessions.items()}
    expected = {agent: (session.handle, session.usage) for agent, session in folded.items()}
    require_same(shown, expected, "a session's usage is the sum of its turns")


async def check_dead_letters(oracle: Oracle, backend: Backend) -> None:
    shown = [
        (letter.turn.conversation, letter.turn.number, letter.messages)
        for letter in await backend.dead_letters(limit=100_000)
    ]
    expected = [(turn.conversation, turn.number, tuple(oracle.messages_of(turn))) for turn in oracle.dead_letters]
    require_same(sorted(shown, key=_place), sorted(expected, key=_place), "dead letters keep their messages")


async def check_spent(oracle: Oracle, backend: Backend) -> None:
    """Whatever was reused, begun anew, lost or taken over: each answered turn is paid once, and none is forgotten."""
    shown = {spent.account: (spent.turns, spent.usage) for spent in await backend.spent()}
    require_same(shown, oracle.spent, "what was spent is the sum of the answered turns")


async def check_sessions(oracle: Oracle, backend: Backend) -> None:
    expected = [SessionView.of(key, agent, session) for (key, agent), session in oracle.sessions.items()]
    require_same(await backend.sessions(), latest(expected, 100), "every session is listed, as it was last used")


def _place(letter: tuple[str, int, object]) -> tuple[str, int]:
    return letter[0], letter[1]


async def pages(backend: Backend) -> AsyncIterator[list[StoredEvent]]:
    cursor = 0
    while page := await backend.events(after=cursor, limit=EVENTS_PAGE):
        require(page[0].cursor > cursor, "events come after their cursor", cursor, page[0])
        cursor = page[-1].cursor
        yield page


def check_events(oracle: Oracle, stored: Sequence[Event], heard: Iterable[Event]) -> None:
    # Who of several was looked at, and so left to its machine, is the store's to choose.
    names = Counter(event.name for event in stored if event.name != "session.awaited")
    require_same(names - oracle.events, Counter(), "no fact is written down that did not happen")
    require_same(oracle.events - names, Counter(), "every fact is written down")
    require_same(list(heard), list(stored), "whoever subscribed heard what was written down, in order")
    accepted = Counter(event.facts["message"] for event in stored if event.name == "message.accepted")
    ids = Counter(message.id for message in chain.from_iterable(oracle.messages.values()))
    require(accepted <= ids and max(accepted.values(), default=0) <= 1, "one message.accepted for each message")
