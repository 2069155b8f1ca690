"""The stream as the writing thread uses it: decide on what is known, then store it if that was true."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from turnlane.backends.copying import refuse_unfinished
from turnlane.backends.nats.codec import Policies, decode, encode, message_id
from turnlane.backends.nats.conversation import Conversation
from turnlane.backends.nats.link import (
    BATCH_MAX,
    FAILURES,
    PAGE,
    TROUBLE,
    Duplicate,
    Link,
    Refused,
    ServerError,
    Stored,
    Write,
    in_batches,
    is_refused,
    milliseconds,
)
from turnlane.backends.nats.rows import NatsRows, Unit
from turnlane.backends.nats.shelf import FORGOTTEN, Shelf, Subjects
from turnlane.backends.nats.tail import Tail, Told
from turnlane.backends.nats.target import Target
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendError, BackendRefused, BackendUnavailable, SchemaMismatch, TooLarge
from turnlane.model.lane import Kind
from turnlane.model.policy import tenant_of
from turnlane.model.schedule import key_of

VERSION = 1
"""Of the records. A stream says in its metadata which one it has."""
POLL_SECONDS = 1.0
"""How often a process with waiting claims asks whether it has missed a hint."""
POLL_SECONDS_BY_HAND = 0.025
GAP_SECONDS = 0.05
"""How long hints may come out of order before what is between them is read."""
CLOCK_SECONDS = 30.0
CONFLICT_SECONDS = 0.003
CONFLICT_DOUBLES_MAX = 6
"""How often the pause after a conflict is doubled: servers under load may take long to store what got in the way."""
REPLICA_SECONDS_MAX = 5.0
SCHEDULES = key_of("")
SERVER_MIN = (2, 12, 0)
"""With atomic batches."""
TOLD = b"\n"
"""In a hint, between how things stand and what happened, which is looked at only while somebody watches."""
GONE = ("", 0)
"""The place of a message whose id is still known, and which is not kept any longer."""
NO_STREAM = 10059
NOT_ENOUGH_PEERS = {10005, 10074}


class Again(Exception):
    """Somebody else was first, and now it is known what they wrote."""


def explain(error: Exception, target: Target) -> Exception:
    """The error that callers see: whether to try again, and what an operator does about it."""
    if isinstance(error, TROUBLE):
        advice = "check that the servers run with JetStream, and that the URL, user and password are right"
        kind = BackendRefused if is_refused(error) else BackendUnavailable
        return kind(f"{target.name}: {advice} ({str(error) or type(error).__name__})")
    if isinstance(error, Again):
        return BackendUnavailable(f"{target.name}: others write the same conversations again and again; try again")
    if isinstance(error, (ServerError, Refused)):
        return BackendUnavailable(f"{target.name}: the server refuses it ({error})")
    return error


class Known:
    """What the writing thread asks of whoever remembers: nothing is believed longer than it can be checked."""

    is_alone = False

    def __init__(self, store: NatsStore) -> None:
        self._store = store

    def check(self) -> None:
        self._store.catch_up(look=True)

    def keep(self, _: Sequence[Any], now: int) -> None:
        self._store.shelf.sweep(now)


class Seen:
    """Which records this process has heard of, up to where without a gap."""

    def __init__(self) -> None:
        self.to = 0
        self._beyond: dict[int, int] = {}
        self.gap_since: float | None = None

    def add(self, first: int, last: int, now: float) -> None:
        if last > self.to:
            self._beyond[min(first, last)] = max(last, self._beyond.get(first, 0))
        for start in sorted(self._beyond):
            if start > self.to + 1:
                break
            self.to = max(self.to, self._beyond.pop(start))
        self.gap_since = None if not self._beyond else self.gap_since or now

    @property
    def furthest(self) -> int:
        """Perhaps with a gap before it."""
        return max(self._beyond.values(), default=self.to)

    def up_to(self, seq: int) -> None:
        self.to = max(self.to, seq)
        self._beyond = {first: last for first, last in self._beyond.items() if last > self.to}
        if not self._beyond:
            self.gap_since = None


class NatsStore:
    overlaps = False
    trouble: tuple[type[Exception], ...] = FAILURES
    conflict: tuple[type[Exception], ...] = (Again,)

    def __init__(self, target: Target, clock: Clock, idle_after_ms: int, wake: Callable[[], None]) -> None:
        self._target = target
        self._clock = clock
        self._by_hand = not isinstance(clock, SystemClock)
        """A test turns the clock: nothing shall depend on when a hint arrives."""
        self.poll_seconds = POLL_SECONDS_BY_HAND if self._by_hand else POLL_SECONDS
        self._ahead = 0
        self._clock_read_at: float | None = None
        self._real = SystemClock()
        """Hints arrive in real time, whatever clock a test turns."""
        self._wake = wake
        self._me = SystemClock().token()
        self._groups = 0
        self._conflicts = 0
        """In a row."""
        self._hints: deque[bytes] = deque()
        self._reconnected = threading.Event()
        self.subjects = Subjects(target.stream)
        self.policies = Policies(self._load_policy)
        self.shelf = Shelf(self.subjects, self.policies, idle_after_ms)
        self.believed = Known(self)
        self._seen = Seen()
        self._tail = Tail()
        self._looked_at = 0.0
        self.link = Link(target, self._hear, self._reconnect)

    # Opening

    def open(self) -> None:
        try:
            self.link.connect()
            self.make_stream()
            self._start()
        except FAILURES as error:
            self.link.close()
            raise explain(error, self._target) from error
        except BaseException:  # whatever it was, its thread must not stay; it is raised again
            self.link.close()
            raise

    def make_stream(self) -> None:
        stream = self._target.stream
        if self.link.server_version < SERVER_MIN:
            there, needed = (".".join(map(str, version)) for version in (self.link.server_version, SERVER_MIN))
            raise BackendError(f"{self._target.name}: the server is NATS {there}; {needed} or newer is needed")
        info = self.stream_info()
        if info is None:
            try:
                info = self.link.api(f"STREAM.CREATE.{stream}", self.stream_config())
            except ServerError as error:
                if error.code in NOT_ENOUGH_PEERS:
                    wanted = f"replicas={self._target.replicas} needs as many servers in one cluster"
                    raise BackendUnavailable(f"{self._target.name}: {wanted} ({error})") from error
                info = self.stream_info()
                if info is None:
                    raise
        found = _version_of(info)
        refuse_unfinished(found)
        if found > VERSION:
            raise SchemaMismatch(
                f"the stream's records are of version {found}, this code knows {VERSION}; install a newer turnlane"
            )
        if found == 0:
            raise BackendError(
                f"{self._target.name}: the stream {stream} is not Turnlane's; choose another with ?stream="
            )

    def version(self) -> int:
        """Of the records; 0 if there is no stream yet, and negative while everything is copied into it."""
        info = self.stream_info()
        return 0 if info is None else _version_of(info)

    def stream_info(self) -> dict[str, Any] | None:
        try:
            return self.link.api(f"STREAM.INFO.{self._target.stream}")
        except ServerError as error:
            if error.code == NO_STREAM:
                return None
            raise

    def stream_config(self) -> dict[str, Any]:
        return {
            "name": self._target.stream,
            "subjects": [self.subjects.everything],
            "retention": "limits",
            "storage": "file",
            "num_replicas": self._target.replicas,
            "discard": "new",
            "allow_direct": True,
            "allow_atomic": True,
            "allow_rollup_hdrs": True,
            "duplicate_window": self._target.dedupe_days * 86_400_000_000_000,
            "metadata": {"turnlane": str(VERSION)},
        }

    def _start(self) -> None:
        """Whatever is written from now on is heard of; what was before is read."""
        self._read_clock()
        found = self.link.newest(self.subjects.others, self.subjects.conversations)
        for stored in found:
            self._learn(stored)
        # Whoever told may have been behind; what is beyond is read with the first look.
        self._seen.up_to(max((stored.seq for stored in found), default=0))

    def _learn(self, stored: Stored) -> None:
        digest = self.subjects.digest(stored.subject)
        if digest is None:
            self.shelf.learn(stored)

    def existing_stream(self) -> dict[str, Any]:
        info = self.stream_info()
        if info is None:
            raise BackendError(
                f"{self._target.name}: the stream is gone; restore it, or start anew with `turnlane migrate`"
            )
        return info

    def last_seq(self) -> int:
        last: int = self.existing_stream()["state"]["last_seq"]
        return last

    # Time

    def now(self) -> int:
        return self._clock.now() + self._ahead

    def _read_clock(self) -> None:
        """All machines go by the server's clock. A test has its own."""
        if self._by_hand:
            return
        if self._clock_read_at is None or self._clock.monotonic() - self._clock_read_at > CLOCK_SECONDS:
            before = self._clock.now()
            info = self.stream_info()
            if info is not None and "ts" in info:
                theirs = milliseconds(info["ts"])
                self._ahead = theirs - (before + self._clock.now()) // 2
            self._clock_read_at = self._clock.monotonic()

    # What others write

    def _hear(self, payload: bytes) -> None:
        self._hints.append(payload)
        self._wake()

    def _reconnect(self) -> None:
        self._reconnected.set()
        self._wake()

    def catch_up(self, *, look: bool = False) -> None:
        """Take in the hints. `look`: ask whether one is missing, now and then."""
        now = self._real.monotonic()
        while self._hints:
            self._take_in(self._hints.popleft(), now)
        gap = self._seen.gap_since
        missed = self._reconnected.is_set() or (gap is not None and now - gap > GAP_SECONDS)
        if missed or (look and now - self._looked_at >= POLL_SECONDS):
            self._reconnected.clear()
            self._looked_at = now
            self._read_what_was_missed()

    def catch_up_now(self) -> int:
        """With all that is stored. Returns up to where."""
        self.catch_up()
        self._read_what_was_missed()
        return self._seen.to

    def heard_to(self) -> int:
        """The last record before which none is missing, without asking anybody."""
        self.catch_up()
        return self._seen.to

    def told_since(self, seq: int) -> list[Told] | None:
        """From this record on, as hints told it: what others stored a moment ago may not be there yet.

        None: it has to be read.
        """
        self.catch_up(look=True)
        self._tail.watched(self._real.monotonic(), self._seen.furthest)
        return self._tail.following(seq, self._seen.to)

    def _take_in(self, payload: bytes, now: float) -> None:
        summary, told, facts = payload.partition(TOLD)
        first, last, conversations, values = decode(summary)
        for key, seq, state in conversations:
            self.shelf.learn_conversation(key, seq, state)
        for subject, seq, value in values:
            self.shelf.learn_value(subject, value, seq)
        if self._tail.is_kept(now):
            if told:
                at, noted = decode(facts)
                self._tail.add(Told(last, at, noted, {key: state.get("l", ()) for key, _, state in conversations}))
            else:
                self._tail.lose(last)
        self._seen.add(first, last, now)

    def _read_what_was_missed(self) -> None:
        last = self.last_seq()
        while self._seen.to < last:
            page = self.link.following(self.subjects.everything, self._seen.to + 1, PAGE)
            for stored in page:
                self._learn(stored)
                self._keep_told(stored)
            if not page:
                # A replica that is behind, which the next look will see; or the last records are there no more.
                if self._target.replicas == 1:
                    self._seen.up_to(last)
                return
            self._seen.up_to(page[-1].seq)

    def _keep_told(self, stored: Stored) -> None:
        if self._tail.is_kept(self._real.monotonic()) and self.subjects.is_dated(stored.subject):
            key, record = self.subjects.key(stored.subject), decode(stored.payload)
            lanes = {} if key is None or "l" not in record else {key: record["l"]}
            self._tail.add(Told(stored.seq, record["at"], record.get("e", ()), lanes))

    # Reading

    def load(self, keys: Sequence[str]) -> None:
        subjects = {self.subjects.conversation(key): key for key in keys}
        # A server that is alone has the last word; of several, the leader.
        ask = self.link.last_of_many if self._target.replicas == 1 else self.link.last
        found = ask(list(subjects))
        for subject, key in subjects.items():
            stored = found.get(subject)
            here = Conversation(key) if stored is None else self._opened(key, stored)
            self.shelf.keep(here, self.now())

    def _opened(self, key: str, last: Stored) -> Conversation:
        record = decode(last.payload)
        here = Conversation(key, whole=False)
        since = record.get("f")
        if since is not None:
            self._replay(here, since, last.seq)
        here.apply(record, last.seq, self.policies)
        return here

    def load_whole(self, key: str) -> Conversation:
        here = Conversation(key)
        last = self.link.last([self.subjects.conversation(key)])
        for stored in last.values():
            self._replay(here, 1, stored.seq)
            here.apply(decode(stored.payload), stored.seq, self.policies)
        return here

    def _replay(self, here: Conversation, since: int, until: int) -> None:
        """Apply its records from `since` on, but for the last one."""
        for page in self.pages(self.subjects.conversation(here.key), since, until):
            for stored in page:
                if stored.seq < until:
                    here.apply(decode(stored.payload), stored.seq, self.policies)

    def pages(self, subject: str, since: int, until: int) -> Iterator[Sequence[Stored]]:
        """The records of a subject from one to another that is known to be there, and perhaps some more.

        Any replica may answer, and may be behind. It has all that is before whatever it has; so once it shows the last
        one, nothing is missing.
        """
        seq = since
        patience = self._real.monotonic() + REPLICA_SECONDS_MAX
        while seq <= until:
            page = self.link.following(subject, seq, PAGE)
            if page:
                yield page
                seq = page[-1].seq + 1
            elif self._real.monotonic() > patience:
                raise TimeoutError("a replica is behind the others; look at its server")
            else:
                time.sleep(CONFLICT_SECONDS)

    def load_value(self, subject: str) -> tuple[Any, int]:
        stored = self.link.last([subject]).get(subject)
        return (None, 0) if stored is None else (decode(stored.payload), stored.seq)

    def _load_policy(self, digest: str) -> bytes:
        subject = self.subjects.policy(digest)
        stored = self.link.last([subject]).get(subject)
        if stored is None:
            raise BackendError(f"{self._target.name}: a policy that lanes follow is not there ({digest})")
        return stored.payload

    # Writing

    @contextmanager
    def transaction(self, before_waiting: Callable[[], None]) -> Iterator[NatsRows]:
        self._read_clock()
        if self._by_hand:
            self.catch_up_now()
        self.catch_up()
        self._groups += 1
        rows = NatsRows(self.shelf, self, self.now(), f"{self._me}-{self._groups}")
        yield rows
        before_waiting()
        self._store(rows)
        if not rows.units:
            self.link.send_hints()

    def confirm(self) -> None:
        """It is durable at the end."""

    def rest(self) -> None:
        """Nothing is put off."""

    def _store(self, rows: NatsRows) -> None:
        self._store_policies()
        # Whatever one transaction does to one conversation stays together.
        for units in in_batches(rows.units, lambda unit: len(unit.writes)):
            self._store_units(units, rows)
        for origin, place in rows.moved.items():
            self.shelf.remember_origin(origin, *place)

    def _store_policies(self) -> None:
        """Before anything that refers to them. Twice does no harm."""
        for digest, text in list(self.policies.new.items()):
            seq = self.link.write([Write(self.subjects.policy(digest), text, replaces=True)])
            self._seen.add(seq, seq, self._real.monotonic())
            del self.policies.new[digest]

    def _store_units(self, units: Sequence[Unit], rows: NatsRows) -> None:
        writes = [write for unit in units for write in unit.writes]
        self.check_sizes(writes)
        try:
            last = self.link.write(writes)
        except Refused as error:
            self._pause()
            self._refresh(units)
            raise Again from error
        except Duplicate as error:
            self._learn_origins(rows)
            raise Again from error
        except TROUBLE as error:
            stored = self._was_stored(units, len(writes))
            if stored is None:
                # A stream that was just made, or has a new leader, is not known to every server yet.
                self._pause()
                raise Again from error
            last = stored
        self._conflicts = 0
        self._conclude(units, last - len(writes) + 1, last, rows.now)

    def _pause(self) -> None:
        """Of several who try the same at the same moment, one should be first the next time."""
        time.sleep(self._clock.random() * CONFLICT_SECONDS * 2**self._conflicts)
        self._conflicts = min(self._conflicts + 1, CONFLICT_DOUBLES_MAX)

    def check_sizes(self, writes: Sequence[Write]) -> None:
        if len(writes) > BATCH_MAX:
            too_many = f"{len(writes)} records of one conversation at once, and the server takes {BATCH_MAX}"
            raise TooLarge(f"NATS cannot hold it: {too_many}; send less at once")
        most = self.link.max_payload
        for write in writes:
            if len(write.payload) > most - 1024:
                too_much = f"{len(write.payload)} bytes in one record, and the server's max_payload is {most}"
                raise TooLarge(f"NATS cannot hold it: {too_much}; raise it there, or send less at once")

    def _conclude(self, units: Sequence[Unit], first: int, last: int, at: int) -> None:
        """It is stored: now it may be believed, and told."""
        seq, now = first, self.now()
        told: list[Any] = []
        values: list[Any] = []
        for unit in units:
            begins, seq = seq, seq + len(unit.writes)
            here = unit.conversation
            if here is not None and unit.change is not None:
                here.written_as(begins, unit.change.added)
                here.seq = seq - 1
                self.shelf.keep(here, now)
                told.append((here.key, here.seq, unit.state))
            elif unit.value is not None:
                subject = unit.writes[0].subject
                self.shelf.learn_value(subject, unit.value, begins)
                values.append((subject, begins, unit.value))
        self._tell(units, first, last, at, told, values)

    def _tell(self, units: Sequence[Unit], first: int, last: int, at: int, told: list[Any], values: list[Any]) -> None:
        """What happened stands in the last record of all, and goes along if there is room for it."""
        heard_at, noted = self._real.monotonic(), units[-1].noted
        if self._tail.is_kept(heard_at):
            self._tail.add(Told(last, at, noted, {key: state["l"] for key, _, state in told}))
        self._seen.add(first, last, heard_at)

        def hint() -> bytes:
            summary, facts = encode((first, last, told, values)), encode((at, noted))
            with_facts = summary + TOLD + facts
            return with_facts if len(with_facts) < self.link.max_payload else summary

        self.link.hint(hint)

    def _refresh(self, units: Sequence[Unit]) -> None:
        """Somebody else wrote one of these meanwhile."""
        subjects = [unit.writes[0].subject for unit in units if unit.writes[0].after is not None]
        found = self.link.last(subjects)
        for unit in units:
            if unit.conversation is not None:
                self.shelf.drop(unit.conversation.key)
        for stored in found.values():
            self.shelf.learn(stored, wanted=True)

    def _was_stored(self, units: Sequence[Unit], writes: int) -> int | None:
        """No answer came. The sequence of the last record, if all was stored nevertheless."""
        place = 0
        for unit in units:
            place += len(unit.writes)
            if unit.conversation is not None:
                subject = unit.writes[-1].subject
                found = self.link.last([subject]).get(subject)
                if found is not None and decode(found.payload).get("b") == unit.conversation.batch:
                    return found.seq - place + writes
                break
        self._refresh(units)
        return None

    def _learn_origins(self, rows: NatsRows) -> None:
        """The server knows one of the messages: find out which, and where it is."""
        origins = list(rows.moved)
        named = [message_id(*origin, self.shelf.times_forgotten.get(origin, 0)) for origin in origins]
        for origin, seq in zip(origins, self.link.origin_of(named), strict=True):
            if seq is None:
                continue
            place = self._place_of(origin, seq, rows.moved[origin][0])
            if place is None:
                self.shelf.times_forgotten[origin] = self.shelf.times_forgotten.get(origin, 0) + 1
            else:
                self.shelf.remember_origin(origin, *place)

    def find_origin(self, origin: tuple[str, str]) -> tuple[str, int] | None:
        """Where the message is that came under this id."""
        known = self.shelf.origins.get(origin)
        if known is not None:
            return known
        for times in range(self.shelf.times_forgotten.get(origin, 0) + 1):
            [seq] = self.link.origin_of([message_id(*origin, times)])
            place = None if seq is None else self._place_of(origin, seq, None)
            if place is not None:
                return place if place != GONE else None
        return None

    def _place_of(self, origin: tuple[str, str], seq: int, likely: str | None) -> tuple[str, int] | None:
        """`likely`: the conversation in which the message is said to be."""
        stored = self.link.record(seq)
        forgotten = self._forgotten[0]
        key = likely if stored is None else self.subjects.key(stored.subject)
        if key is not None and stored is not None:
            messages = [each for each in self.load_whole(key).messages.values() if each.accepted_at >= forgotten]
            places = [each.seq for each in messages if (each.channel, each.origin_id) == origin]
            if places:
                return key, max(places)
        kept = None if key is None else self._ids_kept(key).get(origin[1])
        if key is not None and kept is not None and kept[1] >= forgotten:
            return key, kept[0]
        is_gone = stored is None and (not forgotten or seq >= self._stored_before(forgotten))
        return GONE if is_gone else None

    # Forgetting

    @property
    def _forgotten(self) -> tuple[int, int]:
        (origins, events), _ = self.shelf.values.get(self.subjects.other(FORGOTTEN), ((0, 0), 0))
        return origins, events

    @property
    def events_forgotten_before(self) -> int:
        return self._forgotten[1]

    def forget(self, messages_before: int, events_before: int) -> int:
        """Cut the logs of conversations where nothing is needed any more. Returns how many records went."""
        whole = self._stored_before(messages_before)
        gone = self._purge(self.subjects.events, self._stored_before(events_before))
        for subject, records in self._records_of_conversations().items():
            key = self.subjects.key(subject)
            if records > 1 and key is not None:
                last = self.link.last([subject])[subject]
                cut = min(whole, decode(last.payload).get("f", last.seq), last.seq)
                self._keep_ids(key, cut)
                gone += self._purge(subject, cut)
        for worker in self._workers_long_dead(events_before):
            gone += self._purge(self.subjects.other("worker", worker), self.last_seq() + 1)
            self.shelf.forget_worker(worker)
        return gone

    def _ids_kept(self, key: str) -> dict[str, tuple[int, int]]:
        """The place of each, and when it was accepted."""
        kept, _ = self.load_value(self.subjects.ids(key))
        return kept or {}

    def _keep_ids(self, key: str, cut: int) -> None:
        """Of messages that go while they must still be known again."""
        here, since = self.load_whole(key), self._forgotten[0]
        before = self._ids_kept(key)
        kept = {id_: place for id_, place in before.items() if place[1] >= since}
        for message in here.messages.values():
            if here.stored["m", message.seq] < cut and message.accepted_at >= since:
                kept[message.origin_id] = (message.seq, message.accepted_at)
        if kept != before:
            self.link.write([Write(self.subjects.ids(key), encode(kept), replaces=True)])

    def _workers_long_dead(self, before: int) -> list[str]:
        rows = self.shelf.workers.copy().values()
        return [row.id for row in rows if not row.live and row.alive_until < before and row.id not in self.shelf.held]

    def _records_of_conversations(self) -> dict[str, int]:
        found: dict[str, int] = {}
        while True:
            wanted = {"subjects_filter": self.subjects.conversations, "offset": len(found)}
            info = self.link.api(f"STREAM.INFO.{self._target.stream}", wanted)
            page = info["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= info.get("total", 0):
                return found

    def conversations_stored(self) -> int:
        keys = map(self.subjects.key, self._records_of_conversations())
        return sum(1 for key in keys if key is not None and not key.startswith(SCHEDULES))

    def _purge(self, subject: str, before: int) -> int:
        if before <= 1:
            return 0
        wanted = {"filter": subject, "seq": before}
        purged: int = self.link.api(f"STREAM.PURGE.{self._target.stream}", wanted).get("purged", 0)
        return purged

    def _stored_before(self, time: int) -> int:
        """The first record that was not written before this time."""
        info = self.stream_info()
        low, high = (1, 1) if info is None else (info["state"]["first_seq"], info["state"]["last_seq"] + 1)
        while low < high:
            middle = (low + high) // 2
            following = self._first_dated(middle, high)
            if following is None or following[1] >= time:
                high = middle
            else:
                low = following[0] + 1
        return low

    def _first_dated(self, seq: int, until: int) -> tuple[int, int] | None:
        """The next record of a conversation or of events, and when it was written."""
        while seq < until:
            for stored in self.link.following(self.subjects.everything, seq, 20):
                seq = stored.seq
                if seq < until and self.subjects.is_dated(stored.subject):
                    return seq, decode(stored.payload)["at"]
            seq += 1
        return None

    # What an operator should know

    def server_settings(self) -> dict[str, str]:
        info = self.stream_info() or {}
        return {
            "server": "NATS",
            "server_version": ".".join(map(str, self.link.server_version)),
            "replicas": str(info.get("config", {}).get("num_replicas", 0)),
        }

    # Waiting

    @property
    def holds(self) -> Mapping[str, int]:
        """Until when nothing is sent for an account."""
        held: Mapping[str, int] = self.shelf.values.get(self.subjects.other("holds"), ({}, 0))[0]
        return held

    def next_due(self, kinds: Iterable[Kind]) -> int | None:
        self.link.send_hints()  # nothing is written just now that they could go with
        self.catch_up()
        dues = [
            max(line[0][0], self.holds.get(tenant_of(queue), 0) if kind is Kind.OUT else 0)
            for kind in kinds
            for queue, line in self.shelf.due[kind].items()
        ]
        return min(dues, default=None)

    def explain(self, error: Exception) -> Exception:
        return explain(error, self._target)

    def close(self) -> None:
        self.link.close()


@asynccontextmanager
async def throwaway_stream(url: str) -> AsyncIterator[str]:
    """A URL of the same servers whose stream is nobody else's, and gone afterwards."""
    name = f"throwaway_{SystemClock().token()}"
    mine = f"{url}{'&' if '?' in url else '?'}stream={name}"
    yield mine
    link = Link(Target(mine), lambda _: None, lambda: None)
    try:
        await asyncio.to_thread(link.connect)
        await asyncio.to_thread(link.api, f"STREAM.DELETE.{name}")
    finally:
        await asyncio.to_thread(link.close)


def _version_of(info: Mapping[str, Any]) -> int:
    return int(info["config"].get("metadata", {}).get("turnlane", 0))
