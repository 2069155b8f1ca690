"""Chat completions, which remember nothing: the past is told anew with each turn, from our own history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import openai
from openai.types import CompletionUsage

from turnlane.agents.attachments import Attachments
from turnlane.agents.openai.options import Options
from turnlane.agents.openai.service import asked, connect
from turnlane.agents.openai.spoken import Spoken, as_chat, merged, remembered, spoken
from turnlane.clock import Clock, SystemClock
from turnlane.errors import AgentFailed, AgentRefused
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import NO_USAGE, Usage


class Chat:
    """One request a turn. The session's handle only names what belongs together; any that is there is gone on with.

    A run of unknown outcome is asked again, and may be paid for twice: no such service can be asked what became of it.
    """

    def __init__(self, options: Options, *, attachments: Attachments | None = None, clock: Clock | None = None) -> None:
        self._options = options
        self._attachments = attachments or Attachments()
        self._clock = clock or SystemClock()
        self._client = connect(options)

    async def respond(self, turn: Turn) -> Reply:
        past = remembered(await turn.past(self._options.history_turns), self._options.history_characters)
        async with asked(self._options, self._clock):
            said = await spoken(turn.messages, self._attachments)
            try:
                return await self._complete(turn, merged([*past, *said]))
            except openai.BadRequestError:
                if not any(each.files for each in said):
                    raise
                return await self._complete(turn, merged([*past, *(each.without_files() for each in said)]))

    async def close(self) -> None:
        await self._client.close()
        await self._attachments.close()

    async def _complete(self, turn: Turn, said: Sequence[Spoken]) -> Reply:
        text, finish, model = "", None, self._options.model
        usage: CompletionUsage | None = None
        stream = await self._client.chat.completions.create(**self._request(said))
        async with stream:
            async for chunk in stream:
                model, usage = chunk.model or model, chunk.usage or usage
                for choice in chunk.choices or ():
                    finish = choice.finish_reason or finish
                    if more := choice.delta.content or choice.delta.refusal:
                        text += more
                        turn.show(text)
        _check(finish, text)
        session = turn.session or f"chat-{uuid5(NAMESPACE_URL, turn.id).hex}"
        return Reply(text or None, session, _usage(usage), model=model)

    def _request(self, said: Sequence[Spoken]) -> dict[str, Any]:
        options = self._options
        instructions = [{"role": "system", "content": options.instructions}] if options.instructions else []
        request: dict[str, Any] = {
            "model": options.model,
            "messages": [*instructions, *(as_chat(each) for each in said)],
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": dict(options.extra),
        }
        if options.temperature is not None:
            request["temperature"] = options.temperature
        if options.max_output_tokens is not None:
            # OpenAI's own models refuse the old name, and most other servers do not know the new one.
            limit = "max_completion_tokens" if options.is_openai else "max_tokens"
            request[limit] = options.max_output_tokens
        return request


def _check(finish: str | None, text: str) -> None:
    match finish:
        case None:
            raise AgentFailed("the answer was cut")
        case "tool_calls" | "function_call":
            raise AgentRefused("the model called a function, which this agent cannot run; take it out of `extra`")
        case "content_filter":
            raise AgentRefused("the service held the answer back (content_filter)")
        case "length" if not text:
            raise AgentRefused("the answer ended before its first word; raise max_output_tokens of the agent")


def _usage(usage: CompletionUsage | None) -> Usage:
    if usage is None:
        return NO_USAGE
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    reasoning = usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else None
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached or 0, reasoning or 0)
