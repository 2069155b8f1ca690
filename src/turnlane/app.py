"""Bot: the only module that knows every part; it builds and connects them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from turnlane import event_loop
from turnlane.agents.base import Agent
from turnlane.backends.base import Backend, open_backend
from turnlane.channels.base import Channel, HookChannel, ListeningChannel, Received
from turnlane.clock import Clock, SystemClock
from turnlane.errors import InvalidSettings, NotFound
from turnlane.flow.reach import reach
from turnlane.flow.receive import receive
from turnlane.flow.remember import Memory
from turnlane.flow.schedule import keep
from turnlane.flow.spending import Spending
from turnlane.flow.worker import Retention, Worker
from turnlane.live_settings import LiveSettings
from turnlane.model.event import Event, Fact
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.people.activity import Activity
from turnlane.people.profiles import Profiles
from turnlane.people.report import ReportHook
from turnlane.settings import (
    AgentSettings,
    AttachmentsTable,
    ChannelSettings,
    ClaudeCodeAgent,
    CommandAgent,
    EchoAgent,
    HttpAgent,
    OpenAIAgent,
    Secret,
    Settings,
    TerminalChannel,
    Transcribe,
    WebChannel,
    WebhookChannel,
    budgets_of,
    limits_of,
    load,
    policy_for,
    policy_of,
    prices_of,
    schedules_of,
)

if TYPE_CHECKING:
    from turnlane.agents.attachments import Attachments
    from turnlane.agents.openai.options import Options
    from turnlane.agents.transcribe import Transcriber

REPLY_AGENT = "reply"
"""The name of the agent that `@bot.reply` makes."""

LOOK_SECONDS = 1.0
GARBAGE_BEFORE_A_LOOK = 20_000
LISTENER = "turnlane-listener"
FOLLOWER = "turnlane-settings"

F = TypeVar("F", bound=Callable[..., object])
Listener = Callable[[Sequence[Event]], None]


class Bot:
    """Channels, agents and a backend, connected.

    `Bot(Terminal(), backend="sqlite:///hello.db")` makes one in code; `Bot.from_settings(settings)` from turnlane.toml.
    Values that are not given come from the environment (`TURNLANE_…`) and the defaults.
    """

    def __init__(
        self,
        *channels: Channel,
        backend: str | None = None,
        agents: Mapping[str, Agent] | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or load(None, os.environ, {"backend": backend})
        self.clock = clock or SystemClock()
        self.channels: dict[str, Channel] = {channel.name: channel for channel in channels}
        if len(self.channels) < len(channels):
            raise InvalidSettings("two channels have the same name; give each a name of its own")
        self.agents: dict[str, Agent] = dict(agents or {})
        self.update_user_secret = _revealed(self.settings.update_user_secret)
        self.operator_token = _revealed(self.settings.operator_token)
        self.backend: Backend = open_backend(
            backend or self.settings.backend, self.clock, idle_after_ms=self.settings.lanes.idle_after.ms
        )
        self._listeners: list[Listener] = []
        self.people = Profiles(backend=self.backend, clock=self.clock, channels=self.channels, emit=self.emit)
        self._activity = self._reporting()
        self._memory = Memory(clock=self.clock, emit=self.emit)
        self._spending = Spending(backend=self.backend, clock=self.clock, emit=self.emit)
        self._apply(self.settings)
        self.live = LiveSettings(self.backend, self.settings, self._go_on_with, self._say)
        self._worker: Worker | None = None
        self._stopping = asyncio.Event()

    def _apply(self, settings: Settings) -> None:
        """Go on with these: with the next claim, and for the messages from now on."""
        self.settings = settings
        self.backend.limits = limits_of(settings)
        self.people.cache.most, self.people.cache.seconds = settings.people.cached, settings.people.cached_for.seconds
        if self._activity is not None:
            self._activity.quiet_ms = settings.activity.quiet.ms
            self._activity.at_once_tokens = settings.activity.at_once
        self._memory.valid_ms = settings.sessions.valid_for.ms
        self._spending.budgets, self._spending.prices = budgets_of(settings), prices_of(settings)
        self._policy = cache(self._policy_for)
        self._commands = settings.commands.by_word

    def _reporting(self) -> Activity | None:
        given = self.settings.activity
        if given.url is None:
            return None
        return Activity(ReportHook(given.url, secret=_revealed(given.secret)), clock=self.clock, emit=self.emit)

    async def _go_on_with(self, settings: Settings) -> None:
        self._apply(settings)
        await self._keep_schedules()

    async def _keep_schedules(self) -> None:
        await keep(self.backend, schedules_of(self.settings), self.policy_for)

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None) -> Bot:
        clock = clock or SystemClock()
        channels = [_channel(name, channel, clock) for name, channel in settings.channels.items()]
        agents = {name: _agent(agent, settings.attachments, clock) for name, agent in settings.agents.items()}
        return cls(*channels, agents=agents, settings=settings, clock=clock)

    def reply(self, function: F) -> F:
        """Decorator: this function answers every turn. It may be async or not, and return text, a Reply, or pieces."""
        from turnlane.agents.function import Function

        if self.agents:
            raise InvalidSettings("a bot has one reply function, or agents, but not both; remove one of them")
        self.agents[REPLY_AGENT] = Function(function)
        return function

    # What arrives

    async def receive(self, messages: Sequence[Message]) -> Received:
        """Store the messages. Returns only after they are durable."""
        return await receive(messages, backend=self.backend, policy_for=self._policy, commands=self._commands)

    def policy_for(self, channel: str) -> Policy:
        """What a message of this channel stamps on its conversation. NotFound if there is no such channel."""
        return self._policy(channel)

    def _policy_for(self, channel: str) -> Policy:
        if channel in self.settings.channels and self.settings.routes:
            policy = policy_for(self.settings, channel)
            return policy if policy.agent in self.agents else replace(policy, agent=next(iter(self.agents)))
        if channel not in self.channels:
            raise NotFound(f"no channel is named {channel!r}; known: {', '.join(self.channels) or 'none'}")
        configured = self.settings.channels.get(channel)
        lanes, takeover = self.settings.lanes, self.settings.takeover
        return policy_of(lanes, takeover, agent=next(iter(self.agents)), tenant=channel, channel=configured)

    # What happened

    def subscribe(self, listener: Listener) -> None:
        """Hand every fact of this process to `listener`: those of the store, and those of its own."""
        self._listeners.append(listener)
        self.backend.subscribe(listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener([event])

    def _say(self, name: str, **facts: Fact) -> None:
        self.emit(Event(name, self.clock.now(), None, facts))

    # Running

    def run(self, *, serve: bool = True, work: bool = True, sockets: Sequence[socket.socket] | None = None) -> None:
        """Run until SIGINT or SIGTERM, then drain; a second signal stops at once. Nothing is lost either way."""
        from turnlane.observe.log import EventLog, configure

        configure(self.settings.log_format)
        self.subscribe(EventLog())
        tune_collector()
        event_loop.run(self._run_with_signals(serve=serve, work=work, sockets=sockets))

    async def _run_with_signals(self, *, serve: bool, work: bool, sockets: Sequence[socket.socket] | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        async with self.running(serve=serve, work=work, sockets=sockets):
            await self._stopping.wait()

    def stop(self) -> None:
        """Drain and end; called again, at once."""
        if self._stopping.is_set() and self._worker is not None:
            self._worker.stop_now()
        elif not self._stopping.is_set():
            self._stopping.set()
            self._say("server.draining", seconds=self.settings.drain.ms / 1000)

    @asynccontextmanager
    async def running(
        self, *, serve: bool = True, work: bool = True, sockets: Sequence[socket.socket] | None = None
    ) -> AsyncIterator[None]:
        """Everything started; on leaving, everything drained and closed.

        Told to stop while the store does not answer yet, it starts nothing.
        """
        if not self.agents:
            raise InvalidSettings("the bot has nothing to answer with; decorate a function with @bot.reply")
        self._stopping = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []
        try:
            if await self._has_reached_store():
                await self._start(tasks, serve=serve, work=work, sockets=sockets)
            yield
        finally:
            self._stopping.set()
            if self._worker is not None:
                self._worker.stop()
            try:
                await _all_ended(tasks)
            finally:
                await self._close()

    async def _has_reached_store(self) -> bool:
        """False: told to stop while it did not answer."""
        within = self.settings.backend_wait.seconds
        reaching = asyncio.create_task(reach(self._open, within=within, clock=self.clock, emit=self.emit))
        await _first(reaching, self._stopping)
        if reaching.done():
            return True
        reaching.cancel()
        await asyncio.wait([reaching])
        return False

    async def _open(self) -> None:
        """Done again after a failure, whichever part of it failed."""
        await self.backend.open()
        await self.live.look()
        await self._keep_schedules()

    async def _start(
        self, tasks: list[asyncio.Task[None]], *, serve: bool, work: bool, sockets: Sequence[socket.socket] | None
    ) -> None:
        """Each part becomes one of these, so that it is ended also if the next one cannot start."""
        tasks.append(asyncio.create_task(self.live.follow(), name=FOLLOWER))
        tasks.append(asyncio.create_task(self.people.follow(), name=FOLLOWER))
        if self._activity is not None:
            tasks.append(asyncio.create_task(self._activity.run(), name=FOLLOWER))
        if serve and self._is_served:
            tasks.append(await self._start_server(sockets))
        if work:
            tasks.append(self._start_worker())
        if listening := [channel for channel in self.channels.values() if isinstance(channel, ListeningChannel)]:
            tasks.append(asyncio.create_task(self._listen(listening), name=LISTENER))
        for task in tasks:
            task.add_done_callback(self._on_end)

    @property
    def _is_served(self) -> bool:
        return any(isinstance(channel, HookChannel) for channel in self.channels.values())

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A part that ends, ends the whole: half a bot would only look alive."""
        self._stopping.set()

    def _start_worker(self) -> asyncio.Task[None]:
        settings = self.settings
        self._worker = Worker(
            backend=self.backend,
            agents=self.agents,
            channels=self.channels,
            clock=self.clock,
            emit=self.emit,
            turns_at_once=settings.turns_at_once,
            sends_at_once=settings.sends_at_once,
            term_ms=settings.lanes.lease.ms,
            machine=settings.machine or socket.gethostname(),
            drain_seconds=settings.drain.ms / 1000,
            spending=self._spending,
            memory=self._memory,
            people=self.people,
            activity=self._activity,
            retention=Retention(
                settings.retention.messages.ms, settings.retention.events.ms, settings.retention.dedupe_for.ms
            ),
        )
        return asyncio.create_task(self._worker.run(), name="turnlane-worker")

    async def _start_server(self, sockets: Sequence[socket.socket] | None) -> asyncio.Task[None]:
        from turnlane.http.listen import bind
        from turnlane.http.server import create_app, serve
        from turnlane.observe.metrics import Metrics

        metrics = Metrics(self.channels)
        self.subscribe(metrics)
        app = create_app(self, listen_host=self.settings.listen.host, metrics=metrics)
        bound = list(sockets or [bind(self.settings.listen)])
        host, port = bound[0].getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        ready = asyncio.Event()
        task = asyncio.create_task(serve(app, bound, stop=self._stopping, ready=ready.set), name="turnlane-server")
        await _first(task, ready)
        self._say("server.ready", url=url)
        return task

    async def _listen(self, channels: Sequence[ListeningChannel]) -> None:
        """Until the last channel has no more to say. A bot that serves nobody else then ends, once all is answered."""
        await asyncio.gather(*(channel.listen(self.receive) for channel in channels))
        if self._is_served:
            await self._stopping.wait()
        else:
            await self._all_answered()

    async def _all_answered(self) -> None:
        while True:
            counts = await self.backend.counts()
            if not counts.messages_waiting and not counts.deliveries_waiting:
                return
            await self.backend.changed(LOOK_SECONDS)

    async def _close(self) -> None:
        if self._activity is not None:
            await self._activity.close()
        for channel in self.channels.values():
            await channel.close()
        for agent in self.agents.values():
            await agent.close()
        await self.backend.close()


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def tune_collector() -> None:
    """Look for cycles less often: a message makes hundreds of objects and no cycle, and looking took a tenth of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_BEFORE_A_LOOK, 20, 50)


async def _first(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for one of them; if the task fails, so does the caller."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task


async def _all_ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all, then raise what the first of them raised. Who listens or follows never ends, and is cut off."""
    for task in tasks:
        if task.get_name() in {LISTENER, FOLLOWER}:
            task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _channel(name: str, settings: ChannelSettings, clock: Clock) -> Channel:
    match settings:
        case WebhookChannel(secret=secret, reply_url=reply_url, lookup_url=lookup_url):
            from turnlane.channels.webhook import Webhook

            key = secret.reveal() if secret else None
            return Webhook(name, secret=key, reply_url=reply_url, lookup_url=lookup_url, clock=clock)
        case WebChannel(public=public):
            from turnlane.channels.web import Web

            return Web(name, public=public)
        case TerminalChannel():
            from turnlane.channels.terminal import Terminal

            return Terminal(name, clock=clock)


