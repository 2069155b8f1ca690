"""Running histories: one for a seed, many for a range of them, and a replay for each that broke."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from turnlane.backends.base import Backend, open_backend
from turnlane.clock import Clock
from turnlane.errors import InvalidInput
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.simulation.world import PROCESSES, World

OpenStore = Callable[[Clock], AbstractAsyncContextManager[Sequence[Backend]]]
"""An empty store on that clock, gone afterwards; several backends see the same data, as several processes would."""

STEPS = 400
BROKEN_MAX = 3
"""So many tell enough; a fourth rarely says more."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A seed whose history broke a promise."""

    seed: int
    steps: int
    backend: str
    why: str
    trace: tuple[str, ...]
    """What happened last."""

    @property
    def replay(self) -> str:
        return f"turnlane simulate --seed {self.seed} --steps {self.steps} --backend {self.backend}"

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.why}", *self.trace, f"replay it: {self.replay}"])


@dataclass(slots=True)
class History:
    """What happened in one or many simulated histories."""

    seeds: int = 0
    steps: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)

    def add(self, other: History) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.tally.update(other.tally)
        self.broken.extend(other.broken)


async def simulate(open_store: OpenStore, seed: int, *, steps: int = STEPS, name: str = "memory://") -> History:
    """Live through one history and drain it. Whatever goes wrong is in `broken`, with the way to replay it."""
    clock = VirtualClock(seed)
    async with open_store(clock) as processes:
        world = World(processes, clock, seed)
        history = History(seeds=1, steps=steps, tally=world.tally)
        try:
            await world.live(steps)
            await world.drain()
            _nothing_was_undone(processes)
        # Whatever a broken engine raises is what the seed found: a violation, a failed assertion, a missing key.
        except Exception as error:  # noqa: BLE001
            why = f"{type(error).__name__}: {error}"
            trace = tuple(" ".join(map(str, entry)) for entry in world.trace)
            history.broken.append(Broken(seed, steps, name, why, trace))
        return history


def _nothing_was_undone(processes: Sequence[Backend]) -> None:
    """A store that meets a mistake in a group of calls tries each alone, and might so hide the mistake."""
    for backend in processes:
        undone = getattr(backend, "undone", None)
        if undone is not None:
            raise undone


async def simulate_many(
    open_store: OpenStore,
    seeds: Iterable[int],
    *,
    steps: int = STEPS,
    name: str = "memory://",
    broken_max: int = BROKEN_MAX,
) -> History:
    """One history after the other; stops early once enough of them broke."""
    total = History()
    for seed in seeds:
        total.add(await simulate(open_store, seed, steps=steps, name=name))
        if len(total.broken) >= broken_max:
            break
    return total


def throwaway(url: str) -> OpenStore:
    """Stores of that kind that are made for one history and deleted after it."""
    if url not in {"memory://", "sqlite://"} and not url.startswith(("postgresql://", "postgres://", "nats://")):
        raise InvalidInput(
            f"{url} may hold what somebody needs; simulate on memory://, sqlite:// (a throwaway file) or the "
            "postgresql:// or nats:// URL of a server (a throwaway schema or stream)"
        )

    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Sequence[Backend]]:
        async with AsyncExitStack() as stack:
            processes = [open_backend(each, clock) for each in await _urls(url, stack)]
            for backend in processes:
                await backend.open()
                stack.push_async_callback(backend.close)
            yield processes

    return opened


async def _urls(url: str, stack: AsyncExitStack) -> Sequence[str]:
    """Of a new store, for each process that shall see it."""
    if url == "memory://":
        return [url]
    if url == "sqlite://":
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="turnlane-simulation-"))
        # What losing power would lose is not what is simulated here, so nothing waits for the disk.
        return [f"sqlite:///{folder}/store.db?synchronous=off"] * PROCESSES
    if url.startswith("nats://"):
        from turnlane.backends.nats.store import throwaway_stream

        return [await stack.enter_async_context(throwaway_stream(url))] * PROCESSES
    from turnlane.backends.postgres.schema import throwaway_schema

    return [await stack.enter_async_context(throwaway_schema(url))] * PROCESSES
