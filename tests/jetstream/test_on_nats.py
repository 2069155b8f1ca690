"""What is NATS's own: its restarts and elections, its limits, its hints, its URL."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from nats import connect
from tests.certificates import certificate_in
from tests.contention import accepted
from tests.http.conftest import eventually
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import Backend, open_backend
from turnlane.backends.nats import NatsBackend
from turnlane.backends.nats.conversation import ROWS_KEPT_MAX
from turnlane.errors import BackendError, BackendUnavailable, InvalidSettings, TooLarge
from turnlane.http.answer import status_of
from turnlane.model.lane import Kind
from turnlane.model.turn import Delivered, Replied, Reply
from turnlane.testing.servers import Nats, NatsCluster

TERM_MS = 60_000
IDLE_LANE_BYTES_MAX = 1_000

Opens = Callable[[str], Awaitable[NatsBackend]]


@pytest.fixture
async def opens() -> AsyncIterator[Opens]:
    async with AsyncExitStack() as stack:

        async def opened(url: str) -> NatsBackend:
            backend = open_backend(url)
            assert isinstance(backend, NatsBackend)
            await backend.open()
            stack.push_async_callback(backend.close)
            return backend

        yield opened
    gc.collect()  # so that what nobody closed is found here, and in no test after it


async def answer_everything(store: Backend, worker: str) -> list[str]:
    """Run and send whatever is ready. Returns the ids of the messages that were answered, in order."""
    found: list[str] = []
    while leases := await store.claim(worker, Kind.TURN, most=100):
        for lease in leases:
            found += [message.origin_id for message in lease.messages]
            assert (await store.commit(lease, Replied(Reply("yes", lease.key)))).verdict == "answered"
    while leases := await store.claim(worker, Kind.OUT, most=100):
        for lease in leases:
            assert (await store.commit(lease, Delivered("receipt"))).verdict == "sent"
    return found


# A message is known again


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_settled_message_is_known_again_after_the_server_was_restarted(
    nats_server: Nats, opens: Opens, mode: str
) -> None:
    """A2: the server's own table of ids is made anew from what is stored, and what is answered stays stored."""
    store = await opens(nats_server.url)
    await store.join("worker", TERM_MS)
    said = [arrival("alice", f"m-{number}") for number in range(5)]
    await store.accept(said)
    assert len(await answer_everything(store, "worker")) == 5
    await asyncio.to_thread(nats_server.restart, "fast" if mode == "fast" else "immediate")
    other = await opens(nats_server.url)
    assert [(each.verdict, each.seq) for each in await other.accept(said)] == [
        ("duplicate", place) for place in range(1, 6)
    ]


