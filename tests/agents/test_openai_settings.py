"""An agent of kind openai as the operator meets it: settings, what doctor finds, and how files are named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agents.openai_service import KEY, MODEL, OpenAIService, serving

from turnlane.agents.openai.chat import Chat
from turnlane.agents.openai.conversations import Conversations
from turnlane.app import Bot
from turnlane.cli import checks
from turnlane.cli.checks import Finding
from turnlane.errors import InvalidSettings
from turnlane.settings import Settings, describe, load

AGENT = """
[agents.helper]
kind = "openai"
model = "gpt-test"
api_key = { env = "HELPER_KEY" }
"""


@pytest.fixture
async def service() -> AsyncIterator[OpenAIService]:
    async with serving() as started:
        yield started


def settings_of(folder: Path, text: str, **environ: str) -> Settings:
    file = folder / "turnlane.toml"
    file.write_text(f'backend = "memory://"\n{text}')
    return load(file, {"HELPER_KEY": KEY, **environ})


async def findings(settings: Settings) -> list[Finding]:
    return [finding async for finding in checks.agents(settings)]


async def test_where_the_model_is_decides_how_it_is_spoken_to(tmp_path: Path) -> None:
    here = Bot.from_settings(settings_of(tmp_path, AGENT))
    elsewhere = Bot.from_settings(settings_of(tmp_path, AGENT + 'base_url = "http://127.0.0.1:1/v1"\n'))
    told = Bot.from_settings(settings_of(tmp_path, AGENT + 'base_url = "http://127.0.0.1:1/v1"\napi = "conversations"'))
    kinds = [type(bot.agents["helper"]) for bot in (here, elsewhere, told)]
    assert kinds == [Conversations, Chat, Conversations]
    for bot in (here, elsewhere, told):
        await bot.agents["helper"].close()


def test_the_key_is_shown_to_nobody(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, AGENT + "\n[attachments.transcribe]\nurl = 'http://a/?k=hunter2'\nmodel = 'w'")
    shown = str(describe(settings))
    assert KEY not in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[agents.a]\nkind = "openai"', "[agents.a] model: is missing; give a text"),
        (AGENT + "temperature = 3.0", "expected a number from 0 to 2, got 3.0"),
        (AGENT + 'api = "assistants"', 'expected "conversations" or "chat", got "assistants"'),
        (AGENT + "extra = 5", "extra: expected a table, got 5"),
        (AGENT + "modle = 5", "unknown key; did you mean 'model'?"),
        ('[attachments]\nhosts = ["https://files.slack.com/"]', "expected a list of hosts like"),
        ('[attachments]\nhosts = ["*.example.com:80"]', "expected a list of hosts like"),
        ('[attachments.transcribe]\nurl = "http://a/"', "give either command"),
        ('[attachments.transcribe]\ncommand = ["a"]\nmodel = "b"', "give either command"),
        ("[attachments.transcribe]\ncommand = []", 'expected a list like ["whisper", "{file}"]'),
        ("[attachment]\nhosts = []", "unknown key; did you mean 'attachments'?"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_write_instead(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        settings_of(tmp_path, text)
    assert problem in str(refused.value)


def test_hosts_and_a_command_may_stand_in_variables(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        "",
        TURNLANE_ATTACHMENTS_HOSTS="files.slack.com, *.example.com,[::1]:9000",
        TURNLANE_ATTACHMENTS_TRANSCRIBE_COMMAND="whisper -f '{file}'",
    ).attachments
    assert settings.hosts == ("files.slack.com", "*.example.com", "[::1]:9000")
    assert settings.transcribe.command == ("whisper", "-f", "{file}")


async def test_doctor_asks_for_the_models_name_which_costs_nothing(tmp_path: Path, service: OpenAIService) -> None:
    at_service = f'base_url = "{service.url}"\n'
    [fine] = await findings(settings_of(tmp_path, AGENT + at_service))
    assert (fine.status, fine.text) == ("ok", f"openai, {MODEL} answers at 127.0.0.1")
    [unknown] = await findings(settings_of(tmp_path, AGENT.replace("gpt-test", "gpt-0") + at_service))
    assert (unknown.status, unknown.text) == ("warning", "the service lists no model 'gpt-0'")
    [refused] = await findings(settings_of(tmp_path, AGENT + at_service, HELPER_KEY="sk-wrong"))
    assert refused.status == "broken"
    assert "set api_key" in refused.text
    assert service.paid == []


async def test_doctor_says_that_nobody_answers_or_that_the_key_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [away] = await findings(settings_of(tmp_path, AGENT + 'base_url = "http://127.0.0.1:9/v1"\n'))
    assert away.status == "warning"
    assert "cannot be reached" in away.text
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    [missing] = await findings(settings_of(tmp_path, '[agents.a]\nkind = "openai"\nmodel = "gpt-test"'))
    assert (missing.status, missing.text) == (
        "broken",
        "there is no key for OpenAI; set OPENAI_API_KEY, or api_key of the agent",
    )
