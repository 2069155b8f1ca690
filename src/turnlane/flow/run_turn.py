"""Ask the agent, and judge how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnlane.agents.answer import checked
from turnlane.agents.base import Agent
from turnlane.clock import Clock
from turnlane.errors import AgentError, BackendUnavailable, Throttled
from turnlane.flow.remember import Memory, Remembered
from turnlane.flow.spending import Spending
from turnlane.flow.split import Splitter
from turnlane.model.budget import NO_BUDGETS
from turnlane.model.lease import Lease
from turnlane.model.message import Message, channel_of
from turnlane.model.person import Person
from turnlane.model.turn import GaveUp, Outcome, Parked, Replied, Reply, RetryLater, Stage, Turn
from turnlane.people.profiles import Profiles

CAUSE_CHARACTERS_MAX = 2_000
JITTER = 0.1
"""Retries are spread by this share, so that those who failed together do not come back together."""


async def run_turn(
    lease: Lease,
    stage: Stage,
    *,
    agents: Mapping[str, Agent],
    clock: Clock,
    spending: Spending,
    memory: Memory,
    splitter: Splitter,
    people: Profiles | None = None,
) -> Outcome:
    """One run of the lane's agent over the batch. Every way it can end is a value."""
    agent = agents.get(lease.policy.agent)
    if agent is None:
        name = lease.policy.agent
        return Parked(f"no agent is named {name!r} here; add it to the settings, then `turnlane resume {lease.key}`")
    try:
        if spending.budgets is not NO_BUDGETS and (put_off := await spending.refusal(lease)):
            return put_off
        remembered = memory.known_for(lease, agent) or await memory.asked_for(lease, agent)
        person = await people.of(channel_of(lease.key), lease.user) if people and lease.user else None
        turn = turn_of(lease, stage, remembered, person)
        reply = splitter.split(checked(await agent.respond(turn)), turn.channel)
        return Replied(spending.priced(reply if remembered.anew is None else _anew(reply, remembered.anew)))
    except BackendUnavailable as error:
        return RetryLater(at=clock.now() + backoff_ms(lease, clock), cause=str(error), counts=False)
    except Throttled as error:
        return _later(lease, clock, error)
    except AgentError as error:
        return _again(lease, clock, error) if error.retry else GaveUp(cause_of(error))
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        return _again(lease, clock, "something that it waited for was cancelled")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - somebody else's code: what it raises is a failed run
        return _again(lease, clock, error)


def was_cancelled() -> bool:
    """Whether somebody stopped this run; else a CancelledError comes from the inside, and is a failure like others."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _anew(reply: Reply, why: str) -> Reply:
    return replace(reply, began_anew=reply.began_anew or why)


def turn_of(
    lease: Lease, stage: Stage | None = None, remembered: Remembered | None = None, person: Person | None = None
) -> Turn:
    stored = lease.session.handle if lease.session else None
    return Turn(
        conversation=lease.key,
        number=lease.number,
        attempt=lease.attempt,
        epoch=lease.epoch,
        channel=channel_of(lease.key),
        messages=_in_order(lease) if lease.heard else lease.messages,
        session=stored if remembered is None else remembered.session,
        moved_from=lease.moved_from,
        answers=lease.answers,
        person=person,
        stage=stage,
    )


def _in_order(lease: Lease) -> Sequence[Message]:
    return sorted([*lease.heard, *lease.messages], key=lambda message: message.seq)


def turn_seconds_max(lease: Lease) -> float:
    return lease.policy.turn_deadline_ms / 1000


def late_turn(lease: Lease, *, clock: Clock) -> Outcome:
    """What a run comes to that was stopped at its deadline."""
    return _again(lease, clock, f"it took longer than {turn_seconds_max(lease):g} s (turn_deadline) and was stopped")


def _again(lease: Lease, clock: Clock, cause: BaseException | str) -> RetryLater:
    return RetryLater(at=clock.now() + backoff_ms(lease, clock), cause=cause_of(cause))


def _later(lease: Lease, clock: Clock, error: Throttled) -> RetryLater:
    """Asked to come back later: that is no failure. Without a time, wait longer the longer the batch has waited."""
    waited = clock.now() - lease.messages[0].accepted_at if lease.messages else 0
    patient = min(lease.policy.backoff.most_ms, max(lease.policy.backoff.first_ms, waited // 4))
    # A time that is over when it is named is none: asked again at once, nobody recovers.
    named = error.retry_after or 0.0
    delay = int(named * 1000) if named > 0 else patient
    return RetryLater(at=clock.now() + delay, cause=cause_of(error), counts=False)


def backoff_ms(lease: Lease, clock: Clock) -> int:
    delay = lease.policy.backoff.delay_ms(lease.failures + 1)
    return int(delay * (1 + JITTER * clock.random()))


def cause_of(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    text = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    return text[:CAUSE_CHARACTERS_MAX]