def _agent(settings: AgentSettings, files: AttachmentsTable, clock: Clock) -> Agent:
    match settings:
        case EchoAgent():
            from turnlane.agents.echo import Echo

            return Echo()
        case CommandAgent(command=argv, cwd=cwd, env=env, sessions=sessions):
            from turnlane.agents.command import Command

            revealed = {name: value.reveal() for name, value in env.items()}
            return Command(argv, cwd=cwd, env=revealed, local_sessions=sessions == "local")
        case ClaudeCodeAgent():
            from turnlane.agents.claude_code.agent import ClaudeCode

            return ClaudeCode(settings.options, attachments=_attachments(files))
        case HttpAgent(url=url, headers=headers, timeout=timeout):
            from turnlane.agents.http import Http

            seconds = timeout.ms / 1000 if timeout else None
            return Http(
                url, headers={name: value.reveal() for name, value in headers.items()}, timeout=seconds or 600.0
            )
        case OpenAIAgent():
            from turnlane.agents.openai import agent

            return agent(openai_options(settings), api=settings.api, attachments=_attachments(files), clock=clock)


def openai_options(settings: OpenAIAgent) -> Options:
    from turnlane.agents.openai.options import Options

    return Options(
        model=settings.model,
        api_key=_revealed(settings.api_key),
        base_url=settings.base_url,
        instructions=settings.instructions,
        temperature=settings.temperature,
        max_output_tokens=settings.max_output_tokens,
        timeout=settings.timeout.seconds,
        extra=settings.extra,
        history_turns=settings.history_turns,
        history_characters=settings.history_characters,
    )


def _attachments(settings: AttachmentsTable) -> Attachments:
    from turnlane.agents.attachments import Attachments

    return Attachments(
        hosts=settings.hosts,
        file_bytes_max=settings.file_bytes_max,
        total_bytes_max=settings.total_bytes_max,
        timeout=settings.timeout.seconds,
        transcriber=_transcriber(settings.transcribe) if settings.transcribe.is_wanted else None,
    )


def _transcriber(settings: Transcribe) -> Transcriber:
    from turnlane.agents.transcribe import ByCommand, ByService

    if settings.command is not None:
        return ByCommand(settings.command)
    return ByService(settings.url or "", model=settings.model or "", api_key=_revealed(settings.api_key))
