"""The board of the console under load: frames and bytes in a real browser, and what one open console costs the server.

python benchmarks/console.py                                  # 5,000 lanes, 1,000 changes a second, on SQLite
python benchmarks/console.py --store postgresql://… --lanes 500 --rate 200 --seconds 10

A process of its own makes the changes: each is a fact in the store, such as an accepted message or a started turn. The
server, `turnlane serve`, only serves the console. Its processor time is read with no console open, with one that only
reads the stream, and with a browser that draws it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from turnlane.backends.base import Arrival, Backend, open_backend
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.lease import Lease
from turnlane.model.message import Message
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.testing.processes import Turnlane

HERE = Path(__file__).resolve().parents[1]
FACTS_PER_MESSAGE = 5
"""Accepted, started, answered, sending, sent: each message answered by itself makes so many."""
FEEDS_PER_SECOND = 20
WARM_UP_SECONDS = 4.0
TERM_MS = 600_000
POLICY = Policy(debounce_ms=400, max_wait_ms=2_000)
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

WATCH = """(() => {
  const seen = window.seen = {frames: [], drawing: [], long: [], at: performance.now()};
  seen.bytes = window.turnlane.received();
  const slow = new PerformanceObserver((list) => list.getEntries().forEach((each) => seen.long.push(each.duration)));
  slow.observe({type: "longtask"});
  let last = null;
  const frame = (at) => { if (last !== null) seen.frames.push(at - last); last = at; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  window.turnlane.board.onDrawn = (at, ms) => seen.drawing.push(ms);
})()"""
SEEN = """JSON.stringify({...window.seen, received: window.turnlane.received() - window.seen.bytes,
  seconds: (performance.now() - window.seen.at) / 1000, rows: window.turnlane.board.rows.length})"""


# What happens


class Feeder:
    """Writes, answers and sends, at a steady rate, all over the lanes."""

    def __init__(self, backend: Backend, lanes: int, rate: int) -> None:
        self._backend = backend
        self._keys = [f"site/customer-{number}" for number in range(lanes)]
        self._each = max(1, rate // FACTS_PER_MESSAGE // FEEDS_PER_SECOND)
        self._said = 0
        self._worker = SystemClock().token()

    async def begin(self) -> None:
        """Every lane there is, idle."""
        await self._backend.join(self._worker, TERM_MS)
        for start in range(0, len(self._keys), 500):
            await self._say(self._keys[start : start + 500], Policy(debounce_ms=0))
            await self._answer_all()

    async def run(self) -> None:
        # A turn takes a while, so that lanes are seen running.
        loop = asyncio.get_running_loop()
        at, step = loop.time(), 0
        running: list[tuple[float, Lease]] = []
        while True:
            places = [(step * 7919 + each * 104_729) % len(self._keys) for each in range(self._each)]
            await self._say([self._keys[place] for place in places], POLICY)
            running += [(loop.time() + 0.5, lease) for lease in await self._claim(Kind.TURN)]
            due = [lease for ends_at, lease in running if ends_at <= loop.time()]
            running = [each for each in running if each[0] > loop.time()]
            await asyncio.gather(*(self._backend.commit(lease, Replied(Reply("Hello."))) for lease in due))
            sending = await self._claim(Kind.OUT)
            await asyncio.gather(*(self._backend.commit(lease, Delivered("r")) for lease in sending))
            step += 1
            await asyncio.sleep(max(0.0, at + step / FEEDS_PER_SECOND - loop.time()))

    async def _say(self, keys: list[str], policy: Policy) -> None:
        self._said += len(keys)
        numbers = range(self._said, self._said + len(keys))
        messages = [
            Message("site", f"{self._worker}-{n}", key, "somebody", "hi") for n, key in zip(numbers, keys, strict=True)
        ]
        await self._backend.accept([Arrival(message, policy) for message in messages])

    async def _claim(self, kind: Kind) -> list[Lease]:
        return await self._backend.claim(self._worker, kind, most=10 * self._each)

    async def _answer_all(self) -> None:
        for kind, outcome in ((Kind.TURN, Replied(Reply("Hello."))), (Kind.OUT, Delivered("r"))):
            while leases := await self._backend.claim(self._worker, kind, most=500):
                await asyncio.gather(*(self._backend.commit(lease, outcome) for lease in leases))


async def feed(store: str, lanes: int, rate: int) -> None:
    backend = open_backend(store, SystemClock())
    await backend.open()
    feeder = Feeder(backend, lanes, rate)
    await feeder.begin()
    print("begun", flush=True)
    await feeder.run()


# What is measured


class Clockwork:
    """Processor time of a process and all its threads, user and system."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")

    def seconds(self) -> float:
        fields = self._stat.read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    async def share(self, seconds: float) -> float:
        """Of one core, over so many seconds."""
        loop = asyncio.get_running_loop()
        began, before = loop.time(), self.seconds()
        await asyncio.sleep(seconds)
        return (self.seconds() - before) / (loop.time() - began)


