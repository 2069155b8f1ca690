"""What this process knows of the stream: lanes that are not idle, workers, and conversations that are at hand.

All of it may be behind the truth. That does no harm: whatever is decided on it is stored only if it was true.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turnlane.backends.nats.codec import KINDS, Policies, decode, lane_from, text_of, token
from turnlane.backends.nats.conversation import ROWS_KEPT_MAX, Conversation
from turnlane.backends.nats.link import Stored
from turnlane.backends.rows import WorkerRow
from turnlane.model.lane import Kind, Lane
from turnlane.model.policy import Queue

CONVERSATIONS_MAX = 10_000
ORIGINS_MAX = 10_000
VALUES_MAX = 10_000
FORGOTTEN = "forgotten"
"""Before which times ids of messages, and events, are as if they had never been."""

Place = tuple[Kind, str]
Due = tuple[int, int, str]
"""When, and which conversation: that which was heard of first, if several are due at one moment."""


class Subjects:
    """What is where in the stream."""

    def __init__(self, prefix: str) -> None:
        self.everything = f"{prefix}.>"
        self.conversations = f"{prefix}.c.*"
        self.events = f"{prefix}.e"
        self._conversation = f"{prefix}.c."
        self._ids = f"{prefix}.i."
        self.all_ids = f"{prefix}.i.*"
        self._policy = f"{prefix}.p."
        self._other = f"{prefix}.g."
        self.others = f"{prefix}.g.>"
        self._handle = f"{prefix}.h."
        self._spent = f"{prefix}.s."
        self._person = f"{prefix}.u."
        self.people = f"{prefix}.u.*.*"
        self._known: dict[str, str] = {}

    def conversation(self, key: str) -> str:
        return self._conversation + token(key)

    def ids(self, key: str) -> str:
        """Where the places of messages are that are not kept any longer, though their ids are."""
        return self._ids + token(key)

    def key(self, subject: str) -> str | None:
        """Of a conversation's subject."""
        return text_of(subject[len(self._conversation) :]) if subject.startswith(self._conversation) else None

    def is_dated(self, subject: str) -> bool:
        """A record of what happened."""
        return subject == self.events or subject.startswith(self._conversation)

    def handle(self, name: str) -> str:
        """Which conversations have a session of that name. One for each that ever began, so apart from the others."""
        return self._handle + name

    def spent(self, day: int | None, channel: str | None, user: str | None) -> str:
        """What a user spent in a channel on a day. One for each, so apart, too. None: of all of them."""
        words = ("*" if name is None else token(name) for name in (channel, user))
        return f"{self._spent}{'*' if day is None else day}.{'.'.join(words)}"

    def spender(self, subject: str) -> tuple[int, str, str]:
        day, channel, user = subject[len(self._spent) :].split(".")
        return int(day), text_of(channel), text_of(user)

    def person(self, channel: str, user: str) -> str:
        return f"{self._person}{token(channel)}.{token(user)}"

    def is_apart(self, subject: str) -> bool:
        """There are too many of these for everybody to know all of them."""
        return subject.startswith((self._handle, self._spent, self._person))

    def policy(self, digest: str) -> str:
        return self._policy + digest

    def digest(self, subject: str) -> str | None:
        return subject[len(self._policy) :] if subject.startswith(self._policy) else None

    def other(self, what: str, name: str = "") -> str:
        """One value of the whole fleet, under a name of two words."""
        return f"{self._other}{what}.{token(name)}"

    def other_name(self, subject: str) -> tuple[str, str] | None:
        if not subject.startswith(self._other):
            return None
        what, _, name = subject[len(self._other) :].partition(".")
        return what, text_of(name)


