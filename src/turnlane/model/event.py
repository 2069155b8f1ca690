"""Facts that happened, for logs, metrics, the console and the story of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from turnlane.model.value import value

Fact = str | int | float | bool | None

ACTION_CHARACTERS_MAX = 200
"""Of what an operator did, as `operator.acted` tells it."""


@value
class Event:
    """One fact. What is decided in the store is written down there with the decision itself."""

    name: str
    """One of `EVENTS`."""
    at: int
    conversation: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)


EVENTS: Mapping[str, str] = {
    "message.accepted": "A message was stored. message, seq, pending",
    "message.heard": "Somebody of the business spoke; it is kept for the agent. message, seq, role",
    "message.duplicate": "A message came again and changed nothing. message",
    "message.refused": "A message was stored as refused: too many wait, a turn runs, or they come too fast. first, "
    "last, cause",
    "message.dropped": "The oldest message that waited was dropped for a new one. seq, pending",
    "command.obeyed": "A chat command was obeyed; no agent saw it. command, message, seq",
    "turn.started": "A worker leased the lane and runs the agent. turn, attempt, epoch, worker, messages, waited_ms",
    "turn.answered": "The answer was committed. turn, attempt, epoch, worker, deliveries, input_tokens, output_tokens, "
    "took_ms",
    "turn.retried": "The run failed; the same batch is due again. turn, attempt, epoch, worker, cause, retry_at",
    "turn.released": "The run was given back without blame. turn, attempt, epoch, worker",
    "turn.lost": "The worker of a run was lost; the same batch is due again. turn, attempt, epoch, worker",
    "turn.dead_lettered": "The batch was given up on and kept. turn, attempt, cause",
    "turn.superseded": "The run was cancelled for what was said meanwhile. turn, attempt, epoch, worker, set_aside, "
    "cause",
    "turn.asked": "The run stopped to wait for an answer; the turn starts again with it. turn, attempt, epoch, worker",
    "question.asked": "A turn asks the person. turn, number, delivery, expires_at",
    "question.answered": "A question has its answer; without `by`, nobody gave one, or was asked. turn, number, by",
    "turn.fenced": "A stale holder tried to write; nothing was changed. turn, epoch, worker",
    "deadletter.retried": "A dead letter's messages wait again, in these places, to be run anew. turn, first, last",
    "deadletter.dropped": "An operator dropped a dead letter; it is not kept any longer. turn",
    "stopping.failed": "A run was told to stop so many seconds ago, and goes on; it is told again, this is said once a "
    "run. kind, number, seconds, cause",
    "steering.failed": "The agent failed to take what was said meanwhile; it waits for the next turn. turn, cause",
    "preview.failed": "What there is of an answer could not be shown; the answer itself is not touched. turn, cause",
    "indication.failed": "That somebody is at work could not be shown; said once, until it works again. turn, cause",
    "delivery.started": "A worker leased the delivery and sends it. delivery, seq, attempt, epoch, worker",
    "delivery.sent": "The platform has the delivery. delivery, seq, turn, attempt, receipt, waited_ms",
    "delivery.retried": "A sending failed; it is due again, in its place. seq, attempt, epoch, worker, cause, retry_at",
    "delivery.released": "A sending was given back without blame. seq, attempt, epoch, worker",
    "delivery.lost": "The worker of a sending was lost; the delivery is due again. seq, attempt, epoch, worker",
    "delivery.failed": "The delivery was given up on and kept. seq, attempt, cause",
    "delivery.fenced": "A stale holder tried to settle; nothing was changed. seq, epoch, worker",
    "delivery.reported": "The platform told more of a delivery that it has: delivered, read. delivery, seq, state",
    "outbox.resent": "A delivery that was given up on waits again, in this place. delivery, seq",
    "outbox.dropped": "An operator decided that a delivery is not sent. delivery, seq",
    "schedule.set": "A schedule was added or changed: by the settings file or an operator. schedule, by, next_at",
    "schedule.removed": "A schedule was removed. schedule",
    "schedule.fired": "The prompt of a schedule was said in its conversation. schedule, due_at, seq",
    "schedule.missed": "Due times from the first to now were passed over, as `missed` says. schedule, first_at, now_at",
    "tick.released": "A due schedule was given back without blame. tick, attempt, epoch, worker",
    "tick.lost": "The worker that held a due schedule was lost; another takes it. tick, attempt, epoch, worker",
    "tick.fenced": "A stale holder tried to fire a schedule; nothing was changed. tick, epoch, worker",
    "conversation.gone": "Nothing can be sent there any more; what waited is kept as failed. cause, failed",
    "account.held": "The platform asked for patience; no worker sends for this account until then. account, until",
    "lane.full": "More messages wait than max_pending. pending, max_pending",
    "lane.parked": "Nobody can run the lane; it waits for an operator. kind, cause",
    "lane.unparked": "An operator let the lane go on. kind",
    "lane.told": "An operator set what becomes of messages that come while a turn runs. on_busy",
    "lane.paused": "The lane was paused: by an operator, a command, or somebody of the business. kind, by, until",
    "lane.resumed": "The lane was resumed: by an operator, a command, or time. kind, by",
    "session.awaited": "The lane is left to the machine that holds its session, at most until then. machine, until",
    "session.began": "An agent began a session; what it spends is counted from zero. turn, agent, why, dropped_tokens",
    "session.reused": "A turn goes on with the stored session; `known`: without asking its agent. agent, known",
    "session.checked": "An agent was asked what has become of a session: alive, empty or gone. agent, state",
    "session.unchecked": "An agent could not tell; the turn goes on with the session. agent, cause",
    "session.forgotten": "The next turn begins a session of its own. by",
    "session.moved": "The turn runs on another machine than the one that holds its session. turn, machine, to",
    "profile.enriched": "A platform was asked about a person; `found`: it knows them. channel, user, found",
    "profile.unenriched": "A platform could not be asked about a person. channel, user, cause",
    "profile.fallback": "Nobody can look up who writes: turns go on without. Said once, until it works again. cause",
    "activity.untold": "What people did could not be reported; it is tried again, unless the process ends. cause",
    "budget.warned": "So much of a budget is used that its operator should know; said once a day. budget, whose, "
    "tokens, cost, share",
    "budget.stopped": "A turn did not start, as a budget is used up; it waits. budget, whose, tokens, cost, share",
    "lane.stopped": "All that was said and not answered was set aside, so many messages. messages",
    "lane.freed": "Whoever ran a turn that others had ended let go of the lane; what waits may start. epoch, worker",
    "lane.typing": "The person is typing: what gathers waits for quiet anew, until then. ready_at",
    "lane.hurried": "An operator let the batch start at once that waited for a retry. kind",
    "worker.joined": "A worker may claim lanes. worker, machine",
    "worker.left": "A worker said goodbye. worker",
    "worker.lost": "A worker's lease lapsed; its lanes are taken back. worker",
    "lanes.recovered": "A worker took back lanes whose workers are lost; `at_start`: they were held when it came. "
    "worker, lanes, at_start",
    "alert.raised": "Something needs an operator; said once, until it is over. alert, severity, value, threshold, text",
    "alert.cleared": "What needed an operator is over. alert, severity, value, threshold, text",
    "alert.untold": "An alert could not be told to its web hook; it is tried again, unless newer ones crowd it out. "
    "alert, cause",
    "store.waiting": "The store does not answer yet; this process starts once it does, or gives up in so many seconds. "
    "cause, seconds",
    "store.unavailable": "The store does not answer; nothing is lost, and it is asked again. cause",
    "store.available": "The store answers, or does again, after so many seconds. seconds",
    "store.copied": "What is before happened in another store, and was copied from there. source",
    "settings.changed": "A setting was stored for all processes; without a value, it is stored no longer. setting, "
    "value, by",
    "settings.applied": "This process goes on with what is stored: these are new, other or gone. settings",
    "settings.ignored": "A stored setting is not in force in this process, as it does not fit. setting, cause",
    "operator.acted": "An operator changed something: over the API, in the console, or by the command line. action, "
    "by, from, status",
    "login.accepted": "Somebody logged in to the console. from, role",
    "login.refused": "Somebody gave a wrong token: in the form of the login, or a header. from, way",
    "server.ready": "Requests are answered. url",
    "server.draining": "Told to stop: running turns finish, new ones wait for the next start. seconds",
    "hook.received": "A web hook was answered. channel, status, accepted, duplicates",
    "hook.ignored": "Something that a platform told is no message to us. channel, why, count",
    "hook.aside": "A platform told something that nobody here can read; it is kept to be looked at. channel, why, body",
    "hook.refused": "A web hook was refused and nothing was stored. channel, status, cause",
}
"""Every name that may occur, with what it means and the facts it carries."""


FACTS: Mapping[str, tuple[str, ...]] = {
    name: tuple(text.rpartition(". ")[2].split(", ")) for name, text in EVENTS.items()
}
"""The names of an event's facts, in the order of the table."""

Noted = tuple[Fact, ...]
"""An event before anybody asks for it: its name, its conversation, and its facts in the order of the table."""


def event_of(noted: Sequence[Fact], at: int) -> Event:
    return _NotedEvent(noted, at)


class _NotedEvent(Event):
    """Whose facts get their names when somebody asks for them: most listeners only count, by its name."""

    __slots__ = ("_noted",)

    def __init__(self, noted: Sequence[Fact], at: int) -> None:
        name, conversation = noted[:2]
        assert isinstance(name, str) and (conversation is None or isinstance(conversation, str))
        self.name, self.at, self.conversation = name, at, conversation  # type: ignore[misc]  # the value is made here
        self._noted = noted

    @property
    def facts(self) -> Mapping[str, Fact]:
        return dict(zip(FACTS[self.name], self._noted[2:], strict=True))
