"""Bot: the only module that knows every part; it connects them, and runs the whole."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from turnlane import event_loop
from turnlane.agents.base import Agent
from turnlane.backends.base import Backend, open_backend
from turnlane.channels.base import Channel, Heard, HookChannel, ListeningChannel, Received
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendUnavailable, InvalidSettings, NotFound
from turnlane.event_loop import happens
from turnlane.flow.flood import Flood
from turnlane.flow.hear import hear
from turnlane.flow.reach import reach
from turnlane.flow.receive import receive
from turnlane.flow.remember import Memory
from turnlane.flow.schedule import keep
from turnlane.flow.spending import Spending
from turnlane.flow.trace import Tracer
from turnlane.flow.worker import Retention, Worker
from turnlane.live_settings import LiveSettings
from turnlane.model.event import Event, Fact
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.observe.alert_hook import AlertHook
from turnlane.observe.alerts import Watch
from turnlane.parts import parts_of
from turnlane.people.activity import Activity
from turnlane.people.profiles import Profiles
from turnlane.people.report import ReportHook
from turnlane.settings import (
    Settings,
    budgets_of,
    limits_of,
    load,
    paces_of,
    paths_of,
    policy_for,
    policy_of,
    prices_of,
    revealed,
    schedules_of,
    secrets_in,
    thresholds_of,
)

if TYPE_CHECKING:
    from turnlane.observe.metrics import Metrics

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
        self.paths = paths_of(self.settings)
        self.update_user_secret = revealed(self.settings.update_user_secret)
        self.operator_token = revealed(self.settings.operator_token)
        self.viewer_token = revealed(self.settings.viewer_token)
        self.proxies = self.settings.proxies
        self.backend: Backend = open_backend(
            backend or self.settings.backend, self.clock, idle_after_ms=self.settings.lanes.idle_after.ms
        )
        self.tracer: Tracer | None = _tracer(self.settings)
        self._set_log_level: Callable[[str], None] = lambda level: None  # until the log is ours
        self._listeners: list[Listener] = []
        self.people = Profiles(backend=self.backend, clock=self.clock, channels=self.channels, emit=self.emit)
        self._activity = self._reporting()
        self._alert_hook = self._alerting()
        self._memory = Memory(clock=self.clock, emit=self.emit)
        self._flood = Flood(self.clock)
        self.alerts = Watch()
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
        self.alerts.thresholds = thresholds_of(settings)
        self._policy = cache(self._policy_for)
        self._commands = settings.commands.by_word
        self._paces = paces_of(settings)
        self._set_log_level(settings.logs.level)

    def _reporting(self) -> Activity | None:
        given = self.settings.activity
        if given.url is None:
            return None
        return Activity(ReportHook(given.url, secret=revealed(given.secret)), clock=self.clock, emit=self.emit)

    def _alerting(self) -> AlertHook | None:
        given = self.settings.alerts
        if given.url is None:
            return None
        secret, machine = revealed(given.secret), self.settings.this_machine
        return AlertHook(given.url, secret=secret, machine=machine, clock=self.clock, emit=self.emit)

    async def _go_on_with(self, settings: Settings) -> None:
        self._apply(settings)
        await self._keep_schedules()

    async def _keep_schedules(self) -> None:
        await keep(self.backend, schedules_of(self.settings), self.policy_for)

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None) -> Bot:
        clock = clock or SystemClock()
        channels, agents = parts_of(settings, clock)
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
        return await receive(
            messages,
            backend=self.backend,
            policy_for=self._policy,
            commands=self._commands,
            too_fast=self._is_too_fast if self._paces else None,
            tracer=self.tracer,
        )

    def _is_too_fast(self, message: Message) -> bool:
        pace = self._paces.get(message.channel)
        return pace is not None and self._flood.is_over(message, pace)

    async def hear(self, channel: str, heard: Heard) -> Received:
        """Take in what a platform told. Returns only after what must not get lost is durable."""
        return await hear(
            channel,
            heard,
            backend=self.backend,
            receive=self.receive,
            emit=self.emit,
            clock=self.clock,
            tracer=self.tracer,
        )

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

    def run(
        self,
        *,
        serve: bool = True,
        work: bool = True,
        sockets: Sequence[socket.socket] | None = None,
        until_idle: float | None = None,
    ) -> None:
        """Run until SIGINT or SIGTERM, then drain; a second signal stops at once. Nothing is lost either way.

        `until_idle`: also ends by itself, once nothing was to do for so many seconds.
        """
        from turnlane.http.listen import PROCESS
        from turnlane.observe.log import EventLog, configure, set_level

        logs = self.settings.logs
        secrets, process = secrets_in(self.settings), os.environ.get(PROCESS)
        configure(self.settings.log_format, logs.level, texts=logs.texts, secrets=secrets, process=process)
        self._set_log_level = set_level
        self.subscribe(EventLog(texts=logs.texts))
        tune_collector()
        try:
            event_loop.run(self._run_with_signals(serve=serve, work=work, sockets=sockets, until_idle=until_idle))
        finally:
            if self.tracer is not None:
                self.tracer.close()

    async def _run_with_signals(
        self, *, serve: bool, work: bool, sockets: Sequence[socket.socket] | None, until_idle: float | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        async with self.running(serve=serve, work=work, sockets=sockets):
            if until_idle is None:
                await self._stopping.wait()
            else:
                await self._idle(until_idle)
                self.stop()

    async def _idle(self, seconds: float) -> None:
        """Until nothing waited for so long, or told to stop. What comes later waits for the next start."""
        since = self.clock.monotonic()
        while not self._stopping.is_set() and self.clock.monotonic() - since < seconds:
            await happens(self._stopping, within=min(LOOK_SECONDS, seconds))
            try:
                counts = await self.backend.counts()
            except BackendUnavailable:
                continue  # whoever works with it says so; it may have something for us
            if counts.messages_waiting or counts.deliveries_waiting:
                since = self.clock.monotonic()

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
        metrics = self._start_watching(tasks)
        tasks.append(asyncio.create_task(self.live.follow(), name=FOLLOWER))
        tasks.append(asyncio.create_task(self.people.follow(), name=FOLLOWER))
        if self._activity is not None:
            tasks.append(asyncio.create_task(self._activity.run(), name=FOLLOWER))
        if serve and self._is_served:
            tasks.append(await self._start_server(sockets, metrics))
        if work:
            tasks.append(self._start_worker(metrics))
        if listening := [channel for channel in self.channels.values() if isinstance(channel, ListeningChannel)]:
            tasks.append(asyncio.create_task(self._listen(listening), name=LISTENER))
        for task in tasks:
            task.add_done_callback(self._on_end)

    def _start_watching(self, tasks: list[asyncio.Task[None]]) -> Metrics:
        """Count from now on, and tell the operator what is too much."""
        from turnlane.observe.metrics import Metrics
        from turnlane.observe.watcher import Watcher

        metrics = Metrics(self.channels, self.agents, calls=self.backend.counted, lookups=self.people.cache)
        self.subscribe(metrics)
        if self.settings.alerts.enabled:
            watcher = Watcher(
                self.alerts,
                backend=self.backend,
                metrics=metrics,
                clock=self.clock,
                emit=self.emit,
                hears=self._alert_hook,
            )
            tasks.append(asyncio.create_task(watcher.follow(), name=FOLLOWER))
            if self._alert_hook is not None:
                tasks.append(asyncio.create_task(self._alert_hook.run(), name=FOLLOWER))
        return metrics

    @property
    def _is_served(self) -> bool:
        return any(isinstance(channel, HookChannel) for channel in self.channels.values())

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A part that ends, ends the whole: half a bot would only look alive."""
        self._stopping.set()

    def _start_worker(self, metrics: Metrics) -> asyncio.Task[None]:
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
            machine=settings.this_machine,
            drain_seconds=settings.drain.ms / 1000,
            spending=self._spending,
            memory=self._memory,
            people=self.people,
            activity=self._activity,
            on_turn=metrics.note_turn,
            tracer=self.tracer,
            retention=Retention(
                settings.retention.messages.ms, settings.retention.events.ms, settings.retention.dedupe_for.ms
            ),
        )
        return asyncio.create_task(self._worker.run(), name="turnlane-worker")

    async def _start_server(self, sockets: Sequence[socket.socket] | None, metrics: Metrics) -> asyncio.Task[None]:
        from turnlane.http.listen import bind
        from turnlane.http.server import create_app, serve

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
        await asyncio.gather(*(channel.listen(partial(self.hear, channel.name)) for channel in channels))
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
        if self._alert_hook is not None:
            await self._alert_hook.close()
        for channel in self.channels.values():
            await channel.close()
        for agent in self.agents.values():
            await agent.close()
        await self.backend.close()


def _tracer(settings: Settings) -> Tracer | None:
    """None, and nothing imported, unless traces are wanted: by the settings, or by OpenTelemetry's own variables."""
    from turnlane.observe.exporter import follower, is_wanted
    from turnlane.observe.redact import Redactor

    if not is_wanted(settings.traces.enabled, os.environ):
        return None
    clean = Redactor(secrets_in(settings))
    return follower(machine=settings.this_machine, insist=settings.traces.enabled is True, clean=clean)


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
