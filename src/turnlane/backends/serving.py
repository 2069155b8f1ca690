"""Who gets which lane: what is ready at the end of a transaction, for those who asked, fairly and within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from turnlane.backends.rows import Rows
from turnlane.model.delivery import Delivery
from turnlane.model.event import Noted
from turnlane.model.lane import NOTHING_RARE, OUT, TURN, Kind, Lane
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits, Running
from turnlane.model.message import Message
from turnlane.model.policy import Policy, Queue, priority_of, tenant_of
from turnlane.model.question import TIMED_OUT, Answer
from turnlane.model.session import Session

SESSION_LOOK_MS = 250
"""How soon a lane looks again whether the session that it shares is free."""
MACHINE_LOOK_MS = 250
"""How soon a lane looks again whether it still has to wait for the machine that holds its session."""
USER_LOOK_MS = 100
"""How soon a lane looks again whether its user may have one more turn."""
USERS_LANES_AT_ONCE = 20
"""So many of one user's lanes look again at the first time; as many more at the next, and so on."""


@dataclass(slots=True)
class Taker:
    """Somebody who would take up to `most` lanes of a kind."""

    worker: str
    kind: Kind
    most: int
    lanes: list[Lane] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    lost: bool = False
    """The worker is not live any more, and gets nothing."""
    is_patient: bool = True
    """Waits on, or asks again, if nothing is handed out now."""


