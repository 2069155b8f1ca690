"""Every backend keeps every promise of the contract."""

from __future__ import annotations

from turnlane.backends.base import open_backend
from turnlane.clock import Clock
from turnlane.testing.conformance import BackendConformance


class TestBackends(BackendConformance):
    """On memory and SQLite, as tests/conftest.py provides them."""


async def test_close_may_be_called_before_open(backend_url: str, clock: Clock) -> None:
    await open_backend(backend_url, clock).close()
