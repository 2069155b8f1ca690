"""The agent behind a URL: the turn is posted, the answer is its reply."""

from __future__ import annotations

from collections.abc import Mapping

from turnlane.agents.wire import Heard, converse
from turnlane.clock import Clock, SystemClock
from turnlane.errors import AgentFailed, AgentRefused, InvalidSettings, Throttled
from turnlane.model.turn import Reply, Turn
from turnlane.outgoing import ANSWER_BYTES_MAX, Answer, Lost, NotReached, Outgoing, checked_url, trace_headers


class Http:
    """Posts each turn to `url`, with `headers` (an API key, say), and waits up to `timeout` seconds."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        clock: Clock | None = None,
    ) -> None:
        self._url = checked_url(url, setting="the agent's url")
        self._headers = _checked_headers(headers or {})
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._outgoing = Outgoing()

    async def respond(self, turn: Turn) -> Reply:
        return await converse(turn, self._post)

    async def _post(self, request: bytes, heard: Heard) -> bytes:
        headers = {**trace_headers.get(), **self._headers}
        match await self._outgoing.post(self._url, body=request, headers=headers, timeout=self._timeout, heard=heard):
            case Answer() as answer:
                return self._read(answer)
            case NotReached(cause):
                raise AgentFailed(f"the agent cannot be reached: {cause}")
            case Lost(cause):
                raise AgentFailed(f"the agent did not answer: {cause}")

    async def close(self) -> None:
        await self._outgoing.close()

    def _read(self, answer: Answer) -> bytes:
        if answer.ok and answer.complete:
            return answer.body
        if answer.ok:
            raise AgentFailed(f"the agent's answer was cut, or longer than {ANSWER_BYTES_MAX} bytes")
        if answer.status in {429, 503}:
            raise Throttled(f"the agent answered {answer}", retry_after=answer.retry_after(self._clock.now()))
        if answer.status >= 500:
            raise AgentFailed(f"the agent answered {answer}")
        raise AgentRefused(f"the agent answered {answer}")


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (name and name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
            raise InvalidSettings(f"the agent's header {name!r} cannot be sent; use printable ASCII characters")
    return dict(headers)
