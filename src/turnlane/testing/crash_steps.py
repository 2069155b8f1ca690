"""A real `turnlane` process that kills or stops itself at a named step of a turn or of a delivery.

    TURNLANE_CRASH_AT=plan.txt python -m turnlane.testing.crash_steps run --config turnlane.toml

It does nothing until the file of that name appears. Its first line is the step, its second `kill` or `stop`; the file
is taken away when the step is reached, so that one plan is one crash. Beside it the process keeps its diary.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turnlane.app
from turnlane.agents.http import Http
from turnlane.backends.base import Backend, Committed, open_backend
from turnlane.channels.webhook import Webhook
from turnlane.flow import worker
from turnlane.flow.deliver import deliver
from turnlane.flow.slot import Slot
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.testing.crash_diary import Diary

CRASH_AT = "TURNLANE_CRASH_AT"
REACHED = "crash.reached"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

STEPS = (
    "after accept",
    "before claim",
    "after claim",
    "before the agent",
    "in the agent",
    "before commit",
    "after commit, before it is told",
    "out: after claim",
    "out: before send",
    "out: in the send",
    "out: after send, before settle",
    "out: after settle",
)
AGENT_SECONDS = 0.02
"""How long the agent has been asked when `in the agent` is reached."""


class Crash:
    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self.diary = Diary(plan.absolute().parent)

    def reach(self, step: str) -> None:
        try:
            planned, how = self._plan.read_text().splitlines()
            if planned != step:
                return
            self._plan.unlink()
        except (FileNotFoundError, ValueError):  # there is no plan, or it is just being written
            return
        sys.stdout.write(json.dumps({"event": REACHED, "step": step}) + "\n")
        sys.stdout.flush()
        self.diary.note("crashes")
        os.kill(os.getpid(), SIGNALS[how])


def install(crash: Crash) -> None:
    """Around the backend, the agent and the channel of this process."""
    _around_the_store(crash)
    _around_the_agent(crash)
    _around_the_channel(crash)
    _around_the_slots(crash)


def _around_the_store(crash: Crash) -> None:
    def opened(*arguments: Any, **named: Any) -> Backend:
        backend = open_backend(*arguments, **named)
        _around_its_verbs(backend, crash)
        return backend

    _put(turnlane.app, open_backend=opened)


def _around_its_verbs(backend: Backend, crash: Crash) -> None:
    accept, claim, commit = backend.accept, backend.claim, backend.commit

    async def accepted(*arguments: Any) -> Any:
        answer = await accept(*arguments)
        crash.reach("after accept")
        return answer

    async def claimed(who: str, kind: Kind, **named: Any) -> list[Lease]:
        if kind is Kind.TURN:
            crash.reach("before claim")
        leases = await claim(who, kind, **named)
        if leases:
            crash.reach(_after_claim(kind))
        return leases

    async def committed(lease: Lease, *arguments: Any, **named: Any) -> Committed:
        if lease.kind is Kind.TURN:
            crash.reach("before commit")
        answer = await commit(lease, *arguments, **named)
        if lease.delivery is not None and answer.verdict in ("sent", "fenced"):
            crash.diary.note("settled" if answer.verdict == "sent" else "lost", lease.delivery.id)
        crash.reach("after commit, before it is told" if lease.kind is Kind.TURN else "out: after settle")
        if answer.next is not None:
            crash.reach(_after_claim(lease.kind))
        return answer

    _put(backend, accept=accepted, claim=claimed, commit=committed)


def _after_claim(kind: Kind) -> str:
    return "after claim" if kind is Kind.TURN else "out: after claim"


def _around_the_agent(crash: Crash) -> None:
    respond = Http.respond

    async def responded(self: Http, turn: Any) -> Any:
        crash.reach("before the agent")
        asking = asyncio.ensure_future(respond(self, turn))
        try:
            await asyncio.wait({asking}, timeout=AGENT_SECONDS)
            if not asking.done():
                crash.reach("in the agent")
            return await asking
        finally:
            asking.cancel()

    _put(Http, respond=responded)


def _around_the_channel(crash: Crash) -> None:
    send = Webhook.send

    async def delivered(*arguments: Any, may_speak: Callable[[Lease], bool], **named: Any) -> Any:
        def asked(lease: Lease) -> bool:
            crash.reach("out: before send")
            return may_speak(lease)

        return await deliver(*arguments, may_speak=asked, **named)

    async def sent(self: Webhook, delivery: Any) -> Any:
        crash.diary.note("begins", delivery.id)
        crash.reach("out: in the send")
        result = await send(self, delivery)
        crash.reach("out: after send, before settle")
        return result

    _put(worker, deliver=delivered)
    _put(Webhook, send=sent)


def _around_the_slots(crash: Crash) -> None:
    abandon = Slot.abandon

    def abandoned(self: Slot) -> None:
        if self.lease is not None and self.lease.delivery is not None:
            crash.diary.note("lost", self.lease.delivery.id)
        abandon(self)

    _put(Slot, abandon=abandoned)


def _put(where: object, **wrapped: object) -> None:
    for name, function in wrapped.items():
        setattr(where, name, function)


if __name__ == "__main__":
    install(Crash(Path(os.environ[CRASH_AT])))
    runpy.run_module("turnlane.cli.main", run_name="__main__", alter_sys=True)
