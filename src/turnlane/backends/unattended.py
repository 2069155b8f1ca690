"""Work in a thread that nobody has to wait for: a server may take long to say nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future


async def unattended(work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> None:
    """As `asyncio.to_thread`, but whoever is cancelled leaves at once, and so may the process.

    If the work is done nevertheless, it is undone.
    """
    outcome: Future[None] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the work was asked for
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    def undo_if_done(outcome: Future[None]) -> None:
        if outcome.exception() is None:
            undo()

    threading.Thread(target=run, name="turnlane-unattended", daemon=True).start()
    try:
        await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        outcome.add_done_callback(undo_if_done)
        raise
