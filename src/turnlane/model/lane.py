"""The lane: one row that decides order, exclusivity, gathering, retry and pause for one conversation.

A lane is the one mutable value of the model: the working copy of a row inside a transaction of a backend. Each method
below is one transition of it; nothing here reads a clock or a store. What always holds:

    0 <= done_seq <= claim_seq <= next_seq
    the open batch is (done_seq, claim_seq] without what is aside; it stays the same over retries
    whatever is aside lies after done_seq, and after done_seq + 1 while no batch is open
    due_at is set if and only if something waits and nobody holds or parks the lane, or pauses it or is asked by it
    without an end
    a lane that is held without a batch is hollow: its batch was ended by somebody else, and its holder has not let go;
    or it is an out lane with nothing to send, held by whoever runs the turn and shows what there is of the answer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import Literal

from turnlane.model.places import Places, added, beyond, count, newest, outside
from turnlane.model.policy import OnBusy, Policy, Queue
from turnlane.model.schedule import Schedule
from turnlane.model.value import value

LaneState = Literal["idle", "gathering", "ready", "running", "waiting", "paused", "parked"]


class Kind(IntEnum):
    """One mechanism for all: accept, claim, lease, epoch, commit, release, reap."""

    TURN = 0
    OUT = 1
    TICK = 2


HEARD_MAX = 100
"""What was said while others answered, so many messages back, is told to the agent when it returns."""

TURN, OUT, TICK = Kind.TURN, Kind.OUT, Kind.TICK
"""For the path of every message: looking up an enum's member by name takes ten times as long."""


@value
class Rare:
    """What few lanes have at any time. In one value, as every field of a lane is paid for with every message."""

    paused_until: int | None = None
    """A pause that ends by itself."""
    heard: Places = ()
    """What the agent is not to answer, and has not been told yet: others spoke, or answered in its place."""
    asked: int = 0
    """Questions that the open turn has asked so far."""
    asking: bool = False
    """The last of them waits for its answer, and the turn with it."""
    expires_at: int | None = None
    """Until when that question waits."""
    asked_seq: int = 0
    """Its place in the outbox: what is said while it cannot have left there yet is no answer."""
    gone: str | None = None
    """Why nothing can be sent to this conversation any more, until somebody writes in it again."""
    on_busy: OnBusy | None = None
    """Of this conversation alone, whatever its route says."""
    shows: int | None = None
    """An out lane that is held without a batch: the epoch of the turn whose growing answer its holder shows."""
    on_busy_of_route: OnBusy | None = None
    """What the route says meanwhile, to go back to."""
    schedule: Schedule | None = None
    """A tick lane: what is said, and when. `ready_at` is the next time."""
    fired_at: int | None = None
    """When it was last said."""
    local: bool = False
    """A session of this conversation is on one machine alone, or was."""
    awaits: tuple[str, int] | None = None
    """That machine while others leave the lane to it, and until when they do."""
    told: int = 0
    """The last message of a batch that was put off, and the person was told so."""
    unsaid: int = 0
    """The last message that came while a turn was open and that nobody said to that turn: an operator brought it back,
    or a schedule was due."""
    steered: int = 0
    """The last lease whose run could be told what was said meanwhile, until the policy changed under it."""


NOTHING_RARE = Rare()


