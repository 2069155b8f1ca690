"""The one thread that writes: whatever waits becomes one transaction, which ends by leasing what is ready to who waits.

Group commit without a timer: while one group is being made durable, the next one gathers. A claim that finds nothing
stays here, and the first group (or moment) that makes a lane ready serves it, in the same transaction.

When many calls are under way, two groups of them alternate: the event loop works on the answers of one while the other
is being made durable, which needs no Python. If they all went in one group, each side would wait for the other.

A server works while nobody here does. There the next group is decided while the one before is under way, over what that
one will leave; if it fails, what was decided over it is decided again.

When few are, whoever starts a turn is told first, and whoever sends while the next group is being made durable: the
next turns wait for their agents, and nothing for the senders.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, cast

from turnlane.backends.calls import Calls
from turnlane.backends.serving import Taker
from turnlane.backends.transaction import Transaction
from turnlane.errors import BackendError, BackendUnavailable, WorkerLost
from turnlane.model.event import Noted
from turnlane.model.lane import OUT, TICK, Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from turnlane.backends.rows import Rows

GROUP_CALLS_MAX = 1000
"""So that one group's transaction, and with it everybody's latency, stays short."""

HALVED_FROM_CALLS = 32
"""From so many calls under way on, a group takes half of them. Below that a second commit costs more than it wins."""

HALF_CALLS_MAX = 200
"""Of such a half, so that the other one is not told late."""

GROUP_TURNS_MAX = 100
"""Ends of turns in a group. What ended together is started together, so a group that has grown stays as large, and as
slow, for each turn after it."""

HEARD_SECONDS_MAX = 0.001
"""How long to wait for those who were told to call again. An event loop that takes longer has other things to do."""

HEARD_WHILE_WAKING = 2
"""Of those who were told, so many call again while this thread wakes up. It is woken before them, not after."""

CONFLICTS_MAX = 10
"""How often a group is tried that others got in the way of."""
CONFLICTS_SERVED_MAX = 3
"""After so many, nobody who can wait is served with it: who runs and who sends next is what all fight for. Else what is
said would not be taken in, and a worker that is not renewed in time would lose what it runs."""

TICK_LOOK_MS = 250
"""How often to look whether somebody has made a schedule due."""

NEVER = 1 << 62

TROUBLE_SECONDS = 1.0
"""How long those who wait are left alone after serving them failed."""

Verb = Callable[..., Any]
"""Of a transaction, called with it and the arguments."""


@dataclass(slots=True, eq=False)
class Call:
    """One verb of somebody who waits for its answer."""

    verb: Verb
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    lanes: Sequence[tuple[Kind, str]] = ()
    origins: Sequence[tuple[str, str]] = ()
    """What it will read: a hint, so that a group reads it in one statement."""
    finish: Callable[[Any], Any] | None = None
    """Turns the verb's answer into the caller's, once leases have been handed out."""
    waits: Taker | None = None
    """A claim that stays here until it is served."""
    sends: bool = False
    """By somebody who sends, and so can be told a little later."""

    @property
    def ends_a_turn(self) -> bool:
        return self.verb is Transaction.commit and not self.sends


class Poke:
    """Somebody else may have made a lane due."""


POKE = Poke()


@dataclass(slots=True)
class Group:
    """What came of one transaction, to be told on the event loop."""

    answers: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    to_senders: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    """Answers, too."""
    starts_turns: bool = False
    failures: list[tuple[asyncio.Future[Any], Exception]] = field(default_factory=list)
    noted: Sequence[Noted] = ()
    at: int = 0

    @property
    def size(self) -> int:
        return len(self.answers) + len(self.to_senders)


@dataclass(slots=True)
class Flight:
    """A group that is under way: the store has not said yet that it is durable."""

    calls: Sequence[Call]
    group: Group
    """What will be told then."""


Report = Callable[[Group], None]


class Believed(Protocol):
    """What this process remembers of the store from its last transactions."""

    @property
    def is_alone(self) -> bool:
        """Nobody else wrote between the last two transactions of this process, as far as the store can tell."""

    def check(self) -> None:
        """What another process may have changed is forgotten."""

    def keep(self, lanes: Any, now: int, /) -> None:
        """Called after the commit, with the lanes that it touched."""


class GroupRows(Protocol):
    """`Rows` of the store, for a group of calls."""

    now: int

    @property
    def changed(self) -> Iterable[Any]:
        """Lanes, for `Believed`."""

    def expect_lanes(self, places: Iterable[tuple[Kind, str]], /) -> None: ...
    def expect_origins(self, wanted: Iterable[tuple[str, str]], /) -> None: ...
    def flush(self, noted: Sequence[Noted], /) -> None: ...


class Store(Protocol):
    """The database, as the writing thread sees it. Nobody else uses it."""

    @property
    def believed(self) -> Believed: ...

    poll_seconds: float
    """How often a process with waiting claims looks whether another process has made a lane due."""
    trouble: tuple[type[Exception], ...]
    """What it raises if it is in trouble itself, rather than one call: locked, full, out of reach."""
    conflict: tuple[type[Exception], ...]
    """What it raises if somebody else got in the way: the same again will do."""

    def now(self) -> int: ...

    @property
    def overlaps(self) -> bool:
        """Whether a transaction may still be under way at its end. The next one then ends only once it is durable."""

    def transaction(self, before_waiting: Callable[[], None]) -> AbstractContextManager[GroupRows]:
        """Begin; at the end all is durable or under way, or after an exception nothing has happened."""

    def confirm(self) -> None:
        """Wait until the last transaction is durable. Raises what undid it, as often as it is asked until the next."""

    def rest(self) -> None:
        """Nobody calls: what was put off is done now."""

    def next_due(self, kinds: Iterable[Kind]) -> int | None:
        """When a lane of these kinds is due next, by time alone."""

    def explain(self, error: Exception) -> Exception:
        """As callers shall see it."""

    def close(self) -> None: ...


class Writer:
    """Owns the store. `submit` is called on the event loop; `report` is called there with each group."""

    def __init__(
        self,
        store: Store,
        report: Report,
        limits: Callable[[], Limits] = lambda: NO_LIMITS,
        counted: Calls | None = None,
    ) -> None:
        self._store = store
        self._counted = counted or Calls()
        self._trouble: tuple[type[Exception], ...] = (*store.trouble, BackendUnavailable)
        self._limits = limits
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Call | Poke | None] = SimpleQueue()
        self._waiting: dict[tuple[str, Kind], deque[asyncio.Future[list[Lease]]]] = {}
        self._next_due: int | None = None
        self._hold_until = 0
        self._ticks_at = 0
        """When a schedule is due, or to be looked for again."""
        self._done: GroupRows | None = None
        """What the last group did, until it is remembered."""
        self._flight: Flight | None = None
        """Never while nobody calls: then it is waited for."""
        self._untold: Group | None = None
        """Durable, but not told yet: its answers are worked on while the next group is made durable."""
        self._stopping = False
        self.undone: Exception | None = None
        """What last undid a group, or failed a look. Only a call that nobody should make does, or a mistake of ours."""
        self._thread = threading.Thread(target=self._run, name="turnlane-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, call: Call) -> None:
        if self._stopping:
            call.future.set_exception(BackendUnavailable("the backend is closed; open it again"))
        else:
            self._calls.put(call)

    def more_follow(self) -> bool:
        """Asked while a group is performed: somebody waits for the next one, or will be told soon and call again."""
        return self._flight is not None or not self._calls.empty()

    def poke(self) -> None:
        """Look now whether those who wait can be served."""
        self._calls.put(POKE)

    def stop(self) -> None:
        """Finish what was submitted, then end the thread. Blocks for one group at most."""
        if not self._stopping:
            self._stopping = True
            self._calls.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._store.close()

    # The thread

    def _run(self) -> None:
        while True:
            calls, last = self._gather()
            if not (calls and self._store.overlaps):
                self._tell_what_is_under_way()
            if calls or self._something_is_due():
                if self._store.overlaps:
                    self._overlap(calls)
                else:
                    self._alternate(calls)
                self._remember()
                self._rest()
            else:
                self._tell_untold()
            if last:
                return self._dismiss()

    def _alternate(self, calls: Sequence[Call]) -> None:
        """Half of many are told when the other half is about to be made durable."""
        group = self._perform(calls)
        self._tell_untold()
        if self._store.believed.is_alone and self._others_call(calls):
            self._untold = group
        else:
            self._tell_senders_last(group)

    def _others_call(self, calls: Sequence[Call]) -> bool:
        """And many enough to be worth a group of their own."""
        return len(calls) >= HALVED_FROM_CALLS // 2 and not self._calls.empty()

    def _overlap(self, calls: Sequence[Call]) -> None:
        """One half is decided while the other is under way."""
        before = self._flight
        try:
            group = self._transact(calls)
        except Exception as error:  # noqa: BLE001 - as in `_perform`
            self._tell_untold()
            self._tell_what_is_under_way()
            # It may have been the fault of the group before. If it was not, it is met again.
            self._tell(self._perform(calls) if before is not None else self._recover(calls, error))
            return
        self._flight = Flight(calls, group)
        if before is not None:
            self._tell_and_listen(before.group)
        if not self._others_call(calls):
            self._tell_senders_last(self._land())

    def _land(self) -> Group:
        """Of what is under way. If it failed, it is performed as if it had never been tried."""
        assert self._flight is not None
        flight, self._flight = self._flight, None
        try:
            self._store.confirm()
        except Exception as error:  # noqa: BLE001 - as in `_perform`
            self._call_back(flight)
            return self._recover(flight.calls, error)
        return flight.group

    def _recover(self, calls: Sequence[Call], error: Exception) -> Group:
        """What was tried once, and undone by this."""
        if isinstance(error, self._store.conflict):
            self._counted.conflicts += 1
            return self._perform(calls)
        return self._without(calls, error)

    def _call_back(self, flight: Flight) -> None:
        """Nothing of it has happened. Who waits for a lease, and was to be told of one, waits on."""
        self._done = None
        group, callers = flight.group, {call.future for call in flight.calls}
        for place, futures in self._waiting.items():
            self._waiting[place] = deque(future for future in futures if future not in callers)
        for future, leases in reversed([*group.answers, *group.to_senders]):
            if future not in callers:
                [lease] = leases
                self._waiting.setdefault((lease.worker, lease.kind), deque()).appendleft(future)
        # Whose worker seemed lost starts over under another id: needless perhaps, but never wrong.
        self._tell(Group(failures=[(future, error) for future, error in group.failures if future not in callers]))

    def _gather(self) -> tuple[list[Call], bool]:
        """What waits now; if nothing does, wait for it as long as nothing can become due."""
        try:
            first = self._calls.get(timeout=self._patience())
        except Empty:
            return [], False
        taken = [first, *self._take(self._group_calls_most() - 1)]
        return [call for call in taken if type(call) is Call], self._stopping and None in taken

    def _take(self, most: int) -> Iterable[Call | Poke | None]:
        """Nobody else takes from the queue, so that as many as it holds now can be had at once."""
        take, waiting = self._calls.get_nowait, min(self._calls.qsize(), most)
        if waiting < GROUP_TURNS_MAX or self._store.believed.is_alone:  # alone, halves of them alternate
            return [take() for _ in range(waiting)]
        return self._take_until_turns_are_enough(waiting)

    def _take_until_turns_are_enough(self, most: int) -> Iterator[Call | Poke | None]:
        turns = 1  # the first call of the group, which is taken already, may be one
        while most and turns < GROUP_TURNS_MAX:
            call = self._calls.get_nowait()
            yield call
            most -= 1
            turns += type(call) is Call and call.ends_a_turn

    def _group_calls_most(self) -> int:
        """Whoever is told an answer soon calls again. With other processes there is somebody to wait for anyway."""
        under_way = 1 + self._calls.qsize() + (self._untold.size if self._untold is not None else 0)
        if self._flight is not None:
            under_way += self._flight.group.size
        if under_way < HALVED_FROM_CALLS or not (self._store.overlaps or self._store.believed.is_alone):
            return GROUP_CALLS_MAX
        return min(HALF_CALLS_MAX, (under_way + 1) // 2)

    def _patience(self) -> float | None:
        if not self._waiting:
            return None
        poll = self._store.poll_seconds
        if self._next_due is None:
            return poll
        return min(poll, max(0.0, (self._next_due - self._store.now()) / 1000))

    def _something_is_due(self) -> bool:
        """Asked when nobody called: has time passed, or another process written, so that a waiting claim is served?"""
        try:
            self._store.rest()
            self._store.believed.check()
            if not self._waiting:
                return False
            self._look_ahead()
        except Exception as error:  # noqa: BLE001 - as below, this thread must not end
            self._note_failed_look(error)
            self._next_due = None  # whatever was due still is, but is looked for no more often than others' work
            return False
        return self._next_due is not None and self._next_due <= self._store.now()

    def _note_failed_look(self, error: Exception) -> None:
        """The store's own trouble will meet the next call, which is told of it. Anything else is a mistake of ours."""
        if not isinstance(error, self._trouble):
            self.undone = error

    def _look_ahead(self) -> None:
        """When those who wait can be served by time alone."""
        kinds = {kind for _, kind in self._waiting}
        for_ticks = TICK in kinds
        kinds.discard(TICK)
        self._next_due = self._store.next_due(kinds)
        if for_ticks:
            self._look_for_ticks()
            self._next_due = min(self._ticks_at, NEVER if self._next_due is None else self._next_due)

    def _look_for_ticks(self) -> None:
        if not self._ticks_can_wait():
            due_at = self._store.next_due([TICK])
            self._ticks_at = min(NEVER if due_at is None else due_at, self._store.now() + TICK_LOOK_MS)

    def _ticks_can_wait(self) -> bool:
        """No message makes a schedule due, so none pays for asking. (A clock that was turned back has no say.)"""
        return 0 < self._ticks_at - self._store.now() <= TICK_LOOK_MS

    def _rest(self) -> None:
        """Whoever still waits could not be given what is due now, as its worker must renew first: do not spin."""
        if not self._calls.empty():
            return
        soon = self._store.now() + int(self._store.poll_seconds * 1000)
        try:
            self._store.rest()
            self._look_ahead()
        except Exception as error:  # noqa: BLE001 - as above
            self._note_failed_look(error)
            self._next_due = soon
        if self._next_due is not None:
            held = soon if self._next_due <= self._store.now() else 0
            self._next_due = max(self._next_due, held, self._hold_until)

    def _perform(self, calls: Sequence[Call]) -> Group:
        try:
            return self._transact_in_the_end(calls)
        # Whatever a call raises is its caller's: a writing thread that ended would leave everybody waiting for ever.
        except Exception as error:  # noqa: BLE001
            return self._without(calls, error)

    def _without(self, calls: Sequence[Call], error: Exception) -> Group:
        """Whoever's fault it was; the others are performed."""
        if isinstance(error, self._trouble):
            # The store's trouble, not one call's. Each on its own would wait as long again.
            return self._failed(calls, error)
        # One bad call must not fail its neighbours: each on its own.
        self.undone = error
        if len(calls) <= 1:
            return self._failed(calls, error)
        whole = Group()
        for call in calls:
            part = self._perform([call])
            whole.answers += part.answers
            whole.to_senders += part.to_senders
            whole.failures += part.failures
            whole.noted = [*whole.noted, *part.noted]
            whole.at = part.at
        return whole

    def _failed(self, calls: Sequence[Call], error: Exception) -> Group:
        error = self._store.explain(error)
        if not calls:
            # Serving who waits failed, with nobody to tell: look again after a while.
            self._hold_until = self._store.now() + int(TROUBLE_SECONDS * 1000)
        if isinstance(error, BackendError):
            self._counted.failed.update(call.verb.__name__ for call in calls)
        return Group(failures=[(call.future, error) for call in calls])

    def _transact_in_the_end(self, calls: Sequence[Call]) -> Group:
        for conflicts in range(CONFLICTS_MAX):
            try:
                return self._transact_and_confirm(calls, to_all=conflicts < CONFLICTS_SERVED_MAX)
            except self._store.conflict:
                self._counted.conflicts += 1
        return self._transact_and_confirm(calls, to_all=False)

    def _transact_and_confirm(self, calls: Sequence[Call], *, to_all: bool) -> Group:
        group = self._transact(calls, to_all=to_all)
        try:
            self._store.confirm()
        except Exception:  # whatever it was, nothing of it has happened; it is raised again
            self._call_back(Flight(calls, group))
            raise
        return group

    def _transact(self, calls: Sequence[Call], *, to_all: bool = True) -> Group:
        self._counted.groups += 1
        self._remember()
        with self._store.transaction(before_waiting=self._tell_untold) as rows:
            applied = self._apply(rows, calls, to_all)
            self._tell_untold()
        self._done = rows
        return self._conclude(calls, *applied)

    def _remember(self) -> None:
        """What the last group left may be believed; before anybody asks whether others have written since."""
        if self._done is not None:
            self._store.believed.keep(self._done.changed, self._done.now)
            self._done = None

    def _apply(self, rows: GroupRows, calls: Sequence[Call], to_all: bool) -> tuple[list[Any], list[Taker], Group]:
        self._read_ahead(rows, calls)
        # It hands back only lanes that these rows gave it, so each of them knows its row.
        transaction = Transaction(cast("Rows", rows), rows.now, self._limits())
        answers = [call.verb(transaction, *call.arguments) for call in calls]
        invited = self._invite_the_waiting(transaction)
        transaction.serve(to_all=to_all)
        rows.flush(transaction.noted)
        return answers, invited, Group(starts_turns=transaction.starts_turns, noted=transaction.noted, at=rows.now)

    def _conclude(self, calls: Sequence[Call], answers: Sequence[Any], invited: Sequence[Taker], group: Group) -> Group:
        """What is told once the transaction is durable, and who has to wait."""
        if any(taker.kind is TICK for taker in invited):
            self._ticks_at = self._store.now() + TICK_LOOK_MS
        for call, answer in zip(calls, answers, strict=True):
            if call.waits is not None and not call.waits.leases and not call.waits.lost:
                self._waiting.setdefault((call.waits.worker, call.waits.kind), deque()).append(call.future)
            else:
                answers = group.to_senders if call.sends else group.answers
                answers.append((call.future, call.finish(answer) if call.finish else answer))
        self._serve_the_waiting(group, invited)
        return group

    @staticmethod
    def _read_ahead(rows: GroupRows, calls: Sequence[Call]) -> None:
        rows.expect_lanes([place for call in calls for place in call.lanes])
        rows.expect_origins([origin for call in calls for origin in call.origins])

    # Those who wait

    def _invite_the_waiting(self, transaction: Transaction) -> list[Taker]:
        takers = []
        for (worker, kind), futures in list(self._waiting.items()):
            while futures and futures[0].done():
                futures.popleft()
            if kind is TICK and futures and self._ticks_can_wait():
                continue
            if futures:
                takers.append(transaction.take(Taker(worker, kind, len(futures))))
            else:
                del self._waiting[worker, kind]
        return takers

    def _serve_the_waiting(self, group: Group, takers: Sequence[Taker]) -> None:
        for taker in takers:
            futures = self._waiting[taker.worker, taker.kind]
            answers = group.to_senders if taker.kind is OUT else group.answers
            answers += [(futures.popleft(), [lease]) for lease in taker.leases]
            if taker.lost:
                lost = WorkerLost(f"worker {taker.worker} is not live; join under a new id")
                group.failures += [(future, lost) for future in futures]
                futures.clear()
            if not futures:
                del self._waiting[taker.worker, taker.kind]

    def _dismiss(self) -> None:
        self._tell_untold()
        self._tell_what_is_under_way()
        closed = BackendUnavailable("the backend was closed meanwhile")
        waiting = [future for futures in self._waiting.values() for future in futures]
        self._tell(Group(failures=[(future, closed) for future in waiting]))

    def _tell_what_is_under_way(self) -> None:
        if self._flight is not None:
            self._tell(self._land())

    def _tell_untold(self) -> None:
        if self._untold is not None:
            self._tell(self._untold)
            self._untold = None

    def _tell(self, group: Group) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, group)

    def _tell_senders_last(self, group: Group) -> None:
        """If whoever is told first calls at once, the senders are told while that is being made durable."""
        if not group.starts_turns or not group.to_senders:
            # Whoever runs the last turns of a worker that drains must not be heard before whoever sends their answers.
            return self._tell(group)
        self._untold = Group(to_senders=group.to_senders)
        group.to_senders = []
        self._tell_and_listen(group)
        if self._calls.empty():
            self._tell_untold()

    def _tell_and_listen(self, group: Group) -> None:
        """Until those who were told have gone as far as they get by themselves."""
        listening = threading.Lock()
        listening.acquire()

        def report() -> None:
            last = Group(answers=group.answers[-HEARD_WHILE_WAKING:])
            del group.answers[-HEARD_WHILE_WAKING:]
            self._report(group)
            self._loop.call_soon(listening.release)  # after those whom the report woke
            self._report(last)

        if not self._loop.is_closed():
            self._remember()  # not while the event loop wakes up, which could not go on before it
            self._loop.call_soon_threadsafe(report)
            listening.acquire(timeout=HEARD_SECONDS_MAX)
