"""What the lines mean that Claude Code writes, and how those are written that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from turnlane.errors import AgentError, AgentFailed, AgentRefused, Throttled
from turnlane.model.usage import NO_USAGE, Usage

LATER = {429, 503, 529}
"""The API asks for patience: that is no failure of the turn."""
MAY_PASS = {408, 409}
CAUSE_CHARACTERS_MAX = 500

Block = Mapping[str, Any]


def user_line(uuid: str, content: Sequence[Block]) -> bytes:
    """What a person said. `client_composed`: none of it is a command of the program, or the name of a file."""
    line = {
        "type": "user",
        "uuid": uuid,
        "client_composed": True,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": "default",
    }
    return msgspec.json.encode(line) + b"\n"


# The shapes of what it writes. Keys come and go between versions: what is not named here is not looked at.


class _ThinkingTokens(Struct):
    thinking_tokens: int = 0


class TokenCounts(Struct):
    """As the API counts: what was read from or written to the cache is not in `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: _ThinkingTokens = field(default_factory=_ThinkingTokens)

    @property
    def usage(self) -> Usage:
        return _usage(
            self.input_tokens,
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
            self.output_tokens,
            self.output_tokens_details.thinking_tokens,
        )


class _ModelCounts(Struct, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    thinking_tokens: int = 0

    @property
    def usage(self) -> Usage:
        return _usage(
            self.input_tokens,
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
            self.output_tokens,
            self.thinking_tokens,
        )


def _usage(plain: int, written: int, read: int, output: int, thinking: int) -> Usage:
    return Usage(plain + written + read, output, read, thinking)


class Lifecycle(Struct, tag="command_lifecycle"):
    """What becomes of a message that was written to it."""

    command_uuid: str = ""
    state: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in {"completed", "cancelled"}


class _Delta(Struct):
    type: str = ""
    text: str = ""


class _Event(Struct):
    type: str = ""
    delta: _Delta | None = None


class Streamed(Struct, tag="stream_event"):
    """A piece of what the model says, as it says it."""

    event: _Event
    parent_tool_use_id: str | None = None

    @property
    def begins_message(self) -> bool:
        return self.parent_tool_use_id is None and self.event.type == "message_start"

    @property
    def text(self) -> str:
        delta = self.event.delta
        return delta.text if delta and delta.type == "text_delta" and self.parent_tool_use_id is None else ""


class _ModelMessage(Struct):
    model: str = ""


class Assistant(Struct, tag="assistant"):
    message: _ModelMessage
    parent_tool_use_id: str | None = None


class Result(Struct, tag="result"):
    """How a turn of the program ended. `subtype` is "success" for an error of the API, too."""

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    api_error_status: int | None = None
    terminal_reason: str | None = None
    num_turns: int = 1
    errors: list[str] = []
    usage: TokenCounts | None = None
    model_usage_since_last_result: dict[str, _ModelCounts] = {}

    @property
    def tokens(self) -> Usage:
        """By model it has what subagents used, which `usage` leaves out."""
        if self.model_usage_since_last_result:
            return sum((each.usage for each in self.model_usage_since_last_result.values()), NO_USAGE)
        return self.usage.usage if self.usage else NO_USAGE

    @property
    def names_no_session(self) -> bool:
        return any(error.startswith("No conversation found") for error in self.errors)


class _Kind(Struct):
    type: str


Line = Lifecycle | Streamed | Assistant | Result

_KIND = msgspec.json.Decoder(_Kind)
_LINE = msgspec.json.Decoder(Line)
_READ = {"command_lifecycle", "stream_event", "assistant", "result"}


def read_line(line: bytes) -> Line | None:
    """None: nothing that concerns us. Raises AgentFailed for what cannot be read."""
    try:
        return _LINE.decode(line) if _KIND.decode(line).type in _READ else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AgentFailed(f"a line of Claude Code cannot be read: {str(error)[:CAUSE_CHARACTERS_MAX]}") from None


def failure_of(result: Result) -> AgentError | None:
    """Why it is no answer. None: it is one. The text is for the operator; the person never sees it."""
    status = result.api_error_status
    said = (result.result or "; ".join(result.errors) or result.subtype)[:CAUSE_CHARACTERS_MAX]
    if not result.is_error:
        return _unasked(result, said)
    if result.subtype == "error_max_turns":
        return AgentRefused(f"Claude Code stopped: {said}; raise max_turns, or let it do less")
    if result.subtype == "error_max_budget_usd":
        return AgentRefused("Claude Code stopped, as the turn used up budget_usd; raise it, or let it do less")
    if "/login" in said:
        return AgentRefused(f"Claude Code says: {said}; give it ANTHROPIC_API_KEY in env, or log in where it runs")
    if status in LATER:
        return Throttled(f"the model API asks for patience ({status}): {said}")
    if status is not None and 400 <= status < 500 and status not in MAY_PASS:
        return AgentRefused(f"the model API refused ({status}): {said}; check the key, the model and what was sent")
    return AgentFailed(f"Claude Code failed ({result.terminal_reason or result.subtype}): {said}")


def _unasked(result: Result, said: str) -> AgentError | None:
    if result.result is None:
        return AgentFailed("Claude Code ended its turn without an answer")
    if result.num_turns == 0:
        # A hook, or a command of the program, spoke; what it says is not for the person.
        return AgentRefused(f"Claude Code answered without asking the model: {said}; look at the hooks in its settings")
    return None
