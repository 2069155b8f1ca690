"""Whoever watches a bot from outside: every run of its agents and every sending is written down as it happens."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from random import Random
from typing import Any

from turnlane.agents.base import Agent
from turnlane.channels.base import Channel
from turnlane.errors import InvalidSettings
from turnlane.model.delivery import Delivery, NotSent, SendResult, Sent, Unknown
from turnlane.model.turn import Reply, Turn

CAUSE_CHARACTERS_MAX = 300
BEAT_SECONDS = 0.05
STOP_SECONDS_MAX = 5.0
"""How long a run may take to end once it is told to. Ending a program with its children takes a moment."""

_SENDING: ContextVar[str | None] = ContextVar("sending", default=None)


async def note_stalls(log: Log) -> None:
    """Until cancelled: whenever nothing could run in this process for a while, note how long."""
    while True:
        began = time.monotonic()
        # waits: a beat, to see whether it comes in time
        await asyncio.sleep(BEAT_SECONDS)
        stall = time.monotonic() - began - BEAT_SECONDS
        if stall > BEAT_SECONDS:
            log.note("stalled", began=began, seconds=stall)


class Log:
    """Lines of JSON in one file that several processes append to. What was noted survives the death of its writer."""

    def __init__(self, file: Path, by: int) -> None:
        self.file = file
        self.by = by
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers = itertools.count(1)

    def note(self, what: str, **facts: object) -> None:
        line = json.dumps({"what": what, "at": time.monotonic(), "by": self.by, **facts})
        os.write(self._descriptor, f"{line}\n".encode())

    def fresh_id(self) -> str:
        return f"{os.getpid()}/{self.by}/{next(self._numbers)}"

    def close(self) -> None:
        os.close(self._descriptor)


def read(file: Path) -> list[dict[str, Any]]:
    """All that was noted, in order."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


# Agents


class WatchedAgent:
    """The agent itself; what it is asked, what it says and whether it stops when told to is noted."""

    def __init__(self, agent: Agent, log: Log) -> None:
        self._agent = agent
        self._log = log
        self._stalls: asyncio.Task[None] | None = None
        _lend(self, agent, agent, ["steer"])

    async def respond(self, turn: Turn) -> Reply:
        self._stalls = self._stalls or asyncio.create_task(note_stalls(self._log))
        run = self._log.fresh_id()
        self._log.note("run", run=run, conversation=turn.conversation, turn=turn.number, epoch=turn.epoch)
        task = asyncio.create_task(self._respond(turn))
        told_at = None
        try:
            told_at = await _ended(task, lambda: self._log.note("told", run=run))
        finally:
            self._log.note("ran", run=run, **_how(task, told_at))
        reply = task.result()
        if isinstance(reply, SystemExit):
            raise reply
        return reply

    async def _respond(self, turn: Turn) -> Reply | SystemExit:
        try:
            return await self._agent.respond(turn)
        except SystemExit as error:
            # As the result: no task can carry it to whoever waits, it would end the loop.
            return error

    async def close(self) -> None:
        """Others still use the agent itself; whoever made the witness closes it at the end."""
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None


async def _ended(task: asyncio.Task[Any], on_told: Callable[[], None]) -> float | None:
    """Wait for the end, and pass on that it is to stop. Returns when it was told so, if it was."""
    told_at = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if not task.cancel() and told_at is None:
                # It ended at this very moment, before it could be told. As without a witness, its answer is void.
                raise
            if told_at is None:
                told_at = time.monotonic()
                on_told()
    return told_at


def _how(task: asyncio.Task[Reply | SystemExit], told_at: float | None) -> dict[str, object]:
    late = told_at is not None and time.monotonic() - told_at > STOP_SECONDS_MAX
    said = None if task.cancelled() or task.exception() else task.result()
    if told_at is not None and (isinstance(said, Reply) or late):
        return {"how": "went on", "seconds": time.monotonic() - told_at}
    if told_at is not None:
        return {"how": "stopped"}
    if isinstance(said, Reply):
        return {"how": "answered", "parts": list(map(str, said.parts)), "session": said.session}
    if task.cancelled():
        return {"how": "raised", "cause": "something that it waited for was cancelled"}
    error = said or task.exception()
    return {"how": "raised", "cause": f"{type(error).__name__}: {error}"[:CAUSE_CHARACTERS_MAX]}


# Channels


class Witness:
    """A platform that is none. It takes deliveries, notes them, and now and then fails as platforms do.

    It stands in for every channel of the bot; or hand it to a channel of your own that sends through it, and to
    `chaos(bot, witness=…)`, and that channel is watched as well.
    """

    def __init__(self, name: str = "chaos") -> None:
        self.name = name
        self._log: Log | None = None
        self._chance = Random(0)

    def attend(self, log: Log, chance: Random) -> None:
        self._log, self._chance = log, chance

    async def send(self, delivery: Delivery) -> SendResult:
        trouble = self._chance.random()
        await asyncio.sleep(self._chance.uniform(0, 0.01))
        if trouble < 0.05:
            return NotSent("the witness was not there")
        if trouble < 0.06:
            return NotSent("the witness asks for patience", retry_after=0.2)
        if trouble < 0.10:
            return Unknown("the witness cut the connection before it took the delivery")
        self._note("taken", delivery)
        if trouble < 0.14:
            return Unknown("the witness cut the connection after it took the delivery")
        return Sent(f"taken-{delivery.id[:8]}")

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        assert self._log is not None
        known = any(each["what"] == "taken" and each["key"] == delivery.id for each in read(self._log.file))
        return Sent(f"taken-{delivery.id[:8]}") if known else NotSent("the witness does not have it")

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        if self._chance.random() < 0.05:
            raise ConnectionError("the witness did not look")
        assert self._log is not None
        self._log.note("shown", conversation=conversation, turn=turn)

    async def close(self) -> None:
        """Nothing is held."""

    def _note(self, what: str, delivery: Delivery) -> None:
        if self._log is None:
            raise InvalidSettings("a Witness works only while chaos() runs the bot; use another channel outside of it")
        self._log.note(
            what,
            key=delivery.id,
            conversation=delivery.conversation,
            text=delivery.text,
            resent=delivery.resent,
            sending=_SENDING.get(),
        )


class WatchedChannel:
    """What stands in for the channel, or the channel itself; what happens inside one sending is told from the next."""

    def __init__(self, channel: Channel, log: Log, stand_in: Witness | None = None) -> None:
        self.name = channel.name
        self._sends: Channel = stand_in or channel
        self._log = log
        _lend(self, channel, self._sends, ["look_up", "show"])

    async def send(self, delivery: Delivery) -> SendResult:
        _SENDING.set(self._log.fresh_id())
        return await self._sends.send(delivery)

    async def close(self) -> None:
        """Others still use the channel; whoever made the witness closes it at the end."""


def _lend(watched: object, original: object, from_whom: object, abilities: Sequence[str]) -> None:
    """What the original can do besides, the watched one can do too, and nothing else: it would be asked for it."""
    for ability in abilities:
        if hasattr(original, ability):
            setattr(watched, ability, getattr(from_whom, ability))
