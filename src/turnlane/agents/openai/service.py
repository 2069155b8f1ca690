"""The client of the service, and what its errors mean for a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
from openai import AsyncOpenAI

from turnlane.agents.openai.options import Options
from turnlane.clock import Clock, SystemClock
from turnlane.errors import AgentError, AgentFailed, AgentRefused, Throttled
from turnlane.outgoing import CONNECT_SECONDS_MAX, EXCERPT_CHARACTERS_MAX, Answer

NO_KEY = "none"
"""The client insists on one, also for a server that asks for none."""

LOCKED = "conversation_locked"
_PUT_OFF = frozenset({429, 503})
_BROKEN = frozenset({408, 409})
_WORTH_ANOTHER_TRY = frozenset({"server_error", "vector_store_timeout", "failed_to_download_image"})


def connect(options: Options) -> AsyncOpenAI:
    """A client that repeats nothing by itself: the engine decides that, and looks first."""
    return AsyncOpenAI(
        api_key=options.key or NO_KEY,
        base_url=options.base_url,
        max_retries=0,
        timeout=openai.Timeout(None, connect=CONNECT_SECONDS_MAX),
    )


@asynccontextmanager
async def asked(options: Options, clock: Clock) -> AsyncIterator[None]:
    """Whatever the service does wrong inside becomes an AgentError, also when it takes too long."""
    try:
        async with asyncio.timeout(options.timeout):
            yield
    except TimeoutError:
        raise AgentFailed(f"the model took longer than {options.timeout:g} s and was given up on") from None
    except openai.APIError as error:
        raise verdict(error, clock.now()) from error


async def is_known(options: Options, clock: Clock | None = None) -> bool:
    """Whether the service takes the key and lists the model, which costs nothing. Raises an AgentError as a turn does.

    Some servers that only speak like OpenAI list nothing, and answer all the same.
    """
    async with connect(options) as client, asked(options, clock or SystemClock()):
        try:
            await client.models.retrieve(options.model)
        except openai.NotFoundError:
            return False
    return True


def verdict(error: openai.APIError, now: int) -> AgentError:
    match error:
        case openai.APITimeoutError():
            return AgentFailed("the service did not answer in time")
        case openai.APIConnectionError():
            return AgentFailed(f"the service cannot be reached, or hung up: {error.__cause__ or error}")
        case openai.APIStatusError() if error.code == LOCKED:
            return Throttled("another run still works on this conversation")
        case openai.APIStatusError(status_code=status, response=response):
            said = f"the service answered {status}: {_excerpt(error)}"
            if status in _PUT_OFF:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Throttled(said, retry_after=Answer(status, headers, b"").retry_after(now))
            return AgentFailed(said) if status >= 500 or status in _BROKEN else AgentRefused(said + _step(status))
        case _:
            return ended_badly(error.code, error.message)


def ended_badly(code: str | None, message: str | None) -> AgentError:
    """What a run of the model comes to that told itself why it failed."""
    said = f"the model failed with {code or 'no code'}: {(message or 'it does not say why')[:EXCERPT_CHARACTERS_MAX]}"
    if code == "rate_limit_exceeded":
        return Throttled(said)
    return AgentFailed(said) if code is None or code in _WORTH_ANOTHER_TRY else AgentRefused(said)


def _excerpt(error: openai.APIStatusError) -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return " ".join(str(message or error.message).split())[:EXCERPT_CHARACTERS_MAX]


def _step(status: int) -> str:
    match status:
        case 401:
            return "; set api_key of the agent, or OPENAI_API_KEY, to a key that is in force"
        case 403:
            return "; give the key's project the right to this model"
        case 404:
            return "; check model and base_url of the agent"
    return ""
