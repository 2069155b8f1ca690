"""A store moved to another one, of whatever kind: all values that it holds, and proof that both then hold the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from turnlane.errors import BackendUnavailable, InvalidInput, NotFound, SchemaMismatch, TurnlaneError
from turnlane.model.delivery import Delivery, Settled
from turnlane.model.lane import Lane
from turnlane.model.message import Message, MessageOutcome
from turnlane.model.question import QuestionView
from turnlane.model.session import Session
from turnlane.model.view import AttemptView, TurnView

JOURNAL, CONVERSATIONS = "journal", "conversation"
OTHERS: Mapping[str, tuple[str, ...]] = {
    "worker": ("id", "live", "alive_until", "machine"),
    "tenant": ("kind", "tenant", "served"),
    "hold": ("account", "until"),
    "setting": ("name", "value"),
    "person": (
        *("channel", "for_user", "name", "user_name", "labels", "chat_id", "enriched_at", "version", "changed_at"),
    ),
    "spent": (
        *("day", "channel", "for_user", "agent", "model", "turns", "input_tokens", "output_tokens", "cached_tokens"),
        *("reasoning_tokens", "cost"),
    ),
}
"""What belongs to no conversation, and what is known of each."""
TABLES = ("lane", "message", "origin", "turn", "attempt", "delivery", "question", "session", *OTHERS, JOURNAL)
"""What is counted and compared."""
CHECKSUM_BYTES = 16

Step = Literal["copying", "verifying"]
Row = Sequence[Any]
Piece = tuple[str, Sequence[Any]]
"""Some of the journal as (number, time, facts), some conversations, or some of `OTHERS`."""


@dataclass(slots=True)
class Whole:
    """All that is stored of one conversation."""

    key: str
    lanes: list[Lane] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    outcomes: dict[int, MessageOutcome] = field(default_factory=dict)
    """Of those messages that have one of their own, by place."""
    origins: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Ids that are known again: the place, and since when. The message itself may be forgotten."""
    turns: list[TurnView] = field(default_factory=list)
    attempts: list[AttemptView] = field(default_factory=list)
    deliveries: list[tuple[Delivery, Settled]] = field(default_factory=list)
    questions: list[QuestionView] = field(default_factory=list)
    sessions: dict[str, tuple[Session, bool]] = field(default_factory=dict)
    """By agent; and whether another conversation has, or had, the same."""

    def rows(self) -> Mapping[str, Iterable[Any]]:
        """By table, alike on every backend."""
        return {
            "lane": map(_lane_values, self.lanes),
            "message": ((message, self.outcomes.get(message.seq)) for message in self.messages),
            "origin": ((self.key, *origin) for origin in self.origins.items()),
            "turn": self.turns,
            "attempt": self.attempts,
            "delivery": self.deliveries,
            "question": self.questions,
            "session": ((self.key, *session) for session in self.sessions.items()),
        }


_lane_values = attrgetter(*[each.name for each in fields(Lane)])


class Contents(Protocol):
    """What one store holds, on one connection, which `close` ends along with whatever was not committed."""

    name: str
    """For people."""

    def begin(self, *, writes: bool) -> None:
        """One view of everything until `commit`. Only one writes at a time; another one is refused."""

    def commit(self) -> None: ...

    def worked_on_until(self, now: int) -> int:
        """When the term of the last live worker ends; 0 if there is none at this time."""

    def is_empty(self) -> bool:
        """Nothing that somebody would miss."""

    def size(self) -> int:
        """About how many rows there are."""

    def last_fact(self) -> int:
        """The number of the last thing that happened; another one whenever somebody has written."""

    def read(self) -> Iterator[Piece]:
        """Everything: first the journal in order, then conversations, those first that began first, then the others."""

    def write(self, piece: Piece) -> None:
        """Add what `read` gave elsewhere."""

    def mark_unfinished(self, last_fact: int) -> None:
        """Empty it of what an earlier copy has left, and let nobody open it before `finish`.

        `last_fact`: of the store that will be copied, so that nothing here gets a number that was given there.
        """

    def finish(self, copied: Row) -> None:
        """Let it be opened, with one more row in its journal, and go on counting from there."""

    def close(self) -> None: ...


@runtime_checkable
class Copyable(Protocol):
    """A backend whose store can be read and written as a whole."""

    def version(self) -> int:
        """Of the store as it is; 0 if there is none yet."""

    def migrate(self) -> None:
        """Make the store or bring it to the current version."""

    def contents(self) -> Contents: ...


class Watcher(Protocol):
    """Whoever wants to know how far it is."""

    def expect(self, rows: int) -> None:
        """About so many will be copied, and then verified."""

    def passed(self, step: Step, what: str, rows: int) -> None:
        """So many more of the journal, of conversations, or of others; once with 0 at the end of each step."""


class Unwatched:
    def expect(self, rows: int) -> None:
        pass

    def passed(self, step: Step, what: str, rows: int) -> None:
        pass