async def facts_per_second(backend: Backend, seconds: float) -> float:
    after = (await backend.events(after=-1))[-1].cursor
    await asyncio.sleep(seconds)
    count = 0
    while page := await backend.events(after=after, limit=5_000):
        after, count = page[-1].cursor, count + len(page)
        if len(page) < 5_000:
            break
    return count / seconds


@asynccontextmanager
async def streaming(url: str) -> AsyncIterator[list[int]]:
    """Somebody who reads the stream and does nothing with it."""
    sizes: list[int] = []

    async def read() -> None:
        async with httpx2.AsyncClient(timeout=None) as client, client.stream("GET", f"{url}api/lanes/stream") as answer:
            async for chunk in answer.aiter_bytes():
                sizes.append(len(chunk))

    task = asyncio.create_task(read())
    try:
        await asyncio.sleep(WARM_UP_SECONDS)
        sizes.clear()
        yield sizes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drawn(url: str, folder: Path, clockwork: Clockwork, seconds: float) -> tuple[dict[str, float], float]:
    """What a browser saw in that time, and the server's share of a core meanwhile."""
    sys.path.insert(0, str(HERE))
    from tests.e2e.browser import Browser

    async with Browser(folder / "profile") as browser:
        page = await browser.open(f"{url}console")
        await page.call(
            "Emulation.setDeviceMetricsOverride", width=1600, height=1000, deviceScaleFactor=1, mobile=False
        )
        await page.until("window.turnlane?.board?.rows.length > 0")
        await asyncio.sleep(WARM_UP_SECONDS)
        await page.run(WATCH)
        share = await clockwork.share(seconds)
        seen = json.loads(await page.run(SEEN))
    frames, drawing = sorted(seen["frames"]), sorted(seen["drawing"])
    return {
        "lanes on the board": seen["rows"],
        "frames a second": len(frames) / seen["seconds"],
        "frame interval p50 ms": statistics.median(frames),
        "frame interval p95 ms": frames[int(len(frames) * 0.95)],
        "frame interval worst ms": frames[-1],
        "pictures a second": len(drawing) / seen["seconds"],
        "drawing p50 ms": statistics.median(drawing),
        "drawing p95 ms": drawing[int(len(drawing) * 0.95)],
        "long tasks (> 50 ms) a minute": len(seen["long"]) * 60 / seen["seconds"],
        "longest task ms": max(seen["long"], default=0.0),
        "kB received a second": seen["received"] / seen["seconds"] / 1000,
    }, share


async def measure(store: str, lanes: int, rate: int, seconds: float, folder: Path) -> dict[str, float]:
    url = store or f"sqlite:///{folder}/store.db"
    (folder / "turnlane.toml").write_text(f'backend = "{url}"\n[channels.site]\nkind = "webhook"\n')
    command = [sys.executable, __file__, "--feed", "--store", url, "--lanes", str(lanes), "--rate", str(rate)]
    feeder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert feeder.stdout is not None
        assert await feeder.stdout.readline() == b"begun\n"
        async with Turnlane("serve", "--listen", "127.0.0.1:0", "--log-format", "json", folder=folder) as server:
            return await measured(await server.ready(), server.pid, url, seconds, folder)
    finally:
        feeder.kill()
        await feeder.wait()


async def measured(served: str, pid: int, store: str, seconds: float, folder: Path) -> dict[str, float]:
    clockwork = Clockwork(pid)
    backend = open_backend(store, SystemClock())
    await backend.open()
    await asyncio.sleep(WARM_UP_SECONDS)
    made = await facts_per_second(backend, seconds / 2)
    await backend.close()
    alone = await clockwork.share(seconds)
    async with streaming(served) as sizes:
        streamed = await clockwork.share(seconds)
        sent = sum(sizes)
    seen, watched = await drawn(served, folder, clockwork, seconds)
    return {
        "changes a second": made,
        "server without a console, % of a core": 100 * alone,
        "server with one stream, % of a core": 100 * streamed,
        "server with one console, % of a core": 100 * watched,
        "one console costs, % of a core": 100 * (watched - alone),
        "stream kB a second": sent / seconds / 1000,
        **seen,
    }


def main() -> None:
    wanted = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted.add_argument("--store", default="", help="URL of an empty store; a new SQLite file if not given")
    wanted.add_argument("--lanes", type=int, default=5_000)
    wanted.add_argument("--rate", type=int, default=1_000, help="changes a second")
    wanted.add_argument("--seconds", type=float, default=20.0, help="for each of the measurements")
    wanted.add_argument("--feed", action="store_true", help=argparse.SUPPRESS)
    given = wanted.parse_args()
    if given.feed:
        asyncio.run(feed(given.store, given.lanes, given.rate))
        return
    with tempfile.TemporaryDirectory(prefix="turnlane-console-") as folder:
        found = asyncio.run(measure(given.store, given.lanes, given.rate, given.seconds, Path(folder)))
    for name, value in found.items():
        print(f"{name:<40} {value:10,.1f}")


if __name__ == "__main__":
    main()
