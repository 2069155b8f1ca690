"""Whether a promise was broken: judged by what people said, what was seen from outside, and the rows of the store."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnlane.clock import SystemClock
from turnlane.testing.chaos.people import People
from turnlane.testing.chaos.rehearsal import seen_in, store_in
from turnlane.testing.chaos.report import Finding, Report
from turnlane.testing.chaos.witness import STOP_SECONDS_MAX, read

CAUSES_SHOWN = 3
TEXT_CHARACTERS_SHOWN = 200
STALL_SECONDS_MAX = 0.3
HUNG_SECONDS_MIN = 5.0
HUNG_TIMES_SLOWEST = 10
"""A run that took so many times as long as the slowest answer would not have answered."""

Fault = tuple[int, float]
"""Whom it hit, and when."""


@dataclass
class Run:
    """One run of an agent, as the witness saw it."""

    conversation: str
    turn: int
    epoch: int
    by: int
    began: float
    ended: float | None = None
    """None: it was killed with its process, or goes on still."""
    how: str = ""
    parts: Sequence[str] = ()
    session: str | None = None
    cause: str = ""
    seconds: float = 0.0
    """How long it went on after it was told to stop."""
    told: float | None = None
    """When it was told to stop."""
    hung: float = 0.0
    """How long it did nothing, until its worker was lost or stopped. 0: it did not."""


@dataclass(frozen=True)
class Taken:
    """One delivery that the witness took."""

    key: str
    conversation: str
    text: str
    sending: str | None


@dataclass(frozen=True)
class Row:
    """A turn that is over."""

    number: int
    first: int
    last: int
    outcome: str
    epoch: int
    cause: str | None


@dataclass(frozen=True)
class Outgoing:
    """A delivery of the store."""

    key: str
    kind: str
    turn: int | None
    part: int
    text: str
    state: str
    in_reply_to: str
    """JSON, as it is stored."""


@dataclass
class Conversation:
    """All that is known of one conversation."""

    key: str
    said: Sequence[str]
    messages: Sequence[tuple[int, str, str | None]]
    """Place, id and outcome of each; without an outcome it has that of its turn."""
    turns: Sequence[Row]
    outbox: Sequence[Outgoing]
    runs: Sequence[Run]
    taken: Sequence[Taken]
    own_channels: bool = False
    """What was sent went through the bot's own channels, which may have broken it on the way."""
    agents_busy: bool = False
    """Some agent still ran when patience was over."""
    left_at: float = math.inf
    """When people had their answers, or no more patience; then the processes are stopped."""
    put_off: str = ""
    """Why its turn waits for longer than anybody was patient, as it does once a budget is used up."""

    def findings(self) -> Iterator[Finding]:
        for promise, broken in (
            ("nothing is lost", self._lost()),
            ("nothing is said twice", self._doubled()),
            ("order is kept", self._reordered()),
            ("one turn at a time", self._overlapping()),
            ("only what was committed is said", self._not_committed()),
            ("sends what it is handed, once" if self.own_channels else "nothing is lost", self._never_arrived()),
            ("sends what it is handed, once", self._sent_twice_at_once()),
            ("answers in time", self._unanswered()),
            ("stops when it is told to", self._went_on()),
            ("keeps conversations apart", self._leaked()),
        ):
            yield from (Finding(promise, f"{self.key}: {what}") for what in broken)

    @property
    def committed(self) -> list[Run]:
        """Those that were answered in the store. A run of another epoch was lost or stopped, and may be stale."""
        epochs = {row.number: row.epoch for row in self.turns if row.outcome == "answered"}
        return [run for run in self.runs if epochs.get(run.turn) == run.epoch]

    def _has_outcome(self, place: int) -> bool:
        return any(row.first <= place <= row.last for row in self.turns)

    @property
    def _waiting(self) -> list[str]:
        """What is behind the last turn that is over, and has no outcome."""
        last = max((row.last for row in self.turns), default=0)
        return [each for place, each, outcome in self.messages if outcome is None and place > last]

    @property
    def _left_waiting(self) -> str:
        waiting = self._waiting
        return f"when patience was over, {waiting[0]} and {len(waiting) - 1} more were not answered"

    @property
    def _was_tried(self) -> bool:
        """The turn that is not over ran, or others still run and it waits for its slot: it is a question of time."""
        over = max((row.number for row in self.turns), default=0)
        return self.agents_busy or any(run.turn > over for run in self.runs)

    # Turnlane's

    def _lost(self) -> Iterator[str]:
        stored = {origin_id for _, origin_id, _ in self.messages}
        yield from (f"{each} was accepted and is not stored" for each in self.said if each not in stored)
        last = max((row.last for row in self.turns), default=0)
        for place, origin_id, outcome in self.messages:
            if outcome is None and place < last and not self._has_outcome(place):
                yield f"{origin_id} was passed over: later messages have an outcome, and it has none"
        if self._waiting and not self._was_tried and not self.put_off:
            yield f"{self._left_waiting}, and no agent was asked"
        kept = {(each.turn, each.part) for each in self.outbox if each.kind == "reply"}
        for run in self.committed:
            missing = [part for part in range(1, len(run.parts) + 1) if (run.turn, part) not in kept]
            yield from (f"part {part} of the answer to turn {run.turn} is not in the outbox" for part in missing)

    def _doubled(self) -> Iterator[str]:
        yield from (f"{each} is stored twice" for each in _repeated([each for _, each, _ in self.messages]))
        replies = [each for each in self.outbox if each.kind == "reply"]
        yield from (
            f"part {part} of turn {turn} leaves under two keys"
            for turn, part in _repeated([(each.turn, each.part) for each in replies])
        )
        answered = [each for reply in replies if reply.part == 1 for each in json.loads(reply.in_reply_to)]
        yield from (f"{each} was answered in two turns" for each in _repeated(answered))

    def _reordered(self) -> Iterator[str]:
        if [each for _, each, _ in self.messages] != list(self.said):
            yield "messages are not stored in the order in which they were accepted"
        numbers = [row.number for row in self.turns]
        if numbers != sorted(set(numbers)):
            yield "the turns are not numbered in their order"
        queued = [(each.turn or 0, each.part) for each in self.outbox if each.kind == "reply"]
        if queued != sorted(queued):
            yield "answers are not queued in the order of their turns and parts"
        place = {each.key: number for number, each in enumerate(self.outbox)}
        arrived = [place[key] for key in dict.fromkeys(each.key for each in self.taken) if key in place]
        if arrived != sorted(arrived):
            yield "answers arrived in another order than they were given"

    def _overlapping(self) -> Iterator[str]:
        runs = sorted(self.committed, key=lambda run: run.turn)
        yield from (f"turn {turn} ran twice under one epoch" for turn in _repeated([run.turn for run in runs]))
        for before, after in pairwise(runs):
            if before.ended is None or after.began < before.ended:
                yield f"turns {before.turn} and {after.turn} ran at the same time"

    def _not_committed(self) -> Iterator[str]:
        outbox = {each.key: each for each in self.outbox}
        parts = {(run.turn, part): text for run in self.committed for part, text in enumerate(run.parts, start=1)}
        for taken in self.taken:
            if taken.key not in outbox:
                yield f"{taken.text!r} was said and is in no outbox"
            elif not self.own_channels and taken.text != outbox[taken.key].text:
                yield f"{taken.text!r} was said, and {outbox[taken.key].text!r} was committed"
        for each in self.outbox:
            said = parts.get((each.turn or 0, each.part), each.text)
            if each.kind == "reply" and said != each.text:
                yield f"turn {each.turn} answered {said!r}, and {each.text!r} is in the outbox"

    def _never_arrived(self) -> Iterator[str]:
        # What was answered only as its process was stopped, nobody is there to send.
        late = {run.turn for run in self.committed if run.ended is not None and run.ended > self.left_at}
        if left := [each.text for each in self.outbox if each.state == "queued" and each.turn not in late]:
            first = left[0][:TEXT_CHARACTERS_SHOWN]
            yield f"when patience was over, {first!r} and {len(left) - 1} more answers were not sent"
        arrived = {each.key for each in self.taken}
        yield from (
            f"{each.text!r} is marked as sent and never arrived"
            for each in self.outbox
            if each.state == "sent" and each.key not in arrived
        )

    # The bot's own

    def _sent_twice_at_once(self) -> Iterator[str]:
        sendings = [each.sending for each in self.taken if each.sending is not None]
        texts = {each.sending: each.text for each in self.taken}
        yield from (f"{texts[each]!r} was sent twice in one sending" for each in _repeated(sendings))

    def _unanswered(self) -> Iterator[str]:
        if self._waiting and self.put_off:
            yield f"{self._left_waiting}: {self.put_off}"
        elif self._waiting and self._was_tried:
            yield f"{self._left_waiting}, although the agent ran"
        for run in self.runs:
            if run.hung:
                yield (
                    f"turn {run.turn} hung for {run.hung:.1f} s, and only that its worker was lost or stopped ended "
                    "it; give whatever it waits for a timeout"
                )

    def _went_on(self) -> Iterator[str]:
        for run in self.runs:
            if run.how == "went on":
                yield f"turn {run.turn} was told to stop and went on for {run.seconds:.1f} s; let CancelledError pass"

    def _leaked(self) -> Iterator[str]:
        own = re.search(r"person-(\d+)", self.key)
        for run in self.runs:
            for text in run.parts:
                others = {each for each in re.findall(r"\bref-(\d+)-\d+\b", text) if own and each != own[1]}
                yield from (f"turn {run.turn} repeated what person-{other} said elsewhere" for other in sorted(others))


