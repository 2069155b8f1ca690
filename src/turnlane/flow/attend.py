"""What a holder must notice while its turn runs: a lease that somebody ended, and what is said meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from turnlane.agents.base import Agent, SteerableAgent
from turnlane.backends.base import Backend
from turnlane.errors import BackendUnavailable
from turnlane.flow.run_turn import cause_of, turn_of
from turnlane.flow.slot import Slot
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.turn import Superseded
from turnlane.model.view import Busy

ATTEND_SECONDS = 0.1
"""How often a worker looks at the lanes whose turns it runs."""

STEER_SECONDS_MAX = 5.0
"""An agent that does not say in time whether it takes more has not taken it, and is asked again."""

PATIENT = ("collect", "queue")
"""With these, what is said meanwhile waits. Nearly all do, and hundreds of turns may run: that is not worth a call."""

INTERRUPTED = Superseded(set_aside=False, cause="interrupted by a new message")
ROLLED_BACK = Superseded(set_aside=True, cause="rolled back by a new message")
OVER = Superseded(set_aside=True, cause="ended by somebody else")
"""Changes nothing, as the turn has its outcome; but it tells the store that the run has stopped."""


class Attendant:
    """Decides the busy policies for the turns that run here. Accepting a message only stores it."""

    def __init__(
        self,
        *,
        backend: Backend,
        agents: Mapping[str, Agent],
        slots: Sequence[Slot],
        on_failure: Callable[[Lease, str], None],
    ) -> None:
        self._backend = backend
        self._agents = agents
        self._slots = slots
        self._on_failure = on_failure
        self._asking = asyncio.TaskGroup()
        self._steered: set[tuple[str, int]] = set()
        """Conversation and epoch of the runs whose agents are being asked whether they take more."""

    async def attend(self, worker_id: Callable[[], str | None]) -> None:
        async with self._asking:
            while True:
                await asyncio.sleep(ATTEND_SECONDS)
                worker = worker_id()
                running = [(slot, slot.lease) for slot in self._slots if slot.is_running and slot.lease is not None]
                if worker is not None and running:
                    await self._look(worker, running)

    async def _look(self, worker: str, running: Sequence[tuple[Slot, Lease]]) -> None:
        try:
            busy = {(lane.conversation, lane.epoch): lane for lane in await self._backend.busy(worker)}
            for slot, lease in running:
                # The lease was held before the store was asked. If the store does not know it, it is over.
                lane = busy.get((lease.key, lease.epoch))
                if slot.lease is lease:
                    slot.is_steered = lane is not None and lane.on_busy == "steer" and not self._is_held_up(lease, lane)
                if lane is None or lane.is_over or (lane.waiting and lane.on_busy not in PATIENT):
                    await self._decide(slot, lease, lane)
        except BackendUnavailable:
            # The keeper notices, and stops what runs if it lasts.
            return

    async def _decide(self, slot: Slot, lease: Lease, lane: Busy | None) -> None:
        if slot.lease is not lease or not slot.is_running:
            return
        if lane is None:
            slot.abandon()
        elif lane.is_over:
            slot.end(OVER)
        else:
            await self._make_room(slot, lease, lane)

    async def _make_room(self, slot: Slot, lease: Lease, lane: Busy) -> None:
        # A full batch leaves some out that were said before it began, and would leave them out again.
        is_full = len(lease.messages) >= lease.policy.batch_max
        match lane.on_busy:
            case "interrupt" | "rollback" if is_full:
                return
            case "interrupt" | "rollback" | "steer" if self._is_held_up(lease, lane):
                return  # as with collect: what runs goes on, and what is said is kept
            case "interrupt" if slot.is_seen or lane.has_asked:
                return  # as with collect: what somebody has read cannot be made unsaid
            case "interrupt":
                slot.end(INTERRUPTED)
            case "rollback":
                slot.end(ROLLED_BACK)
            case "reject":
                await self._backend.refuse_late(lease)
            case "steer":
                self._steer_beside(slot, lease)
            case "collect" | "queue":
                return

    def _is_held_up(self, lease: Lease, lane: Busy) -> bool:
        """Whether the next turn could not start, by a pause of the conversation or by a setting."""
        pauses = self._backend.limits.pauses
        return lane.is_paused or (pauses is not None and pauses.stop(lease.kind, lease.policy.queue))

    def _steer_beside(self, slot: Slot, lease: Lease) -> None:
        """An agent may take its time, to fetch a picture say: meanwhile other turns are interrupted and stopped."""
        agent, run = self._agents.get(lease.policy.agent), (lease.key, lease.epoch)
        if isinstance(agent, SteerableAgent) and run not in self._steered:
            self._steered.add(run)
            self._asking.create_task(self._steer(agent, slot, lease)).add_done_callback(
                lambda _: self._steered.remove(run)
            )

    async def _steer(self, agent: SteerableAgent, slot: Slot, lease: Lease) -> None:
        """If the agent takes them they belong to this turn, from its commit on; until then they simply wait."""
        try:
            fresh = await slot.unseen(lease)
        except BackendUnavailable:
            return  # they wait, and are looked at again
        # It may have been told too late: by now the slot may run another conversation.
        if fresh and await self._is_taken(agent, lease, fresh) and slot.lease is lease and slot.is_running:
            slot.steered_through = fresh[-1].seq

    async def _is_taken(self, agent: SteerableAgent, lease: Lease, messages: Sequence[Message]) -> bool:
        """Whatever the agent raises, it has not taken them: they wait for the next turn, and the operator is told."""
        try:
            async with asyncio.timeout(STEER_SECONDS_MAX):
                return await agent.steer(turn_of(lease), messages)
        except TimeoutError:
            self._on_failure(lease, f"it did not say within {STEER_SECONDS_MAX:g} s whether it takes more")
        except Exception as error:  # noqa: BLE001 - somebody else's code
            self._on_failure(lease, cause_of(error))
        return False
