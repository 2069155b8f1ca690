"""The server on loopback that ships with the package, under the name that tests know."""

from __future__ import annotations

from turnlane.testing.loopback import (
    Behaviour,
    Loopback,
    Request,
    accepts_then_cuts,
    answers,
    loopback,
    never_answers,
    nobody_listens,
    promises_more_than_it_sends,
)

__all__ = [
    "Behaviour",
    "Loopback",
    "Request",
    "accepts_then_cuts",
    "answers",
    "loopback",
    "never_answers",
    "nobody_listens",
    "promises_more_than_it_sends",
]