@dataclass
class Evidence:
    """What is left when all is over: the conversations, and what goes beyond one of them."""

    conversations: Sequence[Conversation]
    facts: Counter[str]
    dead_letters: Sequence[tuple[str, str]]
    failed: int
    previews: int
    stalls: Sequence[float]
    """For how many seconds a process could do nothing, although nobody had frozen it."""

    @property
    def runs(self) -> list[Run]:
        return [run for each in self.conversations for run in each.runs]

    def findings(self) -> list[Finding]:
        shared = [
            Finding("keeps conversations apart", f"{' and '.join(sorted(keys))} share the agent's session {session!r}")
            for session, keys in self._sessions().items()
            if len(keys) > 1
        ]
        return [finding for each in self.conversations for finding in each.findings()] + shared + self._never()

    def _never(self) -> list[Finding]:
        """A turn may be given up. If all are, nothing was shown of what the bot does on bad days."""
        if not self.dead_letters or any(row.outcome == "answered" for each in self.conversations for row in each.turns):
            return []
        return [Finding("answers in time", f"never: every turn was given up ({len(self.dead_letters)})")]

    def _sessions(self) -> Mapping[str, set[str]]:
        sessions: dict[str, set[str]] = defaultdict(set)
        for run in self.runs:
            if run.session is not None:
                sessions[run.session].add(run.conversation)
        return sessions

    def figures(self) -> dict[str, object]:
        turns = [row for each in self.conversations for row in each.turns]
        taken = [each.key for conversation in self.conversations for each in conversation.taken]
        return {
            "workers declared lost": self.facts["worker.lost"],
            "turns and sendings taken over": self.facts["turn.lost"] + self.facts["delivery.lost"],
            "stale writes refused": self.facts["turn.fenced"] + self.facts["delivery.fenced"],
            "turns answered": sum(row.outcome == "answered" for row in turns),
            "turns superseded": sum(row.outcome == "superseded" for row in turns),
            "dead letters": len(self.dead_letters),
            "runs of the agent": len(self.runs),
            "runs stopped or lost on the way": sum(run.how in {"", "stopped", "went on"} for run in self.runs),
            "previews shown": self.previews,
            "answers that left": len(set(taken)),
            "repeats under a known key": len(taken) - len(set(taken)),
        }

    def notes(self) -> Iterator[str]:
        """What breaks no promise, and is good to know."""
        if raised := [run.cause for run in self.runs if run.how == "raised"]:
            yield f"the agent raised in {len(raised)} of {len(self.runs)} runs: {_commonest(raised)}"
        if self.dead_letters:
            causes = _commonest([cause for _, cause in self.dead_letters])
            yield f"{len(self.dead_letters)} turns were given up and became dead letters: {causes}"
        if stalls := [seconds for seconds in self.stalls if seconds > STALL_SECONDS_MAX]:
            yield (
                f"nothing could run in a process for up to {max(stalls):.1f} s ({len(stalls)} ×): a function blocks "
                "the event loop, or the machine is busy; past two thirds of the lease a process loses its turns"
            )
        if self.failed:
            yield f"{self.failed} answers were given up, as the channel refused them"
        answers: dict[tuple[str, int], set[tuple[str, ...]]] = defaultdict(set)
        times: Counter[tuple[str, int]] = Counter((run.conversation, run.turn) for run in self.runs)
        for run in self.runs:
            if run.how == "answered":
                answers[run.conversation, run.turn].add(tuple(run.parts))
        repeated = sum(count > 1 for count in times.values())
        differing = sum(len(each) > 1 for each in answers.values())
        if repeated:
            yield f"{repeated} turns ran more than once, as they do if a worker is lost, a run fails, or it asked"
        if differing:
            yield (
                f"{differing} of them answered differently the second time: what a run does outside of its answer "
                "happens twice; key it by turn.id"
            )


