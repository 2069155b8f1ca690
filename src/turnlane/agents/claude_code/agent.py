"""Answers turns with Claude Code, each session in one place, and no answer paid for twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from uuid import UUID, uuid5

from turnlane.agents.attachments import Attachments
from turnlane.agents.claude_code.content import content_of
from turnlane.agents.claude_code.options import Options, config_folder, program
from turnlane.agents.claude_code.run import Run, SessionUnknown
from turnlane.agents.claude_code.transcript import Answer, Transcript, transcript_of
from turnlane.agents.program import end_marked, start
from turnlane.errors import AgentFailed
from turnlane.model.message import Message
from turnlane.model.turn import Reply, Turn

NAMES = UUID("5b1c8f3e-6a0d-5c1f-9a44-0d5c3f7b9e21")
"""Under which our ids are made, so that a repeated turn makes the same ones."""

SESSION = "TURNLANE_CLAUDE_SESSION"
RUN = "TURNLANE_CLAUDE_RUN"
"""In the environment of the program and of all that it starts: by these they are found, also after we were killed.

The second tells runs apart: whoever lost the turn, and notices late, ends its own run and not the one that followed.
"""

TERM_GRACE_SECONDS = 5.0
"""How long it may take to end its tools; it took a second and a half on a quiet machine."""


class ClaudeCode:
    """Runs the program for each turn: `--session-id` for the first of a conversation, then `--resume`.

    The ids of sessions and messages follow from the turn. A turn that ran before is looked up in the session's
    transcript: an answer that is whole is taken from there; a run that was cut short is left out of the session, and
    the turn starts from where the session stood before it.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        attachments: Attachments | None = None,
        surroundings: Mapping[str, str] | None = None,
        term_grace: float = TERM_GRACE_SECONDS,
    ) -> None:
        self._options = options or Options()
        self._options.check()
        self._attachments = attachments or Attachments()
        self._environment = self._options.environment(os.environ if surroundings is None else surroundings)
        self._config = config_folder(self._environment)
        self._term_grace = term_grace
        self._running: dict[tuple[str, int], tuple[Run, Transcript | None]] = {}
        """By turn and epoch: whoever lost a turn may still be ending its run while the next one is under way."""

    async def respond(self, turn: Turn) -> Reply:
        forgotten = None
        if turn.session is not None:
            try:
                return _reply(turn.session, await self._go_on(turn, turn.session))
            except SessionUnknown:
                forgotten = _why_forgotten(turn)
        session = _name("session", _key(turn))
        answer = await self._begin(turn, session)
        return _reply(session, answer, forgotten, self._options.tell_when_forgotten if forgotten else None)

    async def steer(self, turn: Turn, messages: Sequence[Message]) -> bool:
        """True once the program has queued them: they are then answered by this very run."""
        running = self._running.get((turn.id, turn.epoch))
        if running is None:
            return False
        run, transcript = running
        name = _unused("steered", " ".join(message.id for message in messages), transcript)
        return await run.say_meanwhile(name, await content_of(replace(turn, messages=messages), self._attachments))

    async def close(self) -> None:
        await self._attachments.close()

    async def _go_on(self, turn: Turn, session: str) -> Answer:
        transcript = await self._transcript(turn, session) if _is_uuid(session) else None
        if transcript is None:
            raise SessionUnknown
        if (answer := _answered_before(turn, transcript)) is not None:
            return answer
        at = transcript.cut_short_after
        which = ["--resume", session, *(["--resume-session-at", at] if at else [])]
        return await self._run(turn, session, which, transcript)

    async def _begin(self, turn: Turn, session: str) -> Answer:
        transcript = await self._transcript(turn, session)
        if transcript is not None:
            if (answer := _answered_before(turn, transcript)) is not None:
                return answer
            transcript.set_aside()
        return await self._run(turn, session, ["--session-id", session], None)

    async def _transcript(self, turn: Turn, session: str) -> Transcript | None:
        """As nobody writes it any more: what a worker that was killed has left behind would go on with it."""
        await end_marked(SESSION, self._mark(session), term_grace=self._term_grace)
        folder = _folder(self._options, turn.conversation)
        return await asyncio.to_thread(transcript_of, session, config=self._config, folder=folder)

    def _mark(self, session: str, epoch: int | None = None) -> str:
        return f"{session} in {self._config}" if epoch is None else f"{epoch} of {session} in {self._config}"

    async def _run(self, turn: Turn, session: str, which: Sequence[str], transcript: Transcript | None) -> Answer:
        said = await content_of(turn, self._attachments)
        run = await self._start(turn, session, which)
        self._running[turn.id, turn.epoch] = run, transcript
        try:
            async with asyncio.timeout(self._options.timeout):
                run.say(_unused("message", _key(turn), transcript), said)
                await run.exited.wait()
        except TimeoutError:
            raise AgentFailed(f"Claude Code took longer than {self._options.timeout:g} s and was stopped") from None
        finally:
            del self._running[turn.id, turn.epoch]
            await self._end(run, self._mark(session, turn.epoch))
        return run.answer()

    async def _start(self, turn: Turn, session: str, which: Sequence[str]) -> Run:
        command = [program(self._options.command, self._environment), *self._options.command[1:]]
        return await start(
            lambda: Run(turn.show),
            [*command, *self._options.arguments(), *which],
            env={**self._environment, SESSION: self._mark(session), RUN: self._mark(session, turn.epoch)},
            cwd=str(_folder(self._options, turn.conversation)),
            term_grace=self._term_grace,
        )

    async def _end(self, run: Run, mark: str) -> None:
        try:
            await run.end(self._term_grace)
        finally:
            # Its tools run in groups of their own, and outlive it if it had to be killed.
            await end_marked(RUN, mark, term_grace=0)


