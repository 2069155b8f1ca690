"""One place at which a worker runs leases, one after the other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from turnlane.backends.base import Backend, Verdict
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable, Throttled, WorkerLost
from turnlane.flow.ask import Asker
from turnlane.flow.past import past, was_begun
from turnlane.flow.run_turn import cause_of
from turnlane.flow.split import Splitter
from turnlane.flow.stream import Stream, Streams
from turnlane.flow.trace import Tracer
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.question import Answer
from turnlane.model.turn import Asks, Exchange, GaveUp, Outcome, Released, Replied, RetryLater, Stage, Superseded, Turn

RECONNECT_SECONDS = 0.5
"""How long to wait before a store that did not answer is asked again."""

STOP_AGAIN_SECONDS = 15.0
"""How long a run that was told to stop may take, before it is told again, and again. Told while it tidies up, an agent
may be cut short in that; Claude Code takes eight seconds at most, until all of its tools are gone."""


Done = Callable[[Lease, Outcome, Verdict], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with a lease, for how long at most, and what it comes to if that was not enough."""

    run: Callable[[Lease, Stage], Awaitable[Outcome]]
    seconds_max: Callable[[Lease], float]
    late: Callable[[Lease], Outcome]
    done: Done | None = None
    """Told once it is committed, and what became of it."""


class Phase(Enum):
    IDLE = auto()
    CLAIMING = auto()
    RUNNING = auto()
    ENDING = auto()


IDLE, CLAIMING, RUNNING, ENDING = Phase