def judge(
    people: People,
    *,
    folder: Path,
    title: str,
    replay: str,
    happened: Counter[str],
    faults: Sequence[Fault],
    found: Sequence[Finding] = (),
    own_channels: bool = False,
) -> Report:
    """The report on all that is left in the folder; `found` is what was broken besides."""
    evidence = _gather(people, folder, own_channels, faults)
    figures = {
        **dict(sorted((people.happened + happened).items())),
        **evidence.figures(),
        "seconds until all was answered": f"{people.waited:.1f}",
        "slowest recovery, in seconds": _slowest_recovery(evidence.runs, faults),
    }
    return Report(title, figures, [*found, *evidence.findings()], list(evidence.notes()), replay)


def _gather(people: People, folder: Path, own_channels: bool, faults: Sequence[Fault]) -> Evidence:
    lines = read(seen_in(folder))
    runs, taken = _seen(lines)
    _find_who_went_on(runs, people.left_at, faults)
    agents_busy = any(_runs_at(people.left_at, run, faults) for run in runs)
    now = SystemClock().now()
    with closing(sqlite3.connect(f"{store_in(folder).resolve().as_uri()}?mode=ro", uri=True)) as connection:
        journal = [fact for (row,) in connection.execute(_JOURNAL) for fact in json.loads(row)]
        conversations = [
            Conversation(
                key,
                ids,
                messages=connection.execute(_MESSAGES, (key,)).fetchall(),
                turns=[Row(*row) for row in connection.execute(_TURNS, (key,))],
                outbox=[Outgoing(*row) for row in connection.execute(_OUTBOX, (key,))],
                runs=[run for run in runs if run.conversation == key],
                taken=[each for each in taken if each.conversation == key],
                own_channels=own_channels,
                agents_busy=agents_busy,
                left_at=people.left_at,
                put_off=_put_off(key, journal, now),
            )
            for key, ids in people.said.items()
        ]
    _find_who_hung([run for run in runs if run.ended is None or run.ended <= people.left_at], journal, lines, faults)
    facts = Counter(name for name, *_ in journal)
    dead = [(each.key, row.cause or "") for each in conversations for row in each.turns if row.outcome == "dead_letter"]
    failed = sum(each.state == "failed" for conversation in conversations for each in conversation.outbox)
    previews = sum(line["what"] == "shown" for line in lines)
    return Evidence(conversations, facts, dead, failed, previews, _stalls(lines, faults))


