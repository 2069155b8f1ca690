"""What was said in a visitor's conversation on both sides, the latest first to be read and a page at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from turnlane.backends.base import Backend
from turnlane.channels.web import Place
from turnlane.model.delivery import question_id
from turnlane.model.lane import Kind
from turnlane.model.message import Attachment, Message, MessageOutcome
from turnlane.model.turn import TurnOutcome
from turnlane.model.view import DeliveryView, LaneView, Story

LINES_AT_ONCE = 50
FIRST_LOOK = 60
"""Messages, and as many replies: enough for the lines of the latest page. Older ones are looked for farther back."""
LOOK_MAX = 1_000
"""As far back as a page can be scrolled."""
FILES_BYTES_MAX = 8_000_000
"""Of files in one answer. Where there are more, it has fewer lines, and the next page begins earlier."""
SETTLED: Mapping[MessageOutcome, str] = {"superseded": "set_aside", "refused": "refused", "dropped": "dropped"}
ENDED: Mapping[TurnOutcome, str] = {"superseded": "set_aside", "dead_letter": "given_up", "dropped": "given_up"}
"""What became of messages that nobody answers, in no turn and in one."""
HALTED = frozenset({"paused", "parked"})
AT_WORK = frozenset({"gathering", "ready", "running", "waiting"})

Line = dict[str, object]


async def history(backend: Backend, place: Place, *, before: str | None, with_files: bool) -> dict[str, object]:
    """The lines before the one of that id, oldest first; whether there are `more`; and where to follow replies from."""
    look = FIRST_LOOK
    while True:
        story = await backend.story(place.key, limit=look)
        if story is None:
            return {"lines": [], "more": False, "after": 0, "last": 0, "unsent": False}
        lines = _lines(story, place, look)
        end = len(lines) if before is None else _place_of(before, lines)
        is_all = look == LOOK_MAX or (len(story.messages) < look and len(story.deliveries) < look)
        if is_all or end >= LINES_AT_ONCE:
            break
        look = min(4 * look, LOOK_MAX)
    begin = _begin(story, lines, end, place) if with_files else max(0, end - LINES_AT_ONCE)
    shown = lines[begin:end]
    if not with_files:
        shown = [_without_files(line) for line in shown]
    unsent = any(delivery.state == "queued" for delivery in story.deliveries)
    return {"lines": shown, "more": begin > 0, "after": _after(story), "last": last_of(story), "unsent": unsent}


def is_at_work(story: Story) -> bool:
    """Whether an answer is to be expected, whoever makes it."""
    return any(lane.state in AT_WORK for lane in story.lanes)


def last_of(story: Story) -> int:
    """The place of what was said last."""
    return max((message.seq for message in story.messages), default=0)


def visible(deliveries: Sequence[DeliveryView]) -> list[DeliveryView]:
    """Those that left. Nothing after one that still waits, so that the reader's cursor never passes it."""
    queued = next((place for place, delivery in enumerate(deliveries) if delivery.state == "queued"), len(deliveries))
    return [delivery for delivery in deliveries[:queued] if delivery.state == "sent"]


def replied(delivery: DeliveryView, token: str) -> Line:
    return {
        "from": "bot",
        "id": delivery.id,
        "text": delivery.text,
        "at": delivery.queued_at,
        "kind": delivery.kind,
        "options": delivery.options,
        "in_reply_to": [_own_id(origin_id, token) for origin_id in delivery.in_reply_to],
    }


def _answered(delivery: DeliveryView, token: str, choices: Collection[str]) -> Line:
    """Without the options of a question that was answered, or that nobody waits for any more."""
    return replied(delivery, token) | ({} if delivery.id in choices else {"options": ()})


