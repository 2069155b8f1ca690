"""What is seen: read from the stream, and from what this process knows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from turnlane.backends.nats.codec import PERSON, SESSION, all_spent, decode, lane_from
from turnlane.backends.nats.conversation import Conversation
from turnlane.backends.nats.link import Stored, is_last
from turnlane.backends.nats.store import NatsStore
from turnlane.backends.nats.tail import Told
from turnlane.backends.reader import EVENTS_PER_ROW_MAX
from turnlane.backends.rows import WorkerRow
from turnlane.model.delivery import DeliveryState
from turnlane.model.event import event_of
from turnlane.model.lane import OUT, TICK, TURN, Kind, Lane, LaneState
from turnlane.model.message import Message, channel_of
from turnlane.model.person import Person
from turnlane.model.question import QuestionView
from turnlane.model.usage import Period, Spent
from turnlane.model.view import (
    Busy,
    Changes,
    Counts,
    DeadLetter,
    DeliveryView,
    LaneView,
    Lock,
    ScheduleView,
    SessionView,
    StoredEvent,
    Story,
    WorkerView,
    activity_first,
    conversations_in,
    latest,
)

Packed = Sequence[Any]
"""The lanes of a conversation, as its last record has them."""

LAST_EVENTS = 1000
"""How far back the last event is looked for at once."""


class NatsViews:
    def __init__(self, store: NatsStore) -> None:
        self._store = store
        self._shelf = store.shelf

    def version(self) -> int:
        return self._store.last_seq()

    # Conversations

    def _all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """How each one stands, in the order of their last change."""
        for stored in self._store.link.newest(self._store.subjects.conversations):
            key = self._store.subjects.key(stored.subject)
            if key is not None:
                yield key, decode(stored.payload)

    def _lanes(self) -> Iterator[Lane]:
        for key, record in self._all():
            for packed in record.get("l", ()):
                yield lane_from(packed, key, self._store.policies)

    def _whole(self, key: str) -> Conversation:
        return self._store.load_whole(key)

    def lanes(
        self, *, kind: Kind, state: LaneState | None, channel: str | None, limit: int, now: int
    ) -> list[LaneView]:
        views = [
            LaneView.of(lane, now)
            for lane in self._lanes()
            if lane.kind is kind and channel in (None, channel_of(lane.key))
        ]
        return [view for view in views if state is None or view.state == state][:limit]

    def board(self, limit: int, now: int) -> list[LaneView]:
        return activity_first((LaneView.of(lane, now) for lane in self._lanes() if lane.kind is TURN), limit)

    def story(self, conversation: str, limit: int, now: int) -> Story | None:
        here = self._whole(conversation)
        return here.story(limit, now, self._store.holds) if here.lanes else None

    def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None:
        return self._store.find_origin((channel, origin_id))

    def deliveries(self, conversation: str, after: int, limit: int) -> list[DeliveryView]:
        return [view for view in self._whole(conversation).deliveries() if view.seq > after][:limit]

    def delivery(self, id: str) -> DeliveryView | None:
        """Looked for where it is likely to be, and last among all that was ever sent."""
        likely = [*self._shelf.failures.copy(), *(key for kind, key in self._shelf.active.copy() if kind is OUT)]
        for key in dict.fromkeys([*likely, *(key for key, _ in self._all())]):
            found = next((view for view in self._whole(key).deliveries() if view.id == id), None)
            if found is not None:
                return found
        return None

    def outbox(self, state: DeliveryState, limit: int) -> list[DeliveryView]:
        if state == "queued":
            keys = [key for (kind, key), lane in self._shelf.active.copy().items() if kind is OUT and lane.pending]
        elif state == "failed":
            keys = [key for key, (_, failed) in self._shelf.failures.copy().items() if failed]
        else:
            keys = [key for key, _ in self._all()]
        found = [view for key in keys for view in self._whole(key).deliveries() if view.state == state]
        return sorted(found, key=lambda view: (view.settled_at or view.queued_at, view.conversation, view.seq))[:limit]

    def dead_letters(self, conversation: str | None, limit: int) -> list[DeadLetter]:
        keys = [key for key, (dead, _) in self._shelf.failures.copy().items() if dead]
        found = []
        for key in keys if conversation is None else [conversation]:
            here = self._whole(key)
            dead = [turn for turn in here.turns.values() if turn.outcome == "dead_letter"]
            found += [DeadLetter(turn, here.messages_of(turn)) for turn in dead]
        return sorted(found, key=lambda each: (each.turn.ended_at, each.turn.conversation, each.turn.number))[-limit:]

    def questions(self, conversation: str, limit: int) -> list[QuestionView]:
        return [asked for _, asked in sorted(self._whole(conversation).questions.items())][-limit:]

    def waiting(self, conversation: str) -> list[Message]:
        here = self._whole(conversation)
        lane = here.lanes.get(TURN)
        return [] if lane is None else [here.messages[place] for place in lane.waiting_places]

    # The fleet

    def locks(self) -> list[Lock]:
        held = [lane for lane in self._shelf.active.copy().values() if lane.owner is not None]
        workers = self._shelf.workers.copy()
        return [
            Lock(
                lane.key,
                lane.kind,
                lane.owner or "",
                lane.epoch,
                lane.claimed_at or 0,
                _alive_until(workers, lane),
            )
            for lane in held
        ]

    def busy(self, worker: str, now: int) -> list[Busy]:
        lanes = [self._shelf.active.get(place) for place in list(self._shelf.held.get(worker, ()))]
        return [Busy.of(lane, now) for lane in lanes if lane is not None and lane.kind is TURN and lane.owner == worker]

    def workers(self) -> list[WorkerView]:
        rows = sorted(self._shelf.workers.copy().items())
        held = self._shelf.held
        return [WorkerView(id_, row.live, row.alive_until, len(held.get(id_, ())), row.machine) for id_, row in rows]

    def schedules(self, now: int) -> list[ScheduleView]:
        lanes = [lane for lane in self._lanes() if lane.kind is TICK and lane.rare.schedule is not None]
        return [ScheduleView.of(lane, now) for lane in sorted(lanes, key=lambda lane: lane.key)]

    def counts(self, now: int) -> Counts:
        active = list(self._shelf.active.copy().values())
        turns = [lane for lane in active if lane.kind is TURN]
        states: dict[str, int] = {}
        for lane in turns:
            states[lane.state(now)] = states.get(lane.state(now), 0) + 1
        idle = self._store.conversations_stored() - len(turns)
        if idle > 0:
            states["idle"] = states.get("idle", 0) + idle
        failures = self._shelf.failures.copy().values()
        due = [lane.due_at for lane in active if lane.due_at is not None]
        return Counts(
            lanes=states,
            messages_waiting=sum(lane.pending for lane in turns),
            deliveries_waiting=sum(lane.pending for lane in active if lane.kind is OUT),
            deliveries_failed=sum(failed for _, failed in failures),
            dead_letters=sum(dead for dead, _ in failures),
            locks=sum(1 for lane in active if lane.owner is not None),
            workers_live=sum(1 for row in self._shelf.workers.copy().values() if row.live),
            oldest_due_at=min(due, default=None),
        )

    def person(self, channel: str, user: str) -> Person | None:
        value, _ = self._store.load_value(self._store.subjects.person(channel, user))
        return None if value is None else PERSON.unpack(value)

    def changed_people(self, after: int) -> tuple[list[Person], int]:
        if after < 0:
            return [], self._store.last_seq()
        found = self._store.link.following(self._store.subjects.people, after + 1)
        last = found[-1].seq if found else after
        return [PERSON.unpack(decode(stored.payload)) for stored in found], last

    def sessions(self, agent: str | None, limit: int) -> list[SessionView]:
        found = [
            SessionView.of(key, of, SESSION.unpack(packed))
            for key, record in self._all()
            for of, packed in record.get("s", {}).items()
            if agent in (None, of)
        ]
        return latest(found, limit)

    def spent(self, wanted: Period) -> list[Spent]:
        one_day = wanted.since if wanted.since == wanted.until else None
        subject = self._store.subjects.spent(one_day, wanted.channel, wanted.user)
        found = [
            spent
            for stored in self._store.link.newest(subject)
            for spent in all_spent(*self._store.subjects.spender(stored.subject), decode(stored.payload))
        ]
        return sorted((each for each in found if each.account in wanted), key=lambda each: each.account)

    def configuration(self) -> dict[str, str]:
        return {name: value for name, (value,) in self._shelf.values_of("setting").items() if value is not None}

    # Events

    def events(self, after: int, limit: int) -> list[StoredEvent]:
        return self._last_event() if after < 0 else self._events_after(after, limit)[0]

    def changes(self, after: int, limit: int, now: int) -> Changes:
        return self._with_lanes(*self._events_after(after, limit), now)

    def changes_told(self, told: Sequence[Told], after: int, limit: int, now: int) -> Changes:
        """The same, of what was told from the record of that cursor on."""
        events: list[StoredEvent] = []
        stand: dict[str, Packed] = {}
        for seq, at, noted, lanes in told:
            stand |= lanes
            if at >= self._store.events_forgotten_before:
                events += _numbered(seq, at, noted)
        return self._with_lanes([event for event in events if event.cursor > after][:limit], stand, now)

    def _with_lanes(self, events: list[StoredEvent], stand: dict[str, Packed], now: int) -> Changes:
        """How a conversation stands is stored before what happened to it, often in one page: with all of a group."""
        keys = conversations_in(events)
        stand |= self._newest_of([key for key in keys if key not in stand])
        lanes = [
            LaneView.of(lane_from(packed, key, self._store.policies), now)
            for key in keys
            for packed in stand.get(key, ())
            if packed[0] == TURN
        ]
        return Changes(events, lanes)

    def _newest_of(self, keys: list[str]) -> dict[str, Packed]:
        subjects = {self._store.subjects.conversation(key): key for key in keys}
        found = self._store.link.last(list(subjects)) if subjects else {}
        return {subjects[subject]: decode(stored.payload).get("l", ()) for subject, stored in found.items()}

    def _events_after(self, after: int, limit: int) -> tuple[list[StoredEvent], dict[str, Packed]]:
        """And of each conversation that was changed meanwhile, how it stood when that was read."""
        found: list[StoredEvent] = []
        stand: dict[str, Packed] = {}
        seq = max(after // EVENTS_PER_ROW_MAX, 1)
        while len(found) < limit:
            page = self._store.link.following(self._store.subjects.everything, seq)
            for stored, record in self._dated(page):
                found += [event for event in self._events_of(stored, record) if event.cursor > after]
                key = self._store.subjects.key(stored.subject)
                if key is not None and "l" in record:
                    stand[key] = record["l"]
            if is_last(page):
                break
            seq = page[-1].seq + 1
        return found[:limit], stand

    def _last_event(self) -> list[StoredEvent]:
        last = self._store.last_seq()
        for back in (10, LAST_EVENTS, last):
            page = self._store.link.following(self._store.subjects.everything, max(last - back, 1))
            found = [event for dated in self._dated(page) for event in self._events_of(*dated)]
            if found:
                return found[-1:]
        return []

    def _dated(self, page: list[Stored]) -> Iterator[tuple[Stored, dict[str, Any]]]:
        for stored in page:
            if self._store.subjects.is_dated(stored.subject):
                record = decode(stored.payload)
                if record["at"] >= self._store.events_forgotten_before:
                    yield stored, record

    @staticmethod
    def _events_of(stored: Stored, record: dict[str, Any]) -> list[StoredEvent]:
        number = record.get("n", stored.seq)  # what was copied keeps the number that it had
        return _numbered(number, record["at"], record.get("e", ()))


def _numbered(number: int, at: int, noted: Sequence[Any]) -> list[StoredEvent]:
    return [StoredEvent(number * EVENTS_PER_ROW_MAX + place, event_of(each, at)) for place, each in enumerate(noted)]


def _alive_until(workers: dict[str, WorkerRow], lane: Lane) -> int | None:
    row = workers.get(lane.owner or "")
    return None if row is None else row.alive_until
