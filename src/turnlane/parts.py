"""The channels and agents that settings name, built: each kind's own code is imported only where it is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnlane.agents.base import Agent
from turnlane.channels.base import Channel, FileChannel
from turnlane.clock import Clock
from turnlane.settings import (
    AgentSettings,
    AttachmentsTable,
    ChannelSettings,
    ClaudeCodeAgent,
    ClaudeHooksChannel,
    CommandAgent,
    EchoAgent,
    HttpAgent,
    OpenAIAgent,
    Settings,
    SlackChannel,
    TerminalChannel,
    Transcribe,
    TranscriptsAgent,
    WatiChannel,
    WebChannel,
    WebhookChannel,
    WhapiChannel,
    WhatsAppMetaChannel,
    revealed,
)

if TYPE_CHECKING:
    from turnlane.agents.attachments import Attachments, Locate
    from turnlane.agents.openai.options import Options
    from turnlane.agents.transcribe import Transcriber
    from turnlane.channels.slack.options import Options as SlackOptions
    from turnlane.channels.wati import Wati
    from turnlane.channels.whapi import Whapi
    from turnlane.channels.whatsapp_meta import WhatsAppMeta


def parts_of(settings: Settings, clock: Clock) -> tuple[list[Channel], dict[str, Agent]]:
    channels = [_channel(name, channel, settings, clock) for name, channel in settings.channels.items()]
    files = partial(_attachments, settings.attachments, locating(channels))
    agents = {name: _agent(agent, settings, files, clock) for name, agent in settings.agents.items()}
    return channels, agents


def _channel(name: str, settings: ChannelSettings, all_settings: Settings, clock: Clock) -> Channel:
    match settings:
        case WebhookChannel(secret=secret, reply_url=reply_url, lookup_url=lookup_url):
            from turnlane.channels.webhook import Webhook

            key = secret.reveal() if secret else None
            return Webhook(name, secret=key, reply_url=reply_url, lookup_url=lookup_url, clock=clock)
        case WebChannel():
            from turnlane.channels.web import Look, Web

            return Web(
                name,
                public=settings.public,
                look=Look(settings.title, settings.greeting, settings.sites),
                visitor_secret=revealed(settings.visitor_secret),
                signed_only=settings.visitors == "signed",
                file_bytes_max=settings.file_bytes_max,
                files_max=settings.files_max,
                clock=clock,
            )
        case TerminalChannel():
            from turnlane.channels.terminal import Terminal

            return Terminal(name, clock=clock)
        case ClaudeHooksChannel(spool=spool):
            from turnlane.channels.claude_hooks import ClaudeHooks

            return ClaudeHooks(name, spool=spool, machine=all_settings.this_machine)
        case SlackChannel():
            from turnlane.channels.slack import slack

            return slack(name, slack_options(settings), clock=clock)
        case WhatsAppMetaChannel() | WhapiChannel() | WatiChannel():
            return whatsapp_channel(name, settings, clock)


def slack_options(settings: SlackChannel) -> SlackOptions:
    from turnlane.channels.slack.options import ANY_WORKSPACE, Options

    tokens = {ANY_WORKSPACE: settings.token} if settings.token else settings.tokens
    return Options(
        tokens={team: token.reveal() for team, token in tokens.items()},
        app_token=revealed(settings.app_token),
        signing_secret=revealed(settings.signing_secret),
        base_url=settings.base_url,
        users=settings.users,
        rooms=settings.rooms,
        mention_only=settings.mention_only,
        direct=settings.direct,
        streaming=settings.streaming,
        status=settings.status,
        receipt=settings.receipt,
        text_max=settings.text_max,
    )


def whatsapp_channel(
    name: str, settings: WhatsAppMetaChannel | WhapiChannel | WatiChannel, clock: Clock
) -> WhatsAppMeta | Whapi | Wati:
    match settings:
        case WhatsAppMetaChannel():
            from turnlane.channels.whatsapp_meta import WhatsAppMeta

            return WhatsAppMeta(
                name,
                token=settings.token.reveal(),
                app_secret=settings.app_secret.reveal(),
                verify_token=settings.verify_token.reveal(),
                base_url=settings.base_url,
                users=settings.users,
                rooms=settings.rooms,
                typing=settings.typing,
                text_max=settings.text_max,
                clock=clock,
            )
        case WhapiChannel():
            from turnlane.channels.whapi import Whapi

            return Whapi(
                name,
                token=settings.token.reveal(),
                secret=revealed(settings.secret),
                base_url=settings.base_url,
                users=settings.users,
                rooms=settings.rooms,
                typing=settings.typing,
                text_max=settings.text_max,
                clock=clock,
            )
        case WatiChannel():
            from turnlane.channels.wati import Wati

            return Wati(
                name,
                token=revealed(settings.token),
                passkey=revealed(settings.passkey),
                base_url=settings.base_url,
                number=settings.number,
                users=settings.users,
                text_max=settings.text_max,
                clock=clock,
            )


def _agent(
    settings: AgentSettings, all_settings: Settings, attachments: Callable[[], Attachments], clock: Clock
) -> Agent:
    match settings:
        case EchoAgent():
            from turnlane.agents.echo import Echo

            return Echo()
        case CommandAgent(command=argv, cwd=cwd, env=env, sessions=sessions):
            from turnlane.agents.command import Command

            shown = {name: value.reveal() for name, value in env.items()}
            return Command(argv, cwd=cwd, env=shown, local_sessions=sessions == "local")
        case ClaudeCodeAgent():
            from turnlane.agents.claude_code.agent import ClaudeCode

            return ClaudeCode(settings.options, attachments=attachments())
        case HttpAgent(url=url, headers=headers, timeout=timeout):
            from turnlane.agents.http import Http

            seconds = timeout.ms / 1000 if timeout else None
            return Http(
                url, headers={name: value.reveal() for name, value in headers.items()}, timeout=seconds or 600.0
            )
        case TranscriptsAgent(file=file):
            from turnlane.agents.transcripts import TranscriptKeeper
            from turnlane.transcripts.store import open_transcripts

            store = open_transcripts(all_settings.backend, None if file is None else Path(file))
            return TranscriptKeeper(store, machine=all_settings.this_machine)
        case OpenAIAgent():
            from turnlane.agents.openai import agent

            return agent(openai_options(settings), api=settings.api, attachments=attachments(), clock=clock)


def openai_options(settings: OpenAIAgent) -> Options:
    from turnlane.agents.openai.options import Options

    return Options(
        model=settings.model,
        api_key=revealed(settings.api_key),
        base_url=settings.base_url,
        instructions=settings.instructions,
        temperature=settings.temperature,
        max_output_tokens=settings.max_output_tokens,
        timeout=settings.timeout.seconds,
        extra=settings.extra,
        history_turns=settings.history_turns,
        history_characters=settings.history_characters,
    )


def locating(channels: Sequence[Channel]) -> Locate | None:
    """Asks those channels whose platforms give their files only to us."""
    private = [channel for channel in channels if isinstance(channel, FileChannel)]

    async def locate(url: str) -> tuple[str, Mapping[str, str]] | None:
        for channel in private:
            if found := await channel.file(url):
                return found.url, found.headers
        return None

    return locate if private else None


def _attachments(settings: AttachmentsTable, locate: Locate | None) -> Attachments:
    from turnlane.agents.attachments import Attachments

    return Attachments(
        hosts=settings.hosts,
        file_bytes_max=settings.file_bytes_max,
        total_bytes_max=settings.total_bytes_max,
        timeout=settings.timeout.seconds,
        transcriber=_transcriber(settings.transcribe) if settings.transcribe.is_wanted else None,
        locate=locate,
    )


def _transcriber(settings: Transcribe) -> Transcriber:
    from turnlane.agents.transcribe import ByCommand, ByService

    if settings.command is not None:
        return ByCommand(settings.command)
    return ByService(settings.url or "", model=settings.model or "", api_key=revealed(settings.api_key))