@dataclass(slots=True, eq=False)
class Lane:
    kind: Kind
    key: str
    policy: Policy
    next_seq: int = 0
    """The last sequence number given out."""
    done_seq: int = 0
    """Everything up to here has its outcome."""
    claim_seq: int = 0
    """The end of the open batch, or equal to `done_seq`."""
    number: int = 0
    """Of the open or last turn (out lane: delivery)."""
    attempt: int = 0
    """Runs started for the open batch, counted before each run."""
    failures: int = 0
    """How many of those failed; of the others that ended nobody knows how: lost with their worker, or (out lane) sent
    without an answer."""
    first_at: int | None = None
    """Arrival of the oldest message that no batch holds."""
    ready_at: int | None = None
    """When gathering ends for what no batch holds. Not indexed: it moves with every message."""
    retry_at: int | None = None
    """When the open batch may run again, while nobody runs it. None: not before a question of it is answered."""
    due_at: int | None = None
    """The next time somebody must look. Indexed, so it moves as seldom as possible."""
    paused: bool = False
    parked: bool = False
    owner: str | None = None
    epoch: int = 0
    """Grows with every claim and with nothing else."""
    claimed_at: int | None = None
    aside: Places = ()
    """Messages that have an outcome of their own, and so belong to no turn, though those before them still wait."""
    late_seq: int | None = None
    """With `on_busy = "reject"`: the first message that came while a turn was open."""
    user: str = ""
    """Who spoke last: the next turn counts as theirs."""
    runs_under: Policy | None = None
    runs_for: str = ""
    """Policy and user as they were at the last claim, if what was said since has changed one of them."""
    renewed: bool = False
    """A new session was asked for while this turn runs: the one that it leaves is not kept."""
    rare: Rare = NOTHING_RARE

    @property
    def pending(self) -> int:
        """How many have no outcome yet."""
        return self.next_seq - self.done_seq - (count(self.aside) if self.aside else 0)

    @property
    def waiting(self) -> int:
        """How many of them no batch holds."""
        return self.next_seq - self.claim_seq - (count(beyond(self.aside, self.claim_seq)) if self.aside else 0)

    @property
    def said_meanwhile(self) -> int:
        """How many of those that wait may change what becomes of the open turn."""
        before = max(self.claim_seq, self.rare.unsaid)
        return self.next_seq - before - count(beyond(self.aside, before))

    @property
    def batch_places(self) -> Sequence[int]:
        batch = range(self.done_seq + 1, self.claim_seq + 1)
        return list(outside(self.aside, batch.start, batch.stop - 1)) if self.aside else batch

    @property
    def waiting_places(self) -> Iterator[int]:
        """Of what no batch holds, in order."""
        if not self.aside:
            return iter(range(self.claim_seq + 1, self.next_seq + 1))
        return outside(self.aside, self.claim_seq + 1, self.next_seq)

    @property
    def next_place(self) -> int:
        """Of the first that has no outcome yet."""
        return self.claim_seq if self.has_open_batch else next(self.waiting_places, 0)

    @property
    def has_open_batch(self) -> bool:
        return self.claim_seq > self.done_seq

    @property
    def is_hollow(self) -> bool:
        """Held without a batch. Nothing starts until the holder lets go: what it ran may not have stopped yet. (Only
        what is shown of an answer holds nobody up: `arrive` ends that.)"""
        return self.owner is not None and self.claim_seq == self.done_seq

    @property
    def may_have_handed_in(self) -> bool:
        """Whether what waits may be in the hands of the run already. The store hears of that only with its end."""
        if self.owner is None or self.claim_seq == self.done_seq:
            return False
        return self.policy.on_busy == "steer" or self.rare.steered == self.epoch

    @property
    def runs_at(self) -> int | None:
        """When the next run may start: of the open batch if there is one, else of what gathers."""
        return self.retry_at if self.claim_seq > self.done_seq else self.ready_at

    @property
    def held_epoch(self) -> int:
        """Under which lease something is written now. 0: under nobody's."""
        return self.epoch if self.owner is not None else 0

    @property
    def held_under(self) -> tuple[Kind, str, int]:
        """The lease that its holder has to name. An outbox in which an answer is shown is held by that of the turn."""
        return (self.kind, self.key, self.epoch) if self.rare.shows is None else (TURN, self.key, self.rare.shows)

    @property
    def takeovers(self) -> int:
        """Runs of the open batch that were lost with their worker. Asked only when nobody holds the lane."""
        return self.attempt - self.failures

    def may_have_left(self, place: int) -> bool:
        """An outbox: not what waits behind others, nor what was tried and is known not to have arrived."""
        if self.has_open_batch and place == self.claim_seq:
            return self.attempt > self.failures  # somebody sends it, or did, and nobody knows how that ended
        return place <= self.claim_seq

    @property
    def takeovers_used_up(self) -> bool:
        # `ack = "claim"` promises that a turn never runs twice, so it allows no takeover. A sending has its own key.
        # A tick does nothing but commit, which kills nobody, so it is taken over as often as it takes.
        if self.kind is TICK:
            return False
        never_twice = self.kind is TURN and self.policy.ack == "claim"
        return self.takeovers > (0 if never_twice else self.policy.takeovers)

    def state(self, now: int) -> LaneState:
        if self.owner is not None:
            return "running"
        if self.parked:
            return "parked"
        if self.is_paused(now):
            return "paused"
        if not self.pending:
            return "idle"
        if self.runs_at is not None and self.runs_at <= now:
            return "ready"
        return "waiting" if self.has_open_batch else "gathering"

    def is_paused(self, now: int) -> bool:
        """A pause whose time is over has ended, whether or not somebody has noticed."""
        return self.paused and (self.rare.paused_until is None or self.rare.paused_until > now)

    def held_by(self, worker: str, epoch: int, last: int) -> bool:
        """The fence. An owner may come back to a lane that it lost in between, hence the epoch; an out lane's lease
        goes on from delivery to delivery, and somebody else may end or dissolve a batch, hence its own end."""
        return self.owner == worker and self.epoch == epoch and self.done_seq < last <= self.claim_seq

    # Transitions, in the order a message meets them.

    def arrive(self, policy: Policy, now: int) -> int:
        """One more message (or delivery) waits. Returns its sequence number."""
        if policy is not self.policy:
            self._keep_who_runs()
            self._follow(policy)
        self.next_seq += 1
        first = self.first_at
        if first is None:
            first = self.first_at = now
        if self.kind is TURN:
            waiting = self.waiting if self.aside else self.next_seq - self.claim_seq
            self.ready_at = policy.ready_at(first, now, waiting)
        else:
            rests = self.ready_at is not None and self.ready_at > now and self.waiting > 1
            if not rests:  # else it follows what follows a sending, and rests as long
                self.ready_at = now
            if self.owner is not None and self.rare.shows is not None:
                # What is shown can wait; what is to be said cannot.
                self.hide(now)
        # An open batch that nobody holds is backing off: a new message does not jump its turn.
        self._wake_by(self.runs_at)
        return self.next_seq

    def stamp(self, policy: Policy) -> None:
        """What is claimed from now on follows this policy."""
        if policy != self.policy:
            self._keep_who_runs()
            self.policy = policy

    def arm(self, at: int | None, now: int) -> None:
        """A tick lane: one tick is due at `at`, and nothing else. None: none is.

        Whoever holds an earlier one is fenced, and still has to let go.
        """
        self.done_seq = self.claim_seq = self.next_seq
        self.attempt = self.failures = 0
        if at is not None:
            self.next_seq += 1
            self.first_at = self.ready_at = at
        self._rearm(now)

    def _follow(self, policy: Policy) -> None:
        if self.policy.on_busy == "steer" and policy.on_busy != "steer" and self.owner is not None:
            self.rare = replace(self.rare, steered=self.epoch)
        self.policy = policy

    def speaks(self, user: str) -> None:
        """The next turn counts as theirs."""
        if user != self.user:
            self._keep_who_runs()
            self.user = user

    def _keep_who_runs(self) -> None:
        """What is said meanwhile may change policy and user, but not of the turn that runs."""
        if self.owner is not None and self.runs_under is None:
            self.runs_under, self.runs_for = self.policy, self.user

    @property
    def runs_as(self) -> tuple[Queue, str]:
        """Of a lane that is held: the queue and the user that it was claimed for."""
        return (self.runs_under or self.policy).queue, self.runs_for_whom

    @property
    def runs_for_whom(self) -> str:
        return self.user if self.runs_under is None else self.runs_for

    def arrive_settled(self) -> int:
        """A message that has its outcome at once: it gets its place, and waits for nothing."""
        self.next_seq += 1
        self._set_aside(self.next_seq, self.next_seq)
        return self.next_seq

    def arrive_again(self, messages: int, first_at: int, now: int) -> int:
        """So many that had been given up on wait once more, behind what waits already. Returns the first one's place.

        `first_at`: when the first of them arrived. Alone they wait for nobody to stop typing: that was long ago.
        """
        place = self.next_seq + 1
        self.next_seq += messages
        if self.has_open_batch:
            self.wait_for_the_turn()
        if self.first_at is None:
            self.first_at, self.ready_at = first_at, now
        self._wake_by(self.runs_at)
        return place

    def wait_for_the_turn(self) -> None:
        """What came last is nothing that somebody says to the turn that is open: it changes nothing for that, nor is it
        refused. (Who came late before it has been refused by now.)"""
        self.late_seq = None
        self.rare = replace(self.rare, unsaid=self.next_seq)

    def behave(self, on_busy: OnBusy | None) -> None:
        """Treat what comes while a turn runs in this way, whatever the route says; None: as the route says."""
        route = self.rare.on_busy_of_route or self.policy.on_busy
        self._follow(replace(self.policy, on_busy=on_busy or route))
        self.rare = replace(self.rare, on_busy=on_busy, on_busy_of_route=route if on_busy else None)
        if self.policy.on_busy != "reject":
            self.late_seq = None

    def stamped(self, policy: Policy) -> Policy:
        """The route's policy as this conversation follows it."""
        on_busy = self.rare.on_busy
        if on_busy is None:
            return policy
        self.rare = replace(self.rare, on_busy_of_route=policy.on_busy)
        return replace(policy, on_busy=on_busy)

    def hear(self) -> int:
        """Somebody spoke who is not to be answered: it gets its place, and the agent is told with its next turn."""
        seq = self.arrive_settled()
        self._keep_for_the_agent(seq)
        return seq

    def leave_to_others(self, places: Sequence[int], first_at: int) -> None:
        """These wait no more, as somebody else answers; the agent is told of them, too. `first_at`: of the next."""
        for place in places:
            self._set_aside(place, place)
        self._keep_for_the_agent(*places)
        self.first_at = first_at

    def _keep_for_the_agent(self, *places: int) -> None:
        heard = self.rare.heard
        for place in places[-HEARD_MAX:]:
            heard = added(heard, place, place)
        self.rare = replace(self.rare, heard=newest(heard, HEARD_MAX))

    @property
    def heard_places(self) -> Sequence[int]:
        """What to tell the agent with the open batch: all that was said before the first message it leaves out."""
        left_out = next(self.waiting_places, self.next_seq + 1)
        return [place for low, high in self.rare.heard for place in range(low, high + 1) if place < left_out]

    def forget_heard(self, through: int) -> None:
        self.rare = replace(self.rare, heard=beyond(self.rare.heard, through))

    def wait_for_more(self, now: int) -> bool:
        """The person is typing: the quiet window starts anew, within max wait. False: nothing gathers."""
        if self.first_at is None or self.state(now) != "gathering":
            return False
        assert self.ready_at is not None
        quiet_at = self.policy.ready_at(self.first_at, now, self.waiting)
        if quiet_at <= self.ready_at:
            return False
        self.ready_at = quiet_at
        return True

    def note_late(self) -> None:
        """Whether the message that just arrived is to be refused. It is if a turn is open, by whoever holds it."""
        if self.policy.on_busy != "reject":
            self.late_seq = None
        elif self.late_seq is None and self.claim_seq > self.done_seq:
            self.late_seq = self.next_seq

    def drop(self, place: int, first_at: int | None) -> None:
        """A message that waits in no batch gets an outcome of its own. `first_at`: of the first that still waits."""
        self._set_aside(place, place)
        self.first_at = first_at

    def withdraw(self, first: int, last: int, now: int) -> None:
        """Deliveries that wait in no batch have their outcome without being sent."""
        self._set_aside(first, last)
        self._rearm(now)

    def refuse_late(self) -> Sequence[int]:
        """All that came while the turn was open get an outcome of their own. Says which."""
        late = [] if self.late_seq is None else [place for place in self.waiting_places if place >= self.late_seq]
        self.late_seq = None
        if late:
            self._set_aside(late[0], late[-1])
            if next(self.waiting_places, None) is None:
                self.first_at = None
        return late

    def _set_aside(self, first: int, last: int) -> None:
        self.aside = added(self.aside, first, last)
        if self.claim_seq == self.done_seq:
            self._absorb()

    def _wake_by(self, at: int | None) -> None:
        """Lazy debounce: `due_at` only ever moves forward here; a claimer that comes too early re-arms it."""
        if at is None or self.owner is not None or self.parked:
            return
        if self.paused:
            at = self._after_the_pause(at)
            if at is None:
                return
        if self.due_at is None or at < self.due_at:
            self.due_at = at

    def is_ready(self, now: int) -> bool:
        """Asked by a claimer that found the lane due. If gathering goes on, the lane is re-armed instead."""
        if self.due_at is None or self.due_at > now:
            return False
        runs_at = self.runs_at
        if runs_at is not None and runs_at > now:
            self.due_at = runs_at
            return False
        return True

    def leave_to(self, machine: str, until: int) -> None:
        """It waits for a worker of that machine: due as it is, as whoever comes from there may take it at once."""
        self.rare = replace(self.rare, local=True, awaits=(machine, until))

    def leave_to_nobody(self) -> None:
        if self.rare.awaits is not None:
            self.rare = replace(self.rare, awaits=None)

    def awaits(self, machine: str) -> int | None:
        """Until when it waits for that machine. None: it does not yet, or it did before there was this to run."""
        if self.rare.awaits is None or self.runs_at is None:
            return None
        awaited, until = self.rare.awaits
        return until if awaited == machine and self.runs_at <= until else None

    def claim(self, worker: str, now: int) -> None:
        """Lease the lane. The batch is fixed by the first claim and stays over retries."""
        assert self.owner is None and self.next_seq > self.done_seq
        self.owner = worker
        if self.runs_under is not None:
            self.runs_under, self.runs_for = None, ""
        self.claimed_at = now
        self.epoch += 1
        self.attempt += 1
        self.due_at = self.retry_at = None
        if self.claim_seq == self.done_seq:
            self._open_batch()

    def _open_batch(self) -> None:
        size = self.policy.batch_max if self.kind is TURN else 1
        if self.aside:
            *_, self.claim_seq = islice(self.waiting_places, size)
        else:
            end = self.done_seq + size
            self.claim_seq = end if end < self.next_seq else self.next_seq
        # A delivery is known by its place, and some were never opened: an operator dropped them.
        self.number = self.number + 1 if self.kind is TURN else self.claim_seq
        self.first_at = None

    def leave_out(self, first_at: int) -> None:
        """Say when the first message arrived that the batch just opened left out."""
        assert self.next_seq > self.claim_seq
        self.first_at = first_at

    def complete(self, now: int, rest_ms: int = 0) -> None:
        """The batch has its outcome. Whatever arrived meanwhile makes the lane due again by itself, after a rest."""
        self.done_seq = self.claim_seq
        self.attempt = self.failures = 0
        if self.aside:
            self._absorb()
        if self.rare is not NOTHING_RARE:
            self._ask_no_more()
        if rest_ms:
            self.ready_at = now + rest_ms
        self._let_go(now)

    def _absorb(self) -> None:
        """No batch is open: what is aside and comes next is done too."""
        self.aside = beyond(self.aside, self.done_seq)
        if self.aside and self.aside[0][0] == self.done_seq + 1:
            self.done_seq = self.claim_seq = self.aside[0][1]
            self.aside = self.aside[1:]

    def advance(self) -> None:
        """An out lane's batch has its outcome; the same lease goes on with the next delivery."""
        assert self.kind is OUT and self.waiting
        self.done_seq = self.claim_seq
        self.attempt, self.failures = 1, 0
        if self.aside:
            self._absorb()
        self._open_batch()

    def show(self, worker: str, turn_epoch: int, now: int) -> None:
        """Nothing is to be sent, so whoever runs the turn may hold the out lane and show its answer as it grows."""
        assert self.kind is OUT and self.owner is None and self.next_seq == self.done_seq
        self.owner = worker
        self.runs_under, self.runs_for = None, ""
        self.claimed_at = now
        self.epoch += 1
        self.rare = replace(self.rare, shows=turn_epoch)

    def hide(self, now: int) -> None:
        """Nothing more is shown; what is to be sent may be."""
        self.rare = replace(self.rare, shows=None)
        self._let_go(now)

    def widen(self, through: int, first_at: int | None) -> None:
        """Messages up to `through` were handed into the running turn and belong to it. `first_at`: of the next one."""
        assert self.claim_seq <= through <= self.next_seq
        self.claim_seq = through
        self.first_at = first_at

    def dissolve(self, first_at: int, now: int, *, still_runs: bool = False) -> None:
        """The turn is superseded, but not its messages: they wait again, ahead of those that came since.

        `still_runs`: by somebody else's word; whoever runs it is fenced, and still has to let go.
        """
        quiet_at = now if self.ready_at is None or not self.waiting else self.ready_at
        if self.pending >= self.policy.batch_max:
            quiet_at = min(quiet_at, now)
        self.ready_at = min(quiet_at, first_at + self.policy.max_wait_ms)
        self.claim_seq = self.done_seq
        self.attempt = self.failures = 0
        self.first_at = first_at
        self.late_seq = None
        self._ask_no_more()
        if still_runs:
            self._rearm(now)
        else:
            self._let_go(now)

    def ask(self, expires_at: int | None, asked_seq: int) -> None:
        """The open turn asks one more question, which has this place in the outbox."""
        assert self.has_open_batch and not self.rare.asking
        asked = self.rare.asked + 1
        self.rare = replace(self.rare, asked=asked, asking=True, expires_at=expires_at, asked_seq=asked_seq)

    def answer(self, now: int) -> None:
        """The last question has its answer, or its time is over: the turn goes on."""
        self.rare = replace(self.rare, asking=False, expires_at=None)
        if self.owner is None:
            self.retry_at = now
            self._rearm(now)

    def is_unanswered_by(self, now: int) -> bool:
        """Whether its question's time is over."""
        return self.rare.asking and self.rare.expires_at is not None and self.rare.expires_at <= now

    @property
    def awaits_answer(self) -> bool:
        """Whether only an answer lets it go on, or the end of the time for it. (Parked, it waits for an operator.)"""
        if self.owner is not None or self.parked:
            return False
        return self.rare.asking and self.retry_at == self.rare.expires_at

    def await_answer(self, now: int) -> None:
        """The run was stopped to wait for the answer, as if it had not been started."""
        self.attempt -= 1
        self.retry_at = self._again_at(now)
        self._let_go(now)

    def _again_at(self, now: int) -> int | None:
        """When a run that ended without blame may be repeated: a turn that asked waits for the answer."""
        return self.rare.expires_at if self.rare.asking else now

    def _ask_no_more(self) -> None:
        if self.rare.asked:
            self.rare = replace(self.rare, asked=0, asking=False, expires_at=None, asked_seq=0)

    def retry(self, at: int, now: int, *, counts: bool, in_doubt: bool = False) -> None:
        """The same batch again at `at`. A failure that does not count leaves no trace in the attempts."""
        if in_doubt and not self._was_in_doubt:
            pass  # the attempt stays, and is no failure: that is the doubt
        elif counts:
            self.failures += 1
        else:
            self.attempt -= 1
        self.retry_at = at
        self._let_go(now)

    def release(self, now: int) -> None:
        """Given back without blame: the same batch again, now; a turn as if it had not been started.

        A sending may have left before it was stopped, so that the next one is in doubt.
        """
        if self.kind is not OUT or self._was_in_doubt:
            self.attempt -= 1
        self.retry_at = self._again_at(now)
        self._let_go(now)

    def call_off(self, now: int) -> None:
        """The claim is undone; nobody has begun to run it."""
        self.attempt -= 1
        self.retry_at = self._again_at(now)
        self._let_go(now)

    @property
    def _was_in_doubt(self) -> bool:
        """Whether a run before this one ended without anybody knowing how. Once is enough to know that there is doubt;
        counting every unknown sending would use up the takeovers, which are for what kills its workers."""
        return self.attempt - self.failures > 1

    def orphan(self, now: int) -> None:
        """The owner is lost. The attempt stays counted; the epoch stays too, as the cleared owner already fences."""
        if self.rare.asking:
            self.attempt -= 1  # waiting for an answer costs nothing
        self.retry_at = self._again_at(now)
        self._let_go(now)

    def park(self, now: int) -> None:
        self.parked = True
        self.attempt -= 1
        self._let_go(now)

    def hurry(self, now: int) -> None:
        """The batch that waits for its next run may start now."""
        self.retry_at = now
        self._rearm(now)

    def stop(self, now: int) -> None:
        """Everything up to here is given up, also what somebody runs: that is fenced, and still has to let go."""
        self.done_seq = self.claim_seq = self.next_seq
        self.attempt = self.failures = 0
        self.aside, self.late_seq = (), None
        self._ask_no_more()
        self._rearm(now)

    def end(self, now: int) -> None:
        """The batch has its outcome by somebody else's word. Whoever runs it is fenced, and still has to let go."""
        self.done_seq = self.claim_seq
        self.attempt = self.failures = 0
        if self.aside:
            self._absorb()
        self._ask_no_more()
        self._rearm(now)

    def let_go(self, now: int) -> None:
        """Its holder has nothing of it any more."""
        if self.rare.shows is not None:
            self.hide(now)
        else:
            self._let_go(now)

    def renew(self, now: int) -> None:
        """The next turn starts a new session, which is not told of what was said before. What was put off, and said
        to be, starts now: a new session may be what it waits for."""
        if self.rare.told == self.claim_seq > self.done_seq and self.owner is None and not self.rare.asking:
            self.hurry(now)
        self.renewed = self.owner is not None
        self.forget_heard(self.next_seq)
        self.rare = replace(self.rare, local=False, awaits=None)

    def unpark(self, now: int) -> None:
        self.parked = False
        self.attempt = self.failures = 0
        self.retry_at = now
        self._rearm(now)

    def pause(self, now: int, until: int | None = None) -> None:
        self.paused = True
        self.rare = replace(self.rare, paused_until=until)
        self._rearm(now)

    def resume(self, now: int) -> None:
        self.paused = False
        self.rare = replace(self.rare, paused_until=None)
        self._rearm(now)

    def _after_the_pause(self, at: int) -> int | None:
        """When a paused lane may start what could start at `at`. None: once somebody resumes it."""
        until = self.rare.paused_until
        return None if until is None else max(at, until)

    def _let_go(self, now: int) -> None:
        self.owner = None
        self.claimed_at = None
        self.renewed = False
        self._rearm(now)

    def _rearm(self, now: int) -> None:
        """Restore: due if and only if something waits, and nobody holds or parks the lane or pauses it for good."""
        if self.next_seq == self.done_seq:
            self.due_at = self.first_at = self.ready_at = self.retry_at = None
        elif self.owner is not None or self.parked:
            self.due_at = None
        else:
            due_at = self.retry_at if self.claim_seq > self.done_seq else self.ready_at
            if due_at is not None and due_at < now:
                due_at = now
            self.due_at = due_at if due_at is None or not self.paused else self._after_the_pause(due_at)
