"""What is done beside the path of a message: nobody waits for it, and there is only so much of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

TASKS_MAX = 200


class Beside:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def do(self, what: Coroutine[object, object, object]) -> asyncio.Task[object] | None:
        """None: too much is done already, and this is left out."""
        if len(self._tasks) >= TASKS_MAX:
            what.close()
            return None
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
