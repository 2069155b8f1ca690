"""A turn to ask agents with."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from turnlane.model.message import Attachment, Message
from turnlane.model.turn import Turn


class Audience:
    """Sees what an agent shows before its answer is whole."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._more = asyncio.Event()

    def show(self, turn: Turn, text: str) -> None:
        self.seen.append(text)
        self._more.set()

    async def shows(self) -> None:
        async with asyncio.timeout(20):
            while not self.seen:
                self._more.clear()
                await self._more.wait()

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(20):
            while self.seen[-1:] != [text]:
                self._more.clear()
                await self._more.wait()


FILE = Attachment("https://files.example/1", "a.ogg", "audio/ogg", 12)


def a_message(number: int, text: str, **more: Any) -> Message:
    return Message("site", f"m-{number}", "site/alice", "Alice", text, **more)


def a_turn(*texts: str, **more: Any) -> Turn:
    messages = [a_message(number, text) for number, text in enumerate(texts or ("hi",), start=1)]
    turn = Turn("site/alice", number=3, attempt=2, epoch=7, channel="site", messages=messages, session="s-1")
    return replace(turn, **more)