def _put_off(key: str, journal: Sequence[Sequence[Any]], now: int) -> str:
    """The cause, if the last that became of the conversation's turn is that it is to be tried again, but not yet."""
    became = [fact for fact in journal if fact[0].startswith("turn.") and fact[1] == key]
    match became[-1:]:
        case [["turn.retried", _, _, _, _, _, str(cause), int(retry_at)]] if retry_at > now:
            return cause
    return ""


def _slowest_recovery(runs: Sequence[Run], faults: Sequence[Fault]) -> str:
    """From the fault that hit a run to the next run of the same turn, in seconds."""
    lasted = []
    turns: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.began):
        turns[run.conversation, run.turn].append(run)
    for before, after in (pair for each in turns.values() for pair in pairwise(each)):
        lasted += [after.began - at for at in _hits(before, faults)[:1] if at <= after.began]
    return f"{max(lasted):.1f}" if lasted else "-"


def _runs_at(moment: float, run: Run, faults: Sequence[Fault]) -> bool:
    return run.began <= moment and (run.ended > moment if run.ended is not None else not _hits(run, faults))


def _find_who_went_on(runs: Sequence[Run], left_at: float, faults: Sequence[Fault]) -> None:
    """Of those that never ended: until they were killed with their process, or all was over."""
    for run in runs:
        if run.told is not None and run.ended is None:
            over = min((at for at in _hits(run, faults) if at >= run.told), default=left_at)
            if over - run.told > STOP_SECONDS_MAX:
                run.how, run.seconds = "went on", over - run.told