class Shelf:
    def __init__(self, subjects: Subjects, policies: Policies, idle_after_ms: int) -> None:
        self.subjects = subjects
        self.policies = policies
        self._idle_after_ms = idle_after_ms
        self._sweep_at = 0
        self.conversations: dict[str, Conversation] = {}
        self.active: dict[Place, Lane] = {}
        self.seqs: dict[str, int] = {}
        """Of conversations with a lane that is active: their last record."""
        self.due: dict[Kind, dict[Queue, list[Due]]] = {kind: {} for kind in Kind}
        self._due_of: dict[Place, tuple[Queue, Due]] = {}
        self.held: dict[str, set[Place]] = {}
        """By worker."""
        self._held_by: dict[Place, str] = {}
        self.failures: dict[str, tuple[int, int]] = {}
        """Conversations with dead letters or failed deliveries, and how many."""
        self.values: dict[str, tuple[Any, int]] = {}
        """Those of the whole fleet by their subject, each with the sequence of its record."""
        self.workers: dict[str, WorkerRow] = {}
        self.origins: OrderedDict[tuple[str, str], tuple[str, int]] = OrderedDict()
        self.times_forgotten: dict[tuple[str, str], int] = {}

    # Learning

    def learn(self, stored: Stored, *, wanted: bool = False) -> None:
        """A record that somebody else wrote, or that is read at the start. `wanted`: somebody needs it now."""
        key = self.subjects.key(stored.subject)
        if key is not None:
            self.learn_conversation(key, stored.seq, decode(stored.payload))
            return
        if self.subjects.other_name(stored.subject) is not None or self.subjects.is_apart(stored.subject):
            self.learn_value(stored.subject, decode(stored.payload), stored.seq, wanted=wanted)

    def learn_conversation(self, key: str, seq: int, record: Mapping[str, Any]) -> None:
        """From its newest record, or what a hint says of it."""
        known = self.conversations.get(key)
        if max(known.seq if known else 0, self.seqs.get(key, 0)) >= seq:
            return
        self.conversations.pop(key, None)
        if "l" in record:
            lanes = [lane_from(each, key, self.policies) for each in record["l"]]
            self._stand(key, seq, record.get("c", seq), lanes)
            self._fail(key, len(record.get("d", ())), len(record.get("x", ())))

    def learn_value(self, subject: str, value: Any, seq: int, *, wanted: bool = False) -> None:
        known = self.values.get(subject)
        if known is not None and known[1] >= seq:
            return
        if self.subjects.is_apart(subject) and known is None and not wanted:
            return
        name = self.subjects.other_name(subject)
        self.values[subject] = (value, seq)
        if name is not None and name[0] == "worker":
            self.workers[name[1]] = WorkerRow(name[1], *value)
        elif name is not None and name[0] == FORGOTTEN:
            self.origins.clear()

    def values_of(self, what: str) -> dict[str, Any]:
        """All of that kind, by their names."""
        named = {self.subjects.other_name(subject): value for subject, (value, _) in self.values.copy().items()}
        return {name[1]: value for name, value in named.items() if name is not None and name[0] == what}

    def keep(self, conversation: Conversation, now: int) -> None:
        """As this process has just stored or read it."""
        if conversation.rows > ROWS_KEPT_MAX:
            conversation.let_go()
        conversation.used_at = now
        self.conversations[conversation.key] = conversation
        self._stand(conversation.key, conversation.seq, conversation.born, conversation.lanes.values())
        self._fail(conversation.key, len(conversation.dead), len(conversation.failed))

    def _fail(self, key: str, dead: int, failed: int) -> None:
        if dead or failed:
            self.failures[key] = (dead, failed)
        else:
            self.failures.pop(key, None)

    def forget_worker(self, worker: str) -> None:
        self.workers.pop(worker, None)
        self.values.pop(self.subjects.other("worker", worker), None)

    def drop(self, key: str) -> None:
        self.conversations.pop(key, None)

    def remember_origin(self, origin: tuple[str, str], key: str, place: int) -> None:
        self.origins[origin] = (key, place)
        if len(self.origins) > ORIGINS_MAX:
            self.origins.popitem(last=False)

    # Lanes

    def _stand(self, key: str, seq: int, born: int, lanes: Iterable[Lane]) -> None:
        idle = True
        here = {lane.kind: lane for lane in lanes}
        for kind in KINDS:
            lane = here.get(kind)
            place = (kind, key)
            if lane is None or (lane.due_at is None and lane.owner is None and not lane.pending and not lane.paused):
                if place in self.active:
                    del self.active[place]
                    self._set_due(place, None)
                    self._set_held(place, None)
                continue
            idle = False
            self.active[place] = lane
            self._set_due(place, None if lane.due_at is None else (lane.policy.queue, (lane.due_at, born, key)))
            self._set_held(place, lane.owner)
        if idle:
            self.seqs.pop(key, None)
        else:
            self.seqs[key] = seq

    def _set_due(self, place: Place, due: tuple[Queue, Due] | None) -> None:
        before = self._due_of.get(place)
        if before == due:
            return
        queues = self.due[place[0]]
        if before is not None:
            line = queues[before[0]]
            del line[bisect_left(line, before[1])]
            if not line:
                del queues[before[0]]
            del self._due_of[place]
        if due is not None:
            insort(queues.setdefault(due[0], []), due[1])
            self._due_of[place] = due

    def _set_held(self, place: Place, owner: str | None) -> None:
        before = self._held_by.get(place)
        if before == owner:
            return
        if before is not None:
            self.held[before].discard(place)
            if not self.held[before]:
                del self.held[before]
            del self._held_by[place]
        if owner is not None:
            self.held.setdefault(owner, set()).add(place)
            self._held_by[place] = owner

    def due_before(self, kind: Kind, queue: Queue, now: int) -> Iterator[str]:
        """Conversations, longest due first."""
        for due_at, _, key in self.due[kind].get(queue, ()):
            if due_at > now:
                return
            yield key

    # Housekeeping

    def sweep(self, now: int) -> None:
        """An idle conversation costs nothing: what was not used for a while goes."""
        if now < self._sweep_at and len(self.conversations) <= CONVERSATIONS_MAX:
            return
        if len(self.conversations) > CONVERSATIONS_MAX:
            self.conversations.clear()
        old = now - self._idle_after_ms
        for key in [key for key, each in self.conversations.items() if each.used_at <= old]:
            del self.conversations[key]
        if len(self.values) > VALUES_MAX:
            is_apart = self.subjects.is_apart
            self.values = {subject: value for subject, value in self.values.items() if not is_apart(subject)}
        self._sweep_at = now + self._idle_after_ms // 4