_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Sum:
    """How many rows, and a checksum over them that does not depend on their order."""

    rows: int = 0
    _total: int = field(default=0, repr=False)

    def add(self, rows: Iterable[Any]) -> None:
        for row in rows:
            self.rows += 1
            self._total += int.from_bytes(blake2b(_encode(row), digest_size=CHECKSUM_BYTES).digest())

    @property
    def checksum(self) -> str:
        return f"{self._total % 256**CHECKSUM_BYTES:0{2 * CHECKSUM_BYTES}x}"


@dataclass(frozen=True, slots=True)
class Compared:
    table: str
    source: Sum
    target: Sum

    @property
    def equal(self) -> bool:
        return self.source == self.target


class Sums(dict[str, Sum]):
    """One for each table."""

    def __init__(self) -> None:
        super().__init__((table, Sum()) for table in TABLES)

    def add(self, piece: Piece) -> int:
        """Returns how many rows it holds."""
        what, values = piece
        before = sum(each.rows for each in self.values())
        if what == CONVERSATIONS:
            for whole in values:
                for table, rows in whole.rows().items():
                    self[table].add(rows)
        else:
            self[what].add(values)
        return sum(each.rows for each in self.values()) - before


def refuse_unfinished(version: int) -> None:
    """Of a store that somebody wants to use."""
    if version < 0:
        raise SchemaMismatch(
            "a copy into this store was not finished; run the same `turnlane backend copy` again, which starts over"
        )


def copy(source: Copyable, target: Copyable, *, now: int, watcher: Watcher | None = None) -> list[Compared]:
    """Copy everything into an empty store, and compare. Unless all is equal, nobody can open the target.

    The same holds whenever it ends before its time; then it is begun anew.
    """
    if source.version() == 0:
        raise NotFound("there is no store to copy from; check the first URL")
    source.migrate()
    with closing(source.contents()) as here:
        here.begin(writes=False)
        _refuse_workers(here, now)
        if target.version() >= 0:
            target.migrate()
        with closing(target.contents()) as there:
            last_fact = here.last_fact()
            _mark_unfinished(there, now, last_fact)
            with _how_to_start_over(there):
                return _copy_all(here, there, now, last_fact, watcher or Unwatched())


def summed(store: Copyable) -> Mapping[str, Sum]:
    """The sum of each table."""
    with closing(store.contents()) as contents:
        contents.begin(writes=False)
        return _sums(contents, Unwatched())


def _refuse_workers(contents: Contents, now: int) -> None:
    # One that was killed is noticed only when its time is over, and until then it cannot be told from one that works.
    longest = contents.worked_on_until(now)
    if longest:
        seconds = (longest - now) // 1000 + 1
        raise InvalidInput(
            f"{contents.name}: a worker is at work; stop every `turnlane run`, `serve` and `worker` that uses it. "
            f"One that was killed counts for another {seconds}s"
        )


def _mark_unfinished(there: Contents, now: int, last_fact: int) -> None:
    there.begin(writes=True)
    _refuse_contents(there, now)
    there.mark_unfinished(last_fact)
    there.commit()


def _refuse_contents(there: Contents, now: int) -> None:
    _refuse_workers(there, now)
    if not there.is_empty():
        raise InvalidInput(f"{there.name}: the store is not empty; name a new one to copy into")


@contextmanager
def _how_to_start_over(there: Contents) -> Iterator[None]:
    try:
        yield
    except TurnlaneError as error:
        advice = f"{there.name} is unfinished and cannot be used; run the same command again, which starts over"
        raise type(error)(f"{error}. {advice}") from error


def _copy_all(here: Contents, there: Contents, now: int, last_fact: int, watcher: Watcher) -> list[Compared]:
    watcher.expect(here.size())
    there.begin(writes=True)
    _refuse_contents(there, now)
    read = Sums()
    for piece in here.read():
        there.write(piece)
        watcher.passed("copying", piece[0], read.add(piece))
    watcher.passed("copying", "", 0)
    written = _sums(there, watcher)
    compared = [Compared(table, read[table], written[table]) for table in TABLES]
    if all(table.equal for table in compared):
        _refuse_changes(here, last_fact)
        there.finish((last_fact + 1, now, [("store.copied", None, here.name)]))
        there.commit()
    return compared


def _sums(contents: Contents, watcher: Watcher) -> Sums:
    sums = Sums()
    for piece in contents.read():
        watcher.passed("verifying", piece[0], sums.add(piece))
    watcher.passed("verifying", "", 0)
    return sums


def _refuse_changes(here: Contents, last_fact: int) -> None:
    """What came in since the copy began would be left behind."""
    here.commit()
    here.begin(writes=False)
    if here.last_fact() != last_fact:
        raise BackendUnavailable(
            f"{here.name}: somebody wrote to it meanwhile; stop every `turnlane run`, `serve` and `worker` that uses it"
        )