@dataclass(slots=True)
class Shares:
    """What each tenant has had, while several wait or limits hold."""

    running: Running
    served: Counter[str]
    """When it was last served: the greater, the later."""
    limits: Limits
    holds: Mapping[str, int]
    """Until when accounts may not send, as it is at any moment."""
    put_off: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many lanes of each user wait for one of their turns to be over, of those that were due."""


NOTHING_SAID: tuple[tuple[Message, ...], tuple[Answer, ...]] = ((), ())

Standing = Literal["live", "lapsed", "lost"]
"""Of a worker: whether it may claim, may after it renewed, or never again."""


class Serving:
    """The claims of one open transaction, all at the same moment `now`."""

    def __init__(self, rows: Rows, now: int, limits: Limits, noted: list[Noted]) -> None:
        self._rows = rows
        self._now = now
        self._limits = limits
        self._noted = noted
        self.takers: list[Taker] = []
        self._shares: dict[Kind, Shares] = {}

    def take(self, taker: Taker) -> Taker:
        """Queue for what `serve` hands out at the end of the transaction."""
        self.takers.append(taker)
        return taker

    def serve(self, *, to_all: bool = True) -> None:
        """Lease what is ready to those who asked (or only to who cannot wait), then read all their batches at once."""
        if not to_all:
            self.takers = [taker for taker in self.takers if not taker.is_patient]
        for kind, takers in self._who_may_claim().items():
            self._hand_out(kind, takers, self._due(kind, len(takers)))
        self._write_leases()

    def _due(self, kind: Kind, most: int) -> Iterator[Lane]:
        """What is due, and if tenants compete, theirs in turn."""
        holds = self._rows.holds() if kind is OUT else {}
        pauses = self._limits.pauses
        lines = {
            queue: self._rows.due_lanes(kind, queue, self._now, most)
            for queue in self._rows.due_queues(kind, self._now)
            if self._is_free(queue, holds) and (pauses is None or not pauses.stop(kind, queue))
        }
        limits = self._limits if kind is TURN else NO_LIMITS
        if not lines or (len(lines) == 1 and limits == NO_LIMITS):
            return next(iter(lines.values()), iter(()))
        running = Running.of(self._rows.running(kind))
        self._shares[kind] = Shares(running, Counter(self._rows.served(kind)), limits, holds)
        return self._in_turn(lines, self._shares[kind])

    def _is_free(self, queue: Queue, holds: Mapping[str, int]) -> bool:
        """Whether its account may send. Turns are held by nobody."""
        return not holds or holds.get(tenant_of(queue), 0) <= self._now

    def _in_turn(self, lines: Mapping[Queue, Iterator[Lane]], shares: Shares) -> Iterator[Lane]:
        """The most urgent first; then of whoever runs least, and of these was served longest ago; then longest due.

        Where that is a tie the name decides, so that every store decides alike.
        """
        heads = {queue: lane for queue, line in lines.items() if (lane := next(line, None)) is not None}

        def urgency(queue: Queue) -> tuple[int, int, int, int, Queue]:
            tenant = tenant_of(queue)
            due_at = heads[queue].due_at or 0
            return priority_of(queue), shares.running.tenants[tenant], shares.served[tenant], due_at, queue

        def is_open(queue: Queue) -> bool:
            return shares.running.leave_room(queue, shares.limits) and self._is_free(queue, shares.holds)

        while open_ := [queue for queue in heads if is_open(queue)]:
            queue = min(open_, key=urgency)
            yield heads.pop(queue)
            following = next(lines[queue], None)
            if following is not None:
                heads[queue] = following

    def _count(self, lane: Lane) -> None:
        """The lane was claimed while tenants compete."""
        shares, tenant = self._shares[lane.kind], lane.policy.tenant
        shares.running.add(lane.policy.queue, lane.user)
        shares.served[tenant] = max(shares.served.values(), default=0) + 1
        self._rows.save_served(lane.kind, tenant, shares.served[tenant])

    def _who_may_claim(self) -> dict[Kind, list[Taker]]:
        """Each taker once for each lane that it still wants."""
        waiting: dict[Kind, list[Taker]] = {}
        standing: dict[str, Standing] = {}
        for taker in self.takers:
            worker = taker.worker
            if worker not in standing:
                standing[worker] = self._standing(worker)
            taker.lost = standing[worker] == "lost"
            wants = taker.most - len(taker.lanes)
            if wants and standing[worker] == "live":
                waiting.setdefault(taker.kind, []).extend([taker] * wants)
        return waiting

    def _standing(self, worker: str) -> Standing:
        row = self._rows.worker(worker)
        if row is None or not row.live:
            return "lost"
        # A lapsed worker may be declared dead at any moment; it renews first.
        return "live" if row.alive_until > self._now else "lapsed"

    def _hand_out(self, kind: Kind, takers: list[Taker], due: Iterable[Lane]) -> None:
        now, save = self._now, self._rows.save_lane
        competing = kind in self._shares
        for lane in due:
            save(lane)
            if not lane.is_ready(now) or (kind is TURN and self._waits_for_its_session(lane)):
                continue
            if competing and self._waits_for_its_user(lane):
                continue
            place = 0
            if lane.rare is not NOTHING_RARE and lane.rare.local:
                at_home = self._at_home(lane, takers)
                if at_home is None:
                    continue
                place = at_home
            if lane.paused:
                self._end_the_pause(lane)
            taker = takers.pop(place)
            lane.claim(taker.worker, now)
            taker.lanes.append(lane)
            if competing:
                self._count(lane)
            if kind is OUT and lane.policy.send_every_ms and self.count_one(lane.policy) > now and not competing:
                return
            if not takers:
                return

    def count_one(self, policy: Policy) -> int:
        """One more is sent for the account, or shown. Returns when another one may be."""
        again_at = policy.sends_again_at(self._rows.holds().get(policy.tenant, 0), self._now)
        self._rows.save_hold(policy.tenant, again_at)
        return again_at

    def _end_the_pause(self, lane: Lane) -> None:
        """Its time is over, and something waits."""
        lane.resume(self._now)
        self._noted.append(("lane.resumed", lane.key, lane.kind.name.lower(), "time"))

    def _waits_for_its_session(self, lane: Lane) -> bool:
        """An agent may give two conversations one handle. They take turns: its memory is not made for two at once."""
        if not self._rows.session_is_busy(lane):
            return False
        lane.due_at = self._now + SESSION_LOOK_MS
        return True

    def _at_home(self, lane: Lane, takers: Sequence[Taker]) -> int | None:
        """Who of them takes a lane whose session is on one machine alone. None: they leave it to that machine."""
        session = self._rows.session(lane, lane.policy.agent)
        if session is None or session.machine is None:
            lane.leave_to_nobody()
            return 0
        for place, taker in enumerate(takers):
            if self._machine(taker.worker) == session.machine:
                lane.leave_to_nobody()
                return place
        return None if self._waits_for_its_machine(lane, session.machine) else 0

    def _waits_for_its_machine(self, lane: Lane, machine: str) -> bool:
        wait_ms = lane.policy.session_wait_ms
        until = lane.awaits(machine)
        if (
            not wait_ms
            or (until is not None and until <= self._now)
            or not self._rows.machine_is_live(machine, self._now)
        ):
            lane.leave_to_nobody()
            return False
        if until is None:
            # Left as due as it is: whoever is at home may take it before anybody looks again.
            lane.leave_to(machine, self._now + wait_ms)
            self._noted.append(("session.awaited", lane.key, machine, self._now + wait_ms))
        else:
            lane.due_at = min(self._now + MACHINE_LOOK_MS, until)
        return True

    def _machine(self, worker: str) -> str | None:
        row = self._rows.worker(worker)
        return None if row is None else row.machine

    def _waits_for_its_user(self, lane: Lane) -> bool:
        """Somebody who has as many turns as one may have waits until one of them is over."""
        shares = self._shares[lane.kind]
        if shares.running.leave_room_for(lane.policy.queue, lane.user, shares.limits):
            return False
        # Thousands of lanes of one user that all look again each time would leave no time for anybody else. All look at
        # round times, as only those that look together are counted together.
        user = (lane.policy.tenant, lane.user)
        looks = 1 + shares.put_off[user] // USERS_LANES_AT_ONCE
        shares.put_off[user] += 1
        lane.due_at = (self._now // USER_LOOK_MS + looks) * USER_LOOK_MS
        return True

    def _write_leases(self) -> None:
        takers = [taker for taker in self.takers if taker.lanes]
        batches = iter(self._rows.batches([lane for taker in takers for lane in taker.lanes]))
        for taker in takers:
            taker.leases += [self._lease(lane, *next(batches)) for lane in taker.lanes]

    def _moved_from(self, lane: Lane, session: Session) -> str | None:
        assert lane.owner is not None
        here = self._machine(lane.owner)
        if here == session.machine:
            return None
        self._noted.append(("session.moved", lane.key, lane.number, session.machine, here))
        return session.machine

    def _answers(self, lane: Lane) -> tuple[Answer, ...]:
        """To what the turn has asked so far. Whoever runs it past the time of a question is told so."""
        if lane.is_unanswered_by(self._now):
            self._rows.answer_question(lane, lane.rare.asked, TIMED_OUT, self._now)
            self._noted.append(("question.answered", lane.key, lane.number, lane.rare.asked, None))
            lane.answer(self._now)
        asked = (self._rows.question(lane, number).answer for number in range(1, lane.rare.asked + 1))
        return tuple(answer for answer in asked if answer is not None)

    def _said_meanwhile(self, lane: Lane) -> tuple[tuple[Message, ...], tuple[Answer, ...]]:
        """What others said, and the answers to what the turn has asked."""
        heard = tuple(self._rows.messages_at(lane, lane.heard_places)) if lane.rare.heard else ()
        return heard, self._answers(lane) if lane.rare.asked else ()

    def _lease(
        self, lane: Lane, messages: Sequence[Message], delivery: Delivery | None, session: Session | None
    ) -> Lease:
        assert lane.owner is not None
        size = len(lane.batch_places) if lane.aside else lane.claim_seq - lane.done_seq
        if len(messages) > size:
            if lane.first_at is None:
                lane.leave_out(messages[size].accepted_at)
            messages = messages[:size]
        heard, answers = self._said_meanwhile(lane) if lane.rare is not NOTHING_RARE else NOTHING_SAID
        moved_from = self._moved_from(lane, session) if session is not None and session.machine is not None else None
        lease = Lease(
            lane.kind,
            lane.key,
            lane.owner,
            lane.epoch,
            lane.number,
            lane.attempt,
            lane.failures,
            lane.done_seq + 1,
            lane.claim_seq,
            lane.policy,
            lane.claimed_at or self._now,
            tuple(messages),
            delivery,
            session,
            answers,
            heard,
            moved_from,
            lane.user,
        )
        key, attempt, epoch, owner = lane.key, lane.attempt, lane.epoch, lane.owner
        if delivery is not None:
            self._noted.append(("delivery.started", key, delivery.id, lane.claim_seq, attempt, epoch, owner))
        elif messages:
            waited = self._now - messages[0].accepted_at
            self._noted.append(("turn.started", key, lane.number, attempt, epoch, owner, size, waited))
        return lease
