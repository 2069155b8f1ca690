"""Several stores that live through one history: each verb happens in all of them, and all must answer the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from turnlane.backends.base import Arrival, Backend, Committed
from turnlane.clock import Clock
from turnlane.errors import WorkerLost
from turnlane.model.event import Event
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.limits import Limits
from turnlane.model.message import Message
from turnlane.model.schedule import Schedule
from turnlane.model.turn import Outcome
from turnlane.model.view import StoredEvent
from turnlane.testing.simulation.oracle import Violation

if TYPE_CHECKING:
    from turnlane.testing.simulation.runs import OpenStore

NOT_COMPARED = {"epoch", "cursor"}
"""They only have to grow, and each store counts as it likes."""
SEEN = {
    "lanes",
    "story",
    "deliveries",
    "questions",
    "outbox",
    "dead_letters",
    "locks",
    "workers",
    "schedules",
    "counts",
}
"""Verbs that change nothing. After each of the others the story of its conversation is compared."""
IN_ANY_ORDER = {"claim", "lanes", "outbox", "dead_letters", "locks", "workers"}

Leases = dict[tuple[Kind, str, int, int], Sequence[Lease]]
"""By what the first store calls it: what each calls the same lease."""


def side_by_side(stores: Sequence[OpenStore]) -> OpenStore:
    """All these stores as one, with as many processes as the one that has the fewest. Memory comes first."""

    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Sequence[Backend]]:
        async with AsyncExitStack() as stack:
            fleets = [await stack.enter_async_context(store(clock)) for store in stores]
            leases: Leases = {}
            yield [
                cast("Backend", SideBySide([fleet[place % len(fleet)] for fleet in fleets], leases))
                for place in range(min(map(len, fleets)))
            ]

    return opened


class SideBySide:
    """The verbs of a backend. Whoever calls one hears what the first store says; if another differs, Violation."""

    def __init__(self, stores: Sequence[Backend], leases: Leases) -> None:
        self._stores = stores
        self._leases = leases
        self._cursors: dict[int, Sequence[int]] = {0: [0] * len(stores)}
        """Where each store stands when the first stands there."""
        self._claiming = asyncio.Lock()
        """Claims that share a transaction share what is due in another order than one by one."""
        self._calls = 0
        self._touched: set[str] = set()
        self._happened = asyncio.Event()
        self._told: list[list[StoredEvent]] = [[] for _ in stores]

    @property
    def limits(self) -> Limits:
        return self._stores[0].limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        for store in self._stores:
            store.limits = limits

    @property
    def undone(self) -> Exception | None:
        return next((error for store in self._stores if (error := getattr(store, "undone", None))), None)

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> None:
        self._stores[0].subscribe(listener)

    async def events(self, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        """A page of each. Compared once all are read: what happens to several lanes at once is told in any order."""
        starts = self._cursors[after]
        calls = [store.events(after=start, limit=limit) for store, start in zip(self._stores, starts, strict=True)]
        pages = await asyncio.gather(*calls)
        for told, page in zip(self._told, pages, strict=True):
            told.extend(page)
        if any(pages):
            self._cursors[pages[0][-1].cursor] = [page[-1].cursor for page in pages]
        else:
            self._compare("events", (), [_by_conversation(told) for told in self._told])
        return pages[0]

    async def commit(self, lease: Lease, outcome: Outcome, *, take_next: bool = False) -> Committed:
        """The first store takes the next lease with the commit, the others, if it is of another lane, after it.

        Which lane that is, if several became due in that very moment, is nobody's promise; a claim finds them in order.
        """
        async with self._claiming if take_next else nullcontext():
            return await self._commit(lease, outcome, take_next=take_next)

    async def _commit(self, lease: Lease, outcome: Outcome, *, take_next: bool) -> Committed:
        first, *others = self._stores
        with self._calling():
            # In a task of its own, like every other verb, so that calls made together keep their order.
            answer = await asyncio.create_task(first.commit(lease, outcome, take_next=take_next))
            goes_on = answer.next is not None and (answer.next.key, answer.next.epoch) == (lease.key, lease.epoch)
            calls = [
                _commit_and_claim(store, self._own(lease, place), outcome, with_it=goes_on, after_it=take_next)
                for place, store in enumerate(others, start=1)
            ]
            answers = [answer, *await asyncio.gather(*calls)]
        self._compare("commit", (lease, outcome, take_next), answers)
        await self._changed([lease], [[each.next] if each.next else [] for each in answers])
        return answer

    async def claim(self, worker: str, kind: Kind, *, most: int = 1, wait: bool = False) -> list[Lease]:
        """Who waits looks after each verb, so that all stores look at the same moments."""
        while True:
            if wait:
                await self._happened.wait()
            async with self._claiming:
                leases: list[Lease] = await self._everywhere("claim", worker, kind, most=most)
            if leases or not wait:
                return leases

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._everywhere, verb)

    async def _everywhere(self, verb: str, *arguments: Any, **named: Any) -> Any:
        with self._calling():
            calls = [
                getattr(store, verb)(*(self._own(each, place) for each in arguments), **named)
                for place, store in enumerate(self._stores)
            ]
            answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        self._compare(verb, arguments, answers)
        if isinstance(answers[0], BaseException):
            raise answers[0]
        if verb not in SEEN:
            await self._changed(arguments, answers if verb == "claim" else ())
        return answers[0]

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def _changed(self, arguments: Sequence[Any], leases: Sequence[Sequence[Lease]]) -> None:
        """Compare the stories, unless other calls are under way: those may have happened here and not yet there."""
        for same in zip(*(sorted(each, key=attrgetter("key")) for each in leases), strict=True):
            self._leases[_name(same[0])] = same
        self._touched |= _conversations(arguments)
        while self._touched and not self._calls:
            await self._everywhere("story", self._touched.pop())
        self._happened.set()
        self._happened = asyncio.Event()

    def _own(self, argument: Any, place: int) -> Any:
        """What this store calls a lease that the caller knows by the name of the first."""
        if isinstance(argument, Lease):
            return self._leases[_name(argument)][place]
        if isinstance(argument, list) and argument and isinstance(argument[0], Lease):
            return [self._own(lease, place) for lease in argument]
        return argument

    def _compare(self, verb: str, arguments: Sequence[object], answers: Sequence[object]) -> None:
        first = answers[0]
        for store, other in zip(self._stores[1:], answers[1:], strict=True):
            if other == first:
                continue
            here, there = observable(first), observable(other)
            if verb in IN_ANY_ORDER:
                here, there = sorted(here, key=repr), sorted(there, key=repr)
            if here != there:
                names = f"{self._stores[0].url} and {store.url.partition(':')[0]}"
                raise Violation(f"{names} differ: {verb}{tuple(arguments)} | {first_difference(here, there)}")


def _conversations(arguments: Sequence[Any]) -> set[str]:
    """Which ones a verb was about."""
    found: set[str] = set()
    for each in arguments:
        match each:
            case Lease():
                found.add(each.key)
            case Message() | Schedule():
                found.add(each.conversation)
            case str() if "/" in each:
                found.add(each)
            case [*_]:
                found |= {one.message.conversation for one in each if isinstance(one, Arrival)}
    return found


def _name(lease: Lease) -> tuple[Kind, str, int, int]:
    return lease.kind, lease.key, lease.epoch, lease.last


async def _commit_and_claim(
    store: Backend, lease: Lease, outcome: Outcome, *, with_it: bool, after_it: bool
) -> Committed:
    committed = await store.commit(lease, outcome, take_next=with_it)
    if after_it and committed.next is None:
        with suppress(WorkerLost):
            leases = await store.claim(lease.worker, lease.kind)
            return replace(committed, next=leases[0] if leases else None)
    return committed


def _by_conversation(events: Sequence[StoredEvent]) -> dict[str, list[Event]]:
    told: dict[str, list[Event]] = {}
    for stored in events:
        told.setdefault(stored.event.conversation or "", []).append(stored.event)
    told[""].sort(key=repr)
    return told


def observable(answer: Any) -> Any:
    """What has to be the same everywhere, in plain lists and dictionaries."""
    if isinstance(answer, BaseException):
        return type(answer).__name__
    if is_dataclass(answer):
        answer = {each.name: getattr(answer, each.name) for each in fields(answer)}
    if isinstance(answer, Mapping):
        return {name: observable(each) for name, each in answer.items() if name not in NOT_COMPARED}
    if isinstance(answer, list | tuple):
        return [observable(each) for each in answer]
    return answer


def first_difference(here: Any, there: Any, where: str = "") -> str:
    """Where to look, as two whole stories are long."""
    if isinstance(here, dict) and isinstance(there, dict) and here.keys() == there.keys():
        pairs = [(f"{where}.{name}", here[name], there[name]) for name in here]
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        pairs = [(f"{where}[{place}]", *pair) for place, pair in enumerate(zip(here, there, strict=True))]
    else:
        return f"{where or 'the answer'} is {here!r}, and there {there!r}"
    return next(first_difference(one, other, name) for name, one, other in pairs if one != other)