def _find_who_hung(
    runs: Sequence[Run],
    journal: Sequence[Sequence[Any]],
    lines: Sequence[Mapping[str, Any]],
    faults: Sequence[Fault],
) -> None:
    """Of those that did not end by themselves, nor by a decision: by luck another run of the turn answered."""
    answered = [run.ended - run.began for run in runs if run.how == "answered" and run.ended is not None]
    too_long = max(HUNG_SECONDS_MIN, HUNG_TIMES_SLOWEST * max(answered, default=math.inf))
    cut = {(key, turn, epoch) for name, key, turn, _, epoch, *_ in _of(journal, "turn.lost", "turn.released")}
    asked = {(key, turn) for name, key, turn, *_ in _of(journal, "question.asked")}
    for run in runs:
        if (run.conversation, run.turn, run.epoch) in cut and (run.conversation, run.turn) not in asked:
            ended = min(_hits(run, faults), default=run.began) if run.ended is None else run.ended
            lasted = ended - run.began - _stalled(run.by, lines, began=run.began, ended=ended)
            run.hung = lasted if lasted > too_long else 0.0


def _of(journal: Sequence[Sequence[Any]], *names: str) -> Iterator[Sequence[Any]]:
    return (fact for fact in journal if fact[0] in names)


def _stalled(by: int, lines: Sequence[Mapping[str, Any]], *, began: float, ended: float) -> float:
    """For how much of this time nothing could run in that process, or it was frozen."""
    stalls: list[tuple[float, float]] = [
        (line["began"], line["at"]) for line in lines if line["what"] == "stalled" and line["by"] == by
    ]
    return sum(max(0.0, min(ended, over) - max(began, since)) for since, over in stalls)


def _hits(run: Run, faults: Sequence[Fault]) -> list[float]:
    return [at for by, at in faults if by == run.by and run.began <= at and (run.ended is None or at <= run.ended)]


_JOURNAL = "SELECT facts FROM journal ORDER BY rowid"
_MESSAGES = """
    SELECT m.seq, m.origin_id, m.outcome FROM message AS m JOIN lane AS l ON l.id = m.lane
    WHERE l.kind = 0 AND l.key = ? ORDER BY m.seq
"""
_TURNS = """
    SELECT t.number, t.first, t.last, t.outcome, t.epoch, t.cause FROM turn AS t JOIN lane AS l ON l.id = t.lane
    WHERE l.kind = 0 AND l.key = ? ORDER BY t.number
"""
_OUTBOX = """
    SELECT d.id, d.kind, d.turn, d.part, d.text, d.state, d.in_reply_to FROM delivery AS d JOIN lane AS l
    ON l.id = d.lane WHERE l.kind = 1 AND l.key = ? ORDER BY d.seq
"""


def _stalls(lines: Sequence[Mapping[str, Any]], faults: Sequence[Fault]) -> list[float]:
    return [
        line["seconds"]
        for line in lines
        if line["what"] == "stalled"
        and not any(by == line["by"] and line["began"] - STALL_SECONDS_MAX <= at <= line["at"] for by, at in faults)
    ]


def _seen(lines: Sequence[Mapping[str, Any]]) -> tuple[list[Run], list[Taken]]:
    runs: dict[str, Run] = {}
    taken = []
    for line in lines:
        match line:
            case {"what": "run", "run": run, "conversation": key, "turn": turn, "epoch": epoch, "by": by, "at": at}:
                runs[run] = Run(key, turn, epoch, by, at)
            case {"what": "told", "run": run, "at": at}:
                runs[run].told = at
            case {"what": "ran", "run": run, "at": at}:
                runs[run].ended = at
                for name in ("how", "parts", "session", "cause", "seconds"):
                    if name in line:
                        setattr(runs[run], name, line[name])
            case {"what": "taken", "key": key, "conversation": conversation, "text": text, "sending": sending}:
                taken.append(Taken(key, conversation, text, sending))
    return list(runs.values()), taken


def _commonest(causes: Sequence[str]) -> str:
    counted = Counter(" ".join(cause.split()) for cause in causes).most_common()
    shown = "; ".join(f"{times} × {cause}" for cause, times in counted[:CAUSES_SHOWN])
    return shown + (f"; and {len(counted) - CAUSES_SHOWN} other causes" if len(counted) > CAUSES_SHOWN else "")


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]
