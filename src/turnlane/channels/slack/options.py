"""What an operator may say about a Slack app."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

ANY_WORKSPACE = ""
"""The name under which the only token stands, whatever its workspace is called."""

BASE_URL = "https://slack.com/api/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    tokens: Mapping[str, str] = field(repr=False)
    """By workspace; one alone may stand for ANY_WORKSPACE."""
    app_token: str | None = field(default=None, repr=False)
    signing_secret: str | None = field(default=None, repr=False)
    base_url: str = BASE_URL
    users: Collection[str] = ()
    rooms: Collection[str] = ()
    mention_only: bool = True
    direct: Literal["room", "thread"] = "room"
    streaming: Literal["edits", "native", "off"] = "edits"
    status: str = "is thinking…"
    receipt: str | None = None
    text_max: int = 4_000
    timeout: float = 20.0
    """For one call. The engine gives a sending 60 s, and a look-up may need several."""