class Slot:
    """Claims, runs, commits, and goes on with what the commit hands over, until it is told to finish.

    `worker_id` is asked anew for each claim, as a worker that was declared dead goes on under another id.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        backend: Backend,
        clock: Clock,
        work: Work,
        worker_id: Callable[[], Awaitable[str]],
        is_ours: Callable[[Lease], bool],
        on_lost: Callable[[str], None],
        on_deaf: Callable[[Lease, float, str], None],
        streams: Streams,
        splitter: Splitter,
        tracer: Tracer | None = None,
    ) -> None:
        self.kind = kind
        self.lease: Lease | None = None
        self._backend = backend
        self._clock = clock
        self._stop_at = 0.0
        self._work = work if tracer is None else replace(work, done=_each(work.done, tracer.committed))
        self._worker_id = worker_id
        self._is_ours = is_ours
        self._on_lost = on_lost
        self._on_deaf = on_deaf
        self._streams = streams
        self._splitter = splitter
        self._stream: Stream | None = None
        """Of the present run, once its agent shows something."""
        self._to_show: tuple[Turn, str] | None = None
        """The latest of it."""
        self._will_show = False
        """The loop was told of something to show, and has not seen to it yet."""
        self._asker: Asker | None = None
        """Of the present run, once its agent asks something."""
        self._run = self._run_once if tracer is None else partial(self._run_traced, tracer)
        self._phase = IDLE
        self._finishing = False
        self._ending = False
        self._interrupted: Outcome | None = None
        self._abandoned = False
        self.steered_through = 0
        """The last message that was handed into the present run."""
        self.is_steered = False
        """Whether what is said meanwhile may be handed into the present run, as its lane says now."""
        self._cancellations = 0
        self._told_at = 0.0
        """When the present run was told to stop, if it was."""
        self._stop_again_at = 0.0
        self._is_known_deaf = False
        """The operator knows that the present run went on."""
        self._time_left: float | None = None
        """While the clock is stopped."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._loop(), name=f"turnlane-{self.kind.name.lower()}-slot")
        return self._task

    @property
    def is_running(self) -> bool:
        """Told to stop, it is not: to be cancelled once more would cut short how an agent tidies up."""
        return self._phase is RUNNING and self._interrupted is None and not self._abandoned

    # What its agent tells it

    def show(self, turn: Turn, text: str) -> None:
        if self._task is None or not self._streams.can_show(turn.channel) or self._lease_of(turn) is None:
            return
        # Only the latest is kept: an agent may show more, before the loop gets to run, than there is memory for.
        self._to_show = (turn, text)
        if not self._will_show:
            self._will_show = True
            with suppress(RuntimeError):  # the loop has ended before a thread that cannot be stopped
                self._task.get_loop().call_soon_threadsafe(self._show_latest)

    def _show_latest(self) -> None:
        self._will_show = False  # first: what a thread shows from now on has a call of its own
        if self._to_show is None:
            return
        turn, text = self._to_show
        lease = self._lease_of(turn)
        if lease is None:
            return  # that run is over
        if self._stream is None:
            self._stream = self._streams.begin(lease)
        self._stream.show(text)

    async def ask(
        self, turn: Turn, text: str, options: Sequence[str], timeout: float | None, number: int | None
    ) -> Answer:
        lease = self._lease_here(turn)
        if lease is None:
            raise RuntimeError("nobody can be asked any more: this run of the turn is over")
        if not self._splitter.fits(text, turn.channel):
            raise ValueError("a question is one message, and this is longer than the platform takes; shorten it")
        if self._asker is None:
            self._asker = Asker(lease, self, self._backend, self._clock)
        return await self._asker.ask(text, options, timeout, number)

    async def more(self, turn: Turn) -> Sequence[Message]:
        lease = self._lease_here(turn)
        if lease is None or not self.is_steered:
            return ()
        try:
            fresh = await self.unseen(lease)
        except BackendUnavailable:
            return ()  # nothing is lost: it waits, for the next look or the next turn
        if fresh:
            self.steered_through = fresh[-1].seq
        return fresh

    async def past(self, turn: Turn, turns: int) -> Sequence[Exchange]:
        lease = self._lease_here(turn)
        if lease is None:
            return ()
        try:
            return await past(lease, turns, backend=self._backend)
        except BackendUnavailable as error:
            raise Throttled(f"what was said before cannot be read just now: {error}") from error

    async def was_begun(self, turn: Turn) -> bool:
        lease = self._lease_here(turn)
        try:
            return lease is not None and await was_begun(lease, backend=self._backend)
        except BackendUnavailable:
            return True  # whoever believes that looks first, which is never wrong

    async def unseen(self, lease: Lease) -> Sequence[Message]:
        """What was said since the run began, or since it was last told. Nothing, if it is over by now."""
        waiting = await self._backend.waiting(lease.key)
        if self.lease is not lease or not self.is_running:
            return ()
        return [message for message in waiting if message.seq > self.steered_through]

    def _lease_of(self, turn: Turn) -> Lease | None:
        """None: that run is over, and whoever asks for it is a late part of its agent."""
        lease = self.lease
        if lease is None or not self.is_running or (lease.key, lease.epoch) != (turn.conversation, turn.epoch):
            return None
        return lease

    def runs(self, lease: Lease) -> bool:
        return self.lease is lease and self.is_running

    def _lease_here(self, turn: Turn) -> Lease | None:
        """The same, for what is awaited: in a loop of its own that would hang, and break the store's connections."""
        if self._task is None or self._task.get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("only an async function can await its turn; write `async def`, and no loop of your own")
        return self._lease_of(turn)

    @property
    def waits_for_a_person(self) -> bool:
        return self._time_left is not None

    @property
    def is_seen(self) -> bool:
        """Whether something of the present run is visible outside."""
        return self._stream is not None and self._stream.shown

    # What the worker tells it

    def finish(self) -> None:
        """Take what is due right now, but do not wait for more; on a turn lane, take nothing more at all."""
        self._finishing = True
        if self._phase is CLAIMING:
            self._cancel()
        elif self._time_left is not None:
            # It waits for a person, who may take a day: whoever is there then goes on with the answer.
            self.end(Released())

    def give_back(self) -> None:
        """Stop the run, release its lease without blame, and take nothing more at all."""
        self._finishing = self._ending = True
        if self._phase is CLAIMING:
            self._cancel()
        elif self.is_running:
            self._interrupted = Released()
            self._stop_the_run()

    def stop_if_late(self, now: float) -> None:
        """Asked now and then. One look at all slots is much cheaper than a timer for each run."""
        if self._phase is not RUNNING:
            return
        assert self.lease is not None
        if not self.is_running:
            if now >= self._stop_again_at:
                self._stop_again(self.lease, now)
        elif now >= self._stop_at:
            self._interrupted = self._work.late(self.lease)
            self._stop_the_run()

    def stop_the_clock(self) -> None:
        self._time_left = self._stop_at - self._clock.monotonic()
        self._stop_at = math.inf
        if self._finishing:
            self.end(Released())

    def start_the_clock(self) -> None:
        if self._time_left is not None:
            self._stop_at = self._clock.monotonic() + self._time_left
            self._time_left = None

    def end(self, outcome: Outcome) -> None:
        if self.is_running:
            self._interrupted = outcome
            if not self.is_seen and self._stream is not None:
                self._stream.drop()  # else it might be seen yet, while the agent tidies up
            self._stop_the_run()

    def abandon(self) -> None:
        """The lease is lost: stop the run; whatever it would say is void."""
        was_running, self._abandoned = self.is_running, True
        if was_running:
            self._stop_the_run()

    def _stop_the_run(self) -> None:
        self._told_at, self._is_known_deaf = self._clock.monotonic(), False
        self._stop_again_at = self._told_at + STOP_AGAIN_SECONDS
        self._cancel()

    def _stop_again(self, lease: Lease, now: float) -> None:
        """It went on: whoever swallows a cancellation keeps the slot, and mostly the lane too, until it ends."""
        self._stop_again_at = now + STOP_AGAIN_SECONDS
        if not self._is_known_deaf:
            self._is_known_deaf = True
            self._on_deaf(lease, now - self._told_at, self._why_told())
        self._cancel()

    def _why_told(self) -> str:
        match self._interrupted:
            case None:
                return "its lease was lost"
            case Released():
                return "its worker stops"
            case RetryLater(cause=cause) | Superseded(cause=cause):
                return cause
            case Asks():
                return "its turn waits for an answer, and starts again with it"
            case _:
                return "it was told to"

    def _cancel(self) -> None:
        assert self._task is not None
        self._cancellations += 1
        self._task.cancel()

    def _was_told(self) -> bool:
        """Settle the cancellations of the methods above. False: there is one more, by whoever awaits the slot."""
        assert self._task is not None
        while self._cancellations:
            self._task.uncancel()
            self._cancellations -= 1
        return not self._task.cancelling()

    @property
    def _takes_more(self) -> bool:
        """Once finishing, a slot for turns takes none; one for deliveries takes those that the last turns left."""
        return not self._ending and (not self._finishing or self.kind is Kind.OUT)

    # The loop

    async def _loop(self) -> None:
        while True:
            try:
                if self.lease is None:
                    self.lease = await self._claim()
                if self.lease is None:
                    return
                self.lease = await self._run(self.lease)
            except WorkerLost:
                self.lease = None
            except BackendUnavailable:
                self.lease = None
                if self._finishing:
                    return
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _claim(self) -> Lease | None:
        while self._takes_more:
            self._phase = CLAIMING
            try:
                return await self._claim_as(await self._worker_id())
            except asyncio.CancelledError:
                if not self._was_told():
                    raise
            finally:
                self._phase = IDLE
        return None

    async def _claim_as(self, worker: str) -> Lease | None:
        try:
            leases = await self._backend.claim(worker, self.kind, wait=not self._finishing)
        except WorkerLost:
            self._on_lost(worker)
            raise
        return leases[0] if leases else None

    async def _run_traced(self, tracer: Tracer, lease: Lease) -> Lease | None:
        with tracer.running(lease):
            return await self._run_once(lease)

    async def _run_once(self, lease: Lease) -> Lease | None:
        self._abandoned = False
        if self._cancellations:
            self._was_told()  # an agent may have swallowed the cancellation of an earlier run
        # The answer to a claim may come late, after the worker had to start over under another id.
        if lease.attempt > 1:
            await self._streams.clean_up(lease)
        outcome = await self._outcome(lease) if self._is_ours(lease) and not self._abandoned else None
        if self._stream is not None:
            await self._stream.end()
            self._stream = None
        if outcome is None:
            return None
        self._phase = ENDING
        try:
            return await self._commit(lease, outcome)
        finally:
            self._phase = IDLE

    async def _outcome(self, lease: Lease) -> Outcome | None:
        self._phase = RUNNING
        self._interrupted = None
        self._asker = self._time_left = self._to_show = None
        self.steered_through, self.is_steered = lease.last, lease.policy.on_busy == "steer"
        self._stop_at = self._clock.monotonic() + self._work.seconds_max(lease)
        try:
            outcome = self._judged(await self._work.run(lease, self))
            if self.steered_through > lease.last and isinstance(outcome, Replied):
                outcome = Replied(outcome.reply, self.steered_through)
            return outcome
        except asyncio.CancelledError:
            if not self._was_told():
                if self._stream is not None:
                    self._stream.drop()
                raise
            return self._interrupted
        finally:
            self._phase = IDLE
            self._time_left = None

    def _judged(self, outcome: Outcome) -> Outcome:
        """What a run comes to that was told to end, and ended in its own way: an agent may catch the cancellation. A
        whole answer is still taken, unless its turn is not to be answered."""
        told = self._interrupted
        if told is None or self.kind is not Kind.TURN:
            return outcome
        return outcome if isinstance(outcome, Replied) and not isinstance(told, (Superseded, Asks)) else told

    async def _commit(self, lease: Lease, outcome: Outcome) -> Lease | None:
        """The answer is paid for: a store that does not answer is asked again for as long as the lease may be ours."""
        while True:
            try:
                committed = await self._backend.commit(lease, outcome, take_next=self._takes_more)
                if self._work.done is not None:
                    self._work.done(lease, outcome, committed.verdict)
                return committed.next
            except (ValueError, TypeError, OverflowError) as error:
                if isinstance(outcome, GaveUp):
                    raise
                outcome = GaveUp(f"the store cannot hold how it ended; {cause_of(error)}")
            except BackendUnavailable:
                if self._abandoned:
                    return None
                await asyncio.sleep(RECONNECT_SECONDS)


def _each(first: Done | None, second: Done) -> Done:
    if first is None:
        return second
    listeners = (first, second)

    def tell(lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        for listener in listeners:
            listener(lease, outcome, verdict)

    return tell
