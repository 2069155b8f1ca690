"""What an operator sees: rows as they are now, for the command line, the API and the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Literal

from turnlane.model.delivery import UNSETTLED, Delivery, DeliveryState, Settled
from turnlane.model.event import Event
from turnlane.model.lane import Kind, Lane, LaneState
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.policy import OnBusy
from turnlane.model.question import QuestionView
from turnlane.model.schedule import Missed
from turnlane.model.session import Session
from turnlane.model.turn import TurnOutcome
from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.value import value


@value
class LaneView:
    conversation: str
    kind: Kind
    state: LaneState
    pending: int
    number: int
    attempt: int
    failures: int
    agent: str
    epoch: int
    owner: str | None = None
    claimed_at: int | None = None
    first_at: int | None = None
    ready_at: int | None = None
    retry_at: int | None = None
    due_at: int | None = None
    done_seq: int = 0
    """Everything up to here has its outcome."""
    claim_seq: int = 0
    """The end of the open batch, which runs or is tried again; equal to `done_seq` if there is none."""
    on_busy: OnBusy | None = None
    """Of this conversation alone, set by an operator. None: as its route says."""
    gone: str | None = None
    """Why nothing can be sent to this conversation any more, until somebody writes in it again."""
    paused_until: int | None = None
    """When a pause ends by itself; None if it does not, or the lane is not paused."""
    awaits: str | None = None
    """The machine that the lane is left to, as it holds the session; None if anybody may take it."""
    awaits_until: int | None = None
    user: str = ""
    """Whose turn it is or will be, for what one user may have at a time: who spoke last before it was taken."""
    asks: bool = False
    """Its turn is set aside until what it asked is answered, or the time for that is over (`retry_at`)."""

    @property
    def is_ending(self) -> bool:
        """Its turn was ended by somebody else than its holder, who has not let go of the lane yet."""
        return self.owner is not None and self.claim_seq == self.done_seq

    @classmethod
    def of(cls, lane: Lane, now: int) -> LaneView:
        awaits, awaits_until = lane.rare.awaits or (None, None)
        is_left = awaits is not None and (lane.awaits(awaits) or 0) > now
        return cls(
            conversation=lane.key,
            kind=lane.kind,
            state=lane.state(now),
            pending=lane.pending,
            number=lane.number,
            attempt=lane.attempt,
            failures=lane.failures,
            agent=lane.policy.agent,
            epoch=lane.epoch,
            owner=lane.owner,
            claimed_at=lane.claimed_at,
            first_at=lane.first_at,
            ready_at=lane.ready_at,
            retry_at=lane.retry_at,
            due_at=lane.due_at,
            done_seq=lane.done_seq,
            claim_seq=lane.claim_seq,
            on_busy=lane.rare.on_busy,
            gone=lane.rare.gone,
            paused_until=lane.rare.paused_until if lane.is_paused(now) else None,
            awaits=awaits if is_left else None,
            awaits_until=awaits_until if is_left else None,
            user=lane.runs_for_whom,
            asks=lane.awaits_answer,
        )


@value
class TurnView:
    """A turn that is over."""

    conversation: str
    number: int
    first: int
    last: int
    outcome: TurnOutcome
    attempt: int
    epoch: int
    worker: str | None
    agent: str
    started_at: int
    ended_at: int
    cause: str | None = None
    session: str | None = None
    usage: Usage = NO_USAGE


@value
class AttemptView:
    """A run that did not answer: it failed, was given back, or was lost with its worker."""

    conversation: str
    kind: Kind
    number: int
    attempt: int
    epoch: int
    worker: str | None
    result: str
    """`retried`, `released`, `lost`, `parked`."""
    at: int
    cause: str | None = None

    @property
    def order(self) -> tuple[int, Kind, int]:
        """When it happened; and of one moment, the same order everywhere."""
        return self.at, self.kind, self.epoch


@value
class DeliveryView:
    id: str
    conversation: str
    seq: int
    kind: str
    turn: int | None
    part: int
    parts: int
    text: str
    in_reply_to: tuple[str, ...]
    state: DeliveryState
    queued_at: int
    settled_at: int | None = None
    attempt: int = 0
    receipt: str | None = None
    cause: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, delivery: Delivery, settled: Settled = UNSETTLED) -> DeliveryView:
        state, at, attempt, _, receipt, cause = settled
        return cls(
            id=delivery.id,
            conversation=delivery.conversation,
            seq=delivery.seq,
            kind=delivery.kind,
            turn=delivery.turn,
            part=delivery.part,
            parts=delivery.parts,
            text=delivery.text,
            in_reply_to=delivery.in_reply_to,
            state=state,
            queued_at=delivery.queued_at,
            settled_at=at,
            attempt=attempt,
            receipt=receipt,
            cause=cause,
            options=delivery.options,
        )


@value
class DeadLetter:
    turn: TurnView
    messages: tuple[Message, ...]


@value
class Lock:
    """A lease that is held now."""

    conversation: str
    kind: Kind
    worker: str
    epoch: int
    since: int
    worker_alive_until: int | None
    """None if the store knows no such worker: the lease may be taken over at once."""


@value
class Busy:
    """A turn that runs now, as its holder must see it."""

    conversation: str
    epoch: int
    waiting: int
    """Messages that no batch holds: said since the turn began, or left out of it. Not what nobody said."""
    on_busy: OnBusy
    is_over: bool = False
    """Somebody ended the turn, and the lane waits for its holder to let go."""
    has_asked: bool = False
    """Something of the turn is visible outside."""
    is_paused: bool = False
    """No other turn may start now."""

    @classmethod
    def of(cls, lane: Lane, now: int) -> Busy:
        asked, is_paused = lane.rare.asked > 0, lane.is_paused(now)
        waiting, on_busy = lane.said_meanwhile, lane.policy.on_busy
        return cls(lane.key, lane.epoch, waiting, on_busy, lane.is_hollow, asked, is_paused)


@value
class WorkerView:
    id: str
    live: bool
    alive_until: int
    lanes: int
    machine: str = ""


@value
class ScheduleView:
    """A schedule, and where it stands."""

    name: str
    conversation: str
    prompt: str
    cron: str | None
    zone: str
    every_ms: int | None
    missed: Missed
    missed_max: int
    enabled: bool
    by: Literal["file", "operator"]
    agent: str
    state: Literal["waiting", "due", "running", "paused", "parked", "off"]
    next_at: int | None
    """The time that is waited for; None while it is paused, parked or off."""
    fired_at: int | None
    """When its prompt was last said."""
    owner: str | None
    """Who holds it just now."""

    @classmethod
    def of(cls, lane: Lane, now: int) -> ScheduleView:
        assert lane.rare.schedule is not None
        state = lane.state(now)
        return cls(
            **asdict(lane.rare.schedule),
            agent=lane.policy.agent,
            state=_SCHEDULE_STATES.get(state, "waiting"),
            next_at=lane.ready_at if state not in {"idle", "paused", "parked"} else None,
            fired_at=lane.rare.fired_at,
            owner=lane.owner,
        )


_SCHEDULE_STATES: Mapping[LaneState, Literal["due", "running", "paused", "parked", "off"]] = {
    "ready": "due",
    "running": "running",
    "paused": "paused",
    "parked": "parked",
    "idle": "off",
}


@value
class SessionView:
    """What one agent remembers of one conversation."""

    conversation: str
    agent: str
    handle: str
    turns: int
    usage: Usage
    updated_at: int
    machine: str | None = None

    @classmethod
    def of(cls, conversation: str, agent: str, session: Session) -> SessionView:
        return cls(
            conversation, agent, session.handle, session.turns, session.usage, session.updated_at, session.machine
        )


def latest(sessions: Iterable[SessionView], limit: int) -> list[SessionView]:
    return sorted(sessions, key=lambda each: (-each.updated_at, each.conversation, each.agent))[:limit]


@value
class Story:
    """Everything that is known of one conversation."""

    conversation: str
    lanes: tuple[LaneView, ...]
    messages: tuple[Message, ...]
    turns: tuple[TurnView, ...]
    attempts: tuple[AttemptView, ...]
    deliveries: tuple[DeliveryView, ...]
    sessions: Mapping[str, Session] = field(default_factory=dict)
    outcomes: Mapping[int, MessageOutcome] = field(default_factory=dict)
    """Of messages that are in no turn, by their place. The others have that of the last turn whose range holds them."""
    questions: tuple[QuestionView, ...] = ()
    held_until: int | None = None
    """Until then nothing is sent for its account: so its rate says, or its platform, which asked for patience."""

    def answered_late(self, message: Message) -> bool:
        """A button that was pressed again, or too late: its question was closed already, and nothing was changed."""
        known_since = min((each.asked_at for each in self.questions), default=0)
        is_answer = self.outcomes.get(message.seq) == "answer" and message.accepted_at >= known_since
        return is_answer and not any(each.was_answered_by(message) for each in self.questions)


def held_until(lanes: Iterable[Lane], holds: Mapping[str, int], now: int) -> int | None:
    """Of a conversation with these lanes, where accounts are held until these times."""
    until = max((holds.get(lane.policy.tenant, 0) for lane in lanes if lane.kind is Kind.OUT), default=0)
    return until if until > now else None


@value
class Counts:
    """The store in numbers."""

    lanes: Mapping[str, int]
    """Turn lanes by state."""
    messages_waiting: int
    deliveries_waiting: int
    deliveries_failed: int
    dead_letters: int
    locks: int
    workers_live: int
    oldest_due_at: int | None


@value
class StoredEvent:
    cursor: int
    event: Event


def conversations_in(events: Iterable[StoredEvent]) -> list[str]:
    """That the events name, each once."""
    return list(dict.fromkeys(stored.event.conversation for stored in events if stored.event.conversation is not None))


@value
class Changes:
    """What happened, and how the lanes stand that it happened to."""

    events: Sequence[StoredEvent]
    lanes: Sequence[LaneView]
    """Turn lanes of the conversations that the events name, each no older than the last of the events."""


def activity_first(lanes: Iterable[LaneView], limit: int) -> list[LaneView]:
    """Those that are not idle, then the others; of each, the newest first."""
    newest = list(lanes)[::-1]
    return sorted(newest, key=lambda lane: lane.state == "idle")[:limit]
