"""The rate of an account, shared by real processes through the store alone."""

from __future__ import annotations

import json

from tests.e2e.site import Site

from turnlane.testing.outside import Outside

EVERY_MS = 50
BURST = 2


async def test_two_processes_together_never_send_faster_than_the_rate(site: Site, outside: Outside) -> None:
    """In no window of time, by the store's own account of when each sending began; and in order."""
    site.configure(channel=f'rate = "{1_000 // EVERY_MS}/s"\nburst = {BURST}', top="sends_at_once = 4")
    processes = [await site.start(), await site.start()]
    names = [f"user-{number}" for number in range(10)]
    for number in range(3):
        for place, name in enumerate(names):
            await site.post(processes[place % 2], f"{name}/{number}", conversation=name)
    await outside.until(lambda: sum(len(reply.in_reply_to) for reply in outside.replies) == 30)
    await site.all_settled()
    began, workers = [], set()
    for at, facts in site.rows("SELECT at, facts FROM journal ORDER BY id"):
        started = [fact for fact in json.loads(facts) if fact[0] == "delivery.started"]
        began += [at] * len(started)
        workers |= {fact[-1] for fact in started}
    assert len(began) >= 10
    assert all(later - at >= EVERY_MS for at, later in zip(began, began[BURST:], strict=False))
    assert len(workers) >= 2
    for name in names:
        said = [id_ for reply in outside.replies if reply.conversation == name for id_ in reply.in_reply_to]
        assert said == [f"{name}/{number}" for number in range(3)]
