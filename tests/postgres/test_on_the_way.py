"""What stands between here and a Postgres: TLS, and a pool of connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.certificates import certificate_in
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import open_backend
from turnlane.backends.postgres.connection import Target
from turnlane.backends.postgres.store import explain
from turnlane.errors import BackendRefused
from turnlane.testing.cable import Cable

SSL_REQUEST = bytes.fromhex("0000000804d2162f")

Encrypted = Callable[[Path, Path], AbstractAsyncContextManager[str]]


@pytest.fixture
def encrypted(postgres: str) -> Encrypted:
    """A door to the real server that speaks TLS alone, as the server that tests start is built without it."""
    url = urlsplit(postgres)
    assert url.port is not None

    @asynccontextmanager
    async def door(certificate: Path, key: Path) -> AsyncIterator[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        cable = Cable(url.port or 0)

        async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readexactly(len(SSL_REQUEST)) == SSL_REQUEST, "it did not ask for TLS"
            writer.write(b"S")
            try:
                await writer.start_tls(context)
            except (ssl.SSLError, ConnectionError):
                writer.close()  # whoever came does not trust us
                return
            cable.take(reader, writer)

        async with await asyncio.start_server(welcome, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            yield postgres.replace(f":{url.port}", f":{port}")
            await cable.close()

    return door


async def test_tls_is_spoken_with_whom_the_url_trusts(encrypted: Encrypted, tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)
    async with encrypted(certificate, key) as url:
        store = open_backend(f"{url}?sslmode=verify-full&sslrootcert={certificate}")
        await store.open()
        assert (await store.accept([arrival("alice", "m-1")]))[0].verdict == "accepted"
        await store.close()


async def test_whom_the_url_does_not_trust_is_refused_with_what_to_do(encrypted: Encrypted, tmp_path: Path) -> None:
    other, _ = certificate_in(tmp_path, "other")
    async with encrypted(*certificate_in(tmp_path)) as url:
        with pytest.raises(BackendRefused, match=r"certificate.*sslrootcert"):
            await open_backend(f"{url}?sslmode=verify-full&sslrootcert={other}").open()


async def test_a_file_of_the_url_that_is_not_there_is_named(postgres: str, tmp_path: Path) -> None:
    missing = tmp_path / "authority.pem"
    with pytest.raises(BackendRefused, match=f"sslrootcert={missing} is not there"):
        await open_backend(f"{postgres}?sslmode=verify-full&sslrootcert={missing}").open()


@pytest.mark.parametrize(
    ("error", "what_to_do"),
    [
        (asyncpg.ProtocolViolationError("unsupported startup parameter: search_path"), "ALTER ROLE"),
        (
            asyncpg.DuplicatePreparedStatementError('"__asyncpg_stmt_1__" already exists\nHINT: a page of it'),
            "prepare=false&notify=false",
        ),
    ],
)
def test_what_a_pool_refuses_comes_with_what_to_do(error: Exception, what_to_do: str) -> None:
    """As pgbouncer 1.18 said it."""
    told = explain(error, Target("postgresql://db/lane?schema=shop"))
    assert isinstance(told, BackendRefused)
    assert what_to_do in str(told)
    assert "\n" not in str(told)
