"""A process is killed after the receiver took a reply and before it could say so: what the next process makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.channels.loopback import Loopback, loopback, never_answers
from tests.channels.receiver import Receiver
from tests.e2e.site import Site

from turnlane.testing.processes import Turnlane


@pytest.fixture
def receiver() -> Receiver:
    return Receiver(first=never_answers)


@pytest.fixture
async def server(receiver: Receiver) -> AsyncIterator[Loopback]:
    async with loopback(receiver.behave) as server:
        yield server


def connect(site: Site, server: Loopback, *, lanes: str = "", can_tell: bool = False) -> None:
    site.configure(lanes=lanes)
    file = site.folder / "turnlane.toml"
    urls = f'reply_url = "{server.url}"\n' + (f'lookup_url = "{server.url}"\n' if can_tell else "")
    file.write_text(file.read_text().replace(f'reply_url = "{site.outside.url}/replies"\n', urls))


async def killed_in_the_middle_of_a_reply(site: Site, server: Loopback) -> Turnlane:
    """And the next process is up."""
    first = await site.start()
    await site.post(first, "m1")
    await server.arrived.wait()
    first.kill()
    await first.ended()
    return await site.start()


async def test_a_killed_processes_half_sent_reply_is_looked_up_and_arrives_once(
    site: Site, server: Loopback, receiver: Receiver
) -> None:
    connect(site, server, can_tell=True)
    await killed_in_the_middle_of_a_reply(site, server)
    await site.comes_true(lambda: site.rows("SELECT state, receipt FROM delivery") == [("sent", "shown")])
    assert (len(receiver.shown), len(receiver.questions)) == (1, 1)


async def test_a_killed_processes_half_sent_reply_is_held_and_visible(
    site: Site, server: Loopback, receiver: Receiver
) -> None:
    connect(site, server, lanes='on_unknown = "hold"')
    process = await killed_in_the_middle_of_a_reply(site, server)
    await process.said("lane.parked")
    assert [lane["conversation"] for lane in (await site.api(process, "lanes?kind=out&state=parked"))["lanes"]] == [
        "site/alice"
    ]
    assert len((await site.api(process, "outbox"))["deliveries"]) == 1
    await site.post(process, "b1", conversation="bob")
    await site.comes_true(lambda: len(receiver.shown) == 2)
    assert len(receiver.texts("alice")) == 1


async def test_a_killed_processes_half_sent_reply_leaves_again_and_says_so(
    site: Site, server: Loopback, receiver: Receiver
) -> None:
    connect(site, server)
    await killed_in_the_middle_of_a_reply(site, server)
    await site.comes_true(lambda: site.rows("SELECT state FROM delivery") == [("sent",)])
    first, again = receiver.shown
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
    assert {**first.json, "resent": True} == again.json
