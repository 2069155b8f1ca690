"""A Slack app in the settings: what must be given, and what `turnlane doctor` finds out about it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.channels.loopback import nobody_listens
from tests.channels.slack_service import APP_TOKEN, TOKEN, Mode, SlackService, slack_service

from turnlane.app import Bot
from turnlane.cli.main import turnlane as command
from turnlane.errors import InvalidSettings
from turnlane.settings import load

Findings = list[tuple[str, str]]


@pytest.fixture
async def service() -> AsyncIterator[SlackService]:
    async with slack_service() as service:
        yield service


def write(folder: Path, channel: str) -> Path:
    file = folder / "turnlane.toml"
    file.write_text(f'backend = "memory://"\nlisten = "127.0.0.1:0"\n[channels.acme]\nkind = "slack"\n{channel}\n')
    return file


async def examined(folder: Path, service: SlackService, channel: str = "") -> Findings:
    file = write(folder, f'token = "{TOKEN}"\napp_token = "{APP_TOKEN}"\nbase_url = "{service.url}"\n{channel}')
    result = await asyncio.to_thread(CliRunner().invoke, command, ["doctor", "--json", "--config", str(file)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert TOKEN not in result.output
    assert APP_TOKEN not in result.output
    findings = json.loads(result.stdout)["findings"]
    assert all(finding["next"] for finding in findings if finding["status"] != "ok")
    return [(each["status"], each["text"]) for each in findings if each["check"] == "channel acme"]


async def test_the_doctor_says_which_bot_it_is_and_what_it_may_not(tmp_path: Path, service: SlackService) -> None:
    found = await examined(tmp_path, service, 'receipt = "eyes"')
    assert found[0] == ("ok", "is @helper in Acme (T0001)")
    ((status, lacks),) = found[1:]
    assert status == "warning"
    assert "im:history (direct messages are not heard" in lacks
    assert "reactions:write" not in lacks


async def test_the_doctor_says_which_token_is_not_well(tmp_path: Path, service: SlackService) -> None:
    service.next["auth.test"].append(Mode("invalid_auth"))
    service.next["apps.connections.open"].append(Mode("not_allowed_token_type"))
    assert await examined(tmp_path, service) == [
        ("broken", "token: Slack says invalid_auth"),
        ("broken", "no socket can be opened: Slack says not_allowed_token_type"),
    ]


async def test_the_doctor_does_not_blame_the_token_for_the_network(tmp_path: Path) -> None:
    ((status, text),) = await examined(tmp_path, SlackService(nobody_listens()))
    assert (status, "cannot be reached" in text) == ("warning", True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('token = "x"', "[channels.acme]: nothing can be heard; set app_token (xapp-…) for Socket Mode, or signing"),
        ('app_token = "x"', "[channels.acme]: give either token"),
        ('app_token = "x"\ntoken = "y"\ntokens = { T1 = "z" }', "[channels.acme]: give either token"),
        ('direct = "x"', '[channels.acme] direct: expected "room" or "thread"'),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        load(write(tmp_path, given), {})
    assert said in str(refused.value)


def test_a_slack_channel_is_made_of_its_settings(tmp_path: Path) -> None:
    file = write(tmp_path, 'signing_secret = "s"\n[channels.acme.tokens]\nT1 = { env = "FIRST" }\nT2 = "y"')
    bot = Bot.from_settings(load(file, {"FIRST": "x"}))
    assert list(bot.channels) == ["acme"]
    assert type(bot.channels["acme"]).__name__ == "Slack"


def test_without_the_package_its_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turnlane.channels.slack.channel", None)
    settings = load(write(tmp_path, 'signing_secret = "s"\ntoken = "x"'), {})
    with pytest.raises(InvalidSettings, match=r"pip install 'turnlane\[slack\]'"):
        Bot.from_settings(settings)
