"""`turnlane show`: the story of one conversation, readable like a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from turnlane.cli import common
from turnlane.cli.table import cells_wide, local_time, one_line, relative, state_colour, took
from turnlane.clock import SystemClock
from turnlane.errors import NotFound
from turnlane.model.delivery import with_options
from turnlane.model.explanation import times
from turnlane.model.lane import Kind
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.question import Answer, QuestionView
from turnlane.model.view import AttemptView, DeliveryView, LaneView, Story, TurnView
from turnlane.settings import Settings

NAME_CELLS_MAX = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened. Equal times are told in the order of `rank`: said, tried, decided, sent."""

    at: int
    rank: int
    name: str
    text: str
    note: str = ""
    colour: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        return self.at, self.rank


@click.command()
@click.argument("conversation")
@common.limit
@common.as_json
@common.reads_store
def command(given: common.Given, conversation: str, limit: int, as_json: bool) -> None:
    """Tell the story of CONVERSATION: messages, turns with their attempts, and deliveries in time order."""
    key = common.conversation_named(conversation)
    story = asyncio.run(_story(given.load(), key, limit))
    if story is None:
        raise NotFound(f"no conversation {key!r}; `turnlane lanes` lists them")
    if as_json:
        common.echo_json(story)
    else:
        _tell(story)


async def _story(settings: Settings, key: str, limit: int) -> Story | None:
    async with common.opened(settings) as backend:
        return await backend.story(key, limit=limit)


def _tell(story: Story) -> None:
    for line in told(story, SystemClock().now()):
        click.echo(line)


def told(story: Story, now: int) -> Iterator[str]:
    """The story as lines, each with its colours and nothing else that a terminal would obey."""
    yield click.style(one_line(story.conversation), bold=True)
    for lane in story.lanes:
        yield _lane(lane, now)
    happened = sorted(_happened(story), key=lambda line: line.order)
    width = min(max((cells_wide(line.name) for line in happened), default=0), NAME_CELLS_MAX)
    day = ""
    for line in happened:
        moment = local_time(line.at)
        if day != (day := f"{moment:%A, %Y-%m-%d}"):
            yield from ("", click.style(day, dim=True))
        blanks = " " * (width - cells_wide(line.name))
        note = click.style(f"  ({line.note})", dim=True) if line.note else ""
        yield f"{moment:%H:%M:%S}  {click.style(line.name, fg=line.colour)}{blanks}  {line.text}{note}"


def _lane(lane: LaneView, now: int) -> str:
    what = {Kind.TURN: "turns", Kind.OUT: "sending"}.get(lane.kind, lane.kind.name.lower())
    state = click.style(lane.state, fg=state_colour(lane.state))
    waiting = f", {lane.pending} waiting" if lane.pending else ""
    due = f", due {relative(lane.due_at, now)}" if lane.due_at is not None else ""
    if lane.asks:
        due = f", asks{'' if lane.retry_at is None else f', no longer than {took(lane.retry_at - now)}'}"
    if lane.paused_until is not None:
        due = f", resumes {relative(lane.paused_until, now)}"
    own = f", on_busy = {lane.on_busy} (its own)" if lane.on_busy else ""
    gone = f", nothing can be sent any more: {one_line(lane.gone)}" if lane.gone else ""
    return f"  {what}: {state}{waiting}{due}{own}{gone}"


def _happened(story: Story) -> Iterator[Line]:
    agents = {turn.number: turn.agent for turn in story.turns}
    for message in story.messages:
        # An operator's words are told as what was sent.
        if message.role != "operator":
            late = story.answered_late(message)
            yield _message(message, LATE if late else OUTCOMES.get(story.outcomes.get(message.seq)))
    yield from map(_attempt, story.attempts)
    # What the person answered is a message of theirs, and told as such.
    for asked in story.questions:
        if asked.answer is not None and not _is_said(asked.answer, asked.answered_at, story):
            yield _answer(asked, asked.answer)
    for turn in story.turns:
        aside = sum(turn.first <= seq <= turn.last for seq in story.outcomes)
        yield _turn(turn, turn.last - turn.first + 1 - aside)
    for delivery in story.deliveries:
        yield _delivery(delivery, agents.get(delivery.turn or 0, delivery.kind))


