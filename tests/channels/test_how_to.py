"""The channel of the how-to page runs as it stands there, and keeps the contract."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import sys
from pathlib import Path

import pytest
from tests.channels.loopback import answers, loopback

from turnlane.testing.outside import ask
from turnlane.testing.processes import Turnlane, surroundings

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-your-own-channel.md"
SECRET = "under-the-wing"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-o", "asyncio_mode=auto")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With what a reader of the page would have in it."""
    channel, contract = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "pigeon.py").write_text(channel, "utf-8")
    (tmp_path / "test_pigeon.py").write_text(contract, "utf-8")
    return tmp_path


async def test_the_channel_of_the_page_keeps_the_contract(folder: Path) -> None:
    async with Turnlane(command=(sys.executable, *PYTEST, "test_pigeon.py"), folder=folder) as tests:
        assert await tests.ended() == 0, tests.last_words
    assert re.search(r"\b9\d passed", tests.last_words)


async def test_the_bot_of_the_page_answers(folder: Path) -> None:
    async with loopback(answers(200, b"{}")) as post:
        environment = surroundings() | {
            "PIGEON_URL": post.url,
            "PIGEON_SECRET": SECRET,
            "TURNLANE_BACKEND": "memory://",
            "TURNLANE_LISTEN": "127.0.0.1:0",
            "TURNLANE_LANES_DEBOUNCE": "0s",
            "TURNLANE_LOG_FORMAT": "json",
        }
        async with Turnlane(command=(sys.executable, "pigeon.py"), folder=folder, environment=environment) as bot:
            said = json.dumps({"id": "p-1", "from": "alice", "text": "coo"}).encode()
            signature = hmac.new(SECRET.encode(), said, "sha256").hexdigest()
            hook = f"{await bot.ready()}channels/pigeon"
            assert (await ask(hook, said)).status == 401
            assert (await ask(hook, said, pigeon_signature=signature)).status == 202
            async with asyncio.timeout(30):
                await post.arrived.wait()
    (reply,) = post.requests
    assert (reply.json["to"], reply.json["text"]) == ("alice", "You said: coo")
