"""What `turnlane top` knows: lanes as they were last read, and what events have told since."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from turnlane.model.event import Event
from turnlane.model.lane import Kind, LaneState
from turnlane.model.message import channel_of
from turnlane.model.view import Counts, LaneView

Mark = Literal["answered", "retried", "released", "lost", "dead"]
"""What happened in a moment: it stands in the time bar above what lasted."""
Sort = Literal["what matters", "name", "most waiting", "last changed"]

SPAN_MS = 60_000
"""How far the time bars reach back."""
RATE_MS = 10_000
"""What is told by the second is the mean of so long."""
LANES_MAX = 10_000
CHANGES_MAX = 120
"""Of one lane, in a time bar."""

RANK: Mapping[str, int] = {
    "running": 0,
    "waiting": 1,
    "parked": 2,
    "paused": 3,
    "ready": 4,
    "gathering": 5,
    "idle": 6,
}
"""What an operator wants to see first."""

ENDED: Mapping[str, Mark] = {"turn.answered": "answered", "turn.dead_lettered": "dead", "turn.superseded": "answered"}
BROKEN_OFF: Mapping[str, tuple[LaneState, Mark | None]] = {
    "turn.retried": ("waiting", "retried"),
    "turn.asked": ("waiting", None),
    "turn.released": ("ready", "released"),
    "turn.lost": ("ready", "lost"),
}
HELD: Mapping[str, LaneState] = {"lane.paused": "paused", "lane.parked": "parked"}
LET_GO = frozenset({"lane.resumed", "lane.unparked"})


@dataclass
class Row:
    """One lane of turns, with its recent past."""

    view: LaneView
    since: int
    """When it came into this state."""
    longer: bool = False
    """It was in it before that, already: nobody has seen it begin."""
    past: deque[tuple[int, LaneState | None]] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    """Since when it was in which state, oldest first. None: nobody has seen it."""
    marks: deque[tuple[int, Mark]] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    batch: int = 0
    """How many messages the turn that runs has taken."""

    @property
    def conversation(self) -> str:
        return self.view.conversation

    @property
    def state(self) -> LaneState:
        return self.view.state

    def come_into(self, state: LaneState, at: int) -> None:
        if not self.past or self.past[-1][1] != state:
            self.since, self.longer = at, False
            self.past.append((at, state))

    def lose_sight(self, at: int) -> None:
        if self.past and self.past[-1][1] is not None:
            self.past.append((at, None))

    def forget(self, before: int) -> None:
        """All of the past that no bar shows. The last state stays: it lasts."""
        while len(self.past) > 1 and self.past[1][0] <= before:
            self.past.popleft()
        while self.marks and self.marks[0][0] < before:
            self.marks.popleft()


class Board:
    """Read now and then, which is exact and costs a pass over all lanes; and told by every event in between."""

    def __init__(self) -> None:
        self.counts: Counts | None = None
        self.rows: dict[str, Row] = {}
        self.trouble: str | None = None
        """Why the store does not answer."""
        self.trouble_since: int | None = None
        self.heard_since: int | None = None
        """All events since then were told. None: none were."""
        self._told: dict[str, Counter[int]] = {"turn.answered": Counter(), "message.accepted": Counter()}

    # What is told

    def look(self, lanes: Iterable[LaneView], now: int) -> None:
        """As they are now. Who is not among them is not there any more, unless there are more than are read."""
        seen = {view.conversation: view for view in lanes}
        if len(seen) < LANES_MAX:
            self.rows = {key: row for key, row in self.rows.items() if key in seen}
        for view in seen.values():
            self.see(view, now)

    def see(self, view: LaneView, now: int) -> None:
        row = self.rows.get(view.conversation)
        if row is None:
            row = self.rows[view.conversation] = _first_seen(view, now, self.heard_since)
        row.view = view
        row.come_into(view.state, now)
        row.forget(now - SPAN_MS)

    def begin(self, at: int) -> None:
        """From now on all events since then are told, and none before."""
        self.heard_since = at

    def miss(self, since: int, until: int) -> None:
        """So much happened in this time that nobody has heard all of it."""
        for row in self.rows.values():
            row.lose_sight(since)
        self.begin(until)

    def hear(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.name in self._told:
                self._told[event.name][event.at // 1_000] += 1
            if event.conversation is not None:
                self._apply(event, event.conversation)
        self._stay_small()

    def _apply(self, event: Event, conversation: str) -> None:
        change = _change(event)
        if change is None:
            return
        row = self.rows.get(conversation)
        if row is None:
            row = self.rows[conversation] = Row(_unread(conversation), event.at)
        row.view = change(event, row)
        row.come_into(row.view.state, event.at)

    def _stay_small(self) -> None:
        if len(self.rows) > LANES_MAX:
            kept = sorted(self.rows.values(), key=lambda row: (RANK[row.state], -row.since))[:LANES_MAX]
            self.rows = {row.conversation: row for row in kept}

    # What is asked

    def per_second(self, name: str, now: int) -> float:
        """How often this happened, over the last seconds that are whole."""
        told, this = self._told[name], now // 1_000
        for second in [each for each in told if each < this - RATE_MS // 1_000]:
            del told[second]
        return sum(many for second, many in told.items() if second < this) * 1_000 / RATE_MS

    @property
    def channels(self) -> list[str]:
        return sorted({channel_of(key) for key in self.rows})

    def shown(
        self, *, text: str = "", state: LaneState | None = None, channel: str | None = None, sort: Sort = "what matters"
    ) -> list[Row]:
        wanted = text.casefold()
        rows = [
            row
            for row in self.rows.values()
            if state in (None, row.state)
            and channel in (None, channel_of(row.conversation))
            and (not wanted or wanted in f"{row.conversation} {row.view.agent}".casefold())
        ]
        return sorted(rows, key=_ORDER[sort])


SORTS: Sequence[Sort] = ("what matters", "name", "most waiting", "last changed")
_ORDER: Mapping[Sort, Callable[[Row], tuple[object, ...]]] = {
    "what matters": lambda row: (RANK[row.state], row.since if row.state != "idle" else -row.since, row.conversation),
    "name": lambda row: (row.conversation,),
    "most waiting": lambda row: (-row.view.pending, RANK[row.state], row.conversation),
    "last changed": lambda row: (-row.since, row.conversation),
}


def _first_seen(view: LaneView, now: int, heard_since: int | None) -> Row:
    """No event that was heard is about it, so it has been like this for all that time, or longer."""
    known = {"running": view.claimed_at, "gathering": view.first_at, "ready": view.due_at}.get(view.state)
    since = max(now - SPAN_MS, now if heard_since is None else heard_since)
    row = Row(view, since if known is None else min(known, now), longer=known is None)
    row.past.append((min(row.since, since), view.state))
    return row


def _unread(conversation: str) -> LaneView:
    return LaneView(conversation, Kind.TURN, "idle", 0, 0, 0, 0, "", 0)


# What an event makes of a lane


Change = Callable[[Event, Row], LaneView]


def _change(event: Event) -> Change | None:
    if event.name in HELD or event.name in LET_GO:
        return _held if event.facts.get("kind") == "turn" else None
    if event.name in BROKEN_OFF:
        return _broken_off
    if event.name in ENDED:
        return _ended
    return {"message.accepted": _accepted, "turn.started": _started}.get(event.name)


def _accepted(event: Event, row: Row) -> LaneView:
    state: LaneState = "gathering" if row.state == "idle" else row.state
    return replace(row.view, state=state, pending=_number(event, "pending"))


def _started(event: Event, row: Row) -> LaneView:
    row.batch = _number(event, "messages")
    worker = event.facts.get("worker")
    return replace(
        row.view,
        state="running",
        number=_number(event, "turn"),
        attempt=_number(event, "attempt"),
        epoch=_number(event, "epoch"),
        owner=None if worker is None else str(worker),
        claimed_at=event.at,
    )


def _ended(event: Event, row: Row) -> LaneView:
    row.marks.append((event.at, ENDED[event.name]))
    pending = max(row.view.pending - row.batch, 0)
    row.batch = 0
    return replace(_unheld(row.view), state="gathering" if pending else "idle", pending=pending)


def _broken_off(event: Event, row: Row) -> LaneView:
    state, mark = BROKEN_OFF[event.name]
    if mark is not None:
        row.marks.append((event.at, mark))
    retry_at = event.facts.get("retry_at")
    return replace(_unheld(row.view), state=state, retry_at=retry_at if isinstance(retry_at, int) else None)


def _held(event: Event, row: Row) -> LaneView:
    if event.name in HELD:
        return replace(row.view, state=HELD[event.name])
    return replace(row.view, state="gathering" if row.view.pending else "idle")


def _unheld(view: LaneView) -> LaneView:
    return replace(view, owner=None, claimed_at=None)


def _number(event: Event, name: str) -> int:
    fact = event.facts.get(name)
    return fact if isinstance(fact, int) else 0
