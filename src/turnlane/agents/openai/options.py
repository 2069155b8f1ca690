"""What the operator says about a model, and where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"

Api = Literal["conversations", "chat"]


@dataclass(frozen=True, slots=True)
class Options:
    model: str
    api_key: str | None = field(default=None, repr=False)
    """Without one: what OPENAI_API_KEY holds, for OpenAI itself and nobody else."""
    base_url: str = OPENAI_URL
    instructions: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    timeout: float = 600.0
    extra: Mapping[str, object] = field(default_factory=dict)
    """Goes into every request as it is."""
    history_turns: int = 20
    history_characters: int = 100_000

    @property
    def is_openai(self) -> bool:
        host = urlsplit(self.base_url).hostname or ""
        return host == "api.openai.com" or host.endswith(".api.openai.com")

    @property
    def key(self) -> str | None:
        return self.api_key or (os.environ.get(KEY_VARIABLE) if self.is_openai else None)

    @property
    def default_api(self) -> Api:
        """What others speak that speak like OpenAI."""
        return "conversations" if self.is_openai else "chat"