async def test_a_forgotten_id_is_accepted_anew_though_the_server_still_knows_it(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    [first] = await store.accept([arrival("alice", "m-1")])
    far = 1 << 50
    await store.forget(messages_before=0, events_before=0, origins_before=far)
    # Nothing may be remembered by the process that asks.
    other = await opens(nats)
    [again] = await other.accept([arrival("alice", "m-1")])
    assert (first.verdict, again.verdict, again.seq) == ("accepted", "accepted", 2)


async def test_asking_for_an_id_leaves_every_replica_well(nats_cluster: NatsCluster, opens: Opens) -> None:
    url = f"{nats_cluster.url}?replicas=3"
    here, there = await opens(url), await opens(url)
    said = [arrival(f"user-{number}", f"m-{number}") for number in range(20)]
    await here.accept(said)
    assert {each.verdict for each in await there.accept(said)} == {"duplicate"}
    assert await there.place_of("desk", "m-7") == ("desk/user-7", 1)
    assert await there.place_of("desk", "never said") is None
    assert [node.asked("/healthz") for node in nats_cluster.nodes.values()] == [{"status": "ok"}] * 3


async def test_a_message_that_is_not_kept_any_longer_is_still_known_again_in_its_place(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    await store.join("worker", TERM_MS)
    said = [arrival("alice", f"m-{number}") for number in range(3)]
    await store.accept(said)
    await answer_everything(store, "worker")
    await store.accept([arrival("alice", "last")])
    await answer_everything(store, "worker")
    far = 1 << 50
    await store.forget(messages_before=far, events_before=far, origins_before=0)
    story = await store.story("desk/alice")
    assert story is not None
    assert not {message.origin_id for message in story.messages} & {"m-0", "m-1", "m-2"}
    other = await opens(nats)
    assert [(each.verdict, each.seq) for each in await other.accept(said)] == [("duplicate", n) for n in (1, 2, 3)]


# Servers go, and come back


# nats-py lets go of a connection to a frozen server without closing it.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_nothing_is_lost_when_the_leader_of_three_goes(nats_cluster: NatsCluster, opens: Opens, how: str) -> None:
    """What was acknowledged is there; what was not is told so, and works when it is tried again."""
    url = f"{nats_cluster.url}?replicas=3"
    store = await opens(url)
    await store.join("worker", TERM_MS)
    acknowledged: list[str] = []
    over = asyncio.Event()

    async def say(place: int) -> None:
        number = 0
        while not over.is_set():
            said = arrival(f"user-{place}", f"m-{place}-{number}")
            while not await accepted(store, said):
                pass  # it may be stored: whoever gave up now would not know
            acknowledged.append(said.message.origin_id)
            number += 1

    talking = [asyncio.create_task(say(place)) for place in range(5)]
    await eventually(lambda: len(acknowledged) > 50, 30)
    leader = nats_cluster.nodes[await leader_of(store)]
    await asyncio.to_thread(leader.kill if how == "kill" else leader.freeze)
    before = len(acknowledged)
    await eventually(lambda: len(acknowledged) > before + 50, 60)
    await asyncio.to_thread(nats_cluster.start)
    over.set()
    await asyncio.gather(*talking)
    # Asked by another machine: the worker's own term may be over.
    other = await opens(url)
    await other.join("another", TERM_MS)
    assert sorted(await answer_everything(other, "another")) == sorted(acknowledged)


async def leader_of(store: NatsBackend) -> str:
    info = await asyncio.to_thread(store._store.stream_info)
    assert info is not None
    return str(info["cluster"]["leader"])


# Hints


async def test_what_no_hint_told_of_is_found_within_a_look(
    nats: str, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: hints may be lost."""
    here, there = await opens(nats), await opens(nats)
    monkeypatch.setattr(there._store.link, "hint", lambda payload: None)
    await here.join("here", TERM_MS)
    waiting = asyncio.create_task(here.claim("here", Kind.TURN, wait=True))
    await there.accept([arrival("alice", "m-1")])
    async with asyncio.timeout(5):
        [lease] = await waiting
    assert [message.origin_id for message in lease.messages] == ["m-1"]


# Limits of the server


async def test_more_than_one_batch_can_hold_is_stored_in_several(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    said = [arrival(f"user-{number}", f"m-{number}") for number in range(2_500)]
    assert {each.verdict for each in await store.accept(said)} == {"accepted"}
    assert (await store.counts()).messages_waiting == 2_500


async def test_many_messages_of_one_conversation_in_one_call_keep_their_order_and_their_ids(
    nats: str, opens: Opens
) -> None:
    store = await opens(nats)
    await store.join("worker", TERM_MS)
    said = [arrival("alice", f"m-{number}") for number in range(30)]
    await store.accept([*said, said[3]])
    assert await answer_everything(store, "worker") == [f"m-{number}" for number in range(30)]
    other = await opens(nats)
    assert [each.seq for each in await other.accept(said)] == list(range(1, 31))


async def test_a_message_that_no_record_can_hold_is_refused_and_its_neighbours_are_not(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    large = arrival("alice", "m-1")
    large = replace(large, message=replace(large.message, text="x" * 2_000_000))
    answers = await asyncio.gather(store.accept([large]), store.accept([arrival("bob", "m-2")]), return_exceptions=True)
    assert isinstance(answers[0], TooLarge)
    assert "max_payload" in str(answers[0])
    assert status_of(answers[0]) == 413
    assert not isinstance(answers[1], BaseException)
    assert [lane.conversation for lane in await store.lanes()] == ["desk/bob"]


async def test_a_long_conversation_goes_on_and_its_first_turn_is_still_known(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    await store.join("worker", TERM_MS)
    await store.accept([arrival("alice", "m-0")])
    [first] = await store.claim("worker", Kind.TURN)
    assert (await store.commit(first, Replied(Reply(None)))).verdict == "answered"
    for number in range(1, ROWS_KEPT_MAX):
        await store.accept([arrival("alice", f"m-{number}")])
        [lease] = await store.claim("worker", Kind.TURN)
        await store.commit(lease, Replied(Reply(None)))
    assert (await store.commit(first, Replied(Reply(None)))).verdict == "answered"
    story = await store.story("desk/alice")
    assert story is not None
    assert len(story.turns) == ROWS_KEPT_MAX


async def test_an_idle_conversation_costs_the_server_less_than_a_kilobyte(nats: str, opens: Opens) -> None:
    store = await opens(nats)
    await store.join("worker", TERM_MS)
    await store.accept([arrival(f"user-{number}", f"m-{number}") for number in range(50)])
    await answer_everything(store, "worker")
    far = 1 << 50
    await store.forget(messages_before=far, events_before=far, origins_before=0)
    info = await asyncio.to_thread(store._store.stream_info)
    assert info is not None
    assert info["state"]["bytes"] < 50 * IDLE_LANE_BYTES_MAX
    assert (await store.counts()).lanes == {"idle": 50}
    # And goes on where it was.
    other = await opens(nats)
    await other.join("another", TERM_MS)
    [said] = await other.accept([arrival("user-7", "next")])
    [lease] = await other.claim("another", Kind.TURN)
    assert (said.seq, lease.number) == (2, 2)
    assert lease.session is not None
    assert lease.session.handle == "desk/user-7"


# The URL


async def test_a_wrong_url_says_what_to_do(nats: str) -> None:
    with pytest.raises(BackendUnavailable, match="check that the servers run"):
        await open_backend("nats://127.0.0.1:1").open()
    for wrong, advice in {
        "nats://": "names no server",
        f"{nats}?replicas=many": "must be a number",
        f"{nats}?stream=a.b": "letters, digits",
        f"{nats}?tls_ca=/nowhere": "TLS files",
        f"{nats}?what=ever": "unknown option 'what'",
        "nats://127.0.0.1:abc": "'127.0.0.1:abc' is no server",
        "nats://[::1": "cannot be read",
    }.items():
        with pytest.raises(InvalidSettings, match=advice):
            await open_backend(wrong).open()


async def test_more_replicas_than_servers_are_refused(nats: str) -> None:
    with pytest.raises(BackendUnavailable, match="needs as many servers"):
        await open_backend(f"{nats}?replicas=3").open()


async def test_a_stream_of_somebody_else_is_left_alone(nats: str) -> None:
    from nats import connect

    client = await connect(nats)
    await client.jetstream().add_stream(name="turnlane", subjects=["theirs"])
    with pytest.raises(BackendError, match="not Turnlane's"):
        await open_backend(nats).open()
    await client.close()


# Here, too.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_server_that_is_cut_off_in_its_first_word_is_connected_to_again(
    nats_server: Nats, opens: Opens
) -> None:
    """nats-py would end there."""
    halves, streams = [False, True, True, False], list[asyncio.StreamWriter]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.append(writer)
        if halves and halves.pop(0):
            writer.write(b"INFO")
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
        await asyncio.gather(pass_on(reader, server_writer), pass_on(server_reader, writer))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as relay:
        store = await opens(f"nats://127.0.0.1:{relay.sockets[0].getsockname()[1]}")
        assert await accepted(store, arrival("alice", "m-1"))
        streams[0].close()
        async with asyncio.timeout(30):
            while not await accepted(store, arrival("alice", "m-2")):
                pass
        assert not halves
        await store.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@pytest.fixture
def with_a_password() -> Iterator[Nats]:
    with Nats(config='authorization { user: "turnlane", password: "secret" }\n', sync_interval="2m") as server:
        yield server


async def test_a_user_and_a_password_stand_in_the_url_and_in_no_error(with_a_password: Nats, opens: Opens) -> None:
    store = await opens(with_a_password.url.replace("//", "//turnlane:secret@"))
    assert (await store.accept([arrival("alice", "m-1")]))[0].verdict == "accepted"
    with pytest.raises(BackendUnavailable) as refused:
        await open_backend(with_a_password.url.replace("//", "//turnlane:wrong@")).open()
    assert "wrong" not in str(refused.value)


@pytest.fixture
def with_tls(tmp_path: Path) -> Iterator[tuple[Nats, Path]]:
    certificate, key = certificate_in(tmp_path)
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
    with Nats(config=tls, sync_interval="2m") as server:
        yield server, certificate


async def test_tls_is_spoken_with_a_certificate_of_ones_own(with_tls: tuple[Nats, Path], opens: Opens) -> None:
    server, certificate = with_tls
    store = await opens(f"{server.url.replace('nats://', 'tls://')}?tls_ca={certificate}")
    assert (await store.accept([arrival("alice", "m-1")]))[0].verdict == "accepted"
    with pytest.raises(BackendUnavailable):
        await open_backend(server.url.replace("nats://", "tls://")).open()


async def test_a_stream_is_made_although_the_server_still_clears_away_another_of_its_name(opens: Opens) -> None:
    """A server says that a stream is deleted before all of it is gone. What is left is played by a plain file here."""
    with Nats() as server:
        client = await connect(server.url)
        await client.jetstream().add_stream(name="first")
        await client.close()
        (first,) = server.folder.rglob("streams/first")
        first.with_name("turnlane").write_text("in the way, until the server has failed once")
        assert await (await opens(server.url)).lanes() == []
        assert "not a directory" in server.log, "it was not in the way"


async def test_however_many_conversations_a_group_is_about_they_are_asked_for_at_once(
    nats: str, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server has the last word; only of several it is the leader, who is asked for each."""
    await (await opens(nats)).accept([arrival(f"old-{number}", f"m-{number}") for number in range(30)])
    store = await opens(nats)
    asked = Mock(side_effect=store._store.link._answers)
    monkeypatch.setattr(store._store.link, "_answers", asked)
    monkeypatch.setattr(store._store.link, "_get", Mock(side_effect=AssertionError("asked for one")))

    old = await store.accept([arrival(f"old-{number}", f"n-{number}") for number in range(30)])
    new = await store.accept([arrival(f"new-{number}", f"o-{number}") for number in range(30)])

    assert {each.seq for each in old} == {2}
    assert {each.seq for each in new} == {1}
    # Besides, what waits in each old conversation is read.
    assert sum("multi_last" in call.args[1] for call in asked.call_args_list) == 2
