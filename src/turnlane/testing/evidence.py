"""What a torture must not have done: read from outside, and from the store, its rows with nothing but its driver."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from turnlane.backends import open_backend
from turnlane.model.view import StoredEvent, Story
from turnlane.testing.outside import Call, Reply

Promise = Literal["lost", "doubled", "reordered", "overlapping", "ended by itself"]
Violation = tuple[Promise, str]

STORY_MAX = 100_000

Says = Callable[[str, int, int], str]
"""What an agent said in a conversation, in a turn, under an epoch."""
Seen = TypeVar("Seen", Call, Reply)


def answer_of(conversation: str, turn: int, epoch: int) -> str:
    """What the tortured agent says. It names the epoch, so that a stale holder's answer would be seen."""
    return f"{conversation}#{turn} under epoch {epoch}"


@dataclass(frozen=True)
class Turn:
    number: int
    first: int
    last: int
    outcome: str
    epoch: int


@dataclass
class Conversation:
    """All that is known of one conversation, from its customer, its receiver, its agent and its file."""

    key: str
    sent: Sequence[str]
    """Ids in the order in which each was accepted before the next was posted."""
    replies: Sequence[Reply] = ()
    """As first seen by a receiver that looks at the key."""
    requests: Sequence[Reply] = ()
    """As posted, repeats included."""
    calls: Sequence[Call] = ()
    messages: Sequence[str] = ()
    turns: Sequence[Turn] = ()
    deliveries: Sequence[tuple[str, int, str]] = ()
    """Id, turn and state, in the order of the outbox."""
    says: Says = answer_of

    @property
    def answered(self) -> list[str]:
        return [each for reply in self.replies for each in reply.in_reply_to]

    def violations(self) -> list[Violation]:
        return [(promise, f"{self.key}: {what}") for promise, broken in self._broken() for what in broken]

    def _broken(self) -> Iterator[tuple[Promise, Iterator[str]]]:
        yield "lost", self._lost()
        yield "doubled", self._doubled()
        yield "reordered", self._reordered()
        yield "overlapping", self._overlapping()

    def _lost(self) -> Iterator[str]:
        stored, answered = set(self.messages), set(self.answered)
        yield from (f"{each} was accepted and is not stored" for each in self.sent if each not in stored)
        yield from (f"{each} was accepted and never answered" for each in self.sent if each not in answered)
        yield from (f"turn {turn.number} ended as {turn.outcome}" for turn in self.turns if turn.outcome != "answered")
        yield from (f"delivery {key} is {state}" for key, _, state in self.deliveries if state != "sent")
        left = {turn.number for turn in self.turns} - {reply.turn for reply in self.replies}
        yield from (f"turn {number} was committed and its reply never arrived" for number in left)

    def _doubled(self) -> Iterator[str]:
        yield from (f"{each} is stored twice" for each in _repeated(self.messages))
        yield from (f"{each} was answered twice" for each in _repeated(self.answered))
        yield from (f"{each} was answered and never sent" for each in set(self.answered) - set(self.sent))
        yield from (f"turn {turn} has two deliveries" for turn in _repeated([turn for _, turn, _ in self.deliveries]))
        yield from (f"turn {turn} arrived under two keys" for turn in _repeated([r.turn for r in self.replies]))
        said = {(request.key, request.text) for request in self.requests}
        yield from (f"key {key} carried two texts" for key in _repeated([key for key, _ in said]))

    def _reordered(self) -> Iterator[str]:
        if list(self.messages) != list(self.sent):
            yield "messages are not stored in the order of their acceptance"
        if self.answered != list(self.sent):
            yield "messages were not answered in the order of their acceptance"
        if not _grow([reply.turn for reply in self.replies]):
            yield "replies arrived out of the order of their turns"
        if not _grow([turn for _, turn, _ in self.deliveries]):
            yield "deliveries were queued out of the order of their turns"

    def _overlapping(self) -> Iterator[str]:
        if [turn.number for turn in self.turns] != list(range(1, len(self.turns) + 1)):
            yield "turn numbers are not 1, 2, 3, …"
        ends = [0, *(turn.last for turn in self.turns)]
        if [turn.first - 1 for turn in self.turns] != ends[:-1] or ends[-1] != len(self.messages):
            yield "the turns' ranges do not tile the messages"
        if not _grow([turn.epoch for turn in self.turns]):
            yield "a later turn was committed under an older epoch"
        expected = {turn.number: self.says(self.key, turn.number, turn.epoch) for turn in self.turns}
        for reply in self.replies:
            if reply.text != expected.get(reply.turn):
                yield f"turn {reply.turn} said {reply.text!r}, committed was {expected.get(reply.turn)!r}"
        yield from self._runs_that_overlap()

    def _runs_that_overlap(self) -> Iterator[str]:
        """Among the runs that were committed. A stale one may still think while another has taken over."""
        epochs = {turn.number: turn.epoch for turn in self.turns}
        runs = [call for call in self.calls if epochs.get(call.turn["number"]) == call.turn["epoch"]]
        yield from (
            f"turn {number} ran twice under one epoch" for number in _repeated([r.turn["number"] for r in runs])
        )
        for before, after in pairwise(sorted(runs, key=lambda run: int(run.turn["number"]))):
            if before.overlaps(after):
                yield f"turns {before.turn['number']} and {after.turn['number']} ran at the same time"


