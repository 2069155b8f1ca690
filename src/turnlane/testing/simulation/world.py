"""The world around a store: people who write, workers who answer, and everything that goes wrong on the way.

One seed decides everything, so one seed replays a history. Each method of `World` is something that may happen; after
each the checkers look. Time is virtual: an hour of freezing costs nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from turnlane.backends.base import Acceptance, Arrival, Backend, Committed
from turnlane.errors import WorkerLost
from turnlane.model.command import Command
from turnlane.model.delivery import Reported, question_id
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits, Pauses
from turnlane.model.message import Attachment, Message
from turnlane.model.policy import LATER, NORMAL, URGENT, OnBusy, Policy
from turnlane.model.question import Question
from turnlane.model.schedule import Missed, Schedule
from turnlane.model.turn import (
    Asks,
    Delivered,
    Fired,
    GaveUp,
    Outcome,
    Parked,
    Released,
    Replied,
    Reply,
    RetryLater,
    Superseded,
)
from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.view import LaneView
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.simulation.checks import KINDS, check_lanes, check_overview, check_story, check_totals
from turnlane.testing.simulation.oracle import PERIODS_MS, Oracle, Violation, require, require_same

PEOPLE = ("somebody", "somebody else")
LIMITS = (
    NO_LIMITS,
    NO_LIMITS,
    NO_LIMITS,
    NO_LIMITS,
    Limits(all=2),
    Limits(per_channel=1),
    Limits(per_agent=1),
    Limits(per_user=1),
    Limits(all=3, per_channel=2, per_agent=2, per_user=1),
)
PAUSES = (
    None,
    None,
    None,
    Pauses(all=True),
    Pauses(channels=frozenset(["hooks"])),
    Pauses(channels=frozenset(["people"])),
    Pauses(agents=frozenset(["support"])),
    Pauses(channels=frozenset(["hooks"]), agents=frozenset(["sales"])),
)
COMMANDS: tuple[Command, ...] = get_args(Command)
CONVERSATIONS = ("site/alice", "site/bob", "shop/carol/17.2", "hooks/dave")
SHARED_SESSIONS_SHARE = 1 / 8
"""Of the histories: agents there give several conversations one handle."""
LOCAL_SESSIONS_SHARE = 1 / 5
"""Of the others: agents there keep some sessions on their machines."""
MACHINES = ("north", "south")
OPTIONS = ("yes", "no")
ANSWERS = ("yes", "NO", "2", "what for?")
SCHEDULES = ("pulse", "morning")
SCHEDULED_SHARE = 1 / 2
"""Of the histories: a schedule runs there from the start."""
PROCESSES = 2
WORKERS = 4
TERM_MS = 5_000
REMEMBERED_STEPS = 40
DRAIN_ROUNDS = 300
PATIENCE_SECONDS = 10.0
"""Of the real clock, for an answer that must come at once."""


@dataclass(slots=True)
class Call:
    """A commit, kept so that a worker that never heard its answer can make it again."""

    lease: Lease
    outcome: Outcome
    take_next: bool


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    id: str
    held: list[Lease] = field(default_factory=list)
    unsure: list[Call] = field(default_factory=list)
    frozen_until: float = 0.0

    @property
    def names(self) -> list[Lease]:
        """What it tells the store it holds when it renews."""
        return [*self.held, *(call.lease for call in self.unsure)]


class World:
    """One history. `live` lets it happen; `drain` stops the faults and waits until everything is answered."""

    def __init__(self, processes: Sequence[Backend], clock: VirtualClock, seed: int) -> None:
        self._clock = clock
        self._chance = random.Random(seed)
        shared = self._chance.random() < SHARED_SESSIONS_SHARE
        # Of its own, so that histories without machines are what they would be if there were none.
        self._luck = random.Random(f"{seed}/machines")
        local = not shared and self._luck.random() < LOCAL_SESSIONS_SHARE
        limits = self._chance.choice(LIMITS)
        self._oracle = Oracle(sessions_are_shared=shared, sessions_are_local=local, limits=limits)
        self._session_wait_ms = self._luck.choice((0, 300, 1_500, 1_500)) if local else 0
        self._commanding = self._chance.choice((0.0, 0.05, 0.2))
        """How often what is written is a command."""
        self._rates = {
            account: (self._chance.choice((0, 0, 0, 700, 3_000)), self._chance.choice((1, 1, 3)))
            for account in ("hooks", "people")
        }
        self._whim = random.Random(f"{seed}/whims")
        rests = self._haste = random.Random(f"{seed}/rests")
        self._pauses = {"people": rests.choice((0, 0, 300)), "hooks": rests.choice((0, 0, 2_000))}
        self._hurrying = self._haste.choice((0.0, 0.0, 0.1))
        """How often somebody says more than they may."""
        self._asking = self._chance.choice((0, 5, 20))
        """How often a turn ends for now by asking."""
        self._pressing = self._chance.choice((0.0, 0.05, 0.2))
        """How often it is a button that was pressed."""
        self._business = self._chance.choice((0.0, 0.0, 0.03, 0.15))
        """How often somebody of the business writes."""
        self._policies = {key: self._any_policy(key) for key in CONVERSATIONS}
        self._workers: list[SimulatedWorker] = []
        self._sent: list[Arrival] = []
        self._views: list[LaneView] = []
        self._began = self._latest_now = clock.now()
        self._heard: list[Event] = []
        self.tally: Counter[str] = Counter()
        self.trace: deque[tuple[object, ...]] = deque(maxlen=REMEMBERED_STEPS)
        self._steps, self._weights = self._climate()
        self.move(processes)

    def move(self, processes: Sequence[Backend], *, noted: Sequence[Event] = ()) -> None:
        """Go on in these processes, which have all that the others had; `noted`: what happened on the way."""
        self._oracle.events.update(event.name for event in noted)
        self._heard += noted
        self._processes = processes
        self._backend = processes[0]
        for backend in processes:
            backend.limits = self._oracle.limits
            backend.subscribe(self._heard.extend)

    def _climate(self) -> tuple[list[Callable[[], Awaitable[None]]], list[float]]:
        """Ordinary life is alike everywhere; which faults are frequent differs from seed to seed."""
        ordinary: dict[Callable[[], Awaitable[None]], float] = {
            self.people_write: 18,
            self.a_worker_claims: 24,
            self.a_worker_finishes: 26,
            self.a_worker_shows_an_answer: 12,
            self.workers_renew: 7,
            self.somebody_reaps: 6,
            self.time_passes: 12,
        }
        faults: dict[Callable[[], Awaitable[None]], float] = {
            self.a_message_comes_again: 4,
            self.a_claim_waits: 3,
            self.calls_travel_together: 3,
            self.a_worker_asks_again: 3,
            self.a_worker_refuses_who_came_late: 5,
            self.a_worker_asks: 3,
            self.an_operator_answers: 1,
            self.a_worker_freezes: 2,
            self.a_worker_crashes: 1.5,
            self.a_worker_leaves: 1,
            self.the_wall_clock_jumps: 1,
            self.an_operator_steers: 3,
            self.an_operator_speaks: 1,
            self.somebody_types: 3,
            self.a_platform_reports: 3,
            self.a_fact_is_noted: 0.5,
            self.an_operator_looks: 1,
            self.an_operator_pauses_what_there_is: 1,
            self.an_operator_schedules: 3,
            self.an_operator_tells_a_lane_how_to_behave: 1,
            self.an_operator_decides_about_a_dead_letter: 3,
            self.an_operator_decides_about_a_delivery: 3,
        }
        weather = {step: weight * self._chance.choice((0, 1, 1, 3)) for step, weight in faults.items()}
        steps = ordinary | weather
        return list(steps), list(steps.values())

    async def live(self, steps: int) -> None:
        for _ in range(WORKERS):
            await self._hire()
        if self._chance.random() < SCHEDULED_SHARE:
            await self._schedule(self._any_schedule(SCHEDULES[0]))
            await self._look()
        for _ in range(steps):
            self._go_elsewhere()
            step = self._chance.choices(self._steps, self._weights)[0]
            await step()
            await self._look()

    def _go_elsewhere(self) -> None:
        """Whatever happens next happens in any of the processes that share the store."""
        self._backend = self._processes[self._chance.randrange(PROCESSES) % len(self._processes)]

    async def _look(self) -> None:
        self._latest_now = max(self._latest_now, self._clock.now())
        self._views = [view for kind in KINDS for view in await self._backend.lanes(kind=kind)]
        check_lanes(self._oracle, self._views, self._latest_now)
        self._oracle.wait_anew(self._clock.now())

    def _note(self, what: str, *details: object) -> None:
        self.trace.append((f"{(self._clock.now() - self._began) / 1000:+.3f}s", what, *details))

    # People

    async def people_write(self) -> None:
        key = self._chance.choice(CONVERSATIONS)
        if self._chance.random() < 0.1:
            self._policies[key] = self._any_policy(key)
        await self._accept([self._new_arrival(key) for _ in range(self._chance.choice((1, 1, 1, 2, 3)))])

    async def a_message_comes_again(self) -> None:
        """The platform repeats itself: at once or late, with another body, in another conversation, in a batch."""
        if not self._sent:
            return
        again = self._chance.choice((self._sent[-1], self._chance.choice(self._sent)))
        if self._chance.random() < 0.3:
            again = replace(again, message=replace(again.message, text="edited", attachments=()))
        if self._chance.random() < 0.2:
            channel = again.message.channel
            elsewhere = self._chance.choice([key for key in CONVERSATIONS if key.startswith(channel)])
            again = replace(again, message=replace(again.message, conversation=elsewhere))
        fresh = self._new_arrival(self._chance.choice(CONVERSATIONS))
        await self._accept(self._chance.choice(([again], [again, fresh], [fresh, again, again], [fresh, fresh])))

    def _new_arrival(self, key: str) -> Arrival:
        channel = key.partition("/")[0]
        number = len(self._sent) + 1
        files = tuple(Attachment(f"https://files.example/{number}/{i}") for i in range(self._chance.choice((0, 0, 2))))
        command = self._chance.choice(COMMANDS) if self._chance.random() < self._commanding else None
        said = self._chance.choice((f"message {number}", f"message {number}", *ANSWERS))
        message = Message(channel, f"m-{number}", key, self._chance.choice(PEOPLE), said, files)
        if self._chance.random() < self._pressing:
            message = replace(message, answers=self._any_button(key))
        if self._chance.random() < self._business:
            message = replace(message, role="business")
        too_fast = self._haste.random() < self._hurrying
        self._sent.append(Arrival(message, self._policies[key], command, too_fast))
        return self._sent[-1]

    def _any_button(self, key: str) -> str:
        """Of the question that is open, of an earlier one, or of one that never was."""
        turns = self._oracle.accounts[Kind.TURN, key].opened if (Kind.TURN, key) in self._oracle.accounts else 1
        return question_id(key, self._chance.choice((turns, turns, max(1, turns - 1))), self._chance.choice((1, 1, 2)))

    async def _accept(self, arrivals: Sequence[Arrival]) -> None:
        self._note("accept", *(arrival.message.id for arrival in arrivals), arrivals[0].message.conversation)
        doubled = self._chance.random() < 0.05
        answers = await asyncio.gather(*(self._backend.accept(arrivals) for _ in range(1 + doubled)))
        for answer in answers:
            self._accepted(arrivals, answer)

    def _accepted(self, arrivals: Sequence[Arrival], answer: list[Acceptance]) -> None:
        self._oracle.accepted(arrivals, self._clock.now(), answer=answer)
        self.tally.update(acceptance.verdict for acceptance in answer)

    def _any_policy(self, key: str) -> Policy:
        chance = self._chance
        tenant = "hooks" if key.startswith("hooks/") else "people"
        every_ms, burst = self._rates[tenant]
        return Policy(
            agent=chance.choice(("support", "support", "sales")),
            tenant=tenant,
            priority=chance.choice((NORMAL, NORMAL, NORMAL, URGENT, LATER)),
            on_busy=chance.choice(("collect", "collect", "queue", "reject", "interrupt")),
            debounce_ms=chance.choice((0, 500, 2_000)),
            max_wait_ms=chance.choice((0, 2_000, 10_000, 10_000)),
            max_batch=chance.choice((1, 2, 3, 50)),
            max_pending=chance.choice((3, 100)),
            on_full=chance.choice(("store", "store", "reject", "drop_oldest")),
            attempts=chance.choice((1, 2, 3, 3)),
            takeovers=chance.choice((0, 1, 2, 10)),
            ack=chance.choice(("commit", "commit", "commit", "claim")),
            deliver_for_ms=chance.choice((3_000, 86_400_000)),
            send_every_ms=every_ms,
            send_burst=burst,
            send_pause_ms=self._pauses[tenant],
            takeover_ms=chance.choice((0, 2_000, 10_000, 10_000)),
            session_wait_ms=self._session_wait_ms,
        )

    # Workers

    async def _hire(self) -> SimulatedWorker:
        worker = SimulatedWorker(self._clock.token())
        machine = self._luck.choice(MACHINES) if self._oracle.sessions_are_local else ""
        await self._backend.join(worker.id, TERM_MS, machine)
        self._oracle.joined(worker.id, TERM_MS, self._clock.now(), machine)
        self._workers.append(worker)
        return worker

    async def _replace(self, worker: SimulatedWorker) -> None:
        self._workers.remove(worker)
        await self._hire()

    def _awake(self) -> list[SimulatedWorker]:
        return [worker for worker in self._workers if worker.frozen_until <= self._clock.monotonic()]

    async def a_worker_claims(self) -> None:
        if awake := self._awake():
            kind = self._chance.choice((Kind.TURN, Kind.TURN, Kind.TURN, Kind.OUT, Kind.OUT, Kind.TICK))
            await self._claim(self._chance.choice(awake), kind, self._chance.choice((1, 1, 2, 3)))

    async def _claim(self, worker: SimulatedWorker, kind: Kind, most: int) -> None:
        try:
            leases = await self._backend.claim(worker.id, kind, most=most)
        except WorkerLost:
            self._note("claim refused", worker.id)
            require(self._oracle.workers[worker.id].dead, "only a dead worker is refused", worker.id)
            await self._stop_or_go_on(worker)
            return
        self._claimed(worker, kind, most, leases)
        self._receive(worker, leases)

    def _claimed(self, worker: SimulatedWorker, kind: Kind, most: int, leases: list[Lease]) -> None:
        require(not self._oracle.workers[worker.id].dead, "a dead worker claims nothing", worker.id)
        self._note("claim", worker.id, kind.name, *(f"{lease.key} e{lease.epoch}" for lease in leases))
        before = [view for view in self._views if view.kind is kind]
        self._oracle.claimed(worker.id, kind, most, self._clock.now(), before=before, answer=leases)
        self.tally["claimed"] += len(leases)

    def _receive(self, worker: SimulatedWorker, leases: list[Lease]) -> None:
        """The answer to a claim may get lost; then only renewing gives the lanes back."""
        if leases and self._chance.random() < 0.05:
            self._note("claim's answer is lost", worker.id)
            self.tally["answer lost"] += 1
        else:
            worker.held.extend(leases)

    async def a_claim_waits(self) -> None:
        """Nothing is ready, so the claim waits for the next message. If that does not serve it, it is called off."""
        now = self._clock.now()
        workers = [worker for worker in self._awake() if not self._oracle.workers[worker.id].dead]
        turns = [view for view in self._views if view.kind is Kind.TURN]
        if not (workers and turns) or any(self._oracle.shown_as_ready(view, now) for view in turns):
            return
        if self._oracle.sessions_are_shared or self._oracle.sessions_are_local or self._oracle.limits != NO_LIMITS:
            return  # who has to wait for a session is not served by a message, and nobody knows who that is
        worker, arrival = self._chance.choice(workers), self._new_arrival(self._chance.choice(turns).conversation)
        # Who is refused at the door, gives a command, or is of the business, wakes nobody.
        message = replace(arrival.message, role="person", answers=None)
        arrival = Arrival(message, replace(arrival.policy, on_full="store"))
        self._sent[-1] = arrival
        if self._chance.random() < 0.5:
            arrival = replace(arrival, policy=replace(arrival.policy, debounce_ms=0))
        waiting = asyncio.create_task(self._backend.claim(worker.id, Kind.TURN, wait=True))
        await asyncio.sleep(0)
        self._accepted([arrival], await self._backend.accept([arrival]))
        await self._served(worker, waiting, arrival.message.conversation)

    async def _served(self, worker: SimulatedWorker, waiting: asyncio.Task[list[Lease]], key: str) -> None:
        """The message has been accepted, and its lane is the only one that may be ready."""
        lane, now = self._oracle.accounts[Kind.TURN, key], self._clock.now()
        if self._oracle.may_claim(worker.id, now) and lane.claimable and lane.startable_at <= now:
            leases = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
            self._expect_due(Kind.TURN, key)
            self._claimed(worker, Kind.TURN, 1, leases)
            self._receive(worker, leases)
            self.tally["served while waiting"] += 1
            return
        self.tally["waiting called off"] += 1
        waiting.cancel()
        found = await asyncio.gather(waiting, return_exceptions=True)
        require(isinstance(found[0], asyncio.CancelledError), "a claim that nothing serves goes on waiting", found)

    async def _stop_or_go_on(self, worker: SimulatedWorker) -> None:
        """A worker that was declared dead should stop. Some stop at once, others write on: they must be fenced."""
        if not worker.held or self._chance.random() < 0.2:
            await self._replace(worker)

    async def a_worker_finishes(self) -> None:
        busy = [worker for worker in self._awake() if worker.held]
        if not busy:
            await self.a_worker_claims()
            return
        worker = self._chance.choice(busy)
        lease = worker.held.pop(self._chance.randrange(len(worker.held)))
        await self._commit(worker, Call(lease, self._any_outcome(lease), self._chance.random() < 0.5))

    async def a_worker_asks_again(self) -> None:
        """It never heard what became of a commit, and makes the same call again."""
        if unsure := [worker for worker in self._awake() if worker.unsure]:
            worker = self._chance.choice(unsure)
            self.tally["commit repeated"] += 1
            await self._commit(worker, worker.unsure.pop())

    async def a_worker_refuses_who_came_late(self) -> None:
        if busy := [worker for worker in self._awake() if worker.held]:
            lease = self._chance.choice(self._chance.choice(busy).held)
            if self._whim.random() < 0.5:
                lease = self._disturbed_turn(busy) or lease
            refused = await self._backend.refuse_late(lease)
            self._note("refuse late", lease.kind.name, f"{lease.key} e{lease.epoch}", refused)
            self.tally["refused late"] += refused
            self._oracle.refused_late(lease, self._clock.now(), answer=refused)

    def _disturbed_turn(self, busy: list[SimulatedWorker]) -> Lease | None:
        """One during which somebody came late: few are looked at right then by chance."""
        leases = [lease for worker in busy for lease in worker.held if lease.kind is Kind.TURN]
        return next((lease for lease in leases if self._oracle.accounts[lease.kind, lease.key].late), None)

    async def a_worker_shows_an_answer(self) -> None:
        """Before it is whole. Some try who have lost the turn or have something else to say, and must not."""
        busy = [lease for worker in self._awake() for lease in worker.names if lease.kind is Kind.TURN]
        loud = {lane.key for lane in self._oracle.accounts.values() if lane.kind is Kind.OUT and lane.pending}
        quiet = [lease for lease in busy if lease.key not in loud]
        if busy:
            lease = self._chance.choice(quiet if quiet and self._chance.random() < 0.8 else busy)
            held = await self._backend.hold_outbox(lease)
            self._note("hold outbox", f"{lease.key} e{lease.epoch}", held)
            self.tally["shown"] += held
            self._oracle.outbox_held(lease, self._clock.now(), answer=held)

    async def a_worker_asks(self) -> None:
        """In the middle of a turn, and again after a crash."""
        busy = [lease for worker in self._awake() for lease in worker.held if lease.kind is Kind.TURN]
        if busy:
            lease = self._chance.choice(busy)
            number, question = self._any_question(lease)
            answer = await self._backend.ask(lease, number, question)
            self._note("ask", f"{lease.key} e{lease.epoch}", number, question, answer)
            self.tally["asked"] += 1
            self._oracle.asked(lease, number, question, self._clock.now(), answer=answer)

    def _any_question(self, lease: Lease) -> tuple[int, Question]:
        """The next one, or one that was asked before."""
        batch = self._oracle.accounts[lease.kind, lease.key].batch
        asked = batch.questions if batch is not None else []
        waits = batch is not None and batch.open_question is not None
        later = self._clock.now() + self._chance.choice((500, 3_000, 20_000))
        question = Question("Shall I?", self._chance.choice(((), OPTIONS)), self._chance.choice((None, later, later)))
        if waits or (asked and self._chance.random() < 0.3):
            return self._chance.randrange(len(asked)) + 1, question
        return len(asked) + 1, question

    async def an_operator_answers(self) -> None:
        await self._answer(self._chance.choice(CONVERSATIONS))

    async def _answer(self, key: str) -> None:
        text = self._chance.choice(ANSWERS)
        answered = await self._backend.answer(key, text)
        self._note("answer", key, text, answered)
        self._oracle.answered_by_operator(key, text, self._clock.now(), answer=answered)

    async def _commit(self, worker: SimulatedWorker, call: Call) -> None:
        doubled = self._chance.random() < 0.05
        commits = [self._backend.commit(call.lease, call.outcome, take_next=call.take_next) for _ in range(1 + doubled)]
        taken = [self._committed(worker, call, answer) for answer in await asyncio.gather(*commits)]
        if self._chance.random() < 0.06:
            self._note("commit's answer is lost", worker.id)
            self.tally["answer lost"] += 1
            worker.unsure.append(call)
        else:
            worker.held += [lease for lease in taken if lease is not None]

    def _committed(self, worker: SimulatedWorker, call: Call, answer: Committed) -> Lease | None:
        """Returns the lease that the worker goes on with, if it hears of it."""
        lease, now = call.lease, self._clock.now()
        self._note(f"commit {answer.verdict}", worker.id, lease.kind.name, f"{lease.key} e{lease.epoch}", call.outcome)
        self.tally[answer.verdict] += 1
        lane = self._oracle.accounts[lease.kind, lease.key]
        holder = lane.holder
        goes_on = self._oracle.committed(lease, call.outcome, now, answer=answer.verdict, take_next=call.take_next)
        if lane.holder is not holder:
            self._expect_due(lease.kind, lease.key)
        if goes_on is not None:
            self._oracle.went_on(answer.next, goes_on)
        elif call.take_next:
            self._took_next(worker, lease, answer)
        else:
            require_same(answer.next, None, "nothing is taken that was not asked for")
        return answer.next

    def _expect_due(self, kind: Kind, key: str) -> None:
        """The call made this lane due, or not; a claim at the end of its transaction already knows."""
        lane = self._oracle.accounts[kind, key]
        due_at = max(self._clock.now(), lane.startable_at) if lane.claimable else None
        self._views = [
            replace(view, due_at=due_at) if (view.kind, view.conversation) == (kind, key) else view
            for view in self._views
        ]

    def _took_next(self, worker: SimulatedWorker, lease: Lease, answer: Committed) -> None:
        """Like a claim of one more, made at the end of the commit."""
        before = [view for view in self._views if view.kind is lease.kind]
        leases = [] if answer.next is None else [answer.next]
        self._oracle.claimed(worker.id, lease.kind, 1, self._clock.now(), before=before, answer=leases)
        self.tally["claimed"] += len(leases)

    def _any_outcome(self, lease: Lease) -> Outcome:
        if lease.kind is Kind.TICK:
            return self._chance.choices((Fired(), Released()), (90, 10))[0]
        later = self._clock.now() + self._chance.choice((0, 800, 1_500, 4_000))
        waiting = self._oracle.accounts[lease.kind, lease.key].waiting
        endings: list[tuple[Outcome, int]] = [
            (RetryLater(later, "boom"), 15),
            (RetryLater(later, "later", counts=False), 5),
            (GaveUp("no"), 4),
            (Released(), 8),
            (Parked("nobody"), 2),
        ]
        if lease.kind is Kind.OUT:
            endings += [
                (Delivered(self._chance.choice((None, f"receipt-{lease.first}"))), 60),
                (RetryLater(later, "no answer", in_doubt=True), 10),
                (RetryLater(later + self._chance.choice((0, 10_000)), "slow down", holds_account=True), 10),
                (GaveUp("nobody is there", gone=True), 3),
            ]
        else:
            endings += [
                (RetryLater(later, "no money", counts=False, notice="not now"), 5),
                (Replied(self._any_reply(lease)), 50),
                (Replied(self._any_reply(lease), self._steered_through(lease)), 10),
                (Superseded(set_aside=False, cause="interrupted"), 15 if waiting else 3),
                (Superseded(set_aside=True, cause="rolled back"), 5),
                (Asks(*self._any_question(lease)), self._asking),
            ]
        outcomes, weights = zip(*endings, strict=True)
        outcome: Outcome = self._chance.choices(outcomes, weights)[0]
        return outcome

    def _steered_through(self, lease: Lease) -> int:
        """As far as the holder has seen and handed into the run: some of what waits, or nothing."""
        waiting = [item.seq for item in self._oracle.accounts[lease.kind, lease.key].waiting]
        return self._chance.choice([lease.last, *waiting])

    def _any_reply(self, lease: Lease) -> Reply:
        chance = self._chance
        parts = [f"{lease.key}#{lease.number} part {i}" for i in range(1, chance.choice((0, 1, 1, 1, 2, 3)) + 1)]
        tokens = (chance.randrange(1_000), chance.randrange(500), chance.randrange(9), chance.randrange(9))
        usage = Usage(*tokens, cost=self._luck.randrange(100))
        return Reply(
            text=chance.choice((parts, parts, parts[0])) if parts else None,
            session=self._any_session(lease),
            usage=chance.choice((usage, usage, NO_USAGE)),
            model=self._luck.choice((None, "small", "large")),
            began_anew=self._luck.choice((None,) * 9 + ("it was gone",)),
            local=self._oracle.sessions_are_local and self._luck.random() < 0.9,
        )

    def _any_session(self, lease: Lease) -> str | None:
        handle = self._chance.choice((None, "session-1", "session-1", "session-2"))
        if handle is None or self._oracle.sessions_are_shared:
            return handle
        return f"{handle} of {lease.key}"

    async def workers_renew(self) -> None:
        for worker in self._awake():
            alive = await self._backend.renew(worker.id, TERM_MS, worker.names)
            self._note("renew", worker.id, alive)
            self._oracle.renewed(worker.id, TERM_MS, worker.names, self._clock.now(), answer=alive)
            if not alive:
                await self._stop_or_go_on(worker)

    async def somebody_reaps(self) -> None:
        lanes = await self._backend.reap()
        self._note("reap", lanes)
        self._oracle.reaped(self._clock.now(), answer=lanes)
        self.tally["reaped"] += lanes

    async def calls_travel_together(self) -> None:
        """Calls that wait at the same time may share a transaction; each must end as if it had been alone."""
        if self._chance.random() < 0.5:
            await self._claim_together()
            return
        arrivals = [[self._new_arrival(self._chance.choice(CONVERSATIONS))] for _ in range(2)]
        busy = [worker for worker in self._awake() if worker.held]
        ends = [(worker, worker.held.pop()) for worker in busy]
        calls = [(worker, Call(lease, self._any_outcome(lease), take_next=False)) for worker, lease in ends]
        self._note("together", "accept", len(arrivals), "commit", len(calls))
        accepts = [self._backend.accept(arrival) for arrival in arrivals]
        commits = [self._backend.commit(call.lease, call.outcome) for _, call in calls]
        acceptances, answers = await asyncio.gather(asyncio.gather(*accepts), asyncio.gather(*commits))
        for arrival, acceptance in zip(arrivals, acceptances, strict=True):
            self._accepted(arrival, acceptance)
        for (worker, call), answer in zip(calls, answers, strict=True):
            self._committed(worker, call, answer)

    async def _claim_together(self) -> None:
        workers = [worker for worker in self._awake() if not self._oracle.workers[worker.id].dead]
        if self._oracle.sessions_are_local:
            workers = workers[:1]  # of several, one may be given what another would have left
        calls = [(worker, self._chance.choice(KINDS)) for worker in workers]
        claims = [self._backend.claim(worker.id, kind, most=2) for worker, kind in calls]
        for (worker, kind), leases in zip(calls, await asyncio.gather(*claims), strict=True):
            self._claimed(worker, kind, 2, leases)
            self._receive(worker, leases)

    # What goes wrong

    async def a_worker_freezes(self) -> None:
        """SIGSTOP, a long collection, a virtual machine on the move. It comes back and knows of nothing."""
        worker = self._chance.choice([worker for worker in self._workers if worker.held] or self._workers)
        worker.frozen_until = self._clock.monotonic() + self._chance.choice((3, 7, 12))
        self._note("freeze", worker.id)
        self.tally["frozen"] += 1

    async def a_worker_crashes(self) -> None:
        worker = self._chance.choice(self._workers)
        self._note("crash", worker.id)
        self.tally["crashed"] += 1
        await self._replace(worker)

    async def a_worker_leaves(self) -> None:
        if awake := self._awake():
            worker = self._chance.choice(awake)
            self._note("leave", worker.id)
            await self._backend.leave(worker.id)
            self._oracle.left(worker.id, self._clock.now())
            self.tally["left"] += 1
            await self._stop_or_go_on(worker)

    async def the_wall_clock_jumps(self) -> None:
        ms = self._chance.choice((-20_000, -3_000, -1, 1, 3_000, 20_000, 3_600_000))
        self._note("the wall clock jumps", ms)
        self._clock.jump(ms)
        self.tally["clock jumped"] += 1

    async def time_passes(self) -> None:
        self._clock.advance(self._chance.choice((1, 10, 300, 1_500, 4_000)))
        self._note("time passes")

    # Operators

    async def an_operator_steers(self) -> None:
        kind, key = self._chance.choice((Kind.TURN, Kind.OUT)), self._chance.choice(CONVERSATIONS)
        verb = self._chance.choice(
            ("pause", "pause", "resume", "resume", "resume", "unpark", "unpark", "stop", "retry", "skip")
        )
        verb = "renew" if self._luck.random() < 0.1 else verb
        if verb == "pause" and self._luck.random() < 0.3:
            kind, key = self._a_long_answer(kind, key)
        self._note(verb, kind.name, key)
        self.tally[verb] += 1
        await self._steer(verb, kind, key)

    def _a_long_answer(self, kind: Kind, key: str) -> tuple[Kind, str]:
        """An outbox in which more waits than is being sent, if there is one: few are paused right then by chance."""
        for lane in self._oracle.accounts.values():
            if lane.kind is Kind.OUT and lane.holder is not None and lane.batch is not None and lane.waiting:
                return lane.kind, lane.key
        return kind, key

    async def _steer(self, verb: str, kind: Kind, key: str) -> None:
        match verb:
            case "pause":
                ms = self._chance.choice((None, 1_000, 5_000, 20_000))
                until = None if ms is None else self._clock.now() + ms
                self._oracle.paused(kind, key, until, answer=await self._backend.pause(key, kind, until=until))
            case "renew":
                self._oracle.session_renewed(key, self._clock.now(), answer=await self._backend.renew_session(key))
            case "retry":
                self._oracle.hurried(kind, key, self._clock.now(), answer=await self._backend.retry(key, kind))
            case "skip":
                self._oracle.skipped(kind, key, self._clock.now(), answer=await self._backend.skip(key, kind))
            case "stop":
                self._oracle.stopped(key, self._clock.now(), answer=await self._backend.stop(key))
            case "resume":
                self._oracle.resumed(kind, key, answer=await self._backend.resume(key, kind))
            case _:
                self._oracle.unparked(kind, key, self._clock.now(), answer=await self._backend.unpark(key, kind))

    async def an_operator_tells_a_lane_how_to_behave(self) -> None:
        key, on_busy = self._chance.choice(CONVERSATIONS), self._chance.choice((None, *get_args(OnBusy)))
        if self._whim.random() < 0.3:
            key = self._a_steered_turn() or key
        self._note("behave", key, on_busy)
        self.tally["behave"] += 1
        self._oracle.told(key, on_busy, answer=await self._backend.behave(key, on_busy))

    def _a_steered_turn(self) -> str | None:
        """One that runs while something waits to be handed in: few are told to behave right then by chance."""
        for lane in self._oracle.accounts.values():
            if lane.kind is Kind.TURN and lane.holder is not None and lane.waiting and lane.policy.on_busy == "steer":
                return lane.key
        return None

    async def an_operator_decides_about_a_dead_letter(self) -> None:
        """Mostly about one that there is; sometimes about one that there never was, or is not any more."""
        named = [(turn.conversation, turn.number) for turn in self._oracle.dead_letters]
        if not named or self._chance.random() < 0.1:
            named = [(self._chance.choice(CONVERSATIONS), self._chance.choice((1, 2, 3)))]
        key, number = self._chance.choice(named)
        if self._chance.random() < 0.7:
            moved = await self._backend.retry_dead_letter(key, number)
            self._note("retry dead letter", key, number, moved)
            self._oracle.requeued(key, number, self._clock.now(), answer=moved)
            self.tally["dead letter retried"] += moved > 0
        else:
            dropped = await self._backend.drop_dead_letter(key, number)
            self._note("drop dead letter", key, number, dropped)
            self._oracle.dropped(key, number, answer=dropped)
            self.tally["dead letter dropped"] += dropped

    async def an_operator_decides_about_a_delivery(self) -> None:
        """Mostly about one that was not sent, first of all where one is held; sometimes about any, or none at all."""
        views = [view for views in self._oracle.deliveries.values() for view in views]
        held = [lane for lane in self._oracle.accounts.values() if lane.kind is Kind.OUT and lane.parked]
        named = [(lane.key, item.seq) for lane in held if lane.batch for item in (*lane.batch.items, *lane.waiting[:1])]
        named = named or [(view.conversation, view.seq) for view in views if view.state != "sent"]
        if not named or self._chance.random() < 0.1:
            named = [(self._chance.choice(CONVERSATIONS), self._chance.choice((1, 2, 3)))]
        key, place = self._chance.choice(named)
        now = self._clock.now()
        if self._chance.random() < 0.6:
            done = await self._backend.resend(key, place)
            self._note("resend", key, place, done)
            self._oracle.sent_again(key, place, now, answer=done)
            self.tally["resent"] += done
        else:
            done = await self._backend.drop(key, place)
            self._note("drop", key, place, done)
            self._oracle.delivery_dropped(key, place, now, answer=done)
            self.tally["delivery dropped"] += done

    async def an_operator_speaks(self) -> None:
        """By hand; at times the same twice."""
        key, number = self._chance.choice(CONVERSATIONS), self._chance.randrange(30)
        channel, takes_over = key.partition("/")[0], self._chance.random() < 0.3
        message = Message(channel, f"by-hand-{number}", key, "operator", f"answer {number}", role="operator")
        answer = await self._backend.say(message, takes_over=takes_over)
        self._note("answer by hand", message.id, key, takes_over, answer)
        self.tally["answered by hand"] += answer is not None
        self._oracle.said(message, self._clock.now(), takes_over=takes_over, answer=answer)

    async def somebody_types(self) -> None:
        """Mostly somebody who has said something already."""
        gathering = [view.conversation for view in self._views if view.state == "gathering"]
        key = self._chance.choice([*gathering * 4, *CONVERSATIONS])
        if self._chance.random() < 0.5:
            self._clock.advance(300)
        waits = await self._backend.typing(key)
        self._note("typing", key, waits)
        self.tally["waited for typing"] += waits
        self._oracle.typed(key, self._clock.now(), answer=waits)

    async def a_platform_reports(self) -> None:
        """Of a delivery that it has, or may have: mostly of the last ones of a conversation."""
        key = self._chance.choice(CONVERSATIONS)
        known = self._oracle.deliveries.get(key, [])[-3:]
        place = self._chance.choice(known).seq if known else 1
        state = self._chance.choice(get_args(Reported))
        receipt = f"late-{self._chance.randrange(100)}"
        told = await self._backend.report(key, place, state, receipt=receipt, cause="the platform says so")
        self._note("report", key, place, state, told)
        self.tally[f"reported {state}"] += told
        self._oracle.reported(key, place, state, receipt, self._clock.now(), answer=told)

    async def a_fact_is_noted(self) -> None:
        self._note("note")
        self.tally["noted"] += 1
        await self._backend.note("hook.aside", channel="any", why="of no kind", body="{}")
        self._oracle.events["hook.aside"] += 1

    async def an_operator_schedules(self) -> None:
        """Sets one, more often than not as it was; removes it, fires it, pauses it, or lets it go on."""
        name, now = self._chance.choice(SCHEDULES), self._clock.now()
        verb = self._chance.choice(("set", "set", "set", "set", "same", "fire", "pause", "resume", "remove"))
        self._note(f"schedule: {verb}", name)
        self.tally[f"schedule {verb}"] += 1
        match verb:
            case "set" | "same":
                kept = self._oracle.schedules.get(f"schedule/{name}")
                await self._schedule(kept if kept is not None and verb == "same" else self._any_schedule(name))
            case "remove":
                self._oracle.unscheduled(name, answer=await self._backend.unschedule(name))
            case "fire":
                at = now - self._chance.choice((0, 0, now % 1_000))
                self._oracle.fired_by_hand(name, at, now, answer=await self._backend.fire(name, at))
            case "pause":
                until = self._chance.choice((None, now + 5_000))
                paused = await self._backend.pause(f"schedule/{name}", Kind.TICK, until=until)
                self._oracle.paused(Kind.TICK, f"schedule/{name}", until, answer=paused)
            case _:
                resumed = await self._backend.resume(f"schedule/{name}", Kind.TICK)
                self._oracle.schedule_resumed(name, now, answer=resumed)

    async def _schedule(self, schedule: Schedule) -> None:
        policy = self._policies[schedule.conversation]
        changed = await self._backend.schedule(schedule, policy)
        self._oracle.scheduled(schedule, policy, self._clock.now(), answer=changed)

    def _any_schedule(self, name: str) -> Schedule:
        chance = self._chance
        every_ms = chance.choice((1_000, 1_000, 5_000, 60_000, None))
        return Schedule(
            name,
            chance.choice(CONVERSATIONS),
            chance.choice(("wake up", "still there?")),
            cron=None if every_ms else chance.choice(tuple(PERIODS_MS)),
            every_ms=every_ms,
            missed=chance.choice(get_args(Missed)),
            missed_max=chance.choice((1, 3, 10)),
            enabled=chance.random() < 0.9,
        )

    async def an_operator_pauses_what_there_is(self) -> None:
        """All of it, a channel, an agent; or lets it go on. Every process has heard of it before the next step."""
        self._pause(self._chance.choice(PAUSES))

    def _pause(self, pauses: Pauses | None) -> None:
        self._note("pauses", pauses)
        self._oracle.limits = replace(self._oracle.limits, pauses=pauses)
        for backend in self._processes:
            backend.limits = self._oracle.limits

    async def an_operator_looks(self) -> None:
        await check_overview(self._oracle, self._backend)
        await check_story(self._oracle, self._backend, self._chance.choice(CONVERSATIONS))

    # The end

    async def drain(self) -> None:
        """I12: the faults stop, one good worker is left, and everything gets its answer."""
        unsure = [(worker, call) for worker in self._workers for call in worker.unsure]
        self._workers.clear()
        self._pause(None)
        for name in SCHEDULES:
            self._oracle.unscheduled(name, answer=await self._backend.unschedule(name))
        await self._look()
        worker = await self._hire()
        for _ in range(DRAIN_ROUNDS):
            await self._put_in_order(worker)
            await self._work_off(worker)
            if all(view.pending == 0 for view in self._views):
                break
        else:
            raise Violation(f"I12 not everything drained | {self._views}")
        for lost, call in unsure:
            await self._ask_at_last(lost, call)
        await check_totals(self._oracle, self._backend, self._heard)

    async def _put_in_order(self, worker: SimulatedWorker) -> None:
        dues = [view.due_at for view in self._views if view.due_at is not None]
        self._clock.advance(max([TERM_MS + 1, *(due - self._clock.now() for due in dues)]))
        alive = await self._backend.renew(worker.id, TERM_MS, worker.names)
        self._oracle.renewed(worker.id, TERM_MS, worker.names, self._clock.now(), answer=alive)
        await self.somebody_reaps()
        for kind, key in list(self._oracle.accounts):
            await self._answer(key)
            await self._steer("resume", kind, key)
            await self._steer("unpark", kind, key)
        await self._look()

    async def _work_off(self, worker: SimulatedWorker) -> None:
        for kind in KINDS:
            while leases := await self._claim_all(worker, kind):
                for lease in leases:
                    require(kind is not Kind.TICK, "what is removed is never due", lease)
                    done = Delivered() if kind is Kind.OUT else Replied(self._any_reply(lease))
                    answer = await self._backend.commit(lease, done)
                    self._committed(worker, Call(lease, done, take_next=False), answer)
                await self._look()

    async def _claim_all(self, worker: SimulatedWorker, kind: Kind) -> list[Lease]:
        leases = await self._backend.claim(worker.id, kind, most=len(CONVERSATIONS))
        self._claimed(worker, kind, len(CONVERSATIONS), leases)
        return leases

    async def _ask_at_last(self, worker: SimulatedWorker, call: Call) -> None:
        """However late a commit is repeated, it is told what it was told the first time."""
        answer = await self._backend.commit(call.lease, call.outcome)
        self._committed(worker, replace(call, take_next=False), answer)
        await self._look()
