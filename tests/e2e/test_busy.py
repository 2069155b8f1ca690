"""What is said while a turn runs: the agent's program really ends, with its child, and nothing of its turn leaves."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.site import Site, eventually, is_gone

from turnlane.model.notice import BUSY, STOPPED
from turnlane.testing.outside import Outside
from turnlane.testing.processes import Turnlane

GONE_SECONDS_MAX = 5.0
"""From the message to the end of the program, with room for a loaded machine; usually it takes less than one."""

PROGRAM = """
import json, os, pathlib, signal, subprocess, sys, time

def answer(text):
    print(json.dumps({"text": text}), flush=True)
    os._exit(0)

def tidy_up(*_):
    time.sleep(0.5)
    (folder / f"tidied-{turn['number']}").touch()
    answer("the last word of a cancelled turn")

folder = pathlib.Path(sys.argv[1])
turn = json.load(sys.stdin)["turn"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"])
signal.signal(signal.SIGTERM, tidy_up)
(folder / "pids.new").write_text(json.dumps([os.getpid(), child.pid]))
(folder / "pids.new").rename(folder / f"turn-{turn['number']}-attempt-{turn['attempt']}")
while not (folder / f"may-answer-{turn['number']}").exists():
    time.sleep(0.01)
answer(" + ".join(message["text"] for message in turn["messages"]))
"""
"""Thinks until it may answer. Told to end, it tidies up for a while and still tries to answer; its child is deaf."""


@dataclass(frozen=True)
class Program:
    folder: Path

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", PROGRAM, str(self.folder)]

    async def runs(self, *, turn: int, attempt: int = 1) -> list[int]:
        """Its process and its child, as soon as it thinks about this turn."""
        file = self.folder / f"turn-{turn}-attempt-{attempt}"

        async def exists() -> bool:
            return file.exists()

        await eventually(exists)
        return _pids(file)

    def may_answer(self, *, turn: int) -> None:
        (self.folder / f"may-answer-{turn}").touch()

    def tidied_up(self, *, turn: int) -> bool:
        """Whether it was told to end, and given the time for it."""
        return (self.folder / f"tidied-{turn}").exists()

    def kill_what_is_left(self) -> None:
        """A runtime that is killed outright cannot end what it started."""
        for pid in [pid for file in self.folder.glob("turn-*") for pid in _pids(file) if not is_gone(pid)]:
            os.kill(pid, signal.SIGKILL)


def _pids(file: Path) -> list[int]:
    pids: list[int] = json.loads(file.read_text())
    return pids


def left_of(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not is_gone(pid)]


async def ended(pids: list[int]) -> None:
    async def all_gone() -> bool:
        return not left_of(pids)

    await eventually(all_gone, within=GONE_SECONDS_MAX)


@pytest.fixture
def program(site: Site) -> Program:
    program = Program(site.folder)
    # Called after the processes have ended, which enter the stack later: none of them starts it once more.
    site.stack.callback(program.kill_what_is_left)
    return program


async def thinking_about_m1(site: Site, program: Program, *, on_busy: str) -> tuple[Turnlane, list[int]]:
    """Who runs the turn, and the processes of the agent."""
    site.configure(lanes=f'on_busy = "{on_busy}"', command=program.command)
    runtime = await site.start()
    await site.post(runtime, "m1")
    pids = await program.runs(turn=1)
    assert left_of(pids) == pids
    return runtime, pids


def said(outside: Outside) -> list[tuple[int | None, str, tuple[str, ...]]]:
    """Turn, text and in_reply_to of every request that left, repeats included."""
    return [(request.turn, request.text, request.in_reply_to) for request in outside.requests]


def outcomes(site: Site) -> list[tuple[int, str]]:
    return [(number, outcome) for _, number, outcome, _ in site.turns()]


async def test_a_message_that_interrupts_ends_the_program_with_its_child_and_both_messages_get_one_reply(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, pids = await thinking_about_m1(site, program, on_busy="interrupt")
    await site.post(runtime, "m2")
    await program.runs(turn=2)
    assert program.tidied_up(turn=1)
    assert left_of(pids) == []  # never two agents in one conversation, not even for a moment
    program.may_answer(turn=2)
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(2, "m1 + m2", ("m1", "m2"))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]


async def test_a_message_that_rolls_back_ends_the_program_with_its_child_and_is_answered_alone(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, pids = await thinking_about_m1(site, program, on_busy="rollback")
    await site.post(runtime, "m2")
    await program.runs(turn=2)
    assert program.tidied_up(turn=1)
    assert left_of(pids) == []
    program.may_answer(turn=2)
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(2, "m2", ("m2",))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]


async def test_a_message_that_is_rejected_gets_a_notice_and_the_running_turn_its_answer(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, pids = await thinking_about_m1(site, program, on_busy="reject")
    await site.post(runtime, "m2")
    await outside.until(lambda: bool(outside.replies))
    assert left_of(pids) == pids
    program.may_answer(turn=1)
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    assert said(outside) == [(None, BUSY, ()), (1, "m1", ("m1",))]
    assert outcomes(site) == [(1, "answered")]


async def test_stop_ends_the_program_with_its_child_and_only_the_notice_leaves(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, pids = await thinking_about_m1(site, program, on_busy="collect")
    await site.post(runtime, "/stop")
    await ended(pids)
    assert program.tidied_up(turn=1)
    program.may_answer(turn=2)
    await site.post(runtime, "m2")
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    assert said(outside) == [(None, STOPPED, ()), (2, "m2", ("m2",))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]


async def test_a_message_that_another_process_took_in_interrupts_too(
    site: Site, outside: Outside, program: Program
) -> None:
    _, pids = await thinking_about_m1(site, program, on_busy="interrupt")
    other = await site.start()
    program.may_answer(turn=2)
    await site.post(other, "m2")
    await ended(pids)
    assert program.tidied_up(turn=1)
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(2, "m1 + m2", ("m1", "m2"))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]


async def test_stop_reaches_the_program_from_another_process_too(
    site: Site, outside: Outside, program: Program
) -> None:
    _, pids = await thinking_about_m1(site, program, on_busy="collect")
    other = await site.start()
    await site.post(other, "/stop")
    await ended(pids)
    assert program.tidied_up(turn=1)
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(None, STOPPED, ())]
    assert outcomes(site) == [(1, "superseded")]


async def test_interrupted_then_killed_and_started_again_both_messages_get_one_reply(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, pids = await thinking_about_m1(site, program, on_busy="interrupt")
    await site.post(runtime, "m2")
    await program.runs(turn=2)
    assert left_of(pids) == []
    runtime.kill()
    await runtime.ended()
    await runtime.start()
    await program.runs(turn=2, attempt=2)
    program.may_answer(turn=2)
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(2, "m1 + m2", ("m1", "m2"))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]


async def test_whoever_takes_over_from_a_lost_worker_interrupts_in_its_place(
    site: Site, outside: Outside, program: Program
) -> None:
    runtime, _ = await thinking_about_m1(site, program, on_busy="interrupt")
    other = await site.start()
    runtime.kill()  # not frozen: that could be in the middle of a write, and then nobody else can write either
    await runtime.ended()
    program.may_answer(turn=2)
    await site.post(other, "m2")
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert said(outside) == [(2, "m1 + m2", ("m1", "m2"))]
    assert outcomes(site) == [(1, "superseded"), (2, "answered")]
