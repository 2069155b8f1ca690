"""What is seen: reads for operators, on a connection of their own that never waits for a writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

from turnlane.backends.reader import EVENTS_PER_ROW_MAX
from turnlane.backends.sql import codec
from turnlane.backends.sql.codec import Policies, StoredLane
from turnlane.backends.sql.database import Connection, Row
from turnlane.model.delivery import DeliveryState
from turnlane.model.event import event_of
from turnlane.model.lane import Kind, LaneState
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.question import QuestionView
from turnlane.model.usage import Period, Spent
from turnlane.model.view import (
    AttemptView,
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
    conversations_in,
    held_until,
)

LANES_PAGE = 1000

SCHEDULES_MAX = 100_000


DAY_MAX = 1 << 31


class SqlViews:
    def __init__(self, connection: Connection, sql: Mapping[str, str]) -> None:
        self._execute = connection.execute
        self._sql = sql
        self._policies = Policies(connection, sql)

    def version(self) -> int:
        version: int = self._execute(self._sql["view_version"]).fetchone()[0]
        return version

    def page(self, name: str, before: int, after: Row, limit: int) -> list[Row]:
        return self._execute(self._sql[name], (before, *after, limit)).fetchall()

    def lanes(
        self, *, kind: Kind, state: LaneState | None, channel: str | None, limit: int, now: int
    ) -> list[LaneView]:
        found: list[LaneView] = []
        offset = 0
        while len(found) < limit:
            rows = self._execute(self._sql["view_lanes"], (kind, channel, LANES_PAGE, offset)).fetchall()
            views = [LaneView.of(codec.lane_from(row, self._policies), now) for row in rows]
            found += [view for view in views if state is None or view.state == state]
            offset += len(rows)
            if len(rows) < LANES_PAGE:
                break
        return found[:limit]

    def board(self, limit: int, now: int) -> list[LaneView]:
        return self._lane_views("view_board", (Kind.TURN, limit), now)

    def _lane_views(self, name: str, wanted: Row, now: int) -> list[LaneView]:
        rows = self._execute(self._sql[name], wanted).fetchall()
        return [LaneView.of(codec.lane_from(row, self._policies), now) for row in rows]

    def story(self, conversation: str, limit: int, now: int) -> Story | None:
        lanes = [
            codec.lane_from(row, self._policies) for row in self._execute(self._sql["view_lanes_of"], (conversation,))
        ]
        turn_lane = next((lane for lane in lanes if lane.kind is Kind.TURN), None)
        out_lane = next((lane for lane in lanes if lane.kind is Kind.OUT), None)
        if not lanes:
            return None
        turn_id = turn_lane.id if turn_lane else 0
        turns = self._latest("view_turns", turn_id, limit)
        sessions = self._execute(self._sql["view_sessions"], (turn_id,))
        return Story(
            conversation=conversation,
            lanes=tuple(LaneView.of(lane, now) for lane in lanes),
            messages=tuple(
                codec.message_from(row, conversation) for row in self._latest("view_messages", turn_id, limit)
            ),
            turns=tuple(codec.turn_from(row, conversation) for row in turns),
            attempts=self._last_attempts(lanes, limit),
            deliveries=self._last_deliveries(out_lane, limit),
            sessions={row[1]: codec.session_from(row) for row in sessions},
            outcomes={row[0]: row[1] for row in self._latest("view_outcomes", turn_id, limit)},
            questions=tuple(
                codec.question_from(row, conversation) for row in self._latest("view_questions", turn_id, limit)
            ),
            held_until=held_until(lanes, dict(self._execute(self._sql["holds"]).fetchall()), now),
        )

    def _latest(self, name: str, lane: int, limit: int) -> list[Row]:
        """The newest rows of a lane, oldest first."""
        return self._execute(self._sql[name], (lane, limit)).fetchall()[::-1]

    def _last_attempts(self, lanes: Sequence[StoredLane], limit: int) -> tuple[AttemptView, ...]:
        """Of all lanes of the conversation, as they happened."""
        attempts = [
            codec.attempt_from(row, lane.kind, lane.key)
            for lane in lanes
            for row in self._latest("view_attempts", lane.id, limit)
        ]
        return tuple(sorted(attempts, key=attrgetter("order"))[-limit:])

    def _last_deliveries(self, lane: StoredLane | None, limit: int) -> tuple[DeliveryView, ...]:
        if lane is None:
            return ()
        rows = self._execute(self._sql["view_last_deliveries"], (lane.id, lane.key, limit)).fetchall()
        return tuple(codec.delivery_view_from(row) for row in reversed(rows))

    def place_of(self, channel: str, origin_id: str) -> tuple[str, int] | None:
        place: tuple[str, int] | None = self._execute(self._sql["view_place"], (channel, origin_id)).fetchone()
        return place

    def deliveries(self, conversation: str, after: int, limit: int) -> list[DeliveryView]:
        rows = self._execute(self._sql["view_deliveries"], (conversation, after, limit))
        return [codec.delivery_view_from(row) for row in rows]

    def delivery(self, id: str) -> DeliveryView | None:
        """Looked for where it is likely to be, and last among all that was ever sent."""
        for name in ("view_delivery_failed", "view_delivery_queued", "view_delivery"):
            row = self._execute(self._sql[name], (id,)).fetchone()
            if row is not None:
                return codec.delivery_view_from(row)
        return None

    def outbox(self, state: DeliveryState, limit: int) -> list[DeliveryView]:
        rows = self._execute(self._sql[f"view_outbox_{state}"], (state, limit))
        return [codec.delivery_view_from(row) for row in rows]

    def dead_letters(self, conversation: str | None, limit: int) -> list[DeadLetter]:
        rows = self._execute(self._sql["view_dead_letters"], (conversation, limit)).fetchall()
        return [DeadLetter(codec.turn_from(row, row[-1]), self._messages_of(row)) for row in reversed(rows)]

    def _messages_of(self, turn: Row) -> tuple[Message, ...]:
        lane, _, first, last = turn[:4]
        rows = self._execute(self._sql["view_messages_of_turn"], (lane, first, last))
        return tuple(codec.message_from(row, turn[-1]) for row in rows)

    def locks(self) -> list[Lock]:
        rows = self._execute(self._sql["view_locks"])
        return [Lock(key, Kind(kind), owner, epoch, since, until) for key, kind, owner, epoch, since, until in rows]

    def questions(self, conversation: str, limit: int) -> list[QuestionView]:
        for row in self._execute(self._sql["view_lanes_of"], (conversation,)):
            if row[1] == Kind.TURN:
                return [
                    codec.question_from(each, conversation) for each in self._latest("view_questions", row[0], limit)
                ]
        return []

    def busy(self, worker: str, now: int) -> list[Busy]:
        """Asked ten times a second, so no more is read than is needed."""
        return [codec.busy_from(row, self._policies, now) for row in self._execute(self._sql["view_busy"], (worker,))]

    def waiting(self, conversation: str) -> list[Message]:
        rows = self._execute(self._sql["view_lanes_of"], (conversation,))
        for lane in [codec.lane_from(row, self._policies) for row in rows]:
            if lane.kind is Kind.TURN:
                found = self._execute(self._sql["view_messages_of_turn"], (lane.id, lane.claim_seq + 1, lane.next_seq))
                return [codec.message_from(row, conversation) for row in found]
        return []

    def workers(self) -> list[WorkerView]:
        rows = self._execute(self._sql["view_workers"])
        return [WorkerView(id_, bool(live), until, lanes, machine) for id_, live, until, lanes, machine in rows]

    def schedules(self, now: int) -> list[ScheduleView]:
        rows = self._execute(self._sql["view_lanes"], (Kind.TICK, None, SCHEDULES_MAX, 0)).fetchall()
        lanes = [codec.lane_from(row, self._policies) for row in rows]
        scheduled = sorted((lane for lane in lanes if lane.rare.schedule is not None), key=lambda lane: lane.key)
        return [ScheduleView.of(lane, now) for lane in scheduled]

    def counts(self, now: int) -> Counts:
        pending = {row[0]: row for row in self._execute(self._sql["view_pending"])}
        nothing = (0, 0, 0, None)
        failed, dead, live = self._execute(self._sql["view_totals"]).fetchone()
        return Counts(
            lanes=dict(self._execute(self._sql["view_lane_counts"], (now,)).fetchall()),
            messages_waiting=pending.get(Kind.TURN, nothing)[1],
            deliveries_waiting=pending.get(Kind.OUT, nothing)[1],
            deliveries_failed=failed,
            dead_letters=dead,
            locks=sum(row[2] for row in pending.values()),
            workers_live=live,
            oldest_due_at=min((row[3] for row in pending.values() if row[3] is not None), default=None),
        )

    def person(self, channel: str, user: str) -> Person | None:
        row = self._execute(self._sql["person"], (channel, user)).fetchone()
        return None if row is None else codec.person_from(row)

    def changed_people(self, after: int) -> tuple[list[Person], int]:
        if after < 0:
            return [], self._execute(self._sql["newest_person"]).fetchone()[0]
        people = [codec.person_from(row) for row in self._execute(self._sql["view_people"], (after,)).fetchall()]
        return people, people[-1].changed_at if people else after

    def sessions(self, agent: str | None, limit: int) -> list[SessionView]:
        rows = self._execute(self._sql["view_all_sessions"], (agent, limit)).fetchall()
        return [SessionView.of(key, row[1], codec.session_from(row)) for *row, key in rows]

    def spent(self, wanted: Period) -> list[Spent]:
        until = DAY_MAX if wanted.until is None else wanted.until
        found = self._execute(self._sql["view_spent"], (wanted.since, until, wanted.channel, wanted.user)).fetchall()
        return [codec.spent_from(row) for row in found]

    def configuration(self) -> Mapping[str, str]:
        return dict(self._execute(self._sql["view_settings"]).fetchall())

    def events(self, after: int, limit: int) -> list[StoredEvent]:
        if after < 0:
            return [*self._unpack(self._execute(self._sql["view_last_journal"]))][-1:]
        # Every row holds at least one fact, so `limit` rows are always enough; the first may hold only older ones.
        rows = self._execute(self._sql["view_journal"], (after // EVENTS_PER_ROW_MAX, limit + 1))
        return list(islice((event for event in self._unpack(rows) if event.cursor > after), limit))

    def changes(self, after: int, limit: int, now: int) -> Changes:
        events = self.events(after, limit)
        keys = conversations_in(events)
        return Changes(events, self._lane_views("view_lanes_by_key", (Kind.TURN, codec.to_text(keys)), now))

    @staticmethod
    def _unpack(rows: Iterable[Row]) -> Iterator[StoredEvent]:
        """One by one: a row may hold thousands, of which nobody wants more than a page."""
        for row, at, text in rows:
            for place, noted in enumerate(codec.noted_from_text(text)):
                yield StoredEvent(row * EVENTS_PER_ROW_MAX + place, event_of(noted, at))
