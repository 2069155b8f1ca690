"""What each process wrote down of its sendings as it made them, and which repeats that excuses.

A reply may be sent again only if an earlier sending had begun, and was not settled when its process was killed, was
stopped or lost its lease: whether it arrived, nobody can know then. Every other repeat could have been avoided.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal

What = Literal["begins", "settled", "lost", "crashes"]


@dataclass(frozen=True)
class Note:
    at: int
    """Of the machine's monotonic clock, which all its processes share."""
    life: str
    """One start of one process."""
    what: What
    delivery: str | None = None
    """None: all that this life was sending."""


class Diary:
    """Written line by line past every buffer, so that SIGKILL takes nothing of it away."""

    def __init__(self, folder: Path) -> None:
        self._life = f"{os.getpid()}-{time.monotonic_ns()}"
        self._file = os.open(folder / f"diary-{self._life}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: What, delivery: str | None = None) -> None:
        os.write(self._file, (json.dumps([time.monotonic_ns(), self._life, what, delivery]) + "\n").encode())


def diaries_in(folder: Path) -> list[Note]:
    """All that was written, in the order in which it happened."""
    lines = (line for file in folder.glob("diary-*.jsonl") for line in file.read_text().splitlines())
    return sorted((Note(*json.loads(line)) for line in lines), key=attrgetter("at"))


@dataclass
class Sending:
    delivery: str
    life: str
    settled: bool = False
    cut: bool = False
    """Its process was killed or stopped, or lost its lease, before it was settled."""

    @property
    def excuses_another(self) -> bool:
        return self.cut and not self.settled


def sendings(notes: Iterable[Note]) -> list[Sending]:
    begun: list[Sending] = []
    for note in notes:
        if note.what == "begins" and note.delivery is not None:
            begun.append(Sending(note.delivery, note.life))
            continue
        for sending in _meant_by(note, begun):
            sending.settled = note.what == "settled"
            sending.cut = sending.cut or note.what in ("lost", "crashes")
    return begun


def _meant_by(note: Note, begun: Sequence[Sending]) -> Sequence[Sending]:
    """A crash cuts off all that is not settled. Else it is about the last sending: an earlier one may have been cut."""
    mine = [sending for sending in begun if sending.life == note.life and not sending.settled]
    return mine if note.delivery is None else [each for each in mine if each.delivery == note.delivery][-1:]


def avoidable_repeats(notes: Sequence[Note], arrived: Sequence[str]) -> list[str]:
    """What no crash excuses. `arrived`: the idempotency key of each request, repeats included."""
    return [*_sent_without_need(notes), *_arrived_without_a_sending(notes, arrived)]


def _sent_without_need(notes: Sequence[Note]) -> Iterator[str]:
    by_delivery = sorted(sendings(notes), key=attrgetter("delivery"))  # stable: each group stays in its order
    for delivery, group in groupby(by_delivery, key=attrgetter("delivery")):
        *earlier, _ = group
        for sending in earlier:
            if not sending.excuses_another:
                how = "it was settled" if sending.settled else "nothing had cut it off"
                yield f"{delivery} was sent again, though by {sending.life} {how}"


def _arrived_without_a_sending(notes: Sequence[Note], arrived: Sequence[str]) -> Iterator[str]:
    begun = Counter(sending.delivery for sending in sendings(notes))
    for key, times in Counter(arrived).items():
        if times > begun[key]:
            yield f"{key} arrived {times} times, and was sent {begun[key]} times"
