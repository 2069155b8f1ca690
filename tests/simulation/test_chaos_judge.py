"""Whoever judges a tortured bot would see every way in which a promise can be broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from turnlane.testing.chaos.judge import (
    Conversation,
    Evidence,
    Outgoing,
    Row,
    Run,
    Taken,
    _find_who_hung,
    _find_who_went_on,
)
from turnlane.testing.chaos.report import PROMISES

KEY = "shop/person-1"


def run(turn: int, epoch: int, began: float, ended: float | None, *, how: str = "answered", text: str = "") -> Run:
    return Run(KEY, turn, epoch, 1, began, ended, how, parts=[text or f"answer {turn}"] if how == "answered" else [])


def outgoing(turn: int, ids: str, *, key: str = "", state: str = "sent") -> Outgoing:
    return Outgoing(key or f"key-{turn}", "reply", turn, 1, f"answer {turn}", state, ids)


def taken(turn: int, sending: str, *, key: str = "", text: str = "") -> Taken:
    return Taken(key or f"key-{turn}", KEY, text or f"answer {turn}", sending)


KEPT = Conversation(
    KEY,
    said=["m1", "m2", "m3"],
    messages=[(1, "m1", None), (2, "m2", None), (3, "m3", None)],
    turns=[Row(1, 1, 2, "answered", 1, None), Row(2, 3, 3, "answered", 3, None)],
    outbox=[outgoing(1, '["m1", "m2"]'), outgoing(2, '["m3"]')],
    runs=[run(1, 1, 0, 2), run(2, 2, 2, None, how=""), run(2, 3, 5, 6)],
    taken=[taken(1, "a"), taken(1, "b"), taken(2, "c")],
)
"""One run was lost with its worker, and one answer was sent again under its key: both are allowed."""


def broken(conversation: Conversation) -> set[str]:
    return {finding.promise for finding in conversation.findings()}


def test_kept_promises_are_not_called_broken() -> None:
    assert broken(KEPT) == set()


def test_what_was_refused_superseded_or_given_up_has_its_outcome() -> None:
    assert (
        broken(
            replace(
                KEPT,
                messages=[*KEPT.messages, (4, "m4", "refused"), (5, "m5", None)],
                said=[*KEPT.said, "m4", "m5"],
                turns=[*KEPT.turns, Row(3, 5, 5, "dead_letter", 4, "it raised")],
            )
        )
        == set()
    )


def test_an_answer_that_was_given_as_its_process_was_stopped_is_not_lost() -> None:
    unsent = replace(KEPT, outbox=[KEPT.outbox[0], outgoing(2, '["m3"]', state="queued")], taken=KEPT.taken[:2])
    assert broken(unsent) == {"nothing is lost"}
    assert broken(replace(unsent, left_at=5.5)) == set()


@pytest.mark.parametrize(
    ("promise", "conversation"),
    [
        ("nothing is lost", replace(KEPT, messages=KEPT.messages[:2])),
        ("nothing is lost", replace(KEPT, turns=[replace(KEPT.turns[0], last=1), KEPT.turns[1]])),
        ("nothing is lost", replace(KEPT, turns=KEPT.turns[:1], runs=KEPT.runs[:1])),
        ("nothing is lost", replace(KEPT, outbox=KEPT.outbox[:1])),
        ("nothing is lost", replace(KEPT, outbox=[KEPT.outbox[0], outgoing(2, '["m3"]', state="queued")])),
        ("nothing is lost", replace(KEPT, taken=KEPT.taken[:2])),
        ("nothing is said twice", replace(KEPT, messages=[*KEPT.messages, (4, "m3", "refused")])),
        ("nothing is said twice", replace(KEPT, outbox=[*KEPT.outbox, outgoing(2, '["m3"]', key="another")])),
        ("nothing is said twice", replace(KEPT, outbox=[KEPT.outbox[0], outgoing(2, '["m2", "m3"]')])),
        ("order is kept", replace(KEPT, said=["m2", "m1", "m3"])),
        ("order is kept", replace(KEPT, taken=KEPT.taken[::-1])),
        ("order is kept", replace(KEPT, turns=KEPT.turns[::-1])),
        ("order is kept", replace(KEPT, outbox=KEPT.outbox[::-1], taken=KEPT.taken[::-1])),
        ("one turn at a time", replace(KEPT, runs=[run(1, 1, 0, 5.5), KEPT.runs[2]])),
        ("one turn at a time", replace(KEPT, runs=[*KEPT.runs, run(2, 3, 7, 8)])),
        ("only what was committed is said", replace(KEPT, taken=[*KEPT.taken, taken(3, "d")])),
        ("only what was committed is said", replace(KEPT, taken=[*KEPT.taken, taken(2, "d", text="stale")])),
        ("only what was committed is said", replace(KEPT, runs=[KEPT.runs[0], run(2, 3, 5, 6, text="another")])),
        ("answers in time", replace(KEPT, turns=KEPT.turns[:1])),
        ("answers in time", replace(KEPT, turns=KEPT.turns[:1], runs=KEPT.runs[:1], agents_busy=True)),
        ("stops when it is told to", replace(KEPT, runs=[*KEPT.runs, run(2, 2, 2, 9, how="went on")])),
        ("answers in time", replace(KEPT, runs=[*KEPT.runs, replace(run(2, 2, 2, 30, how="stopped"), hung=28.0)])),
        ("keeps conversations apart", replace(KEPT, runs=[*KEPT.runs, run(3, 9, 7, 8, text="as ref-2-1 said")])),
        ("sends what it is handed, once", replace(KEPT, taken=[*KEPT.taken, taken(2, "c")])),
        ("sends what it is handed, once", replace(KEPT, taken=KEPT.taken[:2], own_channels=True)),
    ],
)
def test_the_judge_sees_a_broken_promise(promise: str, conversation: Conversation) -> None:
    assert promise in broken(conversation)
    assert broken(conversation) <= set(PROMISES)


def test_who_was_told_to_stop_and_was_killed_long_after_went_on() -> None:
    tidy, deaf, alive = (replace(run(1, 1, 0, None, how=""), by=by, told=10.0) for by in (1, 2, 3))
    _find_who_went_on([tidy, deaf, alive], 40.0, [(1, 5.0), (1, 12.0), (2, 9.0), (2, 17.0)])
    assert [(each.how, each.seconds) for each in (tidy, deaf, alive)] == [
        ("", 0.0),
        ("went on", 7.0),
        ("went on", 30.0),
    ]


@pytest.mark.parametrize(
    ("ended", "facts", "stalled", "hung"),
    [
        (39.0, [["turn.lost", KEY, 2, 1, 2, "w"]], 0, 37.0),
        (39.0, [["turn.released", KEY, 2, 1, 2, "w"]], 30, 7.0),
        (None, [["turn.lost", KEY, 2, 1, 2, "w"]], 0, 18.0),
        (39.0, [["turn.lost", KEY, 2, 1, 2, "w"]], 34, 0.0),
        (6.0, [["turn.lost", KEY, 2, 1, 2, "w"]], 0, 0.0),
        (39.0, [["turn.retried", KEY, 2, 1, 2, "w", "turn_deadline", 3]], 0, 0.0),
        (39.0, [["question.asked", KEY, 2, 1, "d", 3], ["turn.lost", KEY, 2, 1, 2, "w"]], 0, 0.0),
    ],
    ids=["lost", "released", "killed", "frozen", "short", "deadline", "asks"],
)
def test_who_ran_until_its_worker_was_lost_by_chance_hung(
    ended: float | None, facts: Sequence[Sequence[object]], stalled: float, hung: float
) -> None:
    """Nothing but luck, or a fault, ended it: an answer came from another run."""
    suspect = replace(run(2, 2, 2, ended, how="stopped"), by=3)
    stall = {"what": "stalled", "by": 3, "began": 3.0, "seconds": stalled, "at": 3.0 + stalled}
    _find_who_hung([run(1, 1, 0, 0.2), suspect], facts, [stall], [(3, 20.0)] if ended is None else [])
    assert suspect.hung == hung


def test_nobody_is_said_to_hang_where_answers_take_long() -> None:
    suspect = run(2, 2, 2, 39, how="stopped")
    _find_who_hung([run(1, 1, 0, 4), suspect], [["turn.lost", KEY, 2, 1, 2, "w"]], [], [])
    assert suspect.hung == 0.0


def evidence(*conversations: Conversation, causes: Sequence[str]) -> Evidence:
    letters = [(KEY, cause) for cause in causes]
    return Evidence(conversations, Counter(), letters, failed=0, previews=0, stalls=())


def test_a_bot_that_never_answers_does_not_pass() -> None:
    given_up = replace(KEPT, turns=[Row(1, 1, 3, "dead_letter", 1, "it raised")], outbox=[], runs=[], taken=[])
    found = evidence(given_up, causes=["it raised"]).findings()
    assert [(each.promise, each.what) for each in found] == [("answers in time", "never: every turn was given up (1)")]
    assert evidence(KEPT, causes=["it raised"]).findings() == []


def test_a_cause_of_many_lines_is_told_in_one() -> None:
    assert "1 × it raised, twice" in "".join(evidence(KEPT, causes=["it raised,\ntwice"]).notes())
