"""OpenAI's Conversations and Responses: the memory is theirs, the handle is the conversation's id."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import openai
from openai.types.responses import Response

from turnlane.agents.attachments import Attachments
from turnlane.agents.base import SessionState
from turnlane.agents.openai.options import Options
from turnlane.agents.openai.service import LOCKED, asked, connect, ended_badly
from turnlane.agents.openai.spoken import Spoken, as_input, spoken
from turnlane.clock import Clock, SystemClock
from turnlane.errors import AgentFailed, AgentRefused
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import NO_USAGE, Usage

METADATA_CHARACTERS_MAX = 512
REMEMBERED_RUNS_MAX = 1_000
ITEMS_A_PAGE = 100
EXAMINE_SECONDS_MAX = 10.0
NOT_CARRIED_OUT = "This call was not carried out."


@dataclass(frozen=True, slots=True)
class _Run:
    """What this process knows of a run that did not end well."""

    conversation: str
    began_anew: str | None = None
    response: str | None = None


class Conversations:
    """One request a turn, and before that a look at what became of an earlier run, where there was one.

    Each turn's input begins with a line of the developer's that only this turn has (`marker_of`). Items are added to a
    conversation once a response is complete, so a conversation that ends with this marker and an answer has answered
    this very turn: that is taken, and not paid for again. Nobody but the developer can write such a line.
    """

    def __init__(self, options: Options, *, attachments: Attachments | None = None, clock: Clock | None = None) -> None:
        self._options = options
        self._attachments = attachments or Attachments()
        self._clock = clock or SystemClock()
        self._client = connect(options)
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    async def respond(self, turn: Turn) -> Reply:
        async with asked(self._options, self._clock):
            run = self._runs.get(turn.id)
            reply = await self._found(turn, run) or await self._answer(turn, run)
        self._runs.pop(turn.id, None)
        return reply

    async def close(self) -> None:
        await self._client.close()
        await self._attachments.close()

    async def examine(self, session: str) -> SessionState:
        if _usable(session) is None:
            return "gone"
        async with asked(replace(self._options, timeout=EXAMINE_SECONDS_MAX), self._clock):
            try:
                page = await self._client.conversations.items.list(session, limit=1)
            except openai.NotFoundError:
                return "gone"
        return "alive" if page.data else "empty"

    # What became of an earlier run

    async def _found(self, turn: Turn, run: _Run | None) -> Reply | None:
        conversation = run.conversation if run else _usable(turn.session)
        if conversation is None or not (run or await turn.was_begun()):
            return None
        try:
            if run and run.response:
                response = await self._client.responses.retrieve(run.response)
                if response.status == "completed":
                    return _reply(response, run)
            text = await self._answer_in(conversation, marker_of(turn))
        except openai.NotFoundError:
            return None  # whoever asks next learns what is missing
        if text is None:
            return None
        # Items do not tell what they cost, and only the process that asked for it knew the response.
        began_anew = run.began_anew if run else None
        return Reply(text or None, conversation, NO_USAGE, began_anew=began_anew, model=self._options.model)

    async def _answer_in(self, conversation: str, marker: str) -> str | None:
        """What was answered after the marker, if the conversation ends with that."""
        newer: list[Any] = []
        async for item in self._client.conversations.items.list(conversation, order="desc", limit=ITEMS_A_PAGE):
            if item.type == "message" and item.role == "developer":
                found = "".join(getattr(part, "text", "") for part in item.content) == marker
                return _text(reversed(newer)) if found else None
            newer.append(item)
        return None

    # A run

    async def _answer(self, turn: Turn, run: _Run | None) -> Reply:
        said = await spoken(turn.messages, self._attachments)
        run = run or await self._begun(turn)
        try:
            return await self._respond(turn, run, said)
        except openai.NotFoundError as error:
            if error.code == "model_not_found" or not await self._is_gone(run.conversation):
                raise
            run = await self._begun_anew(turn, "the conversation was not found at OpenAI any more")
        except openai.BadRequestError as error:
            if not _misses_tool_output(error):
                raise
            run = await self._repaired(turn, run)
        return await self._respond(turn, run, said)

    async def _begun(self, turn: Turn) -> _Run:
        if conversation := _usable(turn.session):
            return _Run(conversation)
        reason = "its session is not a conversation at OpenAI"
        return await self._begun_anew(turn, reason if turn.session else None)

    async def _begun_anew(self, turn: Turn, reason: str | None) -> _Run:
        name = turn.conversation[-METADATA_CHARACTERS_MAX:]
        made = await self._client.conversations.create(metadata={"turnlane_conversation": name})
        return self._remembered(turn, _Run(made.id, reason))

    async def _is_gone(self, conversation: str) -> bool:
        try:
            await self._client.conversations.retrieve(conversation)
        except openai.NotFoundError:
            return True
        return False

    async def _repaired(self, turn: Turn, run: _Run) -> _Run:
        """Functions that were called, and never answered, get an answer; without it nothing more can be said there."""
        calls, outputs = set[str](), set[str]()
        async for item in self._client.conversations.items.list(run.conversation, order="desc", limit=ITEMS_A_PAGE):
            if item.type == "function_call":
                calls.add(item.call_id)
            elif item.type == "function_call_output" and item.call_id:
                outputs.add(item.call_id)
        if not calls - outputs:
            return await self._begun_anew(turn, "the conversation at OpenAI misses the output of a function")
        items: list[Any] = [
            {"type": "function_call_output", "call_id": call, "output": NOT_CARRIED_OUT} for call in calls - outputs
        ]
        await self._client.conversations.items.create(run.conversation, items=items)
        return run

    async def _respond(self, turn: Turn, run: _Run, said: Sequence[Spoken]) -> Reply:
        try:
            return _reply(await self._streamed(turn, run, said), run)
        except openai.BadRequestError as error:
            if not any(each.files for each in said) or error.code == LOCKED or _misses_tool_output(error):
                raise
            return _reply(await self._streamed(turn, run, [each.without_files() for each in said]), run)

    async def _streamed(self, turn: Turn, run: _Run, said: Sequence[Spoken]) -> Response:
        texts: dict[str, str] = {}
        stream = await self._client.responses.create(**self._request(turn, run, said))
        async with stream:
            async for event in stream:
                match event.type:
                    case "response.created":
                        run = self._remembered(turn, replace(run, response=event.response.id))
                    case "response.output_text.delta" | "response.refusal.delta":
                        texts[event.item_id] = texts.get(event.item_id, "") + event.delta
                        turn.show("\n\n".join(texts.values()))
                    case "response.completed" | "response.incomplete" | "response.failed":
                        response: Response = event.response
                        return response
                    case "error":
                        raise ended_badly(event.code, event.message)
        raise AgentFailed("the answer was cut; before it is asked for again, it is looked for")

    def _request(self, turn: Turn, run: _Run, said: Sequence[Spoken]) -> dict[str, Any]:
        options = self._options
        request: dict[str, Any] = {
            "model": options.model,
            "conversation": run.conversation,
            "input": [{"role": "developer", "content": marker_of(turn)}, *(as_input(each) for each in said)],
            "metadata": {"turnlane_turn": turn.id[-METADATA_CHARACTERS_MAX:]},
            # Else a conversation that has grown past the model's context would refuse every turn from then on.
            "truncation": "auto",
            "stream": True,
            "extra_body": dict(options.extra),
        }
        chosen = {
            "instructions": options.instructions,
            "temperature": options.temperature,
            "max_output_tokens": options.max_output_tokens,
        }
        return request | {name: value for name, value in chosen.items() if value is not None}

    def _remembered(self, turn: Turn, run: _Run) -> _Run:
        self._runs[turn.id] = run
        self._runs.move_to_end(turn.id)
        if len(self._runs) > REMEMBERED_RUNS_MAX:
            self._runs.popitem(last=False)
        return run


def marker_of(turn: Turn) -> str:
    """By this line the items of a turn are found again. It tells nobody's name, and is the same on every attempt."""
    return f"[turn {uuid5(NAMESPACE_URL, turn.id).hex[:16]}]"