def _folder(options: Options, conversation: str) -> Path:
    try:
        return options.folder(conversation)
    except OSError as error:
        raise AgentFailed(f"cannot make the folder of the conversation: {error}; check cwd of the agent") from error


def _reply(session: str, answer: Answer, forgotten: str | None = None, told: str | None = None) -> Reply:
    texts = list(answer.texts)
    if told is not None:
        texts[:1] = ["\n\n".join([told, *texts[:1]])]
    text = None if not texts else texts[0] if len(texts) == 1 else texts
    return Reply(text, session, answer.usage, local=True, began_anew=forgotten, model=answer.model)


def _why_forgotten(turn: Turn) -> str:
    if turn.moved_from is not None:
        return f"its transcript is on {turn.moved_from}, and not here"
    return "Claude Code has no transcript of it any more"


def _answered_before(turn: Turn, transcript: Transcript) -> Answer | None:
    names = list(_used("message", _key(turn), transcript))
    return transcript.answer_to(names[-1]) if names else None


# Names


def _key(turn: Turn) -> str:
    """What makes this turn different from all others, also from one of the same number in a store that was emptied."""
    asked = [message for message in turn.messages if message.role in {"person", "schedule"}] or turn.messages
    return f"{turn.id} {asked[0].id} {asked[0].accepted_at}"


def _name(kind: str, key: str, number: int = 0) -> str:
    return str(uuid5(NAMES, f"{kind} {number} {key}"))


def _used(kind: str, key: str, transcript: Transcript) -> Iterator[str]:
    """A message that was cut short cannot be run again under its name, so each run takes the next one."""
    return takewhile(transcript.knows, (_name(kind, key, number) for number in count()))


def _unused(kind: str, key: str, transcript: Transcript | None) -> str:
    return _name(kind, key, sum(1 for _ in _used(kind, key, transcript)) if transcript else 0)


def _is_uuid(session: str) -> bool:
    try:
        return str(UUID(session)) == session
    except ValueError:
        return False
