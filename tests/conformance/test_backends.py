"""Every backend keeps every promise of the contract."""

from __future__ import annotations

from turnlane.testing.conformance import BackendConformance


class TestBackends(BackendConformance):
    """On memory and SQLite, as tests/conftest.py provides them."""