def _usable(session: str | None) -> str | None:
    return session if session and session.startswith("conv_") else None


def _misses_tool_output(error: openai.BadRequestError) -> bool:
    # There is no code for it.
    return "no tool output found" in error.message.casefold()


def _reply(response: Response, run: _Run) -> Reply:
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if response.status == "failed":
        error = response.error
        raise ended_badly(error.code, error.message) if error else ended_badly(None, None)
    if response.status == "incomplete" and reason != "max_output_tokens":
        raise AgentRefused(f"the service held the answer back ({reason})")
    text = _text(response.output)
    if not text and reason:
        raise AgentRefused("the answer ended before its first word; raise max_output_tokens of the agent")
    return Reply(text or None, run.conversation, _usage(response), began_anew=run.began_anew, model=response.model)


def _text(items: Iterable[Any]) -> str:
    """What the model said in these items, without what it said to itself on the way."""
    items = list(items)
    if calls := [item.name for item in items if item.type == "function_call"]:
        raise AgentRefused(f"the model called {calls[0]!r}, which this agent cannot run; take it out of `extra`")
    messages = [item for item in items if item.type == "message" and item.role == "assistant"]
    final = [item for item in messages if getattr(item, "phase", None) != "commentary"] or messages
    return "\n\n".join("".join(_said(part) for part in item.content) for item in final)


def _said(part: Any) -> str:
    return str(getattr(part, "text", None) or getattr(part, "refusal", None) or "")


def _usage(response: Response) -> Usage:
    usage = response.usage
    if usage is None:
        return NO_USAGE
    # Their types promise the details; servers that only speak like OpenAI may leave them out.
    cached = getattr(usage.input_tokens_details, "cached_tokens", None)
    reasoning = getattr(usage.output_tokens_details, "reasoning_tokens", None)
    return Usage(usage.input_tokens, usage.output_tokens, cached or 0, reasoning or 0)
