"""The world of the flow tests, on each backend."""

from __future__ import annotations

import pytest
from tests.flow.world import World

from turnlane.backends.base import Backend
from turnlane.testing.doubles import VirtualClock


@pytest.fixture
def world(backend: Backend, clock: VirtualClock) -> World:
    return World(backend, clock)