LATE = "answers a question that was closed already"
OUTCOMES: Mapping[MessageOutcome | None, str] = {
    "superseded": "set aside",
    "refused": "refused",
    "dropped": "dropped for a newer one",
    "answer": "answers a question",
    "command": "a command",
    "heard": "kept for the agent",
}


def _message(message: Message, outcome: str | None) -> Line:
    files = f"{len(message.attachments)} attached" if message.attachments else ""
    who = "" if message.role == "person" else f"of the {message.role}"
    note = ", ".join(filter(None, [who, files, outcome]))
    colour = "cyan" if message.role == "person" else "magenta"
    return Line(message.accepted_at, 0, one_line(message.sender), one_line(message.text), note, colour)


def _is_said(answer: Answer, at: int | None, story: Story) -> bool:
    said = [message for message in story.messages if story.outcomes.get(message.seq) == "answer"]
    return any((message.accepted_at, message.sender) == (at, answer.by) for message in said)


def _answer(asked: QuestionView, answer: Answer) -> Line:
    if answer.text is None:
        how = ": its question reached nobody" if asked.reached_nobody else " in time"
        return Line(asked.answered_at or 0, 0, "--", f"nobody answered turn {asked.turn}{how}", colour="yellow")
    note = f"answers turn {asked.turn}"
    return Line(asked.answered_at or 0, 0, one_line(answer.by or "--"), one_line(answer.text), note, "cyan")


def _attempt(attempt: AttemptView) -> Line:
    what = {Kind.TURN: "turn", Kind.OUT: "delivery", Kind.TICK: "tick"}[attempt.kind]
    cause = f": {one_line(attempt.cause)}" if attempt.cause else ""
    text = f"{what} {attempt.number}, attempt {attempt.attempt} {attempt.result}{cause}"
    return Line(attempt.at, 1, "--", text, colour="yellow")


def _turn(turn: TurnView, many: int) -> Line:
    if turn.outcome == "superseded":
        text = f"turn {turn.number} ended without an answer: {one_line(turn.cause or 'superseded')}"
        return Line(turn.ended_at, 2, "--", text, colour="yellow")
    if turn.outcome != "answered":
        since = {"retried": " (run again since)", "dropped": " (dropped since)"}.get(turn.outcome, "")
        cause = one_line(turn.cause or "no cause told")
        text = f"turn {turn.number} given up after {times(turn.attempt)}: {cause}{since}"
        return Line(turn.ended_at, 2, "--", text, colour="red")
    tokens = f", {turn.usage.input_tokens}+{turn.usage.output_tokens} tokens" if turn.usage.input_tokens else ""
    messages = f"{many} message{'s' if many > 1 else ''}"
    text = f"turn {turn.number} answered {messages} in {took(turn.ended_at - turn.started_at)}"
    attempt = f"attempt {turn.attempt}" if turn.attempt > 1 else ""
    return Line(turn.ended_at, 2, "--", text + tokens, attempt)


def _delivery(delivery: DeliveryView, name: str) -> Line:
    match delivery.state:
        case "sent":
            note, colour = f"sent after {took((delivery.settled_at or 0) - delivery.queued_at)}", "green"
        case "dropped":
            note, colour = f"dropped: {one_line(delivery.cause or 'no cause told')}", "bright_black"
        case "failed":
            note, colour = f"not sent: {one_line(delivery.cause or 'no cause told')}", "red"
        case _:
            note, colour = f"waits to be sent{f', {one_line(delivery.cause)}' if delivery.cause else ''}", "yellow"
    return Line(
        delivery.queued_at, 3, one_line(name), one_line(with_options(delivery.text, delivery.options)), note, colour
    )
