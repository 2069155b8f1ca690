"""Ask the person in the middle of a turn, and go on with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from turnlane.agents.answer import is_storable
from turnlane.backends.base import Backend
from turnlane.clock import Clock
from turnlane.errors import AgentRefused, BackendUnavailable
from turnlane.model.lease import Lease
from turnlane.model.question import OPTIONS_MAX, QUESTIONS_MAX, TIMEOUT_SECONDS_MAX, Answer, Question
from turnlane.model.turn import Asks, Outcome

ANSWER_LOOK_SECONDS = 0.2
"""How often a turn that holds its slot looks whether it was answered."""


class Run(Protocol):
    """What the work may tell the slot that runs it."""

    def runs(self, lease: Lease) -> bool:
        """False: the run is over, or told to end, and whoever still speaks for it is a late part of its agent."""

    def end(self, outcome: Outcome) -> None:
        """Stop the run, and let this be its outcome."""

    def stop_the_clock(self) -> None:
        """From now on the run only waits for a person, which its deadline does not count."""

    def start_the_clock(self) -> None: ...


class Asker:
    """The questions of one run, one after the other. Those that an earlier run asked are not asked again."""

    __slots__ = ("_asked", "_backend", "_clock", "_lease", "_one_at_a_time", "_run")

    def __init__(self, lease: Lease, run: Run, backend: Backend, clock: Clock) -> None:
        self._lease = lease
        self._run = run
        self._backend = backend
        self._clock = clock
        self._asked = 0
        self._one_at_a_time: asyncio.Lock | None = None

    async def ask(
        self,
        text: str,
        options: Sequence[str],
        timeout: float | None,
        number: int | None,
    ) -> Answer:
        question = self._question(text, options, timeout)
        self._one_at_a_time = self._one_at_a_time or asyncio.Lock()
        async with self._one_at_a_time:
            self._check_runs()  # it may have ended while the question before this one was open
            self._asked = number or self._asked + 1
            if self._asked <= len(self._lease.answers):
                return self._lease.answers[self._asked - 1]
            if self._asked > QUESTIONS_MAX:
                raise AgentRefused(
                    f"it asked {QUESTIONS_MAX} questions in one turn, the most there may be; let it read the answers"
                )
            return await self._answer(self._asked, question)

    def _check_runs(self) -> None:
        if not self._run.runs(self._lease):
            raise RuntimeError("nobody can be asked any more: this run of the turn is over")

    def _question(self, text: str, options: Sequence[str], timeout: float | None) -> Question:
        if not _are_texts(options):
            raise ValueError("the options of a question are a list of texts")
        if not is_storable(text) or not text.strip():
            raise ValueError("a question is a text that says something")
        if len(options) > OPTIONS_MAX:
            raise ValueError(f"a question has {len(options)} options; give at most {OPTIONS_MAX}")
        if timeout is not None and not _can_be_waited(timeout):
            raise ValueError("a question's timeout is a number of seconds greater than 0, ten years at most, or None")
        expires_at = None if timeout is None else self._clock.now() + int(timeout * 1000)
        return Question(text, tuple(options), expires_at)

    async def _answer(self, number: int, question: Question) -> Answer:
        policy = self._lease.policy
        # A turn that may never run twice cannot be set aside, as it would start again from the top.
        if policy.on_ask == "hold" or policy.ack == "claim":
            return await self._held(number, question)
        self._run.end(Asks(number, question))
        await asyncio.Event().wait()  # until the run is stopped, which is under way
        raise AssertionError("a run that was told to end goes on")

    async def _held(self, number: int, question: Question) -> Answer:
        self._run.stop_the_clock()
        try:
            asked = False
            while True:
                self._check_runs()
                try:
                    # Asked once more when its time is over, so that this too is written down.
                    over = question.expires_at is not None and question.expires_at <= self._clock.now()
                    answer = await (self._look(number) if asked and not over else self._ask(number, question))
                    asked = True
                except BackendUnavailable:
                    answer = None  # asked again; the worker itself notices if it lasts
                if answer is not None:
                    return answer
                await asyncio.sleep(ANSWER_LOOK_SECONDS)
        finally:
            if self._run.runs(self._lease):
                self._run.start_the_clock()

    async def _ask(self, number: int, question: Question) -> Answer | None:
        return await self._backend.ask(self._lease, number, question)

    async def _look(self, number: int) -> Answer | None:
        for asked in reversed(await self._backend.questions(self._lease.key)):
            if (asked.turn, asked.number) == (self._lease.number, number):
                return asked.answer
        return None


def _are_texts(options: object) -> bool:
    if isinstance(options, str) or not isinstance(options, Collection):
        return False
    return all(is_storable(option) and option for option in options)


def _can_be_waited(seconds: object) -> bool:
    return isinstance(seconds, (int, float)) and 0 < seconds <= TIMEOUT_SECONDS_MAX