def _lines(story: Story, place: Place, look: int) -> list[Line]:
    """All that is known for sure to be without gaps."""
    # By time; where the clock is too coarse, an answer stands after the last message of its turn, before the next.
    asked_until = {turn.number: turn.last for turn in story.turns}
    latest = last_of(story)
    choices = _open_questions(story)
    said = [
        ((message.accepted_at, message.seq, 0), _said(message, place.token, state))
        for message, state in _states(story)
        if message.role == "person"
    ]
    answers = [
        ((each.queued_at, asked_until.get(each.turn or 0, latest), each.seq), _answered(each, place.token, choices))
        for each in visible(story.deliveries)
    ]
    since = _whole_since(story, look)
    return [line for order, line in sorted([*said, *answers], key=lambda each: each[0]) if order[0] > since]


def _whole_since(story: Story, look: int) -> int:
    """Where one side was not read to its beginning, the other is older than what is known of it."""
    begins = []
    if len(story.messages) == look:
        begins.append(story.messages[0].accepted_at)
    if len(story.deliveries) == look:
        begins.append(story.deliveries[0].queued_at)
    return max(begins, default=-1)


def _place_of(id: str, lines: Sequence[Line]) -> int:
    return next((place for place, line in enumerate(lines) if line["id"] == id), 0)


def _begin(story: Story, lines: Sequence[Line], end: int, place: Place) -> int:
    """At least one line; as many as fit."""
    sizes = {
        _own_id(message.origin_id, place.token): sum(len(file.url) for file in message.attachments)
        for message in story.messages
    }
    begin, left = end, FILES_BYTES_MAX
    while begin > 0 and end - begin < LINES_AT_ONCE:
        left -= sizes.get(str(lines[begin - 1]["id"]), 0)
        if left < 0 and begin < end:
            break
        begin -= 1
    return begin


def _after(story: Story) -> int:
    left = visible(story.deliveries)
    if left:
        return left[-1].seq
    # All that is known still waits: what is older has left, and is not to be told again.
    return story.deliveries[0].seq - 1 if story.deliveries else 0


def _states(story: Story) -> list[tuple[Message, str]]:
    """Each message, and whether it still waits for an answer (is kept for later, if nobody works on one), is done with,
    or what else became of it."""
    lane = _turn_lane(story)

    def state(message: Message) -> str:
        if message.seq not in story.outcomes and message.seq > lane.done_seq:
            return "kept" if lane.state in HALTED else "waiting"
        if message.seq in story.outcomes:
            return SETTLED.get(story.outcomes[message.seq], "done")
        turns = (turn for turn in reversed(story.turns) if turn.first <= message.seq <= turn.last)
        last = next(turns, None)
        return "done" if last is None else ENDED.get(last.outcome, "done")

    return [(message, state(message)) for message in story.messages]


def _open_questions(story: Story) -> set[str]:
    """The deliveries that asked what may still be answered."""
    turn = _turn_lane(story).number
    unanswered = [asked for asked in story.questions if asked.answer is None and asked.turn == turn]
    running = turn not in {each.number for each in story.turns}
    return {question_id(asked.conversation, asked.turn, asked.number) for asked in unanswered if running}


def _turn_lane(story: Story) -> LaneView:
    return next(lane for lane in story.lanes if lane.kind is Kind.TURN)


def _said(message: Message, token: str, state: str) -> Line:
    return {
        "from": "visitor",
        "id": _own_id(message.origin_id, token),
        "text": message.text,
        "at": message.accepted_at,
        "state": state,
        "attachments": [_file(each) for each in message.attachments],
    }


def _file(attachment: Attachment) -> Line:
    """With its bytes, if the page brought them. Where else it may be is nobody's business in a browser."""
    url = attachment.url if attachment.url.startswith("data:") else None
    return {"name": attachment.name, "media_type": attachment.media_type, "size": attachment.size, "url": url}


def _without_files(line: Line) -> Line:
    files = line.get("attachments")
    if not isinstance(files, list):
        return line
    return line | {"attachments": [{key: file[key] for key in file if key != "url"} for file in files]}


def _own_id(origin_id: str, token: str) -> str:
    """The id that the page gave: the channel puts the visitor's token before it."""
    return origin_id.removeprefix(f"{token}/")
