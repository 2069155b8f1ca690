"""What became of one message: the steps it took, and what it waits for if it has not arrived yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from turnlane.model.lane import Kind
from turnlane.model.limits import Limits, Pauses
from turnlane.model.message import Message, MessageOutcome, channel_of
from turnlane.model.question import Answer, QuestionView
from turnlane.model.turn import TurnOutcome
from turnlane.model.usage import NO_USAGE
from turnlane.model.value import value
from turnlane.model.view import AttemptView, DeliveryView, LaneView, Story, TurnView

StepName = Literal[
    "received",
    "stored",
    "gathered",
    "attempt",
    "asked",
    "answer",
    "turn",
    "steered",
    "tokens",
    "answered",
    "given_up",
    "superseded",
    "settled",
    "outbox",
    "receipt",
]
_SETTLED: Mapping[MessageOutcome, str] = {
    "superseded": "set aside unanswered, as the conversation was stopped",
    "refused": "refused, because the conversation was busy or full, or they came too fast; the person was told",
    "dropped": "dropped, to make room for newer messages",
    "answer": "taken as the answer to what the agent had asked",
    "command": "obeyed as a command; the agent never sees it",
    "heard": "others answered here: it starts no turn, and the agent is told of it with its next one",
}
_LATE = "it answers a question that was closed already, so it changed nothing; the person was told"

Reason = Literal["quiet", "run", "retry", "answer", "machine", "worker", "limit", "rate", "paused", "parked"]


@value
class Step:
    name: StepName
    at: int
    text: str
    took_ms: int | None = None
    """Since the step it follows from; None where it is not known."""


@value
class Wait:
    """Why a message, or the reply to it, is still on its way."""

    reason: Reason
    text: str
    since: int | None = None
    until_at: int | None = None
    """When it goes on by itself, if a time is set."""
    next: str | None = None
    """The command that makes it go on, or go on sooner, if there is one."""


@value
class Explanation:
    message: Message
    outcome: TurnOutcome | MessageOutcome | None
    """Of the message; None while it waits."""
    steps: tuple[Step, ...]
    waits: Wait | None
    turns: tuple[TurnView, ...]
    attempts: tuple[AttemptView, ...]
    deliveries: tuple[DeliveryView, ...]


def explain(story: Story, seq: int, *, workers_live: int, pauses: Pauses | None = None) -> Explanation | None:
    """The way of the message with that place in the conversation. None: the story does not hold it (any more)."""
    message = next((message for message in story.messages if message.seq == seq), None)
    if message is None:
        return None
    told = _Told(story, message)
    waits = told.waits()
    if waits is not None and not workers_live:
        waits = _without_worker(waits)
    elif waits is not None and waits.reason in {"worker", "rate"}:
        waits = _held_up(waits, told.waiting_lane, pauses)
    return Explanation(
        message=message,
        outcome=None if told.is_pending else told.outcome,
        steps=tuple(told.steps()),
        waits=waits,
        turns=told.turns,
        attempts=told.attempts,
        deliveries=told.deliveries,
    )


class _Told:
    """The part of a story that one message has a share in."""

    def __init__(self, story: Story, message: Message) -> None:
        self.story = story
        self.message = message
        self.settled = story.outcomes.get(message.seq)
        inside = () if self.settled else story.turns
        self.turns = tuple(turn for turn in inside if turn.first <= message.seq <= turn.last)
        numbers = {turn.number for turn in self.turns}
        self.deliveries = tuple(delivery for delivery in story.deliveries if delivery.turn in numbers)
        lane = self._lane(Kind.TURN)
        self.is_pending = message.seq > lane.done_seq and self.settled is None
        self.is_in_batch = self.is_pending and message.seq <= lane.claim_seq
        numbers |= {lane.number} if self.is_in_batch else set()
        sendings = {delivery.seq for delivery in self.deliveries}
        shared = {Kind.TURN: numbers, Kind.OUT: sendings}
        self.attempts = tuple(each for each in story.attempts if each.number in shared.get(each.kind, ()))

    @property
    def outcome(self) -> TurnOutcome | MessageOutcome | None:
        return self.turns[-1].outcome if self.turns else self.settled

    def _lane(self, kind: Kind) -> LaneView:
        return next(lane for lane in self.story.lanes if lane.kind is kind)

    # The way so far

    def steps(self) -> Iterator[Step]:
        yield from self._stored()
        at = self.message.accepted_at
        if self.settled is not None:
            late = self.story.answered_late(self.message)
            yield Step("settled", at, _LATE if late else _SETTLED[self.settled])
        for turn in self.turns:
            yield from self._turn(turn, at)
            at = turn.ended_at
        if self.is_in_batch:
            yield from _in_order(at, self._tried(self._lane(Kind.TURN).number))

    def _stored(self) -> Iterator[Step]:
        message = self.message
        where = f"stored as message {message.seq} of {message.conversation}"
        if message.sent_at is None:
            yield Step("stored", message.accepted_at, where)
            return
        yield Step("received", message.sent_at, f"{message.sender} sent it, by the clock of the sender")
        on_the_way = message.accepted_at - message.sent_at
        yield Step("stored", message.accepted_at, where, on_the_way if on_the_way >= 0 else None)

    def _turn(self, turn: TurnView, since: int) -> Iterator[Step]:
        said = [delivery for delivery in self.deliveries if delivery.turn == turn.number]
        replies = [delivery for delivery in said if delivery.kind != "question"]
        yield from _in_order(
            since,
            [
                *self._begun(turn),
                _ended(turn, says_something=bool(replies)),
                *([_tokens(turn)] if turn.usage != NO_USAGE else []),
            ],
        )
        for delivery in replies:
            yield from self._delivery(delivery, turn.ended_at)

    def _tried(self, turn: int) -> list[Step]:
        """Runs that did not answer, and what the turn asked meanwhile."""
        questions = [asked for asked in self.story.questions if asked.turn == turn]
        steps = [*map(_asked, questions), *map(_attempt, self._attempts(Kind.TURN, turn))]
        answers = [_answered(asked, asked.answer) for asked in questions if asked.answer is not None]
        return sorted([*steps, *answers], key=lambda step: step.at)

    def _begun(self, turn: TurnView) -> Iterator[Step]:
        """How the message came into the turn: with those that it began with, or while it ran."""
        within = [message for message in self.story.messages if turn.first <= message.seq <= turn.last]
        batch = [message for message in within if message.seq not in self.story.outcomes]
        late = [message for message in batch if message.accepted_at > turn.started_at]
        if not turn.worker or len(late) == len(batch):  # by two clocks, what began it may seem to be late
            late = []
        if self.message in late:
            yield _steered(turn, self.message, "this message was")
            yield from (step for step in self._tried(turn.number) if step.at >= self.message.accepted_at)
            return
        first, last = batch[0], batch[-1 - len(late)]
        who = f"messages {first.seq} to {last.seq} together are" if last.seq > first.seq else "this message alone is"
        yield Step("gathered", last.accepted_at, f"{who} turn {turn.number}")
        tried = self._tried(turn.number)
        # The run that answered may have asked without ending: on_ask = "hold".
        held = [step for step in tried if turn.worker and step.name != "attempt" and step.at > turn.started_at]
        yield from (step for step in tried if step not in held)
        if turn.worker:
            yield _started(turn)
        yield from held
        yield from (_steered(turn, message, f"message {message.seq} was") for message in late)

    def _delivery(self, delivery: DeliveryView, since: int) -> Iterator[Step]:
        part = f", part {delivery.part} of {delivery.parts}" if delivery.parts > 1 else ""
        queued = Step(
            "outbox", delivery.queued_at, f"{delivery.kind}{part}: {delivery.text}", delivery.queued_at - since
        )
        tried = [_attempt(each) for each in self._attempts(Kind.OUT, delivery.seq)]
        settled = [_settled(delivery)] if delivery.settled_at is not None else []
        yield queued
        yield from _in_order(delivery.queued_at, [*tried, *settled])

    def _attempts(self, kind: Kind, number: int) -> list[AttemptView]:
        return [each for each in self.story.attempts if (each.kind, each.number) == (kind, number)]

    # What it waits for

    @property
    def waiting_lane(self) -> LaneView:
        """Where the message waits, or else the reply to it, or what its turn has asked."""
        is_asked = self._unsent_question(self._lane(Kind.TURN)) is not None
        return self._lane(Kind.TURN if self.is_pending and not is_asked else Kind.OUT)

    def waits(self) -> Wait | None:
        if self.is_pending:
            lane = self._lane(Kind.TURN)
            nothing_open = lane.claim_seq == lane.done_seq
            return self._waits_in(lane, self.is_in_batch or nothing_open, self.message.accepted_at)
        queued = next((delivery for delivery in self.deliveries if delivery.state == "queued"), None)
        if queued is None:
            return None
        lane = self._lane(Kind.OUT)
        return self._waits_in(lane, queued.seq == lane.done_seq + 1, queued.queued_at)

    def _waits_in(self, lane: LaneView, is_first: bool, since: int) -> Wait:
        what = f"turn {lane.number}" if lane.kind is Kind.TURN else f"delivery {lane.done_seq + 1}"
        behind = "" if is_first else f"{what} comes first; "
        last = next(reversed(self._attempts(lane.kind, lane.number)), None)
        cause = f": {last.cause}" if last is not None and last.cause else ""
        since_then = last.at if last is not None else since
        go_on = steering_command("resume", lane)
        match lane.state:
            case "running" if lane.is_ending:
                text = f"worker {lane.owner} is stopping what it has begun; nothing else starts before"
                return Wait("run", text, lane.claimed_at)
            case "running" | "waiting" if (unsent := self._unsent_question(lane)) is not None:
                out = self._lane(Kind.OUT)
                sending = self._waits_in(out, unsent.seq == out.done_seq + 1, unsent.queued_at)
                text = f"{behind}{what} asks {unsent.text!r}, still to be sent: {sending.text}"
                return replace(sending, text=text)
            case "running" | "waiting" if (asked := self._open_question(lane)) is not None:
                text = f"{behind}{what} waits for the answer to {asked.question.text!r}"
                until, answer = asked.question.expires_at, f"turnlane answer {lane.conversation} TEXT"
                return Wait("answer", text, asked.asked_at, until, answer)
            case "running":
                by = f"attempt {lane.attempt} by worker {lane.owner}, epoch {lane.epoch}"
                return Wait("run", f"{behind}{what} is under way: {by}", lane.claimed_at)
            case "gathering":
                return Wait("quiet", "more may be said: it is answered once it is quiet", since, lane.ready_at)
            case "waiting":
                # What was put off without blame, as its budget is used up, is tried again as the same attempt.
                how = "was put off" if last is not None and last.attempt > lane.attempt else "failed"
                text = f"{behind}{what} {how} and is tried again, as attempt {lane.attempt + 1}{cause}"
                held = self._account_held_until(lane) or 0
                sooner = steering_command("retry", lane) if held < (lane.retry_at or 0) else None
                return Wait("retry", text, since_then, lane.retry_at, sooner)
            case "parked":
                return Wait("parked", f"the lane is parked{cause}", since_then, next=go_on)
            case "paused":
                return Wait("paused", "the lane is paused", since, lane.paused_until, go_on)
        if lane.awaits is not None:
            text = f"{behind}it is left to a worker on {lane.awaits}, which holds its session; then anybody takes it"
            return Wait("machine", text, lane.due_at, lane.awaits_until)
        if self._account_held_until(lane) is not None:
            why = "its rate is used up, or the platform asked for patience"
            text = f"{behind}nothing is sent for {channel_of(lane.conversation)} until then: {why}"
            return Wait("rate", text, lane.due_at, self.story.held_until)
        return Wait("worker", f"{behind}a worker with a free slot takes it next", lane.due_at)

    def _account_held_until(self, lane: LaneView) -> int | None:
        """Nobody can make anything of its channel leave before."""
        return self.story.held_until if lane.kind is Kind.OUT else None

    def _open_question(self, lane: LaneView) -> QuestionView | None:
        asked = [each for each in self.story.questions if each.turn == lane.number and lane.kind is Kind.TURN]
        return asked[-1] if asked and asked[-1].answer is None else None

    def _unsent_question(self, lane: LaneView) -> DeliveryView | None:
        """What nobody can answer yet, as it has not left."""
        if self._open_question(lane) is None:
            return None
        asked = (each for each in self.story.deliveries if (each.kind, each.turn) == ("question", lane.number))
        return next((each for each in asked if each.state == "queued"), None)


def steering_command(verb: str, lane: LaneView) -> str:
    """What an operator types to do that to the lane."""
    return f"turnlane {verb} {lane.conversation}{'' if lane.kind is Kind.TURN else ' --outbox'}"


def _without_worker(wait: Wait) -> Wait:
    match wait.reason:
        case "run" | "worker" | "machine" | "rate":
            return Wait("worker", "no worker is running", wait.since, next="turnlane run")
        case "quiet" | "retry":
            return replace(wait, text=f"{wait.text}; no worker is running", next="turnlane run")
    return wait


def beside(explained: Explanation, lane: LaneView, running: Sequence[LaneView], limits: Limits) -> Explanation:
    """The same, where it waits for a worker to begin its turn, knowing the turns that run now."""
    wait = explained.waits
    if wait is None or wait.reason != "worker" or not running:
        return explained
    full = _full(lane, running, limits)
    if full is None:
        turns = "1 turn runs" if len(running) == 1 else f"{len(running)} turns run"
        workers = len({each.owner for each in running})
        where = "1 worker" if workers == 1 else f"{workers} workers"
        text = f"{wait.text}; {turns} in {where} now (one runs as many as its turns_at_once)"
        return replace(explained, waits=replace(wait, text=text))
    setting, most = full
    text = f"as many turns run now as {setting} = {most} allows; one of them has to end first"
    raised = f"turnlane settings set {setting} {most + 1}"
    return replace(explained, waits=Wait("limit", text, wait.since, next=raised))


def _full(lane: LaneView, running: Sequence[LaneView], limits: Limits) -> tuple[str, int] | None:
    """The limit that leaves no room for one more of this lane."""
    here = [each for each in running if channel_of(each.conversation) == channel_of(lane.conversation)]
    counts = (
        ("limits.all", limits.all, len(running)),
        ("limits.per_channel", limits.per_channel, len(here)),
        ("limits.per_agent", limits.per_agent, sum(each.agent == lane.agent for each in running)),
        ("limits.per_user", limits.per_user, sum(each.user == lane.user for each in here)),
    )
    return next(((name, most) for name, most, held in counts if most is not None and held >= most), None)


def _held_up(wait: Wait, lane: LaneView, pauses: Pauses | None) -> Wait:
    setting = pauses and pauses.setting(lane.kind, channel_of(lane.conversation), lane.agent)
    if not setting:
        return wait
    text = f"the setting {setting} is on: nothing that it holds begins"
    return Wait("paused", text, wait.since, next=f"turnlane settings set {setting} false")


def _in_order(since: int, steps: Sequence[Step]) -> Iterator[Step]:
    """Each step with the time since the one before it."""
    for step in steps:
        yield replace(step, took_ms=max(step.at - since, 0))
        since = step.at


def _attempt(attempt: AttemptView) -> Step:
    ended = {
        "retried": "failed",
        "released": "was given back",
        "lost": "was lost with its worker",
        "asked": "asked, and was set aside until there is an answer",
        "parked": "could not run",
    }
    cause = f": {attempt.cause}" if attempt.cause else ""
    what = "attempt" if attempt.kind is Kind.TURN else "sending, attempt"
    by = f"by worker {attempt.worker}, epoch {attempt.epoch}," if attempt.worker else f"epoch {attempt.epoch},"
    return Step(
        "attempt", attempt.at, f"{what} {attempt.attempt} {by} {ended.get(attempt.result, attempt.result)}{cause}"
    )


def _asked(asked: QuestionView) -> Step:
    options = f" ({' / '.join(asked.question.options)})" if asked.question.options else ""
    return Step("asked", asked.asked_at, f"asked the person: {asked.question.text}{options}")


def _answered(asked: QuestionView, answer: Answer) -> Step:
    text = f"{answer.by} answered: {answer.text}"
    if answer.timed_out:
        text = "nobody answered: the question reached nobody" if asked.reached_nobody else "nobody answered in time"
    return Step("answer", asked.answered_at or asked.asked_at, text)


def _started(turn: TurnView) -> Step:
    who = f"agent {turn.agent} by worker {turn.worker}, epoch {turn.epoch}"
    return Step("turn", turn.started_at, f"turn {turn.number} began, attempt {turn.attempt}: {who}")


def _steered(turn: TurnView, message: Message, who: str) -> Step:
    by = f"attempt {turn.attempt} of agent {turn.agent} by worker {turn.worker}, epoch {turn.epoch}"
    return Step("steered", message.accepted_at, f"{who} taken into turn {turn.number}, which ran already: {by}")


def _ended(turn: TurnView, *, says_something: bool) -> Step:
    cause = f": {turn.cause}" if turn.cause else ""
    match turn.outcome:
        case "answered":
            return Step(
                "answered", turn.ended_at, f"turn {turn.number} was answered{'' if says_something else ' with silence'}"
            )
        case "dead_letter" | "retried" | "dropped":
            since = {"retried": "its messages were run again", "dropped": "an operator dropped it"}
            kept = since.get(turn.outcome, "it is kept as a dead letter")
            text = f"turn {turn.number} was given up after {times(turn.attempt)}{cause}; {kept}"
            return Step("given_up", turn.ended_at, text)
    return Step("superseded", turn.ended_at, f"turn {turn.number} was superseded{cause}")


def _tokens(turn: TurnView) -> Step:
    session = f", session {turn.session}" if turn.session else ""
    return Step(
        "tokens", turn.ended_at, f"{turn.usage.input_tokens} tokens in, {turn.usage.output_tokens} out{session}"
    )


def _settled(delivery: DeliveryView) -> Step:
    at = delivery.settled_at or 0
    if delivery.state == "sent":
        receipt = f"receipt {delivery.receipt}" if delivery.receipt else "the platform gave no receipt"
        return Step("receipt", at, f"sent at attempt {delivery.attempt}; {receipt}")
    return Step("given_up", at, f"not sent after {times(delivery.attempt)}: {delivery.cause or 'no cause told'}")


def times(attempts: int) -> str:
    return f"{attempts} attempt{'' if attempts == 1 else 's'}"