def gather(
    sent: Mapping[str, Sequence[str]],
    *,
    store: str,
    calls: Sequence[Call],
    replies: Sequence[Reply],
    requests: Sequence[Reply],
    says: Says = answer_of,
) -> list[Conversation]:
    """All conversations; `sent` names them by their full keys, whose last parts differ. `says`: what the agent said."""
    read = in_rows if _has_rows(store) else in_stories
    stored = read(store, list(sent))
    replies_of, requests_of = _by_conversation(replies), _by_conversation(requests)
    calls_of = _by_conversation(calls)
    return [
        Conversation(
            key,
            ids,
            replies=replies_of[key.partition("/")[2]],
            requests=requests_of[key.partition("/")[2]],
            calls=calls_of[key],
            says=says,
            **stored[key],
        )
        for key, ids in sent.items()
    ]


def _by_conversation(seen: Sequence[Seen]) -> Mapping[str, list[Seen]]:
    found: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        found[each.conversation].append(each)
    return found


def in_rows(store: str, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    with reading(store) as fetch:
        return {
            key: {
                "messages": [each for (each,) in fetch(_MESSAGES, (key,))],
                "turns": [Turn(*row) for row in fetch(_TURNS, (key,))],
                "deliveries": [(id_, turn, state) for id_, turn, state in fetch(_DELIVERIES, (key,))],
            }
            for key in keys
        }


def in_stories(store: str, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of a store without rows: as the backend tells it."""

    async def told() -> dict[str, Story | None]:
        backend = open_backend(store)
        await backend.open()
        try:
            return {key: await backend.story(key, limit=STORY_MAX) for key in keys}
        finally:
            await backend.close()

    return {key: _as_in_rows(story) for key, story in asyncio.run(told()).items()}


def _as_in_rows(story: Story | None) -> dict[str, Any]:
    if story is None:
        return {}
    return {
        "messages": [message.origin_id for message in story.messages],
        "turns": [Turn(turn.number, turn.first, turn.last, turn.outcome, turn.epoch) for turn in story.turns],
        "deliveries": [(each.id, each.turn, each.state) for each in story.deliveries],
    }


def what_happened(store: str) -> Counter[str]:
    """How often each event is in the store's journal."""
    if not _has_rows(store):
        return Counter(event.event.name for event in asyncio.run(_all_events(store)))
    with reading(store) as fetch:
        return Counter(name for (row,) in fetch("SELECT facts FROM journal", ()) for name, *_ in json.loads(row))


def _has_rows(store: str) -> bool:
    return store.startswith(("sqlite:", "postgres"))


async def _all_events(store: str) -> list[StoredEvent]:
    backend = open_backend(store)
    await backend.open()
    try:
        found: list[StoredEvent] = []
        while page := await backend.events(after=found[-1].cursor if found else 0):
            found += page
        return found
    finally:
        await backend.close()


@contextmanager
def reading(url: str) -> Iterator[Callable[[str, Sequence[str]], Iterable[Sequence[Any]]]]:
    """Statements on the store that the URL names, written for SQLite. Not to be called where an event loop runs."""
    if url.startswith("sqlite:"):
        file = urlsplit(url).path[1:]
        with closing(sqlite3.connect(f"{Path(file).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            yield connection.execute
        return
    from turnlane.backends.postgres.connection import BlockingConnection, Target

    with closing(BlockingConnection(Target(url))) as server:
        server.open()
        yield lambda statement, parameters: server.execute(statement.replace("?", "$1"), parameters)


_MESSAGES = """
    SELECT m.origin_id FROM message AS m JOIN lane AS l ON l.id = m.lane WHERE l.kind = 0 AND l.key = ? ORDER BY m.seq
"""
_TURNS = """
    SELECT t.number, t.first, t.last, t.outcome, t.epoch FROM turn AS t JOIN lane AS l ON l.id = t.lane
    WHERE l.kind = 0 AND l.key = ? ORDER BY t.number
"""
_DELIVERIES = """
    SELECT d.id, d.turn, d.state FROM delivery AS d JOIN lane AS l ON l.id = d.lane
    WHERE l.kind = 1 AND l.key = ? ORDER BY d.seq
"""


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


def _grow(numbers: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(numbers))
