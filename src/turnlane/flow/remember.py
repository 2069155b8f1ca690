"""Which session a turn goes on with: the one that is stored, unless its agent says that it is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from turnlane.agents.base import Agent, RememberingAgent, SessionState
from turnlane.clock import Clock
from turnlane.errors import AgentError
from turnlane.model.event import Event, Fact
from turnlane.model.lease import Lease
from turnlane.model.session import Session
from turnlane.model.value import value

VALID_MS = 30 * 60_000
KNOWN_MAX = 10_000

GONE = "the last one is gone"
EMPTY = "nothing was said in it"


@cache
def _can_tell(kind: type) -> bool:
    """Whether agents of this kind are such. Remembered, as to look at a protocol takes longer than all else here."""
    return issubclass(kind, RememberingAgent)


@value
class Remembered:
    session: str | None
    """What the agent is handed. None: it begins one."""
    anew: str | None = None
    """Why what it spends is counted from zero, though a session is stored."""


NO_SESSION = Remembered(None)


class Memory:
    """Asks an agent about a session only if nobody has used it, or asked, for a while.

    A session that was used has been there, and has messages, whichever machine used it: that stands in the store. So
    the answers to what was asked are all that a process has to remember by itself.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        emit: Callable[[Event], None] = lambda event: None,
        valid_ms: int = VALID_MS,
    ) -> None:
        self._clock = clock
        self._emit = emit
        self.valid_ms = valid_ms
        self._alive: dict[tuple[str, str], int] = {}
        """When an agent last said of a session that it is there, and has messages."""

    def known_for(self, lease: Lease, agent: Agent) -> Remembered | None:
        """What the turn goes on with, if that is known. None: its agent is to be asked."""
        session = lease.session
        if session is None:
            return NO_SESSION
        # A session that is elsewhere, its agent has to fetch, and will find out.
        if not _can_tell(type(agent)) or lease.moved_from is not None:
            return Remembered(session.handle)
        if not self._is_known(lease.policy.agent, session):
            return None
        self._say("session.reused", lease, known=True)
        return Remembered(session.handle)

    async def asked_for(self, lease: Lease, agent: Agent) -> Remembered:
        """What it goes on with by what its agent says."""
        assert lease.session is not None and isinstance(agent, RememberingAgent)
        return self._judged(lease, lease.session, await self._examined(lease, agent, lease.session))

    def _is_known(self, agent: str, session: Session) -> bool:
        alive_at = max(session.updated_at, self._alive.get((agent, session.handle), 0))
        return self._clock.now() - alive_at < self.valid_ms

    async def _examined(self, lease: Lease, agent: RememberingAgent, session: Session) -> SessionState:
        """What nobody can tell never stops an answer: the session is gone on with, and its agent will see."""
        try:
            state = await agent.examine(session.handle)
        except AgentError as error:
            self._say("session.unchecked", lease, cause=str(error))
            return "alive"
        self._say("session.checked", lease, state=state)
        return state

    def _judged(self, lease: Lease, session: Session, state: SessionState) -> Remembered:
        if state == "gone":
            return Remembered(None, GONE)
        if state == "empty":
            return Remembered(session.handle, EMPTY)
        if len(self._alive) >= KNOWN_MAX:
            self._alive.clear()
        self._alive[lease.policy.agent, session.handle] = self._clock.now()
        self._say("session.reused", lease, known=False)
        return Remembered(session.handle)

    def _say(self, name: str, lease: Lease, **facts: Fact) -> None:
        self._emit(Event(name, self._clock.now(), lease.key, {"agent": lease.policy.agent, **facts}))
