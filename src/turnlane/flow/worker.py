"""The worker: keeps its lease alive, fills its slots, takes over from the lost, and drains when it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from turnlane.agents.base import Agent
from turnlane.backends.base import Backend, Verdict
from turnlane.channels.base import Channel
from turnlane.clock import Clock
from turnlane.errors import BackendUnavailable
from turnlane.event_loop import happens
from turnlane.flow.attend import Attendant
from turnlane.flow.deliver import deliver, late_delivery, send_seconds_max
from turnlane.flow.indicate import Indicator
from turnlane.flow.remember import Memory
from turnlane.flow.run_turn import late_turn, run_turn, turn_seconds_max
from turnlane.flow.schedule import late_tick, tick, tick_seconds_max
from turnlane.flow.slot import RECONNECT_SECONDS, Slot, Work
from turnlane.flow.spending import Spending
from turnlane.flow.split import Splitter
from turnlane.flow.stream import Streams
from turnlane.flow.trace import Tracer
from turnlane.model.event import Event, Fact
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.turn import Outcome
from turnlane.people.activity import Activity
from turnlane.people.profiles import Profiles

RENEWALS_PER_TERM = 3
TRUSTED_SHARE = 2 / 3
"""Of the term, by the own monotonic clock: past it without a confirmed renewal, a worker stops what it runs."""

START_TERMS = 2
"""What a predecessor held when it died is found within so many terms of a start."""

HOUSEKEEPING_SECONDS = 3600.0
DEADLINE_LOOK_SECONDS = 0.1
"""How often runs are compared with their deadlines."""


@dataclass(frozen=True, slots=True)
class Retention:
    messages_ms: int = 90 * 86_400_000
    events_ms: int = 7 * 86_400_000
    dedupe_for_ms: int = 30 * 86_400_000


class Worker:
    """Runs turns and sends deliveries under one worker id at a time. `run` returns after `stop` and the drain."""

    def __init__(
        self,
        *,
        backend: Backend,
        agents: Mapping[str, Agent],
        channels: Mapping[str, Channel],
        clock: Clock,
        turns_at_once: int = 5,
        sends_at_once: int = 20,
        term_ms: int = 30_000,
        machine: str = "",
        drain_seconds: float = 30.0,
        retention: Retention | None = None,
        spending: Spending | None = None,
        memory: Memory | None = None,
        people: Profiles | None = None,
        activity: Activity | None = None,
        on_turn: Callable[[Lease, Outcome, Verdict], None] | None = None,
        tracer: Tracer | None = None,
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._backend, self._clock = backend, clock
        self._term_ms, self._machine, self._drain_seconds = term_ms, machine, drain_seconds
        self._retention, self._emit = retention or Retention(), emit
        self._trouble_since: float | None = None
        self._id: str | None = None
        self._former_id: str | None = None
        self._trusted, self._beat_now = asyncio.Event(), asyncio.Event()
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._trusted_until = self._awake_at = self._may_reap_from = self._started_at = 0.0
        self._told_of_turns = [each for each in (activity.note if activity else None, on_turn) if each is not None]
        splitter = Splitter(channels)
        run = partial(
            run_turn,
            agents=agents,
            clock=clock,
            spending=spending or Spending(backend=backend, clock=clock),
            memory=memory or Memory(clock=clock, emit=emit),
            splitter=splitter,
            people=people,
        )
        turn = Work(run, turn_seconds_max, partial(late_turn, clock=clock), self._tell_of_a_turn)
        sends = partial(deliver, channels=channels, clock=clock, may_speak=self._is_ours)
        send = Work(sends, send_seconds_max, partial(late_delivery, clock=clock))
        new_slot = partial(
            Slot,
            backend=backend,
            clock=clock,
            worker_id=self._current_id,
            is_ours=self._is_ours,
            on_lost=self._on_lost,
            on_deaf=self._tell_of_the_deaf,
            streams=self._streams(channels),
            splitter=splitter,
            tracer=tracer,
        )
        self._agents, self._channels = agents, channels
        self._turn_slots = [new_slot(Kind.TURN, work=turn) for _ in range(turns_at_once)]
        self._out_slots = [new_slot(Kind.OUT, work=send) for _ in range(sends_at_once)]
        self._tick_slot = new_slot(Kind.TICK, work=Work(tick, tick_seconds_max, late_tick), tracer=None)

    def _streams(self, channels: Mapping[str, Channel]) -> Streams:
        return Streams(
            backend=self._backend,
            channels=channels,
            is_ours=self._is_ours,
            on_failure=partial(self._tell_of_a_failure, "preview.failed"),
        )

    @property
    def _slots(self) -> Sequence[Slot]:
        return [*self._turn_slots, *self._out_slots, self._tick_slot]

    def stop(self) -> None:
        """Take no new turns; let running ones finish and their answers leave, within the drain time."""
        self._stop.set()
        for slot in (self._tick_slot, *self._turn_slots):
            slot.finish()

    def stop_now(self) -> None:
        """Give everything back at once."""
        self.stop()
        self._hurry.set()

    async def run(self) -> None:
        keeper = asyncio.create_task(self._keep_alive(), name="turnlane-keeper")
        housekeeper = asyncio.create_task(self._keep_house(), name="turnlane-housekeeper")
        turns = [slot.start() for slot in (self._tick_slot, *self._turn_slots)]
        sends = [slot.start() for slot in self._out_slots]
        watcher = asyncio.create_task(self._stop_late_runs(), name="turnlane-watcher")
        attendant = Attendant(
            backend=self._backend,
            agents=self._agents,
            slots=self._turn_slots,
            on_failure=partial(self._tell_of_a_failure, "steering.failed"),
        )
        attending = asyncio.create_task(attendant.attend(lambda: self._id), name="turnlane-attendant")
        indicator = Indicator(channels=self._channels, slots=self._turn_slots, clock=self._clock, emit=self._emit)
        indicating = asyncio.create_task(indicator.run(), name="turnlane-indicator")
        parts = (keeper, housekeeper, watcher, attending, indicating, *turns, *sends)
        try:
            await self._stopped(parts)
            await self._drain(turns, sends)
        finally:
            # The lease is kept alive to the very end: a worker that drains is not a lost one.
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._leave()

    async def _stopped(self, parts: Sequence[asyncio.Task[None]]) -> None:
        """Wait until told to stop. A part that ends before takes all with it: half a worker would only look alive."""
        told = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((told, *parts), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        for part in parts:
            if part.done() and not self._stop.is_set():
                part.result()

    # Draining

    async def _drain(self, turns: Sequence[asyncio.Task[None]], sends: Sequence[asyncio.Task[None]]) -> None:
        """Turns first; then, as their answers are deliveries, what is due to be sent; what is left is given back."""
        deadline = self._clock.monotonic() + self._drain_seconds
        await self._finished(turns, deadline)
        for slot in self._out_slots:
            slot.finish()
        await self._finished(sends, deadline)
        for slot in self._slots:
            slot.give_back()
        # Agents end their processes when they are cancelled; that takes a moment, and is worth it.
        await asyncio.wait([*turns, *sends], timeout=self._term_ms / 1000)

    async def _finished(self, tasks: Sequence[asyncio.Task[None]], deadline: float) -> None:
        hurry = asyncio.create_task(self._hurry.wait())
        all_done = asyncio.create_task(asyncio.wait(tasks))
        left = max(0.0, deadline - self._clock.monotonic())
        await asyncio.wait((hurry, all_done), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        all_done.cancel()

    async def _leave(self) -> None:
        if self._id is None:
            return
        try:
            async with asyncio.timeout(self._term_ms / 1000):
                await self._backend.leave(self._id)
        except (BackendUnavailable, TimeoutError):
            # Nobody hears the goodbye; the term will end by itself.
            return

    def _tell_of_a_turn(self, lease: Lease, outcome: Outcome, verdict: Verdict) -> None:
        for tell in self._told_of_turns:
            tell(lease, outcome, verdict)

    def _tell_of_a_failure(self, event: str, lease: Lease, cause: str) -> None:
        self._emit(Event(event, self._clock.now(), lease.key, {"turn": lease.number, "cause": cause}))

    def _tell_of_the_deaf(self, lease: Lease, seconds: float, cause: str) -> None:
        kind, lasted = lease.kind.name.lower(), round(seconds, 1)
        facts: dict[str, Fact] = {"kind": kind, "number": lease.number, "seconds": lasted, "cause": cause}
        self._emit(Event("stopping.failed", self._clock.now(), lease.key, facts))

    # Staying alive

    async def _current_id(self) -> str:
        """The id to claim under. Whoever may not trust its own leases just now claims none."""
        while self._id is None or not self._is_trusted():
            self._trusted.clear()
            await self._trusted.wait()
        return self._id

    def _is_ours(self, lease: Lease) -> bool:
        """Whether the lease can still be valid, judged without asking anybody."""
        return lease.worker == self._id and self._clock.monotonic() < self._trusted_until

    def _is_trusted(self) -> bool:
        return self._clock.monotonic() < self._trusted_until

    async def _keep_alive(self) -> None:
        beat = self._term_ms / 1000 / RENEWALS_PER_TERM
        self._awake_at = self._started_at = self._clock.monotonic()
        while True:
            await self._beat(beat)
            self._notice_a_stall(beat)
            await self._rest(beat if self._id is not None else RECONNECT_SECONDS)
            self._notice_a_stall(beat)

    async def _rest(self, seconds: float) -> None:
        if await happens(self._beat_now, within=seconds):
            self._beat_now.clear()

    def _on_lost(self, worker: str) -> None:
        """A slot heard it before the keeper: start over now, not at the next beat."""
        if worker == self._id:
            self._stop_everything()
            self._beat_now.set()

    def _notice_a_stall(self, beat: float) -> None:
        """A worker that was stopped for a while missed what others did: it renews, and buries nobody for a term."""
        now = self._clock.monotonic()
        if now - self._awake_at > 2 * beat:
            self._may_reap_from = now + self._term_ms / 1000
        self._awake_at = now

    async def _beat(self, beat: float) -> None:
        try:
            async with asyncio.timeout(beat):
                await (self._renew() if self._id is not None else self._join())
                self._notice_a_stall(beat)
                if self._clock.monotonic() >= self._may_reap_from:
                    self._tell_of_the_recovered(await self._backend.reap())
            self._tell_of_the_store(None)
        except (BackendUnavailable, TimeoutError) as error:
            self._tell_of_the_store(str(error) or "it did not answer in time")
            if self._id is not None and not self._is_trusted():
                self._stop_everything()

    def _tell_of_the_recovered(self, lanes: int) -> None:
        if lanes:
            at_start = self._clock.monotonic() - self._started_at <= self._term_ms / 1000 * START_TERMS
            facts: dict[str, Fact] = {"worker": self._id, "lanes": lanes, "at_start": at_start}
            self._emit(Event("lanes.recovered", self._clock.now(), None, facts))

    def _tell_of_the_store(self, trouble: str | None) -> None:
        """Once when trouble begins and once when it ends; in between there is nothing new to say."""
        now = self._clock.monotonic()
        if trouble is not None and self._trouble_since is None:
            self._trouble_since = now
            self._emit(Event("store.unavailable", self._clock.now(), None, {"cause": trouble}))
        elif trouble is None and self._trouble_since is not None:
            lasted = round(now - self._trouble_since, 1)
            self._trouble_since = None
            self._emit(Event("store.available", self._clock.now(), None, {"seconds": lasted}))

    async def _join(self) -> None:
        if self._former_id is not None:
            await self._backend.leave(self._former_id)
            self._former_id = None
        worker, asked = self._clock.token(), self._clock.monotonic()
        await self._backend.join(worker, self._term_ms, self._machine)
        self._id = worker
        self._confirm(asked)

    def _confirm(self, asked: float) -> None:
        self._trusted_until = asked + self._term_ms / 1000 * TRUSTED_SHARE
        self._trusted.set()

    async def _renew(self) -> None:
        assert self._id is not None
        # Measured from before the request: the store counts the term from when it got it, which is later.
        asked = self._clock.monotonic()
        if not self._is_trusted():
            # Stopped for too long: what runs here may be somebody else's by now, whatever the store still says.
            self._stop_runs()
        held = [slot.lease for slot in self._slots if slot.lease is not None]
        if await self._backend.renew(self._id, self._term_ms, held):
            self._confirm(asked)
        else:
            self._stop_everything()
            await self._join()

    def _stop_everything(self) -> None:
        """Declared dead, or without word for too long: nothing that runs here is ours any more."""
        self._former_id, self._id = self._id, None
        self._stop_runs()

    def _stop_runs(self) -> None:
        for slot in self._slots:
            slot.abandon()

    # Housekeeping

    async def _stop_late_runs(self) -> None:
        while True:
            await asyncio.sleep(DEADLINE_LOOK_SECONDS)
            now = self._clock.monotonic()
            for slot in self._slots:
                slot.stop_if_late(now)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            now = self._clock.now()
            try:
                await self._backend.forget(
                    messages_before=now - self._retention.messages_ms,
                    events_before=now - self._retention.events_ms,
                    origins_before=now - self._retention.dedupe_for_ms,
                )
            except BackendUnavailable:
                continue
