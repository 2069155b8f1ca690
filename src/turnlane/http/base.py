"""What the HTTP surface needs of the application, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from turnlane.backends.base import Backend
from turnlane.channels.base import Channel, Heard, Received
from turnlane.clock import Clock
from turnlane.flow.trace import Tracer
from turnlane.live_settings import LiveSettings
from turnlane.model.event import Event
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.observe.alerts import Watch
from turnlane.people.profiles import Profiles


class Bot(Protocol):
    """The part of `turnlane.app.Bot` that is served."""

    @property
    def backend(self) -> Backend: ...

    @property
    def channels(self) -> Mapping[str, Channel]: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def operator_token(self) -> str | None: ...

    @property
    def viewer_token(self) -> str | None: ...

    @property
    def proxies(self) -> int:
        """How many proxies stand before the server."""

    @property
    def paths(self) -> Mapping[str, str]:
        """Of channels that take web hooks at a path of their own: their names."""

    @property
    def update_user_secret(self) -> str | None: ...

    @property
    def people(self) -> Profiles: ...

    @property
    def alerts(self) -> Watch:
        """What needs an operator, as this process sees it."""

    @property
    def live(self) -> LiveSettings: ...

    @property
    def tracer(self) -> Tracer | None: ...

    def policy_for(self, channel: str) -> Policy:
        """What a message of this channel stamps on its conversation. NotFound if there is no such channel."""

    def emit(self, event: Event) -> None:
        """Tell this process's listeners a fact that is not in the store."""

    async def hear(self, channel: str, heard: Heard) -> Received:
        """Take in what a platform told. Returns only after it is durable; raises BackendUnavailable."""

    async def receive(self, messages: Sequence[Message]) -> Received:
        """Store the messages. Returns only after they are durable; raises BackendUnavailable."""
