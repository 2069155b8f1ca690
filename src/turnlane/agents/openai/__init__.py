"""The agent that is a model behind OpenAI's API, or behind one that speaks like it."""

from __future__ import annotations

from turnlane.agents.attachments import Attachments
from turnlane.agents.base import Agent
from turnlane.agents.openai.options import KEY_VARIABLE, Api, Options
from turnlane.clock import Clock
from turnlane.errors import InvalidSettings


def agent(
    options: Options, *, api: Api | None = None, attachments: Attachments | None = None, clock: Clock | None = None
) -> Agent:
    """The agent that speaks this API; without one, `conversations` to OpenAI itself and `chat` to all others."""
    try:
        from turnlane.agents.openai.chat import Chat
        from turnlane.agents.openai.conversations import Conversations
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"an agent of kind openai needs the package {error.name}; pip install 'turnlane[openai]'"
        ) from error
    if options.key is None and options.is_openai:
        raise InvalidSettings(f"there is no key for OpenAI; set {KEY_VARIABLE}, or api_key of the agent")
    kind = Conversations if (api or options.default_api) == "conversations" else Chat
    return kind(options, attachments=attachments, clock=clock)
