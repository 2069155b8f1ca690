"""Events in words, for whoever reads the log: one phrase an event, made of its facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from turnlane.model.event import Fact

VALUE_CHARACTERS_MAX = 200
"""Of one value in a line for people. Machines get all of it."""
BETWEEN = " · "

PHRASES: Mapping[str, str] = {
    "message.accepted": "message {message} stored · {pending} waiting",
    "message.heard": "{role} said {message}; the agent will know",
    "message.duplicate": "message {message} came again; nothing changed",
    "message.refused": "messages {first} to {last} refused: {cause}",
    "message.dropped": "the oldest message (place {seq}) dropped for a new one · {pending} waiting",
    "command.obeyed": "{command} obeyed · {message}",
    "turn.started": "turn {turn} begins · {messages:message|messages} · waited {waited_ms} · attempt {again}",
    "turn.answered": "answered turn {turn} in {took_ms} · {deliveries:delivery|deliveries} · {tokens:token|tokens} · "
    "attempt {again}",
    "turn.retried": "turn {turn} failed, tries again at {retry_at} · attempt {attempt} · {cause}",
    "turn.released": "turn {turn} given back, without blame · attempt {again}",
    "turn.lost": "worker {worker} was lost in turn {turn}; another runs it again · attempt {again}",
    "turn.dead_lettered": "gave up on turn {turn}, kept as a dead letter · attempt {attempt} · {cause}",
    "turn.superseded": "turn {turn} cancelled for what was said meanwhile · its messages are set aside: {set_aside} · "
    "{cause} · attempt {again}",
    "turn.asked": "turn {turn} waits for the person · attempt {again}",
    "turn.fenced": "worker {worker} came too late with turn {turn}; nothing changed",
    "question.asked": "turn {turn} asks its question {number} · answer by {expires_at}",
    "question.answered": "question {number} of turn {turn} is closed · answered by {by}",
    "deadletter.retried": "the dead letter of turn {turn} waits again, as messages {first} to {last}",
    "deadletter.dropped": "the dead letter of turn {turn} dropped by an operator",
    "stopping.failed": "{kind} {number} was told to stop {seconds} s ago and goes on; it is told again · {cause}",
    "steering.failed": "turn {turn} could not be told what was said meanwhile; it waits for the next · {cause}",
    "preview.failed": "what there is of turn {turn} could not be shown; its answer is not touched · {cause}",
    "indication.failed": "that somebody works on turn {turn} could not be shown · {cause}",
    "delivery.started": "sends delivery {seq} · attempt {again}",
    "delivery.sent": "sent delivery {seq} · turn {turn} · waited {waited_ms} · receipt {receipt} · attempt {again}",
    "delivery.retried": "sending delivery {seq} failed, tries again at {retry_at} · attempt {attempt} · {cause}",
    "delivery.released": "delivery {seq} given back, without blame · attempt {again}",
    "delivery.lost": "worker {worker} was lost while it sent delivery {seq}; another goes on · attempt {again}",
    "delivery.failed": "gave up on delivery {seq}, kept in the outbox · attempt {attempt} · {cause}",
    "delivery.fenced": "worker {worker} came too late with delivery {seq}; nothing changed",
    "delivery.reported": "delivery {seq} is {state}, says the platform",
    "outbox.resent": "delivery {delivery} waits again, in place {seq}",
    "outbox.dropped": "delivery {seq} ({delivery}) dropped by an operator",
    "schedule.set": "schedule {schedule} set by {by} · next at {next_at}",
    "schedule.removed": "schedule {schedule} removed",
    "schedule.fired": "schedule {schedule} spoke, due at {due_at}",
    "schedule.missed": "schedule {schedule} passed over what was due from {first_at} to {now_at}",
    "tick.released": "schedule {tick} given back, without blame · attempt {again}",
    "tick.lost": "worker {worker} was lost with schedule {tick}; another takes it · attempt {again}",
    "tick.fenced": "worker {worker} came too late with schedule {tick}; nothing changed",
    "conversation.gone": "nothing can be sent there any more · {failed} kept as failed · {cause}",
    "account.held": "the platform asks for patience: nothing is sent for {account} until {until}",
    "lane.full": "{pending} messages wait; max_pending is {max_pending}",
    "lane.parked": "parked, waits for an operator · {kind} · {cause}",
    "lane.unparked": "goes on, by an operator · {kind}",
    "lane.told": "messages that come during a turn: {on_busy}",
    "lane.paused": "paused · {kind} · by {by} · until {until}",
    "lane.resumed": "resumed · {kind} · by {by}",
    "lane.hurried": "starts at once, by an operator · {kind}",
    "lane.stopped": "stopped: {messages:message|messages} set aside unanswered",
    "lane.freed": "let go by worker {worker}; what waits may start",
    "lane.typing": "the person is typing; waits until {ready_at}",
    "lanes.recovered": "{worker} took back {lanes:lane|lanes} of lost workers · held when it came: {at_start}",
    "alert.raised": "{alert} ({severity}): {text} · {value} now, the limit is {threshold}",
    "alert.cleared": "{alert} is over ({severity}): {text} · {value} now, the limit is {threshold}",
    "alert.untold": "{alert} could not be told to its web hook · {cause}",
    "session.awaited": "left to machine {machine}, which holds its session · until {until}",
    "session.began": "{agent} began a session with turn {turn} · {why} · {dropped_tokens:token|tokens} left behind",
    "session.reused": "{agent} goes on with its session · known without asking: {known}",
    "session.checked": "the session of {agent} is {state}",
    "session.unchecked": "{agent} could not tell of its session; the turn goes on with it · {cause}",
    "session.forgotten": "the next turn begins a session of its own · by {by}",
    "session.moved": "turn {turn} runs on {to}; its session is on {machine}",
    "profile.enriched": "asked {channel} about {user} · known there: {found}",
    "profile.unenriched": "could not ask {channel} about {user} · {cause}",
    "profile.fallback": "nobody can look up who writes; turns go on without · {cause}",
    "activity.untold": "what people did could not be reported; tried again · {cause}",
    "budget.warned": "{share} of the {budget} budget of {whose} used · {tokens:token|tokens} · cost {cost}",
    "budget.stopped": "the {budget} budget of {whose} is used up ({share}); its turn waits · {tokens:token|tokens} · "
    "cost {cost}",
    "worker.joined": "{worker} joined · on {machine}",
    "worker.left": "{worker} left",
    "worker.lost": "{worker} was lost; its lanes are taken back",
    "store.waiting": "does not answer yet; gives up in {seconds} s · {cause}",
    "store.unavailable": "does not answer; nothing is lost, and it is asked again · {cause}",
    "store.available": "answers, after {seconds} s",
    "store.copied": "what is before happened in another store, copied from {source}",
    "settings.changed": "{setting} changed · by {by} · now {value}",
    "settings.applied": "goes on with {settings}",
    "settings.ignored": "{setting} as stored does not fit here · {cause}",
    "operator.acted": "{by} did {action} · from {from} · answered {status}",
    "login.accepted": "a {role} logged in · from {from}",
    "login.refused": "a wrong token in the {way} · from {from}",
    "server.ready": "answers requests at {url}; operators look at {url}console",
    "server.draining": "stops: running turns may finish within {seconds} s",
    "hook.received": "web hook answered {status} · {accepted} new · {duplicates} known",
    "hook.ignored": "{count} of what was told is no message to us: {why}",
    "hook.aside": "told something that nobody here can read, kept to be looked at: {why} · "
    "{characters:character|characters} · {body}",
    "hook.refused": "web hook refused with {status} · {cause}",
}
"""Parts between dots that speak of a fact that is not there are left out. One without a phrase is told by its facts."""

FOR_MACHINES = frozenset({"epoch", "worker", "attempt", "seq", "delivery", "input_tokens", "output_tokens"})
"""Facts that a phrase may leave out; lines for machines have them all."""

_FACT = re.compile(r"\{(\w+)(?::([^|}]+)\|([^}]+))?\}")
_Part = tuple[str, Sequence[tuple[str, str, str]]]
"""The words, and for each gap in them the fact that fills it, with what it counts: one, and several."""


def _part(text: str) -> _Part:
    return _FACT.sub("%s", text.replace("%", "%%")), _FACT.findall(text)


_PARTS = {event: [_part(text) for text in phrase.split(BETWEEN)] for event, phrase in PHRASES.items()}


def in_words(event: str, facts: Mapping[str, Fact], at: int) -> str:
    """What happened, in one line that nothing in it can break."""
    if event not in _PARTS:
        return BETWEEN.join(f"{name} {told(name, fact, at)}" for name, fact in facts.items() if fact is not None)
    known = {**facts, **dict(_derived(facts))}
    return BETWEEN.join(_filled(_PARTS[event], known, at)) or event


def _filled(parts: Iterable[_Part], facts: Mapping[str, Fact], at: int) -> Iterator[str]:
    for words, gaps in parts:
        if all(facts.get(name) is not None for name, _, _ in gaps):
            yield words % tuple([_counted(name, facts[name], one, several, at) for name, one, several in gaps])


def _counted(name: str, fact: Fact, one: str, several: str, at: int) -> str:
    text = told(name, fact, at)
    return text if not one else f"{text} {one if fact == 1 else several}"


def _derived(facts: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """How much was used in all, and the attempt if it is not the first."""
    spent = [facts.get(name) for name in ("input_tokens", "output_tokens")]
    if tokens := sum(each for each in spent if isinstance(each, int)):
        yield "tokens", tokens
    attempt = facts.get("attempt")
    if isinstance(attempt, int) and attempt > 1:
        yield "again", attempt


def told(name: str, fact: object, at: int) -> str:
    """A fact as a person says it, by the unit in its name."""
    if isinstance(fact, str):
        return printable(fact)
    match fact:
        case bool():
            return "yes" if fact else "no"
        case int() | float() if name.endswith("_ms"):
            return duration(fact / 1_000)
        case int() if name.endswith("_at") or name == "until":
            return moment(fact, at)
        case float() if name == "share":
            return f"{fact:.0%}"
        case float():
            return f"{fact:g}"
    return printable(str(fact))


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{round(seconds * 1_000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3_600:.1f} h"


def moment(then: int, now: int) -> str:
    """By the clock on the wall, with its date if that is another day's."""
    try:
        day, today = local(then), local(now)
    except (ValueError, OverflowError, OSError):  # further away than a calendar goes
        return str(then)
    return f"{day:%H:%M:%S}" if day.date() == today.date() else f"{day:%Y-%m-%d %H:%M:%S}"


def local(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC).astimezone()


def printable(text: str, most: int | None = VALUE_CHARACTERS_MAX) -> str:
    """On one line, with whatever could break or disguise it written out, and cut where it is too long to be read."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else _escaped(each) for each in " ".join(text.split("\n")))
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) != 0x7F else "\\u007f"
