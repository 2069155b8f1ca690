"""The agent behind Claude Code's hooks: keeps what the sessions say, and says nothing itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnlane.errors import AgentFailed, Throttled
from turnlane.model.message import Message
from turnlane.model.turn import Reply, Turn
from turnlane.transcripts.follow import Followed, follow
from turnlane.transcripts.store import Transcripts

PROMPT = "UserPromptSubmit"
END = "SessionEnd"
ELSEWHERE_SECONDS = 0.5
"""How long to leave a turn to the machine that has its files, before anybody takes it again."""

Event = Mapping[str, Any]


class TranscriptKeeper:
    """Reads a session's files from where they were left. A turn that runs again finds that it is done already.

    It reads whatever file an event names, so it is only for those that the machine's own hooks tell.
    """

    def __init__(self, store: Transcripts, *, machine: str = "") -> None:
        self._store = store
        self._machine = machine
        self._opening = asyncio.Lock()
        self._is_open = False

    async def respond(self, turn: Turn) -> Reply:
        await self._open()
        events = [(message, event) for message in turn.messages if (event := _event(message))]
        for _, event in events:
            if (elsewhere := event.get("machine", self._machine)) != self._machine:
                raise Throttled(f"its files are on the machine {elsewhere}", retry_after=ELSEWHERE_SECONDS)
        for message, event in events:
            if event.get("hook_event_name") == PROMPT:
                await self._note_prompt(message, event)
        found = Followed()
        for path, session, final in _files(event for _, event in events):
            found += await follow(self._store, path, session=session, final=final)
        if found.problems:
            raise AgentFailed(f"not all of it can be read; {'; '.join(found.problems)}")
        # From now on the session's events come to where its files are.
        return Reply(None, session=turn.conversation, local=True)

    async def close(self) -> None:
        await self._store.close()

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self._store.open()
                self._is_open = True

    async def _note_prompt(self, message: Message, event: Event) -> None:
        at = message.sent_at or message.accepted_at
        session, project = str(event["session_id"]), _text(event.get("cwd"))
        await self._store.note_prompt(
            session, _text(event.get("prompt_id")), at, _text(event.get("prompt")), project=project
        )


def _event(message: Message) -> Event | None:
    try:
        event = json.loads(message.text)
    except (ValueError, RecursionError):
        return None  # somebody wrote into the conversation by hand
    return event if isinstance(event, dict) and "session_id" in event else None


def _files(events: Iterable[Event]) -> Sequence[tuple[Path, str, bool]]:
    """Each file once, of which session it is, and whether that is over."""
    files: dict[str, tuple[str, bool]] = {}
    for event in events:
        if path := _text(event.get("transcript_path")):
            files[path] = str(event["session_id"]), event.get("hook_event_name") == END
    return [(Path(path), session, final) for path, (session, final) in files.items()]


def _text(found: object) -> str | None:
    return found if isinstance(found, str) and found else None
