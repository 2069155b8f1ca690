"""A cable to a server that can be cut: what the tests of lost connections rely on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from turnlane.testing.cable import Cable, cable_to

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while said := await reader.read(1000):
        writer.write(said)
    writer.close()


@pytest.fixture
async def cable() -> AsyncIterator[tuple[Cable, str]]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with cable_to(f"x://somebody:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/name") as found:
            yield found
    finally:
        server.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Ends]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_bytes_travel_both_ways_and_the_rest_of_the_url_stays(cable: tuple[Cable, str]) -> None:
    _, url = cable
    async with connected(url) as (reader, writer):
        writer.write(b"hello")

        assert await reader.readexactly(5) == b"hello"
    assert url.startswith("x://somebody:secret@127.0.0.1:")
    assert url.endswith("/name")


async def test_a_cut_ends_each_connection_and_new_ones_can_be_made(cable: tuple[Cable, str]) -> None:
    ours, url = cable
    async with connected(url) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)

        ours.cut()

        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    async with connected(url) as (reader, writer):
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"


async def test_while_it_is_lost_nothing_arrives_though_nothing_is_closed(cable: tuple[Cable, str]) -> None:
    ours, url = cable
    async with connected(url) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)
        losing = asyncio.create_task(ours.lose(0.2))
        await asyncio.sleep(0)

        writer.write(b"b")

        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await losing
