"""A policy that an older version stored is read with the defaults of what it did not know yet."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.sqlite.conftest import Opens

from turnlane.backends.base import Arrival
from turnlane.model.lane import Kind
from turnlane.model.message import Message
from turnlane.model.policy import Policy

HOLD = Policy(debounce_ms=0, max_wait_ms=0, on_unknown="hold")


async def test_a_policy_without_on_unknown_resends(opens: Opens, path: Path) -> None:
    before = await opens()
    await before.accept([Arrival(Message("site", "m-1", "site/alice", "alice", "hello"), HOLD)])
    await before.close()
    forget_the_field(path)

    after = await opens()
    await after.join("worker", 60_000)
    (lease,) = await after.claim("worker", Kind.TURN)
    assert lease.policy == replace(HOLD, on_unknown="resend")
    await after.accept([Arrival(Message("site", "m-2", "site/bob", "bob", "hello"), HOLD)])
    (lease,) = await after.claim("worker", Kind.TURN)
    assert lease.policy == HOLD


def forget_the_field(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for number, text in file.execute("SELECT id, text FROM policy").fetchall():
            policy = json.loads(text)
            assert policy.pop("on_unknown") == "hold"
            file.execute("UPDATE policy SET text = ? WHERE id = ?", (json.dumps(policy), number))
