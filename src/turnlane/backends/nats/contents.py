"""What a stream holds, for whoever copies all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import chain
from typing import Any

import msgspec

from turnlane.backends.copying import CONVERSATIONS, JOURNAL, Piece, Row, Whole
from turnlane.backends.nats.codec import (
    ATTEMPT,
    DELIVERY,
    MESSAGE,
    PERSON,
    QUESTION,
    TURN_OVER,
    all_spent,
    decode,
    encode,
    message_id,
    spent_to,
)
from turnlane.backends.nats.conversation import Conversation, Record
from turnlane.backends.nats.link import FAILURES, Duplicate, ServerError, Stored, Write, in_batches
from turnlane.backends.nats.shelf import FORGOTTEN
from turnlane.backends.nats.store import NO_STREAM, VERSION, NatsStore, explain
from turnlane.backends.nats.target import Target
from turnlane.errors import BackendError, BackendUnavailable, TooLarge
from turnlane.model.delivery import UNSETTLED
from turnlane.model.lane import TURN, Kind, Lane
from turnlane.model.message import channel_of
from turnlane.model.person import Person

BLOCK_CONVERSATIONS, BLOCK_ROWS = 200, 1000
"""So many conversations are held in memory, or as many as have about so many messages and deliveries."""
RECORD_BYTES = 200_000
"""Into which old rows are gathered; one that is longer has a record of its own."""
CLEARING_TRIES_MAX = 5
BYTES_THAT_COUNT = 4_000
"""A longer record counts for several, so that a batch does not grow beyond some four million."""


class NatsContents:
    """The only one who writes to the stream, so the sequence of each record is known before it is written."""

    def __init__(self, target: Target, store: NatsStore) -> None:
        self.name = target.name
        self._target = target
        self._store = store
        self._link, self._subjects, self._policies = store.link, store.subjects, store.policies
        self._made = ""
        self._last = 0
        self._at = 0
        """The newest time so far: what is copied counts as stored then, as times grow from record to record."""
        self._shared: dict[str, list[str]] = {}
        self._others: dict[str, dict[str, Any]] = {}
        with self._explained():
            self._link.connect()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Duplicate as error:
            raise BackendError(f"{self.name}: two messages in one channel have the same id") from error
        except FAILURES as error:
            raise explain(error, self._target) from error

    def begin(self, *, writes: bool) -> None:
        with self._explained():
            if writes and not self._link.is_alone(f"{self._target.stream}-copy"):
                raise BackendUnavailable(f"{self.name}: another copy into it is under way; wait for its end")

    def commit(self) -> None:
        """Whatever was written is stored; what counts is whether it is finished."""

    def close(self) -> None:
        self._store.close()

    def _info(self) -> dict[str, Any]:
        with self._explained():
            return self._store.existing_stream()

    def _is_unfinished(self) -> bool:
        return self._store.version() < 0

    def worked_on_until(self, now: int) -> int:
        with self._explained():
            if self._is_unfinished():
                return 0
            workers = self._values().get("worker", {}).values()
            return max((until for live, until, _ in workers if live and until >= now), default=0)

    def is_empty(self) -> bool:
        with self._explained():
            return self._is_unfinished() or self.size() == 0

    def size(self) -> int:
        size: int = self._info()["state"]["messages"]
        return size

    def last_fact(self) -> int:
        last: int = self._info()["state"]["last_seq"]
        return last

    # Reading

    def _values(self) -> dict[str, dict[str, Any]]:
        """Those of the whole fleet: by what they are, and by name."""
        found: dict[str, dict[str, Any]] = {}
        for stored in self._link.newest(self._subjects.others):
            name = self._subjects.other_name(stored.subject)
            if name is not None:
                found.setdefault(name[0], {})[name[1]] = decode(stored.payload)
        return found

    def read(self) -> Iterator[Piece]:
        with self._explained():
            values = self._values()
            origins_since, events_since = values.get(FORGOTTEN, {}).get("", (0, 0))
            yield from self._journal(events_since)
            yield from self._conversations(origins_since)
            for what, rows in _others(values).items():
                if rows:
                    yield what, rows
            if spent := self._spent():
                yield "spent", spent
            if people := [decode(stored.payload) for stored in self._link.newest(self._subjects.people)]:
                yield "person", [_person_row(PERSON.unpack(each)) for each in people]

    def _spent(self) -> list[Row]:
        return [
            (*spent.account, *spent_to(spent))
            for stored in self._link.newest(self._subjects.spent(None, None, None))
            for spent in all_spent(*self._subjects.spender(stored.subject), decode(stored.payload))
        ]

    def _journal(self, since: int) -> Iterator[Piece]:
        """Facts are told in the records of what they are about, but for those that were copied here."""
        subject = self._subjects.events if self._made else self._subjects.everything
        last = max((each.seq for each in self._link.last([subject]).values()), default=0)
        for page in self._store.pages(subject, 1, last):
            dated = [each for each in page if self._subjects.is_dated(each.subject)]
            records = [(each.seq, decode(each.payload)) for each in dated]
            rows = [
                (record.get("n", seq), record["at"], record["e"])
                for seq, record in records
                if "e" in record and record["at"] >= since
            ]
            if rows:
                yield JOURNAL, rows

    def _conversations(self, since: int) -> Iterator[Piece]:
        """`since`: when a message was accepted at the earliest whose id is known again."""
        ids = {stored.subject: decode(stored.payload) for stored in self._link.newest(self._subjects.all_ids)}
        block: list[Whole] = []
        size = 0
        for key, last in self._that_began_first():
            kept = {id_: tuple(place) for id_, place in ids.get(self._subjects.ids(key), {}).items()}
            block.append(self._whole(key, last, kept, since))
            size += sum(lane.next_seq for lane in block[-1].lanes)
            if len(block) >= BLOCK_CONVERSATIONS or size >= BLOCK_ROWS:
                yield CONVERSATIONS, block
                block, size = [], 0
        if block:
            yield CONVERSATIONS, block

    def _that_began_first(self) -> Iterator[tuple[str, Stored]]:
        """All conversations with their last records, in the order in which they were heard of."""
        found = self._link.newest(self._subjects.conversations)
        for stored in sorted(found, key=lambda stored: decode(stored.payload).get("c", stored.seq)):
            key = self._subjects.key(stored.subject)
            if key is not None:
                yield key, stored

    def _whole(self, key: str, last: Stored, kept: dict[str, Any], since: int) -> Whole:
        here, ids = Conversation(key), set()
        for stored in chain.from_iterable(self._store.pages(last.subject, 1, last.seq)):
            here.apply(decode(stored.payload), stored.seq, self._policies)
            if stored.id is not None:
                ids.add(stored.id.partition("-")[0])
        channel = channel_of(key)
        messages = [message for _, message in sorted(here.messages.items())]
        origins = {id_: place for id_, place in kept.items() if place[1] >= since}
        for message in messages:
            if message.accepted_at >= since and message_id(channel, message.origin_id) in ids:
                origins[message.origin_id] = (message.seq, message.accepted_at)
        return Whole(
            key,
            list(here.lanes.values()),
            messages,
            {place: outcome for place, outcome in here.outcomes.items() if place in here.messages},
            origins,
            list(here.turns.values()),
            list(here.attempts.values()),
            [(each, here.settled.get(place, UNSETTLED)) for place, each in sorted(here.outgoing.items())],
            list(here.questions.values()),
            {agent: (session, agent in here.shared) for agent, session in here.sessions.items()},
        )

    # Writing

    def mark_unfinished(self, last_fact: int) -> None:
        """A stream of its own from here on: the servers still know the ids that another try has used."""
        with self._explained():
            info = self._store.stream_info()
            config = self._store.stream_config() if info is None else info["config"]
            config["first_seq"] = last_fact + 1
            self._made = self._begin_anew(config)
            self._last = last_fact

    def _begin_anew(self, config: dict[str, Any]) -> str:
        """A server clears a stream away after it has said so, and one of the same name may begin with what is left."""
        for _ in range(CLEARING_TRIES_MAX):
            self._delete()
            made = self._set("CREATE", config, -VERSION)
            if not self._link.api(f"STREAM.INFO.{self._target.stream}")["state"]["messages"]:
                return made
        raise BackendUnavailable(f"{self.name}: what it held comes back after it was deleted; try again later")

    def _delete(self) -> None:
        try:
            self._link.api(f"STREAM.DELETE.{self._target.stream}")
        except ServerError as error:
            if error.code != NO_STREAM:
                raise

    def write(self, piece: Piece) -> None:
        what, values = piece
        writes: list[Write] = []
        if what == JOURNAL:
            for number, at, facts in values:
                writes.append(Write(self._subjects.events, encode({"at": at, "n": number, "e": facts})))
                self._at = max(self._at, at)
        elif what == CONVERSATIONS:
            for whole in values:
                writes += self._log_of(whole, self._last + len(writes))
        else:
            writes += self._values_of(what, values)
        self._put(writes)

    def _put(self, writes: Sequence[Write]) -> None:
        with self._explained():
            for batch in in_batches(writes, lambda write: 1 + len(write.payload) // BYTES_THAT_COUNT):
                try:
                    self._store.check_sizes(batch)
                except TooLarge as error:
                    raise BackendError(f"{self.name}: {error}") from error
                self._last += len(batch)
                if self._link.write(batch) != self._last:
                    raise BackendUnavailable(f"{self.name}: somebody else writes to it, too")

    def _log_of(self, whole: Whole, last: int) -> list[Write]:
        """What is over comes first, so that whoever goes on with the conversation need not read it."""
        here = Conversation(whole.key, lanes={lane.kind: lane for lane in whole.lanes})
        here.sessions = {agent: session for agent, (session, _) in whole.sessions.items()}
        here.shared = frozenset(agent for agent, (_, shared) in whole.sessions.items() if shared)
        self._at = max([self._at, *(each.accepted_at for each in whole.messages), *(it.ended_at for it in whole.turns)])
        before = [*self._policies_of(whole.lanes), *self._handles_of(whole), *self._ids_of(whole)]
        log = Log(self._subjects.conversation(whole.key), self._at, last + len(before))
        _write_messages(log, here, whole)
        state = here.state(self._policies)
        log.end(state)
        return before + log.writes

    def _policies_of(self, lanes: Sequence[Lane]) -> list[Write]:
        """Those that nobody has written yet."""
        for lane in lanes:
            for policy in (lane.policy, lane.runs_under):
                if policy is not None:
                    self._policies.digest(policy)
        new = [Write(self._subjects.policy(name), text, replaces=True) for name, text in self._policies.new.items()]
        self._policies.new.clear()
        return new

    def _handles_of(self, whole: Whole) -> list[Write]:
        """Who else may have a session is known only at the end."""
        writes = []
        for agent, (session, shared) in whole.sessions.items():
            subject = self._subjects.handle(message_id(agent, session.handle))
            if shared:
                self._shared.setdefault(subject, []).append(whole.key)
            else:
                writes.append(Write(subject, encode([whole.key]), replaces=True))
        return writes

    def _ids_of(self, whole: Whole) -> list[Write]:
        kept = _ids_without_message(whole)
        return [Write(self._subjects.ids(whole.key), encode(kept), replaces=True)] if kept else []

    def _values_of(self, what: str, rows: Sequence[Row]) -> list[Write]:
        other, known = self._subjects.other, self._others.setdefault
        values: dict[str, Any] = {}
        for row in rows:
            match what:
                case "worker":
                    values[other(what, row[0])] = row[1:]
                case "setting":
                    values[other(what, row[0])] = row[1:]
                case "hold":
                    values[other("holds")] = known("holds", {}) | {row[0]: row[1]}
                    self._others["holds"] = values[other("holds")]
                case "person":
                    channel, user, name, user_name, labels, *rest = row
                    person = [channel, user, name, user_name, decode(labels.encode()), *rest]
                    values[self._subjects.person(channel, user)] = person
                case "spent":
                    day, channel, user, agent, model, *packed = row
                    subject = self._subjects.spent(day, channel, user)
                    values[subject] = known(subject, {}) | {f"{agent}\n{model}": packed}
                    self._others[subject] = values[subject]
                case "tenant":
                    kind = Kind(row[0]).name
                    values[other("served", kind)] = known(kind, {}) | {row[1]: row[2]}
                    self._others[kind] = values[other("served", kind)]
        return [Write(subject, encode(value), replaces=True) for subject, value in values.items()]

    def finish(self, copied: Row) -> None:
        _, at, facts = copied
        shared = [Write(subject, encode(keys), replaces=True) for subject, keys in self._shared.items()]
        self._put([*shared, Write(self._subjects.events, encode({"at": at, "e": facts}))])
        with self._explained():
            info = self._info()
            if (info["created"], info["state"]["last_seq"]) != (self._made, self._last):
                raise BackendUnavailable(f"{self.name}: somebody else writes to it, too")
            self._set("UPDATE", info["config"], VERSION)

    def _set(self, verb: str, config: dict[str, Any], version: int) -> str:
        """Returns when the stream was made, by which it is told from another one of its name."""
        config["metadata"] = config.get("metadata", {}) | {"turnlane": str(version)}
        made: str = self._link.api(f"STREAM.{verb}.{self._target.stream}", config)["created"]
        return made


class Log:
    """The records of one conversation, as they will be stored after that sequence."""

    def __init__(self, subject: str, at: int, last: int) -> None:
        self.writes: list[Write] = []
        self._subject, self._at, self._last = subject, at, last
        self._rows: dict[str, list[msgspec.Raw]] = {}
        self._size = 0

    def add(self, table: str, row: Any) -> int:
        """Returns the sequence of the record that will hold it."""
        packed = encode(row)
        if self._size + len(packed) > RECORD_BYTES:
            self.cut()
        self._rows.setdefault(table, []).append(msgspec.Raw(packed))
        self._size += len(packed)
        return self._last + len(self.writes) + 1

    def cut(self, *, id: str | None = None) -> None:
        """What was added until now is one record, and known by that id."""
        if self._rows or id is not None:
            self._write({}, id)

    def end(self, state: Record) -> None:
        """Apart from all rows, as the last record is never forgotten."""
        self.cut()
        self._write(state, None)

    def _write(self, state: Record, id: str | None) -> None:
        record = {"at": self._at, **state}
        if self._rows:
            record["r"] = self._rows
        self.writes.append(Write(self._subject, encode(record), id=id))
        self._rows, self._size = {}, 0


def _write_messages(log: Log, here: Conversation, whole: Whole) -> None:
    """All rows of a conversation, and in it where they are then."""
    turn, channel = here.lanes.get(TURN), channel_of(whole.key)
    done = turn.done_seq if turn is not None else 0

    def add_messages(*, over: bool) -> None:
        for message in whole.messages:
            if (message.seq <= done) is over:
                here.stored["m", message.seq] = log.add("m", MESSAGE.pack(message))
                if whole.origins.get(message.origin_id, (0, 0))[0] == message.seq:
                    log.cut(id=message_id(channel, message.origin_id))

    for id_ in _ids_without_message(whole):
        log.cut(id=message_id(channel, id_))
    add_messages(over=True)
    for over in whole.turns:
        seq = log.add("t", TURN_OVER.pack(over))
        if over.outcome == "dead_letter":
            here.dead[over.number] = here.stored.get(("m", over.first), seq)
    for attempt in whole.attempts:
        log.add("a", ATTEMPT.pack(attempt))
    for delivery, settled in whole.deliveries:
        if settled != UNSETTLED:
            seq = log.add("d", DELIVERY.pack(delivery))
            log.add("z", (delivery.seq, *settled))
            if settled[0] == "failed":
                here.failed[delivery.seq] = seq
    log.cut()
    add_messages(over=False)
    for delivery, settled in whole.deliveries:
        if settled == UNSETTLED:
            here.stored["d", delivery.seq] = log.add("d", DELIVERY.pack(delivery))
    for place, outcome in whole.outcomes.items():
        log.add("o", (place, place, outcome))
    for asked in whole.questions:
        here.stored.setdefault(("q", asked.turn), log.add("q", QUESTION.pack(asked)))


def _ids_without_message(whole: Whole) -> dict[str, tuple[int, int]]:
    there = {(message.origin_id, message.seq) for message in whole.messages}
    return {id_: place for id_, place in whole.origins.items() if (id_, place[0]) not in there}


def _person_row(person: Person) -> Row:
    """Its labels as text, as tables have them."""
    row = list(astuple(person))
    row[4] = encode(person.labels).decode()
    return row


def _others(values: dict[str, dict[str, Any]]) -> dict[str, list[Row]]:
    served = [(Kind[name], tenants) for name, tenants in values.get("served", {}).items()]
    return {
        "worker": [(name, *value) for name, value in values.get("worker", {}).items()],
        "tenant": [(kind, tenant, number) for kind, tenants in served for tenant, number in tenants.items()],
        "hold": [hold for holds in values.get("holds", {}).values() for hold in holds.items()],
        "setting": [(name, value) for name, (value,) in values.get("setting", {}).items() if value is not None],
    }
